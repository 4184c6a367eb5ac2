"""Renders the templates of the web pages. All values are escaped, and no page contains or loads a script of others."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from server.console.assets import asset_url
from server.console.times import relative_time
from server.tools.compact import Permalinks
from server.version import VERSION
from server.web_addresses import address_at_time

if TYPE_CHECKING:
    from jinja2 import Environment

# Items contain text from anywhere. If escaping ever failed, the policy still stops foreign scripts, loads and forms.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action {form_action}; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "private, no-store",
    # With `no-referrer`, browsers would send forms with `Origin: null`, which cannot be checked (Fetch, "append a
    # request `Origin` header").
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def render_page(template: str, *, status: int = 200, form_action: str = "'self'", **values: Any) -> Response:
    """Returns a page. `form_action` lists where its forms may lead, redirects included (CSP's `form-action`)."""
    text = render_text(template, **values)
    policy = _POLICY.format(form_action=form_action)
    return Response(text, status, {**_HEADERS, "Content-Security-Policy": policy}, "text/html")


def render_text(template: str, **values: Any) -> str:
    """Returns a part of a page."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only pages need it, not MCP

    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "asset_url": asset_url,
        "at_time": address_at_time,
        "permalink": Permalinks("").of,
        "style_path": asset_url("console.css"),
        "version": VERSION,
    }
    environment.filters |= {"ago": lambda time: relative_time(time, datetime.now(UTC)), "thousands": "{:,}".format}
    return environment
