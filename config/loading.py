"""Settings from the command line, the environment and a TOML file, each value with where it came from.

Nothing unknown and nothing malformed is passed over: every problem is reported, all in one error.
"""

import difflib
import os
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields, replace

from config.errors import ConfigurationError
from config.settings import SETTINGS, Setting, Settings, check

DEFAULT_FILE = Path("florilegium.toml")
FILE_VARIABLE = "FLORILEGIUM_CONFIG"

# Read by nobody here: the name under which clients keep their own credential for this server.
CLIENT_TOKEN_VARIABLE = "FLORILEGIUM_TOKEN"  # noqa: S105  a name, not a token

_PREFIX = "FLORILEGIUM_"
_FILE_SUFFIX = "_FILE"
_FILE_MAX_BYTES = 1024 * 1024
_SHOWN_MAX_CHARS = 80
_MASK = "********"
_YES = ("true", "1", "yes", "on")
_NO = ("false", "0", "no", "off")
_WORDS: dict[str, bool] = {word: word in _YES for word in (*_YES, *_NO)}

_BY_NAME = {setting.name: setting for setting in SETTINGS}
_TYPES = {item.name: item.type for item in fields(Settings)}


class Loaded(Struct, frozen=True):
    """The settings, the origin of each, and what the operator should hear about although it is allowed."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()


class Row(Struct, frozen=True):
    """One line of `config show`: the value as TOML writes it, a secret as a mask."""

    name: str
    value: str
    unit: str
    origin: str


class _Layer(Struct):
    """What one place says: good values with their origins, and everything that is wrong or odd about it."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def take(self, name: str, origin: str, given: Any, read: Callable[[Any, str], Any]) -> None:
        """Keep the value, or say why it cannot be one."""
        try:
            self.values[name] = read(given, name)
            self.origins[name] = origin
        except (msgspec.ValidationError, UnicodeEncodeError):
            self.problems.append(_bad_value(_BY_NAME[name], origin, given))


def load(cli: Mapping[str, str | None], environ: Mapping[str, str], config_file: Path | None) -> Loaded:
    """Command line over environment over file over default. A bad value is refused even if another wins."""
    toml_file = _find_toml(config_file, environ)
    layers = (_read_toml(toml_file), _read_environment(environ), _read_command_line(cli))
    problems = [problem for layer in layers for problem in layer.problems]
    if problems:
        raise ConfigurationError("\n".join(problems))
    origins = dict.fromkeys(_BY_NAME, "default")
    values: dict[str, Any] = {}
    for layer in layers:
        origins |= layer.origins
        values |= layer.values
    settings = _with_data_dir(Settings(**values), environ)
    check(settings)
    return Loaded(settings, origins, tuple(warning for layer in layers for warning in layer.warnings))


def describe(loaded: Loaded) -> list[Row]:
    """Every setting with its value and origin, for people: no secret is in it."""
    return [
        Row(setting.name, _shown(setting, loaded.settings), setting.unit, loaded.origins[setting.name])
        for setting in SETTINGS
    ]


def _shown(setting: Setting, settings: Settings) -> str:
    value = getattr(settings, setting.name)
    if setting.secret:
        return _MASK if value else "(not set)"
    return _written(value)


def _written(value: Any) -> str:
    """As TOML writes it; JSON writes texts, lists and truth values the same."""
    if isinstance(value, float):
        return f"{value:.15g}"
    return msgspec.json.encode(value).decode().replace('","', '", "')


def _read_command_line(cli: Mapping[str, str | None]) -> _Layer:
    layer = _Layer()
    for name, given in cli.items():
        if given is None:
            continue
        if name in _BY_NAME:
            layer.take(name, "command line", given, _from_text)
        else:
            layer.problems.append(f"command line: unknown setting {name!r}{_hint(name, _BY_NAME)}")
    return layer


def _read_environment(environ: Mapping[str, str]) -> _Layer:
    layer = _Layer()
    plain = {setting.environment: setting.name for setting in SETTINGS}
    filed = {setting.environment + _FILE_SUFFIX: setting.name for setting in SETTINGS if setting.secret}
    for variable in sorted(name for name in environ if name.startswith(_PREFIX)):
        if variable in plain:
            layer.take(plain[variable], f"environment {variable}", environ[variable], _from_text)
        elif variable in filed and variable.removesuffix(_FILE_SUFFIX) in environ:
            both = f"{variable.removesuffix(_FILE_SUFFIX)} and {variable}"
            layer.problems.append(f"environment: {both} are both set; expected one of them: unset the other")
        elif variable in filed:
            _take_secret_file(layer, filed[variable], variable, Path(environ[variable]))
        elif variable not in (FILE_VARIABLE, CLIENT_TOKEN_VARIABLE):
            known = (*plain, *filed, FILE_VARIABLE)
            layer.problems.append(f"environment: unknown variable {variable}{_hint(variable, known)}")
    return layer


def _take_secret_file(layer: _Layer, name: str, variable: str, path: Path) -> None:
    try:
        content, is_shared = _read(path)
    except (OSError, ValueError) as error:
        layer.problems.append(f"{name} (environment {variable}): {path} cannot be read: {_cause(error)}")
        return
    # Editors and `echo` end a file with one newline; any other white space may belong to the secret.
    secret = content.removesuffix("\n").removesuffix("\r")
    if not secret:
        layer.problems.append(f"{name} (environment {variable}): {path} is empty; expected the secret in it")
        return
    layer.take(name, f"environment {variable}", secret, _from_text)
    if is_shared:
        layer.warnings.append(_shared(path, name))


