"""The encoder, its heads, and conversion to and from Hugging Face."""
