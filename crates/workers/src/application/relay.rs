//! Requests and answers between the workers of an application.

use super::Applications;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Instant;
use stentor_link::{Json, Messages, Namespace, ServerEntry};

impl Applications {
    /// Passes a request or an answer on to another worker, or, with `to` = 0, to all others that take sessions.
    pub(super) fn relay(
        &mut self,
        app: usize,
        (from, namespace): (u32, Namespace),
        to: u32,
        body: &Json,
        messages: &Messages,
        now: Instant,
    ) {
        let Some(name) = self.name(app, from, namespace) else { return };
        let application = &mut self.applications[app];
        let receives = |number: u32, takes_sessions: bool| match to {
            0 => number != from && takes_sessions,
            to => number == to,
        };
        let receivers: Vec<_> = application
            .links()
            .filter(|link| receives(link.number(), link.takes_sessions()))
            .map(|link| (link.number(), link.namespace_index(&name)))
            .collect();
        for (number, index) in receivers {
            let entry = match index {
                Some(namespace) => ServerEntry::Relayed {
                    namespace,
                    link: from,
                    body: body.clone(),
                    messages: messages.clone(),
                },
                None => {
                    let Some(body) = no_part(body).filter(|_| to == 0) else { continue };
                    let entry =
                        ServerEntry::Relayed { namespace, link: number, body, messages: Messages::new() };
                    application.write_to_link(from, &entry, now);
                    continue;
                }
            };
            application.write_to_link(number, &entry, now);
        }
    }
}

/// The answer for a worker that hasn't the namespace of a request. `None`: no answer is expected.
fn no_part(body: &Json) -> Option<Json> {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    let Request { id } = serde_json::from_str(body.as_str()).ok()?;
    Json::new(format!(r#"{{"k":"none","id":{}}}"#, id.get()))
}
