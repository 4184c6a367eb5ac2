"""The console of an installed package: every page and every file of the built wheel is there."""

import json
import os
import re
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx2
import pytest
from msgspec import Struct

from tests.browser.driver import BrowserDriver
from tests.live import HTTP_OPTIONS, free_port

pytestmark = pytest.mark.slow("builds and installs a wheel")

ROOT = Path(__file__).parents[2]
PACKAGES = ("aggregator", "auth", "config", "florilegium", "server", "sessions", "sources")
HTML = {"Accept": "text/html"}
# The manifest, the browser itself, or a page after a form asks for them.
NOT_ON_A_PAGE = {"passkeys.js", "share.js", "icon-512.png", "icon-maskable.png", "service-worker.js"}
# Links to follow, from page to page. Items and searches are of the same kind, so some are enough.
PAGES_MAX = 40
_BUILD = "import sys, uv_build; print(uv_build.build_wheel(sys.argv[1]))"
_SERVE = "from server.cli import main; main()"


class Installed(Struct, frozen=True):
    """A server that runs from the wheel, outside of this repository."""

    url: str
    wheel: Path
    packages: Path


def build_wheel(folder: Path) -> Path:
    """Builds with the backend of the lock, which downloads nothing. It looks for its program on the path."""
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    command = [sys.executable, "-c", _BUILD, str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    return folder / built.stdout.split()[-1]


def install(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """Unpacks the wheel into a new environment. The dependencies are those of this one, without its own packages."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python", packages


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder)
    python, packages = install(wheel, folder / "environment")
    options = ["serve", "--demo", "--port", str(port := free_port()), "--data-dir", str(folder / "data")]
    with subprocess.Popen(
        [python, "-P", "-c", _SERVE, *options], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            output = []
            for line in process.stdout:
                output.append(line)
                if f":{port}" in line:
                    break
            else:
                pytest.fail(f"the server ended: {''.join(output)}")
            yield Installed(f"http://127.0.0.1:{port}", wheel, packages)
        finally:
            process.terminate()


def test_wheel_has_every_file_of_the_packages(installed: Installed) -> None:
    files = {path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()}
    expected = {path.as_posix() for path in files if "__pycache__" not in path.parts}

    with zipfile.ZipFile(installed.wheel) as archive:
        assert expected - set(archive.namelist()) == set()


def test_server_runs_from_the_wheel(installed: Installed) -> None:
    python = str(installed.packages.parents[2] / "bin" / "python")
    command = [python, "-P", "-c", "import server; print(server.__file__)"]

    found = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=True).stdout

    assert Path(found.strip()).is_relative_to(installed.packages)


def test_every_page_and_every_file_is_served(installed: Installed, browser: BrowserDriver) -> None:
    """Follows the links from the search page, also those of scripts to other scripts."""
    with httpx2.Client(**HTTP_OPTIONS, base_url=installed.url, headers=HTML) as client:
        pages = crawl(client)
        loads = {path for text in pages.values() for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', text)}
        for path in sorted(loads):
            loads |= imports_of(path, client)
        statuses = {path: client.get(path).status_code for path in sorted(loads)}
    names = {path.name for path in (ROOT / "server" / "console" / "static").iterdir()}
    kinds = {path.partition("?")[0].split("/")[1] for path in pages}

    assert {"", "library", "new", "items", "account", "admin", "docs"} <= kinds
    assert set(statuses.values()) == {200}
    # Only people who sign in need it.
    assert names - {path.rpartition("/")[2] for path in statuses} <= NOT_ON_A_PAGE
    shown = ["/", "/library", "/new", "/account", "/admin", "/docs", *[path for path in pages if "/items/" in path][:2]]
    assert all(browser.run("console.mjs", "texts", url=installed.url, values=shown))


def crawl(client: httpx2.Client) -> dict[str, str]:
    """Returns the text of the pages that can be reached from the search page. Fails if one is missing."""
    waiting, pages = ["/"], dict[str, str]()
    while waiting and len(pages) < PAGES_MAX:
        path = waiting.pop(0)
        response = client.get(path)
        assert response.status_code == 200, (path, json.dumps(response.text[:300]))
        if not response.headers["content-type"].startswith("text/html"):
            continue
        pages[path] = response.text
        links = [unescape(link) for link in re.findall(r'<a [^>]*href="(/[^"]*)"', response.text)]
        found = dict.fromkeys(link.partition("#")[0] for link in links if "download" not in link)
        known = {*pages, *waiting}
        # Pages come before the items and searches that they list.
        waiting = sorted([*waiting, *(link for link in found if link not in known)], key=lambda one: one.count("?"))
    return pages


def imports_of(path: str, client: httpx2.Client) -> set[str]:
    folder = path.rpartition("/")[0]
    return {f"{folder}/{name}" for name in re.findall(r'from "\./([^"]+)"', client.get(path).text)}
