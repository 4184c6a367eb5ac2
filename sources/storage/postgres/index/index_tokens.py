"""The tokens of an index form, as FTS5's tokenizer makes them: both engines then index the same words."""

from collections.abc import Iterator

from sources.text.folding import fold_bytewise, folds_bytewise
from sources.text.stemming import stem


def index_tokens(form: str) -> list[str]:
    """Returns the stemmed tokens of index forms, and of texts that are their own index form (see `index_form`), joined
    by spaces."""
    tokens = fold_bytewise(form).split() if folds_bytewise(form) else list(_folded_words(form))
    # Long texts repeat their words.
    stems = {token: stem(token) for token in set(tokens)}
    return [stems[token] for token in tokens]


def _folded_words(form: str) -> Iterator[str]:
    for word in form.split():
        if folds_bytewise(word):
            yield from fold_bytewise(word).split()
        else:
            yield word
