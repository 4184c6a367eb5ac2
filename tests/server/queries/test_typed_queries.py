"""What people type: quotations in sentences, command lines, exclusions and syntax of other query languages."""

import pytest

from tests.cases import each_case
from tests.sources.source_fixture import LibraryUser


async def titles(user: LibraryUser, query: str, tool: str = "knowledge_search") -> list[str]:
    return [hit["title"] for hit in await user.search(tool, query)]


# -- quotations --------------------------------------------------------------------------------------------------------


async def test_phrase_quoted_in_a_sentence_comes_first_and_is_not_required(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note(
        "Exact", "Notes on the book War and Peace, bought in spring, and on many other things of that year."
    )
    await ada.add_note("Similar", "Peace after the war. Who wrote it?")
    await ben.add_note("Foreign", "War and Peace")

    assert await titles(ada, 'who wrote "War and Peace" in 1869?') == ["Exact", "Similar"]
    assert await titles(ada, 'who wrote "peace treaty" in 1869?') == ["Similar", "Exact"]


@each_case(
    ("text", "query"),
    [
        ("Лев Толстой написал Войну и мир за шесть лет.", "Кто написал «Война и мир»?"),
        ("ألف نجيب محفوظ ثلاثية القاهرة.", "من كتب “ثلاثية محفوظ” في القاهرة"),
        ("Ο Καζαντζάκης έγραψε τον Αλέξη Ζορμπά.", "Ποιος έγραψε «Αλέξης Ζορμπάς»;"),
        ("夏目漱石は坊っちゃんを書いた。", "『吾輩は猫』の夏目漱石"),
        ("Thomas Mann schrieb Buddenbrooks.", "Wer schrieb „Die Buddenbrooks“ eigentlich?"),
        ("Proust a écrit la recherche du temps perdu.", "qui a écrit ‹temps retrouvé› Proust"),
        ("We saw the new opera in Oslo.", "what was in ‘Oslo theatre’ again"),
    ],
)
async def test_quotation_in_a_question_of_any_language_does_not_hide_the_answer(
    ada: LibraryUser, text: str, query: str
) -> None:
    await ada.add_note("Answer", text)

    assert await titles(ada, query) == ["Answer"]


async def test_query_of_quotations_and_operators_is_literal(ada: LibraryUser) -> None:
    await ada.add_note("Exact", "War and Peace")
    await ada.add_note("Similar", "Peace after the war")

    for query in ('"war and peace"', "“war and peace”", "peace AND book OR peace NOT after"):
        response = await ada.call("knowledge_search", query=query)
        assert [hit["title"] for hit in response["results"]] == ["Exact"]
        assert "read_as" not in response


async def test_literal_query_that_matches_nothing_is_read_as_words(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Similar", "Peace after the war")
    await ben.add_note("Exact", "War and Peace")

    for tool in ("knowledge_search", "notes_search"):
        response = await ada.call(tool, query='"war and peace"')
        assert [hit["title"] for hit in response["results"]] == ["Similar"]
        assert response["read_as"] == (
            'searched for "war and peace" OR war OR peace; nothing matches "war and peace" literally'
        )
    strict = await ada.with_config(strict=True).call("knowledge_search", query='"war and peace"')
    assert (strict["results"], strict.get("read_as")) == ([], None)


async def test_literal_query_stays_literal_if_any_source_matches(ada: LibraryUser) -> None:
    await ada.add_note("Similar", "Peace after the war")
    await ada.add_media("Exact", "War and Peace")

    assert await titles(ada, '"war and peace"') == ["Exact"]
    assert await titles(ada, '"war and peace"', "notes_search") == ["Similar"]


async def test_relaxed_query_has_the_same_pages_as_one_list(ada: LibraryUser) -> None:
    for n in range(7):
        await ada.add_note(f"Note {n}", f"Peace number {n} after the war")

    whole = await ada.call("knowledge_search", query='"war and peace"', limit=7)
    paged = [
        (await ada.call("knowledge_search", query='"war and peace"', limit=1, offset=n))["results"][0]["uri"]
        for n in range(7)
    ]

    assert paged == [hit["uri"] for hit in whole["results"]]


# -- command lines and exclusions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("git rebase -i squash", "Interactive rebase with git: i to squash."),
        ("grep -r pattern", "grep r searches folders for a pattern."),
        ("tar -xzf archive", "Unpack an archive with tar xzf."),
        ("rsync folder -progress", "rsync a folder and show progress"),
        ("gcc main -std=c17", "Compile main with std c17."),
        ("docker run --rm -name web", "docker run rm name web starts it"),
        ("docker run -it ubuntu", "docker run it ubuntu"),
        ("go test -v -run Parser", "go test v run Parser"),
        ("find . -name notes", "find . name notes"),
        ("openssl x509 -noout -text", "openssl x509 noout text"),
    ],
)
async def test_option_of_a_command_is_not_an_exclusion(ada: LibraryUser, query: str, text: str) -> None:
    await ada.add_note("Command", text)

    response = await ada.call("knowledge_search", query=query)

    assert [hit["title"] for hit in response["results"]] == ["Command"]
    assert "as text (an option of a command" in response["read_as"]
    assert "exclusion" not in response["read_as"]


async def test_dash_before_a_word_excludes_it(ada: LibraryUser) -> None:
    await ada.add_note("Cars", "The jaguar is a fast car.")
    await ada.add_note("Animals", "The jaguar is a cat.")

    assert await titles(ada, "jaguar -car") == ["Animals"]
    assert await titles(ada, "jaguar NOT car") == ["Animals"]


async def test_exclusion_that_removes_everything_is_ignored_and_reported(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Cars", "The jaguar is a fast car.")
    await ben.add_note("Animals", "The jaguar is a cat.")

    for tool in ("knowledge_search", "notes_search"):
        response = await ada.call(tool, query="jaguar -car")
        assert [hit["title"] for hit in response["results"]] == ["Cars"]
        assert response["read_as"] == "searched for jaguar; ignored an exclusion (it removed every match)"


# -- syntax of other query languages -----------------------------------------------------------------------------------


@each_case(
    ("query", "note"),
    [
        ("NEAR(jaguar car, 5)", "ignored NEAR (it has no meaning here)"),
        ('NEAR("jaguar" car)', "ignored NEAR (it has no meaning here)"),
        ("^jaguar", "ignored ^ (it has no meaning here)"),
        ("(jaguar", "ignored an unmatched bracket"),
        ("jaguar)", "ignored an unmatched bracket"),
        ("((jaguar) car", "ignored an unmatched bracket"),
    ],
)
async def test_syntax_without_meaning_is_reported(ada: LibraryUser, query: str, note: str) -> None:
    await ada.add_note("Cars", "The jaguar is a fast car.")

    response = await ada.call("knowledge_search", query=query)

    assert [hit["title"] for hit in response["results"]] == ["Cars"]
    assert note in response["read_as"]


async def test_smiley_is_no_bracket(ada: LibraryUser) -> None:
    await ada.add_note("Cars", "The jaguar is a fast car.")

    assert "read_as" not in await ada.call("knowledge_search", query="a jaguar :-)")
