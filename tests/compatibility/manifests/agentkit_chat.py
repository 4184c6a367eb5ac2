"""Promises of AgentKit's chat, which saves every turn as part of a conversation."""

from tests.compatibility.manifest import Promise

_CHAT = "tests/server/compat/agentkit/chat/test_service.py::"
_RELAY = "tests/server/compat/agentkit/chat/test_relay.py::"
_STREAMS = "tests/server/compat/agentkit/chat/test_streams.py::"
_EXTRACTIVE = "tests/server/compat/agentkit/chat/test_extractive.py::"

PROMISES: tuple[Promise, ...] = (
    Promise(
        id="agentkit.chat.saved",
        statement="Every chat is saved automatically: the user's message and the answer, two messages per call.",
        tests=(
            f"{_CHAT}test_both_turns_are_stored_with_model_tool_and_citations",
            f"{_CHAT}test_turn_of_a_model_is_stored",
        ),
        difference=(
            "Chats through OpenAI's API (`/v1/chat/completions`) are saved too. A key without the write scope is "
            "rejected instead of answered without saving."
        ),
    ),
    Promise(
        id="agentkit.chat.saved-details",
        statement="The answer is saved with its model and tool.",
        tests=(f"{_CHAT}test_both_turns_are_stored_with_model_tool_and_citations",),
        difference=(
            "Its citations are saved as well. The model is the one that answered, not the one that was requested."
        ),
    ),
    Promise(
        id="agentkit.chat.session",
        statement="All chats of a session form one conversation, created by the first.",
        tests=(
            f"{_CHAT}test_session_has_one_conversation_that_keeps_its_namespace",
            f"{_CHAT}test_two_users_with_the_same_session_id_have_separate_conversations",
        ),
    ),
    Promise(
        id="agentkit.chat.default-session",
        statement="Without a session id, chats belong to the session `default`.",
        tests=(f"{_CHAT}test_session_defaults_to_default",),
        difference="Each user has a separate session `default`.",
    ),
    Promise(
        id="agentkit.chat.namespace",
        statement="The first message of a session sets the namespace of its conversation; the default is `default`.",
        tests=(f"{_CHAT}test_session_has_one_conversation_that_keeps_its_namespace",),
    ),
    Promise(
        id="agentkit.chat.title",
        statement="The title is the first 50 characters of the first message, followed by `...` if it is longer.",
        tests=(f"{_CHAT}test_title_is_the_first_50_characters_of_the_first_message",),
    ),
    Promise(
        id="agentkit.chat.form",
        statement="`POST /chat` takes a form: message, model, history, files, namespace, session_id, search_mode.",
        tests=(
            f"{_CHAT}test_answer_without_a_model_has_the_documented_shape",
            f"{_CHAT}test_model_receives_passages_history_and_message",
            f"{_CHAT}test_json_body_is_rejected_with_415",
        ),
    ),
    Promise(
        id="agentkit.chat.limits",
        statement=(
            "Each field has limits; a value outside them returns 422 with its location. Message and model are required."
        ),
        tests=(
            f"{_CHAT}test_invalid_field_is_rejected_with_422_and_its_location",
            f"{_CHAT}test_message_and_model_are_required",
        ),
        difference="A history that is not valid JSON is rejected; AgentKit treated it as empty.",
    ),
    Promise(
        id="agentkit.chat.answer",
        statement="The response has answer, tool_used, tool_output, model, context, summary and conversation_id.",
        tests=(f"{_CHAT}test_answer_without_a_model_has_the_documented_shape",),
        difference="It also has `citations`, and `notice` if something was ignored or not stored.",
    ),
    Promise(
        id="agentkit.chat.model",
        statement="The requested model answers.",
        tests=(
            f"{_CHAT}test_model_receives_passages_history_and_message",
            f"{_CHAT}test_configured_model_overrides_the_callers",
            f"{_CHAT}test_answer_without_a_model_has_the_documented_shape",
            f"{_CHAT}test_upstream_failure_is_reported_and_not_stored",
        ),
        difference=(
            "Models are those of an OpenAI-compatible API that the operator configures. Without one, the answer "
            "is the best passages of the caller's library, and `model` is `extractive`. A failing model is an "
            "error with a status, not an answer that begins with `Error`."
        ),
    ),
    Promise(
        id="agentkit.chat.search-mode",
        statement="`search_mode` is auto, web, documents or hybrid.",
        tests=(f"{_CHAT}test_web_search_mode_returns_a_notice",),
        difference="Every mode searches the caller's library: web search is not available, and `notice` says so.",
    ),
    Promise(
        id="agentkit.chat.files",
        statement="Files that are attached to a message are used for its answer.",
        tests=(
            f"{_CHAT}test_text_file_is_returned_as_context_and_stored_as_attachment",
            f"{_CHAT}test_model_receives_files_marked_when_truncated",
            f"{_CHAT}test_binary_file_is_rejected_by_name",
            f"{_CHAT}test_body_over_the_limit_is_rejected_with_413",
        ),
        difference=(
            "Only text files, and only for this turn. They are not stored; the message keeps their names and sizes."
        ),
    ),
    Promise(
        id="agentkit.chat.completions",
        statement=(
            "Each turn that is sent to a model through this server is saved once, even if the client disconnects."
        ),
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
        statement="Chats are rate limited.",
        tests=(f"{_CHAT}test_chat_has_its_own_rate_limit",),
        difference=(
            "The limits are per user, as for every other tool; AgentKit allowed ten per minute for each address."
        ),
    ),
    Promise(
        id="agentkit.chat.models",
        statement="`GET /models` returns `available_models` and `default_model`.",
        tests=(
            f"{_RELAY}test_models_have_agentkits_shape_at_its_path",
            f"{_EXTRACTIVE}test_only_model_is_extractive",
        ),
        difference="The models are those of the operator's upstream API; without one, the only model is `extractive`.",
    ),
)
