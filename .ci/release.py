"""Builds a release: wheel, sdist, container context, desktop bundle, SBOM, provenance, checksums and signatures.

`python .ci/release.py DIST` needs a clean checkout of the tag `vVERSION`, which must be the version in pyproject.toml
and the newest heading of the changelog. `--untagged` builds what is there, for `make release-check`. All times in the
files are that of the commit, so that building the same commit again gives the same bytes.

The provenance is an in-toto statement (SLSA provenance v1): the SHA-256 of each file, and the commit and the locks that
it was built from. With RELEASE_SIGNING_KEY, the path of an SSH key, `ssh-keygen -Y sign` signs it and SHA256SUMS.
"""

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
# What a signature is for, so that one that was made for something else is not accepted (`ssh-keygen -Y sign -n`).
SIGNATURE_NAMESPACE = "florilegium-release"
_LOCKS = ("requirements.txt", "requirements-dev.txt")
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE)


class ReleaseError(Exception):
    """The release cannot be built; the message says what to do."""


def main(arguments: list[str]) -> int:
    is_tagged = "--untagged" not in arguments
    folder = Path(next((text for text in arguments if not text.startswith("--")), "dist"))
    try:
        version = check_tag() if is_tagged else project_version()
        build(version, folder, is_tagged=is_tagged)
        if key := os.environ.get("RELEASE_SIGNING_KEY"):
            sign(folder, Path(key))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path}")
    if not key:
        print("not signed: RELEASE_SIGNING_KEY is not set", file=sys.stderr)
    return 0


def check_tag() -> str:
    """Returns the version. Raises ReleaseError unless tag, version and changelog agree and nothing is uncommitted."""
    version = project_version()
    if changes := _git("status", "--porcelain"):
        raise ReleaseError(f"the checkout has uncommitted changes:\n{changes}")
    tags = _git("tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tags:
        found = ", ".join(tags) or "no tag"
        raise ReleaseError(f"expected the tag v{version} (pyproject.toml) at HEAD, got {found}")
    headings = _HEADING.finditer((_ROOT / "CHANGELOG.md").read_text())
    newest = next((match for match in headings if match["version"] != "Unreleased"), None)
    if newest is None or newest["version"] != version or not newest["date"]:
        found = newest[0] if newest else "no version"
        raise ReleaseError(f"CHANGELOG.md: expected the heading `## [{version}] - YYYY-MM-DD` first, got {found}")
    return version


def project_version() -> str:
    version: str = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def build(version: str, folder: Path, *, is_tagged: bool) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise ReleaseError(f"{folder} is not empty; delete it first")
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["SOURCE_DATE_EPOCH"] = epoch = _git("log", "-1", "--format=%ct")
    # The build backend finds its program there.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    hooks = "import sys, uv_build; uv_build.build_wheel(sys.argv[1]); uv_build.build_sdist(sys.argv[1])"
    _run(sys.executable, "-c", hooks, str(folder.absolute()))
    context = folder / f"florilegium-{version}-container-context.tar.gz"
    context.write_bytes(container_context(int(epoch)))
    (folder / f"florilegium-{version}.mcpb").write_bytes(desktop_bundle(version, folder, int(epoch)))
    sbom = subprocess.run(
        [sys.executable, ".ci/sbom.py", "requirements.txt"], cwd=_ROOT, check=True, capture_output=True
    ).stdout
    (folder / f"florilegium-{version}-sbom.cdx.json").write_bytes(sbom)
    statement = provenance(version, folder, is_tagged=is_tagged)
    (folder / f"florilegium-{version}-provenance.json").write_text(json.dumps(statement, indent=2) + "\n")
    lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(lines))


def provenance(version: str, folder: Path, *, is_tagged: bool) -> dict[str, object]:
    """Returns the statement about the files in the folder. It has no time and no name of a machine, so that it is the
    same wherever the commit is built."""
    has_changes = bool(_git("status", "--porcelain"))
    source = {"uri": "git+file:florilegium", "digest": {"gitCommit": _git("rev-parse", "HEAD")}}
    locks = [{"name": name, "digest": {"sha256": _sha256(_ROOT / name)}} for name in _LOCKS]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": _sha256(path)}} for path in sorted(folder.iterdir())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:florilegium:make-release:v1",
                "externalParameters": {
                    "version": version,
                    "tag": f"v{version}" if is_tagged else None,
                    "uncommittedChanges": has_changes,
                },
                "resolvedDependencies": [source, *locks],
            },
            "runDetails": {"builder": {"id": "urn:florilegium:make-release"}},
        },
    }


def sign(folder: Path, key: Path) -> None:
    """Signs the provenance and the checksums. `FILE.sig` is the signature of each."""
    if not key.is_file():
        raise ReleaseError(f"RELEASE_SIGNING_KEY: expected the file of an SSH key, got {key}")
    [statement] = folder.glob("*-provenance.json")
    for path in (statement, folder / "SHA256SUMS"):
        _run(
            "ssh-keygen", "-q", "-Y", "sign", "-f", str(key.absolute()), "-n", SIGNATURE_NAMESPACE, str(path.absolute())
        )


def container_context(epoch: int) -> bytes:
    """Returns what `docker build` needs, and nothing else: the Dockerfile and the files that are not ignored."""
    kept = [line[1:] for line in (_ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    names = _git("ls-files", "--", "Dockerfile", ".dockerignore", *kept).splitlines()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(names):
            content = (_ROOT / name).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), epoch
            entry.mode = 0o755 if os.access(_ROOT / name, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(archive.getvalue(), mtime=epoch)


def desktop_bundle(version: str, folder: Path, epoch: int) -> bytes:
    """Returns the bundle for desktop applications (MCPB manifest 0.4, server type `uv`): the application has uv, which
    installs Python, the wheel and the versions of the lock."""
    [wheel] = folder.glob("*.whl")
    manifest = json.loads((_ROOT / "deploy" / "mcpb" / "manifest.json").read_text())
    pins = re.findall(r"^([\w.-]+==.+?) *\\?$", (_ROOT / "requirements.txt").read_text(), re.MULTILINE)
    # The lock leaves out what dependencies need only to download models, and so does the bundle: a marker that is never
    # true replaces the requirement.
    unused = re.findall(r"^# ([\w.-]+)$", (_ROOT / "requirements.txt").read_text(), re.MULTILINE)
    project = f"""\
[project]
name = "florilegium-bundle"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["florilegium[pdf,office]"]

[tool.uv]
package = false
environments = ["sys_platform == 'darwin'", "sys_platform == 'linux'"]
constraint-dependencies = {json.dumps(pins, indent=4)}
override-dependencies = {json.dumps([f"{name} ; sys_platform == 'never'" for name in unused], indent=4)}

[tool.uv.sources]
florilegium = {{ path = "{wheel.name}" }}
"""
    files = {
        "manifest.json": json.dumps({**manifest, "version": version}, indent=2).encode() + b"\n",
        "pyproject.toml": project.encode(),
        "main.py": (_ROOT / "deploy" / "mcpb" / "main.py").read_bytes(),
        "icon.png": (_ROOT / "server" / "icons" / "512.png").read_bytes(),
        "LICENSE": (_ROOT / "LICENSE").read_bytes(),
        wheel.name: wheel.read_bytes(),
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(epoch)[:6])
            entry.external_attr = 0o644 << 16
            bundle.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _run(*command: str) -> None:
    result = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True)
    if result.returncode:
        raise ReleaseError(f"{command[0]} failed:\n{result.stdout}{result.stderr}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
