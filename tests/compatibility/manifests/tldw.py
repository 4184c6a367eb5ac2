"""What "MCP Context Search and Retrieval" promises: tools, shapes, scores and modes, sessions and clients."""

from tests.compatibility.manifest import Promise

_FILTERS = "tests/aggregator/test_filters.py::"
_HABITS = "tests/aggregator/test_defaults.py::"
_MERGE = "tests/aggregator/test_merge.py::"
_PAGING = "tests/aggregator/test_paging.py::"
_SESSIONS = "tests/aggregator/test_sessions.py::"
_TOPIC = "tests/aggregator/test_topic.py::"
_AUTHENTICATOR = "tests/auth/test_authenticator.py::"
_CONTEXT = "tests/auth/test_context.py::"
_CLIENTS_RESEARCH = "tests/clients/test_research.py::"
_SEED_003 = "tests/compatibility/test_tldw.py::"
_LOGGING = "tests/config/test_logging.py::"
_PATHS = "tests/config/test_paths.py::"
_LEGACY = "tests/server/transports/test_http_legacy.py::"
_PRECEDENCE = "tests/server/transports/test_precedence.py::"
_DOORS_PROFILES = "tests/server/transports/test_profiles.py::"
_SESSION_HIJACK = "tests/server/transports/test_session_hijack.py::"
_WISHES = "tests/server/transports/test_request_options.py::"
_AGGREGATE = "tests/server/tools/test_knowledge.py::"
_COMPACT = "tests/server/tools/test_compact.py::"
_DOORS = "tests/server/tools/test_transports.py::"
_KNOWLEDGE_RESEARCH = "tests/server/tools/test_research.py::"
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
    # -- security
    Promise(
        id="tldw.security.own-library",
        says="A caller reads its own library and no other's.",
        tests=(
            f"{_DOORS}test_each_user_finds_their_own_note_through_every_transport",
            f"{_ISOLATION}test_lists_searches_and_completions_do_not_change_with_anothers_items",
            f"{_EVERY_SOURCE}test_each_reader_finds_their_own_items_only",
        ),
    ),
    Promise(
        id="tldw.security.no-user-argument",
        says="No tool takes a user or a path; the credential alone decides.",
        tests=(f"{_TOOLS}test_no_tool_names_a_user",),
    ),
    Promise(
        id="tldw.security.absent",
        says="What is another's answers as what does not exist.",
        tests=(
            f"{_ISOLATION}test_a_get_of_a_foreign_id_is_a_get_of_an_absent_one",
            f"{_ISOLATION}test_a_foreign_cursor_opens_nothing",
            f"{_ISOLATION}test_a_foreign_resource_is_an_absent_one",
            f"{_ISOLATION}test_a_transcript_of_a_foreign_item_is_absent",
            f"{_ISOLATION}test_a_foreign_prompt_is_an_unknown_one",
            f"{_DOORS}test_another_users_note_returns_the_same_bytes_as_a_missing_one",
        ),
    ),
    Promise(
        id="tldw.security.context",
        says=("Each request has an immutable context of user, client and database paths, made from the credential."),
        tests=(
            f"{_CONTEXT}test_context_contains_the_caller_and_the_database_paths",
            f"{_CONTEXT}test_context_is_immutable",
        ),
    ),
    Promise(
        id="tldw.security.credentials",
        says="A JWT or an API key says who calls.",
        tests=(
            f"{_AUTHENTICATOR}test_token_returns_the_user_of_its_subject",
            f"{_AUTHENTICATOR}test_keys_of_two_users_return_two_principals",
        ),
    ),
    Promise(
        id="tldw.security.paths",
        says="Each user has a media, a chacha and a prompts database, at paths derived from the user's id.",
        tests=(
            f"{_PATHS}test_databases_of_a_user_are_in_a_directory_named_after_the_id",
            f"{_CONTEXT}test_two_users_never_share_a_path",
        ),
    ),
    Promise(
        id="tldw.security.single-user",
        says="In single-user mode there is one user, who needs no credential.",
        tests=(f"{_AUTHENTICATOR}test_caller_without_credential_is_the_local_user_in_single_user_mode",),
    ),
    Promise(
        id="tldw.security.rates",
        says="Each tool has a rate limit.",
        tests=(f"{_DISPATCHER}test_a_tool_limit_counts_each_user_and_tool_apart_and_names_the_wait",),
    ),
    Promise(
        id="tldw.security.logging",
        says="No secret reaches the log.",
        tests=(f"{_LOGGING}test_no_credential_reaches_the_log",),
    ),
    # -- tools
    Promise(
        id="tldw.tools.listed",
        says="Each source has a search and a get tool; media has a transcript tool too.",
        tests=(f"{_TOOLS}test_the_tools_of_the_tldw_design_are_listed_with_underscores",),
    ),
    Promise(
        id="tldw.tools.dotted",
        says="Tools are named with dots: `notes.search`.",
        tests=(
            f"{_TOOLS}test_a_tool_can_be_called_by_its_dotted_name",
            f"{_DOORS_PROFILES}test_dotted_names_are_listed_if_the_operator_wants_them",
        ),
        differs=(
            "They are listed as `notes_search`, because a dot makes several clients refuse the whole list. "
            'The dotted names are accepted in calls, and listed under `tool_names = "dotted"`.'
        ),
    ),
    Promise(
        id="tldw.tools.read-only",
        says="Every tool is marked as read-only.",
        tests=(f"{_TOOLS}test_every_source_tool_is_read_only_and_closed_world",),
    ),
    Promise(
        id="tldw.tools.doors",
        says="The tools answer alike over HTTP and WebSocket.",
        tests=(
            f"{_DOORS}test_each_user_finds_their_own_note_through_every_transport",
            f"{_DOORS}test_the_response_is_the_same_through_every_transport",
        ),
    ),
    Promise(
        id="tldw.tools.limit",
        says="`limit` is 1 to 100, 10 by default, and moved into that range.",
        tests=(f"{_EVERY_SOURCE}test_a_limit_is_10_and_is_moved_into_1_to_100",),
    ),
    Promise(
        id="tldw.tools.offset",
        says="`offset` pages through the hits, each of them once.",
        tests=(f"{_EVERY_SOURCE}test_paging_visits_every_hit_exactly_once",),
    ),
    # -- shape
    Promise(
        id="tldw.shape.result-item",
        says="Every hit has all fields of ResultItem, null where a source has nothing to say.",
        tests=(f"{_EVERY_SOURCE}test_a_hit_has_every_field_of_the_seed_null_where_there_is_nothing",),
        differs=(
            "A title has at most 200 characters on the wire and an item at most 32 tags: both are labels, "
            "and the whole title is part of the text."
        ),
    ),
    Promise(
        id="tldw.shape.search",
        says="A search answers results, has_more, next_offset and total_estimated.",
        tests=(
            f"{_TOOLS}test_responses_match_the_listed_output_schema",
            f"{_EVERY_SOURCE}test_a_hit_has_every_field_of_the_seed_null_where_there_is_nothing",
        ),
    ),
    Promise(
        id="tldw.shape.get",
        says="A get answers `meta`, `content` (a text or an object) and `attachments`.",
        tests=(
            f"{_TOOLS}test_responses_match_the_listed_output_schema",
            f"{_EVERY_SOURCE}test_a_get_answers_meta_content_and_attachments",
            f"{_MEDIA}test_a_transcript_as_json_is_an_object",
        ),
        differs=(
            "`content` is text, save for `media.transcript` as JSON: one form that every client can show. "
            "The snippet in `meta` is null, because the content is in `content` and would be paid for "
            "twice."
        ),
    ),
    Promise(
        id="tldw.shape.score-type",
        says="A score is a number from 0 to 1 of the type `fts`.",
        tests=(f"{_EVERY_SOURCE}test_a_hit_has_every_field_of_the_seed_null_where_there_is_nothing",),
        differs=(
            "`score_type` is `fts_coverage`, the share of the query that was found, and `fts` under "
            "`minmax`: the name says what the number means."
        ),
    ),
    Promise(
        id="tldw.shape.has-more",
        says="`has_more`, `next_offset` and `total_estimated` say how far the hits go.",
        tests=(
            f"{_EVERY_SOURCE}test_paging_visits_every_hit_exactly_once",
            f"{_EVERY_SOURCE}test_total_estimated_is_the_number_of_hits_or_null",
        ),
        differs="`total_estimated` is the exact number, or null: an estimate that looks exact misleads.",
    ),
    Promise(
        id="tldw.shape.attachments",
        says="Messages are among the `attachments`.",
        tests=(
            f"{_CHATS}test_a_conversation_is_read_in_pages_of_50",
            f"{_SEED_003}test_a_message_among_the_attachments_names_its_place_and_not_its_text",
        ),
        differs=(
            "Each with its id, place, sender and time, and where it stands in `content`; not its text "
            "again, which would be paid for twice."
        ),
    ),
    Promise(
        id="tldw.shape.additions",
        says="Fields may be added without breaking callers.",
        tests=(f"{_SEED_003}test_what_is_added_to_an_answer_is_left_out_where_it_says_nothing",),
        differs=(
            "Added: `cost_tokens` to an item, `mode`, `anchor`, `tokens`, `truncated` and `next_cursor` to a get; and "
            "where they have something to say `read_as`, `highlights`, `more_in_item`, `over_budget`, `pages`, and in "
            "`loc` `start_ms` and `seconds`."
        ),
    ),
    # -- search
    Promise(
        id="tldw.search.words",
        says="A search may match words as the engine does.",
        tests=(
            f"{_SEARCH}test_whatever_is_typed_finds_something_or_nothing",
            f"{_AGGREGATE}test_read_as_is_reported_once",
        ),
        differs=(
            "One query language for all sources: nothing typed is an error, and `read_as` says what was not"
            " read literally. `C++`, `what's` or an open quotation mark made the engine fail."
        ),
    ),
    # -- scores
    Promise(
        id="tldw.scores.minmax",
        says="bm25 is scaled to 0..1 between the worst and the best hit of each source.",
        tests=(
            f"{_EVERY_SOURCE}test_min_max_scores_run_from_1_to_0_over_the_hits",
            f"{_SCORING}test_the_best_rank_of_a_list_is_one_and_the_worst_zero",
            f"{_SEARCH}test_the_seeds_score_is_one_for_the_best_and_for_a_lone_hit",
        ),
        differs=(
            'Under `search_scoring = "minmax"`. The default is one score that means the same in every '
            "source: scaled, the best hit of every source is 1.0, relevant or not."
        ),
    ),
    Promise(
        id="tldw.scores.lone",
        says="The formula gives a lone hit the score 0.",
        tests=(
            f"{_EVERY_SOURCE}test_a_lone_hit_has_the_min_max_score_1",
            f"{_SCORING}test_a_lone_hit_and_equal_hits_are_one",
        ),
        differs="It is 1 here: it is the best hit there is.",
    ),
    Promise(
        id="tldw.scores.decay",
        says="Without bm25 the score decays with the position.",
        tests=(f"{_SCORING}test_positions_decay",),
    ),
    Promise(
        id="tldw.scores.ts-rank",
        says="Ranks that grow with relevance are divided by the best.",
        tests=(f"{_SCORING}test_ranks_that_grow_are_shares_of_the_best",),
    ),
    Promise(
        id="tldw.scores.recent",
        says="order_by recent sorts by age alone.",
        tests=(
            f"{_MEDIA}test_recent_media_come_first_when_asked",
            f"{_SEARCH}test_recent_order_is_by_age_whatever_the_score",
        ),
    ),
    # -- snippets
    Promise(
        id="tldw.snippets.default",
        says="A snippet has 300 characters at most when nothing is said.",
        tests=(f"{_EVERY_SOURCE}test_a_snippet_is_300_characters_at_most_unless_asked_otherwise",),
    ),
    Promise(
        id="tldw.snippets.clamp",
        says="snippet_length is moved into 1 to 1000 and then honoured.",
        tests=(
            f"{_EVERY_SOURCE}test_a_snippet_is_300_characters_at_most_unless_asked_otherwise",
            f"{_EVERY_SOURCE}test_a_snippet_is_never_longer_than_1000_characters",
        ),
    ),
    Promise(
        id="tldw.snippets.centred",
        says="A snippet shows the match; without one, the beginning.",
        tests=(
            f"{_EVERY_SOURCE}test_a_snippet_is_one_line_of_plain_text_around_the_match",
            f"{_NOTES}test_a_get_without_retrieval_is_a_snippet",
            f"{_SNIPPET}test_without_a_match_the_beginning_is_shown",
            f"{_SNIPPET}test_a_passage_is_centred_on_the_match_and_cut_between_words",
        ),
    ),
    Promise(
        id="tldw.snippets.plain",
        says="A snippet is plain text on one line.",
        tests=(f"{_EVERY_SOURCE}test_a_snippet_is_one_line_of_plain_text_around_the_match",),
    ),
    Promise(
        id="tldw.snippets.chat-message",
        says="A message that matched is shown by its content.",
        tests=(f"{_CHATS}test_a_hit_is_a_message_with_its_conversation_sender_and_place",),
    ),
    Promise(
        id="tldw.snippets.chat-title",
        says="A title that matched is shown with an excerpt of the first message.",
        tests=(f"{_CHATS}test_a_title_hit_shows_the_title_with_the_first_message",),
    ),
    Promise(
        id="tldw.snippets.config",
        says="The request's config can set the snippet length; an argument beats it.",
        tests=(f"{_EVERY_SOURCE}test_the_request_config_sets_the_snippet_length_and_an_argument_beats_it",),
    ),
    # -- retrieval
    Promise(
        id="tldw.retrieval.default",
        says="Without a mode a get answers a snippet.",
        tests=(f"{_NOTES}test_a_get_without_retrieval_is_a_snippet",),
    ),
    Promise(
        id="tldw.retrieval.snippet",
        says="Mode snippet answers the snippet alone.",
        tests=(f"{_EVERY_SOURCE}test_every_mode_works_and_says_which_it_was",),
    ),
    Promise(
        id="tldw.retrieval.chunk",
        says="Mode chunk answers the chunk at the anchor.",
        tests=(
            f"{_EVERY_SOURCE}test_every_mode_works_and_says_which_it_was",
            f"{_NOTES}test_a_chunk_is_chosen_by_its_index",
        ),
    ),
    Promise(
        id="tldw.retrieval.siblings",
        says="Mode chunk_with_siblings adds neighbours while the tokens are within max_tokens.",
        tests=(
            f"{_RETRIEVAL}test_siblings_are_taken_nearest_first_and_told_in_reading_order",
            f"{_MEDIA}test_siblings_are_the_neighbouring_stored_chunks",
            f"{_MEDIA}test_siblings_stop_at_the_budget",
        ),
    ),
    Promise(
        id="tldw.retrieval.full",
        says="Mode `full` answers everything, subject to hard caps and pagination.",
        tests=(
            f"{_EVERY_SOURCE}test_every_mode_works_and_says_which_it_was",
            f"{_EVERY_SOURCE}test_full_is_paged_by_cursor_and_says_everything_once",
        ),
        differs="It comes in pages with `next_cursor`, of at most `retrieval_max_tokens` each.",
    ),
    Promise(
        id="tldw.retrieval.auto",
        says="Mode auto takes siblings where max_tokens is given, else a snippet.",
        tests=(
            f"{_EVERY_SOURCE}test_auto_with_a_budget_takes_siblings",
            f"{_RETRIEVAL}test_auto_takes_siblings_where_a_budget_is_given",
        ),
    ),
    Promise(
        id="tldw.retrieval.tokens",
        says="Tokens are estimated as characters divided by chars_per_token, rounded up.",
        tests=(
            f"{_EVERY_SOURCE}test_no_answer_is_larger_than_its_budget",
            f"{_RETRIEVAL}test_no_answer_exceeds_its_budget",
        ),
    ),
    Promise(
        id="tldw.retrieval.budget",
        says="`max_tokens` bounds the sum of the chunks.",
        tests=(
            f"{_EVERY_SOURCE}test_no_answer_is_larger_than_its_budget",
            f"{_EVERY_SOURCE}test_an_oversized_first_chunk_is_cut_told_and_can_be_read_on",
            f"{_RETRIEVAL}test_no_answer_exceeds_its_budget",
            f"{_MEDIA}test_siblings_stop_at_the_budget",
        ),
        differs=(
            "It bounds the whole answer, and a first chunk that is too large is cut and `truncated` says "
            "so: a budget that leaves out the envelope, or the first chunk, is not one."
        ),
    ),
    Promise(
        id="tldw.retrieval.chunk-options",
        says="chunk_size_tokens and chunk_overlap_tokens decide how chunks are cut on the fly.",
        tests=(
            f"{_EVERY_SOURCE}test_siblings_do_not_repeat_what_chunks_share",
            f"{_NOTES}test_a_chunk_is_chosen_by_its_index",
            f"{_MEDIA}test_fresh_chunks_are_cut_where_stored_ones_are_not_wanted",
            f"{_CHUNKING}test_chunks_cover_the_text_in_order_within_size_and_overlap",
        ),
    ),
    Promise(
        id="tldw.retrieval.window",
        says="sibling_window is how many neighbours on each side are considered.",
        tests=(
            f"{_RETRIEVAL}test_siblings_are_taken_nearest_first_and_told_in_reading_order",
            f"{_MEDIA}test_siblings_are_the_neighbouring_stored_chunks",
        ),
    ),
    Promise(
        id="tldw.retrieval.prechunked",
        says="Stored chunks are preferred, and need not be.",
        tests=(
            f"{_MEDIA}test_a_chunk_is_chosen_by_what_the_loc_names",
            f"{_MEDIA}test_fresh_chunks_are_cut_where_stored_ones_are_not_wanted",
        ),
    ),
    Promise(
        id="tldw.retrieval.all-sources",
        says="`retrieval` is an option of notes, media and chats.",
        tests=(f"{_EVERY_SOURCE}test_every_mode_works_and_says_which_it_was",),
        differs="It is one of all five sources.",
    ),
    Promise(
        id="tldw.retrieval.config",
        says="max_tokens, sibling_window and chars_per_token may come from the request's config.",
        tests=(
            f"{_EVERY_SOURCE}test_the_request_config_sets_the_budget",
            f"{_RETRIEVAL}test_options_beat_preferences_and_preferences_beat_settings",
        ),
    ),
    # -- loc
    Promise(
        id="tldw.loc.media",
        says="The loc of a media hit names the item, its chunk's index and uuid.",
        tests=(f"{_MEDIA}test_a_hit_is_the_best_chunk_of_its_item_and_names_it",),
    ),
    Promise(
        id="tldw.loc.notes",
        says="The loc of a note is an offset near the match; a chunk's index is taken too.",
        tests=(
            f"{_NOTES}test_the_loc_of_a_note_is_an_offset_near_the_match",
            f"{_NOTES}test_a_chunk_is_chosen_by_its_index",
        ),
    ),
    Promise(
        id="tldw.loc.chats",
        says="The loc of a chat hit names conversation, message and its index.",
        tests=(
            f"{_CHATS}test_a_hit_is_a_message_with_its_conversation_sender_and_place",
            f"{_AGGREGATE}test_the_uri_of_a_message_reads_that_message",
        ),
        differs=(
            'A message that was found has a URI of its own, `chats://{id}/{message_id}`: "already seen" '
            "must not hide a whole conversation."
        ),
    ),
    Promise(
        id="tldw.loc.fields",
        says="The loc of a prompt or character names field and offset.",
        tests=(
            f"{_CHARACTERS}test_the_loc_of_a_character_names_field_and_offset",
            f"{_PROMPTS}test_the_loc_of_a_prompt_names_field_and_offset",
        ),
    ),
    Promise(
        id="tldw.loc.round-trip",
        says="The loc of a hit, given to get, leads to the passage that was found.",
        tests=(f"{_EVERY_SOURCE}test_the_loc_of_a_hit_leads_to_the_passage_that_was_found",),
    ),
    Promise(
        id="tldw.loc.media-anchor",
        says="media.get anchors by chunk index, chunk uuid or approximate offset.",
        tests=(f"{_MEDIA}test_a_chunk_is_chosen_by_what_the_loc_names",),
    ),
    Promise(
        id="tldw.loc.light-search",
        says="Without a `loc`, get finds its anchor by a light search in the item.",
        tests=(
            f"{_EVERY_SOURCE}test_every_mode_works_and_says_which_it_was",
            f"{_CHATS}test_a_query_finds_the_message_to_read",
        ),
        differs=("`get` takes `loc`, `query` and `cursor`, and `anchor` says which was used: a search needs a query."),
    ),
    Promise(
        id="tldw.loc.chat-siblings",
        says="The siblings of a message are the messages beside it.",
        tests=(f"{_CHATS}test_a_message_in_loc_is_read_with_its_neighbours",),
    ),
    # -- notes
    Promise(
        id="tldw.notes.keywords",
        says="`keywords` filter notes.",
        tests=(f"{_NOTES}test_keywords_limit_notes_to_those_that_have_all_of_them",),
        differs="All of them are required, in any case: more filters narrow a search.",
    ),
    Promise(
        id="tldw.notes.get",
        says="notes.get takes a note's id and retrieval options.",
        tests=(f"{_NOTES}test_a_get_without_retrieval_is_a_snippet",),
    ),
    # -- media
    Promise(
        id="tldw.media.types",
        says="media.search takes media types.",
        tests=(f"{_MEDIA}test_media_are_limited_to_their_types",),
    ),
    Promise(
        id="tldw.media.dates",
        says="`date_from` and `date_to` filter media, in ISO 8601.",
        tests=(
            f"{_MEDIA}test_dates_are_whole_days_and_both_included",
            f"{_MEDIA}test_a_bad_date_is_refused_with_the_format",
        ),
        differs=(
            "They are about creation. A date is a whole day, both ends are included, and a bad date is an "
            "error that names the form."
        ),
    ),
    Promise(
        id="tldw.media.order",
        says="media.search takes order_by, relevance by default.",
        tests=(f"{_MEDIA}test_recent_media_come_first_when_asked",),
    ),
    Promise(
        id="tldw.media.id",
        says="media.get takes a number or a text.",
        tests=(f"{_MEDIA}test_media_are_read_by_number_text_or_uuid",),
    ),
    Promise(
        id="tldw.media.transcript",
        says="`media.transcript` answers text, srt, vtt or json; `include_timestamps` is an option.",
        tests=(
            f"{_MEDIA}test_a_transcript_comes_in_the_form_that_is_asked_for",
            f"{_MEDIA}test_a_transcript_as_json_is_an_object",
            f"{_MEDIA}test_media_without_a_transcript_say_so",
            f"{_MEDIA}test_a_transcript_form_that_consists_of_times_cannot_do_without",
        ),
        differs=(
            "`include_timestamps` is for `text` (no by default) and `json` (yes by default); `srt` and "
            "`vtt` cannot do without, and say so. Media without a transcript are not found here, and "
            "`media_get` reads their text: a text without times is no transcript."
        ),
    ),
    Promise(
        id="tldw.media.types-resource",
        says="media://types lists the distinct types.",
        tests=(f"{_RESOURCES}test_media_types_are_listed_with_their_counts",),
    ),
    # -- chats
    Promise(
        id="tldw.chats.by",
        says="chats.search looks in titles, messages or both; both by default.",
        tests=(
            f"{_CHATS}test_by_chooses_between_titles_and_messages",
            f"{_CHATS}test_the_default_is_both",
        ),
    ),
    Promise(
        id="tldw.chats.character",
        says="chats.search takes a character's id.",
        tests=(f"{_CHATS}test_a_character_limits_the_hits_to_its_chats",),
    ),
    Promise(
        id="tldw.chats.sender",
        says="chats.search takes a sender.",
        tests=(f"{_CHATS}test_a_sender_limits_the_hits",),
    ),
    Promise(
        id="tldw.chats.pages",
        says="chats.get answers pages, 50 messages by default, 200 at most.",
        tests=(
            f"{_CHATS}test_a_conversation_is_read_in_pages_of_50",
            f"{_CHATS}test_a_page_size_is_moved_into_1_to_200",
        ),
    ),
    Promise(
        id="tldw.chats.window",
        says="chats.get with a mode other than full answers the messages around the anchor.",
        tests=(f"{_CHATS}test_a_message_in_loc_is_read_with_its_neighbours",),
    ),
    # -- characters
    Promise(
        id="tldw.characters.query",
        says="Characters are searched by text or by tags, as a list or with commas.",
        tests=(
            f"{_CHARACTERS}test_a_list_or_commas_mean_tags",
            f"{_CHARACTERS}test_words_are_searched_for_as_words",
        ),
        differs=(
            "A list, or commas, mean tags where some character has them all; else they are words, and "
            "`read_as` says so: `old, wise wizard` is a sentence."
        ),
    ),
    Promise(
        id="tldw.characters.get",
        says="`characters.get` takes a character's number, without options.",
        tests=(f"{_CHARACTERS}test_a_character_is_read_whole_under_headings",),
        differs="It takes options too, and a character is read whole by default.",
    ),
    # -- prompts
    Promise(
        id="tldw.prompts.fields",
        says="prompts.search takes the fields to look in.",
        tests=(f"{_PROMPTS}test_fields_limit_where_words_are_looked_for",),
    ),
    Promise(
        id="tldw.prompts.get",
        says="`prompts.get` takes an id or a name, without options.",
        tests=(f"{_PROMPTS}test_a_prompt_is_read_by_number_or_name",),
        differs="It takes options too, and a prompt is read whole by default.",
    ),
    # -- knowledge
    Promise(
        id="tldw.knowledge.search",
        says="`knowledge.search` asks every source and answers one list in the shape of each source's own.",
        tests=(
            f"{_AGGREGATE}test_one_search_finds_a_hit_in_every_source",
            f"{_AGGREGATE}test_a_hit_has_every_field_of_the_tldw_design_and_its_cost",
        ),
        differs=(
            "Beside it stand `sources` (which answered, failed or came too late), `session`, `suppressed`, "
            "`exhausted` and `cut`."
        ),
    ),
    Promise(
        id="tldw.knowledge.limit",
        says="Its `limit` is 20 by default.",
        tests=(
            f"{_SEED_003}test_a_search_over_all_sources_answers_twenty_hits_unless_told_otherwise",
            f"{_AGGREGATE}test_a_default_response_stays_under_8_kb",
        ),
        differs=(
            "Where nobody names a limit, hits that do not fit into `search_response_default_bytes` are left for the "
            "next page and `cut` says so: a default must not fill a context."
        ),
    ),
    Promise(
        id="tldw.knowledge.sources",
        says="`sources` narrows it; all by default.",
        tests=(f"{_FILTERS}test_all_sources_are_asked_unless_some_are_named",),
    ),
    Promise(
        id="tldw.knowledge.filters",
        says="`filters` are handed to the source that they are for.",
        tests=(
            f"{_FILTERS}test_a_filter_reaches_its_source_and_no_other",
            f"{_AGGREGATE}test_the_schema_names_the_filters_of_every_source",
            f"{_FILTERS}test_a_wrong_filter_is_refused_with_the_right_ones",
        ),
    ),
    Promise(
        id="tldw.knowledge.order",
        says="Hits are merged by score, and of equal ones the newer comes first.",
        tests=(
            f"{_MERGE}test_the_better_score_comes_first_whatever_its_source",
            f"{_MERGE}test_scores_that_differ_by_noise_are_a_tie_which_the_newer_wins",
        ),
        differs=(
            "One conversation does not fill a page while others wait, and a text that was saved twice is "
            "one hit that names both."
        ),
    ),
    Promise(
        id="tldw.knowledge.recent",
        says="`order_by: recent` sorts by age alone, over all sources.",
        tests=(
            f"{_AGGREGATE}test_order_by_recent_sorts_all_sources_by_date",
            f"{_MERGE}test_by_date_a_hit_without_one_comes_last",
        ),
    ),
    Promise(
        id="tldw.knowledge.paging",
        says="`offset` and `next_offset` page through all hits.",
        tests=(
            f"{_AGGREGATE}test_pages_contain_every_hit_exactly_once",
            f"{_PAGING}test_the_union_of_all_pages_is_the_set_of_hits_each_once",
        ),
    ),
    Promise(
        id="tldw.knowledge.get",
        says="`knowledge.get` reads an item of any source, by source and id, with retrieval options.",
        tests=(
            f"{_AGGREGATE}test_source_and_id_work_in_place_of_a_uri",
            f"{_AGGREGATE}test_every_hit_can_be_read_by_its_uri_in_every_mode",
        ),
        differs="It takes the `uri` of a hit as well.",
    ),
    Promise(
        id="tldw.knowledge.isolation",
        says="It finds and reads nothing of another user.",
        tests=(
            f"{_AGGREGATE}test_no_user_finds_items_of_another",
            f"{_AGGREGATE}test_items_of_other_users_and_missing_items_are_not_found",
        ),
    ),
    # -- config
    Promise(
        id="tldw.config.keys",
        says=(
            "A request may carry base64 JSON `config`: snippet_length, max_tokens, sibling_window, "
            "order_by, chars_per_token."
        ),
        tests=(
            f"{_WISHES}test_a_config_in_the_header_or_in_the_query_reaches_the_call",
            f"{_HABITS}test_every_habit_can_be_given",
        ),
        differs=(
            "`dedupe` is a key too; a wrong value and any other key are errors: what is ignored in silence "
            "is believed to work."
        ),
    ),
    Promise(
        id="tldw.config.clamped",
        says="Numbers of the config are moved into their bounds.",
        tests=(f"{_PRECEDENCE}test_a_number_out_of_range_is_moved_to_the_nearest_that_is_allowed",),
    ),
    Promise(
        id="tldw.config.no-secrets",
        says="Neither credentials nor another user can be named in it.",
        tests=(f"{_HABITS}test_what_looks_like_a_credential_a_user_or_a_path_is_refused_by_name_and_never_repeated",),
    ),
    Promise(
        id="tldw.config.handshake",
        says="A WebSocket client can give it with `initialize`.",
        tests=(
            f"{_WISHES}test_a_config_in_the_handshake_becomes_the_sessions_defaults",
            f"{_WISHES}test_a_config_in_the_address_of_a_socket_holds_for_all_its_requests_in_both_eras",
        ),
    ),
    # -- session
    Promise(
        id="tldw.session.key",
        says="A session is a WebSocket connection, or named by `mcp-session-id` over HTTP.",
        tests=(
            f"{_AGGREGATE}test_a_connection_is_a_session_without_a_handle",
            f"{_AGGREGATE}test_a_legacy_session_and_a_websocket_keep_session_state",
            f"{_AGGREGATE}test_a_modern_client_keeps_session_state_by_a_handle_that_others_cannot_use",
        ),
        differs=(
            "Every search answers a handle, `session`, which can be given back with any call: clients of "
            "the newest protocol have no header."
        ),
    ),
    Promise(
        id="tldw.session.place",
        says="`mcp-session-id` stands in a header or in a query parameter.",
        tests=(f"{_SEED_003}test_a_session_is_named_in_the_header_and_nowhere_else",),
        differs="In the header: an address ends in histories and logs.",
    ),
    Promise(
        id="tldw.session.created",
        says="A first `initialize` makes a session and answers its id.",
        tests=(
            f"{_LEGACY}test_the_handshake_answers_the_asked_version_or_the_newest_legacy_one",
            f"{_LEGACY}test_a_session_lists_and_calls",
        ),
    ),
    Promise(
        id="tldw.session.ended",
        says="DELETE ends a session early; else it ends when it was not used for its time.",
        tests=(
            f"{_LEGACY}test_a_deleted_session_is_not_found_afterwards",
            f"{_WISHES}test_deleting_a_session_forgets_what_it_remembered_and_nothing_of_another",
            f"{_LEGACY}test_a_session_unused_for_its_time_is_gone",
        ),
    ),
    Promise(
        id="tldw.session.owner",
        says="A session is its user's alone.",
        tests=(
            f"{_SESSION_HIJACK}test_another_users_session_is_answered_byte_for_byte_as_one_that_never_was",
            f"{_AGGREGATE}test_a_session_cannot_be_used_by_another_user",
        ),
    ),
    Promise(
        id="tldw.session.memory",
        says="It remembers the URIs it delivered, recent queries and defaults.",
        tests=(f"{_STATE}test_state_contains_delivered_items_queries_and_defaults",),
    ),
    Promise(
        id="tldw.session.bounds",
        says="What it remembers is bounded, and so is the number of sessions.",
        tests=(
            f"{_STATE}test_limits_hold_for_any_sequence_of_calls",
            f"{_STATE}test_oldest_delivered_items_are_dropped_first",
            f"{_STATE}test_state_expires_after_its_idle_time",
        ),
    ),
    Promise(
        id="tldw.session.dedupe",
        says="What a session was shown is not shown again until nothing else is left.",
        tests=(
            f"{_SESSIONS}test_repeated_searches_walk_through_all_hits_and_repeat_none_until_all_were_seen",
            f"{_SESSIONS}test_when_all_was_seen_the_best_come_again_and_the_answer_says_so",
            f"{_SESSIONS}test_only_what_was_delivered_is_marked",
            f"{_SESSIONS}test_a_hit_that_changed_since_comes_back",
        ),
        differs=(
            "`suppressed` counts what was held back, `exhausted` says that it comes again, an item that "
            "changed comes back, and `dedupe` chooses between hiding, demoting and neither."
        ),
    ),
    Promise(
        id="tldw.session.topic",
        says="Recent queries bias the snippets.",
        tests=(
            f"{_TOPIC}test_a_snippet_leans_toward_what_the_session_asked_before",
            f"{_TOPIC}test_the_topic_changes_no_score_and_no_order",
        ),
    ),
    Promise(
        id="tldw.session.precedence",
        says="Explicit input comes before the session's defaults, and those before the global ones.",
        tests=(
            f"{_PRECEDENCE}test_the_uppermost_layer_that_names_a_key_decides",
            f"{_SESSIONS}test_the_nearest_word_decides",
        ),
        differs=(
            "The request's `config` stands between the session's defaults and the server's: it is the "
            "softest of a caller's wishes."
        ),
    ),
    # -- client
    Promise(
        id="tldw.client.detected",
        says="A client is detected by the name it gives, and may get other tools.",
        tests=(
            f"{_DOORS_PROFILES}test_a_legacy_client_on_the_list_gets_its_profile_at_the_plain_address_only",
            f"{_DOORS_PROFILES}test_a_modern_client_gets_the_same_list_whatever_it_is_called",
            f"{_DOORS_PROFILES}test_an_address_shows_its_profile_in_both_eras",
            f"{_DOORS_PROFILES}test_a_bound_key_has_its_profile_at_every_address",
        ),
        differs=(
            "It gets a profile by address, by API key, or in the legacy era by name (`client_profiles`): "
            "the protocol no longer allows lists that vary from connection to connection."
        ),
    ),
    Promise(
        id="tldw.client.aliases",
        says=(
            "For deep-research clients `search` and `fetch` are listed as aliases of `knowledge.search` and"
            " `knowledge.get`."
        ),
        tests=(
            f"{_KNOWLEDGE_RESEARCH}test_search_returns_the_same_json_as_text_and_structured_content",
            f"{_KNOWLEDGE_RESEARCH}test_every_result_can_be_fetched_by_its_id_and_by_its_url",
            f"{_CLIENTS_RESEARCH}test_the_official_client_researches_each_users_own_library",
            f"{_SERVER_PROFILES}test_each_profile_lists_its_tools_in_a_fixed_order",
        ),
        differs=(
            "They are tools of their own in the form that deep research asks for, always listed: that form "
            "has no room for other arguments, and a list must not vary from connection to connection."
        ),
    ),
    Promise(
        id="tldw.client.shape",
        says="A mode flag asks for the compact shape of id, title, text, url and metadata.",
        tests=(
            f"{_COMPACT}test_a_hit_is_the_same_in_both_shapes",
            f"{_COMPACT}test_an_item_is_read_in_the_compact_shape",
            f"{_COMPACT}test_both_shapes_match_the_listed_output_schema",
        ),
        differs=(
            "It is the argument `shape` of `knowledge_search` and `knowledge_get`: `mode` says already how "
            "much of an item is read."
        ),
    ),
)
