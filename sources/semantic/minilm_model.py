"""all-MiniLM-L6-v2 with 8-bit weights, run by onnxruntime on one thread."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import onnxruntime  # type: ignore[import-untyped]  # it has no types
from tokenizers import Tokenizer

from sources.semantic.model import clean_text, encode_rows
from sources.semantic.word_pieces import WordPieces, count_letters

# The model was trained on at most 256 tokens, with those for the beginning and the end of a text.
_TOKENS_MAX = 254
_ERRORS_ONLY = 3
# 99 of 100 English passages of XQuAD have fewer pieces per word.
_FAMILIAR_PIECES = 1.3


class MiniLmModel:
    def __init__(self, weights: Path, tokenizer: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        self._session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        self._inputs = {item.name for item in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        # Texts are truncated after their language was judged, which takes the whole text.
        self._tokenizer.no_truncation()
        self._word_pieces = WordPieces(self._tokenizer.get_vocab(), _FAMILIAR_PIECES)
        self._start_token, self._end_token, self._unknown_token = (
            self._tokenizer.get_vocab()[token] for token in ("[CLS]", "[SEP]", "[UNK]")
        )

    @property
    def dimension(self) -> int:
        return int(self._session.get_outputs()[0].shape[2])

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embeds one text at a time: the 8-bit scale of a layer depends on all texts of a batch, so that batches would
        change vectors by up to 1% of their cosine. Batches of 4 to 32 are only 8% faster."""
        return [self._embed_passage(clean_text(text)) for text in texts]

    def embed_query(self, text: str) -> bytes:
        text = clean_text(text)
        tokens, unknown_letters = self._tokenize(text)
        trust = self._word_pieces.trust_in_query(text, tokens, unknown_letters)
        return encode_rows(self._mean(tokens), trust)[0] if tokens and trust else bytes(self.dimension)

    def _embed_passage(self, text: str) -> bytes:
        tokens, unknown_letters = self._tokenize(text)
        is_known = tokens and self._word_pieces.knows_passage(text, tokens, unknown_letters)
        return encode_rows(self._mean(tokens))[0] if is_known else bytes(self.dimension)

    def _tokenize(self, text: str) -> tuple[list[int], int]:
        """Returns the tokens, none if the model knows none of them, and the number of letters that it has no tokens
        for. All tokens that it does not know are the same to it: a text of nothing else would resemble any other."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        tokens = encoding.ids
        unknown_letters = 0
        for token, (start, end) in zip(tokens, encoding.offsets, strict=True):
            if token == self._unknown_token:
                unknown_letters += count_letters(text[start:end])
        return ([] if tokens.count(self._unknown_token) == len(tokens) else tokens), unknown_letters

    def _mean(self, tokens: list[int]) -> "numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float32]]":
        ids = numpy.array([[self._start_token, *tokens[:_TOKENS_MAX], self._end_token]], numpy.int64)
        inputs = {
            "input_ids": ids,
            "attention_mask": numpy.ones_like(ids),
            "token_type_ids": numpy.zeros_like(ids),
        }
        states: Any = self._session.run(None, {name: value for name, value in inputs.items() if name in self._inputs})[
            0
        ]
        mean: numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float32]] = states.mean(axis=1)
        return mean
