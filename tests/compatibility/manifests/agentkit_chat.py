"""What "Conversation Persistence" promises of the chat that fills its conversations: every turn is saved by itself."""

from tests.compatibility.manifest import Promise

_CHAT = "tests/server/compat/agentkit/chat/test_service.py::"
_RELAY = "tests/server/compat/agentkit/chat/test_relay.py::"
_STREAMS = "tests/server/compat/agentkit/chat/test_streams.py::"
_EXTRACTIVE = "tests/server/compat/agentkit/chat/test_extractive.py::"

PROMISES: tuple[Promise, ...] = (
    Promise(
        id="agentkit.chat.saved",
        says="Every chat is saved without being asked: the user's message and the answer, two messages for each call.",
        tests=(
            f"{_CHAT}test_both_turns_are_stored_with_model_tool_and_citations",
            f"{_CHAT}test_turn_of_a_model_is_stored",
        ),
        differs=(
            "Chats through OpenAI's API (`/v1/chat/completions`) are saved too. A key that may only read is refused "
            "instead of answered without saving."
        ),
    ),
    Promise(
        id="agentkit.chat.saved-details",
        says="The answer is saved with the model and the tool it came from.",
        tests=(f"{_CHAT}test_both_turns_are_stored_with_model_tool_and_citations",),
        differs="With its citations as well. The model is the one that answered, not the one that was asked for.",
    ),
    Promise(
        id="agentkit.chat.session",
        says="Chats of one session are one conversation, which is begun by the first.",
        tests=(
            f"{_CHAT}test_session_has_one_conversation_that_keeps_its_namespace",
            f"{_CHAT}test_two_users_with_the_same_session_id_have_separate_conversations",
        ),
    ),
    Promise(
        id="agentkit.chat.default-session",
        says="Without a session everything is said in the session `default`.",
        tests=(f"{_CHAT}test_session_defaults_to_default",),
        differs="Each user has a session `default` of their own.",
    ),
    Promise(
        id="agentkit.chat.namespace",
        says="The first message of a session decides the namespace of its conversation; the default is `default`.",
        tests=(f"{_CHAT}test_session_has_one_conversation_that_keeps_its_namespace",),
    ),
    Promise(
        id="agentkit.chat.title",
        says="A conversation is called by the first 50 characters of its first message, with `...` if there are more.",
        tests=(f"{_CHAT}test_title_is_the_first_50_characters_of_the_first_message",),
    ),
    Promise(
        id="agentkit.chat.form",
        says="`POST /chat` takes a form: message, model, history, files, namespace, session_id, search_mode.",
        tests=(
            f"{_CHAT}test_answer_without_a_model_has_the_documented_shape",
            f"{_CHAT}test_model_receives_passages_history_and_message",
            f"{_CHAT}test_json_body_is_rejected_with_415",
        ),
    ),
    Promise(
        id="agentkit.chat.limits",
        says="Each field has its bounds, and what is out of them is 422 with its place; message and model are needed.",
        tests=(
            f"{_CHAT}test_invalid_field_is_rejected_with_422_and_its_location",
            f"{_CHAT}test_message_and_model_are_required",
        ),
        differs="A history that is no JSON is refused; there it was read as an empty one.",
    ),
    Promise(
        id="agentkit.chat.answer",
        says="It answers answer, tool_used, tool_output, model, context, summary and conversation_id.",
        tests=(f"{_CHAT}test_answer_without_a_model_has_the_documented_shape",),
        differs="And `citations`, and `notice` where something is not as one might expect.",
    ),
    Promise(
        id="agentkit.chat.model",
        says="The model that is named answers.",
        tests=(
            f"{_CHAT}test_model_receives_passages_history_and_message",
            f"{_CHAT}test_configured_model_overrides_the_callers",
            f"{_CHAT}test_answer_without_a_model_has_the_documented_shape",
            f"{_CHAT}test_upstream_failure_is_reported_and_not_stored",
        ),
        differs=(
            "Models are those of an OpenAI-compatible API that the operator names. Where none is named the best "
            "passages of the caller's library are the answer, and `model` is `extractive`. A model that fails is an "
            "error with its status; there it was an answer that began with `Error`."
        ),
    ),
    Promise(
        id="agentkit.chat.search-mode",
        says="search_mode is auto, web, documents or hybrid.",
        tests=(f"{_CHAT}test_web_search_mode_returns_a_notice",),
        differs="Each of them searches the caller's library: there is no web search, and `notice` says so.",
    ),
    Promise(
        id="agentkit.chat.files",
        says="Files that come with a message are read for its answer.",
        tests=(
            f"{_CHAT}test_text_file_is_returned_as_context_and_stored_as_attachment",
            f"{_CHAT}test_model_receives_files_marked_when_truncated",
            f"{_CHAT}test_binary_file_is_rejected_by_name",
            f"{_CHAT}test_body_over_the_limit_is_rejected_with_413",
        ),
        differs="Text files only, for this turn only. They are not stored; the message keeps their names and sizes.",
    ),
    Promise(
        id="agentkit.chat.completions",
        says="What is said to a model through this server is saved once, also when the client leaves in the middle.",
        tests=(
            f"{_RELAY}test_turn_is_stored_with_model_and_both_messages",
            f"{_RELAY}test_streamed_response_is_relayed_and_stored",
            f"{_STREAMS}test_client_disconnect_stops_the_upstream_and_stores_the_partial_turn",
            f"{_STREAMS}test_retry_after_a_disconnect_stores_one_turn_with_the_whole_answer",
            f"{_EXTRACTIVE}test_both_turns_are_stored_with_tool_and_citations",
        ),
    ),
    Promise(
        id="agentkit.chat.rate",
        says="Chats are limited in their rate.",
        tests=(f"{_CHAT}test_chat_has_its_own_rate_limit",),
        differs="By user, with the rates of every other tool; there it was ten a minute for each address.",
    ),
)
