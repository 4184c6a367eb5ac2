"""The ranked search in conversations. For an agent, it does not read the text of a human-only message."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from sources.drafts import ConversationDraft
from sources.records import Conversation, HitPage, SemanticStatus
from sources.storage.collections.searchable import SearchableCollection
from sources.storage.contract import Search
from sources.storage.search.hit_merge import merge_pages
from sources.storage.search.meaning import QueryVector
from sources.storage.search.readings import search_relaxed
from sources.storage.search.target import SearchTarget
from sources.storage.tables.connection import SqlConnection

_HUMAN_ONLY = "SELECT 1 FROM messages WHERE human_only = 1 AND deleted = 0 LIMIT 1"


class SearchableChats(SearchableCollection[Conversation, ConversationDraft, str]):
    """`human_only_target` is what only people search, in addition to `target`."""

    human_only_target: ClassVar[SearchTarget]
    _is_agent: bool

    async def search(self, search: Search) -> HitPage:
        return await (super().search(search) if self._is_agent else self._search_all(search))

    async def _search_all(self, search: Search) -> HitPage:
        meaning = await self._meaning(search)

        def work(connection: SqlConnection) -> HitPage:
            targets = [self.target]
            if has_human_only_messages(connection):
                targets.append(self.human_only_target)

            def has_match(reading: Search) -> bool:
                return any(self._has_match(connection, target, reading) for target in targets)

            def run(reading: Search) -> HitPage:
                return self._search_targets(connection, reading, targets, meaning)

            return search_relaxed(search, has_match, run)

        return await self._read(work, search.deadline_ms)

    def _search_targets(
        self,
        connection: SqlConnection,
        search: Search,
        targets: Sequence[SearchTarget],
        meaning: QueryVector | SemanticStatus,
    ) -> HitPage:
        if len(targets) == 1:
            return self._search_target(connection, self.target, search, meaning)
        # Both are read from the beginning: how many of the skipped hits are of which kind is not known.
        first = replace(search, limit=search.offset + search.limit, offset=0)
        public = self._search_target(connection, self.target, first, meaning)
        if search.corpus is None and search.query.terms:
            corpus = self._statistics.source_corpus(search.query, connection, self.target.index)
            first = replace(first, corpus=corpus)
        human_only = self._search_target(connection, self.human_only_target, first, meaning)
        return merge_pages(search, public, human_only)


def has_human_only_messages(connection: SqlConnection) -> bool:
    return connection.execute(_HUMAN_ONLY).fetchone() is not None
