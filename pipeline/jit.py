"""Numba for this package: the decorators that kernels use, and instructions it has no name for."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from clozemill.pipeline.kernel_cache import alone_in_cache

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_njit: Any = numba.njit  # its stub does not list `_nrt`
_carray: Any = numba.carray  # type: ignore[attr-defined]


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
        with alone_in_cache():
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
