"""A lock by which one process alone writes a folder."""

import fcntl
import os
from pathlib import Path


def lock_file(path: Path) -> int:
    """Return the descriptor of a locked file, made if need be.

    The lock ends when the descriptor is closed here and in every process forked meanwhile: with
    the processes, however they end.

    Raises:
        BlockingIOError: Another process holds it.
        OSError: The file cannot be made.
    """
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us may have deleted the file we have just locked.
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                return descriptor
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
