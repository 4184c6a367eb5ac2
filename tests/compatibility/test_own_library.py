"""The APIs of other systems know of one library, the caller's own, whatever others share with the caller."""

import msgspec

from auth.context import ShareRule
from auth.sharing import Sharing
from server.http_services import build_http_services
from server.rest.routes import rest_operations
from tests.attack.leak_detector import LeakDetector
from tests.attack.tenants import plant_tenant
from tests.compatibility.sample_requests import ROUTES, TOOLS, WORD, fill_placeholders, send
from tests.server.clients import message
from tests.server.rest.rest_client import JSON, RestClient
from tests.sources.source_fixture import SOURCES

_TOOLS = ("conversation_search", "memory_search", "memory_get_observations", "memory_read")
_BUS_TOOLS = ("bus_connect", "msg_list", "msg_search")
_TLDW = "/api/v1/mcp"


async def test_apis_of_other_systems_never_see_the_libraries_of_others(own_api: RestClient) -> None:
    api = own_api
    ada, ben = await api.library_user("ada"), await plant_tenant(api, "ben")
    sharing = Sharing(api.server.runtime.registry.database)
    ben_id = (await api.server.user("ben")).id
    for source in SOURCES:
        await sharing.create_share(ben_id, ShareRule("source", source), "ada")
    await sharing.create_group(ben_id, "crew")
    await sharing.add_member("crew", "ada", "manager")
    detector = LeakDetector({"ben": ben.canary})
    # The control: Ada does find all of it where libraries of others are searched.
    assert detector.owners_in((await api.search({"query": WORD})).body, "ada") == {"ben"}

    runtime = api.server.runtime
    names = {
        operation.id
        for operation in rest_operations(runtime, build_http_services(runtime))
        if operation.handler.__module__.startswith("server.compat.")
    }
    assert {"list_conversations", "search_messages", "read_conversation", "list_threads"} <= names
    sent = 0
    for name in sorted(names & ROUTES.keys()):
        for request in ROUTES[name]:
            if "events" in request.path or "stream" in str(request.body):
                continue  # a stream, which does not end
            response = await send(api, request, ben.values, "ada")
            assert not detector.owners_in(response.body, "ada"), name
            sent += 1
    for name in (*_TOOLS, *_BUS_TOOLS):
        for arguments in TOOLS[name]:
            result = await ada.request("tools/call", name=name, arguments=fill_placeholders(arguments, ben.values))
            assert not detector.owners_in(msgspec.json.encode(result), "ada"), name
            sent += 1
    handles = [one.handle for one in await sharing.libraries_of(ada.context.user_id)]
    uri = f"notes://{ben.values['note']}?library={handles[-1]}"
    calls = [
        ("knowledge.search", {"query": WORD}),
        ("knowledge.search", {"query": f"{WORD} library:{handles[-1]}"}),
        ("knowledge.get", {"uri": uri}),
        ("notes.get", {"uri": uri}),
        ("notes.search", {"query": WORD, "library": handles[-1]}),
    ]
    for tool, arguments in calls:
        rpc = msgspec.json.encode(message("tools/call", {"name": tool, "arguments": arguments}, 1))
        execute = msgspec.json.encode({"tool_name": tool, "arguments": arguments})
        for path, body in (("/request", rpc), ("/tools/execute", execute)):
            response = await api.request("POST", f"{_TLDW}{path}", "ada", JSON, body)
            assert not detector.owners_in(response.body, "ada"), tool
            sent += 1
    for path in ("/resources", "/prompts"):
        response = await api.get(f"{_TLDW}{path}")
        assert response.status == 200
        assert not detector.owners_in(response.body, "ada"), path
    assert sent > 40
