"""Learns the weights of the second stage of searches in chats (`sources.search.message_boost`).

`make bench-retrieval DATA=<folder>` does it: the data are the questions about the LoCoMo conversations in the folder,
so the weights are those of messages between people. The candidates are the first ones of each search without the second
stage. The weights maximize the likelihood that an evidence turn is chosen among them: a softmax over the log-odds of
the score plus the weighted features. Those learned from all conversations are printed, and `MESSAGE_WEIGHTS` has what
lies between those by words and with a model, rounded. For an honest figure, they are also learned without each
conversation, which is then measured with them.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import log
from statistics import fmean
from typing import Any

import numpy
from msgspec import Struct

from bench.datasets import Dialogue
from bench.local_runtime import WORDS_ONLY, LocalRuntime
from sources.query import ParsedQuery
from sources.search.arguments import read_query, resolve_times
from sources.search.message_boost import MessageBoost, MessageWeights
from sources.search.scoring import SenderBoost
from sources.storage.contract import Search

DEPTH = 10
# The features of messages between people.
LEARNED = ("brief", "asks", "named", "tells_when")
# What the second stage sorts: the first block by words, and with a model, the nearest by meaning.
_POOL = 40
_POOL_WITH_MODEL = 50
_DEADLINE_MS = 60_000
_NEWTON_STEPS = 12
_LEAST_ODDS_SCORE = 1e-4


class Pool(Struct, frozen=True):
    """The candidates of one question: the log-odds of their scores and their features as rows, and which of them are
    evidence. `evidence` is the number of evidence turns, found or not."""

    conversation: str
    rows: Any
    is_evidence: Any
    evidence: int


async def collect(runtime: LocalRuntime, dialogue: Dialogue, turn_of: Mapping[str, str]) -> list[Pool]:
    pools = []
    limit = _POOL if runtime.settings.semantic_model == WORDS_ONLY else _POOL_WITH_MODEL
    async with runtime.libraries.library(runtime.context_for(dialogue.id)) as library:
        for question in dialogue.questions:
            query = resolve_times(read_query(question.text, runtime.settings), datetime.now(UTC))
            search = Search(query=query, limit=limit, deadline_ms=_DEADLINE_MS, boosts_messages=False)
            page = await library.chats.search(search)
            is_evidence = [turn_of.get(match.part_id or "") in question.evidence for match in page.matches]
            rows = _rows(query, page.matches)
            pools.append(Pool(dialogue.id, rows, numpy.array(is_evidence, dtype=bool), len(set(question.evidence))))
    return pools


def _rows(query: ParsedQuery, matches: Sequence[Any]) -> Any:
    boost = MessageBoost(query.prose, SenderBoost(query.own_terms).factor)
    rows = []
    for match in matches:
        score = min(1 - _LEAST_ODDS_SCORE, max(_LEAST_ODDS_SCORE, match.score))
        features = boost.features(match)
        rows.append([log(score / (1 - score)), *(features.get(name, 0.0) for name in LEARNED)])
    return numpy.array(rows).reshape(len(rows), 1 + len(LEARNED))


def learn(pools: Sequence[Pool]) -> MessageWeights:
    """Newton's method on the log-likelihood. A small penalty keeps it finite if a feature never occurs."""
    weights = numpy.zeros(1 + len(LEARNED))
    weights[0] = 1.0
    judged = [pool for pool in pools if pool.is_evidence.any() and not pool.is_evidence.all()]
    for _ in range(_NEWTON_STEPS):
        gradient, hessian = -weights, numpy.identity(len(weights))
        for pool in judged:
            scores = pool.rows @ weights
            chances = numpy.exp(scores - scores.max())
            chances /= chances.sum()
            mean = chances @ pool.rows
            gradient = gradient + pool.rows[pool.is_evidence].mean(0) - mean
            hessian = hessian + (pool.rows.T * chances) @ pool.rows - numpy.outer(mean, mean)
        weights = weights + numpy.linalg.solve(hessian, gradient)
    return MessageWeights(**{name: float(weights[1 + i] / weights[0]) for i, name in enumerate(LEARNED)})


def recalls(pools: Sequence[Pool], weights: MessageWeights) -> list[float]:
    """Returns the share of the evidence turns among the first ten of each question."""
    factors = numpy.array([1.0, *(getattr(weights, name) for name in LEARNED)])
    found = []
    for pool in pools:
        first = numpy.argsort(-(pool.rows @ factors), kind="stable")[:DEPTH]
        found.append(float(pool.is_evidence[first].sum()) / pool.evidence)
    return found


def leave_one_out(pools: Sequence[Pool]) -> float:
    """Returns R@10 if the weights for each conversation are learned from the others."""
    found: list[float] = []
    for name in dict.fromkeys(pool.conversation for pool in pools):
        weights = learn([pool for pool in pools if pool.conversation != name])
        found += recalls([pool for pool in pools if pool.conversation == name], weights)
    return fmean(found) if found else 0.0
