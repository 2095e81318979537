"""Numba for this package: where its compiled code is kept, and the two decorators kernels use.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_njit: Any = numba.njit  # its stub does not list `_nrt`
_carray: Any = numba.carray  # type: ignore[attr-defined]
_RECORDS = ("instances.py", "mask_rules.py")
_LOCK_NAME = "compiling.lock"
_UNUSED_SECONDS = 30 * 24 * 3600
"""How long the compiled code of other sources is kept after its last use."""


def sources_hash(*folders: Path) -> str:
    """Return 16 hex digits over the kernel sources in some folders.

    Kernel sources are the modules that import this one, this one, and the records that are
    passed into kernels (a compiled kernel knows their fields by number).
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
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    places = [
        Path(cache_home) / "clozemill",
        Path(tempfile.gettempdir()) / f"clozemill-{os.getuid()}",
    ]
    if os.environ.get("NUMBA_CACHE_DIR"):
        places.insert(0, Path(os.environ["NUMBA_CACHE_DIR"]))
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


def njit(function: AnyFunction) -> AnyFunction:
    """Compile a function that kernels call; it becomes part of each kernel's cached code."""
    return cast(AnyFunction, numba.njit(nogil=True, forceinline=True)(function))


def lean_njit(function: AnyFunction) -> AnyFunction:
    """Compile a function that lean kernels call: like `njit`, but it may not make arrays.

    Passing an array on otherwise costs an atomic addition for its reference count each time,
    which trebled the time of the word table's loop.
    """
    return cast(AnyFunction, _njit(nogil=True, _nrt=False)(function))


def kernel(function: AnyFunction) -> AnyFunction:
    """Compile a function that Python calls, once per types of its arguments, cached on disk."""
    return cast(AnyFunction, _one_at_a_time(numba.njit(cache=True, nogil=True)(function)))


def lean_kernel(function: AnyFunction) -> AnyFunction:
    """Compile a function that Python calls and that only fills arrays it is given."""
    return cast(AnyFunction, _one_at_a_time(_njit(cache=True, nogil=True, _nrt=False)(function)))


def _one_at_a_time(dispatcher: Any) -> Any:
    """Hold a lock on the cache while compiling.

    Numba numbers its files from an index, and two processes that save different signatures at
    once could each take the other's code for theirs.
    """
    compile_for: Any = dispatcher._compile_for_args

    def compile_alone(*arguments: Any, **named: Any) -> Any:
        CACHE_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been cleared away
        with _exclusive(CACHE_DIR):
            return compile_for(*arguments, **named)

    # The dispatcher calls this for types it has not seen. Asking for the types here instead, on
    # every call, costs 0.2 ms for a kernel that is given records.
    dispatcher._compile_for_args = compile_alone
    return dispatcher


# Machine instructions that Numba has no name for. Callable from compiled code only.


def _mul_high(typing_context: Any, x: Any, y: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = [builder.zext(argument, ir.IntType(128)) for argument in arguments]
        high = builder.lshr(builder.mul(*wide), ir.Constant(ir.IntType(128), 64))
        return builder.trunc(high, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


def _count_ones(typing_context: Any, x: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), codegen


def _lowest_one(typing_context: Any, x: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


def _load_word(typing_context: Any, array: Any, place: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        first = builder.gep(data, [arguments[1]])
        loaded = builder.load(builder.bitcast(first, ir.IntType(64).as_pointer()))
        loaded.align = 1
        return loaded

    return types.uint64(array, types.intp), codegen


def _pointer_to(typing_context: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


mul_high = cast(Callable[[np.uint64, np.uint64], np.uint64], intrinsic(_mul_high))
"""The upper 64 bits of the 128-bit product of two uint64."""

count_ones = cast(Callable[[np.uint64], int], intrinsic(_count_ones))
"""How many bits of a uint64 are set."""

lowest_one = cast(Callable[[np.uint64], int], intrinsic(_lowest_one))
"""The place of the lowest set bit of a uint64, which must not be zero."""

load_word = cast(Callable[[NDArray[np.uint8], int], np.uint64], intrinsic(_load_word))
"""Eight bytes from a place in a uint8 array on, as a uint64; all eight must lie inside."""

_pointer = cast(Callable[[int], Any], intrinsic(_pointer_to))


@njit
def array_at(address: int, size: int, like: NDArray[Any]) -> NDArray[Any]:
    """Return the array of `size` values of the type of `like` that starts at an address.

    The caller vouches that they are there, and that something keeps them.
    """
    array: NDArray[Any] = _carray(_pointer(address), size, like.dtype)
    return array
