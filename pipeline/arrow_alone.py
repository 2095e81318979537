"""Arrow without pandas, which it imports with the first array it makes: a quarter of a second.

Nothing here is a pandas object. Whoever imports pandas later still can.
"""

import sys
from collections.abc import Sequence

import pyarrow as pa


class _NoPandas:
    """Tells whoever imports pandas that there is none."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not wanted here", name=name)


def keep_pandas_out() -> None:
    """Let Arrow find, once and for this process, that there is no pandas."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([""])
    finally:
        sys.meta_path.remove(finder)
