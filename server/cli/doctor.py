"""`florilegium doctor`: checks this machine and the settings, or the connection of a client to a server.

Each check reports its result in one sentence and says what to do about a problem. Checks never create or change
anything.
"""

import asyncio
import os
import resource
import shlex
import shutil
import socket
import sqlite3
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from auth.context import SCOPES
from auth.postgres_control import CONTROL_SCHEMA_NAME, is_control_current
from auth.quotas import Quotas, read_own_max_bytes
from auth.redis import RedisConnection, RedisReplyError
from auth.registry import Registry, read_users
from auth.signing_keys import fetch_url, load_signing_keys
from auth.tokens import JwtVerifier, mint_token
from config import errors
from config.loading import LoadedConfig
from config.paths import DataRoot, UserId, is_read_only, root_advice, stored_bytes_of_user
from config.postgres.connection import ConnectionOptions, ConnectionThreads, Transaction
from config.postgres.errors import describe_url, postgres_errors
from config.public_http import uses_proxy
from config.settings import Settings, is_loopback
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.local_library import data_root
from server.cli.output import local_url, pluralize, print_json, require_url
from server.cli.remote import fetch_health, settings_of_running_server
from server.directory_lock import WAL_RESET_FIXED
from server.doctor.replay import FLOWS, ConnectionReplay
from server.doctor.tokens import Check, explain_credential
from server.stores import connection_options, control_location, stored_bytes
from server.version import VERSION
from sources.importers.sandbox import probe_sandbox
from sources.semantic.endpoint import EmbeddingEndpoint, Reranker
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.named_models import NAMED_MODELS, NO_MODEL, best_model, load_model
from sources.semantic.service import configured_model, configured_models
from sources.storage.postgres.vectors.vector_tables import find_extension, require_extension
from sources.storage.sqlite.maintenance.library_check import check_library, missing_files


@click.command(cls=SettingsCommand)
@click.argument("url", required=False)
@click.option("--client", type=click.Choice(tuple(FLOWS)), help="Replay the connection of this client to URL.")
@click.option("--token", metavar="-", help="Read an API key or token from stdin, and explain why it is refused.")
@json_option
@setting_options()
def doctor(overrides: SettingsOverrides, url: str | None, client: str | None, token: str | None, as_json: bool) -> None:
    """Check this machine, or a connection.

    Without arguments: this machine and the settings. With URL or --client: the connection of a client to a server.

    URL is the address that the client is given. Default: the one of the running server, or of the settings.

    Exits with 1 if a check fails.
    """
    if token not in (None, "-"):
        raise click.UsageError("--token takes - and reads the token from stdin, because others can read command lines")
    credential = sys.stdin.readline().strip() if token else ""
    if url or client:
        address = require_url("url", url or settings_of_running_server(overrides.load().settings).resource_url)
        checks = asyncio.run(ConnectionReplay(address, FLOWS[client or "any"], credential).run())
    elif token:
        settings = overrides.load().settings
        checks = [asyncio.run(explain_credential(settings, data_root(settings), credential))]
    else:
        try:
            loaded = overrides.load()
        except errors.ConfigurationError as error:
            # The other checks depend on the settings, so these are the only result.
            checks = [Check("settings", "fail", sentence) for sentence in error.message.splitlines()]
        else:
            checks = asyncio.run(check_all(loaded, time.time()))
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            click.echo(f"{check.outcome:<6}{check.name:<18}{check.message}")
    if any(check.outcome == "fail" for check in checks):
        click.get_current_context().exit(1)


# -- semantic checks ---------------------------------------------------------------------------------------------------
# The checks of `florilegium doctor` for semantic search. They use the model once, as a search would.

_TEXT = "a short text"
_EFFECT = "searches find words only"


async def check_semantic(settings: Settings) -> list[Check]:
    checks = [await _check_model(settings, model) for model in configured_models(settings) or (None,)]
    if settings.storage_url and configured_model(settings) is not None:
        checks += await _check_pgvector(settings)
    if settings.reranker_url:
        try:
            await Reranker(settings).scores(_TEXT, [_TEXT, "another"])
            checks.append(Check("reranker", "ok", f"{settings.reranker_url} scores hits"))
        except SemanticUnavailable as error:
            checks.append(Check("reranker", "warn", f"{error.reason}; until then, hits keep their order"))
    return checks


