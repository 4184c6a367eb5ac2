"""Runs a client program against a server in the caller's event loop, and reads its report."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

# The server is local, so a proxy from the developer's shell must not be used.
_DIRECT = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


class ProgramResult(Struct, frozen=True):
    """The exit code and output of a program."""

    code: int
    stdout: str
    stderr: str


class Info(Struct, frozen=True):
    """The fields of `server_info` that the tests check."""

    user: str
    protocol_version: str


class ClientReport(Struct, frozen=True, rename="camel"):
    """What a client script prints."""

    tools: list[str]
    is_error: bool
    info: Info
    had_session: bool = False
    era: str = ""


async def run_program(
    *command: str, directory: Path, environment: Mapping[str, str], timeout_s: float
) -> ProgramResult:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env={**environment, **_DIRECT},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return ProgramResult(process.returncode, stdout.decode(), stderr.decode())


def read_report(result: ProgramResult) -> ClientReport:
    """Reads the report of a script, which must have listed the tools and called `server_info` without an error."""
    assert result.code == 0, result.stderr
    report = decode(result.stdout, type=ClientReport)
    assert "knowledge_search" in report.tools
    assert not report.is_error
    return report
