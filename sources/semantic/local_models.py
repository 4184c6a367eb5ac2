"""The models that run in this process, `minilm`, `multilingual` and `fast`, and how well they know the language of a
text. Imported only if a model is used, because it needs numpy and tokenizers."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy
from tokenizers import Tokenizer

from sources.semantic.model import SCALE, clean_text
from sources.text.folding import fold
from sources.text.segmentation import UNSPACED_RUN

# -- word pieces -------------------------------------------------------------------------------------------------------
# Decides how well a model knows the language of a text, by what its tokenizer makes of the words.
#
# A tokenizer has the frequent words of the texts that the model was trained on, and splits others into pieces. If it
# splits nearly all words of a text, the model has hardly seen the language. The vector of such a text depends on its
# letters more than on its meaning.
#
# A word is what spaces and punctuation marks separate. In scripts without spaces that is a whole clause, of which every
# letter is a piece: no model here knows such a script. Numbers, punctuation marks and emoji belong to no language and
# do not count.
#
# Pieces per word of XQuAD's passages, median: with `minilm`, English 1.1, Vietnamese 1.7, Spanish 1.8, Romanian 2.0,
# German 2.2, Hindi 2.6, Turkish 2.9, Arabic 4.7, Greek 5.1, Russian 5.9; with `fast`, English 1.2, Spanish 1.6, German
# 1.8, Romanian 2.0, Russian 2.3, Vietnamese 2.7, Hindi 3.0, Turkish 3.2, Arabic 4.5, Greek 5.4.

# From here on, a query is compared by its words only. Below, the trust in its vector falls evenly: between one language
# that the model knows and another that it does not, there is no step either.
_QUERY_PIECES_MAX = 2.5
# Above it, a passage has no vector. This limit is higher: a passage without a vector loses against others of the
# same language that have one: where the limit divides the passages of a language, its queries must have no vector.
_PASSAGE_PIECES_MAX = 4.0
# One rare word, such as "vaccinations", says little about the language of a query. A query is judged as if it had two
# words more, of one piece each.
_PRIOR_WORDS = 2
# `fast` has no letters of most scripts. It reads the bytes of such a letter instead.
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPECIAL = re.compile(r"<.*>|\[.*\]")
# The first bytes of symbols such as "→", and of emoji, in UTF-8. The bytes that follow them count 1 each.
_SYMBOL_BYTE, _EMOJI_BYTE, _FIRST_LETTER_BYTE = 0xE2, 0xF0, 0x80


class WordPieces:
    """`vocabulary` are the tokens of a tokenizer and their numbers, `familiar` the pieces per word of the language that
    the model was made for."""

    def __init__(self, vocabulary: Mapping[str, int], familiar: float) -> None:
        self._familiar = familiar
        self._counts = [0] * (max(vocabulary.values()) + 1)
        for token, number in vocabulary.items():
            self._counts[number] = _count(token)

    def knows_passage(self, text: str, tokens: Sequence[int], unknown_letters: int = 0) -> bool:
        """Whether a passage with these tokens gets a vector. `unknown_letters` are those that the tokenizer has no
        token for: each is as good as a piece."""
        return knows_passage(self._count(tokens) + unknown_letters, _count_words(text))

    def trust_in_query(self, text: str, tokens: Sequence[int], unknown_letters: int = 0) -> float:
        pieces = self._count(tokens) + unknown_letters
        return trust_in_query(pieces, _count_words(text), self._familiar, _QUERY_PIECES_MAX)

    def _count(self, tokens: Sequence[int]) -> int:
        return sum(map(self._counts.__getitem__, tokens))


def knows_passage(pieces: int, words: float) -> bool:
    return pieces <= _PASSAGE_PIECES_MAX * max(1, words)


def trust_in_query(pieces: int, words: float, familiar: float, pieces_max: float) -> float:
    """Returns the share of its cosines that a query keeps: 1 in a language that the model knows, 0 in one that it does
    not."""
    excess = (pieces + _PRIOR_WORDS) / (words + _PRIOR_WORDS) - familiar
    return min(1.0, max(0.0, 1 - excess / (pieces_max - familiar)))


def _count_words(text: str) -> int:
    words = fold(text).split()
    return len(words) - sum(map(str.isdecimal, words))


def _count(token: str) -> int:
    """Returns how many pieces of words a token is. The bytes of a symbol or an emoji have the sum 0."""
    if byte := _BYTE.fullmatch(token):
        value = int(byte[1], 16)
        if value >= _EMOJI_BYTE:
            return -3
        return -2 if value == _SYMBOL_BYTE else int(value >= _FIRST_LETTER_BYTE)
    return int(not _SPECIAL.fullmatch(token) and any(map(str.isalpha, token)))


def _encode_rows(rows: Any, length: float = 1.0) -> list[bytes]:
    """Encodes a numpy matrix with one vector per row, each scaled to a length."""
    # As `linalg.norm` does, but without its many cases, whose code is rarely in the cache of the processor.
    lengths = numpy.sqrt(numpy.add.reduce(rows * rows, axis=1, keepdims=True))
    lengths[lengths == 0] = 1
    codes = numpy.rint(rows * (length * SCALE / lengths)).astype(numpy.int8)
    return [row.tobytes() for row in codes]


# -- minilm ------------------------------------------------------------------------------------------------------------
# all-MiniLM-L6-v2 with 8-bit weights, run by onnxruntime on the thread of the caller.

# The model was trained on at most 256 tokens, with those for the beginning and the end of a text.
_TOKENS_MAX = 254
_ERRORS_ONLY = 3
# 99 of 100 English passages of XQuAD have fewer pieces per word.
_MINILM_FAMILIAR_PIECES = 1.3


class MiniLmModel:
    def __init__(self, weights: Path, tokenizer: Path) -> None:
        import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415 - it has no types, and `fast` does not need it

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        self._session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        self._has_token_types = "token_type_ids" in [item.name for item in self._session.get_inputs()]
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        # Texts are truncated after their language was judged, which takes the whole text.
        self._tokenizer.no_truncation()
        self._word_pieces = WordPieces(self._tokenizer.get_vocab(), _MINILM_FAMILIAR_PIECES)
        self._start_token, self._end_token, self._unknown_token = (
            self._tokenizer.get_vocab()[token] for token in ("[CLS]", "[SEP]", "[UNK]")
        )

    @property
    def dimension(self) -> int:
        return int(self._session.get_outputs()[0].shape[2])

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embeds one text at a time: the 8-bit scale of a layer depends on all texts of a batch, so that batches would
        change vectors by up to 1% of their cosine. Batches of 4 to 32 are only 8% faster."""
        vectors: list[bytes] = []
        for text in map(clean_text, texts):
            tokens, unknown_letters = self._tokenize(text)
            is_known = tokens and self._word_pieces.knows_passage(text, tokens, unknown_letters)
            vectors.append(_encode_rows(self._mean(tokens))[0] if is_known else bytes(self.dimension))
        return vectors

    def count_tokens(self, word: str) -> int:
        return len(self._tokenizer.encode(word, add_special_tokens=False).ids)

    def embed_query(self, text: str) -> bytes:
        text = clean_text(text)
        tokens, unknown_letters = self._tokenize(text)
        trust = self._word_pieces.trust_in_query(text, tokens, unknown_letters)
        return _encode_rows(self._mean(tokens), trust)[0] if tokens and trust else bytes(self.dimension)

    def _tokenize(self, text: str) -> tuple[list[int], int]:
        """Returns the tokens, none if the model knows none of them, and the number of letters that it has no tokens
        for. All tokens that it does not know are the same to it: a text of nothing else would resemble any other."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        tokens = encoding.ids
        unknown_letters = 0
        for token, (start, end) in zip(tokens, encoding.offsets, strict=True):
            if token == self._unknown_token:
                # Vowel signs count, too: in Hindi and its relatives, they are a third of what is written.
                unknown_letters += sum(category(character)[0] in "LM" for character in text[start:end])
        return ([] if tokens.count(self._unknown_token) == len(tokens) else tokens), unknown_letters

    def _mean(self, tokens: list[int]) -> "numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float32]]":
        ids = numpy.array([[self._start_token, *tokens[:_TOKENS_MAX], self._end_token]], numpy.int64)
        inputs = {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}
        if self._has_token_types:
            inputs["token_type_ids"] = numpy.zeros_like(ids)
        states: Any = self._session.run(None, inputs)[0]
        mean: numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float32]] = states.mean(axis=1)
        return mean


# -- multilingual ------------------------------------------------------------------------------------------------------
# universal-sentence-encoder-multilingual-3 with 8-bit weights. Its tokenizer is part of the model, and is run by
# onnxruntime-extensions.

_TEXT, _VECTOR = "inputs", "outputs"
_TOKENS = "StatefulPartitionedCall/text_preprocessor/SentenceTokenizer/SentencepieceTokenizeOp:0"
_UNKNOWN, _UNKNOWN_PIECES = 0, 2
# Pieces per word of XQuAD's questions, mean: English 1.4, Spanish 1.7, German 1.7, Arabic 1.9, Turkish 2.0, Russian and
# Romanian 2.2, Vietnamese 2.8, Hindi 4.1, Greek 4.8. In scripts without spaces, two letters count as a word.
_MULTILINGUAL_FAMILIAR_PIECES, _MULTILINGUAL_PIECES_MAX = 2.3, 3.0
_UNSPACED_WORD_CHARS = 2


class MultilingualModel:
    def __init__(self, weights: Path) -> None:
        import onnxruntime  # noqa: PLC0415 - `fast` does not need it
        from onnxruntime_extensions import get_library_path  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        options.register_custom_ops_library(get_library_path())
        # The tokens become an output of the model. Two protocol buffers one after the other are read as one that has
        # the repeated fields of both: here, ModelProto.graph (7) with one more output (12), whose name is 1 and whose
        # type (2) is a tensor (1) of 32-bit integers.
        tokens = _field(7, _field(12, _field(1, _TOKENS.encode()) + _field(2, _field(1, b"\x08\x06"))))
        self._session = onnxruntime.InferenceSession(
            weights.read_bytes() + tokens, options, providers=["CPUExecutionProvider"]
        )

    @property
    def dimension(self) -> int:
        return int(self._session.get_outputs()[0].shape[1])

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [self._embed(clean_text(text), is_query=False) for text in texts]

    def count_tokens(self, word: str) -> int:
        outputs: Any = self._session.run([_TOKENS], {_TEXT: [word]})
        return len(outputs[0])

    def embed_query(self, text: str) -> bytes:
        return self._embed(clean_text(text), is_query=True)

    def _embed(self, text: str, *, is_query: bool) -> bytes:
        if not text:
            return bytes(self.dimension)
        outputs: Any = self._session.run([_VECTOR, _TOKENS], {_TEXT: [text]})
        vector, tokens = outputs
        # Numbers, punctuation marks and emoji are about a token for each character, known or not.
        others = sum(category(character)[0] in "NPSC" for character in text)
        unknown = max(0, int((tokens == _UNKNOWN).sum()) - others)
        pieces = max(0, len(tokens) - others) + _UNKNOWN_PIECES * unknown
        unspaced = sum(map(len, UNSPACED_RUN.findall(text)))
        words = _count_words(UNSPACED_RUN.sub(" ", text)) + unspaced / _UNSPACED_WORD_CHARS
        if is_query:
            trust = trust_in_query(pieces, words, _MULTILINGUAL_FAMILIAR_PIECES, _MULTILINGUAL_PIECES_MAX)
        else:
            trust = float(knows_passage(pieces, words))
        return _encode_rows(vector, trust)[0]


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field of a protocol buffer that is shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


# -- static embeddings -------------------------------------------------------------------------------------------------
# The vector of a text is the mean of the vectors of its tokens, which a table holds. The weights are those of
# wordllama. Its code is not used: looking up and averaging rows takes two lines.

# safetensors: the length of the header in 8 bytes, the header as JSON, then the numbers.
_LENGTH_BYTES = 8
_HEADER_MAX_BYTES = 1 << 20
_TENSOR = "embedding.weight"
_TYPES = {"F16": "<f2", "F32": "<f4"}
_BATCH = 256
# 99 of 100 English passages of XQuAD have fewer pieces per word.
_STATIC_FAMILIAR_PIECES = 1.5


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
        table = numpy.memmap(weights, kind, "r", _LENGTH_BYTES + length + start, (rows, columns))
        self._table = table.view(numpy.ndarray)  # the same memory, without the checks of the subclass at each use
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._word_pieces = WordPieces(self._tokenizer.get_vocab(), _STATIC_FAMILIAR_PIECES)

    @property
    def dimension(self) -> int:
        return int(self._table.shape[1])

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        vectors: list[bytes] = []
        for start in range(0, len(texts), _BATCH):
            batch = [clean_text(text) for text in texts[start : start + _BATCH]]
            means = numpy.zeros((len(batch), self.dimension), numpy.float32)
            for row, encoding in enumerate(self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)):
                ids = encoding.ids
                if ids and self._word_pieces.knows_passage(batch[row], ids):
                    means[row] = self._table[ids].mean(axis=0, dtype=numpy.float32)
            vectors += _encode_rows(means)
        return vectors

    def count_tokens(self, word: str) -> int:
        return len(self._tokenizer.encode(word, add_special_tokens=False).ids)

    def embed_query(self, text: str) -> bytes:
        text = clean_text(text)
        [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)  # without offsets
        tokens = encoding.ids
        trust = self._word_pieces.trust_in_query(text, tokens)
        if not tokens or not trust:
            return bytes(self.dimension)
        return _encode_rows(self._table[tokens].mean(axis=0, dtype=numpy.float32, keepdims=True), trust)[0]
