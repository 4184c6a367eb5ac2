"""An operation, declared once: its input and output, who may use it, and where it can be used.

A handler is a function of the caller's context, the services and the validated input. It knows no HTTP.
"""

import inspect
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache, partial, wraps
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from msgspec import Meta, Struct, field, structs

from aggregator.libraries import enter, label, take_library
from auth.context import ADMIN, READ, WRITE, Principal, RequestContext
from config.errors import FlorilegiumError, InvalidParams
from config.times import format_time_seconds
from server.protocol.catalog import READ_ONLY, Hints
from server.protocol.schema import input_schema
from server.rest.forms import FormSpec

if TYPE_CHECKING:
    from server.error_responses import ErrorFormat  # imports Starlette, which commands do not load

# How long after signing in people can change who has access (passkeys, other browsers, connections), and delete their
# data.
PASSKEY_RECENT_SIGN_IN_S = 900.0

ResultT = TypeVar("ResultT", bound=Struct)
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Location = Literal["path", "query", "header", "body"]
# Which callers may use an operation, of those who have its scope: all of them, those whose credential is unrestricted,
# the same but in a browser only those who have just signed in, only people who have just signed in, or the operator.
Caller = Literal["any", "unrestricted", "recent_browser", "recent_sign_in", "operator"]
# The services are a `Services`, or a `Runtime` if only a server can do it.
Handler = Callable[[RequestContext, Any, Any], Awaitable[Any]]

EVENT_STREAM = "text/event-stream"
NOT_FOUND = frozenset((404,))
CONFLICT = frozenset((409,))
_VARIABLE = re.compile(r"\{(\w+)(?::\w+)?\}")
_METHODS_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))


class RestrictedCredential(FlorilegiumError, status=403):
    """The credential is one that must not change the account."""

    def __init__(self) -> None:
        super().__init__(
            "connected applications and restricted keys cannot change the account or the server; use a key without "
            "restrictions, or sign in"
        )


