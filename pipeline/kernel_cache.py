"""Where the compiled code of kernels is kept between processes.

Numba's cache notices an edit of the file a kernel stands in, but not of another file whose
functions the kernel calls. So the cache folder is named by a hash of all kernel sources, those
of `train` and `analysis` too.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numba

_RECORDS = ("instances.py", "mask_rules.py")
_LOCK_NAME = "compiling.lock"
_UNUSED_SECONDS = 30 * 24 * 3600
"""How long the compiled code of other sources is kept after its last use."""


def sources_hash(*folders: Path) -> str:
    """Return 16 hex digits over the kernel sources in some folders.

    Kernel sources are `jit` and the modules that import it, and the records that are passed into
    kernels (a compiled kernel knows their fields by number).
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in [path for folder in folders for path in sorted(folder.glob("*.py"))]:
        source = path.read_bytes()
        if b"clozemill.pipeline.jit" in source or path.name in ("jit.py", *_RECORDS):
            digest.update(path.name.encode() + b"\0" + source + b"\0")
    return digest.hexdigest()


def cache_dir(name: str) -> Path:
    """Return a writable folder `name` for compiled code, the first that works of several places.

    They are NUMBA_CACHE_DIR, the user's cache folder, and the temporary folder. Cached code is
    run when loaded, so a folder of somebody else is never used.
    """
    places = []
    if os.environ.get("NUMBA_CACHE_DIR"):
        places.append(Path(os.environ["NUMBA_CACHE_DIR"]))
    with contextlib.suppress(RuntimeError):  # a user without a home
        cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        places.append(Path(cache_home) / "clozemill")
    places.append(Path(tempfile.gettempdir()) / f"clozemill-{os.getuid()}")
    for place in places:
        if _is_usable(place / name):
            return place / name
    return Path(tempfile.mkdtemp(prefix="clozemill-"))


def _is_usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Another process that compiles there for a minute holds the lock; do not wait for it.
        with contextlib.suppress(BlockingIOError), _exclusive(folder, flags=fcntl.LOCK_NB):
            pass
        found = folder.stat()
        parent = folder.parent.stat()
    except OSError:
        return False
    is_private = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_private and found.st_uid == os.getuid() and parent.st_uid in (0, os.getuid())


@contextlib.contextmanager
def _exclusive(folder: Path, *, flags: int = 0) -> Iterator[None]:
    with open(folder / _LOCK_NAME, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | flags)
        yield


def remove_old_caches(folder: Path) -> None:
    """Delete what other versions of the sources left beside a cache folder, long unused.

    Each process that uses a folder marks it, so one in use is not old; one that is being
    compiled into is locked. What cannot be deleted stays.
    """
    with contextlib.suppress(OSError):
        os.utime(folder)
    oldest = time.time() - _UNUSED_SECONDS
    for other in folder.parent.glob("numba-" + "[0-9a-f]" * 16):
        with contextlib.suppress(OSError):
            if other.is_symlink() or other.stat().st_mtime >= oldest:
                continue
            with _exclusive(other, flags=fcntl.LOCK_NB):
                shutil.rmtree(other, ignore_errors=True)


# Set as numba's setting rather than in the environment: a child process that runs other
# sources must not inherit the name of this folder.
_HERE = Path(__file__).parent
_KERNEL_FOLDERS = (_HERE, _HERE.parent / "train", _HERE.parent / "analysis")
CACHE_DIR = cache_dir(f"numba-{sources_hash(*_KERNEL_FOLDERS)}")
remove_old_caches(CACHE_DIR)
numba.config.CACHE_DIR = str(CACHE_DIR)  # type: ignore[attr-defined]


@contextlib.contextmanager
def alone_in_cache() -> Iterator[None]:
    """Hold the lock of the cache folder, making the folder where it was cleared away."""
    CACHE_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _exclusive(CACHE_DIR):
        yield
