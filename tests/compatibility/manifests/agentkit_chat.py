"""What "Conversation Persistence" promises of the chat that fills its conversations: every turn is saved by itself."""

from tests.compatibility.manifest import Promise

_CHAT = "tests/server/compat/agentkit/chat/test_chat.py::"
_RELAY = "tests/server/compat/agentkit/chat/test_relay.py::"
_STREAMS = "tests/server/compat/agentkit/chat/test_streams.py::"
_EXTRACTIVE = "tests/server/compat/agentkit/chat/test_extractive.py::"

PROMISES: tuple[Promise, ...] = (
    Promise(
        id="agentkit.chat.saved",
        says="Every chat is saved without being asked: the user's message and the answer, two messages for each call.",
        tests=(
            f"{_CHAT}test_both_turns_are_kept_with_model_tool_and_citations",
            f"{_CHAT}test_a_models_turn_is_kept_like_any_other",
        ),
        differs=(
            "Chats through OpenAI's API (`/v1/chat/completions`) are saved too. A key that may only read is refused "
            "instead of answered without saving."
        ),
    ),
    Promise(
        id="agentkit.chat.saved-details",
        says="The answer is saved with the model and the tool it came from.",
        tests=(f"{_CHAT}test_both_turns_are_kept_with_model_tool_and_citations",),
        differs="With its citations as well. The model is the one that answered, not the one that was asked for.",
    ),
    Promise(
        id="agentkit.chat.session",
        says="Chats of one session are one conversation, which is begun by the first.",
        tests=(
            f"{_CHAT}test_a_session_is_one_conversation_that_keeps_its_namespace",
            f"{_CHAT}test_two_users_with_one_session_id_have_a_conversation_each",
        ),
    ),
    Promise(
        id="agentkit.chat.default-session",
        says="Without a session everything is said in the session `default`.",
        tests=(f"{_CHAT}test_without_a_session_everything_is_said_in_the_session_default",),
        differs="Each user has a session `default` of their own.",
    ),
    Promise(
        id="agentkit.chat.namespace",
        says="The first message of a session decides the namespace of its conversation; the default is `default`.",
        tests=(f"{_CHAT}test_a_session_is_one_conversation_that_keeps_its_namespace",),
    ),
    Promise(
        id="agentkit.chat.title",
        says="A conversation is called by the first 50 characters of its first message, with `...` if there are more.",
        tests=(f"{_CHAT}test_a_title_is_the_first_50_characters_of_the_first_message",),
    ),
    Promise(
        id="agentkit.chat.form",
        says="`POST /chat` takes a form: message, model, history, files, namespace, session_id, search_mode.",
        tests=(
            f"{_CHAT}test_without_a_model_the_library_answers_in_the_documented_shape",
            f"{_CHAT}test_a_model_is_asked_with_passages_history_and_files",
            f"{_CHAT}test_json_is_no_form",
        ),
    ),
    Promise(
        id="agentkit.chat.limits",
        says="Each field has its bounds, and what is out of them is 422 with its place; message and model are needed.",
        tests=(
            f"{_CHAT}test_a_value_out_of_bounds_is_422_with_its_place",
            f"{_CHAT}test_message_and_model_are_needed",
        ),
        differs="A history that is no JSON is refused; there it was read as an empty one.",
    ),
    Promise(
        id="agentkit.chat.answer",
        says="It answers answer, tool_used, tool_output, model, context, summary and conversation_id.",
        tests=(f"{_CHAT}test_without_a_model_the_library_answers_in_the_documented_shape",),
        differs="And `citations`, and `notice` where something is not as one might expect.",
    ),
    Promise(
        id="agentkit.chat.model",
        says="The model that is named answers.",
        tests=(
            f"{_CHAT}test_a_model_is_asked_with_passages_history_and_files",
            f"{_CHAT}test_the_operators_model_is_asked_whatever_the_caller_names",
            f"{_CHAT}test_without_a_model_the_library_answers_in_the_documented_shape",
            f"{_CHAT}test_an_upstream_that_fails_is_told_and_no_turn_is_kept",
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
        tests=(f"{_CHAT}test_there_is_no_web_search_and_the_answer_says_so",),
        differs="Each of them searches the caller's library: there is no web search, and `notice` says so.",
    ),
    Promise(
        id="agentkit.chat.files",
        says="Files that come with a message are read for its answer.",
        tests=(
            f"{_CHAT}test_a_text_file_is_context_of_its_turn_and_named_in_it",
            f"{_CHAT}test_a_model_reads_the_files_and_is_told_where_they_were_cut",
            f"{_CHAT}test_a_file_that_is_no_text_is_refused_by_its_name",
            f"{_CHAT}test_a_body_over_the_limit_is_413",
        ),
        differs="Text files only, for this turn only. They are not stored; the message keeps their names and sizes.",
    ),
    Promise(
        id="agentkit.chat.completions",
        says="What is said to a model through this server is saved once, also when the client leaves in the middle.",
        tests=(
            f"{_RELAY}test_a_turn_is_kept_with_model_and_both_sides",
            f"{_RELAY}test_a_streamed_answer_is_relayed_and_kept_whole",
            f"{_STREAMS}test_a_client_that_leaves_ends_the_upstream_and_its_turn_is_kept_as_far_as_it_came",
            f"{_STREAMS}test_a_client_that_tries_again_has_one_turn_and_the_whole_answer",
            f"{_EXTRACTIVE}test_both_turns_are_kept_with_tool_and_citations",
        ),
    ),
    Promise(
        id="agentkit.chat.rate",
        says="Chats are limited in their rate.",
        tests=(f"{_CHAT}test_chats_draw_on_a_rate_of_their_own",),
        differs="By user, with the rates of every other tool; there it was ten a minute for each address.",
    ),
)
