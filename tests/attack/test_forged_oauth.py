"""A sample of the forged OAuth credentials of `make attack`."""

from pathlib import Path

import pytest

from tests.attack.forged_oauth import attack_oauth

pytestmark = pytest.mark.slow("attacks a server")


async def test_no_forged_oauth_credential_is_accepted(tmp_path: Path) -> None:
    result = await attack_oauth(tmp_path, 2_000)

    assert result.credentials == 2_000
    assert (result.accepted, result.refused_valid) == ([], [])
