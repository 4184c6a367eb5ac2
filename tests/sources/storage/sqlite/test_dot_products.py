"""The products of vectors are exact, whatever instructions compute them."""

from pathlib import Path

import numpy as np
import pytest
import simsimd

from sources.storage.sqlite.vectors import vector_matrix as module
from sources.storage.sqlite.vectors.vector_matrix import dot_products, squares_of


@pytest.mark.parametrize("has_fast_products", [True, False])
@pytest.mark.parametrize("dimension", [1, 31, 256, 384, 1000])
def test_products_are_exact(monkeypatch: pytest.MonkeyPatch, dimension: int, has_fast_products: bool) -> None:
    monkeypatch.setattr(module, "_HAS_FAST_PRODUCTS", has_fast_products)
    random = np.random.default_rng(dimension)
    # Components of vectors of length 127.
    spread = 127 / dimension**0.5
    codes = np.clip(np.round(random.normal(0, spread, (5_000, dimension))), -127, 127).astype(np.int8)
    vector = codes[17]
    products = dot_products(codes, squares_of(codes), vector)
    assert products.tolist() == (codes.astype(np.int64) @ vector.astype(np.int64)).tolist()


def test_dot_product_instructions_are_used_if_the_kernel_reports_them() -> None:
    cpu_info = Path("/proc/cpuinfo")
    features = cpu_info.read_text().split() if cpu_info.exists() else []
    assert simsimd.get_capabilities()["neon_i8"] or "asimddp" not in features
