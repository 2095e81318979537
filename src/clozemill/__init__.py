"""Turn raw text into masked-language-model training data, and know what the model was fed."""

__version__ = "0.1.0"
