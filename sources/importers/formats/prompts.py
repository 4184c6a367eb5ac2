"""Prompts: files with one prompt or a list of them, and Fabric's patterns."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from sources.drafts import PromptDraft
from sources.importers.engine import files, markdown_text
from sources.importers.engine.encodings import DecodedText
from sources.importers.engine.events import FailedItem, ImportedPrompt, ImportEvent, SkippedItem, stable_uuid
from sources.importers.engine.importer import Events, FileImporter, FileProbe, InputFile
from sources.importers.engine.table_reader import table_rows
from sources.importers.engine.values import clean_tags, parse_json, short_title, stored_date, valid_uuid
from sources.records import SavedPromptArgument

# -- prompt files ------------------------------------------------------------------------------------------------------
# Prompts in files: Markdown with front matter, YAML, JSON and CSV, with one prompt or a list.
#
# Fields are recognized by the names that such files commonly use. Other fields are kept in the prompt's metadata.

_NAME_FIELDS = ("name", "title", "act", "prompt_name")
_SYSTEM_FIELDS = ("system", "system_prompt", "system_message", "instructions")
_USER_FIELDS = ("user", "user_prompt", "user_message", "prompt", "template", "content", "text")
_KEYWORD_FIELDS = ("keywords", "tags", "labels")
_AUTHOR_FIELDS = ("author", "creator", "contributor")
_DETAILS_FIELDS = ("details", "description", "summary", "notes")
# Of each group the first field with a text is used; others stay in the metadata.
_TEXT_FIELDS = (_NAME_FIELDS, _SYSTEM_FIELDS, _USER_FIELDS, _AUTHOR_FIELDS, _DETAILS_FIELDS)
# Fields that only prompts have; notes have a title and a text, too.
_PROMPT_FIELDS = ("system", "system_prompt", "system_message", "user_prompt", "user_message", "prompt", "template")
_LIST_FIELDS = ("prompts", "items", "data")
# Fields of character cards, chats and transcripts, whose JSON resembles prompts.
_OTHER_FORMATS = re.compile(rb'"(?:first_mes|mapping|chat_messages|spec|segments|events)"\s*:')
_SECTION = re.compile(
    r"^#{1,4}[ \t]+(?P<role>system|user)(?:[ \t]+(?:prompt|message))?[ \t]*+:?[ \t]*+$", re.IGNORECASE | re.MULTILINE
)
# The nesting allowed in front matter while a file is being recognized.
_PROBE_DEPTH_MAX = 20
_WHOLE_FILE = "the file"

# Where an entry is in its file, and its value.
LocatedEntry = tuple[str, Any]


class PromptFilesImporter(FileImporter):
    name = "prompt_files"
    title = "Prompt files (markdown, YAML, JSON, CSV)"
    suffixes = (".md", ".markdown", ".yaml", ".yml", ".json", ".csv", ".tsv")

    def recognizes(self, probe: FileProbe) -> float:
        suffix = probe.suffix
        if suffix not in self.suffixes or not probe.is_text:
            return 0.0
        head = probe.head.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        # Below the formats of programs, whose JSON and tables have similar fields.
        if suffix in (".md", ".markdown"):
            front_matter, body = markdown_text.split_front_matter(head, _PROBE_DEPTH_MAX)
            fields = markdown_text.normalize_keys(front_matter)
            roles = {section["role"].lower() for section in _SECTION.finditer(body)}
            has_prompt_field = fields.get("type") == "prompt" or any(name in fields for name in _PROMPT_FIELDS)
            return 0.7 if has_prompt_field or (fields and roles) or roles == {"system", "user"} else 0.0
        if suffix in (".yaml", ".yml"):
            names = re.findall(r"^[ \t-]{0,20}+(\w[\w -]{0,40})[ \t]{0,10}:", head, re.MULTILINE)
            return 0.6 if _are_prompt_fields(names) else 0.0
        if suffix == ".json":
            is_other = not probe.is_json() or _OTHER_FORMATS.search(probe.head)
            return 0.5 if not is_other and _are_prompt_fields(re.findall(r'"([\w -]{1,40})"\s*:', head)) else 0.0
        return 0.6 if _are_prompt_fields(re.split(r'[",;\t]+', head.partition("\n")[0])) else 0.0

    def read_file(self, file: InputFile) -> Events:
        data, suffix, limits = file.content(), file.suffix, file.limits
        key, counts = file.key if limits.has_stable_path else None, Counter[str]()
        decoded = files.decode(data, limits) if suffix != ".json" else DecodedText("")
        yield from files.encoding_doubts("", decoded.encoding, is_doubtful=decoded.is_doubtful)
        entries: Iterator[LocatedEntry]
        match suffix:
            case ".json":
                entries = _list_entries(parse_json(data, limits))
            case ".yaml" | ".yml":
                entries = _list_entries(markdown_text.parse_yaml(decoded.text, limits.depth_max))
            case ".csv" | ".tsv":
                entries = table_rows(decoded.text)
            case _:
                entries = iter([(_WHOLE_FILE, _markdown_entry(decoded.text, limits.depth_max))])
        for location, entry in entries:
            yield _read_prompt(location, entry, file.stem, key, counts)


def _are_prompt_fields(names: list[str]) -> bool:
    fields = markdown_text.normalize_keys(dict.fromkeys(names))
    return any(name in fields for name in _NAME_FIELDS) and any(name in fields for name in _PROMPT_FIELDS)


def _list_entries(value: Any) -> Iterator[LocatedEntry]:
    """Accepts one prompt, a list of prompts, an object that contains such a list, or prompts by name."""
    if isinstance(value, Mapping):
        fields = markdown_text.normalize_keys(value)
        entries = next((fields[name] for name in _LIST_FIELDS if isinstance(fields.get(name), list)), None)
        if entries is not None:
            return _list_entries(entries)
        if value and all(isinstance(entry, Mapping) for entry in value.values()):
            return ((f"prompt {str(name)[:60]!r}", {"name": name, **entry}) for name, entry in value.items())
        return iter([(_WHOLE_FILE, value)])
    if isinstance(value, list):
        return ((f"prompt {number}", entry) for number, entry in enumerate(value, 1))
    raise InvalidParams("expected a prompt or a list of prompts")


def _markdown_entry(text: str, depth_max: int) -> Mapping[str, Any]:
    """Returns the front matter and the text, which is the user prompt unless it has sections for system and user."""
    front_matter, body = markdown_text.split_front_matter(text, depth_max)
    sections = list(_SECTION.finditer(body))
    if not sections:
        return {"user": body, **front_matter}
    # The heading before the first section is the title, and the remaining text there the details.
    details = body[: sections[0].start()].strip()
    fields: dict[str, str] = {}
    if heading := re.search(r"^#[ \t]+([^\n]+)$", details, re.MULTILINE):
        fields["title"] = heading[1].strip()
        details = (details[: heading.start()] + details[heading.end() :]).strip()
    fields["details"] = details
    ends = [*(section.start() for section in sections[1:]), len(body)]
    for section, end in zip(sections, ends, strict=True):
        role, content = section["role"].lower(), body[section.end() : end].strip()
        fields[role] = f"{fields[role]}\n\n{content}" if role in fields else content
    return {**fields, **front_matter}


def _read_prompt(location: str, entry: Any, file_stem: str, file_key: str | None, counts: Counter[str]) -> ImportEvent:
    if not isinstance(entry, Mapping):
        return FailedItem(location, f"expected a prompt with a name and a text, got {repr(entry)[:80]}")
    fields = markdown_text.normalize_keys(entry)
    system, user = _first_text(fields, _SYSTEM_FIELDS), _first_text(fields, _USER_FIELDS)
    if not system and not user:
        return SkippedItem("prompt without text")
    is_whole_file = location == _WHOLE_FILE
    name = short_title(_first_text(fields, _NAME_FIELDS) or (file_stem if is_whole_file else ""))
    if not name:
        return FailedItem(location, "the prompt has no name")
    # The only prompt of a file is identified by the file, so that it can be renamed. Prompts of a file without a stable
    # path, which has no key, are identified by their content. Names may repeat.
    own_name = "" if is_whole_file else name
    key = f"{name}\0{system}\0{user}" if file_key is None else f"{file_key}#{own_name}"
    counts[key] += 1
    key = key if counts[key] == 1 else f"{key}#{counts[key]}"
    argument_field = next((field for field in ("arguments", "variables", "inputs") if fields.get(field)), "")
    date_field = next((field for field in ("created_at", "created", "date") if stored_date(fields.get(field))), "")
    text_fields = (_first_field(fields, names) for names in _TEXT_FIELDS)
    tags: list[str] = []
    for field in _KEYWORD_FIELDS:
        # Commas, semicolons or bars separate keywords of several words.
        value = fields.get(field)
        is_list = isinstance(value, str) and re.search("[,;|]", value)
        tags += re.split("[,;|]", str(value)) if is_list else markdown_text.split_words(value)
    used = {*_KEYWORD_FIELDS, "uuid", argument_field, date_field, *text_fields}
    prompt_draft = PromptDraft(
        name=name,
        author=short_title(_first_text(fields, _AUTHOR_FIELDS)),
        details=_first_text(fields, _DETAILS_FIELDS),
        system_prompt=system,
        user_prompt=user,
        arguments=_arguments(fields.get(argument_field)),
        tags=clean_tags(tags),
        metadata={field: value for field, value in fields.items() if field not in used and value not in ("", None)},
        uuid=valid_uuid(fields.get("uuid")) or stable_uuid("prompt_files", "prompts", key),
        created_at=stored_date(fields.get(date_field)) or UNSET,
    )
    return ImportedPrompt(prompt_draft)


def _first_text(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return markdown_text.stripped_text(fields.get(_first_field(fields, names)))


def _first_field(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Returns the first of these names whose field has a text."""
    return next((name for name in names if markdown_text.stripped_text(fields.get(name))), "")


