"""Loads settings from the command line, the environment and a TOML file, and records where each value came from.

Unknown names and invalid values are errors. All problems are reported together.
"""

import ipaddress
import math
import os
import shlex
import stat
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct, field, structs

from config.errors import ConfigurationError
from config.settings import SETTINGS, Settings, check

# -- risks -------------------------------------------------------------------------------------------------------------
# Settings that are valid but weaken a deployment. The server starts, and says so in its log and in `doctor`.

# A /8 is the largest private network (RFC 1918), a /7 that of IPv6 (RFC 4193).
_PREFIX_MIN = {4: 8, 6: 7}
# NIST SP 800-131A: keys with less than 112 bits of strength are not acceptable.
_SECRET_MIN_BITS = 112
_COMMON_WORDS = ("changeme", "change-me", "change_me", "example", "password", "qwerty", "secret")


def risks(settings: Settings) -> Iterator[str]:
    for network in settings.trusted_proxies:
        parsed = ipaddress.ip_network(network, strict=False)
        if parsed.prefixlen < _PREFIX_MIN[parsed.version]:
            yield (
                f"trusted_proxies: {network} covers clients as well as proxies, so anyone can claim any address; "
                "list only the addresses of your proxies"
            )
    for host in settings.allowed_hosts:
        if "*" in host:
            yield f"allowed_hosts: {host} is compared literally and matches no request; list the names that you use"
    for name in ("jwt_secret", "metrics_token"):
        secret = getattr(settings, name)
        has_common_word = any(word in secret.lower() for word in _COMMON_WORDS)
        if secret and (has_common_word or estimate_bits(secret) < _SECRET_MIN_BITS):
            yield f"{name}: the value is easy to guess; create one with `openssl rand -base64 48`"
    # With a sign-in provider of the same issuer, no key is needed: users whom earlier tokens created can sign in there.
    sign_in_issuers = [provider.issuer for provider in settings.openid_providers]
    if settings.jwt_issuer and not settings.has_jwt_key and settings.jwt_issuer not in sign_in_issuers:
        advice = "set jwt_jwks_url, jwt_key_file or jwt_secret"
        yield f"jwt_issuer: no token is accepted without a key to verify tokens; {advice}"
    if settings.has_jwt_key and settings.jwt_insecure_no_issuer:
        yield "jwt_insecure_no_issuer: tokens of any service that signs with the same key are accepted"
    if settings.has_jwt_key and settings.jwt_insecure_no_audience:
        yield "jwt_insecure_no_audience: tokens that were issued for another service are accepted"


def estimate_bits(secret: str) -> float:
    """Returns an upper bound of the entropy, from the frequencies of the characters. A repeated text counts once."""
    unit = secret[: (secret + secret).find(secret, 1)]
    counts = Counter(unit)
    return -sum(count * math.log2(count / len(unit)) for count in counts.values())


FILE_NAME = "florilegium.toml"
FILE_VARIABLE = "FLORILEGIUM_CONFIG"
SYSTEM_FILE = Path("/etc/florilegium", FILE_NAME)

# Not a setting: clients keep their credential for this server under this name.
CLIENT_TOKEN_VARIABLE = "FLORILEGIUM_TOKEN"  # noqa: S105  a name, not a token
# Not settings either: the stores of `migrate-store`, whose addresses may contain passwords.
MIGRATION_TARGET_VARIABLE = "FLORILEGIUM_MIGRATE_TO"
MIGRATION_SOURCE_VARIABLE = "FLORILEGIUM_MIGRATE_FROM"
_OTHER_VARIABLES = (FILE_VARIABLE, CLIENT_TOKEN_VARIABLE, MIGRATION_TARGET_VARIABLE, MIGRATION_SOURCE_VARIABLE)

# Variables of AgentChatBus that people who replace it may still set, and our settings.
_AGENTCHATBUS_VARIABLES = {"AGENTCHATBUS_HOST": "host", "AGENTCHATBUS_PORT": "port"}

_PREFIX = "FLORILEGIUM_"
_FILE_SUFFIX = "_FILE"
_FILE_MAX_BYTES = 1024 * 1024
_VALUE_MAX_CHARS = 80
_MASK = "********"
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")
_BOOLEANS: dict[str, bool] = {word: word in _TRUE for word in (*_TRUE, *_FALSE)}

