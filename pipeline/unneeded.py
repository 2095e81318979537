"""What importing costs beyond need: packages never used, and the search for garbage.

Other libraries import on the way what a build never uses, if it is installed: Arrow imports pandas
with the first array it makes (a quarter of a second), Numba scipy with the first kernel (half a
second), and yaml and cffi at once (0.03 s). Whoever imports them later still can; kernels that call
`np.dot` cannot be compiled in such a process.
"""

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa


class _Missing:
    """Tells whoever imports a package that there is none."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        if name == self._package:
            raise ModuleNotFoundError(f"{name} is not wanted here", name=name)


def keep_unneeded_out() -> None:
    """Let Arrow and Numba find, once and for this process, that there are no such packages."""
    with _without("pandas"):
        pa.array([""])
    with _without("cffi"), _without("scipy"), _without("yaml"):
        importlib.import_module("numba.np.arraymath")
        importlib.import_module("numba.core.typing.cffi_utils")


@contextlib.contextmanager
def _without(package: str) -> Iterator[None]:
    finder = _Missing(package)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Look for no garbage among what is imported inside, and never again.

    That is a seventh of the time of importing, and most of the time of ending the process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
