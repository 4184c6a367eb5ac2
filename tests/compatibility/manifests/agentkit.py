"""Promises of AgentKit's conversation persistence, in the order of its documentation. Chat is in `agentkit_chat`."""

from tests.compatibility.manifest import Promise

_AGENTKIT = "tests/compatibility/test_agentkit.py::"
_CONVERSATIONS = "tests/server/compat/agentkit/test_conversations.py::"
_RECORDING = "tests/server/compat/agentkit/test_recording.py::"
_ARCHIVES = "tests/server/compat/agentkit/test_archives.py::"
_NAMESPACES = "tests/server/compat/agentkit/test_namespaces.py::"
_OPENAPI = "tests/server/rest/test_openapi.py::"
_HISTORY = "tests/browser/test_conversations.py::"
_PAGES = "tests/server/console/test_history_page.py::"

PROMISES: tuple[Promise, ...] = (
    # User interface
    Promise(
        id="agentkit.ui.sidebar",
        statement="A sidebar shows all conversations with title, time and message count.",
        tests=(
            f"{_HISTORY}test_sidebar_groups_rows_opens_conversations_and_collapses",
            f"{_HISTORY}test_sidebar_shows_more_than_a_page_of_rest",
            f"{_PAGES}test_history_lists_the_conversations_of_its_reader",
        ),
    ),
    Promise(
        id="agentkit.ui.collapsible",
        statement="The sidebar can be collapsed.",
        tests=(f"{_HISTORY}test_sidebar_groups_rows_opens_conversations_and_collapses",),
    ),
    Promise(
        id="agentkit.ui.live",
        statement="The sidebar is updated in real time as conversations are created.",
        tests=(f"{_HISTORY}test_new_conversations_and_messages_appear_without_a_reload",),
    ),
    Promise(
        id="agentkit.ui.search-box",
        statement="The search box filters as you type, 300 ms after the last key.",
        tests=(f"{_HISTORY}test_sidebar_is_filtered_by_title_id_and_namespace",),
    ),
    Promise(
        id="agentkit.ui.download",
        statement="A button downloads a conversation as a file.",
        tests=(f"{_HISTORY}test_conversation_is_downloaded_in_three_formats",),
    ),
    Promise(
        id="agentkit.ui.frontend",
        statement="The requests of AgentKit's frontend work.",
        tests=(
            f"{_AGENTKIT}test_requests_of_the_frontend_return_what_it_reads",
            f"{_AGENTKIT}test_frontend_can_download_each_export_format",
            f"{_AGENTKIT}test_frontend_of_another_origin_is_allowed_by_a_setting",
        ),
        difference=(
            "Its origin has to be listed in `allowed_origins`, and a server with several users needs its credential."
        ),
    ),
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
        statement="`session_id` is unique: a session has one conversation.",
        tests=(f"{_RECORDING}test_session_has_one_conversation_per_user",),
        difference="Each user has sessions of their own. A conversation without a session has an empty `session_id`.",
    ),
    Promise(
        id="agentkit.stored.namespace",
        statement="The namespace is `default` unless another is given.",
        tests=(
            f"{_NAMESPACES}test_default_namespace_always_exists",
            f"{_CONVERSATIONS}test_list_has_the_documented_shape",
        ),
    ),
    Promise(
        id="agentkit.stored.title",
        statement="The title is the first 50 characters of the first message, followed by `...` if it is longer.",
        tests=(
            f"{_RECORDING}test_title_defaults_to_the_beginning_of_the_first_user_message",
            f"{_RECORDING}test_explicit_title_is_not_replaced",
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
        id="agentkit.stored.cascade",
        statement="Deleting a conversation deletes its messages.",
        tests=(f"{_CONVERSATIONS}test_deleted_conversation_is_found_nowhere",),
    ),
    Promise(
        id="agentkit.stored.restart",
        statement="Conversations survive a restart.",
        tests=(f"{_RECORDING}test_recorded_conversation_survives_a_restart",),
    ),
    Promise(
        id="agentkit.stored.file",
        statement="The database is `uploads/conversations.db`, with the documented tables.",
        tests=(f"{_AGENTKIT}test_database_of_agentkit_is_imported_with_its_ids",),
        difference=(
            "Conversations are in their user's own library, where every tool finds them. A `conversations.db` "
            "is imported with its ids."
        ),
    ),
    Promise(
        id="agentkit.stored.module",
        statement="A Python module, `app.database`, creates, reads, searches, updates and deletes conversations.",
        tests=(
            f"{_RECORDING}test_created_conversation_stores_all_fields",
            f"{_RECORDING}test_many_messages_are_stored_in_order",
            f"{_RECORDING}test_bulk_messages_are_stored_all_or_none",
            f"{_RECORDING}test_repeated_write_with_the_same_key_is_stored_once",
        ),
        difference=(
            "REST does the same; creating a conversation and adding one or many messages are operations of their own."
        ),
    ),
    # List
    Promise(
        id="agentkit.list.shape",
        statement="The list has `conversations`, `total`, `limit` and `offset`.",
        tests=(f"{_CONVERSATIONS}test_list_has_the_documented_shape",),
    ),
    Promise(
        id="agentkit.list.limit",
        statement="`limit` is 50 by default.",
        tests=(f"{_CONVERSATIONS}test_default_page_has_fifty_conversations",),
    ),
    Promise(
        id="agentkit.list.pages",
        statement="`limit` and `offset` page through the list.",
        tests=(
            f"{_AGENTKIT}test_pages_of_twenty_conversations_follow_each_other",
            f"{_CONVERSATIONS}test_list_is_paged_newest_first_with_the_exact_total",
        ),
    ),
    Promise(
        id="agentkit.list.order",
        statement="The list is ordered by time, last updated first.",
        tests=(f"{_CONVERSATIONS}test_list_is_paged_newest_first_with_the_exact_total",),
    ),
    Promise(
        id="agentkit.list.total",
        statement="`total` is the number of conversations.",
        tests=(f"{_CONVERSATIONS}test_list_is_paged_newest_first_with_the_exact_total",),
        difference=(
            "It counts all conversations that pass the filters; AgentKit's server counts the rows of the page, "
            "which is useless for paging."
        ),
    ),
    Promise(
        id="agentkit.list.bounds",
        statement="`limit` has no bounds; -1 returns all conversations.",
        tests=(f"{_CONVERSATIONS}test_limit_and_offset_are_clamped_and_returned",),
        difference="It is clamped to 1..`message_page_max`, and the response has the value that was applied.",
    ),
    Promise(
        id="agentkit.list.namespace",
        statement="`namespace` filters the list.",
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
        statement="A conversation is returned with its messages, oldest first.",
        tests=(
            f"{_CONVERSATIONS}test_conversation_has_the_documented_shape_with_messages_oldest_first",
            f"{_CONVERSATIONS}test_message_has_is_canonical_and_parent_id",
        ),
        difference=(
            "A message also has `is_canonical` and `parent_id`, because imported chats contain regenerated "
            "answers. These alternate branches follow the main branch."
        ),
    ),
    Promise(
        id="agentkit.detail.long",
        statement="The full history is returned.",
        tests=(
            f"{_CONVERSATIONS}test_long_conversation_can_be_read_in_parts",
            f"{_CONVERSATIONS}test_response_size_is_limited_but_has_at_least_one_message",
            f"{_CONVERSATIONS}test_deleted_messages_leave_no_gap",
        ),
        difference=(
            "A response has up to 5,000 messages and `conversation_response_max_bytes`. Beyond "
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
        statement="`PUT /conversations/{id}?title=` renames it and returns `success` and `conversation_id`.",
        tests=(f"{_CONVERSATIONS}test_conversation_can_be_renamed",),
    ),
    Promise(
        id="agentkit.rename.optional",
        statement="`title` is optional.",
        tests=(f"{_CONVERSATIONS}test_renaming_without_a_title_only_changes_the_modification_time",),
    ),
    Promise(
        id="agentkit.delete",
        statement="`DELETE /conversations/{id}` deletes it and returns `success` and `conversation_id`.",
        tests=(
            f"{_CONVERSATIONS}test_deleted_conversation_is_found_nowhere",
            f"{_CONVERSATIONS}test_deleted_conversation_can_be_purged_once_by_its_owner",
        ),
        difference=(
            "Until it is purged (`purge=true`), it stays in the database file, so that an import can restore it."
        ),
    ),
    # Search
    Promise(
        id="agentkit.search.shape",
        statement="A message search returns `messages` and `total`.",
        tests=(f"{_CONVERSATIONS}test_search_results_have_the_documented_shape",),
        difference=(
            "`total` counts the messages of the response, as in AgentKit's server; `has_more` says whether there are "
            "others, and `is_complete` whether all were searched."
        ),
    ),
    Promise(
        id="agentkit.search.text",
        statement="Messages are found by a part of their text, newest first.",
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
        id="agentkit.search.conversation",
        statement="`conversation_id` restricts the search to a conversation.",
        tests=(f"{_CONVERSATIONS}test_search_can_be_restricted_to_a_conversation_and_a_limit",),
    ),
    Promise(
        id="agentkit.search.limit",
        statement="`limit` is 50 by default.",
        tests=(
            f"{_AGENTKIT}test_search_returns_fifty_messages_by_default",
            f"{_CONVERSATIONS}test_search_can_be_restricted_to_a_conversation_and_a_limit",
        ),
    ),
    # Export
    Promise(
        id="agentkit.export.json",
        statement="A JSON export is the whole conversation with all metadata.",
        tests=(
            f"{_CONVERSATIONS}test_json_export_is_the_whole_conversation",
            f"{_CONVERSATIONS}test_export_of_many_pages_is_complete",
            f"{_CONVERSATIONS}test_exported_json_is_imported_with_senders_metadata_and_tags",
        ),
    ),
    Promise(
        id="agentkit.export.txt",
        statement="A text export has `content` and `format`, in the documented layout.",
        tests=(f"{_CONVERSATIONS}test_text_export_has_the_documented_format",),
    ),
    Promise(
        id="agentkit.export.md",
        statement="A Markdown export has `content` and `format`, with a heading for each message.",
        tests=(f"{_CONVERSATIONS}test_markdown_export_has_the_documented_format",),
        difference="The headings are 👤 and 🤖, as AgentKit's server writes them; its documentation garbles them.",
    ),
    Promise(
        id="agentkit.export.required",
        statement="`format` is required.",
        tests=(f"{_CONVERSATIONS}test_json_export_is_the_whole_conversation",),
        difference="It defaults to json, as in AgentKit's server.",
    ),
    Promise(
        id="agentkit.export.format",
        statement="A format other than json, txt and md returns 400.",
        tests=(f"{_CONVERSATIONS}test_unsupported_export_format_is_rejected",),
    ),
    # Namespaces
    Promise(
        id="agentkit.namespaces.isolation",
        statement="Conversations belong to a namespace, and the history can be filtered by it.",
        tests=(f"{_CONVERSATIONS}test_list_can_be_filtered_by_namespace",),
    ),
    Promise(
        id="agentkit.namespaces.list",
        statement="`GET` and `POST /namespaces` list and create namespaces; names are unique.",
        tests=(
            f"{_NAMESPACES}test_namespace_is_created_by_name_or_by_its_first_conversation",
            f"{_NAMESPACES}test_name_can_be_sent_as_json",
            f"{_NAMESPACES}test_invalid_namespace_operations_are_rejected",
        ),
        difference="A name can also be sent as JSON.",
    ),
    Promise(
        id="agentkit.namespaces.rename",
        statement="`PUT /namespaces/{name}/rename` renames a namespace, except the default one.",
        tests=(
            f"{_NAMESPACES}test_renamed_namespace_keeps_its_conversations",
            f"{_NAMESPACES}test_invalid_namespace_operations_are_rejected",
        ),
    ),
    Promise(
        id="agentkit.namespaces.delete",
        statement="`DELETE /namespaces/{name}` deletes a namespace, except the default one.",
        tests=(
            f"{_NAMESPACES}test_conversations_of_a_deleted_namespace_move_to_the_default",
            f"{_NAMESPACES}test_invalid_namespace_operations_are_rejected",
            f"{_NAMESPACES}test_errors_have_agentkits_wording",
            f"{_NAMESPACES}test_response_to_renaming_has_agentkits_keys",
        ),
        difference="Its conversations are moved to the default one.",
    ),
    Promise(
        id="agentkit.namespaces.documents",
        statement="`GET /namespaces/{name}/documents` lists the documents of a namespace.",
        not_offered=(
            "Documents have no namespaces here: `document_count` is 0. Notes and media are searched by every tool."
        ),
    ),
    # Performance
    Promise(
        id="agentkit.performance.speed",
        statement="Queries are fast even with thousands of conversations, and suitable for about 10,000.",
        not_offered=(
            "No speed is promised, because it depends on the machine and the library. [performance.md](performance.md) "
            "has measurements."
        ),
    ),
    Promise(
        id="agentkit.performance.like",
        statement="Searches scan all messages with LIKE.",
        tests=(f"{_CONVERSATIONS}test_messages_are_found_by_part_of_their_text_newest_first",),
        difference="An index finds parts of words.",
    ),
    # Errors
    Promise(
        id="agentkit.errors.envelope",
        statement="Errors have `success`, `error` (code, message, details, timestamp, retry_after) and `request_id`.",
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
    # Planned by AgentKit
    Promise(
        id="agentkit.planned.full-text",
        statement="Planned: full-text search.",
        tests=(f"{_AGENTKIT}test_saved_chat_is_found_by_full_text_and_can_be_tagged",),
    ),
    Promise(
        id="agentkit.planned.tags",
        statement="Planned: tags and categories.",
        tests=(f"{_AGENTKIT}test_saved_chat_is_found_by_full_text_and_can_be_tagged",),
        difference="A conversation has tags and a namespace.",
    ),
    Promise(
        id="agentkit.planned.sharing",
        statement="Planned: sharing conversations between users.",
        not_offered="No user can read another's data; an export can be given to another user to import.",
    ),
    Promise(
        id="agentkit.planned.templates",
        statement="Planned: conversation templates.",
        not_offered="Nothing of the kind exists.",
    ),
    Promise(
        id="agentkit.planned.bulk-export",
        statement="Planned: exporting many conversations at once.",
        tests=(
            f"{_ARCHIVES}test_export_contains_every_conversation_and_a_manifest",
            f"{_ARCHIVES}test_large_library_is_exported_and_imported_over_a_socket",
        ),
    ),
    Promise(
        id="agentkit.planned.analytics",
        statement="Planned: analytics of tools and response times.",
        not_offered="Nothing of the kind exists for conversations. `/metrics` has calls and times of the server.",
    ),
    Promise(
        id="agentkit.planned.archive",
        statement="Planned: a separate storage for old conversations.",
        not_offered="Nothing of the kind exists; conversations stay searchable.",
    ),
    Promise(
        id="agentkit.planned.import",
        statement="Planned: import from external sources.",
        tests=(
            f"{_ARCHIVES}test_agentkits_own_export_files_can_be_imported",
            f"{_ARCHIVES}test_export_after_import_has_the_same_bytes",
            f"{_AGENTKIT}test_database_of_agentkit_is_imported_with_its_ids",
        ),
    ),
    # Users and documentation
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
            "AgentKit's server has a single user without authentication. Here the credential identifies the "
            "user; reading and writing need their scopes."
        ),
    ),
    Promise(
        id="agentkit.docs",
        statement="The running server documents the whole API at `/docs`.",
        tests=(
            f"{_OPENAPI}test_the_document_contains_exactly_the_operations",
            f"{_OPENAPI}test_the_reference_page_shows_all_operations_and_schemas_and_loads_no_foreign_resource",
        ),
    ),
)
