//! The declaration of the admin API: every operation, with its request, its responses and the reasons for
//! refusing it.
//!
//! The router, docs/admin-api.md and docs/openapi.json ([`openapi`](super::openapi::openapi)) are generated
//! from it.

pub use super::reason::{COMMON_REASONS, ROUTING_REASONS, Reason};

use super::State;
use super::commands::{disconnect, emit, join, leave};
use super::fetch::fetch;
use super::keys::keys;
use super::links;
use super::lists::{members, node_sessions, rooms, sessions};
use super::publish::publish;
use super::push::push;
use super::reason::{
    BUSY, COMMAND_REASONS, DELETE_REASONS, FETCH_REASONS, INTERNAL, NO_AUTH, OVERVIEW_QUERY, PUBLISH_REASONS,
    PUT_REASONS, RELOAD_REASONS, REVOCATION_REASONS, ROOMS_REASONS, STOPPED,
};
use super::reload::reload;
use super::revocations;
use super::status::{healthz, nodes, overview, readyz, show_metrics, status};
use axum::routing::{MethodRouter, delete, get, post, put};
use std::sync::Arc;

/// A request body or response body.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// The `Content-Type`.
    pub content_type: &'static str,
    /// The name of the body's JSON Schema in the OpenAPI document. `None` means any text.
    pub schema: Option<&'static str>,
    /// Meaning of the body, in one sentence.
    pub meaning: &'static str,
}

