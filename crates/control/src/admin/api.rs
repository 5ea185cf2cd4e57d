//! The declaration of the admin API: every operation, with its request, its responses and the reasons for refusing it.
//!
//! The router (`routes`), the values of the label `reason` in metrics, docs/admin-api.md and docs/openapi.json
//! ([`openapi`](super::openapi::openapi)) are made from it.

use super::State;
use super::commands::{disconnect, emit, join, leave, rooms, sessions};
use super::publish::publish;
use super::push::push;
use super::routes::{healthz, show_metrics, status};
use axum::http::StatusCode;
use axum::routing::{MethodRouter, delete, get, post, put};
use std::sync::Arc;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    pub(super) status: StatusCode,
    /// The `code` of the response, and the label `reason` of metrics.
    pub code: &'static str,
    /// What it means, in one sentence.
    pub meaning: &'static str,
}

impl Reason {
    const fn new(status: StatusCode, code: &'static str, meaning: &'static str) -> Self {
        Self { status, code, meaning }
    }

    /// The status of the response.
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
    ORIGIN: FORBIDDEN, "origin", "A web page sent the request: it has an `Origin`, or a `Sec-Fetch-Site` of another site.";
    TOKEN: UNAUTHORIZED, "token", "The token of `server.admin_token` is missing or wrong.";
    ROUTE: NOT_FOUND, "route", "The API has no such path.";
    METHOD: METHOD_NOT_ALLOWED, "method", "The path doesn't support this method.";
    CONTENT_TYPE: UNSUPPORTED_MEDIA_TYPE, "content_type",
        "`Content-Type` is neither `application/json` nor `application/x-ndjson`.";
    NO_CONTENT_TYPE: UNSUPPORTED_MEDIA_TYPE, "content_type", "`Content-Type` is missing, or longer than 256 bytes.";
    CONTENT_ENCODING: UNSUPPORTED_MEDIA_TYPE, "content_encoding", "`Content-Encoding` is neither `gzip` nor `br`.";
    MESSAGE: BAD_REQUEST, "message", "A message is invalid, or the body ends early.";
    BODY: BAD_REQUEST, "message", "The body ends early.";
    TOO_LONG: PAYLOAD_TOO_LARGE, "too_long", "A message is longer than `limits.message_bytes_max`.";
    DOCUMENT_TOO_LONG: PAYLOAD_TOO_LARGE, "too_long",
        "The document is longer than `feeds_limits.pushed_document_bytes_max`, compressed or not.";
    TIMEOUT: REQUEST_TIMEOUT, "timeout", "A message didn't arrive within `admin_limits.body_timeout`.";
    DOCUMENT_TIMEOUT: REQUEST_TIMEOUT, "timeout", "The document didn't arrive within `admin_limits.body_timeout`.";
    BUSY: SERVICE_UNAVAILABLE, "busy", "The server is overloaded for longer than `admin_limits.busy_timeout`. Retry later.";
    COMMAND: BAD_REQUEST, "command", "The command is invalid.";
    COMMAND_TOO_LONG: PAYLOAD_TOO_LARGE, "too_long", "The body is longer than `limits.message_bytes_max`.";
    COMMAND_TIMEOUT: REQUEST_TIMEOUT, "timeout", "The body didn't arrive within `admin_limits.body_timeout`.";
    NOT_JSON: UNSUPPORTED_MEDIA_TYPE, "content_type", "`Content-Type` is not `application/json`.";
    STOPPED: SERVICE_UNAVAILABLE, "stopped", "The server shut down before it finished the command.";
    ROOMS_QUERY: BAD_REQUEST, "query", "A query parameter is unknown or invalid.";
    KEY: BAD_REQUEST, "key", "The key is invalid.";
    QUERY: BAD_REQUEST, "query", "The query is not `sequence=N`.";
    DOCUMENT: BAD_REQUEST, "document", "The document is not valid JSON, or its compression is broken. The last document stays.";
    FETCHED: CONFLICT, "fetched", "The key matches a `[[feeds]]` section with a URL.";
    SEQUENCE: CONFLICT, "sequence", "The sequence number is lower than the last one.";
    NOT_FOUND: NOT_FOUND, "not_found", "The key has no pushed document.";
    NO_SPACE: INSUFFICIENT_STORAGE, "no_space",
        "`feeds_limits.pushed_documents_bytes_max` is reached, and all documents have subscribers.";
    TOO_MANY_KEYS: INSUFFICIENT_STORAGE, "too_many_keys",
        "`feeds_limits.pushed_keys_max` is reached, and all keys have subscribers.";
    INTERNAL: INTERNAL_SERVER_ERROR, "internal", "A bug in Stentor. Please report it.";
    TOO_MANY_CONNECTIONS: SERVICE_UNAVAILABLE, "connections_max",
        "`admin_limits.connections_max` is reached. The server closes the connection.";
}

