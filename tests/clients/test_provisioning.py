"""Installation of the official clients: lock files have hashes and no registry hosts, and failures are reported."""

import shutil
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.json import decode

from tests.clients.legacy_python import DIRECTORY
from tests.clients.node_tools import PROJECT, environment, install_packages
from tests.clients.provisioning import ProvisioningFailed, digest, install, is_installed, mark_installed

pytestmark = pytest.mark.slow("installs clients")


def test_a_failed_installer_is_reported_with_its_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('no such package'); sys.exit(3)"]

    with pytest.raises(ProvisioningFailed, match=r"exited with 3:\nno such package"):
        install(command, tmp_path, {})


def test_a_missing_installer_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProvisioningFailed, match="cannot run"):
        install([str(tmp_path / "missing")], tmp_path, {})


def test_npm_registry_with_an_unknown_certificate_is_reported_with_the_missing_setting(tmp_path: Path) -> None:
    with serve_https(tmp_path) as registry, pytest.raises(ProvisioningFailed) as failure:
        install_packages(copy_project(tmp_path), npm_environment(registry))

    first_line = str(failure.value).splitlines()[0]
    assert first_line.startswith("npm does not trust the certificate of its registry (")
    assert first_line.endswith("Set NODE_EXTRA_CA_CERTS to the file with your network's certificate authority.")


def test_npm_registry_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed_port = server.getsockname()[1]

    with pytest.raises(ProvisioningFailed, match=r"^npm cannot reach its registry \(ECONNREFUSED\)"):
        install_packages(copy_project(tmp_path), npm_environment(f"https://127.0.0.1:{closed_port}"))


def copy_project(directory: Path) -> Path:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PROJECT / name, directory)
    return directory


def npm_environment(registry: str) -> dict[str, str]:
    return environment({"npm_config_registry": registry, "npm_config_fetch_retry_mintimeout": "1"})


@contextmanager
def serve_https(directory: Path) -> Iterator[str]:
    """Serves with a certificate that nothing trusts. Yields the address."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(write_certificate(directory))
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def write_certificate(directory: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / "server.pem"
    path.write_bytes(private_key + certificate.public_bytes(serialization.Encoding.PEM))
    return path


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
