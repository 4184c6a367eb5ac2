"""What "MCP Tools API Reference" promises of layered memory: `search`, `get_observations` and `read`."""

from tests.compatibility.manifest import Promise

_TOOLS = "tests/server/compat/conversation_memory/test_tools.py::"
_CLIENT = "tests/clients/test_memory.py::"
_QUESTIONS = "tests/server/compat/conversation_memory/test_arguments.py::"
_EXCHANGES = "tests/sources/reading/test_exchanges.py::"
_ARCHIVE = "tests/server/compat/conversation_memory/test_conversation_paths.py::"
_DERIVE = "tests/sources/importers/test_session_observations.py::"
_DATABASE = "tests/sources/importers/test_conversation_memory.py::"

PROMISES: tuple[Promise, ...] = (
    # -- the three layers
    Promise(
        id="conversation_memory.layers.names",
        says="Three tools, `search`, `get_observations` and `read`, disclose memory step by step.",
        tests=(f"{_CLIENT}test_the_three_layers_lead_from_a_row_to_the_conversation",),
        differs=(
            "They have these names at `/mcp/memory`. Elsewhere `search` is another tool, so that the profile `full` "
            "lists them as `memory_search`, `memory_get_observations` and `memory_read`."
        ),
    ),
    Promise(
        id="conversation_memory.layers.read-only",
        says="The three only read, may be repeated, and touch nothing outside.",
        tests=(f"{_CLIENT}test_the_tools_say_that_they_only_read",),
    ),
    Promise(
        id="conversation_memory.layers.cost",
        says="A row of the first layer costs about 30 tokens.",
        tests=(
            f"{_TOOLS}test_row_costs_about_as_many_tokens_as_documented",
            f"{_TOOLS}test_long_title_is_shortened_in_its_row",
        ),
        differs=(
            "37 tokens as measured with o200k_base. The row that the document prints costs 95: ours keeps its heading, "
            "and says id, type, score and title without labels. Facts are left to the second layer."
        ),
    ),
    # -- search: parameters
    Promise(
        id="conversation_memory.search.query",
        says="`query` is one concept of two characters or more, or an array of two to five.",
        tests=(
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
            f"{_QUESTIONS}test_any_argument_is_parsed_or_rejected_with_a_message",
        ),
    ),
    Promise(
        id="conversation_memory.search.limit",
        says="`limit` is 1 to 50, and 10 if nothing is said.",
        tests=(
            f"{_TOOLS}test_default_limit_is_ten_rows",
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
        ),
    ),
    Promise(
        id="conversation_memory.search.dates",
        says="`after` and `before` narrow by date, written YYYY-MM-DD.",
        tests=(
            f"{_TOOLS}test_all_filters_must_match_each_by_any_of_its_values",
            f"{_QUESTIONS}test_after_starts_at_the_beginning_of_its_day",
            f"{_QUESTIONS}test_before_ends_at_the_end_of_the_previous_day",
            f"{_QUESTIONS}test_date_in_another_format_is_rejected",
        ),
        differs=(
            "The document does not say to which side the days themselves belong, and the original compared dates with "
            "numbers, so that neither filter worked. Here `after` includes its day and `before` does not."
        ),
    ),
    Promise(
        id="conversation_memory.search.filters",
        says="`projects`, `types`, `concepts` and `files` narrow what is found; all that are given must be met.",
        tests=(f"{_TOOLS}test_all_filters_must_match_each_by_any_of_its_values",),
    ),
    Promise(
        id="conversation_memory.search.single-only",
        says="`types`, `concepts` and `files` are for a single concept.",
        tests=(
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_observation_filters_exclude_exchanges",
        ),
    ),
    Promise(
        id="conversation_memory.search.mode",
        says="`mode` is `vector`, `text` or `both`, which is the default.",
        tests=(
            f"{_TOOLS}test_every_mode_uses_text_search_and_says_so",
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
        ),
        differs=(
            "No embedding model is installed, so each mode is served by text search, and each answer says so: a line "
            "of the Markdown, `served_by` in the JSON."
        ),
    ),
    Promise(
        id="conversation_memory.search.text",
        says="Text search finds ids, error codes and words in any case.",
        tests=(f"{_TOOLS}test_error_codes_match_case_insensitively",),
    ),
    # -- search: answers
    Promise(
        id="conversation_memory.search.observations",
        says="A single concept finds observations, best first, with a score from 0 to 1.",
        tests=(
            f"{_TOOLS}test_row_that_matches_more_of_the_query_comes_first",
            f"{_TOOLS}test_json_has_results_total_and_count",
        ),
    ),
    Promise(
        id="conversation_memory.search.row",
        says="A row names project, date, id, type, score and title.",
        tests=(f"{_TOOLS}test_row_has_project_date_id_type_score_and_title",),
    ),
    Promise(
        id="conversation_memory.search.concepts",
        says="An array finds the conversations that hold all of its concepts, as exchanges.",
        tests=(
            f"{_TOOLS}test_array_query_returns_conversations_that_match_every_concept",
            f"{_TOOLS}test_conversation_score_is_the_average_of_its_concepts",
            f"{_TOOLS}test_common_concept_does_not_hide_a_conversation_with_a_rare_one",
            f"{_TOOLS}test_unexamined_matches_are_reported",
        ),
    ),
    Promise(
        id="conversation_memory.search.concepts-filters",
        says="Projects and dates narrow conversations too.",
        tests=(f"{_TOOLS}test_projects_and_dates_filter_conversations",),
    ),
    Promise(
        id="conversation_memory.search.conversation-row",
        says="A conversation is shown with project, date, path, score and summary.",
        tests=(
            f"{_TOOLS}test_exchanges_are_returned_and_labelled_without_a_matching_observation",
            f"{_TOOLS}test_array_query_returns_conversations_that_match_every_concept",
        ),
        differs=(
            "The summary is the one that came with the session, or the title, or how the exchange begins: none is "
            "written here. The lines of the match and a passage around it follow, so that `read` need not read it all."
        ),
    ),
    Promise(
        id="conversation_memory.search.json",
        says='`response_format: "json"` answers `results` and `total`.',
        tests=(
            f"{_TOOLS}test_json_has_results_total_and_count",
            f"{_TOOLS}test_total_includes_rows_beyond_the_limit",
        ),
        differs=(
            "`total` counts all matches, not only those shown, which `count` does as the original's answers did; it is "
            "null where there were too many to look through. Beside the text, JSON is structured content too. The "
            "seed's sample shows a conversation: rows of exchanges and conversations have its path, summary and "
            "snippet, rows of observations id, type and title instead, as in Markdown, and `get_observations` says "
            "where each was read. A path costs nearly as many tokens as the whole row."
        ),
    ),
    Promise(
        id="conversation_memory.search.nothing",
        says="Where nothing is found, the answer says `No observations found` or `No conversations found`.",
        tests=(f"{_TOOLS}test_no_results_return_the_documented_sentences",),
        differs=(
            "Before that, where no observation matches, exchanges of conversations are looked for, and labelled: "
            "who has not recorded anything yet finds something all the same."
        ),
    ),
    Promise(
        id="conversation_memory.search.fallback",
        says="Exchanges that come in the place of observations are labelled as such.",
        tests=(
            f"{_TOOLS}test_exchanges_are_returned_and_labelled_without_a_matching_observation",
            f"{_TOOLS}test_exchanges_are_not_returned_with_a_matching_observation",
            f"{_TOOLS}test_exchange_is_returned_once_from_the_user_message_to_the_match",
            f"{_TOOLS}test_projects_and_dates_filter_exchanges",
        ),
    ),
    # -- get_observations
    Promise(
        id="conversation_memory.observations.full",
        says="Observations come with subtitle, narrative, facts, concepts and files, under project, time, type, title.",
        tests=(f"{_TOOLS}test_observations_are_returned_in_full",),
        differs="A line `Source` follows: who wrote it down, and the path and lines it was read at.",
    ),
    Promise(
        id="conversation_memory.observations.ids",
        says="One to 20 ids are asked for at once, and come in their order.",
        tests=(
            f"{_TOOLS}test_observations_are_returned_in_the_order_of_the_ids",
            f"{_TOOLS}test_invalid_ids_are_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_twenty_long_observations_fit_one_response_and_truncation_is_reported",
        ),
    ),
    Promise(
        id="conversation_memory.observations.unknown",
        says="An id that there is not is an error, `Invalid observation ID`.",
        tests=(
            f"{_TOOLS}test_invalid_ids_are_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_unknown_id_among_known_ones_is_named",
        ),
    ),
    # -- read
    Promise(
        id="conversation_memory.read.whole",
        says="A conversation is read as Markdown: name, project and date, then its exchanges.",
        tests=(
            f"{_TOOLS}test_conversation_is_rendered_as_exchanges",
            f"{_TOOLS}test_conversation_without_messages_says_so",
            f"{_EXCHANGES}test_turns_are_grouped_whole_and_in_order_each_run_from_one_that_begins",
        ),
        differs=(
            "What tools and the system said is shown under `Tool` and `System`. A conversation longer than an answer "
            "may be is cut, with the startLine to read on from."
        ),
    ),
    Promise(
        id="conversation_memory.read.range",
        says="`startLine` and `endLine` read some lines, counted from 1 and both included.",
        tests=(
            f"{_TOOLS}test_line_range_returns_only_those_lines",
            f"{_TOOLS}test_session_lines_are_those_of_its_file",
            f"{_TOOLS}test_messages_appended_to_a_session_follow_its_last_line",
            f"{_EXCHANGES}test_lines_never_go_back_whatever_metadata_says",
        ),
        differs="Lines are those of the session's file; a conversation that came from none has a line for each turn.",
    ),
    Promise(
        id="conversation_memory.read.pages",
        says="Large conversations are read in pages.",
        tests=(
            f"{_TOOLS}test_long_conversation_is_truncated_with_the_line_to_continue_from",
            f"{_TOOLS}test_message_longer_than_the_budget_is_truncated_and_reported",
            f"{_TOOLS}test_many_messages_on_one_line_do_not_block_reading_on",
        ),
    ),
    Promise(
        id="conversation_memory.read.path",
        says="`path` is what a search gave.",
        tests=(
            f"{_TOOLS}test_session_is_found_by_its_path_in_the_archive",
            f"{_TOOLS}test_unknown_or_file_system_path_is_not_found",
            f"{_DATABASE}test_the_path_that_the_plugin_printed_reads_the_conversation_of_its_owner_alone",
            f"{_ARCHIVE}test_path_never_leads_out_of_the_archive",
        ),
        differs=(
            "It is a key inside the caller's own archive, `project/session.jsonl`, `chats://…` or the path under which "
            "an imported database knew the conversation, and never a path of a file system: the original read "
            "whichever file it was told to."
        ),
    ),
    Promise(
        id="conversation_memory.read.bad-range",
        says="A range that starts before line 1, ends before it starts or lies outside is an error.",
        tests=(
            f"{_TOOLS}test_invalid_line_range_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_end_line_beyond_the_end_reads_to_the_last_line",
            f"{_QUESTIONS}test_line_range_is_rejected_unless_it_runs_forward_from_1",
        ),
        differs=(
            "An `endLine` behind the last line means the last line: the document itself advises to read ten lines past "
            "a match."
        ),
    ),
    # -- errors
    Promise(
        id="conversation_memory.errors.sentences",
        says="Mistakes are told in the listed sentences.",
        tests=(
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_invalid_ids_are_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_invalid_line_range_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_unknown_or_file_system_path_is_not_found",
            f"{_TOOLS}test_path_is_required",
        ),
        differs=(
            "As in the original's answers `Error: ` stands before them; what was wrong follows after a colon. An "
            "argument that is missing or unknown, and a mode that there is not, are refused as everywhere here."
        ),
    ),
    # -- what the document leaves open
    Promise(
        id="conversation_memory.recording.client",
        says="Observations are written by the models that learned something, once for each key.",
        tests=(
            f"{_TOOLS}test_recorded_observation_is_found_and_read",
            f"{_TOOLS}test_same_idempotency_key_records_once",
            f"{_TOOLS}test_invalid_batch_is_rejected_as_a_whole",
            f"{_CLIENT}test_recording_needs_the_scope_to_write",
        ),
        differs=(
            "The original has a background process that asks a language model for them. Here `observations_record` "
            "takes them from whoever calls, with the scope to write."
        ),
    ),
    Promise(
        id="conversation_memory.recording.derived",
        says="A session of an agent proves some observations by itself, and they quote it.",
        tests=(
            f"{_DERIVE}test_an_exchange_that_touched_files_is_one_observation_with_them",
            f"{_DERIVE}test_an_error_is_quoted",
            f"{_DERIVE}test_a_commit_is_called_by_its_subject",
            f"{_DERIVE}test_a_summary_of_the_session_is_kept",
            f"{_DERIVE}test_every_observation_quotes_its_session",
        ),
        differs="No language model is asked: what was meant is not guessed from what was done.",
    ),
    Promise(
        id="conversation_memory.users.own",
        says="Nobody finds, counts, reads or points at what is another's; it answers as what does not exist.",
        tests=(
            f"{_TOOLS}test_search_results_do_not_depend_on_other_users",
            f"{_TOOLS}test_foreign_id_or_path_looks_nonexistent",
        ),
        differs="The original serves one user on one machine.",
    ),
)