def _read_toml(path: Path | None) -> _Layer:
    layer = _Layer()
    if path is None:
        return layer
    try:
        content, is_shared = _read(path)
        given = tomllib.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        layer.problems.append(f"file {path} cannot be read: {_cause(error)}")
        return layer
    for name, value in given.items():
        if name in _BY_NAME:
            layer.take(name, f"file {path}", value, _from_toml)
        else:
            layer.problems.append(f"file {path}: unknown setting {name!r}{_hint(name, _BY_NAME)}")
    if is_shared:
        layer.warnings += [_shared(path, name) for name in layer.values if _BY_NAME[name].secret]
    return layer


def _find_toml(config_file: Path | None, environ: Mapping[str, str]) -> Path | None:
    """A file that was named must be there; the one in the working directory need not."""
    named = environ.get(FILE_VARIABLE)
    if config_file or named:
        return config_file or Path(named or "")
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _read(path: Path) -> tuple[str, bool]:
    """The text of a file, and whether accounts other than its owner may read it."""
    with path.open("rb") as file:
        content = file.read(_FILE_MAX_BYTES + 1)
        mode = os.fstat(file.fileno()).st_mode
    if len(content) > _FILE_MAX_BYTES:
        raise ValueError(f"it is larger than {_FILE_MAX_BYTES} bytes")
    return content.decode(), bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def _shared(path: Path, name: str) -> str:
    return f"{path} holds {name} and others may read it; run `chmod 600 {shlex.quote(str(path))}`"


def _cause(error: Exception) -> str:
    """What went wrong, without the content: a decoding error would quote it."""
    match error:
        case OSError():
            return (error.strerror or "input/output error").lower()
        case UnicodeDecodeError():
            return f"expected UTF-8, got something else at byte {error.start}"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error)


def _from_text(given: str, name: str) -> Any:
    """A value from text that people typed: lists with commas, truth values by several words."""
    given.encode()  # bytes that are not UTF-8 arrive as lone surrogates and could not be sent or stored
    kind = get_args(_TYPES[name])[0]
    if get_origin(kind) is tuple:
        return tuple(part for part in (piece.strip() for piece in given.split(",")) if part)
    if kind is bool:
        return msgspec.convert(_WORDS.get(given.strip().lower(), given), bool)
    if kind in (int, float):
        return msgspec.convert(given.strip(), _TYPES[name], strict=False)
    return msgspec.convert(given, _TYPES[name])


def _from_toml(given: Any, name: str) -> Any:
    return msgspec.convert(given, _TYPES[name])


def _bad_value(setting: Setting, origin: str, given: Any) -> str:
    text = repr(given)
    shown = text if len(text) <= _SHOWN_MAX_CHARS else text[:_SHOWN_MAX_CHARS] + "..."
    got = "is not valid" if setting.secret else f"is {shown}"
    return f"{setting.name} ({origin}) {got}; expected {setting.type_text}"


def _hint(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else "; `florilegium config show` lists all"


def _with_data_dir(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The data directory spelled out. The XDG base directory specification tells to ignore a relative one."""
    home = environ.get("HOME", "")
    shared = environ.get("XDG_DATA_HOME", "")
    given = settings.data_dir or (f"{shared}/florilegium" if shared.startswith("/") else "~/.local/share/florilegium")
    if given != "~" and not given.startswith("~/"):
        return replace(settings, data_dir=given)
    if not home:
        raise ConfigurationError("data_dir depends on HOME, which is not set; expected a directory: set data_dir")
    return replace(settings, data_dir=home + given[1:])


_INTRODUCTION = """\
# Settings

Each setting can be given in four places; the first that names it wins:

1. the command line: `--port 9000`;
2. the environment: `FLORILEGIUM_PORT=9000`, that is `FLORILEGIUM_` and the name in upper case;
3. a TOML file: `port = 9000`. The file is the one named by `--config`, or by `FLORILEGIUM_CONFIG`, or
   `florilegium.toml` in the working directory if there is one;
4. the default.

`florilegium config show --origin` prints every value with the place it came from. An unknown name or a bad
value in any of the places stops the start, and the message says what was expected.

On the command line and in the environment a list is written with commas (`a,b`), and a truth value as `true`,
`yes`, `on`, `1` or `false`, `no`, `off`, `0`. A setting marked *secret* is never shown. It can also be read
from a file: `FLORILEGIUM_JWT_SECRET_FILE=/run/secrets/jwt` takes the content without its last newline; naming
both the variable and its `_FILE` is an error. `FLORILEGIUM_TOKEN` is left to clients, for their credential.

In Kubernetes, a Service called `florilegium` puts variables such as `FLORILEGIUM_PORT=tcp://...` into the
pods of its namespace, and they are refused here: set `enableServiceLinks: false`, or rename the Service.

This page is made by `florilegium config docs`.
"""


def settings_markdown() -> str:
    """The manual page `docs/settings.md`, made from the table of settings."""
    return _INTRODUCTION + "".join(
        _group_markdown(group, list(rows)) for group, rows in groupby(SETTINGS, key=lambda row: row.group)
    )


def _group_markdown(group: str, rows: list[Setting]) -> str:
    lines = [f"\n## {group}\n", "| setting | default | unit | value | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        value = f"{row.type_text}, *secret*" if row.secret else row.type_text
        lines.append(f"| `{row.name}` | `{_written(row.default)}` | {row.unit} | {value} | {row.help} |")
    return "\n".join(lines) + "\n"