# What replaced settings of earlier versions. The values of others, in FIXED, cannot be changed any more. A value that
# is still in a file or in the environment has no effect, and a warning says so: an upgrade must not stop a server.
REPLACED: Mapping[str, str] = {
    "body_timeout_s": "client_timeout_s",
    "connections_max_per_address": "connections_max (half of it)",
    "connections_max_per_user": "connections_max (half of it)",
    "conversation_hits_max": "message_page_max",
    "conversation_page_max": "message_page_max",
    "follow_jobs_max": "import_jobs_max",
    "head_timeout_s": "client_timeout_s",
    "import_unpacked_max_bytes": "import_max_bytes (16 times as much)",
    "rate_registration_per_minute": "rate_oauth_per_minute (one in 60)",
    "reranker_timeout_ms": "semantic_timeout_ms",
    "user_requests_max_bytes": "requests_max_bytes (a quarter of it)",
    "user_unread_max_bytes": "requests_max_bytes (a quarter of it)",
    "write_timeout_s": "client_timeout_s",
    "ws_ping_interval_s": "sse_keepalive_s",
}
FIXED = frozenset(
    """
    access_recheck_s audit_flush_s audit_queue_max audit_rejections_per_hour body_small_chunks_max
    breaker_entries_max browser_session_max_per_user bus_agent_max_per_user bus_agent_ttl_s bus_message_page_max
    bus_reply_token_max bus_reply_token_max_per_user bus_reply_token_ttl_s bus_response_max_bytes
    chat_context_max_tokens chat_file_max_chars chat_files_max chat_history_max_chars chat_message_max_chars
    chat_passages_max chat_response_max_bytes chat_retry_window_s chat_turn_max_s chunk_overlap_chars
    chunk_size_chars connection_in_flight_max conversation_events_interval_ms conversation_events_max_s
    conversation_messages_max conversation_response_max_bytes conversation_search_message_chars
    conversation_search_scan_max
    elicitation_timeout_s embedding_deadline_s embedding_idle_s fanout_depth fanout_scan_max fanout_source_max
    follow_database_scan_s follow_events follow_poll_s follow_scan_s follow_unwatched_scan_s follow_url_s
    follow_url_timeout_s form_max_bytes head_max_bytes idempotency_max_keys idempotency_ttl_s import_batch_chars
    import_batch_items import_deadline_s import_depth_max import_failed_max import_file_max_bytes
    import_history_max import_images_max_bytes import_jobs_max_per_user import_line_max_bytes import_lines_max
    import_max_conversations import_messages_max import_parser_cpu_s import_parser_deadline_s
    import_parser_memory_mib
    import_problems_max import_queue_max import_reader_deadline_s import_skipped_max import_turn_s
    import_unpacked_ratio_max import_values_max invitation_lifetime_s jwks_max_bytes jwks_refresh_min_s
    jwks_stale_max_s jwks_timeout_s jwks_ttl_s jwt_client_claim jwt_leeway_s jwt_token_types
    key_last_used_flush_s known_browser_lifetime_s library_flush_s library_jobs_max library_queue_max
    library_stop_ms library_wait_max_ms list_page_size list_ttl_ms loop_block_warn_ms
    memory_exchange_max_messages memory_scan_max message_scan_max_rows migration_copies_max
    model_download_timeout_s oauth_assertion_lifetime_max_s oauth_client_metadata_max
    oauth_client_metadata_max_bytes oauth_client_metadata_timeout_s oauth_client_metadata_ttl_s
    oauth_client_unused_ttl_s oauth_clients_max oauth_code_ttl_s oauth_connections_max_per_user
    oauth_device_code_ttl_s oauth_device_codes_max oauth_device_interval_s oauth_redirect_uris_max
    oauth_refresh_retry_s observations_batch_max openid_flow_lifetime_s openid_max_bytes openid_metadata_ttl_s
    openid_timeout_s passkey_challenge_lifetime_s passkey_max_per_user passkey_recent_sign_in_s
    password_hash_jobs_max password_hash_passes password_hash_queue_max password_max_chars
    postgres_connect_timeout_s postgres_connection_lifetime_s postgres_connection_max_queries
    postgres_hnsw_min_passages postgres_idle_timeout_ms postgres_lock_timeout_ms postgres_silence_max_ms
    postgres_statement_timeout_ms prompt_max_chars query_max_chars query_max_terms rate_failures_burst
    rate_keys_max rate_oauth_burst rate_registration_burst rate_sign_in_account_burst rate_sign_in_address_burst
    rate_sign_in_address_per_minute rate_tool_burst rate_user_burst recent_calls_max recent_calls_users_max
    redis_pause_ms refused_body_timeout_s request_config_max_bytes reranker_hits_max reset_link_lifetime_s
    retrieval_chunk_overlap_tokens retrieval_chunk_tokens retrieval_sibling_window search_near_words_max
    search_ranked_rows_max search_response_default_bytes search_snippet_chars search_vocabulary_mib
    semantic_endpoint_attempts_max semantic_endpoint_batch_max semantic_endpoint_timeout_s
    semantic_query_cache_max semantic_response_max_bytes session_max_per_user session_queries_max
    session_state_max session_state_max_per_user setup_link_lifetime_s tag_max_chars tags_max title_max_chars
    token_cache_max token_cache_ttl_s token_failure_cache_ttl_s token_max_bytes uri_max_chars worker_hang_s
    ws_fragments_max ws_frames_burst ws_frames_per_s ws_pings_per_s ws_ticket_ttl_s
    """.split()  # noqa: SIM905 - a list would take a line for each name
)

