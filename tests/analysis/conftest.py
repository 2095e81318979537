"""What the tests of analysis share: the corpus of the tests of reading, built in every format."""

from tests.train.conftest import built

__all__ = ["built"]
