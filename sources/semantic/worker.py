"""The process that embeds passages in the background: `python -m sources.semantic.worker MODEL DATA_DIR CPU_PERCENT`.

It has the lowest priority, a compute thread for each core that it may use, two pipes, and no access to anyone's data.
It ends when its parent closes the pipe or ends in any other way.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from math import ceil
from pathlib import Path
from typing import BinaryIO

from sources.semantic.model import SemanticUnavailable
from sources.semantic.named_models import NAMED_MODELS, load_model
from sources.semantic.worker_process import HEADER_BYTES, Vectors, WorkerFailure, decode_texts, encode_response, frame

# Texts that a thread embeds between two pauses. A long pause after a long burst would be noticed by others on the same
# core.
_BURST = 8


def main(name: str, data_dir: str, cpu_percent: int) -> None:
    os.nice(19)
    # Linux: runs only when the core has nothing else to do.
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    requests, responses = sys.stdin.buffer, sys.stdout.buffer
    with suppress(BrokenPipeError):
        try:
            model = load_model(NAMED_MODELS[name], Path(data_dir))
        except SemanticUnavailable as error:
            _send(responses, WorkerFailure(error.reason))
            return
        # Each text is embedded alone (see `MiniLmModel.embed`), so that the number of threads changes no vector.
        threads = min(ceil(cpu_percent / 100), os.cpu_count() or 1)
        with ThreadPoolExecutor(threads) as pool:
            while len(header := requests.read(HEADER_BYTES)) == HEADER_BYTES:
                texts = decode_texts(requests.read(int.from_bytes(header, "big")))
                # Embeds the texts and pauses, so that the CPU time is the given share of the time that passes.
                vectors: list[bytes] = []
                for start in range(0, len(texts), _BURST * threads):
                    turn = texts[start : start + _BURST * threads]
                    began = time.process_time()
                    bursts = [turn[i : i + _BURST] for i in range(0, len(turn), _BURST)]
                    vectors += chain.from_iterable(pool.map(model.embed, bursts))
                    time.sleep((time.process_time() - began) * max(0.0, 100 / cpu_percent - 1 / threads))
                _send(responses, Vectors(vectors))


def _send(responses: BinaryIO, response: Vectors | WorkerFailure) -> None:
    responses.write(frame(encode_response(response)))
    responses.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