/// Reasons for refusing any request, before its path is looked at.
pub const COMMON_REASONS: [Reason; 5] = [HOST_MISSING, HOST, ORIGIN, TOKEN, TOO_MANY_CONNECTIONS];
/// Reasons for refusing a request that no operation fits.
pub const ROUTING_REASONS: [Reason; 2] = [ROUTE, METHOD];

const PUBLISH_REASONS: &[Reason] = &[MESSAGE, TIMEOUT, TOO_LONG, CONTENT_TYPE, BUSY];
const COMMAND_REASONS: &[Reason] =
    &[COMMAND, BODY, COMMAND_TIMEOUT, COMMAND_TOO_LONG, NOT_JSON, BUSY, STOPPED];
const ROOMS_REASONS: &[Reason] = &[ROOMS_QUERY, BUSY, STOPPED];
const PUT_REASONS: &[Reason] = &[
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
    BUSY,
    NO_SPACE,
    TOO_MANY_KEYS,
];
const DELETE_REASONS: &[Reason] = &[KEY, QUERY, NOT_FOUND, FETCHED, SEQUENCE, BUSY];

/// The path of an operation up to the key.
pub(super) const FEEDS: &str = "/api/v1/feeds/";

/// A request body or response body.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// The `Content-Type`.
    pub content_type: &'static str,
    /// The name of its JSON Schema in the OpenAPI document. `None`: any text.
    pub schema: Option<&'static str>,
    /// What it is, in one sentence.
    pub meaning: &'static str,
}