class SignInNeeded(FlorilegiumError, status=403):
    """Only a person who has just signed in may do this. Someone who finds a key or an open browser must not be able to
    lock its owner out."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem} before you change who has access, or delete your data")


class OperatorNeeded(FlorilegiumError, status=403):
    """No credential is enough: it needs the files of all users."""

    def __init__(self) -> None:
        super().__init__("only the operator can do this, with a command on the machine of the server")


def require_unrestricted(principal: Principal) -> None:
    """Raises for credentials that an agent may have: those that are restricted, and those of connected clients."""
    if principal.is_for_agents:
        raise RestrictedCredential


def require_recent_sign_in(principal: Principal) -> None:
    """Raises unless the caller has just signed in. A token counts from its issue, and needs the scope to write: tokens
    that can only read are given to programs. Without authentication there is nobody to sign in, and the operator has
    the files anyway."""
    require_unrestricted(principal)
    if principal.kind in ("local", "operator"):
        return
    if principal.signed_in_at is None:
        raise SignInNeeded("API keys are not enough: sign in")
    if principal.kind != "browser":
        principal.require_scope(WRITE)
    if not is_recent(principal.signed_in_at):
        raise SignInNeeded("sign in again")


def is_recent(signed_in_at: float) -> bool:
    return time.time() - signed_in_at <= PASSKEY_RECENT_SIGN_IN_S


class NoArguments(Struct, frozen=True, kw_only=True):
    """Has no parameters."""


class ManagedLibraryRequest(Struct, frozen=True, kw_only=True):
    """For what managers do with the library of their group as a whole (`managed_library`). The field has another name
    than the argument, because `library` leads a handler into a library that the caller may only read."""

    group: Annotated[str | None, Meta(description="A group that you manage. Default: your own library.")] = field(
        name="library", default=None
    )


class Upload(Struct, frozen=True):
    """A request body that is a file. It is kept on disk while the operation runs, and never in memory as a whole.

    Without `max_bytes`, the limit is the quota of the caller for imports."""

    media_type: str
    max_bytes: int | None = None
    schema: Mapping[str, Any] | None = None


class UploadRequest(Struct, frozen=True):
    """The input of an upload handler: the arguments, and the file, positioned at its beginning."""

    args: Any
    file: IO[bytes]


class ResponseWithHeaders(Struct, frozen=True):
    """What a handler returns to send headers with its JSON."""

    body: Any
    headers: Mapping[str, str]


class StreamedFile(Struct, frozen=True):
    """What a handler returns to send its output in parts, as it is made."""

    chunks: AsyncIterator[bytes]
    media_type: str
    headers: Mapping[str, str] = {}


class ToolBinding(Struct, frozen=True, kw_only=True):
    """The operation as an MCP tool. Name, title and description are those of the operation, unless they are set: texts
    for models have an example."""

    name: str = ""
    title: str = ""
    description: str = ""
    hints: Hints = READ_ONLY


class CommandBinding(Struct, frozen=True, kw_only=True):
    """The operation as a command. Its options are the fields of the input, except for those that `values` sets;
    `arguments` names those that are positional.

    `text` is printed for people, with the fields of the output in braces; without it, each field in a line. `help` is
    shown instead of the description of the operation. With `creates`, a missing data directory is created. A command
    of an account needs no library: it acts for the person whom `--user` names, or for the operator. `question` is asked
    before, unless `--yes` is given.
    """

    name: str
    arguments: tuple[str, ...] = ()
    values: Mapping[str, Any] = {}
    text: str = ""
    help: str = ""
    creates: bool = False
    is_account: bool = False
    question: str = ""


class FormBinding(Struct, frozen=True, kw_only=True):
    """The operation as a form of the console, at this path below `/forms`."""

    path: str
    button: str = "Run"


class Operation(Struct, frozen=True, kw_only=True):
    """`input` has a field for every value of a request.

    Values that the path names are in the path. The others are in the JSON body if the method has one, except for the
    names in `query` and `headers`; otherwise they are in the query string. An operation without a path is not in REST.
    """

    id: str
    summary: str
    description: str
    handler: Handler
    method: Method = "GET"
    path: str = ""
    # The type of the last argument of the handler, which need not be repeated here.
    input: type[Struct] = Struct
    # The type that the handler returns, sent as JSON; or media types, if it returns a StreamedFile or a whole Response.
    # Taken from the annotation of the handler if it is empty.
    response: type[Any] | str | tuple[str, ...] = ""
    # The tools that return the same data. The operation is charged to the rate limit of the first, and is open to
    # credentials whose profile permits any of them.
    tools: tuple[str, ...] = ()
    scope: str = READ
    # Each of these is enough instead.
    other_scopes: tuple[str, ...] = ()
    # The source whose data it serves, if it is one. Operations of the account, such as imports, need all sources.
    source: str | None = None
    needs_all_sources: bool = False
    caller: Caller = "any"
    status: int = 200
    query: frozenset[str] = frozenset()
    # Header names by field name.
    headers: Mapping[str, str] = {}
    upload: Upload | None = None
    # Set if the body is a form instead of JSON.
    form: FormSpec | None = None
    # Raised for invalid input.
    input_error: type[InvalidParams] = InvalidParams
    # Replaces the deadline of MCP calls, for operations that take longer.
    deadline_ms: int | None = None
    # Error statuses in addition to those that every operation may return.
    error_statuses: frozenset[int] = frozenset()
    error_format: "ErrorFormat | None" = None
    # Replaces the derived schema of the input where a Struct cannot express it.
    schema: Mapping[str, Any] | None = None
    # Returns those of these fields that depend on the services or their settings.
    make_fields: Callable[[Any], Mapping[str, Any]] | None = None
    tool: ToolBinding | None = None
    commands: tuple[CommandBinding, ...] = ()
    console: FormBinding | None = None

    def __post_init__(self) -> None:
        if self.input is Struct or not self.response:
            *_, input_type, response = self.handler.__annotations__.values()
            structs.force_setattr(self, "input", input_type if self.input is Struct else self.input)
            structs.force_setattr(self, "response", self.response or response)
        if "library" in self.input.__struct_fields__ and not hasattr(self.handler, "__wrapped__"):
            structs.force_setattr(self, "handler", _in_library(self.handler, self.scope))
        if not {"library", "libraries"}.isdisjoint(self.input.__struct_encode_fields__):
            # A library that the caller may not use does not exist for them.
            structs.force_setattr(self, "error_statuses", self.error_statuses | {404})
        if self.tool is not None and not self.tool.name:
            texts = {"title": self.summary, "description": self.description}
            structs.force_setattr(self, "tool", structs.replace(self.tool, name=self.id, **texts))
        if self.tool is not None and not self.tools:
            structs.force_setattr(self, "tools", (self.tool.name,))
        assert self.tools, f"{self.id} names no tool, so that no profile could permit it"

    @property
    def public_path(self) -> str:
        """The path in OpenAPI's notation: `{id:path}` becomes `{id}`."""
        return _VARIABLE.sub(r"{\1}", self.path)

    def require_caller(self, principal: Principal) -> None:
        """Raises unless the operation is for this caller."""
        match self.caller:
            case "any":
                return
            case "unrestricted":
                require_unrestricted(principal)
            case "recent_browser":
                require_unrestricted(principal)
                if principal.kind == "browser":
                    require_recent_sign_in(principal)
            case "recent_sign_in":
                require_recent_sign_in(principal)
            case "operator":
                # Without authentication, every caller is the single user, whose server it is.
                if principal.kind not in ("local", "operator"):
                    raise OperatorNeeded

    @property
    def has_body(self) -> bool:
        """Whether any value is in the body. A PUT may have all of them in its address."""
        return "body" in self.locations().values()

    def locations(self) -> dict[str, Location]:
        """Returns where each value of the input is sent."""
        path_names = frozenset(_VARIABLE.findall(self.path))
        names = _field_names(self.input)
        assert path_names <= set(names), f"{self.id}: the path has a variable that is not a field of the input"
        may_have_body = self.method in _METHODS_WITH_BODY and self.upload is None
        locations: dict[str, Location] = {}
        for name in names:
            locations[name] = "body" if may_have_body and name not in self.query else "query"
            if name in self.headers:
                locations[name] = "header"
            if name in path_names:
                locations[name] = "path"
        return locations

    def input_schema(self) -> Mapping[str, Any]:
        return self.schema if self.schema is not None else input_schema(self.input)

    def at(self, services: Any) -> "Operation":
        """Returns the operation with the fields that depend on the services."""
        return self if self.make_fields is None else structs.replace(self, **self.make_fields(services))


