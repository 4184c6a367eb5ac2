"""Looks up the pinned packages of the locks in the OSV database of known vulnerabilities.

`python .ci/audit.py LOCK...` exits 0 if none is affected, 1 if one is, and 75 (EX_TEMPFAIL of sysexits.h) if nothing
was checked: the database cannot be reached, or the locks pin nothing. A build without a network can tell that apart and
go on; see `.ci/run`. It needs only Python.
"""

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

DATABASE = "https://api.osv.dev"
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
_BATCH = 500
_TIMEOUT_S = 20
_NOT_CHECKED = 75

Package = tuple[str, str]


def main(locks: Iterable[str], database: str) -> int:
    packages = sorted({pin for lock in locks for pin in pinned(Path(lock).read_text())})
    if not packages:
        print("Not checked: the locks pin no package.")
        return _NOT_CHECKED
    try:
        found = {package: ids for package, ids in look_up(packages, database) if ids}
    except (OSError, ValueError) as error:
        print(f"Not checked: {database} cannot be reached ({error}).")
        return _NOT_CHECKED
    for (name, version), ids in found.items():
        print(f"{name} {version}: {', '.join(ids)}")
    print(f"{len(packages)} packages checked, {len(found)} with known vulnerabilities.")
    return 1 if found else 0


def pinned(lock: str) -> Iterator[Package]:
    for match in _PIN.finditer(lock):
        yield match[1].lower(), match[2]


def look_up(packages: list[Package], database: str) -> Iterator[tuple[Package, list[str]]]:
    for start in range(0, len(packages), _BATCH):
        batch = packages[start : start + _BATCH]
        queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in batch]
        results = _post(f"{database}/v1/querybatch", {"queries": queries})["results"]
        for package, result in zip(batch, results, strict=True):
            yield package, [entry["id"] for entry in result.get("vulns", ())]


def _post(url: str, body: object) -> dict[str, list[dict[str, list[dict[str, str]]]]]:
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - the URL comes from the command line
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - as above
        answer: dict[str, list[dict[str, list[dict[str, str]]]]] = json.load(response)
    return answer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("locks", nargs="+")
    parser.add_argument("--database", default=DATABASE)
    options = parser.parse_args()
    sys.exit(main(options.locks, options.database))
