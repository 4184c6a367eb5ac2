"""Promises of tldw's MCP context search and retrieval, version 0.1, in the order of its design document."""

from tests.compatibility.manifest import Promise

_TLDW = "tests/compatibility/test_tldw.py::"
_ENDPOINTS_OF_TLDW = "tests/server/compat/tldw/test_endpoints.py::"
_CLIENT_RESEARCH = "tests/clients/test_research.py::"
_AUTHORIZATION = "tests/server/transports/test_authorization.py::"
_CREDENTIAL_HEADERS = "tests/server/transports/test_credential_headers.py::"
_LEGACY = "tests/server/transports/test_http_legacy.py::"
_PRECEDENCE = "tests/server/transports/test_precedence.py::"
_PROFILES = "tests/server/transports/test_profiles.py::"
_HIJACK = "tests/server/transports/test_session_hijack.py::"
_OPTIONS = "tests/server/transports/test_request_options.py::"
_ENDPOINTS = "tests/server/test_service_endpoints.py::"
_KNOWLEDGE = "tests/server/tools/test_knowledge.py::"
_CAPS = "tests/server/tools/test_caps.py::"
_COMPACT = "tests/server/tools/test_compact.py::"
_TRANSPORTS = "tests/server/tools/test_transports.py::"
_ISOLATION = "tests/sources/test_isolation.py::"
_EVERY_SOURCE = "tests/sources/test_every_source.py::"
_NOTES = "tests/sources/test_notes.py::"
_MEDIA = "tests/sources/test_media.py::"
_CHATS = "tests/sources/test_chats.py::"
_CHARACTERS = "tests/sources/test_characters.py::"
_PROMPTS = "tests/sources/test_prompts.py::"

