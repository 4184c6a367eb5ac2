"""Real OpenID Connect providers (the npm package oidc-provider), as a process of the tests."""

import json
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.clients.node_tools import PROJECT, environment, node, packages

CLIENT_ID = "florilegium"
CLIENT_SECRET = "s:ecret/with?signs"
_START_MAX_S = 60.0


@contextmanager
def openid_providers(
    ports: Sequence[int], accounts: Mapping[str, Mapping[str, Any]], redirects: Sequence[str]
) -> Iterator[None]:
    """Runs one provider on each port, all with the same accounts, until the block ends."""
    packages()
    variables = {
        "FLORILEGIUM_TEST_PORTS": json.dumps(list(ports)),
        "FLORILEGIUM_TEST_ACCOUNTS": json.dumps(accounts),
        "FLORILEGIUM_TEST_REDIRECTS": json.dumps(list(redirects)),
    }
    process = subprocess.Popen(
        [node(), "openid_provider.mjs"],
        cwd=PROJECT,
        env=environment(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], _START_MAX_S)[0], "the provider did not start"
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()
