//! Requests and answers between the workers of an application.

use super::Applications;
use crate::nodes::ForeignLink;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Instant;
use stentor_link::{Entry, Json, Messages, Namespace, NodeEntry, ServerEntry};

impl Applications {
    /// Number of questions and answers of workers that didn't fit on the link of another worker.
    pub(crate) fn relays_dropped(&self) -> u64 {
        self.relays_dropped
    }

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
        if to == 0 || self.applications[app].link(to).is_none() {
            self.share_relay(app, (from, &name), to, body, messages);
        }
        for number in self.pass_on(app, (from, &name), to, (body, messages), now) {
            let Some(body) = no_part(body) else { return };
            let entry = ServerEntry::Relayed { namespace, link: number, body, messages: Messages::new() };
            self.applications[app].write_to_link(from, &entry, now);
        }
    }

    /// Passes a request or an answer of another node's worker on to a worker, or, with `to` = 0, to all that take sessions.
    pub(super) fn relay_of_node(
        &mut self,
        app: usize,
        from: ForeignLink,
        to: u32,
        namespace: &str,
        (body, messages): (&Json, &Messages),
        now: Instant,
    ) {
        let Some(sender) = self.nodes.as_mut().map(|nodes| nodes.number(from)) else { return };
        for number in self.pass_on(app, (sender, namespace), to, (body, messages), now) {
            let (Some(body), Some(nodes)) = (no_part(body), &mut self.nodes) else { return };
            let (node, to) = from;
            let (namespace, messages) = (namespace.into(), Messages::new());
            let answer = NodeEntry::Relay { from: number, to, namespace, body, messages };
            nodes.write(app, Some(node), &answer);
        }
    }

    /// Passes a request or an answer on to workers of this node. Returns those of all workers that haven't declared the namespace.
    fn pass_on(
        &mut self,
        app: usize,
        (from, namespace): (u32, &str),
        to: u32,
        (body, messages): (&Json, &Messages),
        now: Instant,
    ) -> Vec<u32> {
        let receives = |number: u32, takes_sessions: bool| match to {
            0 => number != from && takes_sessions,
            to => number == to,
        };
        let receivers: Vec<_> = self.applications[app]
            .links()
            .filter(|link| receives(link.number(), link.takes_sessions()))
            .map(|link| (link.number(), link.namespace_index(namespace)))
            .collect();
        let mut without = Vec::new();
        for (number, index) in receivers {
            let Some(namespace) = index else {
                without.push(number);
                continue;
            };
            let (body, messages) = (body.clone(), messages.clone());
            let entry = ServerEntry::Relayed { namespace, link: from, body, messages };
            // A full link is spared, because a worker must not be able to end the link of another. The asking worker reports a timeout.
            if self.has_room_for(app, number, entry.encoded_len()) {
                self.applications[app].write_to_link(number, &entry, now);
            } else {
                self.relays_dropped += 1;
            }
        }
        if to == 0 { without } else { Vec::new() }
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
