"""The vectors of one table in memory, to compare all of them with a query. Imported only if a model is used, because it
needs numpy.

A matrix always equals what its file contains: before each use it is brought up to date with the snapshot that the
search reads.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import ctypes
import platform
import sqlite3
import sys
from collections.abc import Collection, Sequence
from functools import lru_cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from sources.semantic.model import PRODUCT_SCALE, SCALE, vector_length
from sources.storage.vector_kinds import VectorKind

# -- dot products ------------------------------------------------------------------------------------------------------
# The products of one vector with many others. Vectors have the length 127, so that all numbers are small integers and
# the results are exact, however they are computed.

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
    blocks = range(0, len(codes), _BLOCK_ROWS)
    return np.concatenate(
        [np.square(codes[start : start + _BLOCK_ROWS], dtype=np.float32).sum(axis=1) for start in blocks]
    )


def dot_products(
    codes: NDArray[np.int8], squares: NDArray[np.float32], vector: NDArray[np.int8]
) -> NDArray[np.float32]:
    """`squares` are those of the codes."""
    if simsimd is not None:
        if _HAS_FAST_PRODUCTS:
            # Less work for each vector than `cdist` does. Of a single one, it returns a number.
            return np.asarray(simsimd.inner(vector, codes, out_dtype="float32"), np.float32).reshape(-1)
        distances = np.asarray(simsimd.cdist(vector[np.newaxis], codes, metric="sqeuclidean"), np.float32)
        products: NDArray[np.float32] = squares + np.square(vector, dtype=np.float32).sum()
        products -= distances.reshape(-1)
        products /= 2
        return products
    query = vector.astype(np.float32)
    blocks = range(0, len(codes), _BLOCK_ROWS)
    return np.concatenate([codes[start : start + _BLOCK_ROWS].astype(np.float32) @ query for start in blocks])


# -- sketches ----------------------------------------------------------------------------------------------------------
# To find the few vectors of a large table that are nearest, not all have to be read in full. A sketch has three bits of
# each component: whether it exceeds each of three limits. The more two components differ, the more of their bits do;
# counting these takes a quarter of the time. Only the vectors with the most similar sketches are compared.
#
# Of the ten nearest of 53,000 sentences, these have 99.9 % with each model, and always the nearest one
# (docs/quality.md).

# Smaller tables are compared as fast without.
_SKETCHED_ROWS_MIN = 4_096
_COMPARED_SHARE = 1 / 32
# To find more of the nearest, a larger share would have to be compared.
_SKETCHED_COUNT_MAX = 20
# The limits, as multiples of the length of a component of a vector whose components are equal.
_SKETCH_LIMITS = (-0.7, 0.0, 0.7)


def sketches_of(codes: NDArray[np.int8], length: float = SCALE) -> NDArray[np.uint8]:
    """`length` is that of the vectors."""
    limits = [limit * length / codes.shape[1] ** 0.5 for limit in _SKETCH_LIMITS]
    sketches = np.empty((len(codes), len(limits) * -(-codes.shape[1] // 8)), np.uint8)
    for start in range(0, len(codes), _BLOCK_ROWS):
        block = codes[start : start + _BLOCK_ROWS]
        bits = [np.packbits(block > limit, axis=1) for limit in limits]
        np.concatenate(bits, axis=1, out=sketches[start : start + _BLOCK_ROWS])
    return sketches


# All kinds of a search need the same.
@lru_cache(maxsize=64)
def _sketch_query(query: bytes) -> NDArray[np.uint8]:
    """Returns the sketch of a query, which may have a shorter vector."""
    return sketches_of(np.frombuffer(query, np.int8)[np.newaxis], vector_length(query) * SCALE).reshape(-1)


class Comparison:
    """A query that is compared with the vectors of a matrix, and the products that were computed so far."""

    def __init__(self, query: bytes) -> None:
        self.query = query
        self.vector = np.frombuffer(query, np.int8)
        # Of all vectors.
        self.products: NDArray[np.float32] | None = None
        # The positions and products of vectors that include the nearest ones.
        self.near: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None


_LOADED_ROWS = 10_000
_BYTES_PER_ROW = 32


# The passage of an item that is nearest to a query: the rowid of its row, its cosine, and its start and end.
NearPassage = tuple[int, float, tuple[int, int]]


class VectorMatrix:
    """The vectors of one kind and one model, at most `rows_max`. `item_bits` is the number of low bits of a row's rowid
    that do not belong to the rowid of its item."""

    def __init__(self, kind: VectorKind, model: int, dimension: int, rows_max: int) -> None:
        self._kind = kind
        self._model = model
        self._dimension = dimension
        self._rows_max = rows_max
        self._version: tuple[int, int] | None = None
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._codes: NDArray[np.int8] = np.empty((0, dimension), np.int8)
        # The starts and the ends of the passages in the texts of their rows.
        self._ranges: NDArray[np.int32] = np.empty((2, 0), np.int32)
        # The square of the length of each vector.
        self._squares: NDArray[np.float32] = np.empty(0, np.float32)
        self._sketches = sketches_of(self._codes)
        self._order: NDArray[np.int64] | None = None
        self._sorted_rows = self._rows
        # The last one: the next page of a search compares the same query.
        self._comparison: Comparison | None = None
        self.size_bytes = 0
        # The share of the vectors that fit into memory. The oldest are left out.
        self.loaded_share = 1.0

    def refresh(self, connection: sqlite3.Connection, version: tuple[int, int]) -> bool:
        """Removes and adds what the snapshot of the connection lacks or has. Returns whether anything may have changed,
        which it cannot with the same version."""
        is_changed = version != self._version
        if is_changed:
            if len(self._ids):
                # Rowids are not reused, so a smaller count means that vectors were deleted.
                table = self._kind.vectors
                stored = f"FROM {table} INDEXED BY {table}_of_item WHERE model = ? AND id BETWEEN ? AND ?"
                parameters = (self._model, int(self._ids[0]), int(self._ids[-1]))
                [count] = connection.execute(f"SELECT count(*) {stored}", parameters).fetchone()
                if count < len(self._ids):
                    live = np.fromiter(
                        (rowid for (rowid,) in connection.execute(f"SELECT id {stored}", parameters)), np.int64
                    )
                    is_live = np.isin(self._ids, live)
                    self._ids, self._rows, self._codes = self._ids[is_live], self._rows[is_live], self._codes[is_live]
                    self._squares, self._ranges = self._squares[is_live], self._ranges[:, is_live]
                    self._sketches = self._sketches[is_live]
                    self._order = None
            last = int(self._ids[-1]) if len(self._ids) else 0
            cursor = connection.execute(
                f"SELECT id, item, start, end, vector FROM {self._kind.vectors} "
                "WHERE model = ? AND id > ? AND length(vector) = ? ORDER BY id DESC LIMIT ?",
                (self._model, last, self._dimension, self._rows_max),
            )
            blocks = []
            while rows := cursor.fetchmany(_LOADED_ROWS):
                ids, items, starts, ends, vectors = zip(*rows, strict=True)
                codes = np.frombuffer(b"".join(vectors), np.int8).reshape(-1, self._dimension)
                ranges = np.array((starts, ends), np.int32)
                blocks.append((np.array(ids, np.int64), np.array(items, np.int64), ranges, codes))
            if blocks:
                # Read from the newest to the oldest, so that the newest are kept if there are too many.
                new_ids, new_rows, new_ranges, new_codes = zip(*blocks, strict=True)
                codes = np.concatenate(new_codes)[::-1]
                self._ids = np.concatenate((self._ids, np.concatenate(new_ids)[::-1]))[-self._rows_max :]
                self._rows = np.concatenate((self._rows, np.concatenate(new_rows)[::-1]))[-self._rows_max :]
                ranges = np.concatenate(new_ranges, axis=1)[:, ::-1]
                self._ranges = np.concatenate((self._ranges, ranges), axis=1)[:, -self._rows_max :]
                self._codes = np.ascontiguousarray(np.concatenate((self._codes, codes))[-self._rows_max :])
                self._squares = np.concatenate((self._squares, squares_of(codes)))[-self._rows_max :]
                sketches = np.concatenate((self._sketches, sketches_of(codes)))
                self._sketches = np.ascontiguousarray(sketches[-self._rows_max :])
                self._order = None
            loaded = len(self._ids)
            self.size_bytes = loaded * (self._dimension + self._sketches.shape[1] + _BYTES_PER_ROW)
            if loaded >= self._rows_max:
                sql = f"SELECT count(*) FROM {self._kind.vectors} WHERE model = ?"
                [stored] = connection.execute(sql, (self._model,)).fetchone()
                self.loaded_share = min(1.0, self._rows_max / stored)
            else:
                self.loaded_share = 1.0
            self._version = version
            self._comparison = None
        return is_changed

    def __len__(self) -> int:
        return len(self._ids)

    def compare(self, query: bytes) -> Comparison:
        if self._comparison is None or self._comparison.query != query:
            self._comparison = Comparison(query)
        return self._comparison

    def _products(self, comparison: Comparison) -> NDArray[np.float32]:
        """Returns the product of every vector with the query. Few of them are needed as cosines."""
        if comparison.products is None:
            comparison.products = self._products_at(slice(None), comparison)
        return comparison.products

    def _products_at(self, positions: slice | NDArray[np.int64], comparison: Comparison) -> NDArray[np.float32]:
        codes = self._codes[positions]
        if len(comparison.vector) != self._dimension or not len(codes):
            return np.zeros(len(codes), np.float32)
        return dot_products(codes, self._squares[positions], comparison.vector)

    def _near(self, comparison: Comparison) -> tuple[NDArray[np.int64] | None, NDArray[np.float32]]:
        """Returns the positions of vectors that include the nearest ones, None for all of them, and their products."""
        has_sketches = len(self._ids) >= _SKETCHED_ROWS_MIN and len(comparison.vector) == self._dimension
        if comparison.products is not None or not has_sketches or simsimd is None:
            return None, self._products(comparison)
        if comparison.near is None:
            sketch = _sketch_query(comparison.query)
            counted = simsimd.hamming(sketch, self._sketches, dtype="bin8", out_dtype="float32")
            differences = np.asarray(counted).astype(np.uint16)  # which is faster to sort
            last = int(len(differences) * _COMPARED_SHARE)
            positions = (differences <= np.partition(differences, last)[last]).nonzero()[0]
            comparison.near = positions, self._products_at(positions, comparison)
        return comparison.near

    def greatest(self, comparison: Comparison) -> float:
        """Returns the cosine of the nearest vector, 0 without any."""
        _, products = self._near(comparison)
        return products[products.argmax()].item() / PRODUCT_SCALE if len(products) else 0.0

    def nearest(
        self,
        comparison: Comparison,
        count: int,
        least: float,
        item_bits: int,
        allowed: Collection[int] | None = None,
    ) -> list[NearPassage]:
        """Returns the best passage of each of the nearest items, nearest first, of those with at least the cosine
        `least`. Of equally near items, the one with the greatest rowid comes first. Only `allowed` items are returned,
        if given."""
        # Without a least cosine, all are listed page by page, and the pages must agree with each other.
        if count <= _SKETCHED_COUNT_MAX and least > 0 and allowed is None:
            compared, products = self._near(comparison)
        else:
            compared, products = None, self._products(comparison)
        is_near = products >= np.float32(least * PRODUCT_SCALE)
        positions, products = is_near.nonzero()[0] if compared is None else compared[is_near], products[is_near]
        if allowed is not None:
            items = self._rows[positions] >> item_bits
            is_allowed = np.isin(items, np.fromiter(allowed, np.int64, len(allowed)))
            positions, products = positions[is_allowed], products[is_allowed]
        wanted = count
        while True:
            # The positions with the greatest products, in a fixed order even if some are equal.
            best, greatest = positions, products
            if wanted < len(positions):
                threshold = np.partition(greatest, len(greatest) - wanted)[len(greatest) - wanted]
                # All that are equal to the last one, because the order decides which of them belong to the best.
                is_best = greatest >= threshold
                best, greatest = best[is_best], greatest[is_best]
            # Equal ones stay in the order of their rowids.
            order = np.lexsort((-self._rows[best], -greatest))[:wanted]
            best, found = best[order], greatest[order].tolist()
            rows = self._rows[best].tolist()
            starts, ends = self._ranges[:, best].tolist()
            items_found: dict[int, NearPassage] = {}
            for row, product, start, end in zip(rows, found, starts, ends, strict=True):
                items_found.setdefault(row >> item_bits, (row, product / PRODUCT_SCALE, (start, end)))
            if len(items_found) >= count or wanted >= len(positions):
                break
            wanted *= 4
        if compared is not None and len(items_found) < count <= len(positions):
            # So many passages of few items are near that those of others were not compared.
            self._products(comparison)
            return self.nearest(comparison, count, least, item_bits)
        return list(items_found.values())[:count]

    def best_cosines(self, comparison: Comparison, rows: Sequence[int], item_bits: int) -> list[float]:
        """Returns the cosine of the best passage of the item of each of these rows, 0 if it is less or missing."""
        if self._order is None:
            self._order = np.argsort(self._rows, kind="stable")
            self._sorted_rows = self._rows[self._order]
        limits: list[int] = []
        for row in rows:
            item = row >> item_bits
            limits += (item << item_bits, (item + 1) << item_bits)
        places = self._sorted_rows.searchsorted(limits).tolist()
        order = self._order.data
        positions: list[int] = []
        for first, end in zip(places[::2], places[1::2], strict=True):
            positions += order[first:end].tolist()
        listed = np.array(positions, np.int64)
        if comparison.products is None:
            products = self._products_at(listed, comparison).tolist()
        else:
            products = comparison.products[listed].tolist()
        best: list[float] = []
        start = 0
        for first, end in zip(places[::2], places[1::2], strict=True):
            best.append(max(products[start : start + end - first], default=0.0))
            start += end - first
        return [product / PRODUCT_SCALE if product > 0 else 0.0 for product in best]
