"""Builds a release: wheel, sdist, container context and SBOM, with their checksums.

`python .ci/release.py DIST` needs a clean checkout of the tag `vVERSION`, which must be the version in pyproject.toml
and the newest heading of the changelog. `--untagged` builds what is there, for `make release-check`. All times in the
files are that of the commit, so that building the same commit again gives the same bytes.
"""

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE)


class ReleaseError(Exception):
    """The release cannot be built; the message says what to do."""


def main(arguments: list[str]) -> int:
    is_tagged = "--untagged" not in arguments
    folder = Path(next((text for text in arguments if not text.startswith("--")), "dist"))
    try:
        version = check_tag() if is_tagged else project_version()
        build(version, folder)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path}")
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


def build(version: str, folder: Path) -> None:
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
    sbom = subprocess.run(
        [sys.executable, ".ci/sbom.py", "requirements.txt"], cwd=_ROOT, check=True, capture_output=True
    ).stdout
    (folder / f"florilegium-{version}-sbom.cdx.json").write_bytes(sbom)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(lines))


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


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _run(*command: str) -> None:
    result = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True)
    if result.returncode:
        raise ReleaseError(f"{command[0]} failed:\n{result.stdout}{result.stderr}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