_BY_NAME = {setting.name: setting for setting in SETTINGS}
_TYPES = {item.name: item.type for item in structs.fields(Settings)}


class LoadedConfig(Struct, frozen=True):
    """The settings, the origin of each value, warnings for the operator, and the TOML file that was read, if any."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    config_file: Path | None = None


class SettingRow(Struct, frozen=True):
    """One line of `config show`. The value is written as in TOML; secrets are masked."""

    name: str
    value: str
    unit: str
    origin: str


class _Layer(Struct):
    """The values of one place (file, environment or command line), with its problems and warnings."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, origin: str, value: Any, convert: Callable[[Any, str], Any]) -> None:
        """Adds the converted value, or a problem if it is invalid."""
        try:
            self.values[name] = convert(value, name)
            self.origins[name] = origin
        except (msgspec.DecodeError, UnicodeEncodeError):
            setting = _BY_NAME[name]
            text = repr(value)
            text = text if len(text) <= _VALUE_MAX_CHARS else text[:_VALUE_MAX_CHARS] + "..."
            got = "; the value is not shown" if setting.is_secret else f", got {text}"
            self.problems.append(f"{name} ({origin}): expected {setting.type_text}{got}")


def load_settings(cli: Mapping[str, str | None], environ: Mapping[str, str], config_file: Path | None) -> LoadedConfig:
    """Loads the settings. The command line overrides the environment, which overrides the file.

    An invalid value is an error even if it is overridden.
    """
    toml_file = find_config_file(config_file, environ)
    command_line = _Layer()
    for name, value in cli.items():
        if value is not None and name in _BY_NAME:
            command_line.add(name, "command line", value, _from_text)
        elif value is not None:
            command_line.problems.append(f"command line: unknown setting {name!r}{_hint(name, _BY_NAME)}")
    layers = (_read_toml(toml_file), _read_environment(environ), command_line)
    problems = [problem for layer in layers for problem in layer.problems]
    if problems:
        raise ConfigurationError("\n".join(problems))
    origins = dict.fromkeys(_BY_NAME, "default")
    values: dict[str, Any] = {}
    for layer in layers:
        origins |= layer.origins
        values |= layer.values
    if toml_file is not None and origins["data_dir"] == _file_origin(toml_file):
        # Relative to the file that sets it, so that every working directory gives the same one.
        data_dir = values["data_dir"]
        if data_dir and not data_dir.startswith("~"):
            values["data_dir"] = str(toml_file.parent / data_dir)
    settings = _with_data_dir(Settings(**values), environ)
    check(settings)
    warnings = [warning for layer in layers for warning in layer.warnings]
    # A variable of AgentChatBus looks as if it had an effect. It has none, because its own server may run on the same
    # machine, and would then compete for the port.
    for variable, name in _AGENTCHATBUS_VARIABLES.items():
        if environ.get(variable) and origins[name] == "default":
            warnings.append(f"{variable} has no effect here; set {_BY_NAME[name].environment} or pass --{name}")
    return LoadedConfig(settings, origins, (*warnings, *risks(settings)), toml_file)


