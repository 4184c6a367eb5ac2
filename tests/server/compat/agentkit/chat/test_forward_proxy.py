"""A server in a network that is left only through a proxy: it fetches an identity provider's keys with CONNECT and TLS,
and forwards chats to its upstream."""

import http.server
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec import Struct

from tests.auth.issuers import es256, jwks
from tests.live import free_port
from tests.server.cli.program import Program
from tests.server.compat.agentkit.chat.conftest import UpstreamProgram
from tests.server.compat.agentkit.chat.upstream_program import WORDS
from tests.server.http_client import HttpResponse, fetch

pytestmark = pytest.mark.slow("starts servers in a network of their own")

PROVIDER = "idp.test"
UPSTREAM = "upstream.test"


class Network(Struct, frozen=True):
    """A proxy that knows the provider and the upstream. `authorities` has the provider's certificate."""

    proxy: str
    log: Path
    authorities: Path

    def requests(self) -> list[str]:
        return self.log.read_text().splitlines()


class KeyHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = jwks(es256())
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Disables the access log."""


def write_certificate(path: Path, name: str) -> Path:
    """Writes a self-signed certificate and its key to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(certificate.public_bytes(Encoding.PEM) + private)
    return path


@contextmanager
def serving_keys(certificate: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), KeyHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def network(tmp_path: Path, upstream: UpstreamProgram) -> Iterator[Network]:
    certificate, log = write_certificate(tmp_path / "provider.pem", PROVIDER), tmp_path / "proxy.log"
    log.touch()
    with serving_keys(certificate) as provider_port:
        hosts = [f"{PROVIDER}={provider_port}", f"{UPSTREAM}={upstream.url.rpartition(':')[2]}"]
        command = [sys.executable, "-m", "tests.server.compat.agentkit.chat.forward_proxy", str(log), *hosts]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
            try:
                assert proxy.stdout is not None
                yield Network(f"http://127.0.0.1:{int(proxy.stdout.readline())}", log, certificate)
            finally:
                proxy.kill()


def configure(program: Program, provider: str = PROVIDER) -> str:
    """Writes the settings of a server with an upstream and a provider, and returns the server's URL."""
    port = free_port()
    (program.home / "florilegium.toml").write_text(
        f'port = {port}\nchat_upstream_url = "http://{UPSTREAM}/v1"\n'
        f'jwt_jwks_url = "https://{provider}/keys"\njwt_issuer = "{es256().iss}"\njwt_create_users = true\n'
    )
    return f"http://127.0.0.1:{port}"


async def complete(url: str, model: str, who: str = "ada", **more: Any) -> HttpResponse:
    now = int(datetime.now(UTC).timestamp())
    token = es256().token(sub=who, aud=f"{url}/mcp", iat=now - 60, exp=now + 600)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = {"model": model, "messages": [{"role": "user", "content": "Which cells are cheaper?"}], **more}
    return await fetch(url, "POST", "/v1/chat/completions", headers, msgspec.json.encode(body))


async def test_keys_and_chats_go_through_the_proxy_of_the_environment(tmp_path: Path, network: Network) -> None:
    program = Program(tmp_path)
    url = configure(program)
    with program.serving(HTTPS_PROXY=network.proxy, HTTP_PROXY=network.proxy, SSL_CERT_FILE=str(network.authorities)):
        whole = await complete(url, "odd")
        stream = await complete(url, "streaming", "ben", stream=True)
        broken = await complete(url, "crashing", stream=True)

    assert whole.json()["model"] == "odd-1"
    assert [word for word in WORDS if f'"{word}"'.encode() in stream.body] == list(WORDS)
    assert stream.body.endswith(b"data: [DONE]\n\n")
    assert b"the upstream sent an incomplete" in broken.body
    assert network.requests() == [
        f"CONNECT {PROVIDER}:443",
        *[f"POST http://{UPSTREAM}/v1/chat/completions"] * 3,
    ]


async def test_certificate_is_verified_behind_the_proxy(tmp_path: Path, network: Network) -> None:
    program = Program(tmp_path)
    url = configure(program)
    with program.serving(HTTPS_PROXY=network.proxy, HTTP_PROXY=network.proxy):
        response = await complete(url, "odd")

    assert response.status == 503
    assert network.requests() == [f"CONNECT {PROVIDER}:443"]
    assert "certificate verify failed" in (tmp_path / "stderr.log").read_text()


async def test_rejection_by_the_proxy_is_reported_to_the_operator(tmp_path: Path, network: Network) -> None:
    program = Program(tmp_path)
    url = configure(program, "unknown.test")
    with program.serving(HTTPS_PROXY=network.proxy, SSL_CERT_FILE=str(network.authorities)):
        response = await complete(url, "odd")

    assert response.status == 503
    assert "403" not in response.body.decode()
    assert "cannot be reached (ProxyError: 403 Forbidden)" in (tmp_path / "stderr.log").read_text()


async def test_hosts_in_no_proxy_are_requested_directly(tmp_path: Path, upstream: UpstreamProgram) -> None:
    program = Program(tmp_path)
    port, dead = free_port(), f"http://127.0.0.1:{free_port()}"
    (program.home / "florilegium.toml").write_text(f'port = {port}\nchat_upstream_url = "{upstream.api}"\n')
    body = msgspec.json.encode({"model": "odd", "messages": [{"role": "user", "content": "Hello"}]})

    async def send() -> HttpResponse:
        headers = {"Content-Type": "application/json"}
        return await fetch(f"http://127.0.0.1:{port}", "POST", "/v1/chat/completions", headers, body)

    with program.serving(HTTP_PROXY=dead):
        through_proxy = await send()
    with program.serving(HTTP_PROXY=dead, NO_PROXY="localhost,127.0.0.1"):
        direct = await send()

    assert (through_proxy.status, direct.status) == (502, 200)
    assert through_proxy.json()["error"]["message"] == "the upstream cannot be reached"
