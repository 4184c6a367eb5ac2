"""Resources: a user's items, listed in pages, read as text, completed by id and title."""

from pathlib import Path

import msgspec
import pytest

from tests.cases import each_case
from tests.server.rest.rest_client import RpcError
from tests.sources.source_fixture import SOURCES, LibraryUser, open_source_fixture

every_source = pytest.mark.parametrize("source", SOURCES)


async def test_media_types_are_listed_with_their_counts_and_suggestions(ada: LibraryUser, ben: LibraryUser) -> None:
    for kind in ("video", "video", "pdf"):
        await ada.add_media("Item", "text", media_type=kind)
    await ben.add_media("Item", "text", media_type="lecture")

    (content,) = (await ada.request("resources/read", uri="media://types"))["contents"]

    assert content["mimeType"] == "application/json"
    listed = msgspec.json.decode(content["text"])
    assert listed["types"] == [{"media_type": "video", "count": 2}, {"media_type": "pdf", "count": 1}]
    # The types that tldw suggests for user interfaces.
    suggested = (
        "video",
        "audio",
        "podcast",
        "pdf",
        "epub",
        "docx",
        "pptx",
        "html",
        "markdown",
        "txt",
        "image",
        "article",
    )
    assert set(listed["suggested"]) >= set(suggested)


async def test_there_is_a_template_for_each_source(ada: LibraryUser) -> None:
    templates = [t["uriTemplate"] for t in (await ada.request("resources/templates/list"))["resourceTemplates"]]

    assert templates == [
        "notes://{id}",
        "media://{id}",
        "chats://{id}",
        "chats://{id}/{message_id}",
        "characters://{id}",
        "prompts://{id}",
    ]


@every_source
async def test_an_item_is_read_whole_under_its_uri(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", "A galleon under full sail.")

    (content,) = (await ada.request("resources/read", uri=f"{source}://{identity}"))["contents"]

    assert content["uri"] == f"{source}://{identity}"
    assert "A galleon under full sail." in content["text"]


@every_source
async def test_a_long_item_is_truncated_with_a_notice(tmp_path: Path, source: str) -> None:
    async with open_source_fixture(tmp_path, retrieval_max_tokens=500) as fixture:
        identity = await fixture.ada.add_item(source, "Voyage", "A galleon under full sail. " * 500)

        (content,) = (await fixture.ada.request("resources/read", uri=f"{source}://{identity}"))["contents"]

    assert len(content["text"]) < 2200
    assert f"[truncated; continue with {source}_get and cursor " in content["text"]


async def test_pages_list_every_item_of_every_source_once(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path, offer={"page_size": 4}) as fixture:
        expected = {"media://types"}
        for source in SOURCES:
            expected |= {f"{source}://{await fixture.ada.add_item(source, f'Item {n}', 'text')}" for n in range(5)}
            await fixture.ben.add_item(source, "Other", "text")
        seen, cursor = list[str](), None
        while True:
            page = await fixture.ada.request("resources/list", **({"cursor": cursor} if cursor else {}))
            assert 1 <= len(page["resources"]) <= 4
            seen += [entry["uri"] for entry in page["resources"]]
            if (cursor := page.get("nextCursor")) is None:
                break

    assert len(seen) == len(set(seen)) == len(expected)
    assert set(seen) == expected


@each_case("size", [1, 2, 3, 26])
async def test_the_last_page_of_a_list_has_no_cursor_and_none_is_empty(tmp_path: Path, size: int) -> None:
    async with open_source_fixture(tmp_path, offer={"page_size": size}) as fixture:
        await fixture.ada.add_note("One", "text")
        await fixture.ada.add_prompt("Two", "text")
        sizes, cursor = list[int](), None
        while True:
            page = await fixture.ada.request("resources/list", **({"cursor": cursor} if cursor else {}))
            sizes.append(len(page["resources"]))
            if (cursor := page.get("nextCursor")) is None:
                break

    assert sum(sizes) == 3
    assert all(count == size for count in sizes[:-1])
    assert sizes[-1] > 0


@each_case("cursor", ["MTo5OjA=", "MTowOjk5", "MToxOi0x", "MTo5OTk5OjA=", "Mjow", "x"])
async def test_a_forged_list_cursor_is_rejected(ada: LibraryUser, cursor: str) -> None:
    with pytest.raises(RpcError, match="cursor"):
        await ada.request("resources/list", cursor=cursor)


async def test_a_listed_item_has_its_name_and_age(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "text", created_at="2026-05-01T00:00:00.000Z")

    listed = (await ada.request("resources/list"))["resources"]

    assert listed[1] == {
        "uri": f"notes://{note}",
        "name": "Voyage",
        "mimeType": "text/markdown",
        "annotations": {"lastModified": "2026-05-01T00:00:00.000Z"},
    }


async def complete(reader: LibraryUser, source: str, value: str) -> list[str]:
    answer = await reader.request(
        "completion/complete",
        ref={"type": "ref/resource", "uri": f"{source}://{{id}}"},
        argument={"name": "id", "value": value},
    )
    values: list[str] = answer["completion"]["values"]
    return values


@every_source
async def test_an_id_is_completed_from_its_beginning_or_from_the_title(
    ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    identity = str(await ada.add_item(source, "Voyage of the Beagle", "Finches."))
    await ben.add_item(source, "Voyage of the Beagle", "Finches.")

    for typed in ("", identity[:4], "bea", "voyage"):
        assert await complete(ada, source, typed) == [identity]


@every_source
async def test_completion_without_a_match_is_empty(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage of the Beagle", "Finches.")

    assert await complete(ada, source, "zeppelin") == []


@each_case(
    "uri", ["notes://", "notes://a/b", "notes://%00", "chats://x/y/z", "media://abc", "media://-1", "prompts://9" * 40]
)
async def test_a_malformed_uri_is_not_found(ada: LibraryUser, uri: str) -> None:
    with pytest.raises(RpcError, match="resource not found") as refused:
        await ada.request("resources/read", uri=uri)

    assert refused.value.error["data"] == {"uri": uri}