def describe_settings(loaded: LoadedConfig) -> list[SettingRow]:
    """Returns every setting with its value and origin. Secrets are masked."""
    rows = []
    for setting in SETTINGS:
        value = getattr(loaded.settings, setting.name)
        shown = (_MASK if value else "(not set)") if setting.is_secret else format_toml(value)
        rows.append(SettingRow(setting.name, shown, setting.unit, loaded.origins[setting.name]))
    return rows


def format_toml(value: Any) -> str:
    """Formats a value as in TOML. JSON writes strings, lists and booleans the same way."""
    if isinstance(value, float):
        return f"{value:.15g}"
    return msgspec.json.encode(value).decode().replace('","', '", "')


def _read_environment(environ: Mapping[str, str]) -> _Layer:
    layer = _Layer()
    variables = {setting.environment: setting.name for setting in SETTINGS}
    file_variables = {setting.environment + _FILE_SUFFIX: setting.name for setting in SETTINGS if setting.is_secret}
    for variable in sorted(name for name in environ if name.startswith(_PREFIX)):
        if variable in variables:
            layer.add(variables[variable], f"environment {variable}", environ[variable], _from_text)
        elif variable in file_variables and variable.removesuffix(_FILE_SUFFIX) in environ:
            both = f"{variable.removesuffix(_FILE_SUFFIX)} and {variable}"
            layer.problems.append(f"environment: {both} are both set; unset one of them")
        elif variable in file_variables:
            if environ[variable]:
                _read_secret_file(layer, file_variables[variable], variable, Path(environ[variable]))
            else:
                layer.problems.append(f"environment: {variable} is empty; set it to the path of a file, or unset it")
        elif warning := _former_setting(variable.removeprefix(_PREFIX).lower()):
            layer.warnings.append(f"environment {variable}: {warning}")
        elif variable not in _OTHER_VARIABLES:
            # Without the prefix, which makes all names similar.
            known = [name.removeprefix(_PREFIX) for name in (*variables, *file_variables, FILE_VARIABLE)]
            hint = _hint(variable.removeprefix(_PREFIX), known, _PREFIX)
            layer.problems.append(f"environment: unknown variable {variable}{hint}")
    return layer


def _read_secret_file(layer: _Layer, name: str, variable: str, path: Path) -> None:
    try:
        content, is_shared = _read_file(path)
    except (OSError, ValueError) as error:
        layer.problems.append(f"{name} (environment {variable}): {path} cannot be read: {_cause(error)}")
        return
    # Editors and `echo` end a file with one newline; other white space may be part of the secret.
    secret = content.removesuffix("\n").removesuffix("\r")
    if not secret:
        layer.problems.append(f"{name} (environment {variable}): {path} is empty; expected the secret")
        return
    layer.add(name, f"environment {variable}", secret, _from_text)
    if is_shared:
        layer.warnings.append(_shared_file_warning(path, name))


def _read_toml(path: Path | None) -> _Layer:
    layer = _Layer()
    if path is None:
        return layer
    try:
        content, is_shared = _read_file(path)
        table = tomllib.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        layer.problems.append(f"file {path} cannot be read: {_cause(error)}")
        return layer
    for name, value in table.items():
        if name in _BY_NAME:
            layer.add(name, _file_origin(path), value, lambda value, name: msgspec.convert(value, _TYPES[name]))
        elif warning := _former_setting(name):
            layer.warnings.append(f"{_file_origin(path)}: {name}: {warning}")
        else:
            hint = "; settings are not grouped in tables" if isinstance(value, dict) else _hint(name, _BY_NAME)
            layer.problems.append(f"file {path}: unknown setting {name!r}{hint}")
    if is_shared:
        layer.warnings += [_shared_file_warning(path, name) for name in layer.values if _BY_NAME[name].is_secret]
    return layer


def _former_setting(name: str) -> str:
    """Returns a warning if a name was a setting in an earlier version."""
    if name in REPLACED:
        return f"replaced by {REPLACED[name]}; the value is ignored"
    return "the value is fixed now; this one is ignored" if name in FIXED else ""


