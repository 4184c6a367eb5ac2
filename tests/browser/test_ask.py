"""Questions in a browser, with and without a language model, on a desktop and a phone, light and dark."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.browser.console_server import PHONE, ConsoleServer, open_console
from tests.browser.driver import BrowserDriver
from tests.cases import each_case
from tests.server.asking.model_server import hanging, serve_model, streaming
from tests.server.rest.rest_client import rest_client_of

pytestmark = pytest.mark.slow("walks through pages in a browser")
QUESTIONS = ["When was the boiler serviced?", "And who did it?"]
# Where pictures are written for people to look at, if anywhere.
PICTURES = os.environ.get("PNG_FOLDER", "")
VIEWS: list[tuple[str, dict[str, Any]]] = [
    ("desktop-light", {"colorScheme": "light"}),
    ("desktop-dark", {"colorScheme": "dark"}),
    ("phone-light", {**PHONE, "colorScheme": "light"}),
    ("phone-dark", {**PHONE, "colorScheme": "dark"}),
]


async def fill(console: ConsoleServer) -> None:
    ada = await rest_client_of(console.server).library_user("ada")
    text = "The house is cold.\n\n" * 60 + "The boiler was serviced on 4 May 2025. Hanna Weber did it."
    await ada.add_note("Boiler <script>alert(1)</script>", text)
    await ada.add_chat("Plumber", "Is the boiler serviced?", "Yes, the boiler was serviced, <b>says</b> Hanna.")


@each_case("view, options", VIEWS)
async def test_question_is_answered_and_its_citation_leads_to_the_passage(
    browser: BrowserDriver, tmp_path_factory: pytest.TempPathFactory, view: str, options: dict[str, Any]
) -> None:
    async with open_console(tmp_path_factory.mktemp("data")) as console:
        await fill(console)
        values = {"questions": QUESTIONS, "name": f"quoted-{view}", "folder": PICTURES}
        seen = await console.run(browser, "ask.mjs", "ask", values=values, **options)

    assert "4 May 2025" in seen["first"]
    assert "Boiler <script>alert(1)</script>" in seen["first"]
    assert "Hanna Weber" in seen["second"]
    assert "Quoted word for word" in seen["first"]
    assert [turn.partition("\n")[0] for turn in seen["turns"]] == QUESTIONS
    assert seen["earlier"] == [QUESTIONS[0]]
    assert (seen["scripts"], seen["width"], seen["findings"]) == (0, 0, [])
    assert all(path.startswith("/items/") for path in seen["hrefs"])
    assert any("boiler" in text.lower() for text in seen["marked"])
    assert seen["item"].startswith("/items/")


@each_case("view, options", VIEWS)
async def test_answer_of_a_model_is_text_with_citations_that_were_found(
    browser: BrowserDriver, tmp_path_factory: pytest.TempPathFactory, view: str, options: dict[str, Any]
) -> None:
    texts = (
        "The boiler was serviced on 4 May 2025 [1]. Hanna Weber did it, ",
        "<img src=x onerror=alert(1)> [1][9].\n\nShe is <b>nice</b>.",
    )
    usage = {"prompt_tokens": 1432, "completion_tokens": 31}
    async with (
        serve_model(streaming(*texts, usage=usage)) as model,
        open_console(
            tmp_path_factory.mktemp("data"), chat_upstream_url=model.url, chat_upstream_model="wise-1"
        ) as console,
    ):
        await fill(console)
        values = {"questions": QUESTIONS, "name": f"written-{view}", "folder": PICTURES}
        seen = await console.run(browser, "ask.mjs", "ask", values=values, **options)
        findings = await console.run(browser, "ask.mjs", "model", values=values, **options)

    for text in (seen["first"], seen["turns"][0]):
        assert "<img src=x onerror=alert(1)>" in text
        assert "She is <b>nice</b>." in text
        assert "1,432 tokens sent, 31 written" in text
        assert "1 invented citation removed" in text
        assert "1 sentence without a source" in text
        assert "[9]" not in text
    assert (seen["scripts"], seen["width"], seen["findings"], findings) == (0, 0, [], [])


async def test_answer_can_be_stopped_and_is_kept_so_far(browser: BrowserDriver, tmp_path: Path) -> None:
    async with serve_model(hanging) as model, open_console(tmp_path, chat_upstream_url=model.url) as console:
        await fill(console)
        texts = await console.run(browser, "ask.mjs", "stop", values={"question": QUESTIONS[0]})
        async with asyncio.timeout(30):
            await model.client_gone.wait()

    assert ["The boiler was serviced in May." in text for text in texts] == [True, True]


async def test_page_works_without_scripts(browser: BrowserDriver, tmp_path: Path) -> None:
    async with (
        serve_model(streaming("In May, says Hanna [1].")) as model,
        open_console(tmp_path, chat_upstream_url=model.url) as console,
    ):
        await fill(console)
        values = {"question": QUESTIONS[0], "axe": False}
        seen = await console.run(browser, "ask.mjs", "withoutScript", values=values, javaScriptEnabled=False)

    assert "In May, says Hanna. [1]" in seen["text"]
