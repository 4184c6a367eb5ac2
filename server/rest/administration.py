"""Administration over REST, for the scope `admin`: users, invitations, quotas and the state of the server."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from auth.accounts.links import AccountLinks, NewLink
from auth.audit import Audit
from auth.context import RequestContext
from auth.principal import ADMIN, Role
from auth.quotas import QuotaOverrides, Quotas, describe_limits
from auth.registry import Registry, UserRecord, delete_from_copies
from config.errors import Conflict, NotFound
from config.paths import stored_bytes_of_user
from config.times import format_time_seconds
from server.rest.account import NoArguments, require_unrestricted
from server.rest.audit import ACCOUNT_TOOLS
from server.rest.operation import Method, Operation
from server.runtime import Runtime
from server.version import VERSION

_USERS = "/api/v1/users"
_ERRORS = frozenset((404, 409))
_Quota = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class UserRequest(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The name of the user.")]


class AddUserRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="The name of the user.")]
    role: Annotated[Role, Meta(description="What the user may do.")] = "writer"
    subject: Annotated[str, Meta(description="The user claim in the user's tokens. Default: the name.")] = ""
    issuer: Annotated[str, Meta(description="The iss of the user's tokens. Default: the configured issuer.")] = ""


class UpdateUserRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="The name of the user.")]
    role: Annotated[Role | UnsetType, Meta(description="What the user may do.")] = UNSET
    is_disabled: Annotated[bool | UnsetType, Meta(description="true withdraws all access at once.")] = UNSET


class DeleteUserRequest(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The name of the user.")]
    purge: Annotated[bool, Meta(description="Delete the databases too. This cannot be undone.")] = False


class InviteRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Annotated[Role, Meta(description="What the new user may do.")] = "writer"
    name: Annotated[str, Meta(description="The name of the new user. Default: the user chooses one.")] = ""


class QuotasRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replaces all quotas of the user. null means the quota of the settings, 0 no quota."""

    name: Annotated[str, Meta(description="The name of the user.")]
    max_bytes: Annotated[_Quota | None, Meta(description="Size of the library.")] = None
    max_items: Annotated[_Quota | None, Meta(description="Number of items.")] = None
    import_max_bytes: Annotated[_Quota | None, Meta(description="Size of an upload; at most the setting.")] = None
    max_passages: Annotated[_Quota | None, Meta(description="Number of passages with embeddings.")] = None


class User(Struct, frozen=True, kw_only=True):
    name: str
    id: str
    role: str
    is_disabled: bool
    created_at: str
    bytes: int


class UserList(Struct, frozen=True):
    users: Sequence[User]


class UserQuotas(Struct, frozen=True, kw_only=True):
    """The quotas that apply, and those that were set for this user."""

    max_bytes: int
    max_items: int
    import_max_bytes: int
    max_passages: int
    own: QuotaOverrides


class AccountLinkResponse(Struct, frozen=True):
    """A link that can be used once."""

    url: str
    expires_at: str


class ServerStatus(Struct, frozen=True, kw_only=True):
    version: str
    users: int
    libraries_open: int
    jobs_waiting: int
    jobs_running: int
    searches_waiting: int
    imports_running: int
    semantic_problem: str | None