def find_config_file(config_file: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Returns the file to read. A file that is named explicitly must exist; of the others, the first that exists is
    read."""
    named = environ.get(FILE_VARIABLE)
    if config_file or named:
        return config_file or Path(named or "")
    return next((path for path in default_config_files(environ) if _exists(path)), None)


def default_config_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Returns the files to look for, in this order: in the working directory, the user's and the system's."""
    user_file = user_config_file(environ)
    return (Path(FILE_NAME), *((user_file,) if user_file else ()), SYSTEM_FILE)


def user_config_file(environ: Mapping[str, str]) -> Path | None:
    """Returns the user's own file. A relative XDG_CONFIG_HOME is ignored, as the XDG specification requires."""
    xdg_config_home, home = environ.get("XDG_CONFIG_HOME", ""), environ.get("HOME", "")
    if xdg_config_home.startswith("/"):
        return Path(xdg_config_home, "florilegium", FILE_NAME)
    return Path(home, ".config", "florilegium", FILE_NAME) if home else None


def _exists(path: Path) -> bool:
    """Whether a file exists. A file in a directory that this account may not search counts as existing, so that reading
    it fails with an error; skipping it would silently select another data directory."""
    try:
        return path.exists()
    except PermissionError:
        return True


def _file_origin(path: Path) -> str:
    return f"file {path}"


def _read_file(path: Path) -> tuple[str, bool]:
    """Returns the text of a file, and whether accounts can read it that need not. A service reads a file of root as a
    member of its group."""
    with path.open("rb") as file:
        content = file.read(_FILE_MAX_BYTES + 1)
        status = os.fstat(file.fileno())
    if len(content) > _FILE_MAX_BYTES:
        raise ValueError(f"it is larger than {_FILE_MAX_BYTES} bytes")
    others = stat.S_IROTH | (stat.S_IRGRP if status.st_uid == os.geteuid() else 0)
    return content.decode(), bool(status.st_mode & others)


def _shared_file_warning(path: Path, name: str) -> str:
    advice = f"run `chmod 600 {shlex.quote(str(path))}`"
    if path.stat().st_uid != os.geteuid():  # with that mode this account could not read it
        advice = f"give it a group of uid {os.geteuid()}, and the mode 640"
    return f"{path} contains {name} and is readable by other users; {advice}"


def _cause(error: Exception) -> str:
    """Describes an error without the file's content, which a decoding error would quote."""
    match error:
        case OSError():
            return (error.strerror or "input/output error").lower()
        case UnicodeDecodeError():
            return f"invalid UTF-8 at byte {error.start}"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error).replace("Cannot overwrite a value", "a setting is set twice")


def _from_text(text: str, name: str) -> Any:
    """Converts text from the command line or the environment. Lists are comma-separated; see `_BOOLEANS`."""
    text.encode()  # rejects lone surrogates, which represent bytes that are not UTF-8
    kind = get_args(_TYPES[name])[0]
    if get_origin(kind) is tuple and get_args(kind)[0] is not str:
        return msgspec.json.decode(text, type=_TYPES[name])
    if get_origin(kind) is tuple:
        return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
    if kind is bool:
        return msgspec.convert(_BOOLEANS.get(text.strip().lower(), text), bool)
    if kind in (int, float):
        return msgspec.convert(text.strip(), _TYPES[name], strict=False)
    return msgspec.convert(text, _TYPES[name])


def _hint(name: str, known: Iterable[str], prefix: str = "") -> str:
    import difflib  # noqa: PLC0415 - only such errors need it

    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{nearest[0]}?" if nearest else "; `florilegium config show` lists all settings"