async def _check_model(settings: Settings, model: ModelInfo | None) -> Check:
    name = "semantic search"
    if model is None:
        if settings.semantic_model == "auto":
            return Check(name, "ok", f"off; {NO_MODEL}")
        best = best_model(Path(settings.data_dir))
        advice = f"; set semantic_model = {best.name} to use the model that is installed" if best else ""
        return Check(name, "ok", f"off{advice}")
    try:
        named = NAMED_MODELS.get(model.name)
        if named is not None:
            local = await asyncio.to_thread(load_model, named, Path(settings.data_dir))
            await asyncio.to_thread(local.embed, [_TEXT])
        else:
            await EmbeddingEndpoint(settings).embed_query(_TEXT, settings.fixed.semantic_endpoint_timeout_s)
    except SemanticUnavailable as error:
        return Check(name, "warn", f"{error.reason}; until then, {_EFFECT}")
    where = "" if model.name in NAMED_MODELS else f" at {settings.semantic_model}"
    choice = "auto chose " if settings.semantic_model == "auto" else ""
    return Check(name, "ok", f"{choice}{model.id}{where}, {model.dimension} dimensions, weight {model.weight:g}")


async def _check_pgvector(settings: Settings) -> list[Check]:
    """Returns nothing if the database cannot be read, which another check reports."""
    location = control_location(settings, DataRoot(Path(settings.data_dir)))
    assert isinstance(location, ConnectionOptions)
    # In a read-only transaction: checks never create anything, also not the extension.
    threads = ConnectionThreads(location, 1, "doctor")
    try:
        with postgres_errors():
            found = await threads.run(Transaction(schema=CONTROL_SCHEMA_NAME, is_read_only=True), find_extension)
        version = ".".join(map(str, require_extension(found).version))
    except SemanticUnavailable as error:
        return [Check("pgvector", "warn", f"{error.reason}; until then, {_EFFECT}")]
    except errors.StorageError:
        return []
    finally:
        await threads.close()
    return [Check("pgvector", "ok", f"{version} is installed in the database")]


# -- all checks --------------------------------------------------------------------------------------------------------
# `check_…` looks at something, `evaluate_…` judges a value that the caller measured, so that tests can pass any value.

_MIB = 1024 * 1024
_DISK_FAIL_BYTES = 64 * _MIB
_DISK_WARN_BYTES = 1024 * _MIB
_OPEN_FILES_WARN = 1024
# A deployment may have thousands of users: only the libraries written last are opened, the others are checked for
# missing files. `florilegium check` checks everything.
_SAMPLE_USERS = 10
_SAMPLE_FAULTS = ("damaged", "index damaged", "newer", "inaccessible")
_FAULTS_SHOWN = 3
_QUOTA_WARN_SHARE = 0.9
# No token can be verified correctly if the clock is earlier than the release of this program.
_RELEASED_AT = 1_790_000_000.0
_CLOCK_SKEW_S = 300.0
_ROUND_TRIP_S = 60.0


async def check_all(loaded: LoadedConfig, now: float) -> list[Check]:
    settings, root = loaded.settings, DataRoot(Path(loaded.settings.data_dir))
    no_config_file = "none found; `florilegium config init` writes one"
    return [
        Check("settings", "warn" if loaded.warnings else "ok", "; ".join(loaded.warnings) or "valid"),
        Check("config file", "ok", str(loaded.config_file.absolute()) if loaded.config_file else no_config_file),
        check_data_directory(root.root),
        evaluate_disk(shutil.disk_usage(_nearest_existing(root.root)).free),
        *(await check_postgres(settings, root) if settings.storage_url else check_files(root, settings.user_max_bytes)),
        *(await check_session_server(settings) if settings.session_url else []),
        check_port(settings),
        await check_auth(settings, now),
        *check_proxies(settings),
        *await check_semantic(settings),
        Check("import sandbox", *probe_sandbox().judge(settings.import_sandbox)),
        evaluate_clock(now, _modified_at(root.control_path)),
        evaluate_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]


