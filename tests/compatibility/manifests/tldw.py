"""Promises of tldw's MCP context search and retrieval: tools, shapes, scores, modes, sessions and clients."""

from tests.compatibility.manifest import Promise

_FILTERS = "tests/aggregator/test_filters.py::"
_DEFAULTS = "tests/aggregator/test_defaults.py::"
_MERGE = "tests/aggregator/test_merge.py::"
_PAGING = "tests/aggregator/test_paging.py::"
_SESSIONS = "tests/aggregator/test_sessions.py::"
_TOPIC = "tests/aggregator/test_topic.py::"
_AUTHENTICATOR = "tests/auth/test_authenticator.py::"
_CONTEXT = "tests/auth/test_context.py::"
_CLIENTS_RESEARCH = "tests/clients/test_research.py::"
_TLDW = "tests/compatibility/test_tldw.py::"
_LOGGING = "tests/config/test_logging.py::"
_PATHS = "tests/config/test_paths.py::"
_LEGACY = "tests/server/transports/test_http_legacy.py::"
_PRECEDENCE = "tests/server/transports/test_precedence.py::"
_TRANSPORT_PROFILES = "tests/server/transports/test_profiles.py::"
_SESSION_HIJACK = "tests/server/transports/test_session_hijack.py::"
_REQUEST_OPTIONS = "tests/server/transports/test_request_options.py::"
_KNOWLEDGE = "tests/server/tools/test_knowledge.py::"
_COMPACT = "tests/server/tools/test_compact.py::"
_TRANSPORTS = "tests/server/tools/test_transports.py::"
_RESEARCH = "tests/server/tools/test_research.py::"
_RESOURCES = "tests/server/tools/test_resources.py::"
_TOOLS = "tests/server/tools/test_tools.py::"
_DISPATCHER = "tests/server/protocol/test_dispatcher.py::"
_SERVER_PROFILES = "tests/server/test_profiles.py::"
_STATE = "tests/sessions/test_state.py::"
_SEARCH = "tests/sources/storage/test_search.py::"
_CHARACTERS = "tests/sources/test_characters.py::"
_CHATS = "tests/sources/test_chats.py::"
_CHUNKING = "tests/sources/text/test_chunking.py::"
_EVERY_SOURCE = "tests/sources/test_every_source.py::"
_ISOLATION = "tests/sources/test_isolation.py::"
_MEDIA = "tests/sources/test_media.py::"
_NOTES = "tests/sources/test_notes.py::"
_PROMPTS = "tests/sources/test_prompts.py::"
_RETRIEVAL = "tests/sources/reading/test_retrieval.py::"
_SCORING = "tests/sources/search/test_scoring.py::"
_SNIPPET = "tests/sources/search/test_snippets.py::"

