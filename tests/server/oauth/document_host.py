"""A web server with TLS that serves client metadata documents, good and bad, from an authority of its own."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


class DocumentHost:
    """Serves what a test puts at a path, and counts the requests."""

    def __init__(self, port: int, authority: Path) -> None:
        self.port = port
        self.authority = authority
        self.requests: list[str] = []
        self._responses: dict[str, Respond] = {}

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"https://{host}:{self.port}{path}"

    def serve(self, path: str, document: Mapping[str, Any], host: str = "127.0.0.1", **headers: str) -> str:
        """Serves a metadata document, whose `client_id` is its own URL unless it names another. Returns the URL."""
        url = self.url(path, host)
        body = msgspec.json.encode({"client_id": url, **document})
        self.serve_bytes(path, body, **{"Content-Type": "application/json", **headers})
        return url

    def serve_bytes(self, path: str, body: bytes, status: str = "200 OK", **headers: str) -> str:
        async def respond(writer: asyncio.StreamWriter) -> None:
            lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()

        return self.serve_with(path, respond)

    def serve_with(self, path: str, respond: Respond) -> str:
        self._responses[path] = respond
        return self.url(path)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            self.requests.append(path)
            await self._responses[path](writer)
        except (OSError, asyncio.IncompleteReadError, KeyError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def open_document_host(directory: Path) -> AsyncIterator[DocumentHost]:
    """Yields a host for `127.0.0.1` and `documents.example.com`."""
    directory.mkdir(parents=True, exist_ok=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = _write_certificate(directory)
    context.load_cert_chain(directory / "server.pem")
    host = DocumentHost(0, authority)
    server = await asyncio.start_server(host.handle, "127.0.0.1", 0, ssl=context)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()


def _write_certificate(directory: Path) -> Path:
    """Writes a certificate that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "documents.example.com")])
    names = x509.SubjectAlternativeName(
        [x509.DNSName("documents.example.com"), x509.IPAddress(ip_address("127.0.0.1"))]
    )
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    (directory / "server.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate
    )
    authority = directory / "authority.pem"
    authority.write_bytes(certificate)
    return authority