def check_data_directory(root: Path) -> Check:
    name = "data directory"
    if not root.exists():
        parent = _nearest_existing(root)
        if os.access(parent, os.W_OK | os.X_OK):
            return Check(name, "ok", f"{root} does not exist yet; it is created on first start")
        return Check(name, "fail", f"{root} cannot be created: uid {os.geteuid()} has no write access to {parent}")
    if not root.is_dir():
        return Check(name, "fail", f"{root} is not a directory; set data_dir to another path")
    if is_read_only(root):
        return Check(name, "fail", f"{root} is on a read-only file system; make it writable")
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return Check(name, "fail", root_advice(root, PermissionError()))
    mode = stat.S_IMODE(root.stat().st_mode)
    if mode & 0o077:
        advice = f"run `chmod 700 {shlex.quote(str(root))}`"
        return Check(name, "warn", f"{root} is accessible to other accounts (mode {mode:04o}); {advice}")
    return Check(name, "ok", f"{root} is private and writable")


def evaluate_disk(free_bytes: int) -> Check:
    free = f"{free_bytes // _MIB} MiB free"
    if free_bytes < _DISK_FAIL_BYTES:
        return Check("disk", "fail", f"{free}; at least {_DISK_FAIL_BYTES // _MIB} MiB required")
    if free_bytes < _DISK_WARN_BYTES:
        return Check("disk", "warn", f"{free}; free some space soon")
    return Check("disk", "ok", free)


async def check_postgres(settings: Settings, root: DataRoot) -> list[Check]:
    """Connects, and counts the users."""
    url = describe_url(settings.storage_url)
    try:
        options = connection_options(settings)
        # Opening the registry would create the tables, in whatever database storage_url names.
        if not await is_control_current(options):
            message = f"{url} can be used; its tables are created or migrated by the next start"
            return [Check("PostgreSQL", "ok", message)]
        async with Registry.open(options) as registry:
            users, quotas = await registry.list_owners(), Quotas(registry.database, settings)
            sizes = await stored_bytes(settings, root, [user.id for user in users])
            limits = {user.id: (await quotas.limits(user.id)).max_bytes for user in users}
    except errors.DatabaseUnavailable as error:
        return [Check("PostgreSQL", "fail", f"{url}: {error.message} ({error.reason})")]
    except errors.FlorilegiumError as error:
        return [Check("PostgreSQL", "fail", f"{url}: {error.message}")]
    # A quota of 0 means no limit.
    shares = [(sizes[user.id] / limits[user.id], user.name) for user in users if limits[user.id]]
    return [
        Check("PostgreSQL", "ok", f"{url} has {pluralize(len(users), 'users')}"),
        evaluate_quotas(shares, settings.user_max_bytes),
    ]


async def check_session_server(settings: Settings) -> list[Check]:
    """Signs in, and reads a key with the prefix of this deployment, which a user of Redis may be forbidden."""
    name, connection = "session server", RedisConnection(settings)
    try:
        protocol = await connection.open()
        try:
            await protocol.send("EXISTS", connection.key("doctor"))
        finally:
            protocol.close()
    except RedisReplyError as error:
        return [Check(name, "fail", f"the server of session_url refuses: {error}")]
    except (OSError, TimeoutError) as error:
        cause = str(error) or f"no answer within {settings.redis_timeout_ms} ms"
        return [Check(name, "fail", f"the server of session_url cannot be reached: {cause}")]
    return [Check(name, "ok", f"answers; keys start with {connection.key()}")]


def check_files(root: DataRoot, max_bytes: int) -> list[Check]:
    sqlite = evaluate_sqlite(sqlite3.sqlite_version_info, has_fts5())
    databases = [check_control_database(root), check_audit_log(root)]
    return [*databases, check_sample(root), check_quotas(root, max_bytes), sqlite]


def check_control_database(root: DataRoot) -> Check:
    name = "control database"
    try:
        root.require_control()
    except errors.StorageError as error:
        return Check(name, "fail", error.message)
    return _check_database(name, root.control_path, "restore it from a backup")


def check_audit_log(root: DataRoot) -> Check:
    advice = f"no events are recorded and no backup is made: check its owner, or move {root.audit_path.name} away"
    return _check_database("audit log", root.audit_path, f"{advice} to start a new one")


