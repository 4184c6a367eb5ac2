"""The products of one vector with many others. Vectors have the length 127, so that all numbers are small integers and
the results are exact, however they are computed."""

import ctypes
import platform
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

try:
    import simsimd
except ImportError:  # an optional package, ten times as fast
    simsimd = None  # type: ignore[assignment]

# Without simsimd, vectors are converted in blocks that fit into the cache of the processor.
_BLOCK_ROWS = 4_096
# For distances simsimd uses vector instructions on more ARM processors than for products, which is twice as fast. On
# x86-64 it uses them for both, and products need fewer steps.
_HAS_FAST_PRODUCTS = platform.machine() in ("x86_64", "AMD64")
# `getauxval` of the C library tells what the processor can do (asm/hwcap.h of Linux).
_AT_HWCAP = 16
_HWCAP_ASIMDDP = 1 << 20


def _enable_dot_product_instructions(library: ModuleType) -> None:
    """simsimd asks the processor itself whether it has these instructions, which a virtual machine may hide. What the
    kernel says is right. With them, comparing is 2.5 times as fast."""
    if sys.platform != "linux" or platform.machine() != "aarch64":
        return
    getauxval = getattr(ctypes.CDLL(None), "getauxval", None)
    if getauxval is None:
        return
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    if getauxval(_AT_HWCAP) & _HWCAP_ASIMDDP:
        library.enable_capability("neon_i8")


if simsimd is not None:
    _enable_dot_product_instructions(simsimd)


def squares_of(codes: NDArray[np.int8]) -> NDArray[np.float32]:
    """Returns the square of the length of each vector."""
    return np.concatenate([np.square(block, dtype=np.float32).sum(axis=1) for block in _blocks(codes)])


def dot_products(
    codes: NDArray[np.int8], squares: NDArray[np.float32], vector: NDArray[np.int8]
) -> NDArray[np.float32]:
    """`squares` are those of the codes."""
    if simsimd is not None:
        if _HAS_FAST_PRODUCTS:
            return np.asarray(simsimd.cdist(vector[np.newaxis], codes, metric="inner"), np.float32).reshape(-1)
        distances = np.asarray(simsimd.cdist(vector[np.newaxis], codes, metric="sqeuclidean"), np.float32)
        products: NDArray[np.float32] = squares + np.square(vector, dtype=np.float32).sum()
        products -= distances.reshape(-1)
        products /= 2
        return products
    query = vector.astype(np.float32)
    return np.concatenate([block.astype(np.float32) @ query for block in _blocks(codes)])


def _blocks(codes: NDArray[np.int8]) -> Iterator[NDArray[np.int8]]:
    return (codes[start : start + _BLOCK_ROWS] for start in range(0, len(codes), _BLOCK_ROWS))
