"""Every REST operation and every tool with every kind of credential.

What the server decides is compared with what follows from the declaration: the scope, profile tools, source and caller
of an operation, and the scope and source of a tool. The ids in the requests name nothing, so that a call that is
admitted changes little. Each credential belongs to a user of its own, because some calls end sessions.
"""

import base64
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from auth.browser_sessions import csrf_token, session_cookie_name
from auth.context import ADMIN, READ, ROLE_SCOPES, SCOPES, WRITE, Role
from auth.oauth.clients import OAuthClients
from auth.oauth.grants import GrantRequest, OAuthGrants, TokenResource
from auth.oauth.tokens import OAuthTokens, TokenRequest
from server.http_services import build_http_services
from server.operations.operation import PASSKEY_RECENT_SIGN_IN_S, Operation
from server.protocol.catalog import Tool
from server.rest.routes import rest_operations
from tests.compatibility.sample_requests import ROUTES, TOOLS, SampleRequest, fill_placeholders
from tests.live import NO_RATE_LIMITS, live, make_settings
from tests.server.clients import message, modern_headers, modern_params
from tests.server.http_client import HttpResponse
from tests.server.in_process import call_app
from tests.server.oauth.oauth_client import REDIRECT_URI, challenge_of
from tests.server.rest.rest_client import JSON, RestClient, rest_client_of

Decision = Literal["not authenticated", "forbidden", "admitted"]
Headers = Mapping[str, str]
_VERIFIER = "the-verifier-of-every-code-of-this-attack-43-or-more"
_NO_SUCH_ID = "00000000-0000-4000-8000-00000000dead"
_DAY_S = 86_400.0
# They answer from the library if no model is configured, so their handlers ask for the scope to read as well.
_ALSO_READING = frozenset(("chat", "create_chat_completion"))


class Credential(Struct, frozen=True, kw_only=True):
    """A kind of credential, and what it may do as its description says. `headers` returns those of a request; a browser
    gets a new session for each, because some calls end it. `is_valid_for_mcp` is false for cookies."""

    name: str
    headers: Callable[[], Awaitable[Headers]]
    is_valid: bool = True
    is_valid_for_mcp: bool = True
    scopes: frozenset[str] = frozenset()
    profile: str | None = None
    sources: frozenset[str] | None = None
    is_application: bool = False
    is_recent_sign_in: bool = False
    is_browser: bool = False
    # Without the token that its forms carry, a cookie only reads.
    only_reads: bool = False

    @property
    def is_restricted(self) -> bool:
        return self.is_application or self.profile is not None or self.sources is not None


class RolesResult(Struct):
    """`wrong` names the cells of the table in which the server decided otherwise."""

    operations: int
    tools: int
    credentials: int
    cells: int
    decisions: Counter[Decision]
    wrong: list[str]


class _FakeValues(dict[str, Any]):
    """Ids of nothing, by the names of their placeholders."""

    def __missing__(self, name: str) -> Any:
        return {"seq": 1, "media": 987_654, "character": 987_654, "prompt": 987_654}.get(name, _NO_SUCH_ID)


async def attack_roles(directory: Path, step: int) -> RolesResult:
    """Tries every `step`-th cell of the table."""
    settings = make_settings(directory / "roles", oauth_code_ttl_s=86_400, **NO_RATE_LIMITS)
    async with live(settings) as server:
        api = rest_client_of(server)
        runtime = server.runtime
        operations = rest_operations(runtime, build_http_services(runtime))
        tools = list(runtime.dispatcher.catalog.tools.values())
        credentials = await _Issuer(api).all()
        result = RolesResult(len(operations), len(tools), len(credentials), 0, Counter(), [])
        targets: list[Operation | Tool] = [*operations, *tools]
        cells = [(target, credential) for target in targets for credential in credentials]
        for target, credential in cells[::step]:
            await try_cell(api, target, credential, result)
    return result


async def try_cell(api: RestClient, target: Operation | Tool, credential: Credential, result: RolesResult) -> None:
    tools = target.tools if isinstance(target, Operation) else (target.name,)
    is_in_profile = credential.profile in (None, "full") or not _tools_of(api, str(credential.profile)).isdisjoint(
        tools
    )
    expected = expected_decision(target, credential, is_in_profile=is_in_profile)
    if isinstance(target, Operation):
        name, response = target.id, await _send_operation(api, target, credential)
        decision = _rest_decision(response)
    else:
        name, response = target.name, await _call_tool(api, target, credential)
        decision = _tool_decision(response)
    result.cells += 1
    result.decisions[decision] += 1
    if decision != expected or (response.status >= 500 and response.status != 503):
        shown = f"{response.status} {response.body[:200].decode(errors='replace')}"
        result.wrong.append(f"{name} with {credential.name}: expected {expected}, got {decision} ({shown})")


def _tools_of(api: RestClient, profile: str) -> set[str]:
    return {tool for _, tool in api.server.runtime.dispatcher.profiles.get(profile).entries}