def _with_data_dir(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Resolves the data directory. A relative XDG_DATA_HOME is ignored, as the XDG specification requires."""
    home = environ.get("HOME", "")
    xdg_data_home = environ.get("XDG_DATA_HOME", "")
    default = f"{xdg_data_home}/florilegium" if xdg_data_home.startswith("/") else "~/.local/share/florilegium"
    data_dir = settings.data_dir or default
    if data_dir != "~" and not data_dir.startswith("~/"):
        return structs.replace(settings, data_dir=data_dir)
    if not home:
        raise ConfigurationError("data_dir depends on HOME, which is not set; set data_dir to a directory")
    return structs.replace(settings, data_dir=home + data_dir[1:])


_INTRODUCTION = """\
# Settings

You can set a setting in four places. The first place that sets it wins:

1. The command line: `--port 9000`.
2. The environment: `FLORILEGIUM_PORT=9000`, that is, `FLORILEGIUM_` and the name in upper case.
3. A TOML file: `port = 9000`. Only the first of these files is read: the one given by `--config`, the one given by
   `FLORILEGIUM_CONFIG`, `florilegium.toml` in the working directory, `$XDG_CONFIG_HOME/florilegium/florilegium.toml`
   (`~/.config/florilegium/florilegium.toml` by default), `/etc/florilegium/florilegium.toml`.
4. The default.

`florilegium config init` writes a TOML file that contains every setting as a comment. A relative `data_dir` in a file
is relative to the directory of that file. `florilegium doctor` prints the file and the data directory in use, and
`florilegium config show --origin` every value and where it came from.

The server does not start if a name is unknown or a value is invalid; the error message says what was expected. Settings
of earlier versions are ignored in files and in the environment, with a warning that says what replaced them.

On the command line and in the environment, write lists with commas (`a,b`), and booleans as `true`, `yes`, `on`, `1` or
`false`, `no`, `off`, `0`. A *secret* is never displayed. It can be read from a file:
`FLORILEGIUM_JWT_SECRET_FILE=/run/secrets/jwt` uses the content of the file without its last newline. Setting both the
variable and its `_FILE` variant is an error. Secrets have no option on the command line, where other users of the
machine could read them. `FLORILEGIUM_TOKEN` is not a setting: clients keep their credential in it.

To change a *reloadable* setting while the server runs, change the file and send SIGHUP to the process. The log says
what changed and which changes need a restart ([Deployment](deploy.md#signals)).

In Kubernetes, a Service called `florilegium` adds variables such as `FLORILEGIUM_PORT=tcp://...` to the pods of its
namespace, which are rejected. Set `enableServiceLinks: false`, or rename the Service.

Each line shows the default, then the possible values. A range is of whole numbers unless it says "number". The unit is
in the name or follows the range. This page is generated by `florilegium config docs`.
"""


def settings_markdown() -> str:
    """Returns the content of `docs/settings.md`, generated from the table of settings."""
    lines = [_INTRODUCTION]
    for group, rows in groupby(SETTINGS, key=lambda row: row.group):
        lines.append(f"## {group}\n")
        for row in rows:
            # The default shows that a setting is a text, a list or a boolean.
            kind = "" if row.type_text in {"text", "list of strings", "true or false"} else row.type_text
            unit = "" if row.name.endswith(f"_{row.unit.lower()}") else row.unit
            values = f"{kind.removeprefix('integer from ')} {unit}".strip()
            marks = ("*secret*" if row.is_secret else "", "*reloadable*" if row.is_reloadable else "")
            details = ", ".join(filter(None, (values, *marks)))
            default = f"`{row.name} = {format_toml(row.default)}`"
            lines.append(f"- {default}{f' ({details})' if details else ''}: {row.description}")
        lines.append("")
    return "\n".join(lines)


# -- sample ------------------------------------------------------------------------------------------------------------
# The sample TOML file that `florilegium config init` writes: every setting, commented out, with its default.

_WIDTH = 100
_SAMPLE_INTRODUCTION = """\
# Settings of Florilegium. Every line is a comment that shows a default: remove the "#" to change a setting.
# The command line (--port 9000) and the environment (FLORILEGIUM_PORT=9000) override this file.
"""


def sample_toml() -> str:
    text = _SAMPLE_INTRODUCTION
    for title, settings in groupby(SETTINGS, key=lambda setting: setting.group):
        text += f"\n# {title}\n# {'-' * len(title)}\n"
        for setting in settings:
            kind = ", ".join(filter(None, (setting.type_text, setting.unit, "secret" if setting.is_secret else "")))
            comment = textwrap.fill(
                f"{setting.description} ({kind})",
                _WIDTH,
                initial_indent="# ",
                subsequent_indent="# ",
                break_on_hyphens=False,
            )
            text += f"\n{comment}\n# {setting.name} = {format_toml(setting.default)}\n"
    return text
