"""Promises of AgentChatBus: the search guide for `msg_search` and `GET /api/search`, and the bus API."""

from tests.compatibility.manifest import Promise

_CHATBUS = "tests/compatibility/test_agentchatbus.py::"
_TOOL = "tests/server/compat/agentchatbus/test_tools.py::"
_REST = "tests/server/compat/agentchatbus/test_search.py::"
_BUS = "tests/server/compat/agentchatbus/test_routes.py::"
_CLIENT = "tests/clients/test_compat_clients.py::"
_SSE = "tests/server/transports/test_sse.py::"
_HUMAN_ONLY = "tests/server/tools/test_human_only.py::"
_EVENTS = "tests/server/compat/agentchatbus/test_events.py::"
_THREADS = "tests/server/compat/agentchatbus/test_threads.py::"
_TOOLS = "tests/server/compat/agentchatbus/test_bus_tools.py::"
_FILTER = "tests/server/compat/agentchatbus/test_content_filter.py::"
_HIDDEN_TEXT = "tests/server/test_hidden_text.py::"
_CONSOLE = "tests/browser/test_conversations.py::"

PROMISES: tuple[Promise, ...] = (
    # Access
    Promise(
        id="agentchatbus.access.tool",
        statement="Messages are searched with the MCP tool `msg_search`.",
        tests=(
            f"{_CLIENT}test_agents_of_a_user_talk_with_the_tools_of_the_bus_profile",
            f"{_CLIENT}test_full_profile_includes_the_tools_of_both_systems",
        ),
    ),
    Promise(
        id="agentchatbus.access.rest",
        statement="Messages are searched with `GET /api/search`.",
        tests=(
            f"{_CLIENT}test_agentchatbus_client_posts_and_searches_without_a_credential",
            f"{_CHATBUS}test_documented_url_returns_its_messages",
        ),
    ),
    Promise(
        id="agentchatbus.access.credential",
        statement="No credential is needed.",
        tests=(
            f"{_BUS}test_single_user_server_needs_no_credential",
            f"{_BUS}test_multi_user_server_requires_a_credential",
        ),
        difference=(
            "That holds for a single user at a loopback address; a server with several users requires a credential."
        ),
    ),
    Promise(
        id="agentchatbus.access.sse",
        statement="MCP clients connect to `/mcp/sse` and post to `/mcp/messages`.",
        tests=(
            f"{_SSE}test_the_first_event_is_the_address_of_the_session",
            f"{_SSE}test_responses_to_posted_messages_arrive_on_the_stream_of_their_user",
            f"{_SSE}test_the_address_of_a_profile_serves_that_profile",
        ),
        difference=(
            "They post to the address in the first event, as the protocol says: `/mcp/sse` too. It serves the "
            "default tools; those of the bus are at `/mcp/bus/sse`."
        ),
    ),
    Promise(
        id="agentchatbus.access.port",
        statement="The server listens at port 39765, or at `AGENTCHATBUS_PORT`.",
        not_offered=(
            "The port is `port` in the configuration, or `FLORILEGIUM_PORT`; a variable of another program does not "
            "configure this one. Set it to 39765 to keep the URLs of existing clients."
        ),
    ),
    Promise(
        id="agentchatbus.access.console",
        statement="A web console has a search bar.",
        tests=(
            f"{_CONSOLE}test_messages_are_searched_in_one_thread_and_in_all",
            f"{_CONSOLE}test_human_only_messages_of_a_thread_are_shown_and_labelled",
        ),
    ),
    Promise(
        id="agentchatbus.access.console-marks",
        statement="The web console shows `<mark>` as highlighted text.",
        tests=(f"{_CONSOLE}test_messages_are_searched_in_one_thread_and_in_all",),
    ),
    # Index
    Promise(
        id="agentchatbus.index.automatic",
        statement="Every message is indexed immediately when it is written, without maintenance.",
        tests=(
            f"{_CHATBUS}test_posted_message_is_found_at_once",
            f"{_TOOL}test_messages_written_before_and_after_indexing_are_found",
        ),
    ),
    Promise(
        id="agentchatbus.index.backfill",
        statement="Messages that are not indexed yet are added when the server starts.",
        tests=(f"{_TOOL}test_messages_written_before_and_after_indexing_are_found",),
        difference=(
            "They are added in the background when their user first searches, newest first; until then `note` "
            "says so. So a server with many users starts quickly."
        ),
    ),
    Promise(
        id="agentchatbus.index.edits",
        statement="Edits are reflected in the index; deleted messages stay in it.",
        tests=(f"{_TOOL}test_deleted_or_edited_message_is_not_found_by_its_old_text",),
        difference="Deletions are reflected too.",
    ),
    Promise(
        id="agentchatbus.index.content-only",
        statement="Only the content is searched, not the author, the topic or ids.",
        tests=(f"{_CHATBUS}test_only_the_content_is_searched",),
    ),
    Promise(
        id="agentchatbus.index.tokenizer",
        statement=(
            "Terms are lower-cased and split at white space and punctuation, as by SQLite's `unicode61`, without "
            "stemming."
        ),
        tests=(
            f"{_CHATBUS}test_query_is_a_full_text_expression",
            f"{_TOOL}test_word_inside_running_chinese_text_is_found",
        ),
        difference=(
            "Each letter of a script written without spaces is a term, so that a Chinese word is found inside "
            "running text."
        ),
    ),
    Promise(
        id="agentchatbus.index.case",
        statement="Queries ignore case.",
        tests=(f"{_CHATBUS}test_query_is_a_full_text_expression",),
    ),
    # Parameters
    Promise(
        id="agentchatbus.params.tool",
        statement="`msg_search` takes the required `query`, and `thread_id` and `limit`.",
        tests=(f"{_CHATBUS}test_msg_search_takes_the_documented_parameters",),
    ),
    Promise(
        id="agentchatbus.params.rest",
        statement="`GET /api/search` takes the required `q`, and `thread_id` and `limit`.",
        tests=(f"{_CHATBUS}test_documented_url_returns_its_messages", f"{_REST}test_query_can_be_given_as_q_or_query"),
        difference="`query` is accepted in place of `q`, as in AgentChatBus's newer server.",
    ),
    Promise(
        id="agentchatbus.params.limit",
        statement="`limit` is 50 by default and at most 200.",
        tests=(f"{_CHATBUS}test_limit_is_50_by_default_and_clamped_to_1_to_200",),
    ),
    Promise(
        id="agentchatbus.params.limit-minimum",
        statement="Over REST, a `limit` below 1 is 1.",
        tests=(f"{_CHATBUS}test_limit_is_50_by_default_and_clamped_to_1_to_200",),
    ),
    Promise(
        id="agentchatbus.params.limit-tool",
        statement="Over MCP, `limit` has no minimum.",
        tests=(f"{_CHATBUS}test_limit_is_50_by_default_and_clamped_to_1_to_200",),
        difference="It is at least 1: a negative limit returned all messages.",
    ),
    Promise(
        id="agentchatbus.params.limit-number",
        statement="A `limit` that is not a number is rejected with 422.",
        tests=(f"{_REST}test_invalid_parameter_is_rejected_with_422",),
    ),
    # Responses
    Promise(
        id="agentchatbus.response.shape",
        statement="A response has `results`, `total` and `query`.",
        tests=(f"{_TOOL}test_response_has_the_documented_shape", f"{_REST}test_response_has_the_documented_shape"),
    ),
    Promise(
        id="agentchatbus.response.row",
        statement=(
            "A result has `message_id`, `thread_id`, `thread_topic`, `author`, `seq`, `created_at` and `snippet`."
        ),
        tests=(f"{_TOOL}test_response_has_the_documented_shape", f"{_REST}test_response_has_the_documented_shape"),
        difference=(
            "It also has `id`, and over REST `content` and `metadata`, as in AgentChatBus's newer server. "
            "`created_at` includes its offset."
        ),
    ),
    Promise(
        id="agentchatbus.response.total",
        statement="`total` is the number of returned results.",
        tests=(f"{_CHATBUS}test_limit_is_50_by_default_and_clamped_to_1_to_200",),
    ),
    Promise(
        id="agentchatbus.response.ranking",
        statement="Results are ordered by relevance, best first.",
        tests=(
            f"{_TOOL}test_better_matches_come_first",
            f"{_CHATBUS}test_newest_of_very_many_matches_are_returned_with_a_note",
        ),
        difference="If tens of thousands of messages match, the newest are returned unranked, and `note` says so.",
    ),
    Promise(
        id="agentchatbus.response.empty",
        statement="A word without matches returns an empty list.",
        tests=(f"{_REST}test_unknown_word_returns_no_results",),
    ),
    # Snippets
    Promise(
        id="agentchatbus.snippets.length",
        statement="A snippet has at most 20 tokens.",
        tests=(
            f"{_CHATBUS}test_snippet_has_twenty_tokens_around_the_match",
            f"{_TOOL}test_snippet_has_twenty_words_and_marks_its_truncation",
        ),
    ),
    Promise(
        id="agentchatbus.snippets.marks",
        statement="Matches are enclosed in `<mark>` and `</mark>`, and `…` shows where the content was truncated.",
        tests=(f"{_CHATBUS}test_snippet_has_twenty_tokens_around_the_match",),
    ),
    Promise(
        id="agentchatbus.snippets.markup",
        statement="The rest of a snippet is the content of the message.",
        tests=(
            f"{_TOOL}test_snippet_escapes_markup_of_the_message",
            f"{_REST}test_snippet_escapes_markup_of_the_message",
        ),
        difference=(
            "It is escaped as HTML. In AgentChatBus it was not, so that a message could run a script in the console."
        ),
    ),
    # Syntax
    Promise(
        id="agentchatbus.syntax.words",
        statement="Space-separated terms must all match.",
        tests=(f"{_CHATBUS}test_query_is_a_full_text_expression",),
    ),
    Promise(
        id="agentchatbus.syntax.phrases",
        statement="Double quotes match an exact phrase.",
        tests=(
            f"{_CHATBUS}test_query_is_a_full_text_expression",
            f"{_CHATBUS}test_documented_url_returns_its_messages",
        ),
    ),
    Promise(
        id="agentchatbus.syntax.prefixes",
        statement="`perform*` matches every word that starts with it.",
        tests=(f"{_CHATBUS}test_query_is_a_full_text_expression",),
    ),
    Promise(
        id="agentchatbus.syntax.boolean",
        statement="`AND`, `OR` and `NOT` are operators.",
        tests=(f"{_CHATBUS}test_query_is_a_full_text_expression",),
    ),
    Promise(
        id="agentchatbus.syntax.grouping",
        statement="Parentheses group expressions.",
        tests=(f"{_CHATBUS}test_query_is_a_full_text_expression",),
    ),
    Promise(
        id="agentchatbus.syntax.column",
        statement="`content:` restricts a term to the content.",
        tests=(f"{_CHATBUS}test_query_is_a_full_text_expression",),
    ),
    Promise(
        id="agentchatbus.syntax.bare-star",
        statement="A single `*` returns an empty result.",
        tests=(
            f"{_TOOL}test_expression_without_words_returns_nothing_and_explains",
            f"{_REST}test_bare_asterisk_returns_nothing_without_an_error",
        ),
    ),
    Promise(
        id="agentchatbus.syntax.malformed",
        statement="A malformed expression raises no error and returns an empty result.",
        tests=(
            f"{_TOOL}test_invalid_expression_is_searched_as_words_and_reported_in_read_as",
            f"{_REST}test_invalid_expression_is_searched_as_words_and_reported_in_read_as",
        ),
        difference=(
            "It is searched as words that must all match, and `read_as` says so. `C++`, `fox-trot` and `what's "
            "new?` are malformed in FTS5, but their authors mean the words."
        ),
    ),
    # Scope
    Promise(
        id="agentchatbus.scope.thread",
        statement="With `thread_id`, only that thread is searched.",
        tests=(f"{_TOOL}test_thread_id_restricts_the_search", f"{_REST}test_thread_id_restricts_the_search"),
    ),
    Promise(
        id="agentchatbus.scope.all",
        statement="Without `thread_id`, all threads of the server are searched.",
        tests=(
            f"{_TOOL}test_messages_are_found_by_their_owner_only",
            f"{_REST}test_messages_are_found_by_their_owner_only",
        ),
        difference=(
            "All conversations of the caller are searched, whether or not they were created on the bus, and no other "
            "user's."
        ),
    ),
    Promise(
        id="agentchatbus.scope.thread-id",
        statement="The `thread_id` is in the response of the MCP tool `bus_connect`, as `thread.thread_id`.",
        tests=(
            f"{_CLIENT}test_agents_of_a_user_talk_with_the_tools_of_the_bus_profile",
            f"{_TOOLS}test_second_agent_joins_as_participant_and_reads_the_messages",
        ),
    ),
    # Human-only messages
    Promise(
        id="agentchatbus.human-only.masked",
        statement="Human-only messages are found by agents and counted, but their snippet is a placeholder.",
        tests=(
            f"{_TOOL}test_human_only_messages_are_not_found",
            f"{_TOOL}test_messages_not_marked_human_only_are_shown",
            f"{_HUMAN_ONLY}test_human_only_message_is_redacted_for_agents",
            f"{_HIDDEN_TEXT}test_hidden_message_cannot_be_recovered_by_searching_prefixes",
        ),
        difference=(
            "No search finds them for agents, which could otherwise guess a hidden text character by character. "
            "In a thread they are listed with the placeholder and counted."
        ),
    ),
    Promise(
        id="agentchatbus.human-only.rest",
        statement="REST returns the content of human-only messages.",
        tests=(
            f"{_REST}test_human_only_messages_are_shown_to_people",
            f"{_BUS}test_profile_key_reads_human_only_messages_redacted",
        ),
        difference="Not to a key that is restricted to a profile: such keys are given to agents.",
    ),
    # Errors
    Promise(
        id="agentchatbus.errors.empty-tool",
        statement='Over MCP, an empty query returns `{"error": "query must not be empty"}`.',
        tests=(f"{_TOOL}test_empty_query_returns_the_documented_error",),
    ),
    Promise(
        id="agentchatbus.errors.empty-rest",
        statement="Over REST, an empty `q` is rejected with 400 and `Query parameter 'q' must not be empty`.",
        tests=(f"{_REST}test_empty_query_is_rejected_with_400",),
    ),
    Promise(
        id="agentchatbus.errors.missing",
        statement="A missing `q` is rejected with 400.",
        tests=(f"{_REST}test_missing_query_is_rejected_with_fastapis_422",),
        difference=(
            "It is rejected with 422 and FastAPI's list, which AgentChatBus actually returned and its tests require."
        ),
    ),
    Promise(
        id="agentchatbus.errors.timeout-rest",
        statement="Over REST, a search that times out returns 503 and `Database operation timeout`.",
        tests=(f"{_REST}test_timed_out_search_returns_503",),
    ),
    Promise(
        id="agentchatbus.errors.timeout-tool",
        statement="Over MCP, a search that times out returns an empty list.",
        tests=(f"{_TOOL}test_timed_out_search_returns_nothing_and_explains",),
        difference="The empty list has a `note` that gives the reason.",
    ),
    # The bus
    Promise(
        id="agentchatbus.bus.health",
        statement="`GET /health` identifies the bus.",
        tests=(f"{_BUS}test_health_check_needs_no_credential",),
    ),
    Promise(
        id="agentchatbus.bus.agents",
        statement="An agent registers with `ide` and `model` and receives an id, a name and a token.",
        tests=(
            f"{_BUS}test_registration_returns_a_name_and_a_token",
            f"{_BUS}test_agent_can_choose_its_display_name",
            f"{_BUS}test_too_long_agent_name_is_rejected",
            f"{_BUS}test_registration_without_model_is_rejected_with_fastapis_422",
        ),
    ),
    Promise(
        id="agentchatbus.bus.agents.stored",
        statement="Agents are stored: they keep their identity over a restart.",
        tests=(
            f"{_TOOLS}test_agents_survive_a_restart",
            f"{_CLIENT}test_agents_are_still_registered_after_a_restart",
        ),
        difference=(
            "A user has at most 100 agents; after 90 idle days an agent has to register again. `description`, "
            "`capabilities` and `skills` are not stored."
        ),
    ),
    Promise(
        id="agentchatbus.bus.agents.user",
        statement="An agent needs only its token.",
        tests=(f"{_BUS}test_agent_token_grants_nothing_to_another_user",),
        difference=(
            "The token tells the agents of one user apart. The bearer credential decides whose threads they share."
        ),
    ),
    Promise(
        id="agentchatbus.bus.threads",
        statement=(
            "A registered agent creates a thread with a topic and receives its id, `current_seq` and a reply token."
        ),
        tests=(
            f"{_BUS}test_created_thread_includes_its_sync_context",
            f"{_BUS}test_creating_a_thread_requires_a_valid_agent_token",
            f"{_BUS}test_too_long_topic_is_rejected_and_named",
            f"{_BUS}test_thread_is_also_a_conversation",
            f"{_BUS}test_thread_limit_applies_per_user",
        ),
        difference="A user has at most 10,000 threads.",
    ),
    Promise(
        id="agentchatbus.bus.threads.topic",
        statement="Creating a thread with a topic that exists returns the existing thread.",
        tests=(
            f"{_THREADS}test_posting_a_topic_twice_returns_the_first_thread",
            f"{_THREADS}test_concurrent_posts_of_a_topic_create_one_thread",
            f"{_THREADS}test_users_have_their_own_thread_of_a_topic",
        ),
    ),
    Promise(
        id="agentchatbus.bus.threads.list",
        statement="Threads are listed newest first; `before` takes the `next_cursor` of the previous page.",
        tests=(
            f"{_THREADS}test_threads_are_listed_newest_first",
            f"{_THREADS}test_next_cursor_is_the_before_of_the_next_page",
            f"{_THREADS}test_threads_of_the_same_time_are_all_listed",
            f"{_THREADS}test_invalid_cursor_is_rejected",
        ),
        difference=(
            "The cursor also contains an id if the next thread was created at the same time, which AgentChatBus "
            "would skip. `waiting_agents` is not returned: no agent can wait."
        ),
    ),
    Promise(
        id="agentchatbus.bus.threads.limit",
        statement="Without `limit`, or with 0, all threads are listed; otherwise at most 200.",
        tests=(f"{_THREADS}test_limit_0_lists_as_many_threads_as_allowed",),
        difference="At most `message_page_max` (200) threads are listed; `has_more` says if there are more.",
    ),
    Promise(
        id="agentchatbus.bus.threads.status",
        statement="`status` and `include_archived` filter the list; archived threads are left out by default.",
        tests=(
            f"{_THREADS}test_threads_can_be_listed_by_status",
            f"{_THREADS}test_thread_can_be_archived_and_restored",
            f"{_THREADS}test_invalid_status_is_rejected",
        ),
        difference="An unknown status is rejected with 422. In AgentChatBus it finds nothing.",
    ),
    Promise(
        id="agentchatbus.bus.threads.unknown",
        statement="Unknown query parameters are ignored.",
        tests=(f"{_THREADS}test_unknown_query_parameter_is_rejected_and_named",),
        difference="They are rejected with 422, so that a mistyped filter does not return everything.",
    ),
    Promise(
        id="agentchatbus.bus.threads.close",
        statement="A thread can be closed with a summary, exported and deleted under `/api/threads`.",
        not_offered=(
            "`POST /api/threads/{id}/state` sets the status `closed`, without a summary. Threads are conversations: "
            "`/conversations/{id}/export` exports and `DELETE /conversations/{id}` deletes them."
        ),
    ),
    Promise(
        id="agentchatbus.bus.threads.settings",
        statement="Threads have templates, settings and an administrator that can change.",
        not_offered=(
            "The agent that creates a thread is its administrator; nothing takes over if it is silent. Pass "
            "`system_prompt` instead of a template."
        ),
    ),
    Promise(
        id="agentchatbus.bus.reactions",
        statement="Messages can be edited, with a history, and agents can react to them.",
        not_offered=("`items_update` edits a message without a history. There are no reactions."),
    ),
    Promise(
        id="agentchatbus.bus.events",
        statement="`GET /events` streams what happens on the bus, as JSON with `type` and `payload`.",
        tests=(
            f"{_EVENTS}test_a_user_receives_what_happens_in_their_own_threads",
            f"{_EVENTS}test_streams_of_a_user_are_limited",
            f"{_EVENTS}test_a_restricted_key_does_not_receive_human_only_messages",
        ),
        difference=(
            "The stream is about the caller's own threads: `msg.new`, `thread.created`, `thread.state`, "
            "`thread.updated` and `thread.deleted`. There are no events of agents, edits and reactions."
        ),
    ),
    Promise(
        id="agentchatbus.bus.waiting",
        statement="`msg_wait` blocks until a message arrives.",
        not_offered=(
            "Agents call `msg_list` with the last `seq`. A call that waits for minutes would exceed `call_deadline_ms` "
            "and keep a connection open."
        ),
    ),
    Promise(
        id="agentchatbus.bus.presence",
        statement="Agents send heartbeats, and their online status is listed.",
        not_offered="Agents share threads; the bus does not track which of them is running.",
    ),
    Promise(
        id="agentchatbus.bus.messages",
        statement="A message is posted with author, content, role and metadata; the response has its id and `seq`.",
        tests=(
            f"{_BUS}test_posted_message_is_returned_as_stored",
            f"{_BUS}test_unregistered_author_can_post_under_any_name",
            f"{_BUS}test_human_cannot_post_with_role_system",
            f"{_BUS}test_reply_must_name_a_message_of_its_thread",
        ),
    ),
    Promise(
        id="agentchatbus.bus.messages.author",
        statement="Posting as a registered agent requires its token (401).",
        tests=(f"{_BUS}test_posting_as_a_registered_agent_requires_its_token",),
    ),
    Promise(
        id="agentchatbus.bus.messages.seq",
        statement="`seq` increases across the whole bus.",
        tests=(f"{_BUS}test_seq_increases_across_threads",),
        difference="It increases across the caller's whole library, so that it reveals nothing about other users.",
    ),
    Promise(
        id="agentchatbus.bus.messages.read",
        statement=(
            "Messages of a thread are read in order, after `after_seq`, 200 by default and at most 1,000, and filtered "
            "by `priority`."
        ),
        tests=(
            f"{_BUS}test_messages_can_be_read_after_a_seq",
            f"{_BUS}test_agents_of_one_user_share_threads",
            f"{_THREADS}test_messages_come_in_pages_of_200_and_at_most_1000",
            f"{_THREADS}test_messages_can_be_filtered_by_priority",
            f"{_THREADS}test_link_leads_through_all_messages",
            f"{_THREADS}test_page_ends_at_the_size_limit",
        ),
        difference=(
            "The headers `X-Has-More` and `Link` say if there are more. A page also ends at "
            "`conversation_response_max_bytes`. An unknown priority is rejected with 422 instead of 400."
        ),
    ),
    Promise(
        id="agentchatbus.bus.messages.system-prompt",
        statement="`include_system_prompt` puts the system prompt before the first message.",
        tests=(f"{_THREADS}test_system_prompt_can_be_read_as_the_first_message",),
        difference="Only if the thread has one. AgentChatBus adds a prompt of its own to every thread.",
    ),
    Promise(
        id="agentchatbus.bus.messages.filter",
        statement="A message or system prompt with a known kind of secret is rejected (400) with its `pattern`.",
        tests=(
            f"{_FILTER}test_message_with_a_secret_is_rejected_and_not_stored",
            f"{_FILTER}test_thread_with_a_secret_is_rejected",
            f"{_FILTER}test_filter_can_be_switched_off",
            f"{_TOOLS}test_secret_is_rejected_by_the_tools",
        ),
        difference="Topics are checked too.",
    ),
    Promise(
        id="agentchatbus.bus.sync.seq",
        statement="A post by an agent that has not read the latest messages is rejected (409) with those messages.",
        tests=(f"{_BUS}test_post_after_unread_messages_is_rejected_with_those_messages",),
    ),
    Promise(
        id="agentchatbus.bus.sync.tokens",
        statement="A reply token permits one message; an invalid, used or expired one is rejected (400) with a code.",
        tests=(
            f"{_BUS}test_post_with_current_seq_and_reply_token_is_written",
            f"{_BUS}test_reply_token_can_be_used_once",
            f"{_BUS}test_rejected_post_does_not_consume_its_reply_token",
            f"{_BUS}test_reply_token_of_another_thread_is_rejected",
            f"{_BUS}test_expired_reply_token_is_rejected",
        ),
        difference="It does expire, after 1 hour.",
    ),
    Promise(
        id="agentchatbus.bus.sync.optional",
        statement="REST callers may omit `expected_last_seq` and `reply_token`.",
        tests=(
            f"{_BUS}test_unregistered_author_can_post_under_any_name",
            f"{_BUS}test_post_without_sync_fields_is_rejected_when_sync_is_required",
        ),
        difference=(
            "With `bus_sync_required` they are required; a message without them is rejected (`MISSING_SYNC_FIELDS`)."
        ),
    ),
    # Tools
    Promise(
        id="agentchatbus.tools.connect",
        statement=(
            "`bus_connect` registers or resumes an agent, joins or creates a thread, and returns the agent, the "
            "thread, its messages and a sync context."
        ),
        tests=(
            f"{_TOOLS}test_connecting_registers_an_agent_and_creates_the_thread",
            f"{_TOOLS}test_second_agent_joins_as_participant_and_reads_the_messages",
            f"{_TOOLS}test_thread_can_be_joined_by_its_id",
            f"{_TOOLS}test_agent_is_resumed_by_its_id_and_token",
            f"{_TOOLS}test_connecting_requires_a_thread",
            f"{_TOOLS}test_connection_says_if_there_are_more_messages",
        ),
        difference=(
            "`agent_id` without `token`, or the reverse, is an error. `has_more` says if the thread has more "
            "messages. There is no `template`."
        ),
    ),
    Promise(
        id="agentchatbus.tools.post",
        statement="`msg_post` requires `expected_last_seq` and `reply_token`, and returns those of the next message.",
        tests=(
            f"{_TOOLS}test_posted_message_returns_the_sync_fields_of_the_next",
            f"{_TOOLS}test_agent_must_be_in_sync",
            f"{_TOOLS}test_post_after_unread_messages_returns_them_and_can_be_repeated",
            f"{_TOOLS}test_reply_token_can_be_used_once_and_only_by_its_agent",
            f"{_TOOLS}test_unregistered_author_can_post_under_any_name",
            f"{_TOOLS}test_agent_can_post_only_in_threads_of_its_user",
        ),
        difference=(
            "Only registered agents need them, and only they can use their tokens. After `SeqMismatchError` the "
            "same token is still valid. `action` names `bus_connect` instead of `msg_wait`."
        ),
    ),
    Promise(
        id="agentchatbus.tools.list",
        statement="`msg_list` returns messages as content blocks, or as one JSON array with `return_format: json`.",
        tests=(
            f"{_TOOLS}test_messages_are_listed_as_blocks_or_as_json",
            f"{_TOOLS}test_list_is_filtered_and_says_if_there_are_more",
            f"{_TOOLS}test_images_are_listed_as_image_blocks_unless_excluded",
            f"{_TOOLS}test_list_ends_at_the_size_limit",
        ),
        difference="A last block says if there are more messages. A response ends at 64 KiB.",
    ),
    Promise(
        id="agentchatbus.tools.errors",
        statement="Errors of the tools are objects with `error`.",
        tests=(
            f"{_TOOLS}test_agent_must_be_in_sync",
            f"{_TOOLS}test_connecting_requires_a_thread",
            f"{_TOOLS}test_writing_tools_need_the_write_scope",
        ),
        difference="They are also marked as errors (`isError`), so that a client need not parse them to know.",
    ),
    Promise(
        id="agentchatbus.tools.human-only",
        statement="Agents see human-only messages in `bus_connect` and `msg_list` as a placeholder.",
        tests=(f"{_TOOLS}test_human_only_messages_are_hidden_from_all_tools",),
    ),
    # Errors of the bus
    Promise(
        id="agentchatbus.bus.not-found",
        statement="A missing thread is rejected with 404, `Thread not found`.",
        tests=(
            f"{_BUS}test_thread_of_another_user_looks_nonexistent",
            f"{_BUS}test_threads_of_another_user_are_not_counted",
            f"{_BUS}test_missing_thread_is_reported_before_any_other_error",
        ),
    ),
    Promise(
        id="agentchatbus.bus.rate",
        statement="Too many messages are rejected with 429 and `Retry-After`.",
        tests=(f"{_BUS}test_rate_limited_post_returns_the_time_to_wait",),
        difference="The rate is configurable and applies to each user.",
    ),
    Promise(
        id="agentchatbus.bus.scopes",
        statement="Every client that can reach the bus can write to it.",
        tests=(
            f"{_BUS}test_read_only_credential_cannot_write",
            f"{_BUS}test_bus_profile_key_can_use_the_whole_bus",
            f"{_BUS}test_bus_profile_key_cannot_use_other_operations",
            f"{_BUS}test_bus_profile_key_can_post_only_in_threads",
            f"{_BUS}test_keys_of_other_profiles_search_and_write_as_their_tools_allow",
        ),
        difference=(
            "Reading needs the scope `knowledge:read`, writing `knowledge:write`. A key with the profile `bus` "
            "can use nothing else."
        ),
    ),
)
