//! Requests of clients that Stentor refuses itself: a worker that listens to them learns of some.
//!
//! **Bound.** [`REPORTS_MAX`] in a second for each application, which the cores check before they describe a request
//! ([`LinkApps::take_report`]). Further requests aren't reported: a client can cause any number.

use crate::known::request;
use std::time::{Duration, Instant};
use stentor_link::Json;
use stentor_ports::{LinkApp, LinkApps, LinkRefused};

/// Maximum number of reports in a second.
const REPORTS_MAX: u32 = 20;

const SECOND: Duration = Duration::from_secs(1);

/// The reports that the cores may make about an application.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reports {
    listens: bool,
    /// When the reports that were made are replaced. `None`: none were made.
    renewed_at: Option<Instant>,
}

impl Reports {
    /// Replaces the reports that were made a second ago. `listens` is `true` if the application has a worker that receives them.
    pub(crate) fn update(&mut self, listens: bool, app: LinkApp, apps: &LinkApps, now: Instant) {
        let is_other = std::mem::replace(&mut self.listens, listens) != listens;
        if is_other || self.renewed_at.is_some_and(|at| at <= now) {
            self.renewed_at = None;
            apps.set_reports(app, if listens { REPORTS_MAX } else { 0 });
        } else if listens && self.renewed_at.is_none() && apps.reports(app) < REPORTS_MAX {
            self.renewed_at = Some(now + SECOND);
        }
    }

    /// When [`Self::update`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.renewed_at
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
