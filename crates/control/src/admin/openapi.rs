//! The OpenAPI 3.1 document of the admin API (docs/openapi.json), generated from [`api`].
//!
//! The schemas of bodies are written here by hand. `tests/clients/admin-api.test.mjs` validates the document,
//! and validates the responses of a running server against it.

mod parameters;

use super::api::{self, Operation};
use super::commands::NAMES_MAX;
use super::keys::KEYS_LISTED_MAX;
use super::publish::{EVENT_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX};
use super::reason::{self, Reason};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use stentor_hub::{MEMBERS_LISTED_MAX, ROOM_BYTES_MAX};
use stentor_ports::{ENDED_LISTED_MAX, SESSIONS_LISTED_MAX};

/// Returns the document.
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for operation in &api::OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.to_ascii_lowercase()] = self::operation(operation);
    }
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Stentor admin API",
            "version": "1",
            "description": "Publishes messages to rooms, acts on sessions, pushes documents into feeds, and reports the state of the server. \
                            Errors have a JSON body with a `code` for programs and a `message` for humans. An unknown path is \
                            answered with 404 and the code `route`, an unsupported method with 405 and the code `method`. \
                            `HEAD` works wherever `GET` does.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8001", "description": "`server.admin`, by default"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`server.admin_token`. Required if the server has one; an address beyond loopback requires one.",
                },
            },
            "schemas": schemas(),
        },
    })
}

fn operation(operation: &Operation) -> Value {
    let id = operation.summary.to_ascii_lowercase().replace(' ', "_");
    let mut value = json!({
        "operationId": id,
        "summary": operation.summary,
        "description": operation.description,
        "responses": responses(operation),
    });
    if !operation.requires_token {
        value["security"] = json!([]);
    }
    if let Some(parameters) = parameters::of(operation) {
        value["parameters"] = parameters;
    }
    if !operation.requests.is_empty() {
        let content = operation.requests.iter().map(|body| (body.content_type.to_owned(), media_type(body)));
        value["requestBody"] = json!({"required": true, "content": content.collect::<Map<_, _>>()});
    }
    value
}

fn media_type(body: &api::Body) -> Value {
    match body.schema {
        Some(name) => json!({"schema": {"$ref": format!("#/components/schemas/{name}")}}),
        None => json!({"schema": {"type": "string", "description": body.meaning}}),
    }
}

fn responses(operation: &Operation) -> Value {
    // A status may have several reasons.
    let mut refusals: BTreeMap<u16, Vec<&Reason>> = BTreeMap::new();
    // An operation that needs no token can't be refused because of the token.
    let common =
        reason::COMMON_REASONS.iter().filter(|reason| operation.requires_token || **reason != reason::TOKEN);
    for reason in common.chain(operation.reasons) {
        refusals.entry(reason.status()).or_default().push(reason);
    }
    let mut responses = Map::new();
    for (status, body) in operation.responses {
        responses.insert(
            status.to_string(),
            json!({"description": body.meaning, "content": {body.content_type: media_type(body)}}),
        );
    }
    // The error of an NDJSON body also has the number of published messages.
    let in_lines = operation.requests.iter().any(|body| body.content_type == "application/x-ndjson");
    for (status, reasons) in refusals {
        let codes: Vec<_> = reasons.iter().map(|reason| reason.code).collect();
        let meanings: Vec<_> =
            reasons.iter().map(|reason| format!("`{}`: {}", reason.code, reason.meaning)).collect();
        let error = json!({
            "$ref": "#/components/schemas/Error",
            "properties": {"code": {"enum": codes}},
        });
        let is_in_lines = in_lines && reasons.iter().any(|reason| operation.reasons.contains(reason));
        let schema = if is_in_lines {
            json!({"oneOf": [error, {"$ref": "#/components/schemas/PublishError"}]})
        } else {
            error
        };
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({"description": ""}));
        let description = match response["description"].as_str() {
            Some(other) if !other.is_empty() => format!("{other} {}", meanings.join(" ")),
            _ => meanings.join(" "),
        };
        response["description"] = description.into();
        response["content"]["application/json"] = json!({"schema": schema});
    }
    Value::Object(responses)
}

