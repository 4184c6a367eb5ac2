"""The import page in a browser. Each person has an empty library at first."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from auth.follows import FollowRecord, Follows
from sources.drafts import NoteDraft
from tests.browser.console_server import PHONE, ConsoleServer, open_console
from tests.browser.driver import BrowserDriver
from tests.browser.payloads import PAYLOADS
from tests.server.rest.rest_client import rest_client_of

pytestmark = pytest.mark.slow("walks through pages in a browser")


@pytest.fixture(scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleServer]:
    async with open_console(tmp_path_factory.mktemp("import")) as server:
        yield server


async def test_dropped_files_are_tried_imported_and_remembered(browser: BrowserDriver, console: ConsoleServer) -> None:
    files = [["Tea.md", "# Tea\nSteep for three minutes."], ["odd.bin", "\0unsupported"]]

    seen = await console.run(browser, "import.mjs", "dragAndDrop", "dora", values=files)

    assert "Dry run: 1 found" in seen["tried"][0]
    assert "unsupported format" in seen["tried"][1]
    assert "1 new" in seen["imported"][0]
    assert "unsupported format" in seen["imported"][1]
    assert "odd.bin" in seen["problems"]
    assert seen["announced"].startswith("odd.bin: unsupported format")
    assert [text[:11] for text in seen["history"]] == ["unsupported", "1 new", "unsupported", "1 found"]
    assert seen["findings"] == []
    dora = await rest_client_of(console.server).library_user("dora")
    assert len(await dora.search("knowledge_search", "steep", dedupe="off")) == 1


async def test_folder_is_imported_and_its_notes_find_each_other(browser: BrowserDriver, console: ConsoleServer) -> None:
    seen = await console.run(browser, "import.mjs", "folder", "emil")

    assert seen["chosen"][0].startswith("Käse\n\n2 files")
    assert seen["chosen"][1].startswith("Käse/deep/Talk.srt")
    assert seen["leftOut"] == "Left out: 2 files of other formats in Käse."
    assert seen["linked"] == "Gouda"


async def test_upload_with_the_keyboard_alone_shows_its_progress(
    browser: BrowserDriver, console: ConsoleServer
) -> None:
    text = "\n".join(f'{{"name": "Prompt {n}", "content": "Words {n}"}}' for n in range(50))

    seen = await console.run(browser, "import.mjs", "keyboard", "fay", values={"name": "Words.md", "text": text})

    assert any(words.startswith("Uploading, ") for words in seen["progress"])
    assert any(words.endswith(" items so far") for words in seen["progress"])
    assert seen["history"] == ["1 new"]


async def test_upload_works_without_javascript(browser: BrowserDriver, console: ConsoleServer) -> None:
    values = {"name": "Grüner Tee.md", "text": "# Tee\nDrei Minuten."}

    seen = await console.run(browser, "import.mjs", "plain", "gil", values=values, javaScriptEnabled=False)

    assert seen == {"results": ["1 new"], "open": ["notes", "1", "0", "0"]}


async def test_people_see_only_their_own_imports(browser: BrowserDriver, console: ConsoleServer) -> None:
    values = {"name": "Secret.md", "text": "A secret."}
    await console.run(browser, "import.mjs", "plain", "hal", values=values, javaScriptEnabled=False)

    (text,) = await console.run(browser, "console.mjs", "texts", "ida", values=["/import"])

    assert "Secret" not in text
    assert "No imports yet" in text


async def test_folder_is_followed_paused_and_no_longer_followed(
    browser: BrowserDriver, console: ConsoleServer, tmp_path: Path
) -> None:
    (tmp_path / "Tea.md").write_text("Steep for three minutes.")

    seen = await console.run(browser, "import.mjs", "follow", "kim", values=str(tmp_path))

    assert seen["problem"].startswith("Location: expected")
    assert "1 item" in seen["row"]
    assert (seen["kept"], seen["findings"]) == (1, [])


async def test_conflicts_are_settled_with_the_buttons(
    browser: BrowserDriver, console: ConsoleServer, tmp_path: Path
) -> None:
    server = console.server
    for name in ("Tea", "Cup"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\nFrom the file.")
    owner, other = await server.user("lea"), await rest_client_of(server).library_user("mia")
    new = FollowRecord(user_id=owner.id, location=str(tmp_path))
    record = await Follows(server.runtime.registry.database).add(new, per_user_max=20)
    lea = await rest_client_of(server).library_user("lea")

    async def texts() -> dict[str, str]:
        async with server.runtime.libraries.library(lea.context) as library:
            return {note.title: note.content for note in (await library.notes.list(10, 0)).rows}

    async def edit() -> None:
        async with server.runtime.libraries.library(lea.context) as library:
            for note in (await library.notes.list(10, 0)).rows:
                await library.notes.update(note.uuid, NoteDraft(content=f"{note.title} edited here."))

    async with asyncio.timeout(60):
        while len(await texts()) < 2:
            await asyncio.sleep(0.1)
    await edit()
    for name in ("Tea", "Cup"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\nChanged in the file.")

    buttons = [["Tea.md", "Keep the edits"], ["Cup.md", "Use the file"]]
    seen = await console.run(browser, "import.mjs", "conflicts", "lea", values=buttons)

    assert sorted(text.split(" ")[0] for text in seen["problems"]) == ["Cup.md", "Tea.md"]
    assert seen["findings"] == []
    stored = await texts()
    assert (stored["Tea"], "Changed in the file." in stored["Cup"]) == ("Tea edited here.", True)
    assert await other.search("knowledge_search", "edited", dedupe="off") == []
    await Follows(server.runtime.registry.database).remove(owner.id, record.id)


async def test_refused_upload_is_reported_beside_its_file(browser: BrowserDriver, console: ConsoleServer) -> None:
    (row,) = await console.run(browser, "import.mjs", "refused", "jan")

    assert "large.md" in row
    assert "the body is larger than 1024 bytes" in row


@pytest.mark.parametrize(
    "options", [{"colorScheme": "light"}, {"colorScheme": "dark"}, {"colorScheme": "dark", **PHONE}]
)
async def test_import_page_passes_the_audit_and_fits_the_screen(
    browser: BrowserDriver, console: ConsoleServer, options: dict[str, object]
) -> None:
    findings = await console.run(browser, "search.mjs", "look", "hal", values=["/import"], **options)

    assert findings == {"/import": []}


async def test_hostile_file_names_run_nothing(browser: BrowserDriver, console: ConsoleServer) -> None:
    """Names are shown by the script before the upload and by the server afterwards, those in an archive unchanged."""
    names = [payload.replace("/", "∕") for payload in PAYLOADS]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in names:
            file.writestr(f"vault/{name}.md", b"\xff\xfe\xfa\0\0")
    api, headers = rest_client_of(console.server), {"Content-Type": "application/octet-stream"}
    job = await api.request("POST", "/api/v1/import?name=vault.zip", "mallory", headers, archive.getvalue())
    events = (await api.get(f"/api/v1/import/{job.json()['id']}/events", "mallory")).body.decode()

    seen = await console.run(browser, "import.mjs", "hostileNames", "mallory", values=names)
    await console.run(browser, "item.mjs", "hostile", "mallory", values=["/import"])

    assert "globalThis.xss" in events
    assert seen["shown"] == names
    assert (seen["elements"], seen["xss"]) == (["BUTTON", "DIV", "LI", "P", "PROGRESS", "SPAN"], None)
