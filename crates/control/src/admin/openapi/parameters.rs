//! The parameters of operations, in the path and in the query.

use crate::admin::api::Operation;
use crate::admin::keys::KEYS_LISTED_MAX;
use serde_json::{Value, json};
use stentor_hub::{MEMBERS_LISTED_MAX, ROOM_BYTES_MAX};
use stentor_ports::{ROOMS_LISTED_MAX, SESSIONS_LISTED_MAX};

/// Returns the parameters of an operation. `None` if it has none.
pub(super) fn of(operation: &Operation) -> Option<Value> {
    Some(match (operation.method, operation.path) {
        (_, path) if path.contains("{key}") => key_parameters(),
        (_, "/api/v1/rooms") => rooms_parameters(),
        (_, "/api/v1/rooms/members") => members_parameters(),
        ("GET", "/api/v1/sessions") => sessions_parameters(),
        (_, "/api/v1/feeds") => search_parameters(
            "Lists only keys that contain this text.",
            "How many keys to list.",
            KEYS_LISTED_MAX,
        ),
        (_, "/api/v1/overview") => json!([parameter(
            "after_ms",
            "Leaves out samples up to this Unix time, in milliseconds.",
            &json!({"type": "integer", "minimum": 0, "maximum": u64::MAX, "default": 0}),
        )]),
        _ => return None,
    })
}

fn key_parameters() -> Value {
    json!([
        {
            "name": "key",
            "in": "path",
            "required": true,
            "description": "The feed's key: 1 to 256 bytes, segments joined by `/`. Don't percent-encode the slashes.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 256},
        },
        parameter(
            "sequence",
            "Refuses the request if a higher number came before.",
            &json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
        ),
    ])
}

fn search_parameters(search: &str, limit: &str, maximum: usize) -> Value {
    json!([
        parameter("search", search, &json!({"type": "string", "maxLength": ROOM_BYTES_MAX})),
        parameter("limit", limit, &limit_of(maximum)),
    ])
}

fn sessions_parameters() -> Value {
    let text = json!({"type": "string", "maxLength": ROOM_BYTES_MAX});
    json!([
        parameter("search", "Lists only sessions whose id, user or address contains this text.", &text),
        parameter("user", "Lists only sessions of the user with exactly this id.", &text),
        parameter("issuer", "Lists only sessions of users with exactly this issuer.", &text),
        parameter(
            "address",
            "Lists only sessions from exactly this IPv4 address or IPv6 /64 network.",
            &text
        ),
        parameter("limit", "How many sessions to list.", &limit_of(SESSIONS_LISTED_MAX)),
    ])
}

fn parameter(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": schema})
}

fn limit_of(maximum: usize) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": maximum, "default": 100})
}

fn members_parameters() -> Value {
    let mut room = parameter("room", "The room.", &json!({"$ref": "#/components/schemas/RoomName"}));
    room["required"] = true.into();
    json!([
        room,
        parameter("namespace", "The namespace.", &json!({"type": "string", "default": "/"})),
        parameter(
            "after",
            "Lists only members after this session.",
            &json!({"$ref": "#/components/schemas/SessionId"})
        ),
        parameter("limit", "How many members to list.", &limit_of(MEMBERS_LISTED_MAX)),
    ])
}

fn rooms_parameters() -> Value {
    let text = json!({"type": "string", "maxLength": ROOM_BYTES_MAX});
    json!([
        parameter("app", "Lists the rooms of this application of `[[links]]`.", &json!({"type": "string"})),
        parameter("namespace", "The namespace.", &json!({"type": "string", "default": "/"})),
        parameter("prefix", "Lists only rooms whose names begin with this text.", &text),
        parameter("after", "Lists only rooms after this one.", &text),
        parameter("limit", "How many rooms to list.", &limit_of(ROOMS_LISTED_MAX)),
    ])
}