/// Makes the schema of a command, with the fields that select sessions and the fields in `own`.
fn command(required: &[&str], own: Value, example: Value) -> Value {
    let names = |items: &str, description: &str| {
        json!({
            "type": "array", "maxItems": NAMES_MAX, "description": description,
            "items": {"$ref": format!("#/components/schemas/{items}")},
        })
    };
    let mut properties = json!({
        "app": {
            "type": "string",
            "description": "The sockets of this application of `[[links]]`. `sessions` are then ids of sockets.",
        },
        "namespace": {"type": "string", "default": "/", "description": "The namespace of the sessions."},
        "rooms": names("RoomName", "The members of any of these rooms."),
        "sessions": names("SessionId", "These sessions. Unknown ids are ignored."),
        "except": {
            "type": "object",
            "additionalProperties": false,
            "description": "Sessions to leave out.",
            "properties": {
                "rooms": names("RoomName", "The members of any of these rooms."),
                "sessions": names("SessionId", "These sessions."),
            },
        },
    });
    if let (Some(properties), Value::Object(own)) = (properties.as_object_mut(), own) {
        properties.extend(own);
    }
    json!({
        "type": "object",
        "description": "`rooms`, `sessions` or `namespace` is required. Without `rooms` and `sessions`, it concerns all Socket.IO clients of \
                        the namespace. A command names at most 1,000 rooms and sessions.",
        "required": required,
        "anyOf": [{"required": ["rooms"]}, {"required": ["sessions"]}, {"required": ["namespace"]}],
        "properties": properties,
        "additionalProperties": false,
        "examples": [example],
    })
}

fn data() -> Value {
    json!({"description": "Any JSON value, passed on as written."})
}

fn arguments() -> Value {
    json!({
        "type": ["array", "null"],
        "description": "In place of `data`: the arguments of `event`, any JSON values, for Socket.IO clients. Others receive the first one.",
    })
}

/// Returns the schemas of the commands for sessions.
fn command_schemas() -> Value {
    let room_names = json!({"type": "array", "minItems": 1, "maxItems": NAMES_MAX, "items": {"$ref": "#/components/schemas/RoomName"}});
    let event = json!({
        "type": ["string", "null"],
        "maxLength": EVENT_BYTES_MAX,
        "description": "The name of the event. Socket.IO clients receive `message` if there is none.",
    });
    let volatile = json!({"type": "boolean", "default": false, "description": "Skips sessions that aren't ready to receive."});
    let ack = json!({
        "type": "object", "additionalProperties": false, "required": ["timeout"],
        "description": "Waits for the acknowledgements of Socket.IO clients.",
        "properties": {"timeout": {"type": "string", "pattern": "^[0-9]+ *(ms|s)$", "description": "At most `60s`.", "examples": ["2s"]}},
    });
    let close = json!({"type": "boolean", "default": false, "description": "Ends the connections of Socket.IO clients too."});
    let limit = json!({
        "type": "integer", "minimum": 0, "maximum": SESSIONS_LISTED_MAX, "default": 100,
        "description": "How many sessions to list. Others are counted only.",
    });
    let id = "nSp4eVh0Zr_L3kW9tQ2b";
    json!({
        "RoomName": {"type": "string", "minLength": 1, "maxLength": ROOM_BYTES_MAX},
        "SessionId": {"type": "string", "description": "The session's id, as its client knows it.", "examples": [id]},
        "Emit": command(
            &[],
            json!({
                "event": event,
                "data": data(),
                "args": arguments(),
                "volatile": volatile,
                "ack": ack,
            }),
            json!({
                "rooms": ["lobby", "vip"], "except": {"rooms": ["muted"]}, "event": "news", "data": {"text": "hello"},
            }),
        ),
        "Join": command(&["join"], json!({"join": room_names}), json!({"sessions": [id], "join": ["lobby"]})),
        "Leave": command(&["leave"], json!({"leave": room_names}), json!({"rooms": ["lobby"], "leave": ["lobby"]})),
        "Disconnect": command(&[], json!({"close": close}), json!({"sessions": [id], "close": true})),
        "SessionsQuery": command(&[], json!({"limit": limit}), json!({"rooms": ["lobby"], "limit": 10})),
    })
}

fn schemas() -> Value {
    let parts = [other_schemas(), command_schemas(), list_schemas(), fetch_schemas()];
    let parts =
        parts.into_iter().filter_map(|part| if let Value::Object(part) = part { Some(part) } else { None });
    Value::Object(parts.flatten().collect())
}

/// Makes the schema of an object with these properties. All are required, and no others are allowed.
fn object(properties: Value) -> Value {
    object_with(&[], properties)
}

