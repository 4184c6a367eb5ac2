"""Writes a software bill of materials (CycloneDX 1.6, JSON) from the hashed runtime lock.

`python .ci/sbom.py LOCK > sbom.json` needs only Python. The lock has versions and hashes, and its comments say which
package needs which. Licences come from the metadata of the packages that are installed. The same lock and
SOURCE_DATE_EPOCH give the same bytes.
"""

import json
import os
import re
import sys
import time
import tomllib
import uuid
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]+)")
_VIA = re.compile(r"^ +#(?: via)? +(?P<name>[\w.-]+)", re.MULTILINE)
_PROJECT = "florilegium"
# A name space for identifiers of these documents.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, f"pkg:pypi/{_PROJECT}")


def main(lock: str) -> int:
    json.dump(build_sbom(Path(lock).read_text()), sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


def build_sbom(lock: str) -> dict[str, Any]:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    packages = list(_packages(lock))
    root = {
        "type": "application",
        "bom-ref": _PROJECT,
        "name": _PROJECT,
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": f"pkg:pypi/{_PROJECT}@{project['version']}",
    }
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{epoch} {lock}')}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "lifecycles": [{"phase": "build"}],
            "component": root,
        },
        "components": [_component(package) for package in packages],
        "dependencies": _dependencies(packages),
    }


def _packages(lock: str) -> Iterator[dict[str, Any]]:
    """Returns the pinned packages. One that has two versions, for different platforms, occurs twice."""
    starts = list(_PIN.finditer(lock))
    for match, following in zip(starts, [*starts[1:], None], strict=True):
        block = lock[match.start() : following.start() if following else len(lock)]
        name = re.sub(r"[-_.]+", "-", match["name"]).lower()
        needed_by = {via["name"] for via in _VIA.finditer(block)}
        yield {"name": name, "version": match["version"], "hashes": _HASH.findall(block), "needed_by": needed_by}


def _reference(package: dict[str, Any]) -> str:
    return f"pkg:pypi/{package['name']}@{package['version']}"


def _component(package: dict[str, Any]) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": content} for content in package["hashes"]]
    component = {
        "type": "library",
        "bom-ref": _reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": _reference(package),
        # The hashes of all files of this version: which one is installed depends on the platform.
        "externalReferences": [{"type": "distribution", "url": _reference(package), "hashes": hashes}],
    }
    licence = _licence(package["name"])
    return {**component, "licenses": [licence]} if licence else component


def _licence(name: str) -> dict[str, Any] | None:
    """Returns the licence that an installed package declares: as an SPDX expression, or by its name."""
    try:
        declared = metadata(name)
    except PackageNotFoundError:
        return None
    if expression := declared.get("License-Expression"):
        return {"expression": expression}
    classifiers = [
        text for text in declared.get_all("Classifier", []) if text.startswith("License :: OSI Approved :: ")
    ]
    text = classifiers[0].rpartition(" :: ")[2] if classifiers else (declared.get("License") or "").partition("\n")[0]
    return {"license": {"name": text}} if text else None


def _dependencies(packages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what each package needs, turned around from what the lock says about who needs it."""
    references = {_PROJECT: [_PROJECT]}
    for package in packages:
        references.setdefault(package["name"], []).append(_reference(package))
    needs: dict[str, set[str]] = {reference: set() for group in references.values() for reference in group}
    for package in packages:
        for name in package["needed_by"]:
            for reference in references.get(name, []):
                needs[reference].add(_reference(package))
    return [{"ref": reference, "dependsOn": sorted(needed)} for reference, needed in sorted(needs.items())]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
