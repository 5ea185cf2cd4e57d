//! Values of replies, and errors in them.

use redis::{RedisError, ServerError, Value};

/// A reply that is a text.
pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Explains an error of the server, for people.
pub(super) fn explain(error: ServerError) -> String {
    let error = RedisError::from(error);
    match error.code() {
        Some("NOPERM") => {
            format!("the user lacks a permission (see \"Permissions\" in docs/cluster.md): {error}")
        }
        Some("NOAUTH" | "WRONGPASS") => format!("the server refused the credentials: {error}"),
        _ => error.to_string(),
    }
}
