"""The products of vectors are exact, whatever instructions compute them, and so is what a search takes from them."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
import simsimd

from sources.storage.sqlite.vectors import vector_matrix as module
from sources.storage.sqlite.vectors.vector_matrix import VectorMatrix, dot_products, sketches_of, squares_of
from sources.storage.vector_kinds import VectorKind, kinds_of


@pytest.mark.parametrize("has_fast_products", [True, False])
@pytest.mark.parametrize(("dimension", "count"), [(1, 5_000), (31, 5_000), (256, 5_000), (256, 1), (1000, 99)])
def test_products_are_exact(
    monkeypatch: pytest.MonkeyPatch, dimension: int, count: int, has_fast_products: bool
) -> None:
    monkeypatch.setattr(module, "_HAS_FAST_PRODUCTS", has_fast_products)
    random = np.random.default_rng(dimension)
    # Components of vectors of length 127.
    spread = 127 / dimension**0.5
    codes = np.clip(np.round(random.normal(0, spread, (count, dimension))), -127, 127).astype(np.int8)
    vector = codes[-1]
    products = dot_products(codes, squares_of(codes), vector)
    assert products.tolist() == (codes.astype(np.int64) @ vector.astype(np.int64)).tolist()


def test_dot_product_instructions_are_used_if_the_kernel_reports_them() -> None:
    cpu_info = Path("/proc/cpuinfo")
    features = cpu_info.read_text().split() if cpu_info.exists() else []
    assert simsimd.get_capabilities()["neon_i8"] or "asimddp" not in features


@pytest.mark.parametrize("item_bits", [0, 3])
def test_the_best_passage_of_an_item_counts_however_many_it_has(item_bits: int) -> None:
    random = np.random.default_rng(item_bits)
    # Items with no passage, with one and with a hundred.
    counts = random.choice([0, 1, 2, 9, 20, 21, 100], 200)
    items = random.permutation(np.repeat(np.arange(1, 201), counts))
    rows = (items << item_bits) + random.integers(0, 1 << item_bits, len(items))
    codes = np.round(random.normal(0, 127 / 32**0.5, (len(rows), 32))).clip(-127, 127).astype(np.int8)
    _, matrix = _matrix(rows.tolist(), codes)
    query = codes[0].tobytes()
    cosines = codes.astype(np.int64) @ codes[0].astype(np.int64) / 127**2
    comparison = matrix.compare(query)
    wanted = [int(item) << item_bits for item in random.permutation(np.arange(1, 250))]
    expected = [max(0.0, cosines[items == row >> item_bits].max(initial=0).item()) for row in wanted]
    assert matrix.best_cosines(comparison, wanted, item_bits) == expected
    assert matrix.best_cosines(comparison, [], item_bits) == []
    near = sorted({row >> item_bits: cosine for row, cosine in zip(wanted, expected, strict=True)}.items())
    near.sort(key=lambda pair: pair[1], reverse=True)
    found = matrix.nearest(comparison, 20, 0.0, item_bits)
    assert [cosine for _, cosine, _ in found] == [cosine for _, cosine in near[:20]]
    assert [passage for _, _, passage in found] == [(row, row + 9) for row, _, _ in found]
    # The cosines that `nearest` computed are used again.
    assert matrix.best_cosines(comparison, wanted, item_bits) == expected


def test_sketches_find_the_nearest_of_a_large_table() -> None:
    random = np.random.default_rng(1)
    # Texts about 200 topics, each nearer to its own than to the others.
    topics = random.normal(0, 1, (200, 64))
    vectors = topics[random.integers(0, 200, 6_000)] + random.normal(0, 0.8, (6_000, 64))
    codes = np.round(127 * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.int8)
    _, matrix = _matrix([*range(1, 6_001)], codes)
    all_found, all_exact = [], []
    for query in codes[:200]:
        comparison = matrix.compare(query.tobytes())
        found = matrix.nearest(comparison, 10, 0.15, 0)
        greatest = matrix.greatest(comparison)
        assert comparison.products is None, "compared all vectors"
        # A page of all vectors, however far, is exact.
        exact = matrix.nearest(comparison, 10, 0.0, 0)
        assert found[0] == exact[0]
        assert greatest == exact[0][1]
        all_found += found
        all_exact += exact
    assert len(set(all_found) & set(all_exact)) > 0.99 * len(set(all_exact))


def test_a_long_item_does_not_hide_others_that_are_near() -> None:
    random = np.random.default_rng(4)
    codes = np.round(random.normal(0, 11, (6_000, 128))).astype(np.int8)
    # 500 passages of one item are nearer than the nearest ones of nine others.
    codes[:500] = codes[0]
    for item in range(9):
        codes[600 + item] = codes[0]
        codes[600 + item, 100 - 5 * item :] = 0
    rows = [(1 << 16) + number for number in range(500)] + [number << 16 for number in range(2, 5_502)]
    _, matrix = _matrix(rows, codes)
    found = matrix.nearest(matrix.compare(codes[0].tobytes()), 10, 0.15, 16)
    assert [row >> 16 for row, _, _ in found] == [1, *range(102, 111)]


def test_a_short_query_has_the_sketch_of_a_long_one() -> None:
    codes = np.round(np.random.default_rng(2).normal(0, 8, (1, 256))).astype(np.int8)
    assert (sketches_of(codes, 127.0) == sketches_of(codes * 2, 254.0)).all()


def test_sketches_follow_changes() -> None:
    codes = np.round(np.random.default_rng(3).normal(0, 20, (5_000, 32))).astype(np.int8)
    connection, matrix = _matrix([*range(1, 5_000)], codes[:-1])
    query = codes[-1].tobytes()
    before = matrix.nearest(matrix.compare(query), 1, 0.15, 0)
    _insert(connection, [9_000], codes[-1:])
    matrix.refresh(connection, (1, 2))
    [(row, _, _)] = matrix.nearest(matrix.compare(query), 1, 0.15, 0)
    assert row == 9_000
    connection.execute(f"DELETE FROM {_KIND.vectors} WHERE item = 9000")
    matrix.refresh(connection, (1, 3))
    assert matrix.nearest(matrix.compare(query), 1, 0.15, 0) == before


def test_a_query_is_compared_again_only_after_a_change() -> None:
    codes = np.eye(4, 8, dtype=np.int8)
    connection, matrix = _matrix([1, 2, 3], codes[:3])
    comparison = matrix.compare(codes[3].tobytes())
    matrix.refresh(connection, (1, 1))

    assert matrix.compare(codes[3].tobytes()) is comparison
    _insert(connection, [4], codes[3:])
    matrix.refresh(connection, (1, 2))
    assert [row for row, _, _ in matrix.nearest(matrix.compare(codes[3].tobytes()), 1, 0.0, 0)] == [4]
    assert [row for row, _, _ in matrix.nearest(matrix.compare(codes[0].tobytes()), 1, 0.0, 0)] == [1]


_KIND: VectorKind = kinds_of("chacha")[0]


def _matrix(
    rows: list[int], codes: "np.ndarray[tuple[int, ...], np.dtype[np.int8]]"
) -> tuple[sqlite3.Connection, VectorMatrix]:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        f"CREATE TABLE {_KIND.vectors} "
        "(id INTEGER PRIMARY KEY, model INTEGER, item INTEGER, start INTEGER, end INTEGER, vector BLOB)"
    )
    connection.execute(f"CREATE INDEX {_KIND.vectors}_of_item ON {_KIND.vectors} (item, model)")
    _insert(connection, rows, codes)
    matrix = VectorMatrix(_KIND, 1, codes.shape[1], 10_000)
    matrix.refresh(connection, (1, 1))
    return connection, matrix


def _insert(
    connection: sqlite3.Connection, rows: list[int], codes: "np.ndarray[tuple[int, ...], np.dtype[np.int8]]"
) -> None:
    stored = [(row, row, row + 9, code.tobytes()) for row, code in zip(rows, codes, strict=True)]
    connection.executemany(
        f"INSERT INTO {_KIND.vectors} (model, item, start, end, vector) VALUES (1, ?, ?, ?, ?)", stored
    )