def expected_decision(target: Operation | Tool, credential: Credential, *, is_in_profile: bool) -> Decision:
    """Derives the decision from the declaration of an operation or a tool, independently of the server's own checks."""
    if not credential.is_valid or (isinstance(target, Tool) and not credential.is_valid_for_mcp):
        return "not authenticated"
    has_source = target.source is None or credential.sources is None or target.source in credential.sources
    is_permitted = is_in_profile and has_source
    if isinstance(target, Tool):
        is_permitted = is_permitted and target.scope in credential.scopes
    else:
        is_permitted = (
            is_permitted
            and bool({target.scope, *target.other_scopes} & credential.scopes)
            and (target.id not in _ALSO_READING or READ in credential.scopes)
            and not (target.needs_all_sources and credential.sources is not None)
            and not (credential.only_reads and target.method != "GET")
            and _is_for_caller(target, credential)
        )
    return "admitted" if is_permitted else "forbidden"


def _is_for_caller(operation: Operation, credential: Credential) -> bool:
    match operation.caller:
        case "any":
            return True
        case "unrestricted":
            return not credential.is_restricted
        case "recent_browser":
            return not credential.is_restricted and (credential.is_recent_sign_in or not credential.is_browser)
        case "recent_sign_in":
            return credential.is_recent_sign_in and not credential.is_restricted
        case "operator":
            return False


def _rest_decision(response: HttpResponse) -> Decision:
    # Agents on the bus have tokens of their own, which are checked after the credential.
    if response.status == 401 and b"Invalid agent token" not in response.body:
        return "not authenticated"
    return "forbidden" if response.status == 403 else "admitted"


def _tool_decision(response: HttpResponse) -> Decision:
    if response.status in (401, 403):
        return "not authenticated" if response.status == 401 else "forbidden"
    error = response.json().get("error", {})
    text = str(error.get("message", ""))
    is_refused = text.startswith("Unknown tool") or "is not part of the profile" in text or error.get("code") == 403
    return "forbidden" if is_refused else "admitted"


async def _send_operation(api: RestClient, operation: Operation, credential: Credential) -> HttpResponse:
    sample: SampleRequest = ROUTES[operation.id][0]
    values = _FakeValues()
    headers = {name: str(fill_placeholders(value, values)) for name, value in sample.headers.items()}
    body = sample.body if isinstance(sample.body, bytes) else b""
    if sample.body is not None and not isinstance(sample.body, bytes):
        body, headers = msgspec.json.encode(fill_placeholders(sample.body, values)), {**JSON, **headers}
    path = fill_placeholders(sample.path, values)
    return await call_app(api.app, sample.method, path, {**headers, **await credential.headers()}, body)


async def _call_tool(api: RestClient, tool: Tool, credential: Credential) -> HttpResponse:
    params = {"name": tool.name, "arguments": fill_placeholders(dict(TOOLS[tool.name][0]), _FakeValues())}
    body = msgspec.json.encode(message("tools/call", modern_params(params), 1))
    headers = {**modern_headers("tools/call", params), **await credential.headers()}
    return await call_app(api.app, "POST", "/mcp/full", headers, body)


