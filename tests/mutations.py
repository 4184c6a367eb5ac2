"""Seeds one defect at a time into a copy of the product, and shows whether the tests of the first tier notice it.

`python -m tests.mutations` prints a row for each defect and a line with the counts. It is for changes of the tests
themselves: what was noticed before must be noticed afterwards. `--tree` names another checkout, such as that of an
older version, and `--options` what pytest gets instead of `--tier=first`.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 600


class Defect(NamedTuple):
    """In `file`, the text `before` occurs once and is replaced by `after`. `tests` are the folders or files to run."""

    file: str
    before: str
    after: str
    tests: str


DEFECTS = (
    # auth
    Defect("auth/rate_limits.py", "if wait_s > 1e-9:", "if wait_s > 1.0:", "tests/auth/test_rate_limits.py"),
    Defect("auth/tickets.py", "_tickets.pop(digest, ", "_tickets.get(digest, ", "tests/auth/test_tickets.py"),
    Defect(
        "auth/tickets.py",
        "if self._per_user[principal.user_id] >= self._max_per_user",
        "if self._per_user[principal.user_id] > self._max_per_user",
        "tests/auth/test_tickets.py",
    ),
    Defect("auth/tokens.py", "audience not in audiences:", "audience in audiences:", "tests/auth/test_tokens.py"),
    Defect(
        "auth/tokens.py",
        '_require_time(payload["nbf"], "nbf") > now + leeway_s',
        '_require_time(payload["nbf"], "nbf") > now + leeway_s + 1e9',
        "tests/auth/test_tokens.py tests/auth/test_attack_tokens.py tests/auth/test_authenticator.py",
    ),
    Defect(
        "auth/registry.py",
        "and now >= self.expires_at",
        "and now > self.expires_at + 60",
        "tests/auth/test_registry.py",
    ),
    Defect(
        "auth/authenticator.py",
        "if user.is_disabled:",
        "if False:",
        "tests/auth/test_authenticator.py",
    ),
    Defect(
        "auth/browser_sessions.py",
        "is_current and epoch == user.epoch and not user.is_disabled",
        "is_current and not user.is_disabled",
        "tests/auth/test_browser_sessions.py",
    ),
    Defect(
        "auth/oauth/grants.py",
        "if not is_loopback_uri(requested) or _problem(requested, is_native=True):",
        "if not is_loopback_uri(requested):",
        "tests/auth/oauth",
    ),
    Defect(
        "auth/quotas.py",
        "settings.user_max_items if overrides.max_items is None else overrides.max_items",
        "settings.user_max_items",
        "tests/server/test_quotas.py",
    ),
    Defect("auth/tokens.py", "accepted.isdisjoint(values)", "False", "tests/auth/test_tokens.py"),
    # config
    Defect(
        "config/public_http.py",
        "return address.is_global and not address.is_multicast",
        "return not address.is_multicast",
        "tests/config/test_public_http.py",
    ),
    Defect("config/public_http.py", 'or "@" in parts.netloc', "", "tests/config/test_public_http.py"),
    # sessions
    Defect("sessions/state.py", "self.versions.get(uri) == version", "uri in self.versions", "tests/sessions"),
    Defect("sessions/state.py", "len(entry.seen) - seen_max)", "len(entry.seen) - seen_max - 1)", "tests/sessions"),
    # aggregator
    Defect(
        "aggregator/ranking.py",
        "end = waiting[0].position if waiting",
        "end = selection.end if waiting",
        "tests/aggregator/test_paging.py",
    ),
    Defect(
        "aggregator/ranking.py",
        "if shown and result.size > room_bytes:",
        "if result.size > room_bytes:",
        "tests/aggregator/test_paging.py",
    ),
    Defect(
        "aggregator/ranking.py",
        "if key in unfinished and not counts[key]:",
        "if False:",
        "tests/aggregator/test_paging.py tests/aggregator/test_merge.py",
    ),
    # sources
    Defect("sources/text/chunking.py", "if following.islower():", "if False:", "tests/sources/text/test_chunking.py"),
    Defect(
        "sources/query/parser.py",
        "if len(text) > limits.max_chars:",
        "if len(text) > 2 * limits.max_chars:",
        "tests/sources/query",
    ),
    Defect(
        "sources/query/parser.py",
        "return Without(keep, _any_of(dropped)) if keep is not None and dropped else keep",
        "return keep",
        "tests/sources/query",
    ),
    Defect(
        "sources/reading/retrieval.py",
        "return left < 0 or self.scale.count_fitting(passage.text, left) < len(passage.text)",
        "return False",
        "tests/sources/reading",
    ),
    Defect(
        "sources/importers/engine/values.py",
        "number / 1000 if number >= _MILLISECONDS_FROM else number",
        "number",
        "tests/sources/importers/test_chatgpt.py tests/sources/importers/test_golden.py",
    ),
    Defect(
        "sources/storage/tables/conversation_tables.py",
        'is_live="messages.deleted = 0 AND c.deleted = 0"',
        'is_live="messages.deleted = 0"',
        "tests/sources/storage/test_chats.py tests/sources/storage/test_search.py",
    ),
    Defect(
        "sources/exporters/export.py",
        "if any(folder.iterdir()):",
        "if False:",
        "tests/server/cli/test_maintenance.py",
    ),
    # server
    Defect(
        "server/protocol/messages.py",
        "if (isinstance(request_id, (str, int)) and not isinstance(request_id, bool)) else",
        "if isinstance(request_id, (str, int)) else",
        "tests/server/protocol/test_messages.py",
    ),
    Defect(
        "server/protocol/listing.py",
        "if offset + size < len(registered):",
        "if offset + size <= len(registered):",
        "tests/server/protocol/test_listing.py",
    ),
    Defect(
        "server/transports/headers.py",
        'if scheme not in ("http", "https") or not self._is_loopback or',
        'if scheme not in ("http", "https") or',
        "tests/server/transports/test_origin.py",
    ),
    Defect(
        "server/console/pages.py",
        "autoescape=True",
        "autoescape=False",
        "tests/server/console/test_item_page.py tests/server/console/test_search_page.py",
    ),
    Defect(
        "server/console/markdown.py",
        "html = nh3.clean(html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=_REL)",
        "pass",
        "tests/server/console/test_item_page.py",
    ),
)


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout to copy")
    parser.add_argument("numbers", nargs="*", type=int, default=range(1, len(DEFECTS) + 1), help="the defects to seed")
    parser.add_argument("--options", default="--tier=first", help="options of pytest")
    arguments = parser.parse_args()
    caught = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder) / "tree"
        _copy_tracked_files(arguments.tree, copy)
        print("| # | defect | noticed by | s |\n|---|---|---|---|", flush=True)
        for number in arguments.numbers:
            defect = DEFECTS[number - 1]
            began = time.monotonic()
            failed = _first_failure(copy, defect, shlex.split(arguments.options))
            caught += failed is not None
            took_s = time.monotonic() - began
            print(f"| {number} | {_row(defect)} | {failed or '**nothing**'} | {took_s:.0f} |", flush=True)
    print(f"RESULT defects={len(arguments.numbers)} caught={caught}")
    return 0


def _copy_tracked_files(tree: Path, copy: Path) -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=tree, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (tree / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, copy / name)


def _first_failure(copy: Path, defect: Defect, options: list[str]) -> str | None:
    """Returns the first test that fails with the defect, or None."""
    path = copy / defect.file
    text = path.read_text()
    assert text.count(defect.before) == 1, (
        f"{defect.file}: expected one {defect.before!r}, got {text.count(defect.before)}"
    )
    path.write_text(text.replace(defect.before, defect.after))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "-rfE", *options]
    try:
        run = subprocess.run(
            [*command, *defect.tests.split()], cwd=copy, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    finally:
        path.write_text(text)
    if run.returncode not in {0, 1, 2}:
        raise RuntimeError(f"pytest ended with {run.returncode}: {run.stdout[-2_000:]}{run.stderr[-2_000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (?:[^:\s]*/)?([\w.]+(?:::\w+)*)", run.stdout, re.MULTILINE)
    return f"`{failed[0]}`" if failed else None


def _row(defect: Defect) -> str:
    before, after = (text.replace("|", "\\|") for text in (defect.before, defect.after))
    return f"`{defect.file}`: `{before}` → `{after or 'nothing'}`"


if __name__ == "__main__":
    sys.exit(main())
