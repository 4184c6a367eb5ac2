"""What the "Search Guide" promises of `msg_search` and `GET /api/search`, and the bus that its programs feed it by."""

from tests.compatibility.manifest import Promise

_TOOL = "tests/server/tools/test_msg_search.py::"
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
            f"{_BUS}test_one_user_alone_needs_no_credential",
            f"{_BUS}test_where_there_are_users_a_credential_is_needed",
        ),
        differs="So it is where one user sits alone at a loopback address; elsewhere a credential is needed.",
    ),
    Promise(
        id="agentchatbus.access.console",
        says="Messages are searched in a web console, which shows people what agents may not read.",
        tests=(
            f"{_REST}test_people_read_what_only_people_may_read",
            f"{_REST}test_a_snippet_holds_no_markup_but_its_own",
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
        tests=(f"{_STORED}test_changes_are_seen_at_once", f"{_TOOL}test_messages_from_before_the_index_are_found"),
    ),
    Promise(
        id="agentchatbus.index.edits",
        says="Edits are followed; deleted messages stay in the index.",
        tests=(
            f"{_TOOL}test_a_deleted_or_edited_message_is_not_found_by_what_it_said",
            f"{_STORED}test_changes_are_seen_at_once",
        ),
        differs="Deletes are followed too.",
    ),
    Promise(
        id="agentchatbus.index.backfill",
        says="Messages that are not in the index yet are added to it when the server starts.",
        tests=(
            f"{_TOOL}test_messages_from_before_the_index_are_found",
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
        tests=(f"{_STORED}test_an_expression_is_obeyed", f"{_TOOL}test_expressions_are_obeyed"),
    ),
    Promise(
        id="agentchatbus.index.words",
        says="Words are matched in any case, without accents and without stemming.",
        tests=(f"{_TOOL}test_expressions_are_obeyed", f"{_STORED}test_an_expression_is_obeyed"),
    ),
    # -- parameters
    Promise(
        id="agentchatbus.params.tool",
        says="`msg_search` takes `query`, which is required, `thread_id` and `limit`.",
        tests=(f"{_TOOL}test_the_parameters_are_those_of_the_seed",),
    ),
    Promise(
        id="agentchatbus.params.limit",
        says="`limit` is 50 by default and 200 at most; over REST it is moved into 1 to 200.",
        tests=(
            f"{_TOOL}test_a_limit_is_clamped",
            f"{_TOOL}test_fifty_messages_are_found_unless_another_limit_is_asked_for",
            f"{_REST}test_a_limit_is_clamped",
        ),
        differs="It is moved into 1 to 200 for both: a negative one meant all messages over MCP.",
    ),
    Promise(
        id="agentchatbus.params.limit.not-a-number",
        says="A `limit` that is no number is refused with 422.",
        tests=(f"{_REST}test_a_limit_that_is_no_number_is_refused",),
    ),
    Promise(
        id="agentchatbus.params.q",
        says="The query is `q` over REST.",
        tests=(f"{_REST}test_a_query_has_two_names",),
        differs="`query` is accepted too, as the newer server of that system does.",
    ),
    Promise(
        id="agentchatbus.params.long",
        says="Nothing is said of a query that is very long.",
        tests=(f"{_TOOL}test_a_query_that_is_too_long_is_cut_and_told",),
        differs="It is cut at `query_max_chars`, and `note` says so.",
    ),
    # -- answers
    Promise(
        id="agentchatbus.answer.shape",
        says="An answer has `results`, `total` (their number) and `query`; a result has the seven documented fields.",
        tests=(f"{_TOOL}test_an_answer_has_the_documented_shape", f"{_REST}test_an_answer_has_the_documented_shape"),
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
        tests=(f"{_REST}test_a_word_nobody_said_finds_nothing",),
    ),
    # -- snippets
    Promise(
        id="agentchatbus.snippets.form",
        says="A snippet has at most 20 tokens, `<mark>` around matches, and `…` where it was cut.",
        tests=(
            f"{_TOOL}test_a_snippet_has_twenty_words_and_says_where_it_was_cut",
            f"{_STORED}test_a_snippet_is_twenty_words_with_marks_around_those_that_match",
        ),
    ),
    Promise(
        id="agentchatbus.snippets.markup",
        says="A snippet is HTML that a page can show.",
        tests=(
            f"{_TOOL}test_a_snippet_holds_no_markup_but_its_own",
            f"{_REST}test_a_snippet_holds_no_markup_but_its_own",
            f"{_STORED}test_a_snippet_of_markup_is_text",
        ),
        differs="What a message holds is escaped first. There it was not, and a message could run a script.",
    ),
    # -- syntax
    Promise(
        id="agentchatbus.syntax.expressions",
        says="All words of a query, phrases, prefixes, AND OR NOT, parentheses, `content:` and NEAR are obeyed.",
        tests=(
            f"{_TOOL}test_expressions_are_obeyed",
            f"{_REST}test_expressions_are_obeyed",
            f"{_STORED}test_an_expression_is_obeyed",
        ),
    ),
    Promise(
        id="agentchatbus.syntax.malformed",
        says="A malformed expression raises nothing and finds nothing.",
        tests=(
            f"{_TOOL}test_what_is_no_expression_is_read_as_words_and_told",
            f"{_REST}test_what_is_no_expression_is_read_as_words_and_told",
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
            f"{_TOOL}test_an_expression_without_any_word_finds_nothing_and_says_so",
            f"{_REST}test_a_bare_star_finds_nothing_and_raises_nothing",
        ),
    ),
    # -- scope
    Promise(
        id="agentchatbus.scope.thread",
        says="Without `thread_id` all threads are searched, with it that one.",
        tests=(
            f"{_TOOL}test_a_thread_narrows_the_search",
            f"{_REST}test_a_thread_narrows_the_search",
            f"{_STORED}test_one_conversation_can_be_searched_alone",
        ),
    ),
    Promise(
        id="agentchatbus.scope.user",
        says="All threads that the server knows are searched.",
        tests=(
            f"{_TOOL}test_messages_are_found_by_their_owner_alone",
            f"{_REST}test_messages_are_found_by_their_owner_alone",
        ),
        differs="All conversations of the caller are, whether or not they began on the bus, and nobody else's.",
    ),
    Promise(
        id="agentchatbus.scope.thread-id",
        says="The `thread_id` comes from the MCP tool `bus_connect`.",
        tests=(
            f"{_CLIENT}test_the_bus_profile_has_one_tool_and_it_finds_each_users_own_messages",
            f"{_BUS}test_a_thread_is_opened_with_what_the_next_message_needs",
            f"{_BUS}test_threads_are_listed_those_last_written_to_first",
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
            f"{_TOOL}test_what_only_people_may_read_is_found_and_hidden",
            f"{_TOOL}test_what_is_not_for_people_only_is_shown",
            f"{_PEOPLE}test_an_agent_reads_that_it_is_there_and_not_what_it_says",
            f"{_STORED}test_a_hit_tells_its_conversation_and_whether_it_is_for_humans_alone",
        ),
    ),
    Promise(
        id="agentchatbus.human-only.rest",
        says="REST shows their content.",
        tests=(
            f"{_REST}test_people_read_what_only_people_may_read",
            f"{_BUS}test_a_key_that_is_bound_to_a_profile_reads_as_an_agent_does",
        ),
        differs="Not to a key that is bound to a profile: such keys are given to agents.",
    ),
    # -- errors
    Promise(
        id="agentchatbus.errors.empty",
        says="An empty query is refused at once: over MCP with an object that has `error`, over REST with 400.",
        tests=(
            f"{_TOOL}test_an_empty_query_is_answered_with_the_documented_error",
            f"{_REST}test_an_empty_query_is_refused",
        ),
    ),
    Promise(
        id="agentchatbus.errors.missing",
        says="A missing `q` is refused with 400.",
        tests=(f"{_REST}test_a_query_that_is_missing_is_told_as_the_original_does",),
        differs="With 422 and FastAPI's list, which the system really answered and its tests ask for.",
    ),
    Promise(
        id="agentchatbus.errors.timeout",
        says="A search out of time is answered with 503 over REST, and with an empty list over MCP.",
        tests=(
            f"{_REST}test_a_search_out_of_time_is_told_with_503",
            f"{_TOOL}test_a_search_out_of_time_finds_nothing_and_says_why",
        ),
        differs="The empty list has a `note` that says why it is empty.",
    ),
    # -- the bus
    Promise(
        id="agentchatbus.bus.health",
        says="`GET /health` answers that there is a bus.",
        tests=(f"{_BUS}test_a_bus_says_that_it_is_there_to_anybody",),
    ),
    Promise(
        id="agentchatbus.bus.agents",
        says="An agent registers by `ide` and `model` and is given an id, a name and a token.",
        tests=(
            f"{_BUS}test_an_agent_registers_and_is_given_a_name_and_a_token",
            f"{_BUS}test_an_agent_may_choose_its_name",
            f"{_BUS}test_a_name_that_is_too_long_is_refused",
            f"{_BUS}test_a_registration_that_lacks_something_says_what_as_the_original_does",
            f"{_TOKENS}test_agents_of_one_user_have_names_of_their_own",
        ),
        differs="Agents are kept in memory, a bounded number of each user's; after a restart they register again.",
    ),
    Promise(
        id="agentchatbus.bus.agents.user",
        says="An agent's token is all that it needs.",
        tests=(
            f"{_BUS}test_an_agents_token_opens_nothing_of_another_user",
            f"{_TOKENS}test_an_agent_is_known_by_its_own_token_to_its_own_user",
            f"{_TOKENS}test_no_user_can_push_out_anothers_agents",
        ),
        differs="It tells the agents of one user apart. Whose threads they share, the bearer credential decides.",
    ),
    Promise(
        id="agentchatbus.bus.threads",
        says="A registered agent opens a thread by its topic, and gets its id, `current_seq` and a reply token.",
        tests=(
            f"{_BUS}test_a_thread_is_opened_with_what_the_next_message_needs",
            f"{_BUS}test_a_thread_is_opened_by_agents_alone",
            f"{_BUS}test_a_topic_that_is_too_long_is_refused_by_its_name",
            f"{_BUS}test_a_thread_is_a_conversation_like_others",
            f"{_BUS}test_a_user_has_so_many_threads_and_no_more",
        ),
        differs="A user has at most `bus_thread_max` threads. Threads have no templates, and the status `discuss`.",
    ),
    Promise(
        id="agentchatbus.bus.threads.list",
        says="Threads can be listed.",
        tests=(f"{_BUS}test_threads_are_listed_those_last_written_to_first",),
        differs="They are paged by `offset`.",
    ),
    Promise(
        id="agentchatbus.bus.messages",
        says="A message is posted with author, content, role and metadata, and answered with its id and `seq`.",
        tests=(
            f"{_BUS}test_a_message_is_answered_as_it_is_kept",
            f"{_BUS}test_anybody_else_writes_under_any_name",
            f"{_BUS}test_no_human_speaks_for_the_system",
            f"{_BUS}test_an_answer_names_a_message_of_its_thread",
        ),
    ),
    Promise(
        id="agentchatbus.bus.messages.author",
        says="Who writes as a registered agent must show its token (401).",
        tests=(f"{_BUS}test_nobody_writes_as_a_registered_agent_without_its_token",),
    ),
    Promise(
        id="agentchatbus.bus.messages.seq",
        says="`seq` rises over the whole bus.",
        tests=(f"{_BUS}test_seq_rises_over_all_threads",),
        differs="It rises over the caller's whole library, so that it tells nothing of other users.",
    ),
    Promise(
        id="agentchatbus.bus.messages.read",
        says="Messages of a thread are read in their order, from `after_seq` on.",
        tests=(
            f"{_BUS}test_a_thread_is_read_on_from_a_seq",
            f"{_BUS}test_agents_of_one_user_share_a_thread",
        ),
    ),
    Promise(
        id="agentchatbus.bus.sync.seq",
        says="A message that was written before others were read is refused (409), with what was missed.",
        tests=(f"{_BUS}test_a_message_after_one_that_was_not_read_is_refused_with_what_was_missed",),
    ),
    Promise(
        id="agentchatbus.bus.sync.tokens",
        says="A reply token is good for one message; a wrong, used or expired one is refused (400) with its code.",
        tests=(
            f"{_BUS}test_a_message_after_the_last_is_written_with_its_reply_token",
            f"{_BUS}test_a_reply_token_is_good_once",
            f"{_BUS}test_a_refused_message_leaves_its_reply_token_good",
            f"{_BUS}test_a_reply_token_that_is_not_of_the_thread_is_refused",
            f"{_BUS}test_a_reply_token_expires",
            f"{_TOKENS}test_a_reply_token_is_good_for_its_user_and_thread_alone",
        ),
        differs="It really expires, after `bus_reply_token_ttl_s`.",
    ),
    Promise(
        id="agentchatbus.bus.sync.optional",
        says="REST callers may leave out `expected_last_seq` and `reply_token`.",
        tests=(
            f"{_BUS}test_anybody_else_writes_under_any_name",
            f"{_BUS}test_where_every_message_must_be_in_step_one_that_names_none_is_refused",
        ),
        differs="`bus_sync_required` makes them necessary; a message without is then refused (`MISSING_SYNC_FIELDS`).",
    ),
    Promise(
        id="agentchatbus.bus.not-found",
        says="A thread that is not there is refused with 404, `Thread not found`.",
        tests=(
            f"{_BUS}test_a_thread_of_another_user_answers_as_one_that_is_not_there",
            f"{_BUS}test_no_user_counts_anothers_threads",
            f"{_BUS}test_a_thread_that_is_not_there_is_told_before_anything_else",
        ),
    ),
    Promise(
        id="agentchatbus.bus.rate",
        says="Too many messages are refused with 429 and `Retry-After`.",
        tests=(f"{_BUS}test_too_many_messages_at_once_are_refused_with_the_time_to_wait",),
        differs="The rate is that of the settings, for each user.",
    ),
    Promise(
        id="agentchatbus.bus.scopes",
        says="Whoever reaches the bus may write to it.",
        tests=(
            f"{_BUS}test_a_caller_who_may_only_read_writes_nothing",
            f"{_BUS}test_a_key_bound_to_the_bus_does_all_that_an_agent_on_it_does",
            f"{_BUS}test_a_key_bound_to_the_bus_does_nothing_else",
            f"{_BUS}test_a_key_bound_to_the_bus_writes_in_threads_and_in_no_other_conversation",
            f"{_BUS}test_a_key_of_another_profile_finds_what_its_tools_find_and_writes_where_it_may_write_anyway",
        ),
        differs=(
            "Reading needs the scope `knowledge:read`, writing `knowledge:write`. A key that is bound to the profile "
            "`bus` opens the bus and nothing else."
        ),
    ),
)
