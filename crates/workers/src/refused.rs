//! Requests of clients that Stentor refuses itself: a worker that listens to them learns of some.
//!
//! **Bound.** [`REPORTS_MAX`] in a second for each application. Further ones aren't reported: a client can cause any number.

use crate::known::request;
use std::time::{Duration, Instant};
use stentor_link::Json;
use stentor_ports::LinkRefused;

/// Maximum number of reports in a second.
pub(crate) const REPORTS_MAX: u32 = 20;

const SECOND: Duration = Duration::from_secs(1);

/// Number of reports in the current second.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reports {
    begun: Option<Instant>,
    count: u32,
}

impl Reports {
    /// Counts a report. Returns `false` if there were too many.
    pub(crate) fn admit(&mut self, now: Instant) -> bool {
        if self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= SECOND) {
            *self = Self { begun: Some(now), count: 0 };
        }
        self.count += 1;
        self.count <= REPORTS_MAX
    }
}

/// The body of CONN_ERROR.
pub(crate) fn body(refused: &LinkRefused) -> Option<Json> {
    let LinkRefused { code, message, context: (name, value), request: handshake, .. } = refused;
    let value = match value.parse::<u8>() {
        Ok(protocol) if *name == "protocol" => serde_json::Value::from(protocol),
        _ => serde_json::Value::from(&**value),
    };
    let error =
        serde_json::json!({ "code": code, "message": message, "context": { *name: value } }).to_string();
    Json::new(format!(r#"{},"req":{}}}"#, error.strip_suffix('}')?, request(handshake).as_str()))
}
