"""Promises of Letta's `conversation_search`: the tool reference, and Letta's built-in tool of the same name."""

from tests.compatibility.manifest import Promise

_LETTA = "tests/compatibility/test_letta.py::"
_TOOL = "tests/server/compat/letta/test_tools.py::"
_MEANING = "tests/server/compat/letta/test_meaning.py::"
_SSE = "tests/server/transports/test_sse.py::"
_CLIENT = "tests/clients/test_compat_clients.py::"

PROMISES: tuple[Promise, ...] = (
    # The tool
    Promise(
        id="letta.tool.name",
        statement="The server exposes a single tool, `conversation_search`.",
        tests=(
            f"{_CLIENT}test_letta_profile_has_one_tool_that_searches_the_callers_history",
            f"{_CLIENT}test_full_profile_includes_the_tools_of_both_systems",
        ),
        difference=(
            "It is the only tool at `/mcp/letta` and one of many at `/mcp/full`, because this server has other tools."
        ),
    ),
    Promise(
        id="letta.tool.clients",
        statement="It works with any MCP client.",
        tests=(
            f"{_CLIENT}test_letta_profile_has_one_tool_that_searches_the_callers_history",
            f"{_LETTA}test_canonical_export_is_imported_and_searched_over_stdio",
        ),
    ),
    Promise(
        id="letta.tool.transports",
        statement="The server is run over stdio, or with `--sse` at `/sse` and `/messages/`.",
        tests=(
            f"{_LETTA}test_canonical_export_is_imported_and_searched_over_stdio",
            f"{_SSE}test_the_address_of_a_profile_serves_that_profile",
            f"{_CLIENT}test_letta_profile_has_one_tool_that_searches_the_callers_history",
        ),
        difference=(
            "`florilegium stdio --profile letta` runs it over stdio. A server has it at `/mcp/letta`, and for clients "
            "of the older transport at `/mcp/letta/sse`."
        ),
    ),
    Promise(
        id="letta.tool.description",
        statement="A model sees the documented description.",
        tests=(f"{_LETTA}test_description_contains_the_documented_phrase",),
        difference=(
            "It says `all stored conversations` instead of `canonical ChatGPT export`, because that is what is "
            "searched, and adds the order and an example."
        ),
    ),
    Promise(
        id="letta.tool.schema",
        statement="All five parameters are optional, with the documented types and default.",
        tests=(f"{_TOOL}test_listed_schema_is_lettas_plus_format",),
        difference="A sixth parameter, `format`, selects the JSON that Letta's own tool returns.",
    ),
    Promise(
        id="letta.tool.unknown-argument",
        statement="Additional properties are not allowed.",
        tests=(f"{_TOOL}test_unknown_argument_is_rejected",),
    ),
    Promise(
        id="letta.tool.defaults",
        statement="Omitted parameters do not filter.",
        tests=(f"{_TOOL}test_without_arguments_the_newest_messages_are_returned",),
    ),
    Promise(
        id="letta.tool.examples",
        statement="The four example inputs are valid and return what they describe.",
        tests=(f"{_LETTA}test_documented_example_returns_its_messages",),
    ),
    # Parameters
    Promise(
        id="letta.params.query.content",
        statement="`query` matches a part of a message's content.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_TOOL}test_whitespace_around_the_query_is_ignored",
        ),
    ),
    Promise(
        id="letta.params.query.titles",
        statement="`query` also matches conversation titles; a title returns all messages of its conversation.",
        tests=(f"{_TOOL}test_matching_title_returns_every_message_of_its_conversation",),
    ),
    Promise(
        id="letta.params.query.case",
        statement="`query` is case-sensitive.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_TOOL}test_non_ascii_letters_match_case_insensitively",
        ),
        difference=(
            "It ignores case in every script. SQLite's LIKE, which the design names, ignores it too, but only for "
            "ASCII letters."
        ),
    ),
    Promise(
        id="letta.params.query.wildcards",
        statement="`query` is placed between the wildcards of SQL's LIKE.",
        tests=(f"{_TOOL}test_query_has_no_wildcards",),
        difference="`%` and `_` in a query are ordinary characters, so that a search for `snake_case` finds it.",
    ),
    Promise(
        id="letta.params.roles",
        statement="`roles` restricts results to `user`, `assistant` and `tool`.",
        tests=(f"{_TOOL}test_roles_filter_the_results", f"{_TOOL}test_listed_schema_is_lettas_plus_format"),
    ),
    Promise(
        id="letta.params.roles.string",
        statement="A single role can be a plain string.",
        tests=(f"{_LETTA}test_one_role_can_be_a_plain_string",),
    ),
    Promise(
        id="letta.params.dates.inclusive",
        statement="`start_date` and `end_date` are inclusive.",
        tests=(f"{_LETTA}test_dates_are_inclusive_days_or_times_in_utc",),
    ),
    Promise(
        id="letta.params.dates.days",
        statement="A date without a time is the start of its day in UTC, or as `end_date` its end (23:59:59.999).",
        tests=(
            f"{_LETTA}test_dates_are_inclusive_days_or_times_in_utc",
            f"{_TOOL}test_dates_filter_by_whole_utc_days",
        ),
    ),
    Promise(
        id="letta.params.dates.offsets",
        statement="A time without an offset is UTC.",
        tests=(f"{_LETTA}test_dates_are_inclusive_days_or_times_in_utc",),
    ),
    Promise(
        id="letta.params.limit",
        statement="`limit` is 50 by default.",
        tests=(f"{_LETTA}test_limit_is_50_by_default_and_clamped_to_1_to_200",),
    ),
    Promise(
        id="letta.params.limit.clamped",
        statement="`limit` is clamped to 1..200.",
        tests=(
            f"{_LETTA}test_limit_is_50_by_default_and_clamped_to_1_to_200",
            f"{_TOOL}test_limit_is_clamped",
        ),
    ),
    # Behaviour
    Promise(
        id="letta.search.database",
        statement="The canonical export of ChatGPT Browser is searched: its `conversations` and `messages` tables.",
        tests=(f"{_LETTA}test_canonical_export_is_imported_and_searched_over_stdio",),
        difference=(
            "The file is imported with `florilegium import` and searched together with the user's other "
            "conversations. Contents stored as JSON become plain text, so that quotes and umlauts are found."
        ),
    ),
    Promise(
        id="letta.search.database.path",
        statement="The database is the newest in `db/`, or named by `CONVERSATION_DB` or `ORIGIN_CONVERSATION_DB`.",
        not_offered="Each user has a library; the credential decides which one is searched, not a path.",
    ),
    Promise(
        id="letta.search.combined",
        statement="Text, roles and dates are combined.",
        tests=(f"{_LETTA}test_documented_example_returns_its_messages",),
    ),
    Promise(
        id="letta.search.order",
        statement="Results are ordered by time, newest first.",
        tests=(f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",),
    ),
    Promise(
        id="letta.search.times",
        statement="Numeric and ISO 8601 times in the database are compared alike.",
        tests=(f"{_LETTA}test_canonical_export_is_imported_and_searched_over_stdio",),
    ),
    Promise(
        id="letta.search.dates-after-fetch",
        statement="Dates may be filtered after a bounded number of messages was fetched.",
        tests=(f"{_TOOL}test_old_date_range_is_found_behind_many_newer_messages",),
        difference="Dates are filtered in the storage engine; otherwise old dates in a long history would seem empty.",
    ),
    Promise(
        id="letta.search.canonical",
        statement="Only the canonical history is searched.",
        tests=(f"{_LETTA}test_regenerated_answer_is_not_history",),
    ),
    # Output
    Promise(
        id="letta.output.text",
        statement="The result is a single text.",
        tests=(f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",),
    ),
    Promise(
        id="letta.output.block",
        statement="A message is `[YYYY-MM-DD HH:MM] role (conv: title_or_id)` followed by its content.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_LETTA}test_untitled_conversation_is_named_by_the_start_of_its_id",
        ),
    ),
    Promise(
        id="letta.output.no-time",
        statement="A message without a time is shown with `(no time)`.",
        not_offered="Every stored message has a time: one that is imported without a time gets that of its import.",
    ),
    Promise(
        id="letta.output.no-role",
        statement="A message without a role is shown as `unknown`.",
        tests=(f"{_TOOL}test_empty_role_is_unknown",),
    ),
    Promise(
        id="letta.output.truncated",
        statement="Content over 2,000 characters is truncated and ends with `...`.",
        tests=(f"{_LETTA}test_content_over_2000_characters_ends_with_three_dots",),
    ),
    Promise(
        id="letta.output.separator",
        statement="Blocks are separated by a line of three dashes between blank lines.",
        tests=(f"{_LETTA}test_blocks_are_separated_by_three_dashes",),
    ),
    Promise(
        id="letta.output.nothing",
        statement="Without matches, the text is exactly `No matching messages.`.",
        tests=(
            f"{_TOOL}test_no_matches_return_one_sentence",
            f"{_MEANING}test_text_that_no_message_contains_returns_the_nearest_and_says_so",
            f"{_MEANING}test_text_of_no_matches_is_one_sentence_also_if_no_meanings_were_compared",
        ),
        difference="With an embedding model, up to five messages that are near in meaning are returned, with a note.",
    ),
    # Errors
    Promise(
        id="letta.errors.text",
        statement="Errors are returned as the text of the result, not as a failed call.",
        tests=(
            f"{_TOOL}test_invalid_argument_returns_a_text_with_the_correction",
            f"{_TOOL}test_timed_out_search_returns_an_error_text",
            f"{_TOOL}test_unknown_argument_is_rejected",
        ),
        difference=(
            "Invalid roles and dates, a query that is too long, timeouts and storage errors are. An unknown argument, "
            "a value of the wrong type and an unexpected error are failed calls (`isError`); the latter has a request "
            "id, to find it in the log."
        ),
    ),
    Promise(
        id="letta.errors.role",
        statement="An invalid role returns `Invalid role(s): ['admin']. Allowed: user, assistant, tool.`.",
        tests=(f"{_TOOL}test_invalid_argument_returns_a_text_with_the_correction",),
    ),
    Promise(
        id="letta.errors.database",
        statement="A missing database returns `Database not found: ...`.",
        not_offered="It cannot be missing: a user's library is created, empty, with the first call.",
    ),
    Promise(
        id="letta.errors.other",
        statement="Any other error returns a short `Error: ...`, without details.",
        tests=(f"{_TOOL}test_timed_out_search_returns_an_error_text",),
    ),
    Promise(
        id="letta.errors.unknown-tool",
        statement="A call of another tool returns the text `Unknown tool: <name>`.",
        tests=(f"{_LETTA}test_call_of_an_unknown_tool_is_an_error_that_names_it",),
        difference="It returns the JSON-RPC error that MCP specifies, `Unknown tool: <name>`.",
    ),
    # Letta's built-in tool
    Promise(
        id="letta.builtin.parameters",
        statement="Name, parameters and types are those of Letta's built-in tool.",
        tests=(f"{_TOOL}test_listed_schema_is_lettas_plus_format",),
    ),
    Promise(
        id="letta.builtin.switch",
        statement="No change is required when switching between Letta's tool and this one.",
        tests=(
            f"{_TOOL}test_json_format_returns_lettas_result_shape",
            f"{_TOOL}test_json_format_reports_no_results",
            f"{_TOOL}test_age_below_a_minute_is_given_in_seconds",
        ),
        difference=(
            "Calls need no change. Letta's tool returns JSON, which `format: \"json\"` returns here. Letta's "
            "default limit is 5 and its times are in the agent's time zone; here they are 50 and UTC, as in "
            "this design."
        ),
    ),
    Promise(
        id="letta.builtin.relevance",
        statement="In Letta's JSON, `relevance` has the ranks and the score of a result, and `search_mode`.",
        tests=(
            f"{_TOOL}test_relevance_ranks_results_by_text_and_keeps_their_order",
            f"{_TOOL}test_relevance_without_a_query_is_the_order_in_time",
            f"{_MEANING}test_json_is_the_result_of_a_hybrid_search",
        ),
        difference=(
            "With an embedding model (`semantic_model`), a search is `hybrid`, best first. Without one, "
            "`fts_rank` is the rank by text, and results are ordered by time, as this design says."
        ),
    ),
    Promise(
        id="letta.builtin.addition",
        statement="It can be used instead of Letta's search or in addition to it.",
        tests=(f"{_CLIENT}test_letta_profile_has_one_tool_that_searches_the_callers_history",),
        difference="Instead of it: both have the same name, and an agent should have only one of them.",
    ),
    Promise(
        id="letta.builtin.dates",
        statement="Letta's tool rejects an invalid date with a sentence that names the format.",
        tests=(f"{_TOOL}test_invalid_argument_returns_a_text_with_the_correction",),
    ),
    Promise(
        id="letta.builtin.own-outputs",
        statement="Letta's tool leaves out tool messages and calls of the search itself.",
        tests=(f"{_TOOL}test_output_of_own_searches_is_not_found",),
        difference=(
            "Output of this server's own tools is left out. Messages of other tools are returned, because the design "
            "has the role `tool` for them."
        ),
    ),
    # Users
    Promise(
        id="letta.users",
        statement="The configured history is searched.",
        tests=(
            f"{_TOOL}test_history_is_searched_by_its_owner_only",
            f"{_TOOL}test_human_only_messages_are_not_found",
        ),
        difference="The caller's own history is searched, without messages that are hidden from agents.",
    ),
)
