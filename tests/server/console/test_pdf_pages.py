"""Pages of a PDF in a followed folder: shown at the passage, to the owner only, and never another file."""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from auth.follows import FollowRecord, Follows
from sources.storage.contract import FollowedFile, FollowedItem
from tests.server.rest.rest_client import RestClient
from tests.sources.importers.office_files import pdf
from tests.sources.source_fixture import LibraryUser

PAGES = ("Low water is at noon.", "High water is in the evening.")


async def add_followed(
    api: RestClient, user: LibraryUser, folder: Path, name: str, pages: Sequence[str] = PAGES
) -> int:
    """Writes a PDF, and returns the id of its item, as if it had been read. The source is paused, so that nothing reads
    it."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(pdf(*pages))
    record = FollowRecord(user_id=user.context.user_id, location=str(folder), paused_at=1.0)
    await Follows(api.server.runtime.registry.database).add(record, per_user_max=9)
    item = await user.add_media(name, "\n\n".join(pages), media_type="pdf", metadata={"pages": len(pages)})
    async with user.libraries.library(user.context) as library:
        uuid = (await library.media.get(item)).uuid
        file = FollowedFile(name=name.encode(), signature="")
        await library.followed_files.save(record.id, file, [FollowedItem("media", "key", uuid)])
    return item


async def test_page_with_the_passage_is_shown_to_the_owner_of_the_folder_only(
    api: RestClient, ada: LibraryUser, ben: LibraryUser, tmp_path: Path
) -> None:
    item = await add_followed(api, ada, tmp_path / "papers", "tides.pdf")
    await ben.add_media("Mine", "High water.", media_type="pdf", metadata={"pages": 2})

    whole = (await api.get(f"/items/media/{item}", accept="text/html")).body.decode()
    found = (
        await api.get(f"/items/media/{item}?chunk_index=0&find=evening&back=q%3Dtide", accept="text/html")
    ).body.decode()
    image = await api.get(f"/pdf-pages/{item}/2")
    others = [await api.get(f"/pdf-pages/{item}/{page}", "ben") for page in (1, 2)]
    missing = [await api.get(f"/pdf-pages/{item}/{page}") for page in (0, 3, 10**30)]

    assert f'<img src="/pdf-pages/{item}/1" alt="Page 1 of tides.pdf">' in whole
    assert f'href="/items/media/{item}?page=2#pages" rel="next"' in whole
    assert 'rel="prev"' not in whole
    assert f'src="/pdf-pages/{item}/2"' in found
    assert re.search(
        rf'href="/items/media/{item}\?chunk_index=0&amp;find=evening&amp;back=q%3Dtide&amp;page=1#pages" rel="prev"',
        found,
    )
    assert (image.status, image.header("content-type"), image.header("cache-control")) == (
        200,
        "image/png",
        "private, no-store",
    )
    assert image.header("content-security-policy") == "default-src 'none'; sandbox"
    assert image.header("x-content-type-options") == "nosniff"
    assert struct.unpack(">4s2I", image.body[12:24]) == (b"IHDR", 1000, 1295)
    assert [one.status for one in (*others, *missing)] == [404] * 5
    assert (await api.get(f"/pdf-pages/{item}/1", None)).status == 401


@pytest.mark.slow("starts parsers")
async def test_only_a_pdf_inside_the_folder_is_drawn(api: RestClient, ada: LibraryUser, tmp_path: Path) -> None:
    (tmp_path / "secret.pdf").write_bytes(pdf(*PAGES))
    link = await add_followed(api, ada, tmp_path / "links", "link.pdf")
    (tmp_path / "links" / "link.pdf").unlink()
    (tmp_path / "links" / "link.pdf").symlink_to(tmp_path / "secret.pdf")
    text = await add_followed(api, ada, tmp_path / "texts", "text.pdf")
    (tmp_path / "texts" / "text.pdf").write_text("%PDF-1.7 and no more")
    mail = await add_followed(api, ada, tmp_path / "mails", "mail.eml")
    gone = await add_followed(api, ada, tmp_path / "gone", "gone.pdf")
    (tmp_path / "gone" / "gone.pdf").unlink()
    uploaded = await ada.add_media("Uploaded", "x", media_type="pdf", metadata={"pages": 1})

    images = [await api.get(f"/pdf-pages/{item}/1") for item in (link, text, mail, gone, uploaded)]
    pages = [
        (await api.get(f"/items/media/{item}?query=water", accept="text/html")).status
        for item in (link, text, mail, gone, uploaded)
    ]

    assert [one.status for one in images] == [400, 400, 404, 400, 404]
    assert pages == [200] * 5


@pytest.mark.slow("starts parsers")
async def test_folder_that_the_user_may_no_longer_read_is_not(
    api: RestClient, ada: LibraryUser, tmp_path: Path
) -> None:
    item = await add_followed(api, ada, tmp_path / "papers", "tides.pdf")
    await api.server.runtime.registry.database.write(
        lambda database: database.execute("UPDATE follows SET is_confined = 1")
    )

    assert (await api.get(f"/pdf-pages/{item}/1")).status == 404
    assert "pdf-pages" not in (await api.get(f"/items/media/{item}", accept="text/html")).body.decode()