/// Makes the schema of an object with these properties, of which some are optional. No others are allowed.
fn object_with(optional: &[&str], properties: Value) -> Value {
    let names = properties.as_object().into_iter().flat_map(Map::keys);
    let required: Vec<_> = names.filter(|name| !optional.contains(&name.as_str())).cloned().collect();
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}

fn missing_nodes() -> Value {
    json!({
        "type": "array",
        "items": {"type": "string"},
        "description": "Names of nodes of the cluster that didn't answer in time. Absent if there is none.",
    })
}

/// Returns the schemas of lists.
fn list_schemas() -> Value {
    let (text, count) = (json!({"type": "string"}), json!({"type": "integer", "minimum": 0}));
    json!({
        "Sessions": object_with(&["ended", "missing_nodes"], json!({
            "sessions": {"type": "array", "maxItems": SESSIONS_LISTED_MAX, "items": {"$ref": "#/components/schemas/Session"}},
            "ended": {
                "type": "array", "maxItems": ENDED_LISTED_MAX, "items": {"$ref": "#/components/schemas/EndedSession"},
                "description": "Sessions that `sessions` of the request names and that have ended, if their node still has their timelines. Absent if there is none, and in `GET /api/v1/sessions`.",
            },
            "count": {"type": "integer", "minimum": 0, "description": "All sessions, listed or not, without ended ones."},
            "truncated": {"type": "boolean", "description": "Whether there are more than listed."},
            "missing_nodes": missing_nodes(),
        })),
        "User": object(json!({
            "id": {"type": "string", "description": "`sub` of its token."},
            "issuer": {"type": "string", "description": "`iss` of its token."},
        })),
        "Session": object_with(&["node", "app", "namespace", "user", "info", "address", "since", "transport", "feeds", "timeline"], json!({
            "id": {"$ref": "#/components/schemas/SessionId"},
            "protocol": {"type": "string", "description": "As in `stentor_sessions_by_protocol`."},
            "rooms": {"type": "array", "items": text},
            "node": {"type": "string", "description": "The name of its node. Only in `GET /api/v1/sessions`, in a cluster."},
            "app": {"type": "string", "description": "The application whose workers have it (`[[links]]`). Only in `GET /api/v1/sessions`."},
            "namespace": {"type": "string", "description": "Its namespace. Only in `GET /api/v1/sessions`."},
            "user": {"$ref": "#/components/schemas/User"},
            "info": {"description": "What others may know of the client."},
            "address": {"type": "string", "description": "The client's address; of IPv6, the /64 network."},
            "since": {"type": "integer", "minimum": 0, "description": "When the session began, in seconds since 1970."},
            "transport": {
                "enum": ["websocket", "polling", "stream", "none"],
                "description": "How a client that outlives its connections is connected now. `none`: it is between two polls, or disconnected.",
            },
            "feeds": {
                "type": "array",
                "description": "Its feeds, each with the offset of the newest version that the client may have. Not in `GET /api/v1/sessions`.",
                "items": object(json!({"key": text, "offset": {"type": "integer", "minimum": 0}})),
            },
            "timeline": {
                "type": "array",
                "description": "Its last events, oldest first: changes of the transport, and requests and messages that were refused or dropped. Only of the first 10 sessions, and not in `GET /api/v1/sessions`. [operate.md](operate.md#timelines-of-sessions) lists the events.",
                "items": {"$ref": "#/components/schemas/SessionEvent"},
            },
            "send_buffer_bytes": {"type": "integer", "minimum": 0, "description": "Bytes that wait until the client reads."},
        })),
        "EndedSession": object(json!({
            "id": {"$ref": "#/components/schemas/SessionId"},
            "protocol": {"type": "string", "description": "As in `stentor_sessions_by_protocol`."},
            "address": {"type": "string", "description": "The client's address; of IPv6, the /64 network."},
            "since": {"type": "integer", "minimum": 0, "description": "When the session began, in seconds since 1970."},
            "ended": {"type": "integer", "minimum": 0, "description": "When the session ended, in seconds since 1970."},
            "timeline": {"type": "array", "description": "Its last events, as of a session that goes on, and its end (`ended`).", "items": {"$ref": "#/components/schemas/SessionEvent"}},
        })),
        "SessionEvent": object_with(&["reason"], json!({
            "event": {"enum": [
                "upgraded", "subscription_refused", "publication_refused", "request_refused", "rate_limited", "deliveries_dropped",
                "protocol_error", "ended",
            ]},
            "reason": {"type": "string", "description": "The new transport, the code of the error, the limit, or the reason for the end. Absent if there is none, and for codes that a hook chose."},
            "count": {"type": "integer", "minimum": 1, "description": "How often it happened."},
            "first": {"type": "integer", "minimum": 0, "description": "When it happened first, in seconds since 1970."},
            "last": {"type": "integer", "minimum": 0, "description": "When it happened last, in seconds since 1970."},
        })),
        "Feeds": object_with(&["missing_nodes"], json!({
            "feeds": {"type": "array", "maxItems": KEYS_LISTED_MAX, "items": {"$ref": "#/components/schemas/Feed"}},
            "count": {"type": "integer", "minimum": 0, "description": "All keys, listed or not. A key with a pushed document that isn't listed counts once for each node with subscribers."},
            "truncated": {"type": "boolean", "description": "Whether there are more than listed."},
            "missing_nodes": missing_nodes(),
        })),
        "Feed": object_with(&["node", "upstream", "url", "reason", "failures", "fetch_seconds", "failing_since", "last_success", "next_fetch", "subscribers"], json!({
            "key": text,
            "node": {"type": "string", "description": "The name of the node that fetches it. Only in a cluster."},
            "pushed": {"type": "boolean", "description": "Whether its document was pushed. The fields from `upstream` on are absent then."},
            "upstream": {"type": "string", "description": "The name of its `[[feeds]]` section."},
            "url": {"type": "string", "description": "Its URL, with `***` in place of secrets."},
            "state": {
                "enum": ["cold", "live", "stale", "complete", "not_found"],
                "description": "As clients receive it. `cold`: it waits for its first document.",
            },
            "reason": {"type": "string", "description": "The reason for the state, if there is one."},
            "failures": {"type": "integer", "minimum": 0, "description": "Failed fetches in a row."},
            "fetch_seconds": {"type": "number", "minimum": 0, "description": "Duration of the last fetch."},
            "failing_since": {"type": "integer", "minimum": 0, "description": "When the first of these fetches failed, in seconds since 1970."},
            "last_success": {"type": "integer", "minimum": 0, "description": "When the last successful fetch ended, in seconds since 1970."},
            "next_fetch": {"type": "integer", "minimum": 0, "description": "When it is fetched next, in seconds since 1970. Absent during a fetch."},
            "document_bytes": {"type": "integer", "minimum": 0, "description": "Size of the document."},
            "subscribed": {"type": "boolean", "description": "Whether it has subscribers. Without, it is forgotten after `feeds_limits.idle_ttl`."},
            "subscribers": {"type": "integer", "minimum": 0, "description": "Sessions that are subscribed to it, on all nodes. A session whose client is disconnected counts until it ends. Absent while a core is overloaded."},
        })),
        "Members": object_with(&["next", "missing_nodes"], json!({
            "members": {"type": "array", "maxItems": MEMBERS_LISTED_MAX, "items": object_with(&["user", "info"], json!({
                "session": {"$ref": "#/components/schemas/SessionId"},
                "user": {"$ref": "#/components/schemas/User"},
                "info": {"description": "What others may know of the client."},
                "since": {"type": "integer", "minimum": 0, "description": "When it joined, in seconds since 1970."},
            }))},
            "count": {"type": "integer", "minimum": 0, "description": "All members, listed or not."},
            "next": {"$ref": "#/components/schemas/SessionId", "description": "The `after` of the next page. Absent if there is none."},
            "missing_nodes": missing_nodes(),
        })),
        "Rooms": object_with(&["next", "missing_nodes"], json!({
            "rooms": {"type": "array", "items": object(json!({"name": text, "sessions": count}))},
            "next": {"type": "string", "description": "The `after` of the next page. Absent if there is none."},
            "missing_nodes": missing_nodes(),
        })),
    })
}

