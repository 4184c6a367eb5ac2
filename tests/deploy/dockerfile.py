"""Reads a Dockerfile: its stages and their steps."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct


class DockerStep(Struct, frozen=True):
    """An instruction such as `COPY`, and what follows it, on one line."""

    name: str
    text: str


def read_stages(path: Path) -> list[list[DockerStep]]:
    """Returns the steps of every stage, which begins after its `FROM`."""
    stages: list[list[DockerStep]] = []
    for step in _steps(path.read_text()):
        if step.name == "FROM":
            stages.append([])
        elif stages:
            stages[-1].append(step)
    return stages


def _steps(text: str) -> Iterator[DockerStep]:
    without_comments = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\s*\\\n\s*", " ", without_comments)
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        yield DockerStep(name, rest.strip())
