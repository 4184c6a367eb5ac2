"""Images of an Obsidian vault: stored with their notes, shown on their pages, and never another user's or file's."""

import asyncio
import base64
import os
import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from auth.follows import FollowRecord, Follows
from config.errors import NotFound, QuotaExceeded
from sources.drafts import NoteImage
from sources.exporters.export import export_library
from sources.importers.engine.discovery import discover
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.summary import ImportSummary
from sources.importers.registry import all_importers
from tests.live import live, make_settings
from tests.server.cli.program import Program
from tests.server.rest.rest_client import RestClient, open_rest_client, rest_client_of
from tests.sources.source_fixture import LibraryUser

PNG = b"\x89PNG\r\n\x1a\n" + b"mast"
HTML = {"Accept": "text/html"}


def write_vault(folder: Path, **files: str | bytes) -> Path:
    """Keys are paths, with `__` for a slash and a suffix after the last `_`."""
    (folder / ".obsidian").mkdir(parents=True, exist_ok=True)
    for key, content in files.items():
        path = folder / (key.replace("__", "/")[::-1].replace("_", ".", 1)[::-1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


async def import_into(user: LibraryUser, path: Path, api: RestClient) -> ImportSummary:
    settings = api.server.runtime.settings
    found = list(discover([path], import_limits(settings), all_importers()))
    async with user.libraries.library(user.context) as library:
        return await run_import(library, found, settings, ImportProgress())


async def only_note(user: LibraryUser) -> Any:
    async with user.libraries.library(user.context) as library:
        (note,) = (await library.notes.list(10, 0)).rows
        return note, await library.notes.image_names(note.uuid)


async def page_of(api: RestClient, note: str, user: str | None = "ada") -> str:
    return (await api.request("GET", f"/items/notes/{note}", user, HTML)).body.decode()


async def test_images_of_a_vault_are_shown_to_their_owner_only(
    api: RestClient, ada: LibraryUser, ben: LibraryUser, tmp_path: Path
) -> None:
    text = "# Ship\n![[mast.png|300]] and ![the bow](images/my%20bow.png) and ![[sail.png]] and ![[none.png]]"
    vault = write_vault(tmp_path / "vault", ships__Ship_md=text, ships__images__x_png=PNG, mast_png=PNG)
    (vault / "ships" / "images" / "my bow.png").write_bytes(PNG + b"bow")
    (vault / ".obsidian" / "app.json").write_text('{"attachmentFolderPath": "files"}')
    write_vault(vault, files__sail_png=PNG + b"sail")

    await import_into(ada, vault, api)
    note, names = await only_note(ada)
    page = await page_of(api, note.uuid)
    addresses = re.findall(r'<img src="([^"]+)"', page)
    images = [await api.request("GET", address, "ada") for address in addresses]

    assert names == ["images/my bow.png", "mast.png", "sail.png"]
    assert [image.body for image in images] == [PNG, PNG + b"bow", PNG + b"sail"]
    assert {image.header("content-type") for image in images} == {"image/png"}
    assert {image.header("x-content-type-options") for image in images} == {"nosniff"}
    assert "[image: none.png]" in page
    assert "![[" not in page
    for address in addresses:
        assert (await api.request("GET", address, "ben")).status == 404
        assert (await api.request("GET", address, None)).status == 401


@pytest.mark.parametrize("is_zip", [False, True])
async def test_an_image_never_comes_from_outside_the_vault_or_is_something_else(
    api: RestClient, ada: LibraryUser, tmp_path: Path, is_zip: bool
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNG + b"hunter2")
    text = (
        f"![[../secret.png]] ![[{secret}]] ![](../../secret.png) ![[link.png]] ![[.obsidian/icon.png]] "
        "![[page.png]] ![[drawing.svg]] ![](https://x.example/mast.png) `![[mast.png]]`"
    )
    vault = write_vault(
        tmp_path / "vault",
        Ship_md=text,
        page_png="<script>",
        drawing_svg="<svg/>",
        mast_png=PNG,
        **{".obsidian__icon_png": PNG},
    )
    (vault / "link.png").symlink_to(secret)
    path = vault
    if is_zip:
        path = tmp_path / "vault.zip"
        with ZipFile(path, "w") as archive:
            archive.writestr("secret.png", PNG + b"hunter2")
            for file in (*vault.glob("*"), *vault.glob(".obsidian/*")):
                if file.is_file() and not file.is_symlink():
                    archive.write(file, file.relative_to(tmp_path))

    await import_into(ada, path, api)
    _, names = await only_note(ada)

    assert names == []


async def test_images_follow_the_note_and_its_file(api: RestClient, ada: LibraryUser, tmp_path: Path) -> None:
    vault = write_vault(tmp_path / "vault", Ship_md="![[mast.png]] ![[sail.png]]", mast_png=PNG, sail_png=PNG)
    await import_into(ada, vault, api)
    write_vault(vault, Ship_md="![[mast.png]]", mast_png=PNG + b"new")

    summary = await import_into(ada, vault, api)
    note, names = await only_note(ada)
    async with ada.libraries.library(ada.context) as library:
        image = await library.notes.image(note.uuid, "mast.png")
        await library.notes.delete(note.uuid)
        with pytest.raises(NotFound):
            await library.notes.image(note.uuid, "mast.png")

    assert (summary.kinds["notes"].updated, names, image.data) == (1, ["mast.png"], PNG + b"new")


async def test_a_note_that_is_imported_alone_keeps_its_images(
    api: RestClient, ada: LibraryUser, tmp_path: Path
) -> None:
    vault = write_vault(tmp_path / "vault", Ship_md="![[mast.png]]", mast_png=PNG)
    await import_into(ada, vault, api)

    again = await import_into(ada, vault / "Ship.md", api)
    _, names = await only_note(ada)

    assert (again.kinds["notes"].unchanged, names) == (1, ["mast.png"])


async def test_images_are_exported_and_imported_again(
    api: RestClient, ada: LibraryUser, ben: LibraryUser, tmp_path: Path
) -> None:
    vault = write_vault(tmp_path / "vault", Ship_md="![[mast.png]]", mast_png=PNG)
    await import_into(ada, vault, api)
    async with ada.libraries.library(ada.context) as library:
        await export_library(library, tmp_path / "export")

    await import_into(ben, tmp_path / "export", api)
    note, names = await only_note(ben)
    async with ben.libraries.library(ben.context) as library:
        image = await library.notes.image(note.uuid, "mast.png")

    assert (names, image.media_type, image.data) == (["mast.png"], "image/png", PNG)


async def test_images_have_a_size_and_count_in_the_quota(tmp_path: Path) -> None:
    vault = write_vault(
        tmp_path / "vault", Ship_md="![[a.png]] ![[b.png]]", a_png=PNG + os.urandom(300_000), b_png=PNG + bytes(800_000)
    )
    async with open_rest_client(tmp_path / "data", import_images_max_bytes=1_000_000) as api:
        ada = await api.library_user("ada")
        await import_into(ada, vault, api)
        _, names = await only_note(ada)
        async with ada.libraries.library(ada.context) as library:
            usage = await library.usage()

    assert names == ["a.png"], "both together are too large"
    assert usage.bytes > 300_000


async def test_images_are_refused_when_the_quota_is_reached(tmp_path: Path) -> None:
    """PostgreSQL measures a library after 20 writes, or when its size is asked for."""
    async with open_rest_client(tmp_path / "data", user_max_bytes=2_000_000) as api:
        ada, ben = await api.library_user("ada"), await api.library_user("ben")
        for user in (ada, ben):
            await user.add_note("Voyage", "A galleon.")
        note, _ = await only_note(ada)
        others, _ = await only_note(ben)
        async with ada.libraries.library(ada.context) as library, ben.libraries.library(ben.context) as other:
            images = [NoteImage(f"{number}.png", "image/png", PNG + os.urandom(200_000)) for number in range(25)]

            async def add_all() -> None:
                for count in range(1, len(images) + 1):
                    await library.notes.set_images({note.uuid: images[:count]})

            with pytest.raises(QuotaExceeded):
                await add_all()
            usage = await library.usage()
            with pytest.raises(QuotaExceeded):
                await library.notes.set_images({note.uuid: [NoteImage("mast.png", "image/png", PNG)]})
            await other.notes.set_images({others.uuid: images[:1]})

    assert usage.bytes >= 2_000_000


@pytest.mark.slow("waits for events of files")
async def test_images_of_a_followed_vault_are_shown_to_their_owner_only(tmp_path: Path) -> None:
    vault = write_vault(tmp_path / "vault", Ship_md="![[mast.png]]", mast_png=PNG)
    async with live(make_settings(tmp_path / "data")) as server:
        api = rest_client_of(server)
        owner = await server.user("ada")
        await Follows(server.runtime.registry.database).add(
            FollowRecord(user_id=owner.id, location=str(vault)), per_user_max=1
        )
        async with asyncio.timeout(60):
            while not (notes := (await api.get("/api/v1/library/items?source=notes")).json()["items"]):
                await asyncio.sleep(0.05)
            # Images are stored after their note.
            note = notes[0]["uri"].removeprefix("notes://")
            while not (addresses := re.findall(r'<img src="([^"]+)"', await page_of(api, note))):
                await asyncio.sleep(0.05)
        [address] = addresses
        own, others = await api.get(address), await api.get(address, "ben")
        (vault / "Ship.md").unlink()
        async with asyncio.timeout(60):
            while (await api.get(address)).status != 404:
                await asyncio.sleep(0.05)

    assert (own.status, own.body, others.status) == (200, PNG, 404)


def exported_files(program: Program, name: str, *options: str, **environment: str) -> dict[str, bytes]:
    program.expect("export", name, "--user", "ada", *options, **environment)
    folder = program.home / name
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow("copies a deployment several times")
@pytest.mark.sqlite  # copies files
def test_backups_and_copies_to_the_other_storage_have_the_images(tmp_path: Path, database_url: str) -> None:
    program, back = Program(tmp_path), tmp_path / "back"
    program.with_users("ada", "ben")
    write_vault(tmp_path / "vault", Ship_md="![[mast.png]]", mast_png=PNG)
    program.expect("import", "vault", "--user", "ada")
    files = exported_files(program, "original")

    program.expect("backup", "saved")
    program.expect("restore", "saved", "--data-dir", str(tmp_path / "restored"))
    program.expect("migrate-store", "--to", database_url)
    program.expect("migrate-store", FLORILEGIUM_MIGRATE_FROM=database_url, FLORILEGIUM_MIGRATE_TO=f"sqlite:{back}")

    assert base64.b64encode(PNG) in files["notes.jsonl"]
    assert exported_files(program, "from-backup", "--data-dir", str(tmp_path / "restored")) == files
    assert exported_files(program, "from-postgres", FLORILEGIUM_STORAGE_URL=database_url) == files
    assert exported_files(program, "from-copy", "--data-dir", str(back)) == files