PROMISES: tuple[Promise, ...] = (
    # Security
    Promise(
        id="tldw.security.own-library",
        statement="A caller reads only its own library.",
        tests=(
            f"{_TRANSPORTS}test_each_user_finds_their_own_note_through_every_transport",
            f"{_ISOLATION}test_lists_searches_and_completions_ignore_items_of_other_users",
            f"{_EVERY_SOURCE}test_users_find_only_their_own_items",
        ),
    ),
    Promise(
        id="tldw.security.no-user-argument",
        statement="No tool takes a user or a path; only the credential decides.",
        tests=(f"{_TOOLS}test_no_tool_names_a_user",),
    ),
    Promise(
        id="tldw.security.absent",
        statement="Another user's data looks nonexistent.",
        tests=(
            f"{_ISOLATION}test_get_of_a_foreign_id_equals_get_of_a_missing_one",
            f"{_ISOLATION}test_foreign_cursor_gives_no_access",
            f"{_ISOLATION}test_foreign_resource_equals_a_missing_one",
            f"{_ISOLATION}test_transcript_of_a_foreign_item_equals_a_missing_one",
            f"{_ISOLATION}test_foreign_prompt_equals_an_unknown_one",
            f"{_TRANSPORTS}test_another_users_note_returns_the_same_bytes_as_a_missing_one",
        ),
    ),
    Promise(
        id="tldw.security.context",
        statement=(
            "Each request has an immutable context of user, client and database paths, derived from the credential."
        ),
        tests=(
            f"{_CONTEXT}test_context_contains_the_caller_and_the_database_paths",
            f"{_CONTEXT}test_context_is_immutable",
        ),
    ),
    Promise(
        id="tldw.security.credentials",
        statement="A JWT or an API key identifies the caller.",
        tests=(
            f"{_AUTHENTICATOR}test_token_returns_the_user_of_its_subject",
            f"{_AUTHENTICATOR}test_keys_of_two_users_return_two_principals",
        ),
    ),
    Promise(
        id="tldw.security.paths",
        statement="Each user has a media, a chacha and a prompts database, at paths derived from the user's id.",
        tests=(
            f"{_PATHS}test_databases_of_a_user_are_in_a_directory_named_after_the_id",
            f"{_CONTEXT}test_two_users_never_share_a_path",
        ),
    ),
    Promise(
        id="tldw.security.single-user",
        statement="In single-user mode there is one user, who needs no credential.",
        tests=(f"{_AUTHENTICATOR}test_caller_without_credential_is_the_local_user_in_single_user_mode",),
    ),
    Promise(
        id="tldw.security.rates",
        statement="Each tool has a rate limit.",
        tests=(f"{_DISPATCHER}test_the_tool_limit_applies_per_user_and_tool_and_reports_when_to_retry",),
    ),
    Promise(
        id="tldw.security.logging",
        statement="No secret is written to the log.",
        tests=(f"{_LOGGING}test_no_credential_reaches_the_log",),
    ),
    # Tools
    Promise(
        id="tldw.tools.listed",
        statement="Each source has a search and a get tool; media also has a transcript tool.",
        tests=(f"{_TOOLS}test_the_tools_of_the_tldw_design_are_listed_with_underscores",),
    ),
    Promise(
        id="tldw.tools.dotted",
        statement="Tool names contain dots: `notes.search`.",
        tests=(
            f"{_TOOLS}test_a_tool_can_be_called_by_its_dotted_name",
            f"{_TRANSPORT_PROFILES}test_dotted_names_are_listed_if_configured",
        ),
        difference=(
            "They are listed as `notes_search`, because several clients reject a whole list that contains a dot. "
            'Dotted names are accepted in calls, and listed with `tool_names = "dotted"`.'
        ),
    ),
    Promise(
        id="tldw.tools.read-only",
        statement="Every tool is marked as read-only.",
        tests=(f"{_TOOLS}test_every_source_tool_is_read_only_and_closed_world",),
    ),
    Promise(
        id="tldw.tools.transports",
        statement="Tools return the same results over HTTP and WebSocket.",
        tests=(
            f"{_TRANSPORTS}test_each_user_finds_their_own_note_through_every_transport",
            f"{_TRANSPORTS}test_the_response_is_the_same_through_every_transport",
        ),
    ),
    Promise(
        id="tldw.tools.limit",
        statement="`limit` is 1 to 100, 10 by default, and clamped to that range.",
        tests=(f"{_EVERY_SOURCE}test_limit_defaults_to_10_and_is_clamped_to_1_to_100",),
    ),
    Promise(
        id="tldw.tools.offset",
        statement="`offset` pages through the hits, each of them once.",
        tests=(f"{_EVERY_SOURCE}test_pages_contain_every_hit_once",),
    ),
    # Shape
    Promise(
        id="tldw.shape.result-item",
        statement="Every hit has all fields of ResultItem, null if a source has no value.",
        tests=(f"{_EVERY_SOURCE}test_hit_has_every_field_of_tldw_and_null_where_it_has_no_value",),
        difference=(
            "A title has at most 200 characters and an item at most 32 tags, because both are labels; the whole title "
            "is part of the text."
        ),
    ),
    Promise(
        id="tldw.shape.search",
        statement="A search returns results, has_more, next_offset and total_estimated.",
        tests=(
            f"{_TOOLS}test_responses_match_the_listed_output_schema",
            f"{_EVERY_SOURCE}test_hit_has_every_field_of_tldw_and_null_where_it_has_no_value",
        ),
    ),
    Promise(
        id="tldw.shape.get",
        statement="A get returns `meta`, `content` (a string or an object) and `attachments`.",
        tests=(
            f"{_TOOLS}test_responses_match_the_listed_output_schema",
            f"{_EVERY_SOURCE}test_get_returns_meta_content_and_attachments",
            f"{_MEDIA}test_json_transcript_is_an_object",
        ),
        difference=(
            "`content` is a string, except for `media.transcript` as JSON, so that every client can show it. The "
            "snippet in `meta` is null, because it would repeat `content` at the caller's cost."
        ),
    ),
    Promise(
        id="tldw.shape.score-type",
        statement="A score is a number from 0 to 1 of the type `fts`.",
        tests=(f"{_EVERY_SOURCE}test_hit_has_every_field_of_tldw_and_null_where_it_has_no_value",),
        difference=(
            "`score_type` is `fts_coverage`, the share of the query that matched, and `fts` with `minmax`: the name "
            "says what the number means."
        ),
    ),
    Promise(
        id="tldw.shape.has-more",
        statement="`has_more`, `next_offset` and `total_estimated` say how many hits there are.",
        tests=(
            f"{_EVERY_SOURCE}test_pages_contain_every_hit_once",
            f"{_EVERY_SOURCE}test_total_estimated_is_exact_or_null",
        ),
        difference="`total_estimated` is the exact number or null, because an estimate that looks exact misleads.",
    ),
    Promise(
        id="tldw.shape.attachments",
        statement="Messages are included in `attachments`.",
        tests=(
            f"{_CHATS}test_conversation_is_read_in_pages_of_50_messages",
            f"{_TLDW}test_attached_message_has_its_position_but_not_its_text",
        ),
        difference=(
            "Each has its id, position, sender and time, and its place in `content`; its text is not repeated, because "
            "that would cost tokens twice."
        ),
    ),
    Promise(
        id="tldw.shape.additions",
        statement="Fields may be added without breaking callers.",
        tests=(f"{_TLDW}test_added_fields_are_omitted_when_empty",),
        difference=(
            "Added: `cost_tokens` to an item; `mode`, `anchor`, `tokens`, `truncated` and `next_cursor` to a get; and, "
            "where they apply, `read_as`, `highlights`, `more_in_item`, `over_budget`, `pages`, and `start_ms` and "
            "`seconds` in `loc`."
        ),
    ),
    # Search
    Promise(
        id="tldw.search.words",
        statement="A search may match words as the engine does.",
        tests=(
            f"{_SEARCH}test_no_input_raises_an_error",
            f"{_KNOWLEDGE}test_read_as_is_reported_once",
        ),
        difference=(
            "All sources share one query language: no query is an error, and `read_as` reports how it was interpreted. "
            "With the engine's own syntax, `C++`, `what's` or an open quotation mark failed."
        ),
    ),
    # Scores
    Promise(
        id="tldw.scores.minmax",
        statement="bm25 is scaled to 0..1 between the worst and the best hit of each source.",
        tests=(
            f"{_EVERY_SOURCE}test_minmax_scores_range_from_1_to_0",
            f"{_SCORING}test_best_rank_of_a_list_is_scaled_to_one_and_the_worst_to_zero",
            f"{_SEARCH}test_minmax_score_is_one_for_the_best_and_for_a_single_hit",
        ),
        difference=(
            'This is `search_scoring = "minmax"`. The default is a score that means the same in every source: with '
            "min-max scaling, the best hit of every source is 1.0, relevant or not."
        ),
    ),
    Promise(
        id="tldw.scores.lone",
        statement="The formula gives a single hit the score 0.",
        tests=(
            f"{_EVERY_SOURCE}test_single_hit_has_the_minmax_score_1",
            f"{_SCORING}test_single_hit_and_equal_hits_are_scaled_to_one",
        ),
        difference="It is 1 here, because it is the best hit.",
    ),
    Promise(
        id="tldw.scores.decay",
        statement="Where bm25 is unavailable, the score is `1 / (1 + rank_index)`.",
        not_offered="The server requires an SQLite with FTS5, and every FTS5 has bm25, so there is nothing to replace.",
    ),
    Promise(
        id="tldw.scores.ts-rank",
        statement="On PostgreSQL, `ts_rank` is divided by the largest rank of the result.",
        not_offered="There is no PostgreSQL engine: each user's library is a set of SQLite files.",
    ),
    Promise(
        id="tldw.scores.recent",
        statement="`order_by: recent` sorts by age only.",
        tests=(
            f"{_MEDIA}test_order_by_recent_sorts_newest_first",
            f"{_SEARCH}test_recent_order_ignores_the_score",
        ),
    ),
    # Snippets
    Promise(
        id="tldw.snippets.default",
        statement="A snippet has at most 300 characters by default.",
        tests=(f"{_EVERY_SOURCE}test_snippet_length_defaults_to_at_most_300_characters",),
    ),
    Promise(
        id="tldw.snippets.clamp",
        statement="`snippet_length` is clamped to 1..1000 and then honoured.",
        tests=(
            f"{_EVERY_SOURCE}test_snippet_length_defaults_to_at_most_300_characters",
            f"{_EVERY_SOURCE}test_snippet_has_at_most_1000_characters",
        ),
    ),
    Promise(
        id="tldw.snippets.centred",
        statement="A snippet shows the match; without one, the beginning.",
        tests=(
            f"{_EVERY_SOURCE}test_snippet_is_one_line_of_plain_text_around_the_match",
            f"{_NOTES}test_get_without_retrieval_returns_a_snippet",
            f"{_SNIPPET}test_beginning_is_shown_without_a_match",
            f"{_SNIPPET}test_passage_is_centered_on_the_match_and_cut_between_words",
        ),
    ),
    Promise(
        id="tldw.snippets.plain",
        statement="A snippet is plain text on one line.",
        tests=(f"{_EVERY_SOURCE}test_snippet_is_one_line_of_plain_text_around_the_match",),
    ),
    Promise(
        id="tldw.snippets.chat-message",
        statement="A matching message is shown by its content.",
        tests=(f"{_CHATS}test_hit_is_a_message_with_conversation_sender_and_loc",),
    ),
    Promise(
        id="tldw.snippets.chat-title",
        statement="A matching title is shown with an excerpt of the first message.",
        tests=(f"{_CHATS}test_title_hit_shows_the_title_and_the_first_message",),
    ),
    Promise(
        id="tldw.snippets.config",
        statement="The request's config can set the snippet length; an argument takes precedence.",
        tests=(f"{_EVERY_SOURCE}test_argument_overrides_the_snippet_length_of_the_config",),
    ),
    # Retrieval
    Promise(
        id="tldw.retrieval.default",
        statement="Without a mode, a get returns a snippet.",
        tests=(f"{_NOTES}test_get_without_retrieval_returns_a_snippet",),
    ),
    Promise(
        id="tldw.retrieval.snippet",
        statement="Mode `snippet` returns only the snippet.",
        tests=(f"{_EVERY_SOURCE}test_every_mode_works_and_is_reported",),
    ),
    Promise(
        id="tldw.retrieval.chunk",
        statement="Mode `chunk` returns the chunk at the anchor.",
        tests=(
            f"{_EVERY_SOURCE}test_every_mode_works_and_is_reported",
            f"{_NOTES}test_chunk_is_selected_by_its_index",
        ),
    ),
    Promise(
        id="tldw.retrieval.siblings",
        statement="Mode `chunk_with_siblings` adds neighbours while the tokens are within `max_tokens`.",
        tests=(
            f"{_RETRIEVAL}test_siblings_are_chosen_nearest_first_and_returned_in_reading_order",
            f"{_MEDIA}test_siblings_are_the_adjacent_stored_chunks",
            f"{_MEDIA}test_larger_budgets_return_more_siblings",
        ),
    ),
    Promise(
        id="tldw.retrieval.full",
        statement="Mode `full` returns everything, subject to hard limits and pagination.",
        tests=(
            f"{_EVERY_SOURCE}test_every_mode_works_and_is_reported",
            f"{_EVERY_SOURCE}test_pages_of_full_mode_contain_everything_once",
        ),
        difference="It is paged with `next_cursor`; a page has at most `retrieval_max_tokens`.",
    ),
    Promise(
        id="tldw.retrieval.auto",
        statement="Mode `auto` returns siblings if `max_tokens` is set, otherwise a snippet.",
        tests=(
            f"{_EVERY_SOURCE}test_auto_with_a_budget_reads_siblings",
            f"{_RETRIEVAL}test_auto_reads_siblings_if_a_budget_is_set",
        ),
    ),
    Promise(
        id="tldw.retrieval.tokens",
        statement="Tokens are estimated as characters divided by `chars_per_token`, 4 by default, rounded up.",
        tests=(
            f"{_EVERY_SOURCE}test_no_response_exceeds_its_budget",
            f"{_RETRIEVAL}test_no_response_exceeds_its_budget",
        ),
        difference=(
            "There is no default ratio: without `chars_per_token`, tokens are estimated from the characters of the "
            "text, because 4 exceeds a budget severalfold in most scripts. Only the size of chunks that are cut for a "
            "call assumes 4."
        ),
    ),
    Promise(
        id="tldw.retrieval.budget",
        statement="`max_tokens` limits the sum of the chunks.",
        tests=(
            f"{_EVERY_SOURCE}test_no_response_exceeds_its_budget",
            f"{_EVERY_SOURCE}test_oversized_chunk_is_truncated_and_can_be_continued",
            f"{_RETRIEVAL}test_no_response_exceeds_its_budget",
            f"{_MEDIA}test_larger_budgets_return_more_siblings",
        ),
        difference=(
            "It limits the whole response, and a first chunk that is too large is truncated, as `truncated` says: a "
            "budget that ignores the envelope or the first chunk is not a budget."
        ),
    ),
    Promise(
        id="tldw.retrieval.chunk-options",
        statement="`chunk_size_tokens` and `chunk_overlap_tokens` control how text is chunked on the fly.",
        tests=(
            f"{_EVERY_SOURCE}test_overlap_of_chunks_is_not_repeated",
            f"{_NOTES}test_chunk_is_selected_by_its_index",
            f"{_MEDIA}test_prefer_prechunked_false_splits_the_text_into_new_chunks",
            f"{_CHUNKING}test_chunks_cover_the_text_in_order_within_size_and_overlap",
        ),
    ),
    Promise(
        id="tldw.retrieval.window",
        statement="`sibling_window` is the number of neighbours to consider on each side.",
        tests=(
            f"{_RETRIEVAL}test_siblings_are_chosen_nearest_first_and_returned_in_reading_order",
            f"{_MEDIA}test_siblings_are_the_adjacent_stored_chunks",
        ),
    ),
    Promise(
        id="tldw.retrieval.prechunked",
        statement="Stored chunks are preferred by default; that can be turned off.",
        tests=(
            f"{_MEDIA}test_loc_selects_the_chunk",
            f"{_MEDIA}test_prefer_prechunked_false_splits_the_text_into_new_chunks",
        ),
    ),
    Promise(
        id="tldw.retrieval.all-sources",
        statement="`retrieval` is an option of notes, media and chats.",
        tests=(f"{_EVERY_SOURCE}test_every_mode_works_and_is_reported",),
        difference="All five sources have it.",
    ),
    Promise(
        id="tldw.retrieval.config",
        statement="`max_tokens`, `sibling_window` and `chars_per_token` can be set in the request's config.",
        tests=(
            f"{_EVERY_SOURCE}test_config_sets_the_budget",
            f"{_RETRIEVAL}test_options_override_request_defaults_and_these_override_settings",
        ),
    ),
    # Loc
    Promise(
        id="tldw.loc.media",
        statement="The loc of a media hit has the item's id, and the chunk's index and uuid.",
        tests=(f"{_MEDIA}test_hit_is_the_best_chunk_of_its_item",),
    ),
    Promise(
        id="tldw.loc.notes",
        statement="The loc of a note is an offset near the match; a chunk index is accepted too.",
        tests=(
            f"{_NOTES}test_loc_is_an_offset_near_the_match",
            f"{_NOTES}test_chunk_is_selected_by_its_index",
        ),
    ),
    Promise(
        id="tldw.loc.chats",
        statement="The loc of a chat hit has the conversation, the message and its index.",
        tests=(
            f"{_CHATS}test_hit_is_a_message_with_conversation_sender_and_loc",
            f"{_KNOWLEDGE}test_the_uri_of_a_message_reads_that_message",
        ),
        difference=(
            "A matching message has its own URI, `chats://{id}/{message_id}`, so that deduplication does not hide a "
            "whole conversation."
        ),
    ),
    Promise(
        id="tldw.loc.fields",
        statement="The loc of a prompt or character has field and offset.",
        tests=(
            f"{_CHARACTERS}test_loc_contains_field_and_offset",
            f"{_PROMPTS}test_loc_contains_field_and_offset",
        ),
    ),
    Promise(
        id="tldw.loc.round-trip",
        statement="The loc of a hit, passed to get, leads to the matching passage.",
        tests=(f"{_EVERY_SOURCE}test_loc_of_a_hit_selects_its_passage",),
    ),
    Promise(
        id="tldw.loc.media-anchor",
        statement="media.get anchors by chunk index, chunk uuid or approximate offset.",
        tests=(f"{_MEDIA}test_loc_selects_the_chunk",),
    ),
    Promise(
        id="tldw.loc.light-search",
        statement="Without a `loc`, get finds its anchor by a light search in the item.",
        tests=(
            f"{_EVERY_SOURCE}test_every_mode_works_and_is_reported",
            f"{_CHATS}test_query_selects_the_message_to_read",
        ),
        difference=(
            "`get` takes `loc`, `query` and `cursor`, and `anchor` says which was used, because a search needs a query."
        ),
    ),
    Promise(
        id="tldw.loc.chat-siblings",
        statement="The siblings of a message are its neighbouring messages.",
        tests=(f"{_CHATS}test_message_in_loc_is_read_with_its_neighbours",),
    ),
    # Notes
    Promise(
        id="tldw.notes.keywords",
        statement="`keywords` filter notes.",
        tests=(f"{_NOTES}test_keywords_match_only_notes_that_have_all_of_them",),
        difference="All of them are required, ignoring case: more filters narrow a search.",
    ),
    Promise(
        id="tldw.notes.get",
        statement="notes.get takes a note's id and retrieval options.",
        tests=(f"{_NOTES}test_get_without_retrieval_returns_a_snippet",),
    ),
    # Media
    Promise(
        id="tldw.media.types",
        statement="media.search takes media types.",
        tests=(f"{_MEDIA}test_media_types_filter_the_hits",),
    ),
    Promise(
        id="tldw.media.dates",
        statement="`date_from` and `date_to` filter media, in ISO 8601.",
        tests=(
            f"{_MEDIA}test_date_bounds_are_inclusive_and_dates_mean_whole_days",
            f"{_MEDIA}test_invalid_date_is_rejected_with_the_format",
        ),
        difference=(
            "They apply to the creation time. A date is a whole day, both ends are inclusive, and an invalid date is an"
            " error that names the format."
        ),
    ),
    Promise(
        id="tldw.media.order",
        statement="media.search takes order_by, relevance by default.",
        tests=(f"{_MEDIA}test_order_by_recent_sorts_newest_first",),
    ),
    Promise(
        id="tldw.media.id",
        statement="media.get takes a number or a string.",
        tests=(f"{_MEDIA}test_media_can_be_read_by_number_text_or_uuid",),
    ),
    Promise(
        id="tldw.media.transcript",
        statement="`media.transcript` returns text, srt, vtt or json; `include_timestamps` is an option.",
        tests=(
            f"{_MEDIA}test_transcript_is_returned_in_the_requested_format",
            f"{_MEDIA}test_json_transcript_is_an_object",
            f"{_MEDIA}test_missing_transcript_is_not_found",
            f"{_MEDIA}test_subtitle_format_without_timestamps_is_rejected",
        ),
        difference=(
            "`include_timestamps` applies to `text` (off by default) and `json` (on by default); `srt` and `vtt` "
            "always have timestamps and reject `false`. Media without a transcript are not found here; `media_get` "
            "reads their text."
        ),
    ),
    Promise(
        id="tldw.media.types-resource",
        statement="media://types lists the distinct types, and user interfaces suggest a list of twelve.",
        tests=(f"{_RESOURCES}test_media_types_are_listed_with_their_counts_and_suggestions",),
    ),
    # Chats
    Promise(
        id="tldw.chats.by",
        statement="chats.search searches titles, messages or both, the default.",
        tests=(
            f"{_CHATS}test_by_selects_titles_or_messages",
            f"{_CHATS}test_by_defaults_to_both",
        ),
    ),
    Promise(
        id="tldw.chats.character",
        statement="chats.search takes a character's id.",
        tests=(f"{_CHATS}test_character_filters_the_hits_to_its_chats",),
    ),
    Promise(
        id="tldw.chats.sender",
        statement="chats.search takes a sender.",
        tests=(f"{_CHATS}test_sender_filters_the_hits",),
    ),
    Promise(
        id="tldw.chats.pages",
        statement="chats.get is paged, with 50 messages by default and 200 at most.",
        tests=(
            f"{_CHATS}test_conversation_is_read_in_pages_of_50_messages",
            f"{_CHATS}test_page_size_is_clamped_to_1_to_200",
        ),
    ),
    Promise(
        id="tldw.chats.window",
        statement="chats.get with a mode other than full returns the messages around the anchor.",
        tests=(f"{_CHATS}test_message_in_loc_is_read_with_its_neighbours",),
    ),
    # Characters
    Promise(
        id="tldw.characters.query",
        statement="Characters are searched by text or by tags, as a list or separated by commas.",
        tests=(
            f"{_CHARACTERS}test_list_or_commas_mean_tags",
            f"{_CHARACTERS}test_words_without_commas_are_searched_as_words",
        ),
        difference=(
            "A list, or a text with commas, means tags if some character has all of them; otherwise it is searched as "
            "words, and `read_as` says so: `old, wise wizard` is a phrase."
        ),
    ),
    Promise(
        id="tldw.characters.get",
        statement="`characters.get` takes a character's number, without options.",
        tests=(f"{_CHARACTERS}test_character_is_returned_whole_under_headings",),
        difference="It takes retrieval options too, and returns the whole character by default.",
    ),
    # Prompts
    Promise(
        id="tldw.prompts.fields",
        statement="prompts.search takes the fields to search.",
        tests=(f"{_PROMPTS}test_fields_restrict_the_search",),
    ),
    Promise(
        id="tldw.prompts.get",
        statement="`prompts.get` takes an id or a name, without options.",
        tests=(f"{_PROMPTS}test_prompt_can_be_read_by_id_or_name",),
        difference="It takes retrieval options too, and returns the whole prompt by default.",
    ),
    # Knowledge
    Promise(
        id="tldw.knowledge.search",
        statement="`knowledge.search` searches every source and returns one list in the sources' own shape.",
        tests=(
            f"{_KNOWLEDGE}test_one_search_finds_a_hit_in_every_source",
            f"{_KNOWLEDGE}test_a_hit_has_every_field_of_the_tldw_design_and_its_cost",
        ),
        difference=(
            "It also returns `sources` (which responded, failed or timed out), `session`, `suppressed`, `exhausted` and"
            " `cut`."
        ),
    ),
    Promise(
        id="tldw.knowledge.limit",
        statement="Its `limit` is 20 by default.",
        tests=(
            f"{_TLDW}test_knowledge_search_returns_twenty_hits_by_default",
            f"{_KNOWLEDGE}test_a_default_response_stays_under_8_kb",
        ),
        difference=(
            "Without an explicit limit, hits beyond `search_response_default_bytes` are left for the next page and "
            "`cut` says so, because a default must not fill a context window."
        ),
    ),
    Promise(
        id="tldw.knowledge.sources",
        statement="`sources` selects the sources; the default is all.",
        tests=(f"{_FILTERS}test_all_sources_are_searched_unless_some_are_named",),
    ),
    Promise(
        id="tldw.knowledge.filters",
        statement="`filters` are passed to their source.",
        tests=(
            f"{_FILTERS}test_filter_is_passed_only_to_its_source",
            f"{_KNOWLEDGE}test_the_schema_names_the_filters_of_every_source",
            f"{_FILTERS}test_wrong_filter_is_rejected_with_the_valid_ones",
        ),
    ),
    Promise(
        id="tldw.knowledge.order",
        statement="Hits are merged by score; of equal scores the newer comes first.",
        tests=(
            f"{_MERGE}test_higher_score_comes_first_in_any_source",
            f"{_MERGE}test_tiny_score_differences_are_ties_and_the_newer_hit_wins",
        ),
        difference=(
            "One conversation cannot fill a page while others match, and a text that was saved twice is one hit that "
            "names both."
        ),
    ),
    Promise(
        id="tldw.knowledge.recent",
        statement="`order_by: recent` sorts by age only, across all sources.",
        tests=(
            f"{_KNOWLEDGE}test_order_by_recent_sorts_all_sources_by_date",
            f"{_MERGE}test_by_date_hits_without_a_date_come_last",
        ),
    ),
    Promise(
        id="tldw.knowledge.paging",
        statement="`offset` and `next_offset` page through all hits.",
        tests=(
            f"{_KNOWLEDGE}test_pages_contain_every_hit_exactly_once",
            f"{_PAGING}test_all_pages_together_contain_every_hit_once",
        ),
    ),
    Promise(
        id="tldw.knowledge.get",
        statement="`knowledge.get` reads an item of any source, by source and id, with retrieval options.",
        tests=(
            f"{_KNOWLEDGE}test_source_and_id_work_in_place_of_a_uri",
            f"{_KNOWLEDGE}test_every_hit_can_be_read_by_its_uri_in_every_mode",
        ),
        difference="It takes the `uri` of a hit as well.",
    ),
    Promise(
        id="tldw.knowledge.isolation",
        statement="It finds and reads nothing of another user.",
        tests=(
            f"{_KNOWLEDGE}test_no_user_finds_items_of_another",
            f"{_KNOWLEDGE}test_items_of_other_users_and_missing_items_are_not_found",
        ),
    ),
    # Config
    Promise(
        id="tldw.config.keys",
        statement=(
            "A request may carry base64 JSON `config`: snippet_length, max_tokens, sibling_window, order_by, "
            "chars_per_token."
        ),
        tests=(
            f"{_REQUEST_OPTIONS}test_a_config_in_the_header_or_the_query_string_applies_to_the_call",
            f"{_DEFAULTS}test_every_default_can_be_set",
        ),
        difference=(
            "`dedupe` is a key too. An invalid value or an unknown key is an error, because silently ignored options "
            "seem to work."
        ),
    ),
    Promise(
        id="tldw.config.clamped",
        statement="Numbers in the config are clamped to their ranges.",
        tests=(
            f"{_PRECEDENCE}test_numbers_out_of_range_are_clamped",
            f"{_KNOWLEDGE}test_session_configure_returns_the_defaults_as_they_are_applied",
        ),
    ),
    Promise(
        id="tldw.config.no-secrets",
        statement="The config can contain neither credentials nor another user.",
        tests=(f"{_DEFAULTS}test_keys_of_credentials_users_and_paths_are_rejected_without_their_value",),
    ),
    Promise(
        id="tldw.config.handshake",
        statement="A WebSocket client can send it with `initialize`.",
        tests=(
            f"{_REQUEST_OPTIONS}test_a_config_in_the_handshake_sets_the_sessions_defaults",
            f"{_REQUEST_OPTIONS}test_a_config_in_a_websocket_address_applies_to_all_its_requests",
        ),
    ),
    # Session
    Promise(
        id="tldw.session.key",
        statement="A session is a WebSocket connection, or is named by `mcp-session-id` over HTTP.",
        tests=(
            f"{_KNOWLEDGE}test_a_websocket_is_one_session_in_the_modern_era_too",
            f"{_KNOWLEDGE}test_a_legacy_session_and_a_websocket_keep_session_state",
            f"{_KNOWLEDGE}test_a_modern_client_keeps_session_state_by_a_handle_that_others_cannot_use",
        ),
        difference=(
            "Every search returns a handle, `session`, which can be passed with any call: clients of the latest "
            "protocol have no session header."
        ),
    ),
    Promise(
        id="tldw.session.header",
        statement="`mcp-session-id` is sent in a header or a query parameter.",
        tests=(f"{_TLDW}test_session_id_is_accepted_only_in_the_header",),
        difference="Only in the header, because URLs end up in histories and logs.",
    ),
    Promise(
        id="tldw.session.created",
        statement="The first `initialize` creates a session and returns its id.",
        tests=(
            f"{_LEGACY}test_the_handshake_returns_the_requested_or_the_latest_legacy_version",
            f"{_LEGACY}test_a_session_can_list_and_call_tools",
        ),
    ),
    Promise(
        id="tldw.session.ended",
        statement="DELETE ends a session early; otherwise it ends after its idle time.",
        tests=(
            f"{_LEGACY}test_a_deleted_session_is_not_found",
            f"{_REQUEST_OPTIONS}test_deleting_a_session_deletes_its_state_only",
            f"{_LEGACY}test_an_expired_session_is_not_found",
        ),
    ),
    Promise(
        id="tldw.session.owner",
        statement="A session belongs to its user only.",
        tests=(
            f"{_SESSION_HIJACK}test_another_users_session_gets_the_same_response_as_an_unknown_one",
            f"{_KNOWLEDGE}test_a_session_cannot_be_used_by_another_user",
        ),
    ),
    Promise(
        id="tldw.session.state",
        statement="It remembers delivered URIs, recent queries and defaults.",
        tests=(f"{_STATE}test_state_contains_delivered_items_queries_and_defaults",),
    ),
    Promise(
        id="tldw.session.bounds",
        statement="Session state is bounded, and so is the number of sessions.",
        tests=(
            f"{_STATE}test_limits_hold_for_any_sequence_of_calls",
            f"{_STATE}test_oldest_delivered_items_are_dropped_first",
            f"{_STATE}test_state_expires_after_its_idle_time",
        ),
    ),
    Promise(
        id="tldw.session.dedupe",
        statement="Hits that a session has delivered are not delivered again until nothing else is left.",
        tests=(
            f"{_SESSIONS}test_repeated_searches_deliver_every_hit_once_before_repeating_any",
            f"{_SESSIONS}test_if_all_hits_were_seen_the_best_are_repeated_and_exhausted_is_set",
            f"{_SESSIONS}test_only_delivered_hits_are_marked_as_seen",
            f"{_SESSIONS}test_changed_hit_is_delivered_again",
        ),
        difference=(
            "`suppressed` counts the hidden hits, `exhausted` says that they are delivered again, a changed item is "
            "delivered again, and `dedupe` chooses between hiding, demoting and neither."
        ),
    ),
    Promise(
        id="tldw.session.topic",
        statement="Recent queries influence the snippets.",
        tests=(
            f"{_TOPIC}test_snippet_prefers_the_passage_with_words_of_earlier_queries",
            f"{_TOPIC}test_topic_changes_neither_scores_nor_order",
        ),
    ),
    Promise(
        id="tldw.session.precedence",
        statement="Explicit arguments precede the session's defaults, and those precede the global ones.",
        tests=(
            f"{_PRECEDENCE}test_the_first_layer_that_sets_an_option_decides",
            f"{_SESSIONS}test_dedupe_precedence_is_argument_session_request_setting",
        ),
        difference=(
            "The request's `config` ranks between the session's defaults and the server's: it is the weakest of the "
            "caller's own options."
        ),
    ),
    # Client
    Promise(
        id="tldw.client.detected",
        statement="A client is detected by its name and may get other tools.",
        tests=(
            f"{_TRANSPORT_PROFILES}test_a_configured_legacy_client_gets_its_profile_at_the_plain_address_only",
            f"{_TRANSPORT_PROFILES}test_the_name_of_a_modern_client_has_no_effect",
            f"{_TRANSPORT_PROFILES}test_an_address_lists_the_tools_of_its_profile_in_both_eras",
            f"{_TRANSPORT_PROFILES}test_a_restricted_key_has_its_profile_at_every_address",
        ),
        difference=(
            "It gets a profile by URL, by API key, or in the legacy era by name (`client_profiles`): the protocol no "
            "longer allows lists that vary between connections."
        ),
    ),
    Promise(
        id="tldw.client.aliases",
        statement=(
            "For deep-research clients `search` and `fetch` are listed as aliases of `knowledge.search` and "
            "`knowledge.get`."
        ),
        tests=(
            f"{_RESEARCH}test_search_returns_the_same_json_as_text_and_structured_content",
            f"{_RESEARCH}test_every_result_can_be_fetched_by_its_id_and_by_its_url",
            f"{_CLIENTS_RESEARCH}test_search_and_fetch_return_each_users_own_items",
            f"{_SERVER_PROFILES}test_each_profile_lists_its_tools_in_a_fixed_order",
        ),
        difference=(
            "They are separate, always listed tools in the shape that deep research requires: that shape has no room "
            "for other arguments, and lists must not vary between connections."
        ),
    ),
    Promise(
        id="tldw.client.shape",
        statement="A mode flag selects the compact shape of id, title, text, url and metadata.",
        tests=(
            f"{_COMPACT}test_a_hit_is_the_same_in_both_shapes",
            f"{_COMPACT}test_an_item_is_read_in_the_compact_shape",
            f"{_COMPACT}test_both_shapes_match_the_listed_output_schema",
        ),
        difference=(
            "It is the argument `shape` of `knowledge_search` and `knowledge_get`, because `mode` already says how much"
            " of an item to read."
        ),
    ),
)