def _check_database(name: str, path: Path, advice: str) -> Check:
    """Opens the database read-only and runs SQLite's quick check."""
    if not path.exists():
        return Check(name, "ok", "does not exist yet; it is created on first use")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except errors.DATABASE_ERRORS as error:
        return Check(name, "fail", f"cannot be read: {error}; {advice}")
    if result != "ok":
        return Check(name, "fail", f"damaged; {advice}")
    return Check(name, "ok", "passes the integrity check")


def _read_users(root: DataRoot) -> list[tuple[UserId, str]]:
    root.require_control()
    return read_users(root.control_path) if root.has_control() else []


def check_sample(root: DataRoot) -> Check:
    """Runs SQLite's quick check on the libraries that were written last, and looks for missing files in all."""
    name = "libraries"
    try:
        users = _read_users(root)
        newest_first = sorted(users, key=lambda user: _modified_at(root.paths_of(user[0]).chacha), reverse=True)
        sample = newest_first[:_SAMPLE_USERS]
        faults = [f"{user}: {fault}" for user_id, user in users for fault in missing_files(root, user_id)]
        for user_id, user in sample:
            checks = check_library(root, user_id, is_quick=True)
            faults += [f"{user}: {file.kind}.db is {file.state}" for file in checks if file.state in _SAMPLE_FAULTS]
    except (errors.FlorilegiumError, *errors.DATABASE_ERRORS) as error:
        return Check(name, "fail", f"cannot be checked: {error}")
    if faults:
        return Check(name, "fail", f"{'; '.join(faults[:_FAULTS_SHOWN])}; run `florilegium check`")
    scope = (
        f"{'all' if len(sample) == len(users) else f'a sample of {len(sample)}'} of {pluralize(len(users), 'users')}"
    )
    return Check(name, "ok", f"{scope} checked; `florilegium check` checks everything")


def check_quotas(root: DataRoot, max_bytes: int) -> Check:
    try:
        users = _read_users(root)
        own = read_own_max_bytes(root.control_path) if users else {}
    except errors.FlorilegiumError as error:
        return Check("quotas", "fail", f"cannot be checked: {error.message}")
    shares = [
        (stored_bytes_of_user(root.paths_of(user_id)) / quota, user)
        for user_id, user in users
        if (quota := own.get(user_id, max_bytes))
    ]
    return evaluate_quotas(shares, max_bytes)


def evaluate_quotas(shares: Sequence[tuple[float, str]], max_bytes: int) -> Check:
    """Warns about users whose quota is nearly used up. `shares` are the used part of each user's quota and the name."""
    near = [f"{user} uses {share:.0%}" for share, user in sorted(shares, reverse=True) if share >= _QUOTA_WARN_SHARE]
    general = f"{max_bytes // _MIB} MiB per user (user_max_bytes)" if max_bytes else "no quota is set (user_max_bytes)"
    if near:
        return Check("quotas", "warn", f"{', '.join(near[:_FAULTS_SHOWN])} of the quota; {general}")
    return Check("quotas", "ok", general)


def has_fts5() -> bool:
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE probe USING fts5 (text)")
        except sqlite3.OperationalError:
            return False
    return True


def evaluate_sqlite(version: tuple[int, ...], fts5: bool) -> Check:
    text = ".".join(map(str, version))
    if not fts5:
        advice = "use a Python whose SQLite includes FTS5"
        return Check("SQLite", "fail", f"{text} lacks FTS5, which search requires; {advice}")
    if version < WAL_RESET_FIXED:
        fixed = ".".join(map(str, WAL_RESET_FIXED))
        risk = f"versions before {fixed} can, rarely, corrupt a database that several processes write (WAL-reset bug)"
        return Check("SQLite", "warn", f"{text} with FTS5; {risk}: a second writing process is refused")
    return Check("SQLite", "ok", f"{text} with FTS5")


