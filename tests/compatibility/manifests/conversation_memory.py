"""Promises of conversation-memory's API reference: `search`, `get_observations` and `read`."""

from tests.compatibility.manifest import Promise

_TOOLS = "tests/server/compat/conversation_memory/test_tools.py::"
_CLIENT = "tests/clients/test_memory.py::"
_ARGUMENTS = "tests/server/compat/conversation_memory/test_arguments.py::"
_EXCHANGES = "tests/sources/reading/test_exchanges.py::"
_PATHS = "tests/server/compat/conversation_memory/test_conversation_paths.py::"
_SESSION_OBSERVATIONS = "tests/sources/importers/test_session_observations.py::"
_TEXT_MODE = "tests/server/compat/conversation_memory/test_text_mode.py::"
_IMPORTED = "tests/server/compat/conversation_memory/test_imported_database.py::"
_DATABASE = "tests/sources/importers/test_conversation_memory.py::"

PROMISES: tuple[Promise, ...] = (
    # The three layers
    Promise(
        id="conversation_memory.layers.names",
        statement="Three tools, `search`, `get_observations` and `read`, disclose memory step by step.",
        tests=(f"{_CLIENT}test_search_get_observations_and_read_work_for_each_user",),
        difference=(
            "They have these names at `/mcp/memory`. Elsewhere `search` is another tool, so the profile `full` lists "
            "them as `memory_search`, `memory_get_observations` and `memory_read`."
        ),
    ),
    Promise(
        id="conversation_memory.layers.read-only",
        statement="The three tools are read-only and idempotent, and access nothing outside the library.",
        tests=(f"{_CLIENT}test_the_memory_tools_are_marked_read_only",),
    ),
    Promise(
        id="conversation_memory.layers.cost",
        statement="A row of the first layer costs about 30 tokens.",
        tests=(
            f"{_TOOLS}test_row_costs_about_as_many_tokens_as_documented",
            f"{_TOOLS}test_long_title_is_shortened_in_its_row",
        ),
        difference=(
            "It costs 37 tokens, measured with o200k_base. The documented sample row costs 95: ours keeps its heading "
            "and gives id, type, score and title without labels. Facts are left to the second layer."
        ),
    ),
    # Search: parameters
    Promise(
        id="conversation_memory.search.query",
        statement="`query` is one concept of at least two characters, or an array of two to five.",
        tests=(
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
            f"{_ARGUMENTS}test_any_argument_is_parsed_or_rejected_with_a_message",
        ),
    ),
    Promise(
        id="conversation_memory.search.limit",
        statement="`limit` is 1 to 50 and defaults to 10.",
        tests=(
            f"{_TOOLS}test_default_limit_is_ten_rows",
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
        ),
    ),
    Promise(
        id="conversation_memory.search.dates",
        statement="`after` and `before` filter by date, written YYYY-MM-DD.",
        tests=(
            f"{_TOOLS}test_all_filters_must_match_each_by_any_of_its_values",
            f"{_ARGUMENTS}test_after_starts_at_the_beginning_of_its_day",
            f"{_ARGUMENTS}test_before_ends_at_the_end_of_the_previous_day",
            f"{_ARGUMENTS}test_date_in_another_format_is_rejected",
        ),
        difference=(
            "The documentation does not say whether the dates themselves are included, and the original compared dates "
            "with numbers, so that neither filter worked. Here `after` is inclusive and `before` is exclusive."
        ),
    ),
    Promise(
        id="conversation_memory.search.filters",
        statement="`projects`, `types`, `concepts` and `files` filter the results; all of them must match.",
        tests=(
            f"{_TOOLS}test_all_filters_must_match_each_by_any_of_its_values",
            f"{_TEXT_MODE}test_matches_of_other_projects_do_not_hide_those_of_a_project",
            f"{_TEXT_MODE}test_blank_filter_value_is_rejected",
        ),
    ),
    Promise(
        id="conversation_memory.search.single-only",
        statement="`types`, `concepts` and `files` require a single concept.",
        tests=(
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_observation_filters_exclude_exchanges",
        ),
    ),
    Promise(
        id="conversation_memory.search.mode",
        statement="`mode` is `vector`, `text` or `both`, the default.",
        tests=(
            f"{_TOOLS}test_every_mode_uses_text_search_and_says_so",
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
        ),
        difference=(
            "No embedding model is installed, so `vector` and `both` use text search, and every result says so: in a "
            "line of the Markdown, and as `served_by` in the JSON."
        ),
    ),
    Promise(
        id="conversation_memory.search.text",
        statement="Mode `text` finds exact ids, error codes and phrases, ignoring case.",
        tests=(
            f"{_TOOLS}test_error_codes_match_case_insensitively",
            f"{_TEXT_MODE}test_error_code_finds_only_what_contains_it",
            f"{_TEXT_MODE}test_text_is_matched_as_written_except_for_case_and_white_space",
            f"{_TEXT_MODE}test_exchanges_and_conversations_are_matched_by_their_own_messages",
        ),
    ),
    # search: results
    Promise(
        id="conversation_memory.search.observations",
        statement="A single concept finds observations, best first, with a score from 0 to 1.",
        tests=(
            f"{_TOOLS}test_row_that_matches_more_of_the_query_comes_first",
            f"{_TOOLS}test_json_has_results_total_and_count",
        ),
    ),
    Promise(
        id="conversation_memory.search.row",
        statement="A row has project, date, id, type, score and title.",
        tests=(f"{_TOOLS}test_row_has_project_date_id_type_score_and_title",),
    ),
    Promise(
        id="conversation_memory.search.concepts",
        statement="An array finds the conversations that match all of its concepts, as exchanges.",
        tests=(
            f"{_TOOLS}test_array_query_returns_conversations_that_match_every_concept",
            f"{_TOOLS}test_conversation_score_is_the_average_of_its_concepts",
            f"{_TOOLS}test_common_concept_does_not_hide_a_conversation_with_a_rare_one",
            f"{_TOOLS}test_unexamined_matches_are_reported",
        ),
    ),
    Promise(
        id="conversation_memory.search.concepts-filters",
        statement="Projects and dates filter conversations too.",
        tests=(f"{_TOOLS}test_projects_and_dates_filter_conversations",),
    ),
    Promise(
        id="conversation_memory.search.conversation-row",
        statement="A conversation is shown with project, date, path, score and summary.",
        tests=(
            f"{_TOOLS}test_exchanges_are_returned_and_labelled_without_a_matching_observation",
            f"{_TOOLS}test_array_query_returns_conversations_that_match_every_concept",
        ),
        difference=(
            "The summary is the session's own, or else the title or the beginning of the exchange; none is generated. "
            "The lines of the match and a snippet are included, so that `read` need not return the whole conversation."
        ),
    ),
    Promise(
        id="conversation_memory.search.json",
        statement=(
            '`response_format: "json"` returns `results` and `total`. A row has path, project, date, score, summary '
            "and snippet."
        ),
        tests=(
            f"{_TOOLS}test_json_has_results_total_and_count",
            f"{_TOOLS}test_exchange_is_returned_once_from_the_user_message_to_the_match",
            f"{_TOOLS}test_total_includes_rows_beyond_the_limit",
        ),
        difference=(
            "`total` counts all matches and is null if there were too many to examine; `count` is the number of "
            "returned rows. The JSON is also returned as structured content. Rows of observations have id, type and "
            "title as well; their path is empty if they name no conversation."
        ),
    ),
    Promise(
        id="conversation_memory.search.nothing",
        statement="Without matches, the result says `No observations found` or `No conversations found`.",
        tests=(f"{_TOOLS}test_no_results_return_the_documented_sentences",),
        difference=(
            "If no observation matches, exchanges of conversations are searched first and labelled as such, so that "
            "users without observations find something too."
        ),
    ),
    Promise(
        id="conversation_memory.search.fallback",
        statement="Exchanges that are returned instead of observations are labelled as such.",
        tests=(
            f"{_TOOLS}test_exchanges_are_returned_and_labelled_without_a_matching_observation",
            f"{_TOOLS}test_exchanges_are_not_returned_with_a_matching_observation",
            f"{_TOOLS}test_exchange_is_returned_once_from_the_user_message_to_the_match",
            f"{_TOOLS}test_projects_and_dates_filter_exchanges",
        ),
    ),
    # Get_observations
    Promise(
        id="conversation_memory.observations.full",
        statement=(
            "Observations have subtitle, narrative, facts, concepts and files, under project, time, type and title."
        ),
        tests=(f"{_TOOLS}test_observations_are_returned_in_full",),
        difference="A line `Source` follows: who recorded the observation, and the path and lines it comes from.",
    ),
    Promise(
        id="conversation_memory.observations.ids",
        statement="One to 20 ids can be requested at once; observations are returned in the order of the ids.",
        tests=(
            f"{_TOOLS}test_observations_are_returned_in_the_order_of_the_ids",
            f"{_TOOLS}test_invalid_ids_are_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_twenty_long_observations_fit_one_response_and_truncation_is_reported",
        ),
    ),
    Promise(
        id="conversation_memory.observations.original-ids",
        statement="Ids of the original's observations resolve after an import.",
        tests=(f"{_IMPORTED}test_original_ids_of_observations_resolve_for_their_owner_only",),
    ),
    Promise(
        id="conversation_memory.observations.unknown",
        statement="An unknown id is an error, `Invalid observation ID`.",
        tests=(
            f"{_TOOLS}test_invalid_ids_are_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_unknown_id_among_known_ones_is_named",
        ),
    ),
    # Read
    Promise(
        id="conversation_memory.read.whole",
        statement="A conversation is returned as Markdown: session, project and date, then its exchanges.",
        tests=(
            f"{_TOOLS}test_session_is_found_by_its_path_in_the_archive",
            f"{_IMPORTED}test_transcript_is_named_after_its_session",
            f"{_TOOLS}test_conversation_is_rendered_as_exchanges",
            f"{_TOOLS}test_conversation_without_messages_says_so",
            f"{_EXCHANGES}test_every_turn_is_in_one_run_and_runs_begin_at_a_start",
        ),
        difference=(
            "A conversation that is not a session is named by its title. Messages of tools and the system are shown "
            "under `Tool` and `System`. A conversation that exceeds the budget is truncated, with the startLine to "
            "continue from."
        ),
    ),
    Promise(
        id="conversation_memory.read.range",
        statement="`startLine` and `endLine` select lines, counted from 1, both inclusive.",
        tests=(
            f"{_TOOLS}test_line_range_returns_only_those_lines",
            f"{_TOOLS}test_session_lines_are_those_of_its_file",
            f"{_TOOLS}test_messages_appended_to_a_session_follow_its_last_line",
            f"{_EXCHANGES}test_lines_never_decrease_for_any_metadata",
        ),
        difference="Lines are those of the session file; a conversation without one has a line for each message.",
    ),
    Promise(
        id="conversation_memory.read.pages",
        statement="Large conversations can be read in parts.",
        tests=(
            f"{_TOOLS}test_long_conversation_is_truncated_with_the_line_to_continue_from",
            f"{_TOOLS}test_message_longer_than_the_budget_is_truncated_and_reported",
            f"{_TOOLS}test_many_messages_on_one_line_do_not_block_reading_on",
        ),
    ),
    Promise(
        id="conversation_memory.read.path",
        statement="`path` comes from a search result.",
        tests=(
            f"{_TOOLS}test_session_is_found_by_its_path_in_the_archive",
            f"{_TOOLS}test_unknown_or_file_system_path_is_not_found",
            f"{_DATABASE}test_path_printed_by_the_plugin_finds_the_conversation_for_its_owner_only",
            f"{_PATHS}test_path_never_leads_out_of_the_archive",
        ),
        difference=(
            "It is a key inside the caller's own library (`project/session.jsonl`, `chats://…`, or the conversation's "
            "path in an imported database), never a file system path: the original read any file it was asked for."
        ),
    ),
    Promise(
        id="conversation_memory.read.bad-range",
        statement=(
            "A range that starts before line 1, ends before it starts or lies outside the conversation is an error."
        ),
        tests=(
            f"{_TOOLS}test_invalid_line_range_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_end_line_beyond_the_end_reads_to_the_last_line",
            f"{_ARGUMENTS}test_line_range_is_rejected_unless_it_runs_forward_from_1",
        ),
        difference=(
            "An `endLine` beyond the last line means the last line: the documentation itself recommends reading ten "
            "lines past a match."
        ),
    ),
    # Errors
    Promise(
        id="conversation_memory.errors.sentences",
        statement="Errors are reported with the listed sentences.",
        tests=(
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_invalid_ids_are_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_invalid_line_range_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_unknown_or_file_system_path_is_not_found",
            f"{_TOOLS}test_path_is_required",
        ),
        difference=(
            "As in the original, `Error: ` precedes them; details follow after a colon. A missing or unknown argument "
            "and an invalid mode are reported as for every other tool."
        ),
    ),
    # Beyond the documentation
    Promise(
        id="conversation_memory.recording.client",
        statement="Observations are recorded by the models that made them, once per idempotency key.",
        tests=(
            f"{_TOOLS}test_recorded_observation_is_found_and_read",
            f"{_TOOLS}test_same_idempotency_key_records_once",
            f"{_TOOLS}test_invalid_batch_is_rejected_as_a_whole",
            f"{_CLIENT}test_recording_requires_the_write_scope",
        ),
        difference=(
            "The original has a background process that asks a language model for them. Here `observations_record` "
            "takes them from any caller with the write scope."
        ),
    ),
    Promise(
        id="conversation_memory.recording.derived",
        statement="Some observations are derived from an agent's session, and quote it.",
        tests=(
            f"{_SESSION_OBSERVATIONS}test_exchange_with_files_becomes_one_observation",
            f"{_SESSION_OBSERVATIONS}test_error_is_quoted",
            f"{_SESSION_OBSERVATIONS}test_commit_is_named_after_its_subject",
            f"{_SESSION_OBSERVATIONS}test_session_summary_becomes_an_observation",
            f"{_SESSION_OBSERVATIONS}test_every_observation_quotes_its_session",
        ),
        difference="No language model is used: only what the session proves is recorded, not what may have been meant.",
    ),
    Promise(
        id="conversation_memory.users.own",
        statement="No user can find, count, read or reference another's data; it looks nonexistent.",
        tests=(
            f"{_TOOLS}test_search_results_do_not_depend_on_other_users",
            f"{_TOOLS}test_foreign_id_or_path_looks_nonexistent",
        ),
        difference="The original serves one user on one machine.",
    ),
)
