"""Checks the examples in deploy/proxy with real proxies: `python -m tests.deploy.proxies [nginx|caddy ...]`.

Each proxy is started with the file of the example, changed only in its addresses and certificates. A call, an event
stream, a WebSocket and the client's own address must reach the server behind it. `make release-check` runs this for
those proxies that are installed.
"""

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from websockets.asyncio.client import connect

from auth.audit import AuditFilter
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.serving import serve
from tests.live import LiveServer, free_port, make_settings
from tests.server.clients import JSON_AND_EVENTS, handshake, message
from tests.test_architecture import ROOT

PROXY = ROOT / "deploy" / "proxy"
HOST = "kb.example.com"
CLIENT = "127.0.0.2"
WAIT_S = 60.0


def write_nginx(folder: Path, port: int, upstream: int) -> Sequence[str]:
    certificate, key = write_certificate(folder)
    text = (PROXY / "nginx.conf").read_text()
    changes = {
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "127.0.0.1:8765": f"127.0.0.1:{upstream}",
        f"/etc/letsencrypt/live/{HOST}/fullchain.pem": str(certificate),
        f"/etc/letsencrypt/live/{HOST}/privkey.pem": str(key),
    }
    (folder / "site.conf").write_text(replace_all(text, changes))
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"include {folder}/site.conf; }}\n"
    )
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    return command


def write_caddy(folder: Path, port: int, upstream: int) -> Sequence[str]:
    certificate, key = write_certificate(folder)
    text = (PROXY / "Caddyfile").read_text()
    site = f"https://{HOST}:{port}"
    options = "{\n\tadmin off\n\tauto_https off\n\tskip_install_trust\n}\n"
    inside = f"{site} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}\n"
    changes = {"{$SITE} {\n": inside, "{$UPSTREAM:127.0.0.1:8765}": f"127.0.0.1:{upstream}"}
    (folder / "Caddyfile").write_text(options + replace_all(text, changes))
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    subprocess.run(
        ["caddy", "validate", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")],
        check=True,
        capture_output=True,
    )
    return command


PROXIES: dict[str, Callable[[Path, int, int], Sequence[str]]] = {"nginx": write_nginx, "caddy": write_caddy}


def replace_all(text: str, changes: dict[str, str]) -> str:
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    return text


def write_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subject = ("-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}")
    options = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    subprocess.run(
        ["openssl", "req", *options, *subject, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key


@asynccontextmanager
async def proxied(name: str, folder: Path) -> AsyncIterator[tuple[LiveServer, int]]:
    """Runs a server and the proxy in front of it. Yields the port of the proxy."""
    port = free_port()
    settings = make_settings(
        folder / "data", public_url=f"https://{HOST}:{port}", allowed_hosts=(HOST,), trusted_proxies=("127.0.0.1",)
    )
    metrics = Metrics()
    async with open_runtime(settings, observer=metrics) as runtime:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        app = build_app(runtime, metrics)
        serving = asyncio.create_task(serve(app, settings, runtime.open_streams, ready.set_result))
        url = await asyncio.wait_for(ready, WAIT_S)
        command = PROXIES[name](folder, port, urlsplit(url).port or 0)
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL, env={**os.environ})
        try:
            await wait_for_port(port)
            yield LiveServer(runtime, url), port
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()
            runtime.open_streams.stop()
            await serving


async def wait_for_port(port: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def check(name: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        async with proxied(name, folder) as (server, port):
            trust = ssl.create_default_context(cafile=str(folder / "certificate.pem"))
            headers = {**JSON_AND_EVENTS, **await server.bearer("ada")}
            base = f"https://127.0.0.1:{port}"
            sni = {"sni_hostname": HOST}
            # The server must see this address, not that of the proxy and not the one that the client claims.
            transport = httpx2.AsyncHTTPTransport(verify=trust, local_address=CLIENT)
            host = {"Host": f"{HOST}:{port}"}
            async with httpx2.AsyncClient(base_url=base, transport=transport, headers=host) as client:
                opened = await client.post("/mcp", json=handshake(), headers=headers, extensions=sni)
                assert opened.status_code == 200, (opened.status_code, opened.text)
                assert (await client.get("/metrics", extensions=sni)).status_code == 404
                session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
                async with client.stream("GET", "/mcp", headers={**headers, **session}, extensions=sni) as stream:
                    assert stream.status_code == 200
                    # The first line is sent at once, while the stream stays open.
                    await asyncio.wait_for(anext(stream.aiter_lines()), WAIT_S)
                forged = {"Authorization": "Bearer wrong", "X-Forwarded-For": "203.0.113.9"}
                await client.get("/mcp", headers=forged, extensions=sni)
            address = f"wss://{HOST}:{port}/mcp/ws"
            async with connect(
                address, host="127.0.0.1", port=port, ssl=trust, additional_headers=await server.bearer("ada")
            ) as socket:
                await socket.send(json.dumps(message("ping", {}, 1)))
                assert '"result"' in str(await asyncio.wait_for(socket.recv(), WAIT_S))
            events = await server.runtime.audit.select(AuditFilter(), 10)
            addresses = {event.address for event in events if event.action == "credential.reject"}
            assert addresses == {CLIENT}, addresses


def main(names: Sequence[str]) -> int:
    chosen = names or [name for name in PROXIES if shutil.which(name)]
    for name in chosen:
        asyncio.run(check(name))
        print(f"{name}: a call, a stream, a WebSocket and the client's address arrive")
    if missing := [name for name in PROXIES if name not in chosen]:
        print(f"not installed, not checked: {', '.join(missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
