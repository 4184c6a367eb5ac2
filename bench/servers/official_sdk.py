"""The official SDK's stateless JSON server, without authentication, with an echo tool of the same shape as ours.

It serves both eras on its one endpoint. Its log is kept at warnings, so it is spared the line that ours writes.
"""

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from bench.servers import ECHO_DESCRIPTION, ECHO_TITLE
from bench.servers.plain import serve_plainly


class Text(BaseModel):
    text: str


async def echo(text: str) -> Text:
    return Text(text=text)


def main() -> None:
    server = MCPServer("echo", log_level="WARNING")
    server.add_tool(echo, title=ECHO_TITLE, description=ECHO_DESCRIPTION)
    serve_plainly(server.streamable_http_app(stateless_http=True, json_response=True))


if __name__ == "__main__":
    main()
