"""What "MCP Tools API Reference" promises of layered memory: `search`, `get_observations` and `read`."""

from tests.compatibility.manifest import Promise

_TOOLS = "tests/server/compat/conversation_memory/test_tools.py::"
_CLIENT = "tests/clients/test_memory.py::"
_QUESTIONS = "tests/server/compat/conversation_memory/test_questions.py::"
_EXCHANGES = "tests/sources/reading/test_exchanges.py::"
_ARCHIVE = "tests/server/compat/conversation_memory/test_archive.py::"
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
            f"{_TOOLS}test_a_row_costs_about_as_many_tokens_as_promised",
            f"{_TOOLS}test_a_long_title_does_not_make_a_long_row",
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
            f"{_TOOLS}test_a_search_is_refused_in_the_words_clients_know",
            f"{_QUESTIONS}test_no_argument_fails_otherwise_than_by_a_sentence",
        ),
    ),
    Promise(
        id="conversation_memory.search.limit",
        says="`limit` is 1 to 50, and 10 if nothing is said.",
        tests=(
            f"{_TOOLS}test_ten_rows_come_unless_more_are_asked_for",
            f"{_TOOLS}test_a_search_is_refused_in_the_words_clients_know",
        ),
    ),
    Promise(
        id="conversation_memory.search.dates",
        says="`after` and `before` narrow by date, written YYYY-MM-DD.",
        tests=(
            f"{_TOOLS}test_filters_are_all_obeyed_each_by_any_of_its_values",
            f"{_QUESTIONS}test_a_period_begins_with_the_first_moment_of_its_day",
            f"{_QUESTIONS}test_a_period_ends_with_the_last_moment_of_the_day_before",
            f"{_QUESTIONS}test_only_a_date_of_the_one_form_is_a_date",
        ),
        differs=(
            "The document does not say to which side the days themselves belong, and the original compared dates with "
            "numbers, so that neither filter worked. Here `after` includes its day and `before` does not."
        ),
    ),
    Promise(
        id="conversation_memory.search.filters",
        says="`projects`, `types`, `concepts` and `files` narrow what is found; all that are given must be met.",
        tests=(f"{_TOOLS}test_filters_are_all_obeyed_each_by_any_of_its_values",),
    ),
    Promise(
        id="conversation_memory.search.single-only",
        says="`types`, `concepts` and `files` are for a single concept.",
        tests=(
            f"{_TOOLS}test_a_search_is_refused_in_the_words_clients_know",
            f"{_TOOLS}test_filters_of_observations_find_no_exchanges",
        ),
    ),
    Promise(
        id="conversation_memory.search.mode",
        says="`mode` is `vector`, `text` or `both`, which is the default.",
        tests=(
            f"{_TOOLS}test_every_mode_is_served_by_text_and_says_so",
            f"{_TOOLS}test_a_search_is_refused_in_the_words_clients_know",
        ),
        differs=(
            "No embedding model is installed, so each mode is served by text search, and each answer says so: a line "
            "of the Markdown, `served_by` in the JSON."
        ),
    ),
    Promise(
        id="conversation_memory.search.text",
        says="Text search finds ids, error codes and words in any case.",
        tests=(f"{_TOOLS}test_error_codes_are_found_as_they_are_written_in_any_case",),
    ),
    # -- search: answers
    Promise(
        id="conversation_memory.search.observations",
        says="A single concept finds observations, best first, with a score from 0 to 1.",
        tests=(
            f"{_TOOLS}test_the_row_that_holds_more_of_the_query_comes_first",
            f"{_TOOLS}test_json_has_results_total_and_count",
        ),
    ),
    Promise(
        id="conversation_memory.search.row",
        says="A row names project, date, id, type, score and title.",
        tests=(f"{_TOOLS}test_a_row_has_project_date_id_type_score_and_title",),
    ),
    Promise(
        id="conversation_memory.search.concepts",
        says="An array finds the conversations that hold all of its concepts, as exchanges.",
        tests=(
            f"{_TOOLS}test_an_array_finds_conversations_that_hold_every_concept",
            f"{_TOOLS}test_a_conversations_score_is_the_average_of_its_concepts",
            f"{_TOOLS}test_a_common_concept_does_not_hide_a_conversation_that_holds_a_rare_one",
            f"{_TOOLS}test_matches_that_were_not_looked_through_are_told",
        ),
    ),
    Promise(
        id="conversation_memory.search.concepts-filters",
        says="Projects and dates narrow conversations too.",
        tests=(f"{_TOOLS}test_projects_and_dates_narrow_conversations_too",),
    ),
    Promise(
        id="conversation_memory.search.conversation-row",
        says="A conversation is shown with project, date, path, score and summary.",
        tests=(
            f"{_TOOLS}test_without_an_observation_labelled_exchanges_come",
            f"{_TOOLS}test_an_array_finds_conversations_that_hold_every_concept",
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
            f"{_TOOLS}test_total_counts_what_the_limit_leaves_out",
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
        tests=(f"{_TOOLS}test_nothing_found_is_said_in_the_words_clients_know",),
        differs=(
            "Before that, where no observation matches, exchanges of conversations are looked for, and labelled: "
            "who has not recorded anything yet finds something all the same."
        ),
    ),
    Promise(
        id="conversation_memory.search.fallback",
        says="Exchanges that come in the place of observations are labelled as such.",
        tests=(
            f"{_TOOLS}test_without_an_observation_labelled_exchanges_come",
            f"{_TOOLS}test_an_observation_keeps_exchanges_away",
            f"{_TOOLS}test_an_exchange_comes_once_from_what_the_user_said_to_the_match",
            f"{_TOOLS}test_projects_and_dates_narrow_exchanges_too",
        ),
    ),
    # -- get_observations
    Promise(
        id="conversation_memory.observations.full",
        says="Observations come with subtitle, narrative, facts, concepts and files, under project, time, type, title.",
        tests=(f"{_TOOLS}test_observations_are_told_in_full",),
        differs="A line `Source` follows: who wrote it down, and the path and lines it was read at.",
    ),
    Promise(
        id="conversation_memory.observations.ids",
        says="One to 20 ids are asked for at once, and come in their order.",
        tests=(
            f"{_TOOLS}test_observations_come_in_the_order_of_their_ids",
            f"{_TOOLS}test_ids_are_refused_in_the_words_clients_know",
            f"{_TOOLS}test_twenty_long_observations_fit_into_one_answer_and_the_cut_is_told",
        ),
    ),
    Promise(
        id="conversation_memory.observations.unknown",
        says="An id that there is not is an error, `Invalid observation ID`.",
        tests=(
            f"{_TOOLS}test_ids_are_refused_in_the_words_clients_know",
            f"{_TOOLS}test_one_unknown_id_is_named_among_known_ones",
        ),
    ),
    # -- read
    Promise(
        id="conversation_memory.read.whole",
        says="A conversation is read as Markdown: name, project and date, then its exchanges.",
        tests=(
            f"{_TOOLS}test_a_conversation_is_read_in_exchanges",
            f"{_TOOLS}test_a_conversation_without_messages_says_so",
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
            f"{_TOOLS}test_a_range_of_lines_is_read_alone",
            f"{_TOOLS}test_the_lines_of_a_session_are_those_of_its_file",
            f"{_TOOLS}test_what_was_appended_to_a_session_follows_its_last_line",
            f"{_EXCHANGES}test_lines_never_go_back_whatever_metadata_says",
        ),
        differs="Lines are those of the session's file; a conversation that came from none has a line for each turn.",
    ),
    Promise(
        id="conversation_memory.read.pages",
        says="Large conversations are read in pages.",
        tests=(
            f"{_TOOLS}test_a_long_conversation_is_cut_and_says_where_it_goes_on",
            f"{_TOOLS}test_a_message_too_long_for_any_answer_is_cut_and_told",
            f"{_TOOLS}test_many_messages_on_one_line_do_not_stop_a_reader",
        ),
    ),
    Promise(
        id="conversation_memory.read.path",
        says="`path` is what a search gave.",
        tests=(
            f"{_TOOLS}test_a_session_goes_by_the_name_in_its_archive",
            f"{_TOOLS}test_a_path_that_is_no_key_of_the_archive_is_not_found",
            f"{_DATABASE}test_the_path_that_the_plugin_printed_reads_the_conversation_of_its_owner_alone",
            f"{_ARCHIVE}test_no_name_leads_out_of_an_archive",
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
            f"{_TOOLS}test_a_line_range_is_refused_in_the_words_clients_know",
            f"{_TOOLS}test_an_end_behind_the_last_line_is_the_last_line",
            f"{_QUESTIONS}test_a_line_range_is_refused_or_runs_forward_from_1",
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
            f"{_TOOLS}test_a_search_is_refused_in_the_words_clients_know",
            f"{_TOOLS}test_ids_are_refused_in_the_words_clients_know",
            f"{_TOOLS}test_a_line_range_is_refused_in_the_words_clients_know",
            f"{_TOOLS}test_a_path_that_is_no_key_of_the_archive_is_not_found",
            f"{_TOOLS}test_a_path_is_required",
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
            f"{_TOOLS}test_what_is_recorded_is_found_and_read",
            f"{_TOOLS}test_the_same_key_records_once",
            f"{_TOOLS}test_a_record_that_cannot_be_kept_is_refused_whole",
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
            f"{_TOOLS}test_nobody_finds_or_counts_what_is_anothers",
            f"{_TOOLS}test_a_foreign_id_or_path_answers_as_an_absent_one",
        ),
        differs="The original serves one user on one machine.",
    ),
)