def check_port(settings: Settings) -> Check:
    where = f"{settings.host} port {settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the server does: connections of a server that stopped a moment ago do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        cause = (error.strerror or "unavailable").lower()
        # In use is what an operator expects while the server runs, if it is this server, and of this version.
        try:
            health = fetch_health(local_url(settings))
        except errors.Unavailable:
            return Check("port", "fail", f"{where} is unavailable ({cause}); choose another port with --port")
        if health.version != VERSION:
            advice = f"but {VERSION} is installed: restart the server"
            return Check("port", "warn", f"{where} is in use by Florilegium {health.version}, {advice}")
        return Check("port", "ok", f"{where} is in use by Florilegium {health.version}, which is running")
    return Check("port", "ok", f"{where} is free")


async def check_auth(settings: Settings, now: float) -> Check:
    name = "authentication"
    try:
        # With the secret, the whole way of a token can be tried: it is minted here and verified as a call would.
        if settings.jwt_secret:
            keys = load_signing_keys(settings)
            assert keys is not None
            token = mint_token(settings, "doctor", SCOPES, lifetime_s=_ROUND_TRIP_S, now=now, client_id="doctor")
            scopes = pluralize(len((await JwtVerifier(settings, keys).verify(token, now)).scopes), "scopes")
            return Check(name, "ok", f"minted and verified a token for {settings.audience} ({scopes})")
        if settings.jwt_key_file:
            load_signing_keys(settings)
            return Check(name, "ok", f"{settings.jwt_key_file} contains a usable public key")
        if settings.jwt_jwks_url:
            # Fetched with the limits of the server, so that a document that is too large or too slow fails here, too.
            from auth.signatures import keys_from_jwks  # noqa: PLC0415 - PyJWT takes 0.2 s to import

            body = await fetch_url(settings.jwt_jwks_url)
            try:
                usable = keys_from_jwks(msgspec.json.decode(body, type=dict[str, list[object]]).get("keys", []))
            except msgspec.MsgspecError:
                return Check(name, "fail", f"{settings.jwt_jwks_url} does not return a JWK set")
            if not usable:
                return Check(name, "fail", f"{settings.jwt_jwks_url} contains no usable signing key")
            return Check(name, "ok", f"{settings.jwt_jwks_url} contains {pluralize(len(usable), 'usable keys')}")
    except errors.FlorilegiumError as error:
        return Check(name, "fail", error.message)
    if settings.require_auth:
        sign_in = ", and sign-in with a browser" if settings.has_oauth_server else " only"
        return Check(name, "ok", f"API keys{sign_in}")
    caller = f"every caller is the user {settings.single_user_name!r}"
    return Check(name, "ok", f"single-user mode: no credential is required; {caller}")


def check_proxies(settings: Settings) -> list[Check]:
    """Reports the addresses that are requested through a proxy of the environment; none if there are none."""
    checks = []
    for name in ("jwt_jwks_url", "chat_upstream_url", "semantic_model", "reranker_url"):
        url = urlsplit(getattr(settings, name))
        if not url.hostname or not uses_proxy(url.scheme, url.hostname):
            continue
        if is_loopback(url.hostname):
            # What is safe without encryption on this machine is not safe through a proxy.
            advice = f"but is requested through the proxy of the environment: add {url.hostname} to NO_PROXY"
            checks.append(Check("proxy", "warn", f"{name} is an address of this machine, {advice}"))
        else:
            checks.append(Check("proxy", "ok", f"{name} is requested through the proxy of the environment"))
    return checks


def evaluate_clock(now: float, newest: float) -> Check:
    """`newest` is a time known to be in the past: the last modification of one of our files."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _RELEASED_AT:
        problem = "which is in the past, so tokens cannot be verified; set the clock"
        return Check("clock", "fail", f"says {shown}, {problem}")
    if newest > now + _CLOCK_SKEW_S:
        return Check("clock", "warn", f"says {shown}, but the control database was modified later than that")
    return Check("clock", "ok", f"says {shown}")


def evaluate_open_files(soft: int) -> Check:
    if soft == resource.RLIM_INFINITY:
        return Check("open files", "ok", "not limited")
    if soft < _OPEN_FILES_WARN:
        advice = f"raise the limit to at least {_OPEN_FILES_WARN} with `ulimit -n`"
        return Check("open files", "warn", f"limited to {soft}; {advice}")
    return Check("open files", "ok", f"limited to {soft}")


def _nearest_existing(path: Path) -> Path:
    return next(ancestor for ancestor in (path, *path.parents) if ancestor.exists())


def _modified_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
