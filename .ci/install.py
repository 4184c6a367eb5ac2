"""Creates a virtual environment and installs hashed locks and this project into it, printing one line per package.

`python .ci/install.py VENV LOCK...` needs only Python 3.11 and pip. It uses uv instead of pip where uv is installed.
A lock is complete, so dependencies are not resolved again.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

_COLLECTING = re.compile(r"Collecting (?P<name>[\w.-]+)==(?P<version>\S+)")
_INSTALLING = "Installing collected packages"
_UNPACKED = "lib/python*/site-packages/*.dist-info"
_UNPACKING_INTERVAL_S = 2.0


def main(venv: str, *locks: str) -> int:
    if sys.version_info < (3, 11):
        print("Florilegium needs Python 3.11 or newer. Try: make PYTHON=python3.11 …", file=sys.stderr)
        return 1
    started = time.monotonic()
    names = " and ".join(locks)
    _say(f"Installing {names} into {venv} (only needed once)")
    uv = shutil.which("uv")
    code = _install_with_uv(uv, venv, locks) if uv else _install_with_pip(venv, locks)
    if code:
        print(f"Installing {names} failed; see the messages above.", file=sys.stderr)
    else:
        _say(f"Installed in {time.monotonic() - started:.0f} s")
    return code


def _install_with_uv(uv: str, venv: str, locks: Sequence[str]) -> int:
    python = _python(venv)
    steps = (
        [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, venv],
        [uv, "pip", "install", "--python", python, "--no-deps", "--require-hashes", *_files(locks)],
        [uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--no-build-isolation", "-e", "."],
    )
    return next((code for code in (subprocess.call(step) for step in steps) if code), 0)


def _install_with_pip(venv: str, locks: Sequence[str]) -> int:
    # The new environment needs no pip of its own: this one installs into it. That saves seconds and works where
    # the distribution ships Python without ensurepip.
    if code := subprocess.call([sys.executable, "-m", "venv", "--without-pip", venv]):
        return code
    pip = [sys.executable, "-m", "pip", "--python", _python(venv), "install", "--disable-pip-version-check"]
    # Compiling all modules would take most of the time. Python compiles those that are imported, when they are.
    command = [*pip, "--no-compile", "--no-input", "--no-deps", "--require-hashes", *_files(locks)]
    if code := _show_progress(command, sum(map(_package_count, locks)), Path(venv)):
        return code
    _say("  installing florilegium itself")
    # The build backend is part of the lock, so building the project downloads nothing.
    path = os.pathsep.join([str(Path(_python(venv)).parent.absolute()), os.environ["PATH"]])
    project = [*pip, "--quiet", "--no-deps", "--no-build-isolation", "-e", "."]
    return subprocess.call(project, env={**os.environ, "PATH": path})


def _show_progress(command: list[str], total: int, venv: Path) -> int:
    """Runs pip and prints a line per package, and how many are unpacked. On failure, prints everything pip said."""
    output = []
    count = 0
    has_ended = threading.Event()
    unpacking = threading.Thread(target=_say_unpacked, args=(venv, total, has_ended))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if match := _COLLECTING.match(line):
                count += 1
                _say(f"  [{count:2}/{total}] {match['name']} {match['version']}")
            elif line.startswith(_INSTALLING):
                unpacking.start()
    has_ended.set()
    if unpacking.ident is not None:
        unpacking.join()
    if process.returncode:
        sys.stderr.writelines(output)
    return process.returncode


def _say_unpacked(venv: Path, total: int, has_ended: threading.Event) -> None:
    """Prints how many packages are unpacked, every few seconds. pip itself prints nothing until all are."""
    _say(f"  unpacking {total} packages")
    count = 0
    while not has_ended.wait(_UNPACKING_INTERVAL_S):
        if (found := len(list(venv.glob(_UNPACKED)))) != count:
            count = found
            _say(f"  {count} of {total} packages are unpacked")


def _package_count(lock: str) -> int:
    """The number of packages in the lock that apply to this platform, as far as its markers tell."""
    pins = re.findall(r"^[a-z0-9].*==.*$", Path(lock).read_text(), re.MULTILINE)
    return sum("sys_platform == 'win32'" not in pin or sys.platform == "win32" for pin in pins)


def _files(locks: Sequence[str]) -> list[str]:
    return [argument for lock in locks for argument in ("-r", lock)]


def _python(venv: str) -> str:
    return str(Path(venv) / "bin" / "python")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
