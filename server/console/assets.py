"""The files that pages load: style sheet, scripts and icon.

Their address contains a hash of all of them, so that browsers can cache them forever and never mix two versions.
Scripts import each other by relative paths, which is why they share one hash.
"""

import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from config.errors import NotFound
from server.admission import Admission
from server.transports.headers import Headers

ASSET_PATH = "/static/{version}/{name}"
FAVICON_PATH = "/favicon.ico"
_DIRECTORY = Path(__file__).with_name("static")
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}
_FAVICON_HEADERS = {"Cache-Control": "public, max-age=86400"}


@cache
def asset_files() -> dict[str, bytes]:
    """Returns the content of each file by name. Read on first use: only pages need them, not MCP."""
    files = sorted(file for file in _DIRECTORY.iterdir() if file.suffix in _MEDIA_TYPES)
    return {file.name: file.read_bytes() for file in files}


@cache
def asset_url(name: str) -> str:
    """Returns the path of a file on this server."""
    assert name in asset_files(), f"{name} is not a file of server/console/static"
    return f"/static/{_version()}/{name}"


@cache
def _version() -> str:
    digest = hashlib.sha256()
    for name, content in asset_files().items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


class Assets:
    """Serves the files. They hold no user data and need no credential."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def file(self, request: Request) -> Response:
        self._admission.check_origin(Headers(request.scope["headers"]))
        name = request.path_params["name"]
        content = asset_files().get(name) if request.path_params["version"] == _version() else None
        if content is None:
            raise NotFound("path", request.scope["path"][:200])
        return Response(content, 200, _IMMUTABLE, _MEDIA_TYPES[Path(name).suffix])

    async def favicon(self, request: Request) -> Response:
        """Browsers request this path for pages without an icon, such as JSON."""
        self._admission.check_origin(Headers(request.scope["headers"]))
        return Response(asset_files()["favicon.svg"], 200, _FAVICON_HEADERS, _MEDIA_TYPES[".svg"])
