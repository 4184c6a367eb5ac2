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
            f"{_RECORDING}test_a_conversation_is_begun_with_all_that_is_said_of_it",
            f"{_READING}test_a_list_has_the_documented_shape",
        ),
    ),
    Promise(
        id="agentkit.kept.message",
        says="A message has role, content, model, tool, attachments, citations and time.",
        tests=(f"{_RECORDING}test_a_message_is_kept_with_all_that_is_said_of_it",),
    ),
    Promise(
        id="agentkit.kept.order",
        says="Messages come back in the order in which they were written.",
        tests=(f"{_RECORDING}test_many_messages_are_kept_in_their_order",),
    ),
    Promise(
        id="agentkit.kept.session",
        says="A session has one conversation.",
        tests=(f"{_RECORDING}test_one_session_has_one_conversation_of_each_user",),
        differs=(
            "Sessions are told apart by user: two users may have sessions of the same name. A conversation that no "
            "session began has the empty text as its `session_id`."
        ),
    ),
    Promise(
        id="agentkit.kept.title",
        says="A conversation is called by the first 50 characters of its first message, with `...` if there are more.",
        tests=(
            f"{_RECORDING}test_a_conversation_is_called_by_the_beginning_of_its_first_message",
            f"{_RECORDING}test_a_title_that_was_given_stays",
        ),
    ),
    Promise(
        id="agentkit.kept.restart",
        says="Conversations are there after a restart.",
        tests=(f"{_RECORDING}test_what_is_recorded_is_there_after_a_restart",),
        differs=(
            "There is no `uploads/conversations.db`: conversations are the chats of their user's library, in the "
            "user's own file, and are found by every other tool."
        ),
    ),
    Promise(
        id="agentkit.kept.times",
        says="Times are ISO 8601 in UTC with microseconds and `+00:00`.",
        tests=(
            f"{_READING}test_a_list_has_the_documented_shape",
            f"{_RECORDING}test_a_message_is_kept_with_all_that_is_said_of_it",
        ),
        differs="Times are kept to the millisecond: the last three digits are 0.",
    ),
    Promise(
        id="agentkit.kept.recording",
        says="Clients that hold the conversation themselves can save it, message by message or many at once.",
        tests=(
            f"{_RECORDING}test_a_message_is_kept_with_all_that_is_said_of_it",
            f"{_RECORDING}test_many_messages_are_kept_in_their_order",
            f"{_RECORDING}test_of_many_messages_all_are_kept_or_none",
            f"{_RECORDING}test_what_is_sent_twice_under_one_key_is_kept_once",
            f"{_RECORDING}test_what_is_recorded_is_found_by_the_tools",
        ),
        differs="An addition: in the seed this is a Python module beside the server; here it is three operations.",
    ),
    # -- list
    Promise(
        id="agentkit.list.shape",
        says="The list answers conversations, total, limit and offset.",
        tests=(f"{_READING}test_a_list_has_the_documented_shape",),
    ),
    Promise(
        id="agentkit.list.pages",
        says="limit (default 50) and offset page through the list, that last changed first.",
        tests=(
            f"{_READING}test_a_list_is_paged_newest_first_and_tells_the_true_total",
            f"{_READING}test_fifty_conversations_are_a_page_unless_another_limit_is_asked_for",
        ),
    ),
    Promise(
        id="agentkit.list.total",
        says="total is the number of conversations.",
        tests=(f"{_READING}test_a_list_is_paged_newest_first_and_tells_the_true_total",),
        differs=(
            "The seed's server counts the rows of the page, so that nobody can page by it; ours counts all that pass "
            "the filters."
        ),
    ),
    Promise(
        id="agentkit.list.bounds",
        says="limit says how many conversations are answered.",
        tests=(f"{_READING}test_limits_and_offsets_are_moved_into_what_is_allowed_and_told",),
        differs=(
            "It is moved into 1 to `conversation_page_max`, and the answer tells what was applied; in the seed's "
            "server -1 meant all."
        ),
    ),
    Promise(
        id="agentkit.list.namespace",
        says="namespace narrows the list to one.",
        tests=(f"{_READING}test_a_list_is_narrowed_by_namespace",),
    ),
    Promise(
        id="agentkit.list.search",
        says="search narrows the list to titles and ids that hold it.",
        tests=(f"{_READING}test_a_list_is_narrowed_by_a_part_of_title_or_id",),
        differs="Case does not matter in any script, and `%` and `_` are characters like others.",
    ),
    # -- one conversation
    Promise(
        id="agentkit.detail.shape",
        says="A conversation is answered with all its messages, oldest first.",
        tests=(
            f"{_READING}test_a_conversation_has_the_documented_shape_with_its_messages_oldest_first",
            f"{_READING}test_a_message_says_whether_it_is_on_the_path_and_what_it_answers",
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
            f"{_READING}test_a_long_conversation_is_read_on_where_the_answer_ended",
            f"{_READING}test_an_answer_ends_before_its_text_grows_too_large_but_never_before_one_message",
            f"{_READING}test_deleted_messages_leave_no_hole_in_what_is_read",
        ),
        differs=(
            "Up to `conversation_messages_max` messages and `conversation_response_max_bytes`; beyond that "
            "`next_messages_offset` is in the answer, to be passed as `messages_offset`."
        ),
    ),
    Promise(
        id="agentkit.detail.absent",
        says="A conversation that is not there is 404, `Conversation not found`.",
        tests=(f"{_READING}test_a_conversation_that_is_not_there_is_not_found",),
    ),
    Promise(
        id="agentkit.rename",
        says="A conversation gets another title, and the answer is success and its id.",
        tests=(
            f"{_READING}test_a_conversation_is_renamed",
            f"{_READING}test_renaming_without_a_title_keeps_it_and_counts_as_a_change",
        ),
    ),
    Promise(
        id="agentkit.delete",
        says="A conversation is deleted, and the answer is success and its id.",
        tests=(
            f"{_READING}test_what_was_deleted_is_found_nowhere",
            f"{_READING}test_what_was_deleted_can_still_be_purged_once_and_by_nobody_else",
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
        tests=(f"{_READING}test_found_messages_have_the_documented_shape",),
        differs=(
            "total counts the messages of the answer, as the seed's server does; `has_more` says whether there are "
            "others, `is_complete` whether all were looked at."
        ),
    ),
    Promise(
        id="agentkit.search.text",
        says="Messages are found by a part of their text, newest first; the empty text finds all.",
        tests=(
            f"{_READING}test_messages_are_found_by_a_part_of_their_text_newest_first",
            f"{_READING}test_a_title_is_no_message",
        ),
        differs="Case does not matter in any script, and `%` and `_` are characters like others.",
    ),
    Promise(
        id="agentkit.search.required",
        says="query is required.",
        tests=(f"{_READING}test_an_input_that_cannot_be_read_is_refused_as_fastapi_does",),
    ),
    Promise(
        id="agentkit.search.narrowed",
        says="conversation_id and limit (default 50) narrow the search.",
        tests=(f"{_READING}test_a_search_is_kept_to_one_conversation_and_to_a_limit",),
    ),
    # -- export
    Promise(
        id="agentkit.export.json",
        says="Exported as JSON a conversation is whole, with all metadata.",
        tests=(
            f"{_READING}test_an_export_as_json_is_the_whole_conversation",
            f"{_READING}test_an_export_of_many_pages_is_whole",
        ),
    ),
    Promise(
        id="agentkit.export.txt",
        says="Exported as text it is content and format, in the documented form.",
        tests=(f"{_READING}test_an_export_as_text_is_as_documented",),
    ),
    Promise(
        id="agentkit.export.md",
        says="Exported as Markdown it is content and format, with a heading for each message.",
        tests=(f"{_READING}test_an_export_as_markdown_is_as_documented",),
        differs="The headings are 👤 and 🤖, as the seed's server writes them; its document shows them garbled.",
    ),
    Promise(
        id="agentkit.export.format",
        says="format is json, txt or md; anything else is 400.",
        tests=(
            f"{_READING}test_any_other_format_is_refused",
            f"{_READING}test_an_export_as_json_is_the_whole_conversation",
        ),
        differs="It may be left out, as in the seed's server, and is json then; the document calls it required.",
    ),
    Promise(
        id="agentkit.export.bulk",
        says="All conversations can be exported at once, and imported from elsewhere.",
        tests=(
            f"{_ARCHIVES}test_an_export_holds_every_conversation_as_a_file_and_a_manifest",
            f"{_ARCHIVES}test_what_was_exported_and_imported_is_exported_with_the_same_bytes",
            f"{_ARCHIVES}test_a_large_library_is_streamed_out_and_in_over_a_socket",
            f"{_ARCHIVES}test_what_was_deleted_comes_back_by_an_import",
            f"{_ARCHIVES}test_importing_again_changes_nothing",
            f"{_ARCHIVES}test_files_that_another_program_wrote_are_imported_too",
        ),
        differs="The seed wishes for it; here it is, as a zip that is streamed both ways.",
    ),
    # -- namespaces
    Promise(
        id="agentkit.namespaces.isolation",
        says="Conversations are tied to namespaces, `default` unless another is named.",
        tests=(
            f"{_READING}test_a_list_is_narrowed_by_namespace",
            f"{_NAMESPACES}test_the_default_namespace_is_always_there",
        ),
    ),
    Promise(
        id="agentkit.namespaces.manage",
        says="Namespaces are listed, made, renamed and deleted; the default one is not, and no name is given twice.",
        tests=(
            f"{_NAMESPACES}test_namespaces_are_made_by_name_or_by_a_conversation_in_them",
            f"{_NAMESPACES}test_a_name_may_be_sent_as_json_like_everything_else",
            f"{_NAMESPACES}test_a_renamed_namespace_keeps_its_conversations",
            f"{_NAMESPACES}test_the_conversations_of_a_deleted_namespace_move_to_the_default_one",
            f"{_NAMESPACES}test_what_cannot_be_done_to_a_namespace_is_refused",
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
            f"{_READING}test_a_refusal_is_in_the_known_envelope_with_a_detail_beside_it",
            f"{_READING}test_a_rate_that_is_used_up_says_when_to_come_back",
        ),
        differs="`detail` stands beside them, for the clients that were written for the server's earlier form.",
    ),
    Promise(
        id="agentkit.errors.unreadable",
        says="A request that cannot be read is 422, with FastAPI's list as its detail.",
        tests=(f"{_READING}test_an_input_that_cannot_be_read_is_refused_as_fastapi_does",),
        differs="The envelope stands beside the list.",
    ),
    # -- whose
    Promise(
        id="agentkit.users",
        says="Users save, find and export their own chat history.",
        tests=(
            f"{_READING}test_a_conversation_of_another_is_as_one_that_does_not_exist",
            f"{_READING}test_neither_of_two_users_lists_counts_or_finds_what_the_other_said",
            f"{_READING}test_without_a_credential_nothing_is_told",
            f"{_READING}test_a_key_that_may_only_read_changes_nothing",
            f"{_RECORDING}test_nobody_speaks_in_a_conversation_of_another",
            f"{_ARCHIVES}test_what_is_imported_belongs_to_who_imports_it",
            f"{_NAMESPACES}test_namespaces_of_another_are_neither_renamed_nor_deleted_nor_in_the_way",
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