def _arguments(value: Any) -> tuple[SavedPromptArgument, ...]:
    """Accepts names, objects with a name, or an object of names and descriptions."""
    if isinstance(value, Mapping):
        value = [{"name": name, "description": description} for name, description in value.items()]
    arguments = []
    for part in value if isinstance(value, list) else markdown_text.split_words(value):
        fields = markdown_text.normalize_keys(part if isinstance(part, Mapping) else {"name": part})
        if name := markdown_text.stripped_text(fields.get("name")):
            description = markdown_text.stripped_text(fields.get("description"))
            is_required = str(fields.get("required")).lower() == "true"
            arguments.append(SavedPromptArgument(name=name, description=description, required=is_required))
    return tuple(arguments)


# -- Fabric ------------------------------------------------------------------------------------------------------------
# Fabric's patterns: a folder for each prompt, named like it, with `system.md` and sometimes `user.md`.

_SYSTEM, _USER = "system.md", "user.md"
_IN_ARCHIVE = re.compile(r"(?:^|/)patterns/[^/]{1,200}/(?:system|user)\.md$")
# The headings of Fabric's patterns.
_HEADING = re.compile(rb"^#{1,2} (?:IDENTITY|GOAL|STEPS|OUTPUT|INPUT)\b", re.MULTILINE)


