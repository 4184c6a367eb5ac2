"""Followed sources on the import page: what is followed, and the forms that add, pause, read and remove a source."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from server.console.browser import BrowserGuard, see_other
from server.console.viewer import LibraryPage, Viewer
from server.following.deployment_status import FollowedDeployment
from server.following.status import FollowedSource
from server.rest.deployments import FollowedDeployments, ListDeploymentsRequest, deployment_operations
from server.rest.follows import (
    FollowedSources,
    FollowIdRequest,
    FollowRequest,
    ListFollowsRequest,
    ResolveConflictRequest,
    UpdateFollowRequest,
    follow_operations,
)
from server.rest.operation import Operation
from server.runtime import Runtime

FOLLOWS_PATH = "/import/follows"
_SECTION = "/import#follows"
# Each source with problems is read once more for the names of its files.
_DETAILS_MAX = 10


class FollowForms(LibraryPage):
    def __init__(self, runtime: Runtime, browser: BrowserGuard) -> None:
        super().__init__(runtime, browser)
        operations = (*follow_operations(runtime), *deployment_operations(runtime))
        self._operations: dict[str, Operation] = {operation.id: operation for operation in operations}

    async def list(self, viewer: Viewer) -> Sequence[FollowedSource]:
        """Returns the followed sources, with the files that have problems."""
        listed: FollowedSources = await self.run(viewer, self._operations["list_follows"], ListFollowsRequest())
        troubled = [source.id for source in listed.follows if source.conflicts or source.failed][:_DETAILS_MAX]
        details: dict[str, FollowedSource] = {
            id_: await self.run(viewer, self._operations["get_follow"], FollowIdRequest(id=id_)) for id_ in troubled
        }
        return [details.get(source.id, source) for source in listed.follows]

    async def deployments(self, viewer: Viewer) -> Sequence[FollowedDeployment]:
        """Returns the followed deployments, which administrators see."""
        if not viewer.is_admin:
            return ()
        operation = self._operations["list_follow_deployments"]
        listed: FollowedDeployments = await self.run(viewer, operation, ListDeploymentsRequest())
        return listed.deployments

    async def add(self, viewer: Viewer, values: Mapping[str, str]) -> None:
        request = FollowRequest(location=values.get("location", "").strip(), format=values.get("format") or None)
        await self.run(viewer, self._operations["add_follow"], request)

    async def change(self, request: Request) -> Response:
        """Does what the button says that was pressed."""
        values = await self._browser.check_form(request)
        operation, args = self._request(values)
        await self.run(await self.admit(request, operation), operation, args)
        return see_other(_SECTION)

    async def admit_addition(self, request: Request) -> tuple[Viewer, Mapping[str, str]]:
        values = await self._browser.check_form(request)
        return await self.admit(request, self._operations["add_follow"]), values

    def _request(
        self, values: Mapping[str, str]
    ) -> tuple[Operation, FollowIdRequest | UpdateFollowRequest | ResolveConflictRequest]:
        follow, action = values.get("follow", ""), values.get("action", "")
        match action:
            case "pause" | "resume":
                return self._operations["update_follow"], UpdateFollowRequest(id=follow, paused=action == "pause")
            case "library" | "file":
                request = ResolveConflictRequest(id=follow, file=values.get("file", ""), keep=action)
                return self._operations["resolve_follow_conflict"], request
            case "remove":
                return self._operations["remove_follow"], FollowIdRequest(id=follow)
            case _:
                return self._operations["run_follow"], FollowIdRequest(id=follow)