class AdministrationEndpoints:
    """The handlers. An administrator cannot lower, disable or delete their own account, so that one always remains."""

    def __init__(self, runtime: Runtime, quotas: Quotas) -> None:
        self._runtime = runtime
        self._registry: Registry = runtime.registry
        self._audit: Audit = runtime.audit
        self._quotas = quotas
        self._links = AccountLinks(runtime.registry.database, runtime.settings)

    async def list_users(self, context: RequestContext, _request: NoArguments) -> UserList:
        return UserList([self._user(record) for record in await self._registry.list_users()])

    async def get_user(self, context: RequestContext, request: UserRequest) -> User:
        return self._user(await self._find(request.name))

    async def add_user(self, context: RequestContext, request: AddUserRequest) -> User:
        require_unrestricted(context.principal)
        record = await self._registry.add_user(request.name, request.issuer, request.subject, request.role)
        self._record(context, "user.add", record, request.role)
        return self._user(record)

    async def update_user(self, context: RequestContext, request: UpdateUserRequest) -> User:
        record = await self._find_other(context, request.name)
        if request.role is not UNSET:
            record = await self._registry.set_role(record.id, request.role)
            self._record(context, "user.role", record, request.role)
        if request.is_disabled is True:
            record = await self._registry.disable_user(record.id)
            self._record(context, "user.disable", record)
        elif request.is_disabled is False:
            record = await self._registry.enable_user(record.id)
            self._record(context, "user.enable", record)
        return self._user(record)

    async def delete_user(self, context: RequestContext, request: DeleteUserRequest) -> User:
        """Disables access first, so that no call writes to the files being deleted."""
        record = await self._find_other(context, request.name)
        deleted = self._user(record)
        if request.purge:
            await self._registry.disable_user(record.id)
            await self._runtime.libraries.remove(record.id)
            delete_from_copies(self._runtime.data_root.control_path, record.id)
            await self._audit.delete_reads(record.id)
        await self._registry.delete_user(record.id)
        self._record(context, "user.delete", record, "purged" if request.purge else "")
        return deleted

    async def invite(self, context: RequestContext, request: InviteRequest) -> AccountLinkResponse:
        require_unrestricted(context.principal)
        link = await self._links.create_invitation(request.role, request.name, context.user_id)
        client = context.client_id
        self._audit.record("user.invite", context.user_id, client=client, target=request.name, detail=request.role)
        return self._link(link)

    async def reset_password(self, context: RequestContext, request: UserRequest) -> AccountLinkResponse:
        record = await self._find_other(context, request.name)
        if record.is_disabled:
            raise Conflict(f"user {record.name!r} is disabled; enable the user first")
        link = await self._links.create_reset(record, context.user_id)
        self._record(context, "user.reset_password", record)
        return self._link(link)

    async def get_quotas(self, context: RequestContext, request: UserRequest) -> UserQuotas:
        return await self._user_quotas(await self._find(request.name))

    async def set_quotas(self, context: RequestContext, request: QuotasRequest) -> UserQuotas:
        require_unrestricted(context.principal)
        record = await self._find(request.name)
        overrides = QuotaOverrides(
            max_bytes=request.max_bytes,
            max_items=request.max_items,
            import_max_bytes=request.import_max_bytes,
            max_passages=request.max_passages,
        )
        await self._quotas.set(record.id, overrides)
        quotas = await self._user_quotas(record)
        self._record(context, "quota.set", record, describe_limits(await self._quotas.limits(record.id)))
        return quotas

    async def status(self, context: RequestContext, _request: NoArguments) -> ServerStatus:
        state, search_queue = self._runtime.libraries.state(), self._runtime.knowledge.aggregator.queue
        return ServerStatus(
            version=VERSION,
            users=len(await self._registry.list_users()),
            libraries_open=state.open,
            jobs_waiting=state.queue.waiting,
            jobs_running=state.queue.running,
            searches_waiting=search_queue.waiting,
            imports_running=self._runtime.imports.running,
            semantic_problem=state.embedding.problem,
        )

    async def _find(self, name: str) -> UserRecord:
        record = await self._registry.user_by_name(name)
        if record is None:
            raise NotFound("user", name[:60])
        return record

    async def _find_other(self, context: RequestContext, name: str) -> UserRecord:
        require_unrestricted(context.principal)
        record = await self._find(name)
        if record.id == context.user_id:
            raise Conflict("your own account cannot be changed here; ask another administrator")
        return record

    async def _user_quotas(self, record: UserRecord) -> UserQuotas:
        limits = await self._quotas.limits(record.id)
        return UserQuotas(
            max_bytes=limits.max_bytes,
            max_items=limits.max_items,
            import_max_bytes=limits.import_max_bytes,
            max_passages=limits.max_passages,
            own=await self._quotas.overrides(record.id),
        )

    def _user(self, record: UserRecord) -> User:
        return User(
            name=record.name,
            id=record.id,
            role=record.role,
            is_disabled=record.is_disabled,
            created_at=format_time_seconds(record.created_at),
            bytes=stored_bytes_of_user(self._runtime.data_root.paths_of(record.id)),
        )

    def _link(self, link: NewLink) -> AccountLinkResponse:
        return AccountLinkResponse(
            f"{self._runtime.settings.base_url}{link.path}", format_time_seconds(link.expires_at)
        )

    def _record(self, context: RequestContext, action: str, user: UserRecord, detail: str = "") -> None:
        """`client` is the administrator."""
        self._audit.record(action, user.id, client=context.principal.user_name, target=user.id, detail=detail)


