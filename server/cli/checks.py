"""What `doctor` looks at. Each check reads the world, judges it and says in one sentence what it found and what helps.

Nothing is created or changed.
"""

import os
import resource
import shlex
import shutil
import socket
import sqlite3
import stat
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from auth.key_sources import load_signing_keys
from auth.principal import SCOPES
from auth.tokens import JwtVerifier, mint_token
from config.errors import FlorilegiumError, Unavailable
from config.loading import Loaded
from config.paths import DataRoot
from config.settings import Settings
from server.cli.addresses import local_url
from server.cli.output import counted
from server.cli.probe import ask_health
from server.version import VERSION

_MIB = 1024 * 1024
_DISK_FAIL_BYTES = 64 * _MIB
_DISK_WARN_BYTES = 1024 * _MIB
# sqlite.org/wal.html, "the WAL-reset bug": fixed in 3.51.3.
_WAL_RESET_FIXED = (3, 51, 3)
_OPEN_FILES_WARN = 1024
# Nothing that verifies tokens can be right when the clock is before this program was written.
_WRITTEN_AT = 1_790_000_000.0
_CLOCK_SKEW_S = 300.0
_ROUND_TRIP_S = 60.0


class Check(Struct, frozen=True):
    """One line of the table."""

    name: str
    outcome: Literal["ok", "warn", "fail"]
    message: str


async def check_all(loaded: Loaded, now: float) -> list[Check]:
    settings, root = loaded.settings, DataRoot(Path(loaded.settings.data_dir))
    return [
        judge_settings(loaded.warnings),
        check_data_directory(root.root),
        judge_disk(shutil.disk_usage(_nearest_existing(root.root)).free),
        check_control_database(root.control_path),
        judge_sqlite(sqlite3.sqlite_version_info, has_fts5()),
        check_port(settings),
        await check_auth(settings, now),
        judge_clock(now, _modified_at(root.control_path)),
        judge_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]


def judge_settings(warnings: Sequence[str]) -> Check:
    if warnings:
        return Check("settings", "warn", "; ".join(warnings))
    return Check("settings", "ok", "load and fit together")


def check_data_directory(root: Path) -> Check:
    name = "data directory"
    if not root.exists():
        parent = _nearest_existing(root)
        if os.access(parent, os.W_OK | os.X_OK):
            return Check(name, "ok", f"{root} does not exist yet; the first start makes it")
        return Check(name, "fail", f"{root} cannot be made: uid {os.geteuid()} may not write in {parent}")
    if not root.is_dir():
        return Check(name, "fail", f"{root} is not a directory; choose another with data_dir")
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        advice = f"run, as root, `chown -R {os.geteuid()} {shlex.quote(str(root))}`"
        return Check(name, "fail", f"{root} cannot be written by uid {os.geteuid()}; {advice}")
    mode = stat.S_IMODE(root.stat().st_mode)
    if mode & 0o077:
        advice = f"run `chmod 700 {shlex.quote(str(root))}`"
        return Check(name, "warn", f"{root} is open to other accounts (mode {mode:04o}); {advice}")
    return Check(name, "ok", f"{root} is private and can be written")


def judge_disk(free_bytes: int) -> Check:
    free = f"{free_bytes // _MIB} MiB are free"
    if free_bytes < _DISK_FAIL_BYTES:
        return Check("disk", "fail", f"{free}; at least {_DISK_FAIL_BYTES // _MIB} MiB are needed")
    if free_bytes < _DISK_WARN_BYTES:
        return Check("disk", "warn", f"{free}; make room before it is full")
    return Check("disk", "ok", free)


def check_control_database(path: Path) -> Check:
    """Reads through it as any other process would, without changing a byte."""
    name = "control database"
    if not path.exists():
        return Check(name, "ok", "does not exist yet; the first start makes it")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return Check(name, "fail", f"cannot be read: {error}")
    if verdict != "ok":
        return Check(name, "fail", "is damaged; restore it from a backup")
    return Check(name, "ok", "is sound")


def has_fts5() -> bool:
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE probe USING fts5 (text)")
        except sqlite3.OperationalError:
            return False
    return True


