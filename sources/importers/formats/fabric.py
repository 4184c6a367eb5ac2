"""Fabric's patterns: a folder for each prompt, named like it, with `system.md` and sometimes `user.md`."""

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from config.errors import InvalidParams, TooLarge
from sources.drafts import PromptDraft
from sources.importers.engine.archives import is_zip
from sources.importers.engine.export_files import is_zip_file
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import open_tree
from sources.importers.engine.files import (
    FailedItem,
    ImportedPrompt,
    SkippedItem,
    file_key,
    file_size,
    item_text,
    printable_name,
    read_text,
    stable_uuid,
    text_max_bytes,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.values import short_title

_SYSTEM, _USER = "system.md", "user.md"
_IN_ARCHIVE = re.compile(r"(?:^|/)patterns/[^/]{1,200}/(?:system|user)\.md$")
# The headings of Fabric's patterns.
_HEADING = re.compile(rb"^#{1,2} (?:IDENTITY|GOAL|STEPS|OUTPUT|INPUT)\b", re.MULTILINE)


class FabricImporter(Importer):
    name = "fabric"
    title = "Fabric patterns"
    suffixes = (_SYSTEM, _USER, ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if is_zip(probe.head):
            return 0.7 if any(map(_IN_ARCHIVE.search, probe.names)) else 0.0
        if probe.path.name not in (_SYSTEM, _USER):
            return 0.0
        has_both = all((probe.path.parent / name).is_file() for name in (_SYSTEM, _USER))
        return 0.8 if has_both or _HEADING.search(probe.head) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if is_zip_file(path):
            key = file_key(path, limits) if limits.has_stable_path else None
            with open_tree(path, limits, progress) as tree:
                folders = dict.fromkeys(name.rpartition("/")[0] for name in tree.names if _IN_ARCHIVE.search(name))
                for folder in folders:
                    try:
                        system, user = (
                            item_text(tree.read(name, text_max_bytes(limits)), limits, name) if name in tree else ""
                            for name in (f"{folder}/{_SYSTEM}", f"{folder}/{_USER}")
                        )
                    except (InvalidParams, TooLarge) as error:
                        yield FailedItem(folder, error.message)
                        continue
                    # An uploaded zip has no location, so its patterns are identified by their texts.
                    own_key = sha256(f"{system}\0{user}".encode()).hexdigest() if key is None else f"{key}/{folder}"
                    yield _prompt(folder.rpartition("/")[2], own_key, system, user)
                others = len(tree.names) - sum(1 for name in tree.names if _IN_ARCHIVE.search(name))
                yield from (SkippedItem("file in the archive not containing a pattern") for _ in range(others))
        else:
            yield _read_pattern(path, limits)
        progress(file_size(path))


IMPORTER = FabricImporter()


def _read_pattern(path: Path, limits: ImportLimits) -> ImportEvent:
    """Reads the files of a pattern when the first of them is imported; the other one is skipped."""
    system, user = path.with_name(_SYSTEM), path.with_name(_USER)
    if path.name == _USER and system.is_file() and limits.has_stable_path:
        return SkippedItem("user part of a pattern")
    system_text, user_text = (read_text(part, limits) if part.is_file() else "" for part in (system, user))
    # The folder of an upload has a random name.
    name = path.resolve().parent.name if limits.has_stable_path else path.stem
    return _prompt(printable_name(name), file_key(path, limits), system_text, user_text)


def _prompt(name: str, key: str, system: str, user: str) -> ImportEvent:
    if not system.strip() and not user.strip():
        return SkippedItem("prompt without text")
    draft = PromptDraft(
        name=short_title(name),
        system_prompt=system.strip(),
        user_prompt=user.strip(),
        tags=("fabric",),
        uuid=stable_uuid("fabric", "prompts", key),
    )
    return ImportedPrompt(draft)
