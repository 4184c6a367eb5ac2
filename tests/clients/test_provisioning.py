"""Installation of the official clients: lock files have hashes and no registry hosts, and failures are reported."""

import sys
from pathlib import Path

import pytest
from msgspec.json import decode

from tests.clients.legacy_python import DIRECTORY
from tests.clients.node_tools import PROJECT
from tests.clients.provisioning import ProvisioningFailed, digest, install, is_installed, mark_installed


def test_a_failed_installer_is_reported_with_its_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('no such package'); sys.exit(3)"]

    with pytest.raises(ProvisioningFailed, match=r"exited with 3:\nno such package"):
        install(command, tmp_path, {})


def test_a_missing_installer_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProvisioningFailed, match="cannot run"):
        install([str(tmp_path / "missing")], tmp_path, {})


def test_a_changed_lock_file_requires_a_new_installation(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("one")
    assert not is_installed(tmp_path, digest(lock))
    mark_installed(tmp_path, digest(lock))
    assert is_installed(tmp_path, digest(lock))

    lock.write_text("two")

    assert not is_installed(tmp_path, digest(lock))


def test_every_node_package_is_pinned_by_hash_without_a_host() -> None:
    locked = decode((PROJECT / "package-lock.json").read_bytes())["packages"]
    direct = locked.pop("")["devDependencies"]

    assert all(version[0].isdigit() for version in direct.values())
    assert all("integrity" in package and "resolved" not in package for package in locked.values())


def test_every_python_package_is_pinned_by_hash_without_a_host() -> None:
    lines = (DIRECTORY / "requirements.txt").read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith((" ", "#"))]

    assert len(packages) > 10
    assert all("==" in package and package.endswith("\\") for package in packages)
    assert not any("://" in line for line in lines)
