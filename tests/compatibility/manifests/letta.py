"""Promises of Letta's tool reference for `conversation_search`."""

from tests.compatibility.manifest import Promise

_TOOL = "tests/server/compat/letta/test_tools.py::"
_ARGUMENTS = "tests/server/compat/letta/test_arguments.py::"
_SERVICE = "tests/server/compat/letta/test_service.py::"
_RESPONSES = "tests/server/compat/letta/test_responses.py::"
_CLIENT = "tests/clients/test_compat_clients.py::"
_STORED = "tests/sources/storage/test_find_messages.py::"

PROMISES: tuple[Promise, ...] = (
    # The tool
    Promise(
        id="letta.tool.only",
        statement="The server lists one tool, `conversation_search`, which any MCP client can call.",
        tests=(
            f"{_CLIENT}test_letta_profile_has_one_tool_that_searches_the_callers_history",
            f"{_CLIENT}test_full_profile_includes_both_tools",
        ),
        difference=(
            "It is the only tool at `/mcp/letta` and one of many at `/mcp/full`, because this server has other tools."
        ),
    ),
    Promise(
        id="letta.tool.schema",
        statement="All five parameters are optional, with the documented types and default, and no others are allowed.",
        tests=(f"{_TOOL}test_listed_schema_is_lettas_plus_format",),
        difference="A sixth parameter, `format`, selects Letta's own result shape.",
    ),
    Promise(
        id="letta.tool.unknown-argument",
        statement="Additional properties are not allowed.",
        tests=(f"{_TOOL}test_unknown_argument_is_rejected",),
    ),
    Promise(
        id="letta.tool.defaults",
        statement="Omitted parameters do not filter: without arguments, the newest messages are returned.",
        tests=(f"{_TOOL}test_without_arguments_the_newest_messages_are_returned",),
    ),
    # Parameters
    Promise(
        id="letta.params.query",
        statement="`query` matches a part of a message's content, case-sensitively.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_TOOL}test_non_ascii_letters_match_case_insensitively",
            f"{_TOOL}test_whitespace_around_the_query_is_ignored",
            f"{_STORED}test_text_is_found_ignoring_case",
        ),
        difference=(
            "It matches case-insensitively in every script. SQLite's LIKE, which the specification names, also ignores "
            "case, but only for ASCII letters."
        ),
    ),
    Promise(
        id="letta.params.query.wildcards",
        statement="`query` is placed between the wildcards of SQL's LIKE.",
        tests=(
            f"{_TOOL}test_query_has_no_wildcards",
            f"{_STORED}test_percent_and_underscore_are_literal",
        ),
        difference="`%` and `_` in a query are ordinary characters, so that a search for `snake_case` finds it.",
    ),
    Promise(
        id="letta.params.query.titles",
        statement=(
            "`query` also matches conversation titles; a matching title returns all messages of its conversation."
        ),
        tests=(
            f"{_TOOL}test_matching_title_returns_every_message_of_its_conversation",
            f"{_STORED}test_matching_title_returns_every_message_of_its_conversation",
        ),
    ),
    Promise(
        id="letta.params.roles",
        statement="`roles` restricts results to user, assistant or tool; a single role can be a plain string.",
        tests=(f"{_TOOL}test_roles_filter_the_results", f"{_ARGUMENTS}test_roles_can_be_a_list_or_one_name"),
    ),
    Promise(
        id="letta.params.dates",
        statement="`start_date` and `end_date` are inclusive; a date without a time covers its whole day in UTC.",
        tests=(
            f"{_TOOL}test_dates_filter_by_whole_utc_days",
            f"{_ARGUMENTS}test_date_covers_its_whole_day_and_time_without_offset_is_utc",
            f"{_ARGUMENTS}test_every_date_is_parsed_and_any_text_is_parsed_or_rejected",
        ),
    ),
    Promise(
        id="letta.params.dates.offsets",
        statement="A time without an offset is UTC; one with an offset is converted.",
        tests=(
            f"{_ARGUMENTS}test_date_covers_its_whole_day_and_time_without_offset_is_utc",
            f"{_ARGUMENTS}test_any_offset_is_converted_to_utc",
        ),
    ),
    Promise(
        id="letta.params.dates.invalid",
        statement="The specification does not say how an invalid date is handled.",
        tests=(
            f"{_TOOL}test_invalid_argument_returns_a_text_with_the_correction",
            f"{_ARGUMENTS}test_invalid_date_is_rejected_with_the_expected_format",
        ),
        difference=(
            "The response is Letta's own error sentence, so that a model can correct itself. The original server "
            "silently ignored the filter and returned results that were not asked for."
        ),
    ),
    Promise(
        id="letta.params.limit-clamped",
        statement="`limit` defaults to 50, is clamped to 1..200, and is 50 if it is not a number.",
        tests=(
            f"{_TOOL}test_limit_is_clamped",
            f"{_ARGUMENTS}test_limit_is_clamped_and_defaults_to_50",
        ),
    ),
    # Behaviour
    Promise(
        id="letta.search.combined",
        statement="Text, roles and dates are combined; results are ordered by time, newest first.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_STORED}test_messages_are_ordered_by_their_time",
            f"{_STORED}test_filters_are_applied_before_the_limit",
        ),
    ),
    Promise(
        id="letta.search.dates-in-engine",
        statement="Dates may be filtered after a bounded number of messages was fetched.",
        tests=(
            f"{_TOOL}test_old_date_range_is_found_behind_many_newer_messages",
            f"{_STORED}test_filters_are_applied_before_the_limit",
        ),
        difference="Dates are filtered in the storage engine; otherwise old dates in a long history would seem empty.",
    ),
    Promise(
        id="letta.search.canonical",
        statement="The canonical history is searched.",
        tests=(f"{_SERVICE}test_alternate_branch_is_not_history",),
    ),
    Promise(
        id="letta.search.own-outputs",
        statement="Letta excludes tool messages and calls of the search itself.",
        tests=(
            f"{_TOOL}test_output_of_own_searches_is_not_found",
            f"{_TOOL}test_scan_limit_is_reported_when_reached",
            f"{_SERVICE}test_output_of_own_tools_is_not_history",
            f"{_SERVICE}test_output_of_other_tools_is_history",
            f"{_SERVICE}test_assistant_message_that_used_own_tools_is_history",
        ),
        difference=(
            "Output of this server's own tools is excluded. Messages of other tools are included, because the "
            "specification has the role `tool` for them."
        ),
    ),
    Promise(
        id="letta.search.human-only",
        statement="The specification does not mention messages that are hidden from agents.",
        tests=(f"{_TOOL}test_human_only_messages_are_redacted",),
        difference="Their content is redacted, as in `msg_search`: one tool must not reveal what another hides.",
    ),
    # Output
    Promise(
        id="letta.output.block",
        statement=(
            "The result is one text; a message is `[YYYY-MM-DD HH:MM] role (conv: title)` followed by its content."
        ),
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_RESPONSES}test_message_is_a_block_with_time_role_and_title",
        ),
    ),
    Promise(
        id="letta.output.title-fallback",
        statement="A conversation without a title is named by the first eight characters of its id.",
        tests=(f"{_RESPONSES}test_conversation_without_title_is_named_by_the_start_of_its_id",),
    ),
    Promise(
        id="letta.output.no-time",
        statement="A message without a time is shown with `(no time)`.",
        tests=(f"{_RESPONSES}test_missing_time_or_role_is_marked",),
        difference="Every stored message has a time: one that is imported without a time gets that of its import.",
    ),
    Promise(
        id="letta.output.no-role",
        statement="A message without a role is shown as `unknown`.",
        tests=(f"{_TOOL}test_empty_role_is_unknown",),
    ),
    Promise(
        id="letta.output.truncated",
        statement="Content over 2,000 characters is truncated and ends with `...`.",
        tests=(f"{_RESPONSES}test_long_message_is_truncated",),
    ),
    Promise(
        id="letta.output.separator",
        statement="Blocks are separated by a line of three dashes between blank lines.",
        tests=(f"{_RESPONSES}test_blocks_are_separated_by_a_rule",),
    ),
    Promise(
        id="letta.output.nothing",
        statement="Without matches, the text is exactly `No matching messages.`.",
        tests=(f"{_TOOL}test_no_matches_return_one_sentence", f"{_RESPONSES}test_no_hits_render_as_one_sentence"),
    ),
    Promise(
        id="letta.output.incomplete",
        statement="The specification does not mention incomplete results.",
        tests=(
            f"{_RESPONSES}test_note_is_the_last_block",
            f"{_TOOL}test_scan_limit_is_reported_when_reached",
        ),
        difference="If older messages could not be searched in time, a last block says so.",
    ),
    # Errors
    Promise(
        id="letta.errors.role",
        statement="An invalid role returns a text that names it and the allowed roles.",
        tests=(
            f"{_TOOL}test_invalid_argument_returns_a_text_with_the_correction",
            f"{_ARGUMENTS}test_invalid_roles_are_named_with_the_allowed_ones",
        ),
    ),
    Promise(
        id="letta.errors.database",
        statement="A missing database returns `Database not found: ...`.",
        tests=(f"{_TOOL}test_no_matches_return_one_sentence",),
        difference="This does not happen: a library is created, empty, with its user's first call.",
    ),
    Promise(
        id="letta.errors.other",
        statement="Any other error returns a short text that begins with `Error:` and exposes no details.",
        tests=(f"{_TOOL}test_timed_out_search_returns_an_error_text",),
        difference=(
            "An unexpected error is a failed call (`isError`) with the request id, so that it can be found in the log."
        ),
    ),
    # Letta's built-in tool
    Promise(
        id="letta.letta.arguments",
        statement="Name, parameters, types and meaning are those of Letta's built-in tool.",
        tests=(f"{_CLIENT}test_letta_profile_has_one_tool_that_searches_the_callers_history",),
    ),
    Promise(
        id="letta.letta.json",
        statement="Clients can switch between Letta's tool and this one without changes.",
        tests=(
            f"{_TOOL}test_json_format_returns_lettas_result_shape",
            f"{_TOOL}test_json_format_reports_no_results",
            f"{_TOOL}test_age_below_a_minute_is_given_in_seconds",
            f"{_RESPONSES}test_letta_result_has_time_role_and_content",
            f"{_RESPONSES}test_letta_response_without_hits_says_so",
            f"{_RESPONSES}test_letta_result_without_time_has_null_times",
        ),
        difference=(
            "Letta's tool returns JSON, this specification text. `format: \"json\"` returns Letta's shape, with times "
            "in UTC. `limit` is 50 by default, as specified; in Letta it is 5."
        ),
    ),
    Promise(
        id="letta.letta.relevance",
        statement="In Letta's JSON, `relevance` has the ranks and the score of a result, and `search_mode`.",
        tests=(
            f"{_TOOL}test_relevance_ranks_results_by_text_and_keeps_their_order",
            f"{_TOOL}test_relevance_without_a_query_is_the_order_in_time",
        ),
        difference=(
            "Results are ordered by time, as specified; `fts_rank` is their rank by text. There is no `vector_rank`: "
            "the search is by text."
        ),
    ),
    # Users
    Promise(
        id="letta.users.own",
        statement="The configured history is searched.",
        tests=(f"{_TOOL}test_history_is_searched_by_its_owner_only",),
        difference=(
            "The caller's own history is searched, as determined by the credential; no user finds another's messages."
        ),
    ),
)
