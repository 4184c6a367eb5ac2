"""What "Tool reference: conversation_search" promises."""

from tests.compatibility.manifest import Promise

_TOOL = "tests/server/compat/letta/test_tools.py::"
_FORMS = "tests/server/compat/letta/test_recall.py::"
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
        tests=(f"{_TOOL}test_the_listed_schema_is_that_of_the_seed_and_the_format",),
        differs="There is a sixth, `format`, for those who want Letta's own result shape.",
    ),
    Promise(
        id="letta.tool.unknown-argument",
        says="Additional properties are not allowed.",
        tests=(f"{_TOOL}test_an_argument_that_is_unknown_is_refused",),
    ),
    Promise(
        id="letta.tool.defaults",
        says="What is left out is no filter: without any argument the newest messages are listed.",
        tests=(f"{_TOOL}test_without_arguments_the_newest_messages_are_listed",),
    ),
    # -- parameters
    Promise(
        id="letta.params.query",
        says="`query` is matched as a part of message contents, case-sensitively.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_form",
            f"{_TOOL}test_letters_beyond_ascii_match_in_any_case",
            f"{_TOOL}test_blanks_around_a_query_are_left_out",
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
            f"{_TOOL}test_no_character_of_a_query_is_a_wildcard",
            f"{_STORED}test_percent_and_underscore_stand_for_themselves",
        ),
        differs="`%` and `_` in a query are characters: who searches for `snake_case` means it.",
    ),
    Promise(
        id="letta.params.query.titles",
        says="`query` is matched in conversation titles too, and a title stands for all messages under it.",
        tests=(
            f"{_TOOL}test_a_title_that_matches_brings_every_message_of_its_conversation",
            f"{_STORED}test_a_title_stands_for_every_message_of_its_conversation",
        ),
    ),
    Promise(
        id="letta.params.roles",
        says="`roles` restricts results to user, assistant or tool; one role may be given as a bare text.",
        tests=(f"{_TOOL}test_roles_narrow_the_search", f"{_FORMS}test_roles_are_a_list_or_one_name"),
    ),
    Promise(
        id="letta.params.dates",
        says="`start_date` and `end_date` are inclusive; a date alone begins or ends with its day in UTC.",
        tests=(
            f"{_TOOL}test_dates_narrow_the_search_to_whole_days_in_utc",
            f"{_FORMS}test_a_day_is_whole_and_a_time_without_offset_is_utc",
            f"{_FORMS}test_every_day_is_read_and_every_text_is_read_or_refused",
        ),
    ),
    Promise(
        id="letta.params.dates.offsets",
        says="A time without an offset is UTC; one with an offset is the moment it names.",
        tests=(
            f"{_FORMS}test_a_day_is_whole_and_a_time_without_offset_is_utc",
            f"{_FORMS}test_any_offset_names_the_moment_it_stands_for",
        ),
    ),
    Promise(
        id="letta.params.dates.unreadable",
        says="Nothing is said of a date that cannot be read.",
        tests=(
            f"{_TOOL}test_a_mistake_is_answered_with_a_text_that_says_what_to_do",
            f"{_FORMS}test_a_date_that_cannot_be_read_is_answered_with_the_form_of_one",
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
            f"{_TOOL}test_a_limit_is_clamped",
            f"{_FORMS}test_a_limit_is_a_number_from_1_to_200_and_50_where_it_is_none",
        ),
    ),
    # -- behaviour
    Promise(
        id="letta.search.combined",
        says="Text, roles and dates are combined; results are ordered by time, newest first.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_form",
            f"{_STORED}test_the_newest_come_first_whenever_they_were_written",
            f"{_STORED}test_roles_and_days_are_counted_before_the_limit",
        ),
    ),
    Promise(
        id="letta.search.dates-in-engine",
        says="Dates may be filtered after a bounded number of messages was fetched.",
        tests=(
            f"{_TOOL}test_an_old_range_is_found_behind_many_newer_messages",
            f"{_STORED}test_roles_and_days_are_counted_before_the_limit",
        ),
        differs="They are filtered where messages are found, or old days of a long history would seem empty.",
    ),
    Promise(
        id="letta.search.canonical",
        says="What is searched is the canonical history.",
        tests=(f"{_FORMS}test_a_branch_that_was_left_is_no_answer",),
    ),
    Promise(
        id="letta.search.own-outputs",
        says="Letta leaves out tool messages and calls of the search itself.",
        tests=(
            f"{_TOOL}test_what_our_own_searches_answered_is_never_found_again",
            f"{_TOOL}test_where_too_much_is_ours_the_rest_is_told",
            f"{_FORMS}test_what_our_own_tools_answered_is_no_answer",
            f"{_FORMS}test_what_the_tools_of_others_answered_is",
            f"{_FORMS}test_what_a_model_said_with_the_help_of_our_tools_is_an_answer",
        ),
        differs=(
            "What our own tools answered is never found. Messages of other tools are, as this design has the role "
            "`tool` for them."
        ),
    ),
    Promise(
        id="letta.search.human-only",
        says="Nothing is said of messages that are kept from agents.",
        tests=(f"{_TOOL}test_what_only_people_may_read_is_hidden",),
        differs="Their content is replaced, as `msg_search` does: one tool must not show what another hides.",
    ),
    # -- output
    Promise(
        id="letta.output.block",
        says="The answer is one text; a message is `[YYYY-MM-DD HH:MM] role (conv: title)` with its content below.",
        tests=(
            f"{_TOOL}test_matches_are_listed_newest_first_in_the_documented_form",
            f"{_FORMS}test_a_message_is_a_block_with_its_minute_role_and_title",
        ),
    ),
    Promise(
        id="letta.output.title-fallback",
        says="A conversation without a title is named by the first eight characters of its id.",
        tests=(f"{_FORMS}test_a_conversation_without_a_title_is_named_by_the_beginning_of_its_id",),
    ),
    Promise(
        id="letta.output.no-time",
        says="A message without a time is shown with `(no time)`, one without a role as `unknown`.",
        tests=(f"{_FORMS}test_a_message_without_time_or_role_says_so",),
        differs="It does not occur: every message that is kept has a time and a role.",
    ),
    Promise(
        id="letta.output.truncated",
        says="Content over 2,000 characters is cut and ends with `...`.",
        tests=(f"{_FORMS}test_a_long_message_is_cut",),
    ),
    Promise(
        id="letta.output.separator",
        says="Blocks are separated by a line of three dashes between blank lines.",
        tests=(f"{_FORMS}test_blocks_stand_apart_by_a_rule",),
    ),
    Promise(
        id="letta.output.nothing",
        says="Where nothing matches, the text is `No matching messages.` and no more.",
        tests=(f"{_TOOL}test_nothing_found_is_one_sentence", f"{_FORMS}test_nothing_found_is_one_sentence"),
    ),
    Promise(
        id="letta.output.incomplete",
        says="Nothing is said of a list that is not all there is.",
        tests=(
            f"{_FORMS}test_a_list_that_is_not_all_there_is_says_so_in_a_last_block",
            f"{_TOOL}test_where_too_much_is_ours_the_rest_is_told",
        ),
        differs="If older messages could not be looked at in time, a last block says so.",
    ),
    # -- errors
    Promise(
        id="letta.errors.role",
        says="A wrong role is answered with a text that names it and those that are allowed.",
        tests=(
            f"{_TOOL}test_a_mistake_is_answered_with_a_text_that_says_what_to_do",
            f"{_FORMS}test_wrong_roles_are_named_in_order_with_those_that_are_allowed",
        ),
    ),
    Promise(
        id="letta.errors.database",
        says="A missing database is answered with `Database not found: ...`.",
        tests=(f"{_TOOL}test_nothing_found_is_one_sentence",),
        differs="It does not occur: a library is made when its user first calls, and is then empty.",
    ),
    Promise(
        id="letta.errors.other",
        says="Any other error is answered with a short text that begins with `Error:` and exposes no details.",
        tests=(f"{_TOOL}test_a_search_out_of_time_is_told_in_a_text",),
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
            f"{_TOOL}test_json_gives_lettas_result_shape",
            f"{_TOOL}test_json_says_that_nothing_was_found",
            f"{_FORMS}test_letta_is_told_time_role_and_content",
            f"{_FORMS}test_letta_is_told_that_nothing_was_found",
            f"{_FORMS}test_letta_is_told_of_a_message_without_time",
        ),
        differs="Letta's tool answers JSON, this design text. `format: \"json\"` gives Letta's; it has no `relevance`.",
    ),
    # -- users
    Promise(
        id="letta.users.own",
        says="The history that is searched is the configured one.",
        tests=(f"{_TOOL}test_a_history_is_searched_by_its_owner_alone",),
        differs="It is that of the caller, whom the credential names; nobody finds another's.",
    ),
)
