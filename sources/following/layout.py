"""How a followed path is read: a folder file by file, a folder as a whole, or a single file."""

import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from sources.following.scan import SourceMissing, is_folder, scan_file, scan_folder
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits
from sources.importers.registry import all_importers, importer_by_name, select_importer

# The name of a folder that is read as a whole.
_WHOLE_FOLDER = b"."


class SourceLayout(Struct, frozen=True, kw_only=True):
    """`root` is the folder that names are relative to. `unit_name` is set if the source is a single file, or a folder
    that only makes sense as a whole, such as an unpacked export. Of a folder that is read file by file, the files with
    the `suffixes` are, or those that `names` lists: these are known to belong there, so none of them is deleted."""

    root: Path
    unit_name: bytes | None = None
    format_name: str | None = None
    suffixes: tuple[bytes, ...] = ()
    names: tuple[bytes, ...] = ()

    def is_wanted(self, name: bytes) -> bool:
        return name in self.names if self.names else name.lower().endswith(self.suffixes)

    def path_of(self, name: bytes) -> Path:
        return self.root if name == _WHOLE_FOLDER else self.root / os.fsdecode(name)

    def signature_of(self, name: bytes) -> str:
        return self.unit_signature() if name == self.unit_name else scan_file(self.path_of(name))

    def unit_signature(self) -> str:
        assert self.unit_name is not None
        if self.unit_name != _WHOLE_FOLDER:
            return scan_file(self.path_of(self.unit_name))
        scan = scan_folder(self.root, lambda _name: True)
        return blake2b(repr(sorted(scan.files.items())).encode(), digest_size=16).hexdigest()


def source_layout(path: Path, format_name: str | None, limits: ImportLimits) -> SourceLayout:
    if not path.exists():
        raise SourceMissing("the followed path does not exist")
    if not is_folder(path):
        return SourceLayout(root=path.parent, unit_name=os.fsencode(path.name), format_name=format_name)
    if names := followed_names(format_name):
        return SourceLayout(root=path, format_name=format_name, names=names)
    importers: Sequence[Importer] = all_importers()
    if format_name is not None:
        importers = (importer_by_name(format_name, importers),)
    importer = select_importer(probe_file(path, limits), importers)
    if importer is None:
        return SourceLayout(root=path, format_name=format_name, suffixes=_suffixes(importers))
    if importer.reads_files_alone:
        # Archives in a vault are attachments.
        suffixes = tuple(suffix for suffix in _suffixes([importer]) if suffix != b".zip")
        return SourceLayout(root=path, format_name=importer.name, suffixes=suffixes)
    return SourceLayout(root=path, unit_name=_WHOLE_FOLDER, format_name=importer.name)


def followed_names(format_name: str | None) -> tuple[bytes, ...]:
    """Returns the names of the files that a folder in this format has; none if any file may belong to it."""
    if format_name is None:
        return ()
    return tuple(map(os.fsencode, importer_by_name(format_name, all_importers()).followed_names))


def _suffixes(importers: Sequence[Importer]) -> tuple[bytes, ...]:
    return tuple({suffix.encode() for importer in importers for suffix in importer.suffixes})