/// A method on a path.
pub struct Operation {
    /// In capitals.
    pub method: &'static str,
    /// With the key as `{key}`.
    pub path: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// How it behaves, in Markdown.
    pub description: &'static str,
    /// The accepted bodies; empty if it needs none.
    pub requests: &'static [Body],
    /// Responses by status, except refusals.
    pub responses: &'static [(u16, Body)],
    /// Reasons for refusing it, besides [`COMMON_REASONS`].
    pub reasons: &'static [Reason],
    /// Whether it requires the token, if the server has one.
    pub requires_token: bool,
    handler: fn() -> MethodRouter<Arc<State>>,
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Operation {
    /// The path as the router wants it, and the handler.
    pub(super) fn route(&self) -> (String, MethodRouter<Arc<State>>) {
        (self.path.replace("{key}", "{*key}"), (self.handler)())
    }
}

const PUBLISHED: Body = Body {
    content_type: "application/json",
    schema: Some("Published"),
    meaning: "The number of published messages.",
};
const CHANGED: Body = Body {
    content_type: "application/json",
    schema: Some("Changed"),
    meaning: "Whether the document's value differs from the last one.",
};
const DELETED: Body = Body { meaning: "The document is deleted: `changed` is `true`.", ..CHANGED };

const CONCERNED: Body = Body {
    content_type: "application/json",
    schema: Some("Concerned"),
    meaning: "The number of sessions for which the command was carried out.",
};

/// A command for sessions.
const fn command(schema: &'static str) -> Body {
    Body {
        content_type: "application/json",
        schema: Some(schema),
        meaning: "Which sessions, and what to do.",
    }
}

/// Every operation.
pub static OPERATIONS: [Operation; 12] = [
    Operation {
        method: "POST",
        path: "/api/v1/publish",
        summary: "Publish messages to rooms",
        description: "Publishes one message, or many messages in order. With many, the server publishes each as it arrives, and stops at the \
                      first invalid line: `published` is the number of messages before it, `error.line` its number.",
        requests: &[
            Body { content_type: "application/json", schema: Some("Message"), meaning: "One message." },
            Body {
                content_type: "application/x-ndjson",
                schema: None,
                meaning: "One message per line. Empty lines are skipped.",
            },
        ],
        responses: &[(200, PUBLISHED)],
        reasons: PUBLISH_REASONS,
        requires_token: true,
        handler: || post(publish),
    },
    Operation {
        method: "POST",
        path: "/api/v1/emit",
        summary: "Send a message to sessions",
        description: "Sends a message to the members of several rooms and to single sessions, with exceptions. Each session receives one copy. \
                      The number of sessions includes those that a `volatile` message skips. \
                      [socketio.md](socketio.md#acting-on-sessions) describes how a command names sessions.",
        requests: &[command("Emit")],
        responses: &[(200, CONCERNED)],
        reasons: COMMAND_REASONS,
        requires_token: true,
        handler: || post(emit),
    },
    Operation {
        method: "POST",
        path: "/api/v1/join",
        summary: "Add sessions to rooms",
        description: "Makes sessions members of rooms. A session that is at its limit (`limits.subscriptions_max`), or whose core is \
                      (`limits.topics_max`), is counted in `refused`.",
        requests: &[command("Join")],
        responses: &[(200, CONCERNED)],
        reasons: COMMAND_REASONS,
        requires_token: true,
        handler: || post(join),
    },
    Operation {
        method: "POST",
        path: "/api/v1/leave",
        summary: "Remove sessions from rooms",
        description: "Ends the membership of sessions in rooms. A session that isn't a member is counted too.",
        requests: &[command("Leave")],
        responses: &[(200, CONCERNED)],
        reasons: COMMAND_REASONS,
        requires_token: true,
        handler: || post(leave),
    },
    Operation {
        method: "POST",
        path: "/api/v1/disconnect",
        summary: "Disconnect sessions",
        description: "Ends sessions with the close code 4403, after which clients don't reconnect. A Socket.IO client leaves the \
                      namespace and keeps its connection, unless `close` is `true`.",
        requests: &[command("Disconnect")],
        responses: &[(200, CONCERNED)],
        reasons: COMMAND_REASONS,
        requires_token: true,
        handler: || post(disconnect),
    },
    Operation {
        method: "POST",
        path: "/api/v1/sessions",
        summary: "List sessions",
        description: "Lists sessions and their rooms, in no particular order, and counts all of them. Sessions whose clients are disconnected \
                      and may be recovered are left out.",
        requests: &[command("SessionsQuery")],
        responses: &[(
            200,
            Body {
                content_type: "application/json",
                schema: Some("Sessions"),
                meaning: "The sessions. `truncated`: there are more than listed.",
            },
        )],
        reasons: COMMAND_REASONS,
        requires_token: true,
        handler: || post(sessions),
    },
    Operation {
        method: "GET",
        path: "/api/v1/rooms",
        summary: "List rooms",
        description: "Lists the rooms that have members, in the order of the bytes of their names, with the number of sessions in each. Query: \
                      `namespace` (default `/`), `prefix`, `limit` (1 to 1,000, default 100) and `after`. If there are more, `next` is \
                      the `after` of the next page.",
        requests: &[],
        responses: &[(
            200,
            Body { content_type: "application/json", schema: Some("Rooms"), meaning: "The rooms." },
        )],
        reasons: ROOMS_REASONS,
        requires_token: true,
        handler: || get(rooms),
    },
    Operation {
        method: "PUT",
        path: "/api/v1/feeds/{key}",
        summary: "Push a document",
        description: "Sets the document of a feed. Subscribers receive it, or what changed. The body is the document, with its own \
                      `Content-Type`. A document with a JSON `Content-Type` must be JSON; others are passed on unchanged. \
                      `Content-Encoding` may be `gzip` or `br`.",
        requests: &[Body { content_type: "*/*", schema: None, meaning: "The document." }],
        responses: &[(200, CHANGED)],
        reasons: PUT_REASONS,
        requires_token: true,
        handler: || put(push),
    },
    Operation {
        method: "DELETE",
        path: "/api/v1/feeds/{key}",
        summary: "Delete a pushed document",
        description: "Deletes the document of a feed. Subscribers receive the state `not_found`, and their subscriptions end.",
        requests: &[],
        responses: &[(200, DELETED)],
        reasons: DELETE_REASONS,
        requires_token: true,
        handler: || delete(push),
    },
    Operation {
        method: "GET",
        path: "/api/v1/status",
        summary: "Status of the server",
        description: "Uptime, feeds by state, the last failure of each `[[feeds]]` section, memory and file descriptors.",
        requests: &[],
        responses: &[(
            200,
            Body { content_type: "application/json", schema: Some("Status"), meaning: "The status." },
        )],
        reasons: &[],
        requires_token: true,
        handler: || get(status),
    },
    Operation {
        method: "GET",
        path: "/metrics",
        summary: "Metrics",
        description: "All metrics in the OpenMetrics text format, for Prometheus.",
        requests: &[],
        responses: &[(
            200,
            Body { content_type: crate::metrics::CONTENT_TYPE, schema: None, meaning: "The metrics." },
        )],
        reasons: &[INTERNAL],
        requires_token: true,
        handler: || get(show_metrics),
    },
    Operation {
        method: "GET",
        path: "/healthz",
        summary: "Health check",
        description: "Reports whether the server accepts clients. It never requires a token.",
        requests: &[],
        responses: &[
            (200, Body { content_type: "text/plain; charset=utf-8", schema: None, meaning: "`ok`." }),
            (
                503,
                Body {
                    content_type: "text/plain; charset=utf-8",
                    schema: None,
                    meaning: "`not ready`: the server is starting or shutting down.",
                },
            ),
        ],
        reasons: &[],
        requires_token: false,
        handler: || get(healthz),
    },
];

/// The values of the label `reason` in `stentor_admin_publish_refusals_total`.
pub(crate) fn publish_refusals() -> impl Iterator<Item = &'static str> {
    PUBLISH_REASONS.iter().map(|reason| reason.code)
}

/// The values of the label `reason` in `stentor_feed_push_refusals_total`.
pub(crate) fn push_refusals() -> impl Iterator<Item = &'static str> {
    PUT_REASONS.iter().chain(DELETE_REASONS).map(|reason| reason.code)
}

/// The values of the label `reason` in `stentor_admin_refusals_total`.
pub(crate) fn refusals() -> impl Iterator<Item = &'static str> {
    COMMON_REASONS.iter().chain(COMMAND_REASONS).chain(ROOMS_REASONS).map(|reason| reason.code)
}
