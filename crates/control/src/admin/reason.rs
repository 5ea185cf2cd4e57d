//! Reasons for refusing requests, by operation. docs/admin-api.md, docs/openapi.json and the values of the
//! label `reason` in metrics are generated from them.

use axum::http::StatusCode;

/// A reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    pub(super) status: StatusCode,
    /// The `code` of the response, and the label `reason` of metrics.
    pub code: &'static str,
    /// Meaning of the code, in one sentence.
    pub meaning: &'static str,
}

impl Reason {
    const fn new(status: StatusCode, code: &'static str, meaning: &'static str) -> Self {
        Self { status, code, meaning }
    }

    /// Returns the status of the response.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }
}

macro_rules! reasons {
    ($($name:ident: $status:ident, $code:literal, $meaning:literal;)*) => {
        $(pub(super) const $name: Reason = Reason::new(StatusCode::$status, $code, $meaning);)*
    };
}

reasons! {
    HOST_MISSING: BAD_REQUEST, "host", "The request has no `Host` header, or several.";
    HOST: MISDIRECTED_REQUEST, "host",
        "`Host` is neither loopback nor the address of the admin port, and `server.admin_hosts` doesn't list it.";
    ORIGIN: FORBIDDEN, "origin", "A web page other than the status page sent the request: it has another `Origin`, or a `Sec-Fetch-Site` of another site. A link to the status page may be followed.";
    TOKEN: UNAUTHORIZED, "token", "The token of `server.admin_token` is missing or wrong.";
    ROUTE: NOT_FOUND, "route", "The API has no such path.";
    METHOD: METHOD_NOT_ALLOWED, "method", "The path doesn't support this method.";
    CONTENT_TYPE: UNSUPPORTED_MEDIA_TYPE, "content_type",
        "`Content-Type` is neither `application/json` nor `application/x-ndjson`.";
    NO_CONTENT_TYPE: UNSUPPORTED_MEDIA_TYPE, "content_type", "`Content-Type` is missing, or longer than 256 bytes.";
    CONTENT_ENCODING: UNSUPPORTED_MEDIA_TYPE, "content_encoding", "`Content-Encoding` is neither `gzip` nor `br`.";
    TOO_MANY_IDEMPOTENCY_KEYS: SERVICE_UNAVAILABLE, "too_many_idempotency_keys",
        "200,000 messages with idempotency keys were published within five minutes. Retry later.";
    IN_PROGRESS: CONFLICT, "in_progress", "A message with this idempotency key is being published. Retry later.";
    MESSAGE: BAD_REQUEST, "message", "A message is invalid, or the body ends early.";
    BODY: BAD_REQUEST, "message", "The body ends early.";
    TOO_LONG: PAYLOAD_TOO_LARGE, "too_long", "A message is longer than `limits.message_bytes_max`.";
    DOCUMENT_TOO_LONG: PAYLOAD_TOO_LARGE, "too_long",
        "The document is longer than `feeds_limits.pushed_document_bytes_max`, compressed or not.";
    TIMEOUT: REQUEST_TIMEOUT, "timeout", "A message didn't arrive within `admin_limits.body_timeout`.";
    DOCUMENT_TIMEOUT: REQUEST_TIMEOUT, "timeout", "The document didn't arrive within `admin_limits.body_timeout`.";
    BUSY: SERVICE_UNAVAILABLE, "busy", "The server is overloaded for longer than `admin_limits.busy_timeout`. Retry later.";
    MEMORY: SERVICE_UNAVAILABLE, "memory", "Memory is short (`limits.memory_bytes_max`), and the body needs more than 16 KiB. Retry later.";
    ENGINE: SERVICE_UNAVAILABLE, "unavailable",
        "The cluster's engine doesn't answer, or refuses the message. Whether the message is published may be unknown. Retry later.";
    COMMAND: BAD_REQUEST, "command", "The command is invalid.";
    COMMAND_TOO_LONG: PAYLOAD_TOO_LARGE, "too_long", "The body is longer than `limits.message_bytes_max`.";
    COMMAND_TIMEOUT: REQUEST_TIMEOUT, "timeout", "The body didn't arrive within `admin_limits.body_timeout`.";
    NOT_JSON: UNSUPPORTED_MEDIA_TYPE, "content_type", "`Content-Type` is not `application/json`.";
    UNAVAILABLE: SERVICE_UNAVAILABLE, "unavailable",
        "The cluster's engine doesn't answer. The message says whether the outcome is unknown. Retry.";
    STOPPED: SERVICE_UNAVAILABLE, "stopped", "The server shut down before it finished the command.";
    ROOMS_QUERY: BAD_REQUEST, "query", "A query parameter is unknown or invalid.";
    OVERVIEW_QUERY: BAD_REQUEST, "query", "The query is not `after_ms=N`.";
    KEY: BAD_REQUEST, "key", "The key is invalid.";
    QUERY: BAD_REQUEST, "query", "The query is not `sequence=N`.";
    DOCUMENT: BAD_REQUEST, "document", "The document is not valid JSON, or its compression is broken. The last document stays.";
    NO_FEED: NOT_FOUND, "no_feed", "No `[[feeds]]` section with a URL matches the key.";
    FETCHED: CONFLICT, "fetched", "The key matches a `[[feeds]]` section with a URL.";
    SEQUENCE: CONFLICT, "sequence", "The sequence number is lower than the last one.";
    NOT_FOUND: NOT_FOUND, "not_found", "The key has no pushed document.";
    NO_SPACE: INSUFFICIENT_STORAGE, "no_space",
        "`feeds_limits.pushed_documents_bytes_max` is reached, and all documents have subscribers.";
    TOO_MANY_KEYS: INSUFFICIENT_STORAGE, "too_many_keys",
        "`feeds_limits.pushed_keys_max` is reached, and all keys have subscribers.";
    NO_AUTH: CONFLICT, "no_auth", "The server has no `[auth]`, so there are no tokens.";
    TOO_MANY_REVOCATIONS: INSUFFICIENT_STORAGE, "too_many_revocations", "`auth.revocations_max` is reached. No token was revoked.";
    CONFIGURATION: UNPROCESSABLE_ENTITY, "configuration",
        "The configuration has mistakes, which the message lists. It is unchanged.";
    NO_LINKS: NOT_FOUND, "no_links", "The server has no `[[links]]`.";
    NO_UPGRADE: UPGRADE_REQUIRED, "upgrade", "The request doesn't ask for a WebSocket.";
    HANDSHAKE: BAD_REQUEST, "handshake", "The request isn't the handshake of a link.";
    INTERNAL: INTERNAL_SERVER_ERROR, "internal", "A bug in Stentor. Please report it.";
    TOO_MANY_CONNECTIONS: SERVICE_UNAVAILABLE, "connections_max",
        "`admin_limits.connections_max` is reached. The server closes the connection.";
    TLS: BAD_REQUEST, "tls", "The port uses TLS (`[admin_tls]`), and plain HTTP was sent to it, or the handshake failed. The server closes the connection.";
}