def _in_library(handler: Handler, scope: str) -> Handler:
    """Runs a handler in the library that the arguments `library` and `uri` name: the caller's own, or one of someone
    else in which the caller has the scope. The handler sees neither, and the URIs of its result name the library."""

    @wraps(handler)
    async def run(context: RequestContext, services: Any, request: Any) -> Any:
        request, name = take_library(request)
        if name is None:
            return await handler(context, services, request)
        uri = getattr(request, "uri", None)
        if uri is None and (item_id := getattr(request, "id", None)) is not None:
            uri = f"{request.source}://{item_id}"
        context = enter(context, name, uri, scope=scope)
        return label(await handler(context, services, request), context.library)

    return run


@cache
def _field_names(struct: type[Struct]) -> tuple[str, ...]:
    """Cached, because inspecting a Struct takes as long as reading the rest of a request."""
    return tuple(field.encode_name for field in structs.fields(struct))


def from_record(kind: type[ResultT], record: Struct, /, **others: Any) -> ResultT:
    """Returns a result with the fields that the record has under the same names, and with the others. Times in seconds
    become text, and sets sorted lists."""
    for name in kind.__struct_fields__:
        if name not in others:
            value = getattr(record, name)
            if isinstance(value, frozenset):
                value = sorted(value)
            elif isinstance(value, float) and name.endswith("_at"):
                value = format_time_seconds(value)
            others[name] = value
    return kind(**others)


def operation(route: str = "", summary: str = "", **declared: Any) -> Callable[[Handler], Operation]:
    """Declares the function below it as an operation, with the fields of `Operation`. `route` is method and path.

    The name of the function is the id. Its docstring has the summary, unless that is given, and after an empty line the
    description; both are shown to users.
    """
    method, _, path = route.partition(" ")

    def declare(handler: Handler) -> Operation:
        text = inspect.cleandoc(handler.__doc__ or "")
        first, _, description = (summary, "", text) if summary else text.partition("\n\n")
        return Operation(
            id=handler.__name__,
            summary=first,
            description=" ".join(description.split()),
            handler=handler,
            method=cast("Method", method or "POST"),
            path=path,
            **declared,
        )

    return declare


# There is no such tool, so a key restricted to some tools can neither see the log nor the account. A key restricted to
# some sources cannot either, because what it would see is about all of them.
account_operation = partial(operation, tools=("account",), needs_all_sources=True)


def admin_operation(route: str, **declared: Any) -> Callable[[Handler], Operation]:
    """Declares an operation that needs the scope `admin`. Connected applications and restricted keys can only read."""
    # Nothing that an agent may hold can change an account: neither a connected application nor a restricted key.
    caller: Caller = "any" if route.startswith("GET") else "unrestricted"
    return account_operation(
        route, **{"caller": caller, "scope": ADMIN, "error_statuses": frozenset((404, 409)), **declared}
    )
