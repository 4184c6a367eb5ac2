"""What "Tool reference: conversation_search" promises."""

from tests.compatibility.manifest import Promise

_TOOL = "tests/server/compat/letta/test_tools.py::"
_ARGUMENTS = "tests/server/compat/letta/test_arguments.py::"
_SERVICE = "tests/server/compat/letta/test_service.py::"
_RESPONSES = "tests/server/compat/letta/test_responses.py::"
_CLIENT = "tests/clients/test_compat_clients.py::"
_STORED = "tests/sources/storage/test_texts_of_messages.py::"

PROMISES: tuple[Promise, ...] = (
    # -- the tool
    Promise(
        id="letta.tool.only",
        says="The server lists a single tool, `conversation_search`, which any MCP client can call.",
        tests=(
            f"{_CLIENT}test_lettas_profile_has_one_tool_and_it_finds_each_users_own_history",
            f"{_CLIENT}test_both_tools_are_in_the_full_profile",
        ),
        differs="It is the only tool at `/mcp/letta`, and one of many at `/mcp/full`: this server has more to offer.",
    ),
    Promise(
        id="letta.tool.schema",
        says="All five parameters are optional, have the documented types and default, and allow no others.",
        tests=(f"{_TOOL}test_listed_schema_is_lettas_plus_format",),
        differs="There is a sixth, `format`, for those who want Letta's own result shape.",
    ),
    Promise(
        id="letta.tool.unknown-argument",
        says="Additional properties are not allowed.",
        tests=(f"{_TOOL}test_unknown_argument_is_rejected",),
    ),
    Promise(
        id="letta.tool.defaults",
        says="What is left out is no filter: without any argument the newest messages are listed.",
        tests=(f"{_TOOL}test_without_arguments_the_newest_messages_are_returned",),
    ),
    # -- parameters
    Promise(
        id="letta.params.query",
        says="`query` is matched as a part of message contents, case-sensitively.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_TOOL}test_non_ascii_letters_match_case_insensitively",
            f"{_TOOL}test_whitespace_around_the_query_is_ignored",
            f"{_STORED}test_a_text_is_found_in_any_case_and_only_where_it_stands",
        ),
        differs=(
            "It matches in any case and every script. SQLite's LIKE, which the design names, ignores case too, "
            "but only of ASCII letters."
        ),
    ),
    Promise(
        id="letta.params.query.wildcards",
        says="`query` is put between the wildcards of SQL's LIKE.",
        tests=(
            f"{_TOOL}test_query_has_no_wildcards",
            f"{_STORED}test_percent_and_underscore_stand_for_themselves",
        ),
        differs="`%` and `_` in a query are characters: who searches for `snake_case` means it.",
    ),
    Promise(
        id="letta.params.query.titles",
        says="`query` is matched in conversation titles too, and a title stands for all messages under it.",
        tests=(
            f"{_TOOL}test_matching_title_returns_every_message_of_its_conversation",
            f"{_STORED}test_a_title_stands_for_every_message_of_its_conversation",
        ),
    ),
    Promise(
        id="letta.params.roles",
        says="`roles` restricts results to user, assistant or tool; one role may be given as a bare text.",
        tests=(f"{_TOOL}test_roles_filter_the_results", f"{_ARGUMENTS}test_roles_can_be_a_list_or_one_name"),
    ),
    Promise(
        id="letta.params.dates",
        says="`start_date` and `end_date` are inclusive; a date alone begins or ends with its day in UTC.",
        tests=(
            f"{_TOOL}test_dates_filter_by_whole_utc_days",
            f"{_ARGUMENTS}test_date_covers_its_whole_day_and_time_without_offset_is_utc",
            f"{_ARGUMENTS}test_every_date_is_parsed_and_any_text_is_parsed_or_rejected",
        ),
    ),
    Promise(
        id="letta.params.dates.offsets",
        says="A time without an offset is UTC; one with an offset is the moment it names.",
        tests=(
            f"{_ARGUMENTS}test_date_covers_its_whole_day_and_time_without_offset_is_utc",
            f"{_ARGUMENTS}test_any_offset_is_converted_to_utc",
        ),
    ),
    Promise(
        id="letta.params.dates.unreadable",
        says="Nothing is said of a date that cannot be read.",
        tests=(
            f"{_TOOL}test_invalid_argument_returns_a_text_with_the_correction",
            f"{_ARGUMENTS}test_invalid_date_is_rejected_with_the_expected_format",
        ),
        differs=(
            "It is answered with the sentence that Letta has for it, so that a model can correct itself. The system "
            "itself left the filter out in silence, and answered something that was not asked for."
        ),
    ),
    Promise(
        id="letta.params.limit-clamped",
        says="`limit` is 50 by default, moved into 1 to 200, and 50 where it is no number.",
        tests=(
            f"{_TOOL}test_limit_is_clamped",
            f"{_ARGUMENTS}test_limit_is_clamped_and_defaults_to_50",
        ),
    ),
    # -- behaviour
    Promise(
        id="letta.search.combined",
        says="Text, roles and dates are combined; results are ordered by time, newest first.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_STORED}test_the_newest_come_first_whenever_they_were_written",
            f"{_STORED}test_roles_and_days_are_counted_before_the_limit",
        ),
    ),
    Promise(
        id="letta.search.dates-in-engine",
        says="Dates may be filtered after a bounded number of messages was fetched.",
        tests=(
            f"{_TOOL}test_old_date_range_is_found_behind_many_newer_messages",
            f"{_STORED}test_roles_and_days_are_counted_before_the_limit",
        ),
        differs="They are filtered where messages are found, or old days of a long history would seem empty.",
    ),
    Promise(
        id="letta.search.canonical",
        says="What is searched is the canonical history.",
        tests=(f"{_SERVICE}test_alternate_branch_is_not_history",),
    ),
    Promise(
        id="letta.search.own-outputs",
        says="Letta leaves out tool messages and calls of the search itself.",
        tests=(
            f"{_TOOL}test_output_of_own_searches_is_not_found",
            f"{_TOOL}test_scan_limit_is_reported_when_reached",
            f"{_SERVICE}test_output_of_own_tools_is_not_history",
            f"{_SERVICE}test_output_of_other_tools_is_history",
            f"{_SERVICE}test_assistant_message_that_used_own_tools_is_history",
        ),
        differs=(
            "What our own tools answered is never found. Messages of other tools are, as this design has the role "
            "`tool` for them."
        ),
    ),
    Promise(
        id="letta.search.human-only",
        says="Nothing is said of messages that are kept from agents.",
        tests=(f"{_TOOL}test_human_only_messages_are_redacted",),
        differs="Their content is replaced, as `msg_search` does: one tool must not show what another hides.",
    ),
    # -- output
    Promise(
        id="letta.output.block",
        says="The answer is one text; a message is `[YYYY-MM-DD HH:MM] role (conv: title)` with its content below.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_format",
            f"{_RESPONSES}test_message_is_a_block_with_time_role_and_title",
        ),
    ),
    Promise(
        id="letta.output.title-fallback",
        says="A conversation without a title is named by the first eight characters of its id.",
        tests=(f"{_RESPONSES}test_conversation_without_title_is_named_by_the_start_of_its_id",),
    ),
    Promise(
        id="letta.output.no-time",
        says="A message without a time is shown with `(no time)`, one without a role as `unknown`.",
        tests=(f"{_RESPONSES}test_missing_time_or_role_is_marked",),
        differs="It does not occur: every message that is kept has a time and a role.",
    ),
    Promise(
        id="letta.output.truncated",
        says="Content over 2,000 characters is cut and ends with `...`.",
        tests=(f"{_RESPONSES}test_long_message_is_truncated",),
    ),
    Promise(
        id="letta.output.separator",
        says="Blocks are separated by a line of three dashes between blank lines.",
        tests=(f"{_RESPONSES}test_blocks_are_separated_by_a_rule",),
    ),
    Promise(
        id="letta.output.nothing",
        says="Where nothing matches, the text is `No matching messages.` and no more.",
        tests=(f"{_TOOL}test_no_matches_return_one_sentence", f"{_RESPONSES}test_no_hits_render_as_one_sentence"),
    ),
    Promise(
        id="letta.output.incomplete",
        says="Nothing is said of a list that is not all there is.",
        tests=(
            f"{_RESPONSES}test_note_is_the_last_block",
            f"{_TOOL}test_scan_limit_is_reported_when_reached",
        ),
        differs="If older messages could not be looked at in time, a last block says so.",
    ),
    # -- errors
    Promise(
        id="letta.errors.role",
        says="A wrong role is answered with a text that names it and those that are allowed.",
        tests=(
            f"{_TOOL}test_invalid_argument_returns_a_text_with_the_correction",
            f"{_ARGUMENTS}test_invalid_roles_are_named_with_the_allowed_ones",
        ),
    ),
    Promise(
        id="letta.errors.database",
        says="A missing database is answered with `Database not found: ...`.",
        tests=(f"{_TOOL}test_no_matches_return_one_sentence",),
        differs="It does not occur: a library is made when its user first calls, and is then empty.",
    ),
    Promise(
        id="letta.errors.other",
        says="Any other error is answered with a short text that begins with `Error:` and exposes no details.",
        tests=(f"{_TOOL}test_timed_out_search_returns_an_error_text",),
        differs="An error that nobody foresaw is a failed call (`isError`) that names its request, for the log.",
    ),
    # -- Letta
    Promise(
        id="letta.letta.arguments",
        says="Name, parameters, types and meaning are those of Letta's built-in tool.",
        tests=(f"{_CLIENT}test_lettas_profile_has_one_tool_and_it_finds_each_users_own_history",),
    ),
    Promise(
        id="letta.letta.json",
        says="No change is needed when switching between Letta's tool and this one.",
        tests=(
            f"{_TOOL}test_json_format_returns_lettas_result_shape",
            f"{_TOOL}test_json_format_reports_no_results",
            f"{_RESPONSES}test_letta_result_has_time_role_and_content",
            f"{_RESPONSES}test_letta_response_without_hits_says_so",
            f"{_RESPONSES}test_letta_result_without_time_has_null_times",
        ),
        differs="Letta's tool answers JSON, this design text. `format: \"json\"` gives Letta's; it has no `relevance`.",
    ),
    # -- users
    Promise(
        id="letta.users.own",
        says="The history that is searched is the configured one.",
        tests=(f"{_TOOL}test_history_is_searched_by_its_owner_only",),
        differs="It is that of the caller, whom the credential names; nobody finds another's.",
    ),
)