/// Reasons for refusing any request before its path is examined.
pub const COMMON_REASONS: [Reason; 6] = [HOST_MISSING, HOST, ORIGIN, TOKEN, TOO_MANY_CONNECTIONS, TLS];
/// Reasons for refusing a request that matches no operation.
pub const ROUTING_REASONS: [Reason; 2] = [ROUTE, METHOD];

pub(super) const PUBLISH_REASONS: &[Reason] = &[
    MESSAGE,
    TIMEOUT,
    TOO_LONG,
    CONTENT_TYPE,
    IN_PROGRESS,
    TOO_MANY_IDEMPOTENCY_KEYS,
    MEMORY,
    BUSY,
    STOPPED,
    ENGINE,
];
pub(super) const COMMAND_REASONS: &[Reason] =
    &[COMMAND, BODY, COMMAND_TIMEOUT, COMMAND_TOO_LONG, NOT_JSON, MEMORY, BUSY, STOPPED];
pub(super) const REVOCATION_REASONS: &[Reason] = &[
    COMMAND,
    BODY,
    COMMAND_TIMEOUT,
    COMMAND_TOO_LONG,
    NOT_JSON,
    NO_AUTH,
    TOO_MANY_REVOCATIONS,
    MEMORY,
    BUSY,
    STOPPED,
];
pub(super) const FETCH_REASONS: &[Reason] =
    &[COMMAND, BODY, KEY, COMMAND_TIMEOUT, COMMAND_TOO_LONG, NOT_JSON, NO_FEED, MEMORY];
pub(super) const ROOMS_REASONS: &[Reason] = &[ROOMS_QUERY, BUSY, STOPPED];
pub(super) const PUT_REASONS: &[Reason] = &[
    KEY,
    QUERY,
    BODY,
    DOCUMENT,
    DOCUMENT_TIMEOUT,
    FETCHED,
    SEQUENCE,
    DOCUMENT_TOO_LONG,
    NO_CONTENT_TYPE,
    CONTENT_ENCODING,
    INTERNAL,
    MEMORY,
    BUSY,
    UNAVAILABLE,
    STOPPED,
    NO_SPACE,
    TOO_MANY_KEYS,
];
pub(super) const DELETE_REASONS: &[Reason] =
    &[KEY, QUERY, NOT_FOUND, FETCHED, SEQUENCE, BUSY, UNAVAILABLE, STOPPED];

pub(super) const RELOAD_REASONS: &[Reason] = &[CONFIGURATION];

/// Returns the values of the label `reason` in `stentor_admin_publish_refusals_total`.
pub(crate) fn publish_refusals() -> impl Iterator<Item = &'static str> {
    PUBLISH_REASONS.iter().map(|reason| reason.code)
}

/// Returns the values of the label `reason` in `stentor_feed_push_refusals_total`.
pub(crate) fn push_refusals() -> impl Iterator<Item = &'static str> {
    PUT_REASONS.iter().chain(DELETE_REASONS).map(|reason| reason.code)
}

/// Returns the values of the label `reason` in `stentor_admin_refusals_total`.
pub(crate) fn refusals() -> impl Iterator<Item = &'static str> {
    COMMON_REASONS
        .iter()
        .chain(COMMAND_REASONS)
        .chain(REVOCATION_REASONS)
        .chain(ROOMS_REASONS)
        .chain(FETCH_REASONS)
        .chain(RELOAD_REASONS)
        .map(|reason| reason.code)
}