class FabricImporter(FileImporter):
    name = "fabric"
    title = "Fabric patterns"
    suffixes = (_SYSTEM, _USER, ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if probe.is_zip:
            return 0.7 if any(map(_IN_ARCHIVE.search, probe.names)) else 0.0
        if probe.path.name not in (_SYSTEM, _USER):
            return 0.0
        has_both = all((probe.path.parent / name).is_file() for name in (_SYSTEM, _USER))
        return 0.8 if has_both or _HEADING.search(probe.head) else 0.0

    def read_file(self, file: InputFile) -> Events:
        path, limits = file.path, file.limits
        if file.is_zip:
            key = file.key if limits.has_stable_path else None
            with file.open_tree() as tree:
                folders = dict.fromkeys(name.rpartition("/")[0] for name in tree.names if _IN_ARCHIVE.search(name))
                for folder in folders:
                    try:
                        system, user = (
                            tree.text(name) if name in tree else ""
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
            # The files of a pattern are read when the first of them is imported; the other one is skipped.
            system_file, user_file = path.with_name(_SYSTEM), path.with_name(_USER)
            if path.name == _USER and system_file.is_file() and limits.has_stable_path:
                yield SkippedItem("user part of a pattern")
                return
            system, user = (
                files.read_text(part, limits) if part.is_file() else "" for part in (system_file, user_file)
            )
            # The folder of an upload has a random name.
            name = path.resolve().parent.name if limits.has_stable_path else path.stem
            yield _prompt(files.printable_name(name), file.key, system, user)


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