class _Issuer:
    """Creates one credential of each kind."""

    def __init__(self, api: RestClient) -> None:
        self._api = api
        self._runtime = api.server.runtime
        self._registry = self._runtime.registry
        self._users = 0

    async def all(self) -> list[Credential]:
        return [
            _fixed("no credential", {}, is_valid=False),
            _fixed("an invented key", _bearer("flo_" + "x" * 43), is_valid=False),
            await self._expired_key(),
            await self._revoked_key(),
            await self._key_of_a_disabled_user(),
            await self._key_of_a_deleted_user(),
            await self._key("a key to read", READ),
            await self._key("a key to write", WRITE),
            await self._key("a key to read and write", READ, WRITE),
            await self._key("a key for administration", ADMIN),
            await self._key("a key with all scopes", *SCOPES),
            await self._key_of_a_demoted_administrator(),
            await self._key("a key for the profile research", *SCOPES, profile="research"),
            await self._key("a key for the profile full", *SCOPES, profile="full"),
            await self._key("a key for notes", *SCOPES, sources=frozenset(("notes",))),
            await self._application("an application that reads", READ),
            await self._application("an application that reads and writes", READ, WRITE),
            await self._application("an application with all scopes", *SCOPES),
            await self._expired_token(),
            await self._revoked_token(),
            await self._token("a new token", time.time()),
            await self._token("a token of yesterday", time.time() - _DAY_S, lifetime_s=2 * _DAY_S),
            await self._browser("the browser of a reader", "reader"),
            await self._browser("the browser of an administrator", "admin"),
            await self._browser("a browser that signed in yesterday", "admin", age_s=_DAY_S),
            await self._browser("the cookie of a browser alone", "admin", has_form_token=False),
        ]

    async def _user(self, role: Role = "admin") -> Any:
        self._users += 1
        return await self._registry.add_user(f"user-{self._users}", role=role)

    async def _key(self, name: str, *scopes: str, **limits: Any) -> Credential:
        _, secret = await self._registry.create_key((await self._user()).id, name, scopes, **limits)
        return _fixed(name, _bearer(secret), scopes=frozenset(scopes), **limits)

    async def _invalid_key(self, name: str, user: Any, end: Callable[[str], Awaitable[Any]]) -> Credential:
        key, secret = await self._registry.create_key(user.id, name, SCOPES)
        await end(key.id)
        return _fixed(name, _bearer(secret), is_valid=False)

    async def _expired_key(self) -> Credential:
        sql = "UPDATE keys SET expires_at = 1 WHERE id = ?"
        database = self._registry.database
        return await self._invalid_key(
            "an expired key", await self._user(), lambda key: database.write(lambda db: db.execute(sql, (key,)).close())
        )

    async def _revoked_key(self) -> Credential:
        return await self._invalid_key("a revoked key", await self._user(), self._registry.revoke_key)

    async def _key_of_a_disabled_user(self) -> Credential:
        user = await self._user()
        return await self._invalid_key("a disabled user", user, lambda _: self._registry.disable_user(user.id))

    async def _key_of_a_deleted_user(self) -> Credential:
        user = await self._user()
        return await self._invalid_key("a deleted user", user, lambda _: self._registry.delete_user(user.id))

    async def _key_of_a_demoted_administrator(self) -> Credential:
        user = await self._user()
        _, secret = await self._registry.create_key(user.id, "all", SCOPES)
        await self._registry.set_role(user.id, "reader")
        return _fixed("a key of a demoted administrator", _bearer(secret), scopes=ROLE_SCOPES["reader"])

    async def _application(self, name: str, *scopes: str) -> Credential:
        database, settings = self._registry.database, self._runtime.settings
        document = {"client_name": name, "redirect_uris": [REDIRECT_URI]}
        client, _ = await OAuthClients(database, settings).add(document, is_confidential=False)
        request = GrantRequest(
            user=await self._user(),
            client_id=client.id,
            client_name=name,
            redirect_uri=REDIRECT_URI,
            resource=TokenResource(settings.resource_url, None),
            scopes=frozenset(scopes),
        )
        code = await OAuthGrants(database, settings).approve(request, challenge_of(_VERIFIER))
        tokens = OAuthTokens(database, settings)
        issued = await tokens.redeem(code, TokenRequest(client_id=client.id, code_verifier=_VERIFIER))
        return _fixed(name, _bearer(issued.access_token), scopes=frozenset(scopes), is_application=True)

    async def _token(self, name: str, issued_at: float, lifetime_s: float = _DAY_S) -> Credential:
        user = await self._user()
        token = await self._api.server.token(user.name, now=issued_at, lifetime_s=lifetime_s)
        is_recent = time.time() - issued_at < PASSKEY_RECENT_SIGN_IN_S
        return _fixed(name, _bearer(token), scopes=frozenset(SCOPES), is_recent_sign_in=is_recent)

    async def _expired_token(self) -> Credential:
        token = await self._api.server.token((await self._user()).name, now=time.time() - _DAY_S, lifetime_s=60.0)
        return _fixed("an expired token", _bearer(token), is_valid=False)

    async def _revoked_token(self) -> Credential:
        token = await self._api.server.token((await self._user()).name)
        claims = msgspec.json.decode(_decode_segment(token.split(".")[1]))
        await self._registry.revoke_token(claims["jti"], time.time() + _DAY_S)
        return _fixed("a revoked token", _bearer(token), is_valid=False)

    async def _browser(self, name: str, role: Role, age_s: float = 0.0, *, has_form_token: bool = True) -> Credential:
        runtime, user = self._runtime, await self._user(role)

        async def headers() -> Headers:
            secret = await runtime.browser_sessions.create(user)
            sql = "UPDATE browser_sessions SET created_at = created_at - ? WHERE user_id = ? AND created_at > ?"
            if age_s:
                values = (age_s, user.id, time.time() - age_s / 2)
                await self._registry.database.write(lambda db: db.execute(sql, values).close())
            cookie = {"Cookie": f"{session_cookie_name(runtime.settings)}={secret}", "Sec-Fetch-Site": "same-origin"}
            return {**cookie, **({"X-CSRF-Token": csrf_token(secret)} if has_form_token else {})}

        return Credential(
            name=name,
            headers=headers,
            is_valid_for_mcp=False,
            scopes=ROLE_SCOPES[role],
            is_recent_sign_in=not age_s,
            is_browser=True,
            only_reads=not has_form_token,
        )


def _fixed(name: str, headers: Headers, **facts: Any) -> Credential:
    async def same() -> Headers:
        return headers

    return Credential(name=name, headers=same, **facts)


def _bearer(secret: str) -> Headers:
    return {"Authorization": f"Bearer {secret}"}


def _decode_segment(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
