"""The mixed load of `make soak`: users who write, read, search and import over REST, MCP over HTTP, and WebSocket.

The server is killed and restarted meanwhile. A call without a response is not an error: only what was acknowledged must
be there later.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NewType

import httpx2
import msgspec
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from bench.prose import Prose
from server.protocol.call import CAPABILITIES_KEY, RETRY_AFTER_KEY, VERSION_KEY
from server.protocol.messages import LATEST_LEGACY, MODERN_VERSIONS

UserName = NewType("UserName", str)
_TIMEOUT_S = 30.0
_RETRY_PAUSE_S = 0.2
_MESSAGES_PER_CONVERSATION = 20
_META = {VERSION_KEY: MODERN_VERSIONS[0], CAPABILITIES_KEY: {}}
_REFUSED_STATUSES = frozenset((429, 503))
_UNFINISHED_STATES = frozenset(("waiting", "running"))


class Unanswered(Exception):
    """The server went away, or refused the call because of load."""


class UnexpectedAnswer(Exception):
    """The server answered with an error that neither a restart nor load explains."""


class Evidence(Struct, frozen=True):
    """An address whose content includes `expected` if an acknowledged write is there."""

    user: UserName
    path: str
    expected: str


class SoakUser:
    """One user's connection over REST and MCP."""

    def __init__(self, url: str, name: UserName, token: str) -> None:
        self.name = name
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.AsyncClient(base_url=url, headers=self._headers, timeout=_TIMEOUT_S, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def rest(self, method: str, path: str, body: Any = None, *, content: bytes | None = None) -> httpx2.Response:
        try:
            headers = {"Content-Type": "application/octet-stream"} if content is not None else {}
            response = await self._http.request(method, path, json=body, content=content, headers=headers)
        except httpx2.TransportError as error:
            raise Unanswered(str(error)) from error
        if response.status_code in _REFUSED_STATUSES:
            raise Unanswered(f"{path}: {response.status_code}")
        return response

    async def tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Calls a tool over HTTP and returns its structured content."""
        params = {"name": name, "arguments": arguments, "_meta": _META}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN_VERSIONS[0],
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        try:
            response = await self._http.post("/mcp/full", json=message, headers=headers)
        except httpx2.TransportError as error:
            raise Unanswered(str(error)) from error
        if response.status_code in _REFUSED_STATUSES:
            raise Unanswered(f"{name}: {response.status_code}")
        return _structured(name, _decoded(name, response))

    def socket(self) -> "SoakSocket":
        return SoakSocket(f"{self._url.replace('http', 'ws', 1)}/mcp/full/ws", self._headers)


class SoakSocket:
    """A WebSocket that is opened on first use and again after it was lost."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = headers
        self._connection: ClientConnection | None = None
        self._ids = itertools.count(1)

    async def tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if self._connection is None:
                    self._connection = await self._open()
                return _structured(name, await self._request("tools/call", {"name": name, "arguments": arguments}))
        except (OSError, WebSocketException) as error:
            await self.close()
            raise Unanswered(str(error)) from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> ClientConnection:
        self._connection = await connect(self._url, additional_headers=self._headers, proxy=None)
        client = {"name": "soak", "version": "1"}
        params = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "clientInfo": client}
        await self._request("initialize", params)
        await self._connection.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self._connection

    async def _request(self, method: str, params: Mapping[str, Any]) -> Any:
        assert self._connection is not None
        request_id = next(self._ids)
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        await self._connection.send(msgspec.json.encode(request).decode())
        while True:
            answer = msgspec.json.decode(await self._connection.recv())
            if answer.get("id") == request_id:
                return answer


def _decoded(name: str, response: httpx2.Response, *statuses: int) -> Any:
    """Returns the JSON of a response that has one of these statuses; without any, of every response."""
    try:
        if not statuses or response.status_code in statuses:
            return msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        pass
    raise UnexpectedAnswer(f"{name}: {response.status_code} {response.text[:200]}")


def _structured(name: str, answer: Any) -> Any:
    """A call that may be retried was refused because of load or a restart."""
    result, error = answer.get("result"), answer.get("error")
    if result is None:
        is_refused = "retry_after_s" in (error.get("data") or {})
        raise (Unanswered if is_refused else UnexpectedAnswer)(f"{name}: {error}")
    if result.get("isError"):
        is_refused = RETRY_AFTER_KEY in result.get("_meta", {})
        raise (Unanswered if is_refused else UnexpectedAnswer)(f"{name}: {result['content'][0]['text']}")
    return result.get("structuredContent")


