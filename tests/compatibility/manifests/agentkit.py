"""What "Conversation Persistence" promises of its conversations API, save for the chat that fills it."""

from tests.compatibility.manifest import Promise

_READING = "tests/server/compat/agentkit/test_conversations.py::"
_RECORDING = "tests/server/compat/agentkit/test_recording.py::"
_ARCHIVES = "tests/server/compat/agentkit/test_archives.py::"
_NAMESPACES = "tests/server/compat/agentkit/test_namespaces.py::"
_DOCUMENT = "tests/server/rest/test_openapi.py::"

PROMISES: tuple[Promise, ...] = (
    # -- what is kept
    Promise(
        id="agentkit.kept.conversation",
        says="A conversation has id, session, title, namespace, both times, a count of messages and metadata.",
        tests=(
            f"{_RECORDING}test_created_conversation_stores_all_fields",
            f"{_READING}test_list_has_the_documented_shape",
        ),
    ),
    Promise(
        id="agentkit.kept.message",
        says="A message has role, content, model, tool, attachments, citations and time.",
        tests=(f"{_RECORDING}test_added_message_stores_all_fields",),
    ),
    Promise(
        id="agentkit.kept.order",
        says="Messages come back in the order in which they were written.",
        tests=(f"{_RECORDING}test_many_messages_are_stored_in_order",),
    ),
    Promise(
        id="agentkit.kept.session",
        says="A session has one conversation.",
        tests=(f"{_RECORDING}test_session_has_one_conversation_per_user",),
        differs=(
            "Sessions are told apart by user: two users may have sessions of the same name. A conversation that no "
            "session began has the empty text as its `session_id`."
        ),
    ),
    Promise(
        id="agentkit.kept.title",
        says="A conversation is called by the first 50 characters of its first message, with `...` if there are more.",
        tests=(
            f"{_RECORDING}test_title_defaults_to_the_beginning_of_the_first_user_message",
            f"{_RECORDING}test_explicit_title_is_not_replaced",
        ),
    ),
    Promise(
        id="agentkit.kept.restart",
        says="Conversations are there after a restart.",
        tests=(f"{_RECORDING}test_recorded_conversation_survives_a_restart",),
        differs=(
            "There is no `uploads/conversations.db`: conversations are the chats of their user's library, in the "
            "user's own file, and are found by every other tool."
        ),
    ),
    Promise(
        id="agentkit.kept.times",
        says="Times are ISO 8601 in UTC with microseconds and `+00:00`.",
        tests=(
            f"{_READING}test_list_has_the_documented_shape",
            f"{_RECORDING}test_added_message_stores_all_fields",
        ),
        differs="Times are kept to the millisecond: the last three digits are 0.",
    ),
    Promise(
        id="agentkit.kept.recording",
        says="Clients that hold the conversation themselves can save it, message by message or many at once.",
        tests=(
            f"{_RECORDING}test_added_message_stores_all_fields",
            f"{_RECORDING}test_many_messages_are_stored_in_order",
            f"{_RECORDING}test_bulk_messages_are_stored_all_or_none",
            f"{_RECORDING}test_repeated_write_with_the_same_key_is_stored_once",
            f"{_RECORDING}test_recorded_conversation_is_found_by_the_tools",
        ),
        differs="An addition: in the seed this is a Python module beside the server; here it is three operations.",
    ),
    # -- list
    Promise(
        id="agentkit.list.shape",
        says="The list answers conversations, total, limit and offset.",
        tests=(f"{_READING}test_list_has_the_documented_shape",),
    ),
    Promise(
        id="agentkit.list.pages",
        says="limit (default 50) and offset page through the list, that last changed first.",
        tests=(
            f"{_READING}test_list_is_paged_newest_first_with_the_exact_total",
            f"{_READING}test_default_page_has_fifty_conversations",
        ),
    ),
    Promise(
        id="agentkit.list.total",
        says="total is the number of conversations.",
        tests=(f"{_READING}test_list_is_paged_newest_first_with_the_exact_total",),
        differs=(
            "The seed's server counts the rows of the page, so that nobody can page by it; ours counts all that pass "
            "the filters."
        ),
    ),
    Promise(
        id="agentkit.list.bounds",
        says="limit says how many conversations are answered.",
        tests=(f"{_READING}test_limit_and_offset_are_clamped_and_returned",),
        differs=(
            "It is moved into 1 to `conversation_page_max`, and the answer tells what was applied; in the seed's "
            "server -1 meant all."
        ),
    ),
    Promise(
        id="agentkit.list.namespace",
        says="namespace narrows the list to one.",
        tests=(f"{_READING}test_list_can_be_filtered_by_namespace",),
    ),
    Promise(
        id="agentkit.list.search",
        says="search narrows the list to titles and ids that hold it.",
        tests=(f"{_READING}test_list_can_be_filtered_by_part_of_title_or_id",),
        differs="Case does not matter in any script, and `%` and `_` are characters like others.",
    ),
    # -- one conversation
    Promise(
        id="agentkit.detail.shape",
        says="A conversation is answered with all its messages, oldest first.",
        tests=(
            f"{_READING}test_conversation_has_the_documented_shape_with_messages_oldest_first",
            f"{_READING}test_message_has_is_canonical_and_parent_id",
        ),
        differs=(
            "A message also has `is_canonical` and `parent_id`: in imported chats answers were regenerated, which the "
            "seed does not know. Such branches follow the path that they left, whenever they were written."
        ),
    ),
    Promise(
        id="agentkit.detail.long",
        says="The history is loaded whole.",
        tests=(
            f"{_READING}test_long_conversation_can_be_read_in_parts",
            f"{_READING}test_response_size_is_limited_but_has_at_least_one_message",
            f"{_READING}test_deleted_messages_leave_no_gap",
        ),
        differs=(
            "Up to `conversation_messages_max` messages and `conversation_response_max_bytes`; beyond that "
            "`next_messages_offset` is in the answer, to be passed as `messages_offset`."
        ),
    ),
    Promise(
        id="agentkit.detail.absent",
        says="A conversation that is not there is 404, `Conversation not found`.",
        tests=(f"{_READING}test_missing_conversation_is_not_found",),
    ),
    Promise(
        id="agentkit.rename",
        says="A conversation gets another title, and the answer is success and its id.",
        tests=(
            f"{_READING}test_conversation_can_be_renamed",
            f"{_READING}test_renaming_without_a_title_only_changes_the_modification_time",
        ),
    ),
    Promise(
        id="agentkit.delete",
        says="A conversation is deleted, and the answer is success and its id.",
        tests=(
            f"{_READING}test_deleted_conversation_is_found_nowhere",
            f"{_READING}test_deleted_conversation_can_be_purged_once_by_its_owner",
        ),
        differs=(
            "Its messages go with it: the seed's server left them behind and found them still. With `purge=true` "
            "nothing of it stays in the files either."
        ),
    ),
    # -- search
    Promise(
        id="agentkit.search.shape",
        says="A search of messages answers messages and total.",
        tests=(f"{_READING}test_search_results_have_the_documented_shape",),
        differs=(
            "total counts the messages of the answer, as the seed's server does; `has_more` says whether there are "
            "others, `is_complete` whether all were looked at."
        ),
    ),
    Promise(
        id="agentkit.search.text",
        says="Messages are found by a part of their text, newest first; the empty text finds all.",
        tests=(
            f"{_READING}test_messages_are_found_by_part_of_their_text_newest_first",
            f"{_READING}test_title_is_not_searched_as_a_message",
        ),
        differs="Case does not matter in any script, and `%` and `_` are characters like others.",
    ),
    Promise(
        id="agentkit.search.required",
        says="query is required.",
        tests=(f"{_READING}test_invalid_input_is_rejected_with_fastapis_422",),
    ),
    Promise(
        id="agentkit.search.narrowed",
        says="conversation_id and limit (default 50) narrow the search.",
        tests=(f"{_READING}test_search_can_be_restricted_to_a_conversation_and_a_limit",),
    ),
    # -- export
    Promise(
        id="agentkit.export.json",
        says="Exported as JSON a conversation is whole, with all metadata.",
        tests=(
            f"{_READING}test_json_export_is_the_whole_conversation",
            f"{_READING}test_export_of_many_pages_is_complete",
        ),
    ),
    Promise(
        id="agentkit.export.txt",
        says="Exported as text it is content and format, in the documented form.",
        tests=(f"{_READING}test_text_export_has_the_documented_format",),
    ),
    Promise(
        id="agentkit.export.md",
        says="Exported as Markdown it is content and format, with a heading for each message.",
        tests=(f"{_READING}test_markdown_export_has_the_documented_format",),
        differs="The headings are 👤 and 🤖, as the seed's server writes them; its document shows them garbled.",
    ),
    Promise(
        id="agentkit.export.format",
        says="format is json, txt or md; anything else is 400.",
        tests=(
            f"{_READING}test_unsupported_export_format_is_rejected",
            f"{_READING}test_json_export_is_the_whole_conversation",
        ),
        differs="It may be left out, as in the seed's server, and is json then; the document calls it required.",
    ),
    Promise(
        id="agentkit.export.bulk",
        says="All conversations can be exported at once, and imported from elsewhere.",
        tests=(
            f"{_ARCHIVES}test_export_contains_every_conversation_and_a_manifest",
            f"{_ARCHIVES}test_export_after_import_has_the_same_bytes",
            f"{_ARCHIVES}test_large_library_is_exported_and_imported_over_a_socket",
            f"{_ARCHIVES}test_import_restores_a_deleted_conversation",
            f"{_ARCHIVES}test_repeated_import_changes_nothing",
            f"{_ARCHIVES}test_agentkits_own_export_files_can_be_imported",
        ),
        differs="The seed wishes for it; here it is, as a zip that is streamed both ways.",
    ),
    # -- namespaces
    Promise(
        id="agentkit.namespaces.isolation",
        says="Conversations are tied to namespaces, `default` unless another is named.",
        tests=(
            f"{_READING}test_list_can_be_filtered_by_namespace",
            f"{_NAMESPACES}test_default_namespace_always_exists",
        ),
    ),
    Promise(
        id="agentkit.namespaces.manage",
        says="Namespaces are listed, made, renamed and deleted; the default one is not, and no name is given twice.",
        tests=(
            f"{_NAMESPACES}test_namespace_is_created_by_name_or_by_its_first_conversation",
            f"{_NAMESPACES}test_name_can_be_sent_as_json",
            f"{_NAMESPACES}test_renamed_namespace_keeps_its_conversations",
            f"{_NAMESPACES}test_conversations_of_a_deleted_namespace_move_to_the_default",
            f"{_NAMESPACES}test_invalid_namespace_operations_are_rejected",
        ),
        differs=(
            "The conversations of a deleted namespace are kept, in the default one. Documents have no namespaces here: "
            "`document_count` is 0, and there is no `/namespaces/{name}/documents`. A name may also be sent as JSON."
        ),
    ),
    # -- refusals
    Promise(
        id="agentkit.errors.envelope",
        says="Refusals have success, error (code, message, details, timestamp, retry_after) and request_id.",
        tests=(
            f"{_READING}test_error_has_agentkits_envelope_and_a_detail",
            f"{_READING}test_rate_limit_error_says_when_to_retry",
        ),
        differs="`detail` stands beside them, for the clients that were written for the server's earlier form.",
    ),
    Promise(
        id="agentkit.errors.unreadable",
        says="A request that cannot be read is 422, with FastAPI's list as its detail.",
        tests=(f"{_READING}test_invalid_input_is_rejected_with_fastapis_422",),
        differs="The envelope stands beside the list.",
    ),
    # -- whose
    Promise(
        id="agentkit.users",
        says="Users save, find and export their own chat history.",
        tests=(
            f"{_READING}test_conversation_of_another_user_looks_nonexistent",
            f"{_READING}test_users_do_not_list_count_or_find_each_others_messages",
            f"{_READING}test_missing_credential_is_rejected_with_401",
            f"{_READING}test_read_only_key_cannot_write",
            f"{_RECORDING}test_message_cannot_be_added_to_another_users_conversation",
            f"{_ARCHIVES}test_imported_conversations_belong_to_the_importing_user",
            f"{_NAMESPACES}test_namespaces_of_another_user_cannot_be_changed_and_do_not_conflict",
        ),
        differs=(
            "The seed's server has one user and asks nobody who they are. Here a credential decides, reading needs "
            "`knowledge:read` and writing `knowledge:write`."
        ),
    ),
    Promise(
        id="agentkit.docs",
        says="The whole API is documented where the server runs.",
        tests=(
            f"{_DOCUMENT}test_every_operation_is_in_the_document_and_nothing_else",
            f"{_DOCUMENT}test_the_reference_page_shows_every_operation_value_and_shape_and_loads_nothing_foreign",
        ),
    ),
)
