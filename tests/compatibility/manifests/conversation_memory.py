"""Promises of conversation-memory's API reference, in its order: `search`, `get_observations` and `read`."""

from tests.compatibility.manifest import Promise

_MEMORY = "tests/compatibility/test_conversation_memory.py::"
_TOOLS = "tests/server/compat/conversation_memory/test_tools.py::"
_MODES = "tests/server/compat/conversation_memory/test_modes.py::"
_TEXT_MODE = "tests/server/compat/conversation_memory/test_text_mode.py::"
_IMPORTED = "tests/server/compat/conversation_memory/test_imported_database.py::"
_CLIENT = "tests/clients/test_memory.py::"

PROMISES: tuple[Promise, ...] = (
    # The three layers
    Promise(
        id="conversation_memory.layers.names",
        statement="Three tools, `search`, `get_observations` and `read`, disclose memory step by step.",
        tests=(
            f"{_CLIENT}test_search_get_observations_and_read_work_for_each_user",
            f"{_MEMORY}test_session_of_an_agent_is_imported_searched_and_read_over_stdio",
        ),
        difference=(
            "They have these names at `/mcp/memory`. In the profile `full`, where `search` is another tool, "
            "they begin with `memory_`."
        ),
    ),
    Promise(
        id="conversation_memory.layers.read-only",
        statement="The three tools are read-only and idempotent, and access nothing outside the library.",
        tests=(f"{_CLIENT}test_the_memory_tools_are_marked_read_only",),
    ),
    Promise(
        id="conversation_memory.layers.first-cost",
        statement="An observation in the first layer costs about 30 tokens, ten about 300.",
        tests=(
            f"{_TOOLS}test_row_costs_about_as_many_tokens_as_documented",
            f"{_TOOLS}test_long_title_is_shortened_in_its_row",
        ),
        difference=(
            "It costs 37 tokens (o200k_base); the documented sample row costs 95. Id, type, score and title "
            "have no labels, and facts are left to the second layer."
        ),
    ),
    Promise(
        id="conversation_memory.layers.second-cost",
        statement="An observation in the second layer costs about 200 to 500 tokens.",
        tests=(f"{_TOOLS}test_twenty_long_observations_fit_one_response_and_truncation_is_reported",),
        difference=(
            "It costs as many as were recorded. Twenty observations share the budget of one response, and longer ones "
            "are truncated with a notice."
        ),
    ),
    Promise(
        id="conversation_memory.layers.third-cost",
        statement="A transcript costs about 500 to 2,000 tokens.",
        tests=(
            f"{_TOOLS}test_long_conversation_is_truncated_with_the_line_to_continue_from",
            f"{_TOOLS}test_response_is_never_longer_than_the_callers_budget",
        ),
        difference=(
            "It costs at most the budget of a response (`max_tokens`, 5,000 by default), and says where to read on."
        ),
    ),
    Promise(
        id="conversation_memory.layers.agent",
        statement=(
            "An agent, `search-conversation`, walks through the layers, answers in 1,000 to 2,000 tokens and names its "
            "sources."
        ),
        not_offered=(
            "The agent is part of the plugin and runs in the client; the server has no language model. The client's "
            "own model calls the three tools."
        ),
    ),
    # search: parameters
    Promise(
        id="conversation_memory.search.parameters",
        statement="`search` has the ten documented parameters; only `query` is required.",
        tests=(f"{_MEMORY}test_listed_arguments_are_those_of_the_documentation",),
    ),
    Promise(
        id="conversation_memory.search.query",
        statement="`query` is one concept of at least two characters, or an array of two to five.",
        tests=(
            f"{_MEMORY}test_error_is_the_documented_sentence",
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
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
            f"{_TOOLS}test_projects_and_dates_filter_conversations",
        ),
        difference=(
            "Here `after` is inclusive and `before` exclusive. The documentation does not say, and the original "
            "compared dates with numbers, so that neither worked."
        ),
    ),
    Promise(
        id="conversation_memory.search.projects",
        statement="`projects` filters by project names.",
        tests=(
            f"{_TOOLS}test_all_filters_must_match_each_by_any_of_its_values",
            f"{_TOOLS}test_projects_and_dates_filter_exchanges",
            f"{_TEXT_MODE}test_matches_of_other_projects_do_not_hide_those_of_a_project",
        ),
    ),
    Promise(
        id="conversation_memory.search.observation-filters",
        statement="`types`, `concepts` and `files` filter observations.",
        tests=(
            f"{_TOOLS}test_all_filters_must_match_each_by_any_of_its_values",
            f"{_MEMORY}test_search_is_refined_by_types_and_concepts",
        ),
    ),
    Promise(
        id="conversation_memory.search.all-filters",
        statement="An observation must match all filters that are given.",
        tests=(
            f"{_TOOLS}test_all_filters_must_match_each_by_any_of_its_values",
            f"{_TEXT_MODE}test_blank_filter_value_is_rejected",
        ),
        difference="Of each filter it must match one value. A blank value is rejected.",
    ),
    Promise(
        id="conversation_memory.search.single-only",
        statement="`types`, `concepts` and `files` are for a single concept only.",
        tests=(
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_observation_filters_exclude_exchanges",
        ),
    ),
    Promise(
        id="conversation_memory.search.format",
        statement="`response_format` is `markdown`, the default, or `json`.",
        tests=(
            f"{_MEMORY}test_listed_arguments_are_those_of_the_documentation",
            f"{_TOOLS}test_json_has_results_total_and_count",
        ),
    ),
    # search: modes
    Promise(
        id="conversation_memory.search.mode",
        statement="`mode` is `vector`, `text` or `both`, the default.",
        tests=(
            f"{_MODES}test_observations_are_found_by_meaning",
            f"{_MODES}test_text_mode_compares_no_meanings",
            f"{_TOOLS}test_without_a_model_every_mode_uses_text_search_and_says_so",
            f"{_MODES}test_unreachable_model_leaves_a_search_by_text_and_says_why",
            f"{_TOOLS}test_invalid_search_is_rejected_with_the_documented_sentence",
        ),
        difference=(
            "Without a usable embedding model (`semantic_model`), `vector` and `both` use text search. Every "
            "result says so and why: in a line of the Markdown, and as `served_by` and `semantic` in the JSON."
        ),
    ),
    Promise(
        id="conversation_memory.search.vector",
        statement="Vector search uses 768-dimensional embeddings and understands synonyms and related terms.",
        tests=(
            f"{_MODES}test_observations_are_found_by_meaning",
            f"{_MODES}test_exchanges_are_found_by_meaning",
            f"{_MODES}test_conversations_that_match_all_concepts_are_found_by_meaning",
            f"{_MODES}test_vector_mode_reads_operators_as_text",
        ),
        difference=(
            "You choose the model: `fast` has 256 dimensions, `minilm` 384, an embeddings API any number. The "
            "score is the cosine, whatever the date."
        ),
    ),
    Promise(
        id="conversation_memory.search.text",
        statement="Mode `text` finds exact ids, error codes and phrases, ignoring case.",
        tests=(
            f"{_TEXT_MODE}test_error_code_finds_only_what_contains_it",
            f"{_TEXT_MODE}test_text_is_matched_as_written_except_for_case_and_white_space",
            f"{_TEXT_MODE}test_exchanges_and_conversations_are_matched_by_their_own_messages",
            f"{_TOOLS}test_error_codes_match_case_insensitively",
        ),
    ),
    Promise(
        id="conversation_memory.search.both",
        statement="Mode `both` combines semantic and exact matching, and returns diverse results.",
        tests=(
            f"{_MODES}test_vector_mode_orders_by_meaning_and_both_also_by_words",
            f"{_MODES}test_exchange_with_the_words_precedes_observations_that_are_merely_near",
            f"{_MODES}test_conversations_that_match_all_concepts_are_found_by_meaning",
        ),
        difference=(
            "Of several concepts, the words of all must be in a conversation; if there is none, the nearest by "
            "meaning are returned with a note. Results are not diversified."
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
        id="conversation_memory.search.semantic",
        statement="Observations are found by their meaning.",
        tests=(
            f"{_MODES}test_observations_are_found_by_meaning",
            f"{_TOOLS}test_row_that_matches_more_of_the_query_comes_first",
        ),
        difference="Without an embedding model, they are found by their words, in any inflection.",
    ),
    Promise(
        id="conversation_memory.search.row",
        statement="A row has a heading with project and date, and lines with id, type, score, title and facts.",
        tests=(f"{_TOOLS}test_row_has_project_date_id_type_score_and_title",),
        difference=(
            "Id, type, score and title are on one line without labels, and facts are left to `get_observations`."
        ),
    ),
    Promise(
        id="conversation_memory.search.concepts",
        statement="An array finds the conversations that contain all of its concepts, as exchanges.",
        tests=(
            f"{_TOOLS}test_array_query_returns_conversations_that_match_every_concept",
            f"{_TOOLS}test_common_concept_does_not_hide_a_conversation_with_a_rare_one",
            f"{_TOOLS}test_unexamined_matches_are_reported",
        ),
    ),
    Promise(
        id="conversation_memory.search.conversation-row",
        statement="A conversation is printed with project, date, path, score and summary.",
        tests=(
            f"{_TOOLS}test_exchanges_are_returned_and_labelled_without_a_matching_observation",
            f"{_TOOLS}test_array_query_returns_conversations_that_match_every_concept",
        ),
        difference=(
            "The summary is the session's own, else the title or the beginning of the exchange. The lines of "
            "the match and a snippet are included, so that `read` need not return everything."
        ),
    ),
    Promise(
        id="conversation_memory.search.json",
        statement="JSON has `results` and `total`.",
        tests=(f"{_TOOLS}test_json_has_results_total_and_count", f"{_TOOLS}test_total_includes_rows_beyond_the_limit"),
        difference=(
            "`total` is null if there were too many matches to examine; `count` is the number of returned rows. "
            "The JSON is also returned as structured content."
        ),
    ),
    Promise(
        id="conversation_memory.search.json-row",
        statement="A row of the JSON has `path`, `project`, `date`, `score`, `summary` and `snippet`.",
        tests=(
            f"{_TOOLS}test_json_has_results_total_and_count",
            f"{_TOOLS}test_exchange_is_returned_once_from_the_user_message_to_the_match",
        ),
        difference=(
            "Rows of observations have `id`, `type` and `title` as well; their path is empty if they name no "
            "conversation."
        ),
    ),
    Promise(
        id="conversation_memory.search.nothing",
        statement="Without matches, the result says `No observations found` or `No conversations found`.",
        tests=(
            f"{_TOOLS}test_no_results_return_the_documented_sentences",
            f"{_TOOLS}test_exchanges_are_returned_and_labelled_without_a_matching_observation",
        ),
        difference="If no observation matches, exchanges of conversations are searched first and labelled as such.",
    ),
    # get_observations
    Promise(
        id="conversation_memory.observations.ids",
        statement="It takes 1 to 20 ids.",
        tests=(
            f"{_TOOLS}test_invalid_ids_are_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_observations_are_returned_in_the_order_of_the_ids",
        ),
    ),
    Promise(
        id="conversation_memory.observations.full",
        statement="It returns subtitle, narrative, facts, concepts and files.",
        tests=(f"{_TOOLS}test_observations_are_returned_in_full",),
    ),
    Promise(
        id="conversation_memory.observations.layout",
        statement="It prints `Retrieved N observations:`, then each under `## [project, time] - type: title`.",
        tests=(f"{_MEMORY}test_observations_are_printed_in_the_documented_layout",),
        difference="A line `Source` follows each: who recorded the observation, and the path and lines it comes from.",
    ),
    Promise(
        id="conversation_memory.observations.from-search",
        statement="The ids are those of search results.",
        tests=(
            f"{_CLIENT}test_search_get_observations_and_read_work_for_each_user",
            f"{_IMPORTED}test_original_ids_of_observations_resolve_for_their_owner_only",
        ),
    ),
    Promise(
        id="conversation_memory.observations.unknown",
        statement="An unknown id is an error.",
        tests=(
            f"{_TOOLS}test_invalid_ids_are_rejected_with_the_documented_sentence",
            f"{_TOOLS}test_unknown_id_among_known_ones_is_named",
        ),
    ),
    # read
    Promise(
        id="conversation_memory.read.parameters",
        statement="It takes `path`, `startLine` (default 1) and `endLine`.",
        tests=(f"{_MEMORY}test_listed_arguments_are_those_of_the_documentation", f"{_TOOLS}test_path_is_required"),
    ),
    Promise(
        id="conversation_memory.read.whole",
        statement="It returns the whole conversation as Markdown.",
        tests=(
            f"{_TOOLS}test_conversation_is_rendered_as_exchanges",
            f"{_TOOLS}test_long_conversation_is_truncated_with_the_line_to_continue_from",
        ),
        difference="A conversation that exceeds the budget is truncated, with the startLine to continue from.",
    ),
    Promise(
        id="conversation_memory.read.layout",
        statement="Session, project and date come first, then numbered exchanges with `User` and `Assistant`.",
        tests=(
            f"{_TOOLS}test_session_is_found_by_its_path_in_the_archive",
            f"{_IMPORTED}test_transcript_is_named_after_its_session",
            f"{_TOOLS}test_conversation_is_rendered_as_exchanges",
        ),
        difference=(
            "A conversation that is not a session is named by its title. Messages of tools and the system are shown "
            "under `Tool` and `System`."
        ),
    ),
    Promise(
        id="conversation_memory.read.range",
        statement="`startLine` and `endLine` select lines, counted from 1.",
        tests=(
            f"{_TOOLS}test_line_range_returns_only_those_lines",
            f"{_TOOLS}test_session_lines_are_those_of_its_file",
        ),
        difference="Lines are those of the session file; a conversation without one has a line for each message.",
    ),
    Promise(
        id="conversation_memory.read.path",
        statement="`path` is the path of a session file, from search results.",
        tests=(
            f"{_TOOLS}test_session_is_found_by_its_path_in_the_archive",
            f"{_TOOLS}test_unknown_or_file_system_path_is_not_found",
            f"{_IMPORTED}test_transcript_is_named_after_its_session",
        ),
        difference=(
            "It is a key inside the caller's own library (`project/session.jsonl`, `chats://…`, or the path in "
            "an imported database), never a file system path: the original read any file."
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
        ),
        difference=(
            "An `endLine` beyond the last line means the last line: the documentation itself recommends reading ten "
            "lines past a match."
        ),
    ),
    Promise(
        id="conversation_memory.read.around",
        statement="The lines around a match can be read.",
        tests=(f"{_MEMORY}test_lines_around_a_match_can_be_read",),
    ),
    # Errors
    Promise(
        id="conversation_memory.errors.sentences",
        statement="The seven listed errors have their documented sentences.",
        tests=(
            f"{_MEMORY}test_error_is_the_documented_sentence",
            f"{_TOOLS}test_no_results_return_the_documented_sentences",
        ),
        difference=(
            "As in the original, `Error: ` precedes them; details follow after a colon. Wrong arguments and "
            "modes are reported as for every other tool."
        ),
    ),
    # Latencies
    Promise(
        id="conversation_memory.latency.search",
        statement=(
            "A search takes less than 100 ms, the first one longer; vector search scales to more than 10,000 "
            "observations."
        ),
        not_offered=(
            "No latency is promised, because it depends on the machine and the library. "
            "[performance.md](performance.md) has measurements of searches."
        ),
    ),
    Promise(
        id="conversation_memory.latency.observations",
        statement="`get_observations` takes less than 50 ms.",
        not_offered="No latency is promised, for the same reason.",
    ),
    Promise(
        id="conversation_memory.latency.read",
        statement="`read` is instant for fewer than 50 exchanges, and takes 100 to 500 ms for more than 100.",
        not_offered=(
            "No latency is promised, for the same reason. A response has a limited size, however long the conversation "
            "is."
        ),
    ),
    # The plugin
    Promise(
        id="conversation_memory.plugin.observer",
        statement="Observations are extracted in the background by a language model.",
        tests=(
            f"{_TOOLS}test_recorded_observation_is_found_and_read",
            f"{_TOOLS}test_same_idempotency_key_records_once",
            f"{_CLIENT}test_recording_requires_the_write_scope",
            f"{_MEMORY}test_session_of_an_agent_is_imported_searched_and_read_over_stdio",
        ),
        difference=(
            "The server has no language model. `observations_record` takes observations from any caller with "
            "the write scope, and importing an agent's sessions derives those that the session proves."
        ),
    ),
    Promise(
        id="conversation_memory.plugin.database",
        statement="The observations and exchanges are those of the plugin's database.",
        tests=(
            f"{_IMPORTED}test_original_ids_of_observations_resolve_for_their_owner_only",
            f"{_IMPORTED}test_transcript_is_named_after_its_session",
        ),
        difference="The database is imported; the plugin's ids and paths keep working.",
    ),
    Promise(
        id="conversation_memory.plugin.hooks",
        statement="Hooks of the client record each tool call, and a session starts with recent observations.",
        not_offered=(
            "The plugin's hooks run in the client. A client can call `observations_record` and `search` from its own "
            "hooks."
        ),
    ),
    Promise(
        id="conversation_memory.plugin.users",
        statement="One user on one machine uses it.",
        tests=(
            f"{_TOOLS}test_search_results_do_not_depend_on_other_users",
            f"{_TOOLS}test_foreign_id_or_path_looks_nonexistent",
            f"{_TOOLS}test_human_only_messages_are_not_found_and_redacted_where_read",
        ),
        difference=(
            "Any number of users do. No user can find, count, read or reference another's data; it looks nonexistent."
        ),
    ),
)
