"""Translates tldw's `mcp_modules.yaml` into settings, and says what has no equivalent."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from config.errors import ConfigurationError, InvalidParams
from config.loading import format_toml
from config.settings import limit_problems
from sources.importers.engine.markdown_text import parse_yaml
from sources.registry import SOURCES

# For a file that is not what it should be.
_FILE_MAX_BYTES = 1 << 20
_DEPTH_MAX = 16
_NAME_MAX_CHARS = 80
# YAML 1.1 has all of these, and the parser returns texts.
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# Our setting for a key of a module, and how many of its units are one of tldw's.
_LIMITS = {
    "timeout_seconds": ("search_deadline_ms", 1000),
    "circuit_breaker_threshold": ("breaker_failures", 1),
    "circuit_breaker_timeout": ("breaker_pause_s", 1),
}
# Why a key has no setting of a single source.
_NO_EQUIVALENT = {
    "max_concurrent": "search_running_max limits the searches of all sources together",
    "max_retries": "a search is not repeated; the response reports the source that failed",
    "circuit_breaker_backoff_factor": "a failing source is always skipped for breaker_pause_s",
    "circuit_breaker_max_timeout": "a failing source is always skipped for breaker_pause_s",
    "settings": "import or follow the databases of tldw; other settings are in `florilegium config docs`",
}
# Keys that change nothing, so that no note is needed.
_DESCRIPTIVE = frozenset(("id", "class", "enabled", "name", "version", "department", "description"))


class ModuleSettings(Struct, frozen=True):
    """What a file with modules says, as far as it concerns our settings. `notes` is about what has no equivalent."""

    sources_off: list[str] = field(default_factory=list)
    source_limits: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_toml(self) -> str:
        lines = [
            f"{name} = {format_toml(values)}"
            for name, values in (("sources_off", self.sources_off), ("source_limits", self.source_limits))
            if values
        ]
        return "".join(f"{line}\n" for line in (*(lines or ["# The defaults apply."]), *(f"# {n}" for n in self.notes)))


def read_modules_file(path: Path) -> ModuleSettings:
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_MAX_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {(error.strerror or 'input/output error').lower()}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: expected a text file in UTF-8") from error
    if len(content) > _FILE_MAX_BYTES:
        raise ConfigurationError(f"{path}: expected at most {_FILE_MAX_BYTES} bytes")
    try:
        return _read_modules(parse_yaml(text, _DEPTH_MAX))
    except InvalidParams as error:
        raise ConfigurationError(f"{path}: {error.message}") from error


def _read_modules(document: Any) -> ModuleSettings:
    modules = document.get("modules") if isinstance(document, Mapping) else None
    if not isinstance(modules, list):
        raise InvalidParams("expected a list `modules:`, as in mcp_modules.yaml")
    result, known = ModuleSettings(), set[str]()
    for number, module in enumerate(modules, 1):
        if not isinstance(module, Mapping) or not isinstance(module.get("id"), str) or not module["id"].strip():
            raise InvalidParams(f"modules: expected a map with an id as entry {number}")
        name = _shown(module["id"].strip())
        if name in known:
            raise InvalidParams(f"modules: {name} is there twice")
        known.add(name)
        is_enabled = _BOOLEANS.get(str(module.get("enabled", "true")).lower())
        if is_enabled is None:
            raise InvalidParams(f"{name}.enabled: expected true or false, got {_shown(module['enabled'])}")
        if name not in SOURCES:
            if name != "knowledge" and is_enabled:
                result.notes.append(f"{name}: there is no such source here.")
            elif name == "knowledge" and not is_enabled:
                result.notes.append(
                    "knowledge: it cannot be switched off; restrict API keys to a profile without its tools."
                )
        elif not is_enabled:
            result.sources_off.append(name)
        else:
            _read_source(name, module, result)
    missing = [source for source in SOURCES if source not in known]
    if missing:
        result.notes.append(
            f"The file does not have {', '.join(missing)}, which are on here. Switch them off with sources_off."
        )
    return result


def _read_source(name: str, module: Mapping[Any, Any], result: ModuleSettings) -> None:
    for key, value in module.items():
        if key in _LIMITS:
            setting, factor = _LIMITS[key]
            entry = f"{name}.{setting}={_number(f'{name}.{key}', value) * factor:.15g}"
            for problem in limit_problems([entry]):
                raise InvalidParams(f"{name}.{key}: {problem}")
            result.source_limits.append(entry)
        elif key not in _DESCRIPTIVE and value not in ({}, [], ""):
            reason = _NO_EQUIVALENT.get(key, "there is no such setting here")
            # Values can be secrets, such as those of `settings`.
            names = f" ({', '.join(map(_shown, value))})" if isinstance(value, Mapping) else ""
            result.notes.append(f"{name}.{_shown(key)}{names}: {reason}.")


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidParams(f"{name}: expected a number, got {_shown(value)}")
    return number


def _shown(value: Any) -> str:
    """Returns a text of the file for a message or a comment, on one line."""
    return "".join(char if char.isprintable() else "?" for char in str(value)[:_NAME_MAX_CHARS])
