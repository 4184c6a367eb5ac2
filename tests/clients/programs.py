"""Runs a client program beside a server that lives in the caller's own event loop, and reads what it saw."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

# The server is on this machine: whatever proxy the developer's shell names is not for it.
_DIRECT = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


class Ended(Struct, frozen=True):
    """What a finished program left behind."""

    code: int
    stdout: str
    stderr: str


class Info(Struct, frozen=True):
    """The part of `server_info` that the tests look at."""

    user: str
    protocol_version: str


class Seen(Struct, frozen=True, rename="camel"):
    """What a client script prints after its visit."""

    tools: list[str]
    is_error: bool
    info: Info
    had_session: bool = False
    era: str = ""


async def run_program(*command: str, directory: Path, environment: Mapping[str, str], timeout_s: float) -> Ended:
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
    return Ended(process.returncode, stdout.decode(), stderr.decode())


def read_visit(ended: Ended) -> Seen:
    """Every script lists the tools and calls `server_info` without an error; what it found is judged by its test."""
    assert ended.code == 0, ended.stderr
    seen = decode(ended.stdout, type=Seen)
    assert "knowledge_search" in seen.tools
    assert not seen.is_error
    return seen
