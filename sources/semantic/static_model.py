"""Static embeddings: the vector of a text is the mean of the vectors of its tokens, which a table holds.

The weights are those of wordllama. Its code is not used: looking up and averaging rows takes two lines.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy
from tokenizers import Tokenizer

from sources.semantic.model import clean_text, encode_rows
from sources.semantic.word_pieces import WordPieces

# safetensors: the length of the header in 8 bytes, the header as JSON, then the numbers.
_LENGTH_BYTES = 8
_HEADER_MAX_BYTES = 1 << 20
_TENSOR = "embedding.weight"
_TYPES = {"F16": "<f2", "F32": "<f4"}
_BATCH = 256
# 99 of 100 English passages of XQuAD have fewer pieces per word.
_FAMILIAR_PIECES = 1.5


class StaticModel:
    def __init__(self, weights: Path, tokenizer: Path) -> None:
        # Maps the table into memory, so that the processes that use it share it.
        size = weights.stat().st_size
        with weights.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = json.loads(file.read(min(length, _HEADER_MAX_BYTES)))
        tensor = header[_TENSOR]
        rows, columns = tensor["shape"]
        start, end = tensor["data_offsets"]
        kind = numpy.dtype(_TYPES[tensor["dtype"]])
        if end - start != math.prod((rows, columns, kind.itemsize)) or _LENGTH_BYTES + length + end > size:
            raise ValueError(f"{weights.name} is truncated")
        self._table = numpy.memmap(weights, kind, "r", _LENGTH_BYTES + length + start, (rows, columns))
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._word_pieces = WordPieces(self._tokenizer.get_vocab(), _FAMILIAR_PIECES)

    @property
    def dimension(self) -> int:
        return int(self._table.shape[1])

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        vectors: list[bytes] = []
        for start in range(0, len(texts), _BATCH):
            vectors += encode_rows(self._means([clean_text(text) for text in texts[start : start + _BATCH]]))
        return vectors

    def embed_query(self, text: str) -> bytes:
        text = clean_text(text)
        tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
        trust = self._word_pieces.trust_in_query(text, tokens)
        if not tokens or not trust:
            return bytes(self.dimension)
        return encode_rows(self._table[tokens].mean(axis=0, dtype=numpy.float32, keepdims=True), trust)[0]

    def _means(self, texts: list[str]) -> "numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float32]]":
        means = numpy.zeros((len(texts), self.dimension), numpy.float32)
        for row, encoding in enumerate(self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)):
            ids = encoding.ids
            if ids and self._word_pieces.knows_passage(texts[row], ids):
                means[row] = self._table[ids].mean(axis=0, dtype=numpy.float32)
        return means
