"""What the "Search Guide" promises of `msg_search` and `GET /api/search`, and the bus that its programs feed it by."""

from tests.compatibility.manifest import Promise

_TOOL = "tests/server/compat/agentchatbus/test_tools.py::"
_REST = "tests/server/compat/agentchatbus/test_search.py::"
_BUS = "tests/server/compat/agentchatbus/test_routes.py::"
_CLIENT = "tests/clients/test_compat_clients.py::"
_STORED = "tests/sources/storage/test_exact_messages.py::"
_PEOPLE = "tests/server/tools/test_human_only.py::"
_INDEX = "tests/sources/storage/sqlite/test_message_indexes.py::"
_TOKENS = "tests/server/compat/agentchatbus/test_agents.py::"

PROMISES: tuple[Promise, ...] = (
    # -- access
    Promise(
        id="agentchatbus.access.tool",
        says="Messages are searched by the MCP tool `msg_search`.",
        tests=(
            f"{_CLIENT}test_the_bus_profile_has_one_tool_and_it_finds_each_users_own_messages",
            f"{_CLIENT}test_both_tools_are_in_the_full_profile",
        ),
    ),
    Promise(
        id="agentchatbus.access.rest",
        says="Messages are searched by `GET /api/search`, without a credential.",
        tests=(
            f"{_CLIENT}test_a_program_of_the_bus_finds_what_it_posts_without_any_credential",
            f"{_BUS}test_single_user_server_needs_no_credential",
            f"{_BUS}test_multi_user_server_requires_a_credential",
        ),
        differs="So it is where one user sits alone at a loopback address; elsewhere a credential is needed.",
    ),
    Promise(
        id="agentchatbus.access.console",
        says="Messages are searched in a web console, which shows people what agents may not read.",
        tests=(
            f"{_REST}test_human_only_messages_are_shown_to_people",
            f"{_REST}test_snippet_escapes_markup_of_the_message",
        ),
        differs=(
            "There is no console. `GET /api/search` answers what one would show: whole contents, and snippets that a "
            "page can take as HTML."
        ),
    ),
    # -- index
    Promise(
        id="agentchatbus.index.automatic",
        says="Every message is indexed when it is written, without maintenance.",
        tests=(
            f"{_STORED}test_changes_are_seen_at_once",
            f"{_TOOL}test_messages_written_before_and_after_indexing_are_found",
        ),
    ),
    Promise(
        id="agentchatbus.index.edits",
        says="Edits are followed; deleted messages stay in the index.",
        tests=(
            f"{_TOOL}test_deleted_or_edited_message_is_not_found_by_its_old_text",
            f"{_STORED}test_changes_are_seen_at_once",
        ),
        differs="Deletes are followed too.",
    ),
    Promise(
        id="agentchatbus.index.backfill",
        says="Messages that are not in the index yet are added to it when the server starts.",
        tests=(
            f"{_TOOL}test_messages_written_before_and_after_indexing_are_found",
            f"{_INDEX}test_words_are_found_by_the_first_call_and_in_a_large_library_the_newest",
            f"{_INDEX}test_an_unfinished_index_is_gone_on_with_after_the_library_was_closed",
        ),
        differs=(
            "They are when their user first searches, in the background, newest first; `note` says so as long as it "
            "lasts. A server with many users starts without touching their libraries."
        ),
    ),
    Promise(
        id="agentchatbus.index.content-only",
        says="Only the content is indexed; author and ids are not.",
        tests=(f"{_STORED}test_an_expression_is_obeyed", f"{_TOOL}test_full_text_expressions_are_applied"),
    ),
    Promise(
        id="agentchatbus.index.words",
        says="Words are matched in any case, without accents and without stemming.",
        tests=(f"{_TOOL}test_full_text_expressions_are_applied", f"{_STORED}test_an_expression_is_obeyed"),
    ),
    # -- parameters
    Promise(
        id="agentchatbus.params.tool",
        says="`msg_search` takes `query`, which is required, `thread_id` and `limit`.",
        tests=(f"{_TOOL}test_parameters_are_those_of_agentchatbus",),
    ),
    Promise(
        id="agentchatbus.params.limit",
        says="`limit` is 50 by default and 200 at most; over REST it is moved into 1 to 200.",
        tests=(
            f"{_TOOL}test_limit_is_clamped",
            f"{_TOOL}test_default_limit_is_fifty",
            f"{_REST}test_limit_is_clamped",
        ),
        differs="It is moved into 1 to 200 for both: a negative one meant all messages over MCP.",
    ),
    Promise(
        id="agentchatbus.params.limit.not-a-number",
        says="A `limit` that is no number is refused with 422.",
        tests=(f"{_REST}test_non_numeric_limit_is_rejected_with_422",),
    ),
    Promise(
        id="agentchatbus.params.q",
        says="The query is `q` over REST.",
        tests=(f"{_REST}test_query_can_be_given_as_q_or_query",),
        differs="`query` is accepted too, as the newer server of that system does.",
    ),
    Promise(
        id="agentchatbus.params.long",
        says="Nothing is said of a query that is very long.",
        tests=(f"{_TOOL}test_too_long_query_is_truncated_and_reported",),
        differs="It is cut at `query_max_chars`, and `note` says so.",
    ),
    # -- answers
    Promise(
        id="agentchatbus.answer.shape",
        says="An answer has `results`, `total` (their number) and `query`; a result has the seven documented fields.",
        tests=(f"{_TOOL}test_response_has_the_documented_shape", f"{_REST}test_response_has_the_documented_shape"),
        differs=(
            "A result also has `id`, and over REST `content` and `metadata`, which that system's newer server and its "
            "own REST answers have. `created_at` names its offset."
        ),
    ),
    Promise(
        id="agentchatbus.answer.ranking",
        says="Results are ordered by relevance, best first.",
        tests=(f"{_TOOL}test_better_matches_come_first", f"{_STORED}test_the_best_come_first_and_no_more_than_wanted"),
    ),
    Promise(
        id="agentchatbus.answer.ranking.many",
        says="All matches are ranked, however many there are.",
        tests=(f"{_STORED}test_of_words_that_are_everywhere_the_newest_come",),
        differs="Of words that tens of thousands of messages hold, the newest come, and `note` says so.",
    ),
    Promise(
        id="agentchatbus.answer.empty",
        says="A word that nobody said finds an empty list.",
        tests=(f"{_REST}test_unknown_word_returns_no_results",),
    ),
    # -- snippets
    Promise(
        id="agentchatbus.snippets.form",
        says="A snippet has at most 20 tokens, `<mark>` around matches, and `…` where it was cut.",
        tests=(
            f"{_TOOL}test_snippet_has_twenty_words_and_marks_its_truncation",
            f"{_STORED}test_a_snippet_is_twenty_words_with_marks_around_those_that_match",
        ),
    ),
    Promise(
        id="agentchatbus.snippets.markup",
        says="A snippet is HTML that a page can show.",
        tests=(
            f"{_TOOL}test_snippet_escapes_markup_of_the_message",
            f"{_REST}test_snippet_escapes_markup_of_the_message",
            f"{_STORED}test_a_snippet_of_markup_is_text",
        ),
        differs="What a message holds is escaped first. There it was not, and a message could run a script.",
    ),
    # -- syntax
    Promise(
        id="agentchatbus.syntax.expressions",
        says="All words of a query, phrases, prefixes, AND OR NOT, parentheses, `content:` and NEAR are obeyed.",
        tests=(
            f"{_TOOL}test_full_text_expressions_are_applied",
            f"{_REST}test_full_text_expressions_are_applied",
            f"{_STORED}test_an_expression_is_obeyed",
        ),
    ),
    Promise(
        id="agentchatbus.syntax.malformed",
        says="A malformed expression raises nothing and finds nothing.",
        tests=(
            f"{_TOOL}test_invalid_expression_is_searched_as_words_and_reported_in_read_as",
            f"{_REST}test_invalid_expression_is_searched_as_words_and_reported_in_read_as",
            f"{_STORED}test_nothing_that_is_typed_raises",
        ),
        differs=(
            "It raises nothing, and is read as words that all have to be there; `read_as` says so. `C++`, `fox-trot` "
            "and `what's new?` are malformed to FTS5, and whoever typed them meant the words."
        ),
    ),
    Promise(
        id="agentchatbus.syntax.bare-star",
        says="A bare `*` finds nothing.",
        tests=(
            f"{_TOOL}test_expression_without_words_returns_nothing_and_explains",
            f"{_REST}test_bare_asterisk_returns_nothing_without_an_error",
        ),
    ),
    # -- scope
    Promise(
        id="agentchatbus.scope.thread",
        says="Without `thread_id` all threads are searched, with it that one.",
        tests=(
            f"{_TOOL}test_thread_id_restricts_the_search",
            f"{_REST}test_thread_id_restricts_the_search",
            f"{_STORED}test_one_conversation_can_be_searched_alone",
        ),
    ),
    Promise(
        id="agentchatbus.scope.user",
        says="All threads that the server knows are searched.",
        tests=(
            f"{_TOOL}test_messages_are_found_by_their_owner_only",
            f"{_REST}test_messages_are_found_by_their_owner_only",
        ),
        differs="All conversations of the caller are, whether or not they began on the bus, and nobody else's.",
    ),
    Promise(
        id="agentchatbus.scope.thread-id",
        says="The `thread_id` comes from the MCP tool `bus_connect`.",
        tests=(
            f"{_CLIENT}test_the_bus_profile_has_one_tool_and_it_finds_each_users_own_messages",
            f"{_BUS}test_created_thread_includes_its_sync_context",
            f"{_BUS}test_threads_are_listed_most_recently_written_first",
        ),
        differs=(
            "It comes from `POST /api/threads`, `GET /api/threads` or a result of a search. Of the bus's MCP tools "
            "only `msg_search` is here; agents register, open threads and post by REST."
        ),
    ),
    # -- people and agents
    Promise(
        id="agentchatbus.human-only.masked",
        says="Messages for people only are found by agents and counted, but their snippet is a placeholder.",
        tests=(
            f"{_TOOL}test_human_only_messages_are_found_but_redacted",
            f"{_TOOL}test_messages_not_marked_human_only_are_shown",
            f"{_PEOPLE}test_an_agent_reads_that_it_is_there_and_not_what_it_says",
            f"{_STORED}test_a_hit_tells_its_conversation_and_whether_it_is_for_humans_alone",
        ),
    ),
    Promise(
        id="agentchatbus.human-only.rest",
        says="REST shows their content.",
        tests=(
            f"{_REST}test_human_only_messages_are_shown_to_people",
            f"{_BUS}test_profile_key_reads_human_only_messages_redacted",
        ),
        differs="Not to a key that is bound to a profile: such keys are given to agents.",
    ),
    # -- errors
    Promise(
        id="agentchatbus.errors.empty",
        says="An empty query is refused at once: over MCP with an object that has `error`, over REST with 400.",
        tests=(
            f"{_TOOL}test_empty_query_returns_the_documented_error",
            f"{_REST}test_empty_query_is_rejected_with_400",
        ),
    ),
    Promise(
        id="agentchatbus.errors.missing",
        says="A missing `q` is refused with 400.",
        tests=(f"{_REST}test_missing_query_is_rejected_with_fastapis_422",),
        differs="With 422 and FastAPI's list, which the system really answered and its tests ask for.",
    ),
    Promise(
        id="agentchatbus.errors.timeout",
        says="A search out of time is answered with 503 over REST, and with an empty list over MCP.",
        tests=(
            f"{_REST}test_timed_out_search_returns_503",
            f"{_TOOL}test_timed_out_search_returns_nothing_and_explains",
        ),
        differs="The empty list has a `note` that says why it is empty.",
    ),
    # -- the bus
    Promise(
        id="agentchatbus.bus.health",
        says="`GET /health` answers that there is a bus.",
        tests=(f"{_BUS}test_health_check_needs_no_credential",),
    ),
    Promise(
        id="agentchatbus.bus.agents",
        says="An agent registers by `ide` and `model` and is given an id, a name and a token.",
        tests=(
            f"{_BUS}test_registration_returns_a_name_and_a_token",
            f"{_BUS}test_agent_can_choose_its_display_name",
            f"{_BUS}test_too_long_agent_name_is_rejected",
            f"{_BUS}test_registration_without_model_is_rejected_with_fastapis_422",
            f"{_TOKENS}test_agent_names_are_unique_per_user",
        ),
        differs="Agents are kept in memory, a bounded number of each user's; after a restart they register again.",
    ),
    Promise(
        id="agentchatbus.bus.agents.user",
        says="An agent's token is all that it needs.",
        tests=(
            f"{_BUS}test_agent_token_grants_nothing_to_another_user",
            f"{_TOKENS}test_agent_token_verifies_only_its_agent_of_its_user",
            f"{_TOKENS}test_one_user_cannot_evict_agents_of_another",
        ),
        differs="It tells the agents of one user apart. Whose threads they share, the bearer credential decides.",
    ),
    Promise(
        id="agentchatbus.bus.threads",
        says="A registered agent opens a thread by its topic, and gets its id, `current_seq` and a reply token.",
        tests=(
            f"{_BUS}test_created_thread_includes_its_sync_context",
            f"{_BUS}test_creating_a_thread_requires_a_valid_agent_token",
            f"{_BUS}test_too_long_topic_is_rejected_and_named",
            f"{_BUS}test_thread_is_also_a_conversation",
            f"{_BUS}test_thread_limit_applies_per_user",
        ),
        differs="A user has at most `bus_thread_max` threads. Threads have no templates, and the status `discuss`.",
    ),
    Promise(
        id="agentchatbus.bus.threads.list",
        says="Threads can be listed.",
        tests=(f"{_BUS}test_threads_are_listed_most_recently_written_first",),
        differs="They are paged by `offset`.",
    ),
    Promise(
        id="agentchatbus.bus.messages",
        says="A message is posted with author, content, role and metadata, and answered with its id and `seq`.",
        tests=(
            f"{_BUS}test_posted_message_is_returned_as_stored",
            f"{_BUS}test_unregistered_author_can_post_under_any_name",
            f"{_BUS}test_human_cannot_post_with_role_system",
            f"{_BUS}test_reply_must_name_a_message_of_its_thread",
        ),
    ),
    Promise(
        id="agentchatbus.bus.messages.author",
        says="Who writes as a registered agent must show its token (401).",
        tests=(f"{_BUS}test_posting_as_a_registered_agent_requires_its_token",),
    ),
    Promise(
        id="agentchatbus.bus.messages.seq",
        says="`seq` rises over the whole bus.",
        tests=(f"{_BUS}test_seq_increases_across_threads",),
        differs="It rises over the caller's whole library, so that it tells nothing of other users.",
    ),
    Promise(
        id="agentchatbus.bus.messages.read",
        says="Messages of a thread are read in their order, from `after_seq` on.",
        tests=(
            f"{_BUS}test_messages_can_be_read_after_a_seq",
            f"{_BUS}test_agents_of_one_user_share_threads",
        ),
    ),
    Promise(
        id="agentchatbus.bus.sync.seq",
        says="A message that was written before others were read is refused (409), with what was missed.",
        tests=(f"{_BUS}test_post_after_unread_messages_is_rejected_with_those_messages",),
    ),
    Promise(
        id="agentchatbus.bus.sync.tokens",
        says="A reply token is good for one message; a wrong, used or expired one is refused (400) with its code.",
        tests=(
            f"{_BUS}test_post_with_current_seq_and_reply_token_is_written",
            f"{_BUS}test_reply_token_can_be_used_once",
            f"{_BUS}test_rejected_post_does_not_consume_its_reply_token",
            f"{_BUS}test_reply_token_of_another_thread_is_rejected",
            f"{_BUS}test_expired_reply_token_is_rejected",
            f"{_TOKENS}test_reply_token_is_invalid_for_another_user_or_thread",
        ),
        differs="It really expires, after `bus_reply_token_ttl_s`.",
    ),
    Promise(
        id="agentchatbus.bus.sync.optional",
        says="REST callers may leave out `expected_last_seq` and `reply_token`.",
        tests=(
            f"{_BUS}test_unregistered_author_can_post_under_any_name",
            f"{_BUS}test_post_without_sync_fields_is_rejected_when_sync_is_required",
        ),
        differs="`bus_sync_required` makes them necessary; a message without is then refused (`MISSING_SYNC_FIELDS`).",
    ),
    Promise(
        id="agentchatbus.bus.not-found",
        says="A thread that is not there is refused with 404, `Thread not found`.",
        tests=(
            f"{_BUS}test_thread_of_another_user_looks_nonexistent",
            f"{_BUS}test_threads_of_another_user_are_not_counted",
            f"{_BUS}test_missing_thread_is_reported_before_any_other_error",
        ),
    ),
    Promise(
        id="agentchatbus.bus.rate",
        says="Too many messages are refused with 429 and `Retry-After`.",
        tests=(f"{_BUS}test_rate_limited_post_returns_the_time_to_wait",),
        differs="The rate is that of the settings, for each user.",
    ),
    Promise(
        id="agentchatbus.bus.scopes",
        says="Whoever reaches the bus may write to it.",
        tests=(
            f"{_BUS}test_read_only_credential_cannot_write",
            f"{_BUS}test_bus_profile_key_can_use_the_whole_bus",
            f"{_BUS}test_bus_profile_key_cannot_use_other_operations",
            f"{_BUS}test_bus_profile_key_can_post_only_in_threads",
            f"{_BUS}test_keys_of_other_profiles_search_and_write_as_their_tools_allow",
        ),
        differs=(
            "Reading needs the scope `knowledge:read`, writing `knowledge:write`. A key that is bound to the profile "
            "`bus` opens the bus and nothing else."
        ),
    ),
)
