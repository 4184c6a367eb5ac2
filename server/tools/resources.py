"""A source's items as MCP resources: listed, read under `source://{id}`, and completed by id or title."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auth.principal import READ
from server.protocol.call import Call
from server.protocol.catalog import Resource, ResourceReader, ResourceTemplate
from sources.items import RetrievalOptions
from sources.source import Entry, Reading, Source, SourceResource
from sources.storage.contract import Libraries

# Newest items looked through for an id or a title that begins as typed; older ones are found by a search.
_RECENT_MAX = 200
_WHOLE = Reading(retrieval=RetrievalOptions(mode="full"))


class SourceItems:
    """The caller's items of one source."""

    scope = READ

    def __init__(self, source: Source, libraries: Libraries) -> None:
        self._source = source
        self._libraries = libraries

    def fixed(self) -> Iterator[Resource]:
        for declared in self._source.resources:
            if "{" not in declared.uri:
                yield Resource(
                    uri=declared.uri,
                    name=declared.name,
                    title=declared.title,
                    description=declared.description,
                    mime_type=declared.mime_type,
                    read=self._reader(declared),
                )

    def templates(self) -> Iterator[ResourceTemplate]:
        yield ResourceTemplate(
            uri_template=f"{self._source.name}://{{id}}",
            name=self._source.name,
            title=self._source.title,
            description=f"One item of the user's {self._source.name}, as text.",
            mime_type=self._source.mime_type,
            read=self._read_item,
            completers={"id": self._complete},
        )
        for declared in self._source.resources:
            if "{" in declared.uri:
                yield ResourceTemplate(
                    uri_template=declared.uri,
                    name=declared.name,
                    title=declared.title,
                    description=declared.description,
                    mime_type=declared.mime_type,
                    read=self._reader(declared),
                    completers={"id": self._complete},
                )

    async def page(self, call: Call, offset: int, limit: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
        async with self._libraries.library(call.context) as library:
            page = await self._source.entries(call.context, library, limit, offset)
        return [self._listed(entry) for entry in page.rows], offset + len(page.rows) < page.total

    def _listed(self, entry: Entry) -> dict[str, Any]:
        listed: dict[str, Any] = {
            "uri": entry.uri,
            "name": entry.title or str(entry.id),
            "mimeType": self._source.mime_type,
        }
        if entry.last_modified is not None:
            listed["annotations"] = {"lastModified": entry.last_modified}
        return listed

    async def _read_item(self, call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        async with self._libraries.library(call.context) as library:
            answer = await self._source.get(call.context, library, variables["id"], _WHOLE)
        text = answer.content
        if answer.next_cursor is not None:
            text += f"\n\n[cut here; {self._source.name}_get with cursor {answer.next_cursor} reads on]"
        return [{"uri": uri, "mimeType": self._source.mime_type, "text": text}]

    def _reader(self, declared: SourceResource) -> ResourceReader:
        async def read(call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
            async with self._libraries.library(call.context) as library:
                text = await declared.read(call.context, library, variables)
            return [{"uri": uri, "mimeType": declared.mime_type, "text": text}]

        return read

    async def _complete(self, call: Call, value: str, given: Mapping[str, str]) -> Sequence[str]:
        """Ids of items whose id, or a word of whose title, begins with what was typed; then of what it finds."""
        typed = value.strip().casefold()
        async with self._libraries.library(call.context) as library:
            recent = await self._source.entries(call.context, library, _RECENT_MAX, 0)
            ids = [str(entry.id) for entry in recent.rows if _begins(entry, typed)]
            if typed:
                asked = self._source.search_input(query=_as_query(value))
                found = await self._source.search(call.context, library, asked)
                ids += [str(match.id) for match in found.found]
        return list(dict.fromkeys(ids))


def _begins(entry: Entry, typed: str) -> bool:
    title = (entry.title or "").casefold()
    return str(entry.id).casefold().startswith(typed) or f" {title}".find(f" {typed}") >= 0


def _as_query(value: str) -> str:
    """What is typed is the beginning of a word, where it can be one."""
    word = value.strip()
    return f"{word}*" if word.isalnum() else word