/// Returns the schemas of a fetch.
fn fetch_schemas() -> Value {
    let mut request = object(json!({"key": {"type": "string", "minLength": 1, "maxLength": 256}}));
    request["examples"] = json!([{"key": "scores/1"}]);
    json!({
        "FetchRequest": request,
        "Fetched": object(json!({
            "document": {"type": "boolean", "description": "Whether the API answered with a document."},
            "text": {"type": "string", "description": "A description of the fetch, for humans; it may change."},
        })),
    })
}

fn other_schemas() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    let name = json!({"type": "string", "minLength": 1, "maxLength": 256});
    let seconds = json!({"type": "integer", "minimum": 0, "description": "Seconds since 1970."});
    let text = json!({"type": "string"});
    let upstream = object(json!({
        "name": text, "fetches": count, "failures": count, "in_flight": count, "waiting": count,
        "rate_waits": count,
        "effective_interval_seconds": {"type": "number", "minimum": 0, "description": "Time between two fetches of a key: `poll_interval`, or longer as last measured."},
        "interval_set_by": {"enum": ["poll_interval", "max-age"], "description": "`max-age` if `Cache-Control` of the last response sets this time, within `max_age_min` and `max_age_max`."},
        "retry_after_seconds": {"type": "integer", "minimum": 0, "description": "So long the API asks for no requests (`Retry-After`)."},
        "limited_by": {"type": ["string", "null"], "description": "What makes this time longer than `poll_interval`: `concurrency_max`, `requests_per_second_max`, `feeds_limits.fetches_max`, `feeds_limits.fetches_bytes_max` or `response time`."},
        "last_failure": {"oneOf": [
            {"type": "null"},
            object(json!({"key": text, "message": text, "seconds_ago": count})),
        ]},
    }));
    json!({
        "Message": {
            "type": "object",
            "description": "`room`, `namespace` or both are required. Without `room`, all Socket.IO clients of the namespace receive \
                            the message. Other members are ignored.",
            "anyOf": [{"required": ["room"]}, {"required": ["namespace"]}],
            "oneOf": [{"required": ["data"]}, {"required": ["event", "args"]}],
            "properties": {
                "room": {"type": "string", "minLength": 1, "maxLength": ROOM_BYTES_MAX, "description": "A room, or the id of a session."},
                "namespace": {"type": "string", "default": "/", "examples": ["/chat"]},
                "event": {
                    "type": ["string", "null"],
                    "maxLength": EVENT_BYTES_MAX,
                    "description": "The name of the event. Socket.IO clients receive `message` if there is none.",
                },
                "data": data(),
                "args": arguments(),
                "idempotency_key": {
                    "type": ["string", "null"],
                    "minLength": 1,
                    "maxLength": IDEMPOTENCY_KEY_BYTES_MAX,
                    "pattern": "^[!-~]+$",
                    "description": "Of several messages to one room with the same key within five minutes, the first is published.",
                },
                "volatile": {"type": "boolean", "default": false, "description": "Skips sessions that aren't ready to receive."},
            },
            "examples": [{"room": "lobby", "event": "news", "data": {"text": "hello"}}],
        },
        "Published": object(json!({"published": count})),
        "PublishError": object(json!({
            "published": {"type": "integer", "minimum": 0, "description": "Messages published before the error."},
            "error": object(json!({
                "line": {"type": "integer", "minimum": 1, "description": "The invalid line; the first is 1."},
                "code": text,
                "message": text,
            })),
        })),
        "Concerned": object_with(&["refused", "acknowledgements", "missing", "missing_nodes"], json!({
            "sessions": count,
            "refused": {"type": "integer", "minimum": 1, "description": "Sessions that couldn't join a room. Absent if there is none."},
            "acknowledgements": {"type": "array", "items": {"type": "array"}, "description": "With `ack`: the arguments of each acknowledgement, in the order of their arrival."},
            "missing": {"type": "integer", "minimum": 0, "description": "With `ack`: Socket.IO clients without an acknowledgement here."},
            "missing_nodes": missing_nodes(),
        })),
        "Revocation": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "issuer": name,
                "subject": name,
                "token_id": name,
                "session": {"type": "string", "description": "A session's id."},
                "issued_before": seconds,
                "action": {"enum": ["disconnect", "refresh"], "default": "disconnect"},
            },
            "examples": [{"subject": "42"}],
        },
        "Revoked": object_with(&["missing_nodes"], json!({"sessions": count, "missing_nodes": missing_nodes()})),
        "Revocations": object(json!({
            "revocations": {
                "type": "array",
                "items": object_with(&["issuer", "subject", "token_id", "issued_before"], json!({
                    "issuer": name,
                    "subject": name,
                    "token_id": name,
                    "issued_before": seconds,
                    "kept_until": seconds,
                })),
            },
        })),
        "Nodes": object(json!({
            "nodes": {"type": "array", "items": object_with(&["address"], json!({
                "id": {"type": "string", "description": "Drawn at the node's start."},
                "name": {"type": "string", "description": "`cluster.node`."},
                "version": text,
                "address": {"type": "string", "description": "`cluster.advertise`. Absent if it isn't set."},
                "uptime_seconds": count,
                "connections": {"type": "integer", "minimum": 0, "description": "Connections of clients, a few seconds ago."},
                "this": {"type": "boolean", "description": "Whether it is the node that answers."},
            }))},
        })),
        "Links": object_with(&["missing_nodes"], json!({
            "links": {"type": "array", "items": object_with(&["node"], json!({
                "node": {"type": "string", "description": "`cluster.node` of the node that has the link. Absent without `[cluster]`."},
                "app": {"type": "string", "description": "`app` of the `[[links]]`."},
                "link": {"type": "integer", "minimum": 1, "description": "Number of the link, as the worker knows it. Links of several nodes may have the same."},
                "worker": {"type": "string", "description": "Name of the worker, which stays when its process is replaced."},
                "instance": {"type": "string", "description": "Id of the worker's process."},
                "state": {"enum": ["up", "draining", "lost", "ended"], "description": "`draining`: it hands its sessions over. `lost`: its connection is broken. `ended`: its connection closes."},
                "on_crash": {"enum": ["disconnect", "redeliver", "drop"], "description": "Policy for messages that the worker hasn't acknowledged when it crashes."},
                "sessions": {"type": "integer", "minimum": 0, "description": "Sessions of the worker."},
                "unacknowledged_bytes": {"type": "integer", "minimum": 0, "description": "Bytes that the worker hasn't acknowledged."},
            }))},
            "missing_nodes": missing_nodes(),
        })),
        "Reloaded": object(json!({
            "applied": {"type": "array", "items": text, "description": "The keys that changed and apply now, as `section.key`. Keys of a repeated section are one entry: `feeds`."},
            "restart_needed": {"type": "array", "items": text, "description": "The keys that changed and apply after a restart."},
            "warnings": {"type": "array", "items": text, "description": "Values that are valid, but likely not meant."},
        })),
        "Changed": object(json!({
            "changed": {"type": "boolean", "description": "`false`: the value equals the last one."},
        })),
        "Error": object(json!({
            "code": {"type": "string", "description": "For programs."},
            "message": {"type": "string", "description": "For humans; it may change."},
        })),
        "Overview": object(json!({
            "interval_ms": {"type": "integer", "minimum": 1, "description": "Time between two samples."},
            "times_ms": {"type": "array", "items": count, "description": "Unix times of the samples, in milliseconds. Each is greater than the last."},
            "charts": {"type": "array", "items": object(json!({
                "name": text,
                "unit": {"enum": ["count", "per_second", "bytes", "bytes_per_second", "seconds", "percent"], "description": "`percent`: of one processor."},
                "series": {"type": "array", "items": object(json!({
                    "name": text,
                    "values": {"type": "array", "items": {"type": ["number", "null"]}, "description": "One value per sample."},
                }))},
            }))},
            "findings": {"type": "array", "description": "What is wrong now, the worst first.", "items": object(json!({
                "severity": {"enum": ["error", "warning"], "description": "`error`: clients are affected now."},
                "code": {"type": "string", "description": "For programs."},
                "text": {"type": "string", "description": "For humans; it may change."},
                "document": {"type": "string", "description": "The document that helps: a path of this server, with an anchor."},
            }))},
        })),
        "Status": object(json!({
            "version": text,
            "ready": {"type": "boolean", "description": "Whether the server accepts clients."},
            "uptime_seconds": count,
            "publications": {"type": "integer", "minimum": 0, "description": "Messages published over the admin API."},
            "data_plane": {
                "type": "object",
                "description": "The data plane's metrics without `stentor_` and `_total`, summed over the cores. A metric with other labels is an object by their values.",
                "additionalProperties": {"oneOf": [count, {"type": "object", "additionalProperties": count}]},
            },
            "feeds": object(json!({
                "keys": count, "subscribed": count, "cold": count, "live": count, "stale": count, "complete": count,
                "not_found": count, "in_flight": count, "waiting": count, "documents_bytes": count,
            })),
            "upstreams": {
                "type": "array",
                "description": "One for each `[[feeds]]` section with a URL.",
                "items": upstream,
            },
            "process": {"oneOf": [
                {"type": "null", "description": "The figures can't be read."},
                object(json!({
                    "resident_bytes": count, "cpu_seconds": {"type": "number", "minimum": 0},
                    "file_descriptors": count, "file_descriptors_max": count,
                })),
            ]},
        })),
    })
}
