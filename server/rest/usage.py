"""How much of the quota the caller uses, over REST."""

from msgspec import Struct

from auth.context import RequestContext
from server.import_jobs import ImportJobs
from server.rest.operation import Operation
from server.runtime import Runtime
from sources.storage.contract import Libraries


class UsageRequest(Struct, frozen=True, kw_only=True):
    """Has no parameters."""


class UsageResponse(Struct, frozen=True, kw_only=True):
    """What the user stores and imports, and the quotas for it; a quota of 0 means no limit. `passages` are those with
    embeddings."""

    bytes: int
    max_bytes: int
    items: int
    max_items: int
    passages: int
    max_passages: int
    imports: int
    max_imports: int


class UsageEndpoint:
    def __init__(self, libraries: Libraries, imports: ImportJobs, max_imports: int) -> None:
        self._libraries = libraries
        self._imports = imports
        self._max_imports = max_imports

    async def get(self, context: RequestContext, _request: UsageRequest) -> UsageResponse:
        async with self._libraries.library(context) as library:
            usage = await library.usage()
        return UsageResponse(
            bytes=usage.bytes,
            max_bytes=usage.max_bytes,
            items=usage.items,
            max_items=usage.max_items,
            passages=usage.passages,
            max_passages=usage.max_passages,
            imports=self._imports.count_active(context),
            max_imports=self._max_imports,
        )


def usage_operation(runtime: Runtime) -> Operation:
    endpoint = UsageEndpoint(runtime.libraries, runtime.imports, runtime.settings.import_jobs_max_per_user)
    return Operation(
        id="get_usage",
        method="GET",
        path="/api/v1/usage",
        summary="Get the usage of the quota",
        description=(
            "How many bytes, items and passages with embeddings the user's library has, how many imports are running "
            "or waiting, and the quotas. Space that deleted items left free does not count. Writes beyond a quota fail "
            "with 507; text beyond the quota of passages is found by its words only."
        ),
        input=UsageRequest,
        response=UsageResponse,
        handler=endpoint.get,
        tools=("server_info",),
        needs_all_sources=True,
    )
