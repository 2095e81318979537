"""A full disk, for as long as a block lasts."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def files_end_at(num_bytes: int) -> Iterator[None]:
    """Refuse files above a size, as a full disk refuses them.

    Not for a whole test: pytest would be refused too, where its output goes to a file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
