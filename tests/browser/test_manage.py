"""Managing a library in a browser: selections, tags, the editor's preview, duplicates and recordings, on a desktop and
a phone, light and dark. With FLORILEGIUM_PICTURES, the walks write pictures of the pages to that folder."""

import base64
import io
import os
import threading
import wave
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sources.records import Segment
from tests.browser.console_server import PHONE, ConsoleServer, open_console
from tests.browser.driver import BrowserDriver
from tests.server.rest.rest_client import rest_client_of
from tests.sources.source_fixture import LibraryUser

pytestmark = pytest.mark.slow("walks through pages in a browser")

SCREENS: dict[str, dict[str, Any]] = {
    "desktop": {"colorScheme": "light"},
    "dark": {"colorScheme": "dark"},
    "phone": {"colorScheme": "light", **PHONE},
}
screens = pytest.mark.parametrize("screen", SCREENS)


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[ConsoleServer]:
    async with open_console(tmp_path) as server:
        yield server


async def user(console: ConsoleServer, name: str = "ada") -> LibraryUser:
    return await rest_client_of(console.server).library_user(name)


async def walk(browser: BrowserDriver, console: ConsoleServer, step: str, screen: str, **values: Any) -> Any:
    pictures = os.environ.get("FLORILEGIUM_PICTURES")
    if pictures:
        values["pictures"] = str(Path(pictures) / screen)
    return await console.run(browser, "manage.mjs", step, values=values, **SCREENS[screen])


async def fill(ada: LibraryUser) -> None:
    for number in range(55):
        await ada.add_note(f"Day {number} of the voyage", f"Wind from {number} degrees.", tags=["inbox", "log"])
    await ada.add_prompt("Summary", "Summarise it.", tags=["Work"])


@screens
async def test_items_are_selected_changed_and_brought_back(
    browser: BrowserDriver, console: ConsoleServer, screen: str
) -> None:
    await fill(await user(console))

    seen = await walk(browser, console, "selection", screen)

    assert seen.pop("findings") == []
    assert "55 items are deleted." in seen.pop("deleted")
    assert "55 items are as they were before." in seen.pop("undone")
    assert seen == {"selected": "50 selected", "fits": True, "pinned": 1, "file": "florilegium-export.zip"}


@screens
async def test_tags_are_merged_after_a_question(browser: BrowserDriver, console: ConsoleServer, screen: str) -> None:
    await fill(await user(console))

    seen = await walk(browser, console, "tags", screen)

    assert seen["findings"] == []
    assert "55 items are changed." in seen["merged"]
    assert (set(seen["left"]), seen["fits"]) == ({"inbox", "log", "Work"}, True)


@screens
async def test_editor_shows_a_safe_preview_next_to_the_text_or_instead_of_it(
    browser: BrowserDriver, console: ConsoleServer, screen: str
) -> None:
    ada = await user(console)
    note = await ada.add_note("Plan", "Pack the *boat*.")

    seen = await walk(browser, console, "editor", screen, path=f"/edit/notes/{note}")

    assert (seen["findings"], seen["fits"], seen["isBeside"]) == ([], True, screen != "phone")
    assert "<strong>rope</strong>" in seen["html"]
    assert "<img" not in seen["html"]


@screens
async def test_duplicates_are_shown_side_by_side_and_merged(
    browser: BrowserDriver, console: ConsoleServer, screen: str
) -> None:
    ada = await user(console)
    text = "The galleon left the harbour at dawn while the fog stayed over the old quay. " * 3
    await ada.add_note("Voyage", f"{text}The crew counted the barrels and the rope twice before noon.", tags=["sea"])
    await ada.add_note("Voyage (copy)", f"{text}The crew counted the barrels and the rope thrice before noon.")
    for number in range(2):
        await ada.add_media(f"Film {number}", "A galleon in a film.", media_type="video")

    seen = await walk(browser, console, "duplicates", screen)

    assert seen.pop("findings") == []
    assert [heading.partition(" ")[0] for heading in seen.pop("headings")] == ["2", "2"]
    assert seen == {"different": ["thrice "], "fits": True, "left": 1, "back": 2}


def tone() -> bytes:
    """Returns ten seconds of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as audio:
        audio.setparams((1, 1, 8_000, 80_000, "NONE", ""))
        audio.writeframes(b"\x80" * 80_000)
    return file.getvalue()


@pytest.fixture
def recordings() -> Iterator[tuple[str, list[str]]]:
    """Another server with a recording: its address, and the paths that were requested."""
    requested: list[str] = []
    content = tone()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.path)
            start = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
            self.send_response(206)
            self.send_header("Content-Type", "audio/wav")
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            self.wfile.write(content[start:])

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requested
        server.shutdown()


@screens
async def test_recording_is_requested_after_a_click_and_the_transcript_follows_it(
    browser: BrowserDriver, console: ConsoleServer, screen: str, recordings: tuple[str, list[str]]
) -> None:
    origin, requested = recordings
    ada = await user(console)
    lines = {0: "the beginning", 4: "the fourth second", 8: "the eighth second"}
    # Long enough that each line is a passage of its own.
    segments = [
        Segment(start_ms=start * 1000, end_ms=start * 1000 + 3_900, text=f"This is {text}. " + "Fog. " * 250)
        for start, text in lines.items()
    ]
    item = await ada.add_media("Talk", media_type="transcript", url=f"{origin}/talk.wav", segments=segments)
    values = {"path": f"/items/media/{item}", "origin": origin, "host": origin.removeprefix("http://")}
    values["wav"] = base64.b64encode(tone()).decode()

    seen = await walk(browser, console, "recording", screen, **values)

    assert seen == {"findings": [], "jumped": True, "fits": True, "isLocal": True}
    assert set(requested) == {"/talk.wav"}
