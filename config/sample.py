"""The sample TOML file that `florilegium config init` writes: every setting, commented out, with its default."""

import textwrap
from itertools import groupby

from config.loading import format_toml
from config.settings import SETTINGS, Setting

_WIDTH = 100
_INTRODUCTION = """\
# Settings of Florilegium. Every line is a comment that shows a default: remove the "#" to change a setting.
# The command line (--port 9000) and the environment (FLORILEGIUM_PORT=9000) override this file.
"""


def sample_toml() -> str:
    groups = groupby(SETTINGS, key=lambda setting: setting.group)
    return _INTRODUCTION + "".join(_group(title, list(settings)) for title, settings in groups)


def _group(title: str, settings: list[Setting]) -> str:
    heading = f"\n# {title}\n# {'-' * len(title)}\n"
    return heading + "".join(f"\n{_comment(setting)}\n# {_assignment(setting)}\n" for setting in settings)


def _comment(setting: Setting) -> str:
    kind = ", ".join(filter(None, (setting.type_text, setting.unit, "secret" if setting.is_secret else "")))
    text = f"{setting.description} ({kind})"
    return textwrap.fill(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _assignment(setting: Setting) -> str:
    return f"{setting.name} = {format_toml(setting.default)}"