class SoakLoad:
    """Runs workers of every kind for every user until stopped, and keeps the evidence of acknowledged writes."""

    def __init__(self, url: str, tokens: Mapping[UserName, str], pause_s: float) -> None:
        self.users = {name: SoakUser(url, name, token) for name, token in tokens.items()}
        self.evidence: list[Evidence] = []
        self.calls: Counter[str] = Counter()
        self.unanswered = 0
        self.problems: list[str] = []
        self._pause_s = pause_s
        self._is_stopping = False
        self._numbers = itertools.count(1)
        self._prose = Prose(1, stream="soak")
        self._rng = random.Random(1)

    async def run(self) -> None:
        kinds: tuple[Callable[[SoakUser], Awaitable[None]], ...] = (
            self._note_over_mcp,
            self._note_over_rest,
            self._messages,
            self._import,
            self._search,
            self._read_back,
        )
        workers = [self._repeat(kind, user) for user in self.users.values() for kind in kinds]
        await asyncio.gather(*workers, *(self._websocket_worker(user) for user in self.users.values()))

    def stop(self) -> None:
        self._is_stopping = True

    async def close(self) -> None:
        for user in self.users.values():
            await user.close()

    async def read(self, user: UserName, path: str) -> str:
        """Returns the content at an address; nothing if it is not found."""
        response = await self.users[user].rest("GET", path)
        return response.text if response.status_code == 200 else ""

    async def _repeat(self, work: Callable[[SoakUser], Awaitable[None]], user: SoakUser) -> None:
        while not self._is_stopping:
            try:
                await work(user)
                self.calls[work.__name__.strip("_")] += 1
                await asyncio.sleep(self._pause_s)
            except (Unanswered, TimeoutError):
                self.unanswered += 1
                await asyncio.sleep(_RETRY_PAUSE_S)
            except UnexpectedAnswer as error:
                self.problems.append(str(error))
                await asyncio.sleep(_RETRY_PAUSE_S)

    # -- the kinds of work ---------------------------------------------------------------------------------------------

    def _new_word(self) -> str:
        return f"soak{next(self._numbers):08}x"

    def _keep(self, user: SoakUser, path: str, expected: str) -> None:
        self.evidence.append(Evidence(user.name, path, expected))

    def _keep_item(self, user: SoakUser, uri: str, expected: str) -> None:
        self._keep(user, f"/api/v1/items?uri={uri}&mode=full", expected)

    async def _note_over_mcp(self, user: SoakUser) -> None:
        word = self._new_word()
        arguments = {"source": "notes", "title": word, "content": f"{word} {self._prose.text(60)}"}
        item = await user.tool("items_create", {**arguments, "idempotency_key": word})
        self._keep_item(user, item["uri"], word)

    async def _note_over_rest(self, user: SoakUser) -> None:
        word = self._new_word()
        body = {"title": word, "content": f"{word} {self._prose.text(60)}"}
        created = _decoded("create_item", await user.rest("POST", "/api/v1/items/notes", body), 200, 201)
        self._keep_item(user, created["uri"], word)

    async def _messages(self, user: SoakUser) -> None:
        """Creates a conversation and appends to it."""
        response = await user.rest("POST", "/conversations", {"title": self._new_word()})
        path = f"/conversations/{_decoded('create_conversation', response, 200, 201)['id']}"
        for _ in range(_MESSAGES_PER_CONVERSATION):
            word = self._new_word()
            response = await user.rest("POST", f"{path}/messages", {"role": "user", "content": word})
            _decoded("add_message", response, 200, 201)
            self._keep(user, path, word)
            await asyncio.sleep(self._pause_s)
            if self._is_stopping:
                return

    async def _import(self, user: SoakUser) -> None:
        """Imports a file. Only an import that has ended is an acknowledged write."""
        word = self._new_word()
        path = f"/api/v1/import?name={word}.md"
        started = await user.rest("POST", path, content=f"# {word}\n\n{word} {self._prose.text(60)}\n".encode())
        job = _decoded("import_file", started, 202)
        while job["state"] in _UNFINISHED_STATES:
            await asyncio.sleep(self._pause_s)
            response = await user.rest("GET", f"/api/v1/import/{job['id']}")
            if response.status_code != 200:  # the job ended with its process
                raise Unanswered(f"import job: {response.status_code}")
            job = _decoded("read_import", response)
        found = await user.tool("notes_search", {"query": word})
        if job["state"] != "done" or not found["results"]:
            raise UnexpectedAnswer(f"import of {word}: {job['state']}, {len(found['results'])} notes found")
        self._keep_item(user, found["results"][0]["uri"], word)
        await asyncio.sleep(self._pause_s * 10)

    async def _search(self, user: SoakUser) -> None:
        await user.tool("knowledge_search", {"query": self._prose.words(2)})

    async def _read_back(self, user: SoakUser) -> None:
        """Reads an acknowledged write of any user, with that user's credential."""
        if not self.evidence:
            return
        evidence = self._rng.choice(self.evidence)
        if evidence.expected not in await self.read(evidence.user, evidence.path):
            self.problems.append(f"missing when read back: {evidence.path} {evidence.expected}")

    async def _websocket_worker(self, user: SoakUser) -> None:
        socket = user.socket()

        async def over_websocket(_user: SoakUser) -> None:
            word = self._new_word()
            item = await socket.tool("notes_create", {"title": word, "content": f"{word} {self._prose.text(60)}"})
            self._keep_item(user, item["uri"], word)
            await socket.tool("notes_search", {"query": word})

        await self._repeat(over_websocket, user)
        await socket.close()