PROMISES: tuple[Promise, ...] = (
    # Sessions and clients
    Promise(
        id="tldw.session.key",
        statement="A session is a WebSocket connection, or is named by `mcp-session-id` over HTTP.",
        tests=(
            f"{_KNOWLEDGE}test_a_legacy_session_and_a_websocket_keep_session_state",
            f"{_KNOWLEDGE}test_a_websocket_is_one_session_in_the_modern_era_too",
            f"{_KNOWLEDGE}test_a_modern_client_keeps_session_state_by_a_handle_that_others_cannot_use",
        ),
        difference=(
            "Every search also returns a handle, `session`, which any call can pass: the latest protocol has no "
            "session header."
        ),
    ),
    Promise(
        id="tldw.session.optional",
        statement="`mcp-session-id` is optional.",
        tests=(
            f"{_ENDPOINTS_OF_TLDW}test_request_needs_neither_a_session_nor_a_handshake",
            f"{_LEGACY}test_a_request_without_a_session_is_rejected_with_400",
            f"{_KNOWLEDGE}test_a_modern_client_keeps_session_state_by_a_handle_that_others_cannot_use",
        ),
        difference=(
            "At tldw's own addresses it is. At `/mcp` legacy clients must send it, as their versions of MCP "
            "require; the latest protocol has none."
        ),
    ),
    Promise(
        id="tldw.session.query-parameter",
        statement="`mcp-session-id` is sent in a header or a query parameter.",
        tests=(
            f"{_ENDPOINTS_OF_TLDW}test_client_chooses_its_session_id",
            f"{_TLDW}test_session_id_is_accepted_only_in_the_header",
        ),
        difference="At tldw's own addresses. At `/mcp` only in the header, because URLs end up in histories and logs.",
    ),
    Promise(
        id="tldw.session.chosen",
        statement="A client can choose the id of its session.",
        tests=(
            f"{_ENDPOINTS_OF_TLDW}test_client_chooses_its_session_id",
            f"{_ENDPOINTS_OF_TLDW}test_initialize_keeps_the_id_that_the_client_chose",
            f"{_ENDPOINTS_OF_TLDW}test_deleted_session_has_no_state",
        ),
    ),
    Promise(
        id="tldw.addresses.request",
        statement="`POST /api/v1/mcp/request` and `/request/batch` serve JSON-RPC without a handshake.",
        tests=(
            f"{_ENDPOINTS_OF_TLDW}test_request_needs_neither_a_session_nor_a_handshake",
            f"{_ENDPOINTS_OF_TLDW}test_initialize_without_parameters_returns_a_session",
            f"{_ENDPOINTS_OF_TLDW}test_batch_is_answered_in_order",
            f"{_ENDPOINTS_OF_TLDW}test_errors_of_json_rpc_have_status_200",
        ),
    ),
    Promise(
        id="tldw.addresses.websocket",
        statement="`/api/v1/mcp/ws` serves JSON-RPC; `initialize` needs no `protocolVersion`.",
        tests=(f"{_ENDPOINTS_OF_TLDW}test_websocket_needs_no_handshake",),
        difference="The token is not accepted in the query string, because URLs end up in histories and logs.",
    ),
    Promise(
        id="tldw.addresses.tools",
        statement="`GET /api/v1/mcp/tools` lists the tools, and `POST /api/v1/mcp/tools/execute` calls one.",
        tests=(
            f"{_ENDPOINTS_OF_TLDW}test_tools_are_listed_and_executed",
            f"{_ENDPOINTS_OF_TLDW}test_prompts_resources_and_modules_are_listed",
            f"{_ENDPOINTS_OF_TLDW}test_invalid_execution_is_rejected",
        ),
    ),
    Promise(
        id="tldw.addresses.catalogs",
        statement="`GET /api/v1/mcp/tool_catalogs` lists tool catalogs, by which `/tools` can be filtered.",
        tests=(
            f"{_ENDPOINTS_OF_TLDW}test_profiles_are_tool_catalogs",
            f"{_ENDPOINTS_OF_TLDW}test_a_restricted_key_has_only_its_own_catalog",
        ),
        difference="The catalogs are the profiles, which are built in. There are no organizations and teams.",
    ),
    Promise(
        id="tldw.addresses.modules",
        statement="`GET /api/v1/mcp/modules` and the method `modules/list` return the modules and their status.",
        tests=(
            f"{_ENDPOINTS_OF_TLDW}test_modules_are_a_method_of_the_protocol_too",
            f"{_ENDPOINTS_OF_TLDW}test_module_is_inactive_for_the_user_whose_library_is_damaged",
        ),
        difference="The modules are the sources. Their status is the caller's own.",
    ),
    Promise(
        id="tldw.addresses.metrics",
        statement="`GET /api/v1/mcp/metrics` tells administrators the requests, errors and latency of each module.",
        tests=(f"{_ENDPOINTS_OF_TLDW}test_metrics_are_for_administrators_only",),
        difference="The scope `admin` is required. The module of a call is the first part of its tool's name.",
    ),
    Promise(
        id="tldw.session.created",
        statement="The first `initialize` creates a session and returns its id.",
        tests=(
            f"{_LEGACY}test_the_handshake_returns_the_requested_or_the_latest_legacy_version",
            f"{_LEGACY}test_a_session_can_list_and_call_tools",
        ),
    ),
    Promise(
        id="tldw.session.deleted",
        statement="DELETE ends a session early.",
        tests=(
            f"{_LEGACY}test_a_deleted_session_is_not_found",
            f"{_OPTIONS}test_deleting_a_session_deletes_its_state_only",
        ),
    ),
    Promise(
        id="tldw.session.expires",
        statement="A session that is not used ends after a time.",
        tests=(f"{_LEGACY}test_an_expired_session_is_not_found",),
    ),
    Promise(
        id="tldw.session.owner",
        statement="A session belongs to its user only.",
        tests=(
            f"{_HIJACK}test_another_users_session_gets_the_same_response_as_an_unknown_one",
            f"{_KNOWLEDGE}test_a_session_cannot_be_used_by_another_user",
        ),
    ),
    Promise(
        id="tldw.session.dedupe",
        statement="URIs that a session has returned are not returned again until the results are exhausted.",
        tests=(
            f"{_TLDW}test_repeated_searches_deliver_every_hit_before_any_is_repeated",
            f"{_KNOWLEDGE}test_a_changed_item_appears_again",
        ),
        difference=(
            "`suppressed` counts the hidden hits, `exhausted` says that they are repeated, and a changed item "
            "is delivered again. `dedupe` hides, demotes or keeps seen hits."
        ),
    ),
    Promise(
        id="tldw.session.bounded",
        statement="The set of returned URIs and the query history are bounded.",
        tests=(
            f"{_TLDW}test_session_remembers_a_limited_number_of_items",
            f"{_TLDW}test_only_the_last_queries_bias_a_snippet",
        ),
    ),
    Promise(
        id="tldw.session.topic",
        statement="Recent queries bias the snippets.",
        tests=(f"{_TLDW}test_earlier_queries_select_the_passage_of_a_snippet",),
    ),
    Promise(
        id="tldw.session.defaults",
        statement=(
            "A session stores defaults for `snippet_length`, `max_tokens`, `sibling_window`, `order_by` and "
            "`chars_per_token`."
        ),
        tests=(
            f"{_KNOWLEDGE}test_session_defaults_apply_to_search_and_get",
            f"{_KNOWLEDGE}test_defaults_accumulate_until_a_reset",
        ),
    ),
    Promise(
        id="tldw.session.precedence",
        statement="Explicit arguments precede the session's defaults, and those precede the global ones.",
        tests=(
            f"{_PRECEDENCE}test_the_first_layer_that_sets_an_option_decides",
            f"{_PRECEDENCE}test_the_search_of_a_single_source_uses_the_same_layers",
        ),
        difference="The request's `config` ranks between the session's defaults and the server's.",
    ),
    Promise(
        id="tldw.client.detected",
        statement="`clientInfo.name` of `initialize` selects compatibility tweaks for a client.",
        tests=(
            f"{_PROFILES}test_a_configured_legacy_client_gets_its_profile_at_the_plain_address_only",
            f"{_PROFILES}test_the_name_of_a_modern_client_has_no_effect",
            f"{_PROFILES}test_a_restricted_key_has_its_profile_at_every_address",
        ),
        difference=(
            "A client gets a profile by URL, by API key, or in the legacy era by name (`client_profiles`): "
            "lists must not vary between connections."
        ),
    ),
    Promise(
        id="tldw.client.aliases",
        statement=(
            "For deep-research clients, `search` and `fetch` are listed as aliases of `knowledge.search` and "
            "`knowledge.get`."
        ),
        tests=(
            f"{_CLIENT_RESEARCH}test_search_and_fetch_return_each_users_own_items",
            f"{_PROFILES}test_an_address_lists_the_tools_of_its_profile_in_both_eras",
        ),
        difference=(
            "They are tools of their own, always listed, in the shape that deep research requires, which has no "
            "room for other arguments."
        ),
    ),
    Promise(
        id="tldw.client.canonical",
        statement="The canonical tools remain available in addition to the aliases.",
        tests=(
            f"{_PROFILES}test_mcp_is_the_default_profile_and_full_lists_everything",
            f"{_PROFILES}test_a_tool_that_an_address_does_not_list_can_still_be_called",
        ),
    ),
    Promise(
        id="tldw.client.shape",
        statement="A mode flag selects the compact shape of `id`, `title`, `text`, `url` and `metadata`.",
        tests=(
            f"{_COMPACT}test_a_hit_is_the_same_in_both_shapes",
            f"{_COMPACT}test_an_item_is_read_in_the_compact_shape",
        ),
        difference=(
            "It is the argument `shape`, because `mode` already says how much of an item to read. `shape` in a "
            "config is the default."
        ),
    ),
    # Security
    Promise(
        id="tldw.security.own-library",
        statement="A caller reads only its own library.",
        tests=(
            f"{_TRANSPORTS}test_each_user_finds_their_own_note_through_every_transport",
            f"{_ISOLATION}test_lists_searches_and_completions_ignore_items_of_other_users",
            f"{_EVERY_SOURCE}test_users_find_only_their_own_items",
        ),
    ),
    Promise(
        id="tldw.security.absent",
        statement="Another user's data looks nonexistent.",
        tests=(
            f"{_ISOLATION}test_get_of_a_foreign_id_equals_get_of_a_missing_one",
            f"{_ISOLATION}test_foreign_cursor_gives_no_access",
            f"{_ISOLATION}test_foreign_resource_equals_a_missing_one",
            f"{_ISOLATION}test_transcript_of_a_foreign_item_equals_a_missing_one",
            f"{_ISOLATION}test_foreign_prompt_equals_an_unknown_one",
            f"{_TRANSPORTS}test_another_users_note_returns_the_same_bytes_as_a_missing_one",
        ),
    ),
    Promise(
        id="tldw.security.context",
        statement=(
            "User, client and database paths are derived from the credential; callers can neither supply nor override "
            "them."
        ),
        tests=(
            f"{_TLDW}test_caller_cannot_override_the_request_context",
            f"{_AUTHORIZATION}test_a_session_id_is_not_a_credential",
        ),
    ),
    Promise(
        id="tldw.security.no-user-argument",
        statement="No tool takes a user or a path.",
        tests=(f"{_TLDW}test_no_argument_names_a_user_or_a_path",),
    ),
    Promise(
        id="tldw.security.credentials",
        statement="A JWT or an API key identifies the caller.",
        tests=(f"{_AUTHORIZATION}test_each_endpoint_handles_each_credential_as_in_the_table",),
    ),
    Promise(
        id="tldw.security.api-key-header",
        statement="An API key can be sent in the header `X-API-KEY`.",
        tests=(
            f"{_CREDENTIAL_HEADERS}test_api_key_header_identifies_the_user_over_mcp_and_rest",
            f"{_CREDENTIAL_HEADERS}test_two_credentials_that_differ_are_rejected",
        ),
    ),
    Promise(
        id="tldw.security.subprotocol",
        statement="A WebSocket client can send its token as the subprotocol after `bearer`.",
        tests=(
            f"{_CREDENTIAL_HEADERS}test_token_as_subprotocol_identifies_the_user",
            f"{_CREDENTIAL_HEADERS}test_invalid_or_ambiguous_subprotocols_are_rejected",
        ),
    ),
    Promise(
        id="tldw.security.role-claims",
        statement="The roles and permissions of a token decide what its user may do.",
        tests=(f"{_CREDENTIAL_HEADERS}test_tokens_of_tldw_are_accepted_with_their_roles",),
        difference=(
            "They are mapped to the three scopes of this server (`jwt_scope_map`), and the user's role here "
            "limits them."
        ),
    ),
    Promise(
        id="tldw.security.paths",
        statement="Each user has a media, a chacha and a prompts database.",
        tests=(f"{_TLDW}test_each_user_has_a_media_a_chacha_and_a_prompts_database",),
    ),
    Promise(
        id="tldw.security.single-user",
        statement="In single-user mode there is one user, who needs no credential.",
        tests=(f"{_AUTHORIZATION}test_in_single_user_mode_a_caller_without_credential_is_the_local_user",),
    ),
    Promise(
        id="tldw.security.rates",
        statement="Each tool has a rate limit.",
        tests=(f"{_ENDPOINTS}test_a_rate_limited_tool_reports_when_to_retry",),
    ),
    Promise(
        id="tldw.security.logging",
        statement="Neither secrets nor contents are logged.",
        tests=(f"{_ENDPOINTS}test_the_log_contains_no_credentials", f"{_ENDPOINTS}test_the_log_contains_no_content"),
    ),
    Promise(
        id="tldw.security.roles",
        statement="Typical roles may call the read-only tools.",
        tests=(f"{_AUTHORIZATION}test_every_transport_lists_the_same_tools_for_the_same_scopes",),
        difference="The roles are `reader`, `writer` and `admin`; a credential also needs the scope `knowledge:read`.",
    ),
    # Request config
    Promise(
        id="tldw.config.base64",
        statement="A request may carry a base64-encoded JSON `config`.",
        tests=(f"{_OPTIONS}test_a_config_in_the_header_or_the_query_string_applies_to_the_call",),
    ),
    Promise(
        id="tldw.config.keys",
        statement="Its keys are `snippet_length`, `max_tokens`, `sibling_window`, `order_by` and `chars_per_token`.",
        tests=(
            f"{_PRECEDENCE}test_the_first_layer_that_sets_an_option_decides",
            f"{_PRECEDENCE}test_each_value_in_the_table_has_a_visible_effect",
        ),
        difference="`dedupe`, `time_zone` and `strict` are keys too. An invalid value or an unknown key is an error.",
    ),
    Promise(
        id="tldw.config.client-keys",
        statement="The keys `aliasMode`, `compactShape` and `maxSessionUris` adapt a session to its client.",
        tests=(
            f"{_ENDPOINTS_OF_TLDW}test_config_keys_of_tldw_apply_in_every_place_of_a_config",
            f"{_ENDPOINTS_OF_TLDW}test_refused_config_keys_of_tldw_say_what_to_use_instead",
            f"{_COMPACT}test_a_config_selects_the_shape_of_calls_that_do_not",
        ),
        difference=(
            "`search` and `fetch` are always listed: `aliasMode: false` is refused with the address that lists "
            "only canonical tools. `maxSessionUris` is at most `session_seen_max`."
        ),
    ),
    Promise(
        id="tldw.config.clamped",
        statement="Numbers in the config are clamped to their ranges.",
        tests=(
            f"{_PRECEDENCE}test_numbers_out_of_range_are_clamped",
            f"{_KNOWLEDGE}test_session_configure_returns_the_defaults_as_they_are_applied",
        ),
    ),
    Promise(
        id="tldw.config.soft",
        statement="The config sets soft defaults; arguments take precedence.",
        tests=(
            f"{_EVERY_SOURCE}test_argument_overrides_the_snippet_length_of_the_config",
            f"{_EVERY_SOURCE}test_config_sets_the_budget",
        ),
    ),
    Promise(
        id="tldw.config.no-secrets",
        statement="The config can contain neither credentials nor another user.",
        tests=(f"{_OPTIONS}test_an_invalid_config_is_rejected_with_400_wherever_it_is_sent",),
    ),
    Promise(
        id="tldw.config.handshake",
        statement="A WebSocket client can send it with `initialize`.",
        tests=(
            f"{_TLDW}test_config_of_a_websocket_handshake_sets_the_defaults_of_its_session",
            f"{_OPTIONS}test_a_config_in_a_websocket_address_applies_to_all_its_requests",
        ),
    ),
    # Tools
    Promise(
        id="tldw.tools.arguments",
        statement=(
            "Each source has a search and a get tool with the documented arguments; media also has a transcript tool."
        ),
        tests=(f"{_TLDW}test_tool_takes_the_documented_arguments",),
        difference="The get tools take a `uri` in place of the id, so the id is not marked as required.",
    ),
    Promise(
        id="tldw.tools.knowledge",
        statement="`knowledge.search` and `knowledge.get` work across sources.",
        tests=(
            f"{_KNOWLEDGE}test_one_search_finds_a_hit_in_every_source",
            f"{_KNOWLEDGE}test_source_and_id_work_in_place_of_a_uri",
        ),
    ),
    Promise(
        id="tldw.tools.dotted",
        statement="Tool names contain dots: `notes.search`.",
        tests=(
            f"{_PROFILES}test_dotted_names_are_listed_if_configured",
            f"{_ENDPOINTS_OF_TLDW}test_websocket_needs_no_handshake",
            f"{_KNOWLEDGE}test_a_modern_client_keeps_session_state_by_a_handle_that_others_cannot_use",
        ),
        difference=(
            "At tldw's own addresses they do. At `/mcp` they are listed as `notes_search`, because several clients "
            'reject dots. Dotted names can be called everywhere, and are listed with `tool_names = "dotted"`.'
        ),
    ),
    Promise(
        id="tldw.tools.read-only",
        statement="Search and get tools carry `metadata.readOnlyHint = true`, so that user interfaces can show it.",
        tests=(f"{_TLDW}test_search_and_get_tools_are_marked_read_only",),
        difference="It is in `annotations`, where MCP has it.",
    ),
    Promise(
        id="tldw.tools.transports",
        statement="Tools return the same results over HTTP and WebSocket.",
        tests=(f"{_TRANSPORTS}test_the_response_is_the_same_through_every_transport",),
    ),
    Promise(
        id="tldw.tools.limit",
        statement="`limit` is 1 to 100, 10 by default.",
        tests=(f"{_EVERY_SOURCE}test_limit_defaults_to_10_and_is_clamped_to_1_to_100",),
    ),
    Promise(
        id="tldw.tools.offset",
        statement="`offset` is 0 or more, 0 by default.",
        tests=(
            f"{_EVERY_SOURCE}test_pages_contain_every_hit_once",
            f"{_EVERY_SOURCE}test_any_number_is_accepted_and_clamped",
        ),
    ),
    # Result shape
    Promise(
        id="tldw.shape.item",
        statement="Every result has the seventeen fields of ResultItem, null where a source has no value.",
        tests=(
            f"{_EVERY_SOURCE}test_hit_has_the_fields_of_tldw_without_null_fields_of_other_sources",
            f"{_KNOWLEDGE}test_results_have_all_fields_of_tldw_if_the_client_asks_for_them",
            f"{_KNOWLEDGE}test_results_have_no_nulls_and_say_nothing_twice",
            f"{_TLDW}test_results_at_the_addresses_of_tldw_have_all_its_fields",
            f"{_KNOWLEDGE}test_created_at_and_version_are_in_a_hit_if_the_item_was_changed_later",
        ),
        difference=(
            "The fields of single sources, which tldw calls optional (`media_type` to `loc`), are omitted "
            "instead of null, and times have no fraction of a second. Messages of one conversation are one "
            "result of `knowledge_search`, with `passages`. At other addresses than tldw's, `knowledge_search` "
            "also omits what another field says, unless the client asks for `hit_fields: all`: ids (they are in "
            "the `uri`), `created_at` if it equals `last_modified`, and `version` 1. A title has at most 200 "
            "characters, an item at most 32 tags; the whole title is part of the text."
        ),
    ),
    Promise(
        id="tldw.shape.uri",
        statement="`uri` is a pointer that leads to the item.",
        tests=(f"{_KNOWLEDGE}test_every_hit_can_be_read_by_its_uri_in_every_mode",),
    ),
    Promise(
        id="tldw.shape.score",
        statement="`score` is a number from 0 to 1.",
        tests=(f"{_EVERY_SOURCE}test_hit_has_the_fields_of_tldw_without_null_fields_of_other_sources",),
    ),
    Promise(
        id="tldw.shape.score-type",
        statement="`score_type` is `fts`.",
        tests=(
            f"{_EVERY_SOURCE}test_hit_has_the_fields_of_tldw_without_null_fields_of_other_sources",
            f"{_EVERY_SOURCE}test_minmax_scores_range_from_1_to_0",
        ),
        difference="It is `fts_coverage`, the share of the query that matched, and `fts` with `minmax`.",
    ),
    Promise(
        id="tldw.shape.search",
        statement="A search returns `results`, `has_more`, `next_offset` and `total_estimated`.",
        tests=(
            f"{_EVERY_SOURCE}test_hit_has_the_fields_of_tldw_without_null_fields_of_other_sources",
            f"{_EVERY_SOURCE}test_pages_contain_every_hit_once",
        ),
        difference=(
            "`knowledge_search` adds `session` and, where they apply, `sources` (which failed or timed out), "
            "`suppressed`, `exhausted` and `cut`. It omits `next_offset` and `total_estimated` instead of null."
        ),
    ),
    Promise(
        id="tldw.shape.total",
        statement="`total_estimated` estimates the number of hits.",
        tests=(
            f"{_EVERY_SOURCE}test_total_estimated_is_exact_or_null",
            f"{_KNOWLEDGE}test_total_is_the_number_of_results_once_all_were_read",
        ),
        difference="It is the exact number or null, because an estimate that looks exact misleads.",
    ),
    Promise(
        id="tldw.shape.get",
        statement="A get returns `meta`, `content` (a string or an object) and `attachments`.",
        tests=(
            f"{_EVERY_SOURCE}test_get_returns_meta_content_and_attachments",
            f"{_MEDIA}test_json_transcript_is_an_object",
        ),
        difference=(
            "`content` is a string, which every client can show, except for `media.transcript` as JSON. `meta` "
            "has no snippet, which would repeat `content`, and no `score_type`."
        ),
    ),
    Promise(
        id="tldw.shape.attachments",
        statement="`attachments` contains message lists, transcripts and the like.",
        tests=(
            f"{_TLDW}test_attached_message_has_its_position_but_not_its_text",
            f"{_EVERY_SOURCE}test_four_fifths_of_a_budget_are_content_if_the_item_is_longer",
        ),
        difference=(
            "Only with `retrieval.attachments`; otherwise it is null and at least four fifths of a budget are "
            "text. Each message has its id, position, sender, time and place in `content`, but not its text "
            "again. A transcript is the result of `media_transcript`."
        ),
    ),
    Promise(
        id="tldw.shape.additions",
        statement="Later versions can add fields without breaking callers.",
        tests=(f"{_TLDW}test_added_fields_are_omitted_when_empty",),
        difference=(
            "Added: `cost_tokens` to an item; `mode`, `anchor`, `tokens`, `truncated` and `next_cursor` to a get; and, "
            "where they apply, `read_as`, `highlights`, `more_in_item`, `over_budget`, `pages`, and `start_ms` and "
            "`seconds` in `loc`."
        ),
    ),
    # Scores
    Promise(
        id="tldw.scores.minmax",
        statement="bm25 is scaled to 0..1 between the worst and the best hit of each search.",
        tests=(
            f"{_EVERY_SOURCE}test_minmax_scores_range_from_1_to_0",
            f"{_EVERY_SOURCE}test_single_hit_has_the_minmax_score_1",
        ),
        difference=(
            'This is `search_scoring = "minmax"`, with 1 instead of 0 for a single hit. The default score means '
            "the same in every source: scaled, the best hit of every source is 1.0, relevant or not."
        ),
    ),
    Promise(
        id="tldw.scores.decay",
        statement="Where bm25 is unavailable, the score is `1 / (1 + rank_index)`.",
        not_offered="The server requires an SQLite with FTS5, and every FTS5 has bm25, so there is nothing to replace.",
    ),
    Promise(
        id="tldw.scores.ts-rank",
        statement="On PostgreSQL, `ts_rank` is divided by the largest rank of the result.",
        tests=("tests/server/postgres/test_server.py::test_scores_of_tldw_are_ranks_divided_by_the_largest",),
        difference='This is `search_scoring = "minmax"` with `storage_url`. The default is the comparable score.',
    ),
    Promise(
        id="tldw.scores.merged",
        statement="The aggregator merges by score.",
        tests=(
            f"{_KNOWLEDGE}test_the_best_source_comes_first_if_others_have_hits_too",
            f"{_TLDW}test_one_source_has_at_most_six_of_the_first_ten_hits",
            f"{_KNOWLEDGE}test_one_conversation_does_not_fill_the_page",
            f"{_KNOWLEDGE}test_conversation_is_one_result_with_its_passages_in_order",
            f"{_KNOWLEDGE}test_duplicate_texts_are_one_hit_with_also_in",
        ),
        difference=(
            "While other sources have hits, at most 6 of any ten come from one source. A conversation is one "
            "result, and so is a text that was saved twice."
        ),
    ),
    Promise(
        id="tldw.scores.ties",
        statement="Of hits with equal scores, the one modified last comes first.",
        tests=(f"{_TLDW}test_of_equal_scores_the_newer_hit_comes_first",),
    ),
    Promise(
        id="tldw.scores.recent",
        statement="`order_by: recent` sorts purely by date.",
        tests=(
            f"{_KNOWLEDGE}test_order_by_recent_sorts_all_sources_by_date",
            f"{_MEDIA}test_order_by_recent_sorts_newest_first",
        ),
    ),
    # Search
    Promise(
        id="tldw.search.words",
        statement="A query is matched by the engine's full-text search.",
        tests=(
            f"{_KNOWLEDGE}test_read_as_is_reported_once",
            f"{_EVERY_SOURCE}test_query_without_words_matches_nothing_and_says_so",
        ),
        difference=(
            "All sources share one query language in which no query is an error; `read_as` says how it was "
            "read. The engine's own syntax failed on `C++`, `what's` or an open quotation mark."
        ),
    ),
    Promise(
        id="tldw.search.matches",
        statement="A hit contains what was searched for.",
        tests=(f"{_CHATS}test_words_also_match_the_previous_message_but_phrases_do_not",),
        difference=(
            "A chat message is also found, with a lower score, by words in the two messages before it: answers "
            "rarely repeat the question."
        ),
    ),
    # Snippets
    Promise(
        id="tldw.snippets.default",
        statement="A snippet has 300 characters by default.",
        tests=(
            f"{_EVERY_SOURCE}test_snippet_length_defaults_to_at_most_300_characters",
            f"{_KNOWLEDGE}test_default_page_has_eight_results_with_passages_of_300_characters",
            f"{_TLDW}test_results_at_the_addresses_of_tldw_have_all_its_fields",
        ),
        difference=(
            "Results of a default page of `knowledge_search` show up to 600 characters if there is room, the first "
            "ones first."
        ),
    ),
    Promise(
        id="tldw.snippets.clamp",
        statement="`snippet_length` is clamped to 1,000.",
        tests=(f"{_EVERY_SOURCE}test_snippet_has_at_most_1000_characters",),
    ),
    Promise(
        id="tldw.snippets.centred",
        statement="A snippet is centred on the first match; without one, it is the beginning.",
        tests=(
            f"{_EVERY_SOURCE}test_snippet_is_one_line_of_plain_text_around_the_match",
            f"{_NOTES}test_get_without_retrieval_returns_a_snippet",
        ),
        difference=(
            "If several passages match, it shows the one with most of the query, or with words of the session's recent "
            "queries."
        ),
    ),
    Promise(
        id="tldw.snippets.plain",
        statement="A snippet is plain text with its whitespace collapsed.",
        tests=(f"{_EVERY_SOURCE}test_snippet_is_one_line_of_plain_text_around_the_match",),
    ),
    Promise(
        id="tldw.snippets.chat-message",
        statement="A matching message is shown by its content.",
        tests=(f"{_CHATS}test_hit_is_a_message_with_conversation_sender_and_loc",),
    ),
    Promise(
        id="tldw.snippets.chat-title",
        statement="A matching title is shown with an excerpt of the first message.",
        tests=(f"{_CHATS}test_title_hit_shows_the_title_and_the_first_message",),
    ),
    Promise(
        id="tldw.snippets.config",
        statement="The snippet length can be set by an argument or by the config.",
        tests=(f"{_EVERY_SOURCE}test_argument_overrides_the_snippet_length_of_the_config",),
    ),
    # Retrieval
    Promise(
        id="tldw.retrieval.options",
        statement="`retrieval` has the eight documented options.",
        tests=(f"{_TLDW}test_get_tools_take_the_documented_retrieval_options",),
    ),
    Promise(
        id="tldw.retrieval.default",
        statement="The default mode is `snippet`.",
        tests=(
            f"{_TLDW}test_get_without_options_returns_300_characters",
            f"{_CHATS}test_conversation_is_read_in_pages_of_50_messages",
            f"{_CHARACTERS}test_character_is_returned_whole_under_headings",
            f"{_PROMPTS}test_prompt_can_be_read_by_id_or_name",
        ),
        difference=(
            "Without `retrieval`, a chat returns a page of messages, and a character or prompt everything, "
            "because their tools have no such option in the design."
        ),
    ),
    Promise(
        id="tldw.retrieval.snippet",
        statement="Mode `snippet` returns only the snippet.",
        tests=(f"{_EVERY_SOURCE}test_every_mode_works_and_is_reported",),
    ),
    Promise(
        id="tldw.retrieval.chunk",
        statement="Mode `chunk` returns the chunk at the anchor.",
        tests=(f"{_EVERY_SOURCE}test_every_mode_works_and_is_reported", f"{_NOTES}test_chunk_is_selected_by_its_index"),
    ),
    Promise(
        id="tldw.retrieval.siblings",
        statement="Mode `chunk_with_siblings` adds neighbours while the estimated tokens are within `max_tokens`.",
        tests=(
            f"{_MEDIA}test_siblings_are_the_adjacent_stored_chunks",
            f"{_MEDIA}test_larger_budgets_return_more_siblings",
        ),
    ),
    Promise(
        id="tldw.retrieval.full",
        statement="Mode `full` returns everything, subject to hard caps and pagination.",
        tests=(
            f"{_EVERY_SOURCE}test_pages_of_full_mode_contain_everything_once",
            f"{_TLDW}test_full_mode_has_a_hard_cap",
        ),
    ),
    Promise(
        id="tldw.retrieval.auto",
        statement="Mode `auto` is `chunk_with_siblings` if `max_tokens` is present, else `snippet`.",
        tests=(f"{_EVERY_SOURCE}test_auto_with_a_budget_reads_siblings",),
    ),
    Promise(
        id="tldw.retrieval.budget",
        statement="`max_tokens` limits the sum of the chunks; its default is about 5,000.",
        tests=(
            f"{_EVERY_SOURCE}test_no_response_exceeds_its_budget",
            f"{_EVERY_SOURCE}test_oversized_chunk_is_truncated_and_can_be_continued",
            f"{_TLDW}test_budget_is_5000_tokens_by_default",
        ),
        difference=(
            "It limits the whole response, including the envelope, and a first chunk that is too large is "
            "truncated, as `truncated` says."
        ),
    ),
    Promise(
        id="tldw.retrieval.chars-per-token",
        statement="Tokens are `ceil(chars / chars_per_token)`; the default is 4.",
        tests=(
            f"{_TLDW}test_chars_per_token_replaces_the_estimate",
            f"{_EVERY_SOURCE}test_budget_is_kept_in_every_script",
        ),
        difference=(
            "Without `chars_per_token`, tokens are estimated from the text, because 4 exceeds a budget "
            "severalfold in most scripts. Only the size of chunks that are cut for a call assumes 4."
        ),
    ),
    Promise(
        id="tldw.retrieval.chunk-options",
        statement="`chunk_size_tokens` and `chunk_overlap_tokens` control how text is chunked on the fly.",
        tests=(
            f"{_EVERY_SOURCE}test_overlap_of_chunks_is_not_repeated",
            f"{_NOTES}test_chunk_is_selected_by_its_index",
        ),
    ),
    Promise(
        id="tldw.retrieval.sentences",
        statement="On the fly, text is chunked by sentences.",
        tests=(f"{_TLDW}test_note_is_chunked_between_sentences",),
    ),
    Promise(
        id="tldw.retrieval.window",
        statement="`sibling_window` is the number of chunks to consider on each side.",
        tests=(f"{_MEDIA}test_siblings_are_the_adjacent_stored_chunks",),
    ),
    Promise(
        id="tldw.retrieval.prechunked",
        statement="Stored chunks of media are preferred by default; `prefer_prechunked` turns that off.",
        tests=(
            f"{_MEDIA}test_loc_selects_the_chunk",
            f"{_MEDIA}test_prefer_prechunked_false_splits_the_text_into_new_chunks",
        ),
    ),
    Promise(
        id="tldw.retrieval.aggregator",
        statement="`knowledge.get` takes the same options.",
        tests=(f"{_KNOWLEDGE}test_every_hit_can_be_read_by_its_uri_in_every_mode",),
    ),
    # Anchors
    Promise(
        id="tldw.loc.media",
        statement="The `loc` of a media hit is `media_id`, `chunk_index` and `chunk_uuid`.",
        tests=(f"{_MEDIA}test_hit_is_the_best_chunk_of_its_item",),
    ),
    Promise(
        id="tldw.loc.notes",
        statement="The `loc` of a note is an approximate offset; a chunk index is accepted too.",
        tests=(f"{_NOTES}test_loc_is_an_offset_near_the_match", f"{_NOTES}test_chunk_is_selected_by_its_index"),
    ),
    Promise(
        id="tldw.loc.chats",
        statement="The `loc` of a chat hit is `conversation_id`, `message_id` and `message_index`.",
        tests=(
            f"{_CHATS}test_hit_is_a_message_with_conversation_sender_and_loc",
            f"{_CHATS}test_title_hit_shows_the_title_and_the_first_message",
            f"{_KNOWLEDGE}test_results_have_all_fields_of_tldw_if_the_client_asks_for_them",
            f"{_KNOWLEDGE}test_the_uri_of_a_message_reads_that_message",
        ),
        difference=(
            "A matching message has its own URI, `chats://{id}/{message_id}`, so that deduplication does not "
            "hide a whole conversation. In `knowledge_search` at other addresses than tldw's, `loc` is only a "
            "position in the message."
        ),
    ),
    Promise(
        id="tldw.loc.fields",
        statement="The `loc` of a prompt or character has a field and an approximate offset.",
        tests=(f"{_CHARACTERS}test_loc_contains_field_and_offset", f"{_PROMPTS}test_loc_contains_field_and_offset"),
    ),
    Promise(
        id="tldw.loc.round-trip",
        statement="The `loc` of a hit, passed to get, leads to the matching passage.",
        tests=(f"{_EVERY_SOURCE}test_loc_of_a_hit_selects_its_passage",),
    ),
    Promise(
        id="tldw.loc.media-anchor",
        statement="`media.get` anchors by chunk index, chunk uuid or approximate offset.",
        tests=(f"{_MEDIA}test_loc_selects_the_chunk",),
    ),
    Promise(
        id="tldw.loc.search",
        statement="Without a `loc`, get finds an anchor by a light search in the same source.",
        tests=(
            f"{_CHATS}test_query_selects_the_message_to_read",
            f"{_EVERY_SOURCE}test_every_mode_works_and_is_reported",
        ),
        difference=(
            "It searches the item for the argument `query`, and begins at the beginning without it. `anchor` "
            "says which was used."
        ),
    ),
    Promise(
        id="tldw.loc.chat-siblings",
        statement="Each message of a chat is a chunk; its siblings are the adjacent messages.",
        tests=(f"{_CHATS}test_message_in_loc_is_read_with_its_neighbours",),
    ),
    # Media types
    Promise(
        id="tldw.media-types.suggested",
        statement="User interfaces get a suggested list of twelve media types.",
        tests=(f"{_TLDW}test_media_types_resource_has_the_types_of_the_caller_and_suggestions",),
    ),
    Promise(
        id="tldw.media-types.resource",
        statement="`media://types` lists the distinct types of the library.",
        tests=(f"{_TLDW}test_media_types_resource_has_the_types_of_the_caller_and_suggestions",),
    ),
    # Notes
    Promise(
        id="tldw.notes.keywords",
        statement="`notes.search` filters by `keywords`.",
        tests=(f"{_NOTES}test_keywords_match_only_notes_that_have_all_of_them",),
        difference="All of them are required, ignoring case: more filters narrow a search.",
    ),
    Promise(
        id="tldw.notes.get",
        statement="`notes.get` takes a note's id and retrieval options.",
        tests=(f"{_NOTES}test_get_without_retrieval_returns_a_snippet",),
    ),
    # Media
    Promise(
        id="tldw.media.types",
        statement="`media.search` filters by `media_types`, free-form or from the suggested list.",
        tests=(f"{_MEDIA}test_media_types_filter_the_hits",),
    ),
    Promise(
        id="tldw.media.dates",
        statement="`date_from` and `date_to` filter media, in ISO 8601.",
        tests=(
            f"{_MEDIA}test_date_bounds_are_inclusive_and_dates_mean_whole_days",
            f"{_MEDIA}test_invalid_date_is_rejected_with_the_format",
        ),
        difference=(
            "They apply to the creation time. A date is a whole day, both ends are inclusive, and an invalid "
            "date is an error."
        ),
    ),
    Promise(
        id="tldw.media.order",
        statement="`media.search` takes `order_by`, `relevance` by default.",
        tests=(f"{_MEDIA}test_order_by_recent_sorts_newest_first",),
    ),
    Promise(
        id="tldw.media.id",
        statement="`media.get` takes a number or a string.",
        tests=(f"{_MEDIA}test_media_can_be_read_by_number_text_or_uuid",),
    ),
    Promise(
        id="tldw.media.transcript",
        statement="`media.transcript` returns text, srt, vtt or json.",
        tests=(
            f"{_MEDIA}test_transcript_is_returned_in_the_requested_format",
            f"{_MEDIA}test_json_transcript_is_an_object",
            f"{_MEDIA}test_missing_transcript_is_not_found",
        ),
        difference=(
            "A long transcript is paged. Media without a transcript are not found here; `media_get` reads their text."
        ),
    ),
    Promise(
        id="tldw.media.timestamps",
        statement="`include_timestamps` is an option of every format.",
        tests=(
            f"{_MEDIA}test_transcript_is_returned_in_the_requested_format",
            f"{_MEDIA}test_subtitle_format_without_timestamps_is_rejected",
        ),
        difference=(
            "It applies to `text` (off by default) and `json` (on by default); `srt` and `vtt` always have timestamps "
            "and reject `false`."
        ),
    ),
    # Chats
    Promise(
        id="tldw.chats.by",
        statement="`chats.search` searches titles, messages or both, the default.",
        tests=(f"{_CHATS}test_by_selects_titles_or_messages", f"{_CHATS}test_by_defaults_to_both"),
    ),
    Promise(
        id="tldw.chats.character",
        statement="`chats.search` filters by `character_id`.",
        tests=(f"{_CHATS}test_character_filters_the_hits_to_its_chats",),
    ),
    Promise(
        id="tldw.chats.sender",
        statement="`chats.search` filters by `sender`.",
        tests=(f"{_CHATS}test_sender_filters_the_hits",),
    ),
    Promise(
        id="tldw.chats.pages",
        statement="`chats.get` takes `page` (default 1) and `page_size` (default 50, at most 200).",
        tests=(
            f"{_CHATS}test_conversation_is_read_in_pages_of_50_messages",
            f"{_CHATS}test_page_size_is_clamped_to_1_to_200",
        ),
    ),
    Promise(
        id="tldw.chats.window",
        statement="`chats.get` with a mode other than `full` returns the messages around the anchor.",
        tests=(f"{_CHATS}test_message_in_loc_is_read_with_its_neighbours",),
    ),
    # Characters and prompts
    Promise(
        id="tldw.characters.query",
        statement="Characters are searched by text or by tags, as a list or separated by commas.",
        tests=(
            f"{_CHARACTERS}test_list_or_commas_mean_tags",
            f"{_CHARACTERS}test_words_without_commas_are_searched_as_words",
        ),
        difference=(
            "They are tags if some character has all of them; otherwise they are searched as words, and "
            "`read_as` says so: `old, wise wizard` is a phrase."
        ),
    ),
    Promise(
        id="tldw.characters.get",
        statement="`characters.get` takes a character's number, without options.",
        tests=(f"{_CHARACTERS}test_character_is_returned_whole_under_headings",),
        difference="It takes retrieval options too, and returns the whole character by default.",
    ),
    Promise(
        id="tldw.prompts.fields",
        statement="`prompts.search` takes the fields to search.",
        tests=(f"{_PROMPTS}test_fields_restrict_the_search",),
    ),
    Promise(
        id="tldw.prompts.get",
        statement="`prompts.get` takes an id or a name, without options.",
        tests=(f"{_PROMPTS}test_prompt_can_be_read_by_id_or_name",),
        difference="It takes retrieval options too, and returns the whole prompt by default.",
    ),
    # Aggregator
    Promise(
        id="tldw.knowledge.limit",
        statement="The `limit` of `knowledge.search` is 20 by default.",
        tests=(
            f"{_TLDW}test_results_at_the_addresses_of_tldw_have_all_its_fields",
            f"{_KNOWLEDGE}test_default_page_has_eight_results_with_passages_of_300_characters",
            f"{_KNOWLEDGE}test_an_explicit_limit_is_met_up_to_the_hard_cap",
        ),
        difference=(
            "At other addresses than tldw's it is 8: eight passages answer more questions than twenty titles, "
            "and use less of a model's context."
        ),
    ),
    Promise(
        id="tldw.knowledge.sources",
        statement="`sources` selects the sources; the default is all.",
        tests=(
            f"{_KNOWLEDGE}test_one_search_finds_a_hit_in_every_source",
            f"{_TLDW}test_only_the_chosen_sources_are_searched",
            f"{_KNOWLEDGE}test_invalid_arguments_are_rejected_with_the_expected_values",
        ),
    ),
    Promise(
        id="tldw.knowledge.filters",
        statement="`filters` are passed to their source.",
        tests=(
            f"{_KNOWLEDGE}test_a_filter_applies_only_to_its_source",
            f"{_KNOWLEDGE}test_the_schema_names_the_filters_of_every_source",
            f"{_KNOWLEDGE}test_invalid_arguments_are_rejected_with_the_expected_values",
            f"{_TLDW}test_filter_of_a_source_that_is_not_searched_is_rejected",
        ),
        difference=(
            "An unknown filter, or one of a source that is not searched, is rejected with the valid ones "
            "instead of ignored."
        ),
    ),
    Promise(
        id="tldw.knowledge.filters-characters",
        statement="Filters of characters are reserved.",
        tests=(f"{_TLDW}test_filters_of_characters_are_reserved",),
    ),
    Promise(
        id="tldw.knowledge.paging",
        statement="`offset` and `next_offset` page through all hits.",
        tests=(f"{_KNOWLEDGE}test_pages_contain_every_hit_exactly_once",),
    ),
    Promise(
        id="tldw.knowledge.get",
        statement="`knowledge.get` takes `source`, `id` and `retrieval`.",
        tests=(
            f"{_KNOWLEDGE}test_source_and_id_work_in_place_of_a_uri",
            f"{_KNOWLEDGE}test_loc_is_accepted_inside_retrieval",
        ),
        difference="It takes the `uri` of a hit as well, and `loc`, `query` and `cursor`.",
    ),
    Promise(
        id="tldw.knowledge.isolation",
        statement="It finds and reads nothing of another user.",
        tests=(
            f"{_KNOWLEDGE}test_no_user_finds_items_of_another",
            f"{_KNOWLEDGE}test_items_of_other_users_and_missing_items_are_not_found",
        ),
    ),
    # Implementation notes
    Promise(
        id="tldw.implementation.databases",
        statement="The tools work on tldw's own databases.",
        tests=(f"{_TLDW}test_tldw_database_is_imported_and_searched",),
        difference=(
            "The databases are imported, with their ids, into Florilegium's own storage, which many users share a "
            "server for."
        ),
    ),
    Promise(
        id="tldw.implementation.limits-in-help",
        statement="Limits of very large items are documented in the help of the tools.",
        tests=(f"{_CAPS}test_the_help_of_arguments_names_their_caps", f"{_CAPS}test_server_info_contains_the_caps"),
    ),
)
