"""Applies changed settings while the server runs. Settings declare whether they can be; the others need a restart."""

from collections.abc import Callable, Sequence

from loguru import logger
from msgspec import Struct, structs

from auth.authenticator import RegistryAuthenticator
from auth.signing_keys import load_signing_keys
from auth.tokens import JwtVerifier
from config.errors import ConfigurationError
from config.logging import configure
from config.settings import SETTINGS, Settings
from server.metrics import Metrics
from server.runtime import Runtime

RELOADABLE = frozenset(setting.name for setting in SETTINGS if setting.is_reloadable)


class ReloadTarget(Struct, frozen=True):
    """Part of the server that uses `names`. `apply` is called with the new settings if one of them changed, or at every
    reload if it `reads_files`."""

    names: frozenset[str]
    apply: Callable[[Settings], None]
    reads_files: bool = False


def reload_targets(runtime: Runtime, metrics: Metrics) -> Sequence[ReloadTarget]:
    """Returns the targets. Only the first can fail, so that a reload changes everything or nothing."""

    def use_keys(settings: Settings) -> None:
        keys = load_signing_keys(settings) if settings.jwt_secret or settings.jwt_key_file else None
        if keys is not None and isinstance(runtime.authenticator, RegistryAuthenticator):
            runtime.authenticator.use_verifier(JwtVerifier(settings, keys))

    def use_log_settings(settings: Settings) -> None:
        configure(settings.log_level, settings.log_format)

    return (
        ReloadTarget(frozenset(("jwt_secret", "jwt_previous_secrets", "jwt_key_file")), use_keys, reads_files=True),
        ReloadTarget(frozenset(("log_level", "log_format")), use_log_settings),
        ReloadTarget(frozenset(("metrics_token",)), metrics.use_settings),
        ReloadTarget(frozenset(("user_max_bytes", "user_max_items", "user_max_passages")), runtime.quotas.use_settings),
    )


class SettingsReload:
    def __init__(self, settings: Settings, load: Callable[[], Settings], targets: Sequence[ReloadTarget]) -> None:
        self._settings = settings
        self._load = load
        self._targets = targets

    def reload(self) -> None:
        """Loads the settings and applies those that can change. Invalid settings change nothing."""
        try:
            before, loaded = self._settings, self._load()
            values = {s.name: (getattr(before, s.name), getattr(loaded, s.name)) for s in SETTINGS}
            differing = [name for name, (old, new) in values.items() if old != new]
            # Whether JWTs are accepted at all cannot change.
            fixed = {name for name in ("jwt_secret", "jwt_key_file") if bool(values[name][0]) != bool(values[name][1])}
            changed = RELOADABLE.intersection(differing) - fixed
            others = [name for name in differing if name not in changed]
            settings = structs.replace(before, **{name: values[name][1] for name in changed})
            for target in self._targets:
                if target.reads_files or target.names & changed:
                    target.apply(settings)
        except ConfigurationError as error:
            logger.error("the settings were not reloaded: {}", error.message)
            return
        self._settings = settings
        logger.info("settings reloaded; changed: {}", ", ".join(sorted(changed)) or "none")
        if others:
            logger.warning("these changed settings need a restart: {}", ", ".join(others))