/// A method on a path.
pub struct Operation {
    /// The method, in capitals.
    pub method: &'static str,
    /// The path, with the key as `{key}`.
    pub path: &'static str,
    /// Effect of the operation, in a few words.
    pub summary: &'static str,
    /// Behavior of the operation, in Markdown.
    pub description: &'static str,
    /// The accepted request bodies. Empty if a request has no body.
    pub requests: &'static [Body],
    /// Responses by status, except refusals.
    pub responses: &'static [(u16, Body)],
    /// Reasons for refusing the operation, in addition to [`COMMON_REASONS`].
    pub reasons: &'static [Reason],
    /// `true` if a request needs the admin token (of a server that has one).
    pub requires_token: bool,
    handler: fn() -> MethodRouter<Arc<State>>,
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Operation {
    /// Returns the path in the router's syntax, and the handler.
    pub(super) fn route(&self) -> (String, MethodRouter<Arc<State>>) {
        (self.path.replace("{key}", "{*key}"), (self.handler)())
    }
}

/// Makes a body with this `Content-Type`, and with the schema of this name. Without a schema, the body is any
/// text.
const fn body(content_type: &'static str, schema: Option<&'static str>, meaning: &'static str) -> Body {
    Body { content_type, schema, meaning }
}

const fn json(schema: &'static str, meaning: &'static str) -> Body {
    body("application/json", Some(schema), meaning)
}

const fn text(meaning: &'static str) -> Body {
    body("text/plain; charset=utf-8", None, meaning)
}

/// Makes the body of a command for sessions.
const fn command(schema: &'static str) -> Body {
    json(schema, "The sessions, and the action.")
}

const CONCERNED: (u16, Body) =
    (200, json("Concerned", "The number of sessions for which the command was carried out."));

/// Default fields of the operations that are commands for sessions.
const COMMAND: Operation = Operation {
    method: "POST",
    path: "",
    summary: "",
    description: "",
    requests: &[],
    responses: &[CONCERNED],
    reasons: COMMAND_REASONS,
    requires_token: true,
    handler: || post(emit),
};

/// All operations.
pub static OPERATIONS: [Operation; 23] = [
    Operation {
        path: "/api/v1/publish",
        summary: "Publish messages to rooms",
        description: "Publishes one message, or many messages in order. With many, the server publishes each as it arrives, and stops at the \
                      first invalid line: `published` is the number of messages before it, `error.line` its number.\n\nIf `room` is the \
                      id of a session, only that session receives the message, on any node. A `volatile` message skips sessions that \
                      can't receive it at once. A history keeps no messages of these two kinds.\n\nWith an \
                      `idempotency_key`, a message can be sent again when the response is lost: within five minutes, it is published \
                      once per room and key, and the response is the same. The server keeps the keys in memory until it ends. In a \
                      cluster, this holds for requests to the same node; for rooms with history it holds for all nodes, also after \
                      the death of one, and the server responds when the engine has the message. Messages with a key and messages \
                      without one may overtake each other.",
        requests: &[
            json("Message", "One message."),
            body("application/x-ndjson", None, "One message per line. Empty lines are skipped."),
        ],
        responses: &[(200, json("Published", "The number of published messages."))],
        reasons: PUBLISH_REASONS,
        handler: || post(publish),
        ..COMMAND
    },
    Operation {
        path: "/api/v1/emit",
        summary: "Send a message to sessions",
        description: "Sends a message to the members of several rooms and to single sessions, with exceptions. Each session receives one copy. \
                      The number of sessions includes those that a `volatile` message skips. \
                      A room whose name is the id of a session is that session. With `ack`, the answer comes when all Socket.IO clients have acknowledged the event, or after `timeout`: \
                      `acknowledgements` has the arguments of each, in the order of their arrival, and `missing` counts the clients without one. \
                      In a cluster, clients of all nodes are asked; `missing_nodes` names the nodes that didn't answer, whose clients \
                      aren't counted. \
                      [socketio.md](socketio.md#acting-on-sessions) describes how a command names sessions.",
        requests: &[command("Emit")],
        handler: || post(emit),
        ..COMMAND
    },
    Operation {
        path: "/api/v1/join",
        summary: "Add sessions to rooms",
        description: "Makes sessions members of rooms. A session that is at its limit (`limits.subscriptions_max`), or whose core is \
                      (`limits.topics_max`), is counted in `refused`.",
        requests: &[command("Join")],
        handler: || post(join),
        ..COMMAND
    },
    Operation {
        path: "/api/v1/leave",
        summary: "Remove sessions from rooms",
        description: "Ends the membership of sessions in rooms. A session that isn't a member is counted too.",
        requests: &[command("Leave")],
        handler: || post(leave),
        ..COMMAND
    },
    Operation {
        path: "/api/v1/disconnect",
        summary: "Disconnect sessions",
        description: "Ends sessions with the close code 4403, after which clients don't reconnect. A Socket.IO client leaves the \
                      namespace and keeps its connection, unless `close` is `true`.",
        requests: &[command("Disconnect")],
        handler: || post(disconnect),
        ..COMMAND
    },
    Operation {
        path: "/api/v1/sessions",
        summary: "List sessions",
        description: "Lists sessions and their rooms, in no particular order, and counts all of them. `user` and `info` are those of the \
                      token or hook; without one, they are absent. Sessions whose clients are disconnected and may be recovered are \
                      left out.",
        requests: &[command("SessionsQuery")],
        responses: &[(200, json("Sessions", "The sessions. `truncated`: there are more than listed."))],
        handler: || post(sessions),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/sessions",
        summary: "List all sessions",
        description: "Lists sessions of all protocols, namespaces and nodes, the ones with the fullest send buffers first, also those in no \
                      room, and the sockets of workers, with their `app`. In a cluster, each session has the name of its `node`. The \
                      query parameter `search` chooses sessions by a part of their id, user or address; `user`, `issuer` and `address` by exactly \
                      this value. A session must match all of them. At most `limit` sessions are listed. The status page shows it.",
        responses: &[(200, json("Sessions", "The sessions. `count` is the number of all that match."))],
        reasons: ROOMS_REASONS,
        handler: || get(node_sessions),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/rooms",
        summary: "List rooms",
        description: "Lists the rooms that have members, in the order of the bytes of their names, with the number of sessions in each. Query: \
                      `namespace` (default `/`), `prefix`, `limit` (1 to 1,000, default 100) and `after`. If there are more, `next` is \
                      the `after` of the next page.",
        responses: &[(200, json("Rooms", "The rooms."))],
        reasons: ROOMS_REASONS,
        handler: || get(rooms),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/rooms/members",
        summary: "List the members of a room",
        description: "Lists the members of a room with presence (`rooms.presence`), in an order that stays, and counts all of \
                      them. Of another room, it only counts the members; `POST /api/v1/sessions` lists them. Query: `room`, `namespace` \
                      (default `/`), `limit` (1 to 1,000, default 100) and `after`. If there are more, `next` is the `after` of the next \
                      page. A page of large members ends early.",
        responses: &[(200, json("Members", "The members."))],
        reasons: ROOMS_REASONS,
        handler: || get(members),
        ..COMMAND
    },
    Operation {
        path: "/api/v1/revocations",
        summary: "Revoke tokens",
        description: "Makes tokens void before they expire: those of a user (`subject`), the one with a `token_id`, or all that were issued \
                      before a time (`issued_before`, in seconds since 1970), of one issuer or of all. `issuer` may be omitted if the \
                      server has one issuer. Without `issued_before`, a user's tokens are void that were issued until now, this second \
                      included.\n\nThe sessions of these tokens end with the close code 4407. The \
                      server keeps the revocation until no such token can be valid (`auth.token_lifetime_max`), in memory: a restart \
                      forgets it. In a cluster, it concerns all nodes, and they keep it. With `\"action\": \"refresh\"`, no token becomes void: clients are asked for a new token, and \
                      disconnected if they don't present one. With `session`, only this session ends or is asked. \
                      [permissions.md](permissions.md#revoke-a-token) has examples.",
        requests: &[json("Revocation", "The tokens, and the action on their sessions.")],
        responses: &[(200, json("Revoked", "The number of sessions that had such a token."))],
        reasons: REVOCATION_REASONS,
        handler: || post(revocations::revoke),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/revocations",
        summary: "List revocations",
        description: "Lists the revocations that the server keeps, each with the time until which it is kept. Times are in seconds since 1970.",
        responses: &[(200, json("Revocations", "The revocations."))],
        reasons: &[NO_AUTH],
        handler: || get(revocations::list),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/feeds",
        summary: "List the keys of feeds",
        description: "Lists the keys that are fetched: first those whose last fetch failed, then those that are stale, then those whose last \
                      fetch took the longest. In a cluster, these are the keys of all nodes, each with the `node` that fetches it. Keys with \
                      pushed documents follow; in a cluster, only those with subscribers, because its engine keeps the others. The query parameters \
                      `search` and `limit` choose keys.",
        responses: &[(200, json("Feeds", "The keys."))],
        reasons: ROOMS_REASONS,
        handler: || get(keys),
        ..COMMAND
    },
    Operation {
        method: "PUT",
        path: "/api/v1/feeds/{key}",
        summary: "Push a document",
        description: "Sets the document of a feed. Subscribers receive it, or what changed. The body is the document, with its own \
                      `Content-Type`. A document with a JSON `Content-Type` must be JSON; others are passed on unchanged. \
                      `Content-Encoding` may be `gzip` or `br`.",
        requests: &[body("*/*", None, "The document.")],
        responses: &[(200, json("Changed", "Whether the document's value differs from the last one."))],
        reasons: PUT_REASONS,
        handler: || put(push),
        ..COMMAND
    },
    Operation {
        method: "DELETE",
        path: "/api/v1/feeds/{key}",
        summary: "Delete a pushed document",
        description: "Deletes the document of a feed. Subscribers receive the state `not_found`, and their subscriptions end.",
        responses: &[(200, json("Changed", "The document is deleted: `changed` is `true`."))],
        reasons: DELETE_REASONS,
        handler: || delete(push),
        ..COMMAND
    },
    Operation {
        path: "/api/v1/fetch",
        summary: "Fetch a document",
        description: "Fetches a key from its API once and at once, and describes the fetch: the URL, the headers of the request and of the \
                      response, the document or the failure, and the time of the next fetch with the reason. Values of `headers` and of \
                      cookies are not shown. The request counts towards no limit of the `[[feeds]]` section, and is made even while \
                      `Retry-After` forbids others. If it brings a document, the API's `Retry-After` no longer applies, and the key is \
                      fetched for its subscribers. `stentor fetch` prints the text.",
        requests: &[json("FetchRequest", "The key.")],
        responses: &[(200, json("Fetched", "The result of the fetch, also of a failed one."))],
        reasons: FETCH_REASONS,
        handler: || post(fetch),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/status",
        summary: "Status of the server",
        description: "Uptime, the metrics of the data plane, feeds by state, the last failure of each `[[feeds]]` section, memory and file \
                      descriptors. The status page (`GET /`) and `stentor top` show it.",
        responses: &[(200, json("Status", "The status."))],
        reasons: &[INTERNAL],
        handler: || get(status),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/overview",
        summary: "Time series and findings",
        description: "Time series of the last 15 minutes, one sample every two seconds, and findings about what is wrong now. The query \
                      `after_ms=TIME` requests only later samples: send the last of `times_ms`. A value is `null` where there is none: before a series \
                      begins, or while no delivery is measured. The status page (`GET /`) and `stentor top` show it. It describes the node \
                      that answers.",
        responses: &[(200, json("Overview", "The time series and the findings."))],
        reasons: &[OVERVIEW_QUERY],
        handler: || get(overview),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/nodes",
        summary: "List the nodes of the cluster",
        description: "Lists the nodes that are alive. A node that ends without notice is listed for another ten seconds. The list of a node \
                      without `[cluster]` is empty. [cluster.md](cluster.md) describes clusters.",
        responses: &[(200, json("Nodes", "The nodes."))],
        reasons: &[],
        handler: || get(nodes),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/api/v1/links",
        summary: "List the links of workers",
        description: "Lists the workers that run the code of applications (`[[links]]`), with the number of sessions of each. A worker whose \
                      connection is broken is listed until it returns or its sessions go to other workers. In a cluster, it lists the \
                      workers of all nodes. A node without `[[links]]` lists none.",
        responses: &[(200, json("Links", "The links, by application, node and number."))],
        reasons: &[BUSY, STOPPED],
        handler: || get(links::list),
        ..COMMAND
    },
    Operation {
        path: "/api/v1/reload",
        summary: "Reload the configuration",
        description: "Reads the configuration file, the environment and the files that they name again, as SIGHUP does. All or nothing: \
                      after a mistake, nothing changes. Concurrent requests run one after the other. A server that was started by \
                      `stentor demo` reloads nothing.",
        responses: &[(200, json("Reloaded", "The changes."))],
        reasons: RELOAD_REASONS,
        handler: || post(reload),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/metrics",
        summary: "Metrics",
        description: "All metrics in the OpenMetrics text format, for Prometheus.",
        responses: &[(200, body(crate::metrics::CONTENT_TYPE, None, "The metrics."))],
        reasons: &[INTERNAL],
        handler: || get(show_metrics),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/healthz",
        summary: "Health check",
        description: "Reports that the process runs, also while it shuts down. It never requires a token.",
        responses: &[(200, text("`ok`."))],
        reasons: &[],
        requires_token: false,
        handler: || get(healthz),
        ..COMMAND
    },
    Operation {
        method: "GET",
        path: "/readyz",
        summary: "Readiness check",
        description: "Reports whether load balancers should choose the server for new clients. It never requires a token.",
        responses: &[
            (
                200,
                text("`ready`. In a cluster whose engine can't be reached: `ready; engine away since TIME`."),
            ),
            (
                503,
                text(
                    "`shutting down`, or, with `cluster.unready_after`, `not ready; engine away since TIME`.",
                ),
            ),
        ],
        reasons: &[],
        requires_token: false,
        handler: || get(readyz),
        ..COMMAND
    },
];
