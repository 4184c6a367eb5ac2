"""Puts this process into the sandbox, layer by layer. Layers that the kernel lacks are left out and reported."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from sources.importers.sandbox.landlock import LandlockRules, landlock_version
from sources.importers.sandbox.privileges import change_user, drop_capabilities, leave_network
from sources.importers.sandbox.report import LANDLOCK, NO_SANDBOX, SECCOMP, SandboxMode, SandboxReport
from sources.importers.sandbox.seccomp import refuse_system_calls

Result = TypeVar("Result")
_ROOT = Path(__file__).resolve().parents[3]
_OWN_PACKAGES = (_ROOT / "config", _ROOT / "sources")
_SYSTEM_FILES = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache"),
    *("/usr/share/zoneinfo", "/etc/localtime", "/dev/null", "/dev/urandom"),
)


def confine(paths: Iterable[Path], mode: SandboxMode) -> None:
    """Enters the sandbox as the setting `import_sandbox` requires. Exits if that is impossible."""
    if mode == "off":
        return
    report = enter_sandbox(paths)
    if mode == "required" and not report.is_sufficient:
        sys.stderr.write(f"import_sandbox is required, but {report}\n")
        sys.exit(NO_SANDBOX)


def enter_sandbox(paths: Iterable[Path]) -> SandboxReport:
    """Confines this process permanently to reading the paths and the files of Python itself. The process must have one
    thread, because some layers apply to the calling thread only."""
    layers = _Layers()
    # The files are opened first, while this user may still open them.
    rules = layers.attempt(LANDLOCK, lambda: _landlock_rules(paths))
    layers.add("namespaces", leave_network)
    layers.add("user id", change_user)
    if "user id" not in layers.active:
        layers.add("capabilities", drop_capabilities)
    if rules is not None:
        layers.add(LANDLOCK, lambda: _enforce(rules))
    layers.add(SECCOMP, refuse_system_calls)
    return SandboxReport(layers.active, layers.missing)


class _Layers:
    """Collects which layers work, and why the others do not."""

    def __init__(self) -> None:
        self.active: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def add(self, name: str, start: Callable[[], str]) -> None:
        description = self.attempt(name, start)
        if description is not None:
            self.active[name] = description

    def attempt(self, name: str, start: Callable[[], Result]) -> Result | None:
        try:
            return start()
        except OSError as error:
            self.missing[name] = (error.strerror or str(error)).lower()
            return None


def _landlock_rules(paths: Iterable[Path]) -> LandlockRules:
    rules = LandlockRules()
    rules.allow_reading((*paths, *_python_files(), *map(Path, _SYSTEM_FILES)))
    return rules


def _enforce(rules: LandlockRules) -> str:
    rules.enforce()
    return f"{LANDLOCK} {landlock_version()}"


def _python_files() -> Sequence[Path]:
    """Returns the folders of Python's modules, which are loaded when a format needs them. Of the folder with our own
    packages only these are included, because it may also contain a data directory."""
    folders = [Path(entry).resolve() for entry in sys.path if entry]
    return [*(folder for folder in folders if folder != _ROOT or _is_site(folder)), *_OWN_PACKAGES]


def _is_site(folder: Path) -> bool:
    """Whether we are installed, next to the packages that the parsers need."""
    return folder.name in ("site-packages", "dist-packages")
