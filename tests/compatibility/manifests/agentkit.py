"""Promises of AgentKit's conversations API, except chat (see `agentkit_chat`)."""

from tests.compatibility.manifest import Promise

_CONVERSATIONS = "tests/server/compat/agentkit/test_conversations.py::"
_RECORDING = "tests/server/compat/agentkit/test_recording.py::"
_ARCHIVES = "tests/server/compat/agentkit/test_archives.py::"
_NAMESPACES = "tests/server/compat/agentkit/test_namespaces.py::"
_OPENAPI = "tests/server/rest/test_openapi.py::"

PROMISES: tuple[Promise, ...] = (
    # Stored data
    Promise(
        id="agentkit.stored.conversation",
        statement=(
            "A conversation has id, session, title, namespace, creation and update time, message count and metadata."
        ),
        tests=(
            f"{_RECORDING}test_created_conversation_stores_all_fields",
            f"{_CONVERSATIONS}test_list_has_the_documented_shape",
        ),
    ),
    Promise(
        id="agentkit.stored.message",
        statement="A message has role, content, model, tool, attachments, citations and time.",
        tests=(f"{_RECORDING}test_added_message_stores_all_fields",),
    ),
    Promise(
        id="agentkit.stored.order",
        statement="Messages are returned in the order in which they were written.",
        tests=(f"{_RECORDING}test_many_messages_are_stored_in_order",),
    ),
    Promise(
        id="agentkit.stored.session",
        statement="A session has one conversation.",
        tests=(f"{_RECORDING}test_session_has_one_conversation_per_user",),
        difference=(
            "Sessions are separate for each user: two users can have sessions of the same name. A conversation without "
            "a session has an empty `session_id`."
        ),
    ),
    Promise(
        id="agentkit.stored.title",
        statement=(
            "The title defaults to the first 50 characters of the first message, followed by `...` if it is longer."
        ),
        tests=(
            f"{_RECORDING}test_title_defaults_to_the_beginning_of_the_first_user_message",
            f"{_RECORDING}test_explicit_title_is_not_replaced",
        ),
    ),
    Promise(
        id="agentkit.stored.restart",
        statement="Conversations survive a restart.",
        tests=(f"{_RECORDING}test_recorded_conversation_survives_a_restart",),
        difference=(
            "There is no `uploads/conversations.db`: conversations are stored in their user's own library, where every "
            "other tool finds them."
        ),
    ),
    Promise(
        id="agentkit.stored.times",
        statement="Times are ISO 8601 in UTC with microseconds and `+00:00`.",
        tests=(
            f"{_CONVERSATIONS}test_list_has_the_documented_shape",
            f"{_RECORDING}test_added_message_stores_all_fields",
        ),
        difference="Times have millisecond precision: the last three digits are 0.",
    ),
    Promise(
        id="agentkit.stored.recording",
        statement="Clients that manage conversations themselves can save them, one message or many at a time.",
        tests=(
            f"{_RECORDING}test_added_message_stores_all_fields",
            f"{_RECORDING}test_many_messages_are_stored_in_order",
            f"{_RECORDING}test_bulk_messages_are_stored_all_or_none",
            f"{_RECORDING}test_repeated_write_with_the_same_key_is_stored_once",
            f"{_RECORDING}test_recorded_conversation_is_found_by_the_tools",
        ),
        difference="This is an addition: AgentKit has a Python module for it; here it is three REST operations.",
    ),
    # List
    Promise(
        id="agentkit.list.shape",
        statement="The list has conversations, total, limit and offset.",
        tests=(f"{_CONVERSATIONS}test_list_has_the_documented_shape",),
    ),
    Promise(
        id="agentkit.list.pages",
        statement="`limit` (default 50) and `offset` page through the list, most recently changed first.",
        tests=(
            f"{_CONVERSATIONS}test_list_is_paged_newest_first_with_the_exact_total",
            f"{_CONVERSATIONS}test_default_page_has_fifty_conversations",
        ),
    ),
    Promise(
        id="agentkit.list.total",
        statement="`total` is the number of conversations.",
        tests=(f"{_CONVERSATIONS}test_list_is_paged_newest_first_with_the_exact_total",),
        difference=(
            "AgentKit's server counts the rows of the page, which is useless for paging; here `total` counts all "
            "conversations that pass the filters."
        ),
    ),
    Promise(
        id="agentkit.list.bounds",
        statement="`limit` is the number of conversations to return.",
        tests=(f"{_CONVERSATIONS}test_limit_and_offset_are_clamped_and_returned",),
        difference=(
            "It is clamped to 1..`conversation_page_max`, and the response has the value that was applied. In "
            "AgentKit's server, -1 meant all."
        ),
    ),
    Promise(
        id="agentkit.list.namespace",
        statement="`namespace` filters the list by namespace.",
        tests=(f"{_CONVERSATIONS}test_list_can_be_filtered_by_namespace",),
    ),
    Promise(
        id="agentkit.list.search",
        statement="`search` filters the list by a part of the title or id.",
        tests=(f"{_CONVERSATIONS}test_list_can_be_filtered_by_part_of_title_or_id",),
        difference="It ignores case in every script, and `%` and `_` are ordinary characters.",
    ),
    # One conversation
    Promise(
        id="agentkit.detail.shape",
        statement="A conversation is returned with all its messages, oldest first.",
        tests=(
            f"{_CONVERSATIONS}test_conversation_has_the_documented_shape_with_messages_oldest_first",
            f"{_CONVERSATIONS}test_message_has_is_canonical_and_parent_id",
        ),
        difference=(
            "A message also has `is_canonical` and `parent_id`, because imported chats contain regenerated answers, "
            "which AgentKit does not have. Alternate branches follow the main branch, whenever they were written."
        ),
    ),
    Promise(
        id="agentkit.detail.long",
        statement="The whole history is returned.",
        tests=(
            f"{_CONVERSATIONS}test_long_conversation_can_be_read_in_parts",
            f"{_CONVERSATIONS}test_response_size_is_limited_but_has_at_least_one_message",
            f"{_CONVERSATIONS}test_deleted_messages_leave_no_gap",
        ),
        difference=(
            "A response has up to `conversation_messages_max` messages and `conversation_response_max_bytes`. Beyond "
            "that it has `next_messages_offset`; pass it as `messages_offset`."
        ),
    ),
    Promise(
        id="agentkit.detail.absent",
        statement="A missing conversation returns 404, `Conversation not found`.",
        tests=(f"{_CONVERSATIONS}test_missing_conversation_is_not_found",),
    ),
    Promise(
        id="agentkit.rename",
        statement="A conversation can be renamed; the response is success and its id.",
        tests=(
            f"{_CONVERSATIONS}test_conversation_can_be_renamed",
            f"{_CONVERSATIONS}test_renaming_without_a_title_only_changes_the_modification_time",
        ),
    ),
    Promise(
        id="agentkit.delete",
        statement="A conversation can be deleted; the response is success and its id.",
        tests=(
            f"{_CONVERSATIONS}test_deleted_conversation_is_found_nowhere",
            f"{_CONVERSATIONS}test_deleted_conversation_can_be_purged_once_by_its_owner",
        ),
        difference=(
            "Its messages are deleted too: AgentKit's server left them behind and still found them. With `purge=true` "
            "they are also removed from disk."
        ),
    ),
    # Search
    Promise(
        id="agentkit.search.shape",
        statement="A message search returns messages and total.",
        tests=(f"{_CONVERSATIONS}test_search_results_have_the_documented_shape",),
        difference=(
            "`total` counts the messages of the response, as in AgentKit's server; `has_more` says whether there are "
            "others, and `is_complete` whether all were searched."
        ),
    ),
    Promise(
        id="agentkit.search.text",
        statement="Messages are found by a part of their text, newest first; an empty query finds all.",
        tests=(
            f"{_CONVERSATIONS}test_messages_are_found_by_part_of_their_text_newest_first",
            f"{_CONVERSATIONS}test_title_is_not_searched_as_a_message",
        ),
        difference="It ignores case in every script, and `%` and `_` are ordinary characters.",
    ),
    Promise(
        id="agentkit.search.required",
        statement="`query` is required.",
        tests=(f"{_CONVERSATIONS}test_invalid_input_is_rejected_with_fastapis_422",),
    ),
    Promise(
        id="agentkit.search.narrowed",
        statement="`conversation_id` and `limit` (default 50) restrict the search.",
        tests=(f"{_CONVERSATIONS}test_search_can_be_restricted_to_a_conversation_and_a_limit",),
    ),
    # Export
    Promise(
        id="agentkit.export.json",
        statement="A JSON export contains the whole conversation with all metadata.",
        tests=(
            f"{_CONVERSATIONS}test_json_export_is_the_whole_conversation",
            f"{_CONVERSATIONS}test_export_of_many_pages_is_complete",
        ),
    ),
    Promise(
        id="agentkit.export.txt",
        statement="A text export has content and format, in the documented layout.",
        tests=(f"{_CONVERSATIONS}test_text_export_has_the_documented_format",),
    ),
    Promise(
        id="agentkit.export.md",
        statement="A Markdown export has content and format, with a heading for each message.",
        tests=(f"{_CONVERSATIONS}test_markdown_export_has_the_documented_format",),
        difference="The headings are 👤 and 🤖, as AgentKit's server writes them; its documentation garbles them.",
    ),
    Promise(
        id="agentkit.export.format",
        statement="`format` is json, txt or md; anything else returns 400.",
        tests=(
            f"{_CONVERSATIONS}test_unsupported_export_format_is_rejected",
            f"{_CONVERSATIONS}test_json_export_is_the_whole_conversation",
        ),
        difference="It is optional and defaults to json, as in AgentKit's server; the documentation calls it required.",
    ),
    Promise(
        id="agentkit.export.bulk",
        statement="All conversations can be exported at once, and imported elsewhere.",
        tests=(
            f"{_ARCHIVES}test_export_contains_every_conversation_and_a_manifest",
            f"{_ARCHIVES}test_export_after_import_has_the_same_bytes",
            f"{_ARCHIVES}test_large_library_is_exported_and_imported_over_a_socket",
            f"{_ARCHIVES}test_import_restores_a_deleted_conversation",
            f"{_ARCHIVES}test_repeated_import_changes_nothing",
            f"{_ARCHIVES}test_agentkits_own_export_files_can_be_imported",
        ),
        difference="AgentKit lists this as planned; here it is a zip that is streamed in both directions.",
    ),
    # Namespaces
    Promise(
        id="agentkit.namespaces.isolation",
        statement="Conversations belong to a namespace, by default to `default`.",
        tests=(
            f"{_CONVERSATIONS}test_list_can_be_filtered_by_namespace",
            f"{_NAMESPACES}test_default_namespace_always_exists",
        ),
    ),
    Promise(
        id="agentkit.namespaces.manage",
        statement="Namespaces can be listed, created, renamed and deleted, except the default one; names are unique.",
        tests=(
            f"{_NAMESPACES}test_namespace_is_created_by_name_or_by_its_first_conversation",
            f"{_NAMESPACES}test_name_can_be_sent_as_json",
            f"{_NAMESPACES}test_renamed_namespace_keeps_its_conversations",
            f"{_NAMESPACES}test_conversations_of_a_deleted_namespace_move_to_the_default",
            f"{_NAMESPACES}test_invalid_namespace_operations_are_rejected",
        ),
        difference=(
            "Conversations of a deleted namespace are moved to the default one. Documents have no namespaces here: "
            "`document_count` is 0, and there is no `/namespaces/{name}/documents`. A name can also be sent as JSON."
        ),
    ),
    # Errors
    Promise(
        id="agentkit.errors.envelope",
        statement="Errors have success, error (code, message, details, timestamp, retry_after) and request_id.",
        tests=(
            f"{_CONVERSATIONS}test_error_has_agentkits_envelope_and_a_detail",
            f"{_CONVERSATIONS}test_rate_limit_error_says_when_to_retry",
        ),
        difference="They also have `detail`, for clients that were written for the earlier error format.",
    ),
    Promise(
        id="agentkit.errors.invalid",
        statement="An invalid request returns 422 with FastAPI's list as its detail.",
        tests=(f"{_CONVERSATIONS}test_invalid_input_is_rejected_with_fastapis_422",),
        difference="The envelope is returned in addition to the list.",
    ),
    # Users
    Promise(
        id="agentkit.users",
        statement="Users save, find and export their own chat history.",
        tests=(
            f"{_CONVERSATIONS}test_conversation_of_another_user_looks_nonexistent",
            f"{_CONVERSATIONS}test_users_do_not_list_count_or_find_each_others_messages",
            f"{_CONVERSATIONS}test_missing_credential_is_rejected_with_401",
            f"{_CONVERSATIONS}test_read_only_key_cannot_write",
            f"{_RECORDING}test_message_cannot_be_added_to_another_users_conversation",
            f"{_ARCHIVES}test_imported_conversations_belong_to_the_importing_user",
            f"{_NAMESPACES}test_namespaces_of_another_user_cannot_be_changed_and_do_not_conflict",
        ),
        difference=(
            "AgentKit's server has a single user without authentication. Here the credential identifies the user; "
            "reading needs the scope `knowledge:read` and writing `knowledge:write`."
        ),
    ),
    Promise(
        id="agentkit.docs",
        statement="The running server documents the whole API.",
        tests=(
            f"{_OPENAPI}test_the_document_contains_exactly_the_operations",
            f"{_OPENAPI}test_the_reference_page_shows_all_operations_and_schemas_and_loads_no_foreign_resource",
        ),
    ),
)
