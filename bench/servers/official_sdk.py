"""The official SDK's stateless JSON server, without authentication, with an echo tool like ours.

It serves legacy and modern protocol versions at one endpoint. It logs only warnings, whereas ours logs every request.
"""

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from bench.servers import ECHO_DESCRIPTION, ECHO_TITLE
from bench.servers.uvicorn_app import serve_app


class Text(BaseModel):
    text: str


async def echo(text: str) -> Text:
    return Text(text=text)


def main() -> None:
    server = MCPServer("echo", log_level="WARNING")
    server.add_tool(echo, title=ECHO_TITLE, description=ECHO_DESCRIPTION)
    serve_app(server.streamable_http_app(stateless_http=True, json_response=True))


if __name__ == "__main__":
    main()