def judge_sqlite(version: tuple[int, ...], fts5: bool) -> Check:
    text = ".".join(map(str, version))
    if not fts5:
        return Check("SQLite", "fail", f"{text} lacks FTS5, which search needs; use a Python built with it")
    if version < _WAL_RESET_FIXED:
        fixed = ".".join(map(str, _WAL_RESET_FIXED))
        return Check(
            "SQLite",
            "warn",
            f"{text} with FTS5; before {fixed} the WAL-reset race can, rarely, damage a database that several "
            "processes write: let one process serve, or upgrade SQLite",
        )
    return Check("SQLite", "ok", f"{text} with FTS5")


def check_port(settings: Settings) -> Check:
    where = f"{settings.host} port {settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        return _judge_taken_port(settings, where, (error.strerror or "not available").lower())
    return Check("port", "ok", f"{where} is free")


def _judge_taken_port(settings: Settings, where: str, cause: str) -> Check:
    try:
        health = ask_health(local_url(settings))
    except Unavailable:
        return Check("port", "fail", f"{where} cannot be used ({cause}); choose another with --port")
    if health.version != VERSION:
        advice = f"this is {VERSION}: restart the server"
        return Check("port", "warn", f"{where} is served by Florilegium {health.version}, and {advice}")
    return Check("port", "ok", f"{where} is served by Florilegium {health.version} already")


async def check_auth(settings: Settings, now: float) -> Check:
    name = "authentication"
    try:
        if settings.jwt_secret:
            return Check(name, "ok", await _round_trip(settings, now))
        if settings.jwt_key_file:
            load_signing_keys(settings)
            return Check(name, "ok", f"{settings.jwt_key_file} holds a usable public key")
        if settings.jwt_jwks_url:
            return await _check_jwks(settings)
    except FlorilegiumError as error:
        return Check(name, "fail", error.message)
    if settings.require_auth:
        return Check(name, "ok", "API keys only")
    return Check(name, "ok", f"single-user mode: callers need no credential and are {settings.single_user_name!r}")


async def _round_trip(settings: Settings, now: float) -> str:
    keys = load_signing_keys(settings)
    assert keys is not None
    token = mint_token(settings, "doctor", SCOPES, lifetime_s=_ROUND_TRIP_S, now=now, client_id="doctor")
    claims = await JwtVerifier(settings, keys).verify(token, now)
    return f"a token for {settings.audience} was minted and verified ({counted(len(claims.scopes), 'scopes')})"


async def _check_jwks(settings: Settings) -> Check:
    from auth.jwks import UrlFetch  # noqa: PLC0415 - only this way to sign in needs it
    from auth.signatures import keys_from_jwks  # noqa: PLC0415 - PyJWT takes 0.2 s to import

    body = await UrlFetch(settings.jwks_timeout_s, settings.jwks_max_bytes)(settings.jwt_jwks_url)
    try:
        keys = keys_from_jwks(msgspec.json.decode(body, type=dict[str, list[object]]).get("keys", []))
    except msgspec.MsgspecError:
        return Check("authentication", "fail", f"{settings.jwt_jwks_url} does not answer with a JWK set")
    if not keys:
        return Check("authentication", "fail", f"{settings.jwt_jwks_url} holds no key that could sign a token")
    return Check("authentication", "ok", f"{settings.jwt_jwks_url} holds {counted(len(keys), 'usable keys')}")


def judge_clock(now: float, newest: float) -> Check:
    """`newest` is a moment that has certainly passed: the last change of a file of ours."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _WRITTEN_AT:
        return Check("clock", "fail", f"says {shown}, which is past already; no token can be checked: set it")
    if newest > now + _CLOCK_SKEW_S:
        return Check("clock", "warn", f"says {shown}, and the control database was changed later than that")
    return Check("clock", "ok", f"says {shown}")


def judge_open_files(soft: int) -> Check:
    if soft == resource.RLIM_INFINITY:
        return Check("open files", "ok", "are not limited")
    if soft < _OPEN_FILES_WARN:
        advice = f"raise it to {_OPEN_FILES_WARN} or more with `ulimit -n`"
        return Check("open files", "warn", f"are limited to {soft}; {advice}")
    return Check("open files", "ok", f"are limited to {soft}")


def _nearest_existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _modified_at(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0