def administration_operations(runtime: Runtime) -> list[Operation]:
    endpoints = AdministrationEndpoints(runtime, runtime.quotas)
    return [*_user_operations(endpoints), *_other_operations(endpoints)]


def _user_operations(endpoints: AdministrationEndpoints) -> list[Operation]:
    return [
        _operation("list_users", "GET", _USERS, "List users", NoArguments, UserList, endpoints.list_users),
        _operation("add_user", "POST", _USERS, "Add a user", AddUserRequest, User, endpoints.add_user, 201),
        _operation("get_user", "GET", _USERS + "/{name}", "Get a user", UserRequest, User, endpoints.get_user),
        _operation(
            "update_user", "PATCH", _USERS + "/{name}", "Change a user", UpdateUserRequest, User, endpoints.update_user
        ),
        _operation(
            "delete_user", "DELETE", _USERS + "/{name}", "Delete a user", DeleteUserRequest, User, endpoints.delete_user
        ),
    ]


def _other_operations(endpoints: AdministrationEndpoints) -> list[Operation]:
    quotas = _USERS + "/{name}/quotas"
    return [
        _operation(
            "invite_user",
            "POST",
            "/api/v1/invitations",
            "Invite a user",
            InviteRequest,
            AccountLinkResponse,
            endpoints.invite,
            201,
        ),
        _operation(
            "reset_password",
            "POST",
            _USERS + "/{name}/password-reset",
            "Reset a password",
            UserRequest,
            AccountLinkResponse,
            endpoints.reset_password,
            201,
        ),
        _operation("get_quotas", "GET", quotas, "Get quotas", UserRequest, UserQuotas, endpoints.get_quotas),
        _operation("set_quotas", "PUT", quotas, "Set quotas", QuotasRequest, UserQuotas, endpoints.set_quotas),
        _operation(
            "get_server_status",
            "GET",
            "/api/v1/server",
            "Get the state of the server",
            NoArguments,
            ServerStatus,
            endpoints.status,
        ),
    ]


_DESCRIPTIONS = {
    "list_users": "All users, with their roles and the sizes of their libraries.",
    "add_user": "Adds a user. Create a key for them, or invite them, so that they can sign in.",
    "get_user": "A user, with the size of the library.",
    "update_user": "Sets the role of a user, or withdraws and restores access. Not for your own account.",
    "delete_user": "Deletes a user and all of their keys and connections; with purge, also the databases.",
    "invite_user": "Creates a link with which someone creates an account.",
    "reset_password": "Creates a link with which the user sets a new password.",
    "get_quotas": "The quotas of a user.",
    "set_quotas": "Replaces the quotas of a user. They apply from the next call on.",
    "get_server_status": "How many users, open libraries, waiting and running jobs and imports there are.",
}


def _operation(
    operation_id: str,
    method: Method,
    path: str,
    summary: str,
    input_type: type[Struct],
    response: type[Struct],
    handler: Callable[[RequestContext, Any], Awaitable[Any]],
    status: int = 200,
) -> Operation:
    return Operation(
        id=operation_id,
        method=method,
        path=path,
        summary=summary,
        description=_DESCRIPTIONS[operation_id],
        input=input_type,
        response=response,
        handler=handler,
        tools=ACCOUNT_TOOLS,
        scope=ADMIN,
        needs_all_sources=True,
        status=status,
        error_statuses=_ERRORS,
    )
