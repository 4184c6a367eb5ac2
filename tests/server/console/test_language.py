"""The language of the pages: how it is chosen, and how texts of catalogs are found and filled."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from jinja2 import Environment

from server.console import pages
from server.console.pages import _, ngettext, parse_po, translations, use_preferences
from tests.cases import each_case
from tests.server.console.signed_in import HTML
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

CASES = {
    "nothing": ({}, "en"),
    "accepted": ({"accept-language": "de-CH,en;q=0.5"}, "de"),
    "by weight": ({"accept-language": "en;q=0.3, fr;q=0.8"}, "fr"),
    "first known": ({"accept-language": "nl, ja;q=0.5"}, "ja"),
    "refused": ({"accept-language": "de;q=0, xx"}, "en"),
    "invalid": ({"accept-language": "de;q=x,,;;q=,*"}, "en"),
    "chosen": ({"cookie": "florilegium-language=es", "accept-language": "de"}, "es"),
    "unknown cookie": ({"cookie": "florilegium-language=../de", "accept-language": "zh-CN"}, "zh"),
}


def use(**headers: str) -> None:
    use_preferences({"headers": [(name.encode(), value.encode()) for name, value in headers.items()]})


@each_case("case", CASES)
def test_language_is_the_chosen_one_then_an_accepted_one_then_english(case: str) -> None:
    headers, expected = CASES[case]

    use_preferences({"headers": [(name.encode(), value.encode()) for name, value in headers.items()]})

    assert pages.preferences().code == expected


async def test_page_has_the_language_and_direction_of_its_texts(api: RestClient) -> None:
    english = await api.get("/none", None, accept=HTML)
    arabic = await api.get("/none", None, accept=HTML, cookie="florilegium-language=ar")

    assert '<html lang="en" dir="ltr">' in english.body.decode()
    assert '<html lang="ar" dir="rtl">' in arabic.body.decode()
    assert "<h1>غير موجود</h1>" in arabic.body.decode()


async def test_sources_and_sizes_are_shown_in_the_language_and_direction_of_the_page(
    api: RestClient, ada: LibraryUser
) -> None:
    await ada.add_note("Voyage", "A galleon.")
    arabic = {"accept": HTML, "cookie": "florilegium-language=ar"}
    search, timeline, library = [
        (await api.get(path, **arabic)).body.decode() for path in ("/?q=galleon", "/library/timeline", "/library")
    ]

    assert ["ملاحظات" in search, "الملاحظات" in timeline, "الملاحظات" in library] == [True] * 3
    assert [">Notes" in page for page in (search, timeline, library)] == [False] * 3
    assert re.search("\u2066[0-9.]+ (kB|Bytes)\u2069", library)  # SQLite needs kilobytes


async def test_theme_of_the_cookie_is_part_of_the_page(api: RestClient) -> None:
    dark = await api.get("/none", None, accept=HTML, cookie="florilegium-theme=dark")
    other = await api.get("/none", None, accept=HTML, cookie='florilegium-theme="><script>')

    assert 'data-theme="dark"' in dark.body.decode()
    assert "data-theme" not in other.body.decode()


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("en", ["1 day ago", "2 days ago", "5 days ago", "4 Mar 2024"]),
        ("de", ["vor 1 Tag", "vor 2 Tagen", "vor 5 Tagen", "4. März 2024"]),
        ("ja", ["1日前", "2日前", "5日前", "2024年3月4日"]),
        ("ar", ["قبل يوم واحد", "قبل يومين", "قبل 5 أيام", "4 مارس 2024"]),
    ],
)
def test_times_have_the_plural_forms_of_the_language(code: str, texts: list[str]) -> None:
    use(cookie=f"florilegium-language={code}")
    now = datetime(2026, 1, 20, tzinfo=UTC)
    times = [*(now - timedelta(days=days) for days in (1, 2, 5)), datetime(2024, 3, 4, tzinfo=UTC)]

    assert [pages.relative_time(time.isoformat(), now) for time in times] == texts


def test_numbers_are_grouped_as_in_the_language() -> None:
    use(cookie="florilegium-language=de")

    assert ngettext("%(num)s day ago", "%(num)s days ago", 12345) == "vor 12.345 Tagen"


def test_values_in_texts_of_templates_are_escaped() -> None:
    use()
    environment: Environment = pages._environment()
    template = environment.from_string(
        '{{ _("Hello <b>%(name)s</b>, 100 %%", name=name) }} {% trans %}and {{ name }}{% endtrans %} '
        "{% trans count=2 %}{{ name }} has one{% pluralize %}{{ name }} has {{ count }}{% endtrans %}"
    )

    assert template.render(name="<i>") == "Hello <b>&lt;i&gt;</b>, 100 % and &lt;i&gt; &lt;i&gt; has 2"


def test_text_that_no_catalog_has_is_shown_in_english() -> None:
    use(cookie="florilegium-language=fr")

    assert _("Colour of %(what)s: 5 %%", what="<sea>") == "Colour of <sea>: 5 %"


def test_catalog_is_read_with_comments_and_texts_on_several_lines() -> None:
    entries = parse_po('# comment\nmsgid ""\nmsgstr "x\\n"\n\n#: file\nmsgid ""\n"a "\n"\\"b\\""\nmsgstr ""\n"c"\n')

    assert entries == {"": {"msgid": "", "msgstr": "x\n"}, 'a "b"': {"msgid": 'a "b"', "msgstr": "c"}}


def test_texts_of_scripts_are_found_and_served_in_every_language() -> None:
    script = '_("A \\"b\\"", x); other_("no"); ngettext("%(num)s hour ago", "%(num)s hours ago", 2)'

    assert pages.texts_of_script(script) == [('A "b"',), ("%(num)s hour ago", "%(num)s hours ago")]
    files = pages.script_catalogs([script])
    assert files.keys() == {f"{code}.js" for code in pages.LANGUAGES}
    assert '"%(num)s hour ago":["vor %(num)s Stunde","vor %(num)s Stunden"]' in files["de.js"].decode()
    assert translations("de").form(1) == 0
