"""What speed claims are made of: corpora of any size, and the measurements taken on them."""
