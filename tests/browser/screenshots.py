"""`make screenshots`: writes pictures of every page of the console to `docs/images/console`.

The library is the demo library. Each page is shown on a desktop and on a phone, light and dark. Pictures are WebP,
which Chromium itself encodes.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from auth.accounts.service import Accounts
from auth.browser_sessions import Notices, session_cookie_name
from auth.context import READ, WRITE
from server.asking.service import AskRequest, answer_question, collect_answer
from server.compat.agentchatbus.threads import NAMESPACE
from sources.demo import fill
from sources.drafts import MessageDraft
from tests.browser.driver import BrowserDriver
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.console.console_fixture import FAST_HASHES, PASSWORD
from tests.server.console.console_fixture import Console as AccountSite
from tests.server.rest.rest_client import rest_client_of

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "console"
_DESKTOP = {"viewport": {"width": 1280, "height": 800}}
_PHONE = {"viewport": {"width": 390, "height": 780}, "isMobile": True, "hasTouch": True, "deviceScaleFactor": 1.5}
VARIANTS: dict[str, dict[str, Any]] = {
    f"{device}-{scheme}": {**options, "colorScheme": scheme, "reducedMotion": "reduce"}
    for device, options in (("desktop", _DESKTOP), ("phone", _PHONE))
    for scheme in ("light", "dark")
}
_AGENT = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"
_PHONE_AGENT = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Version/18.0 Safari/604.1"


class Picture(Struct, frozen=True):
    """A page, and what to press before the picture is taken. A phone has no keys."""

    name: str
    path: str
    keys: Sequence[str] = ()
    click: str = ""


async def prepare(server: LiveServer) -> list[Picture]:
    """Fills a server with a small team, of which Ada has the demo library."""
    site, runtime = AccountSite(server), server.runtime
    ada = await server.user("ada")
    link = await site.links.create_reset(ada)
    await Accounts(runtime.settings, runtime.registry.database).redeem_link(
        "reset", link.path.rpartition("/")[2], "ada", PASSWORD
    )
    for name in ("ben", "cleo"):
        await site.add_account(name)
    await runtime.registry.add_user("reading-room", role="reader")
    user = await rest_client_of(server).library_user("ada")
    async with user.libraries.library(user.context) as library:
        await fill(library)
        chats = (await library.chats.list(10, 0)).rows
    thread = await _add_threads(user)
    for name, scopes in (("Claude Code on the laptop", (READ,)), ("Cursor", (READ, WRITE))):
        key, _ = await runtime.registry.create_key(ada.id, name, scopes)
        runtime.audit.record("key.create", ada.id, client="browser", target=key.id, detail=" ".join(scopes))
    await runtime.browser_sessions.create(ada, "192.0.2.17", _PHONE_AGENT)
    await Notices(runtime.registry.database, runtime.settings).dismiss(ada.id, time.time())
    await site.links.create_invitation("reader", "dora", ada.id)
    hits = (await user.call("search", query="why does the dome stick in frost"))["results"]
    film = next(hit["url"] for hit in hits if "/items/media/" in hit["url"])
    note = next(hit["url"] for hit in hits if "/items/notes/" in hit["url"])
    base = runtime.settings.base_url
    question = AskRequest(question="Why does the dome stick in frost?")
    asked = await collect_answer(answer_question(user.context, runtime, question))
    path = note.removeprefix(base).partition("?")[0]
    return pictures(film.removeprefix(base), path, chats[0].id, thread, str(asked.conversation_id))


async def _add_threads(user: Any) -> str:
    """Adds two threads of the message bus, in which agents talk. Returns the id of one of them."""
    review = [
        MessageDraft(role="assistant", sender="Planner", content="The gear of the dome needs a new bearing by May."),
        MessageDraft(
            role="assistant", sender="Builder", content="Ordered. Two weeks, and the price is within the plan."
        ),
        MessageDraft(
            role="user", sender="Ada", content="Ask Tobias before you drill.", metadata={"visibility": "human_only"}
        ),
        MessageDraft(role="assistant", sender="Planner", content="Then the dome can be tested before the next frost."),
    ]
    await user.add_chat("Open days in summer", "Which evenings are free of moonlight?", namespace=NAMESPACE)
    return str(await user.add_chat("Repair of the dome", *review, namespace=NAMESPACE))


def pictures(film: str, note: str, chat: str, thread: str, question: str) -> list[Picture]:
    return [
        Picture("search", "/?q=fungus+lens", ("ArrowDown",)),
        Picture("start", "/"),
        Picture("item", film),
        Picture("note", note),
        Picture("library", "/library"),
        Picture("ask", f"/ask?conversation={question}"),
        Picture("timeline", "/library/timeline"),
        Picture("new", "/new?source=prompts"),
        Picture("history", f"/history/{chat}"),
        Picture("threads", f"/threads/{thread}?q=dome"),
        Picture("import", "/import"),
        Picture("connect", "/connect"),
        Picture("account", "/account"),
        Picture("admin", "/admin"),
        Picture("users", "/admin/users"),
        Picture("audit", "/admin/audit"),
        Picture("reference", "/docs#search_knowledge", click="[data-try=search_knowledge]"),
    ]


async def take(folder: Path, names: Sequence[str]) -> None:
    browser = BrowserDriver()
    try:
        with tempfile.TemporaryDirectory(prefix="florilegium-screenshots-") as data:
            async with live(make_settings(Path(data), **NO_RATE_LIMITS, **FAST_HASHES)) as server:
                chosen = [one for one in await prepare(server) if not names or one.name in names]
                secret = await server.runtime.browser_sessions.create(await server.user("ada"), "192.0.2.4", _AGENT)
                cookie = {"name": session_cookie_name(server.runtime.settings), "value": secret}
                for variant, options in VARIANTS.items():
                    files = [{**asdict(one), "file": str(folder / f"{one.name}-{variant}")} for one in chosen]
                    values = {"pictures": files, "hasKeys": "hasTouch" not in options}
                    arguments: dict[str, Any] = {"url": server.url, "cookie": cookie, "values": values}
                    await asyncio.to_thread(browser.run, "pictures.mjs", "take", **arguments, **options)
    finally:
        browser.close()


def main(arguments: Sequence[str]) -> None:
    """Takes all pictures, or those that are named."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(FOLDER, arguments))
    size = sum(file.stat().st_size for file in FOLDER.glob("*.webp"))
    print(f"{len(list(FOLDER.glob('*.webp')))} pictures, {size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
