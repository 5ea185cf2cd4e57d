//! Notices to the application behind the server ([`NoticeSink`]). A session is reported at the end of the turn in which it
//! begins, because its identity is known only then. A session that ends within that turn isn't reported.
//!
//! **Bounds.** One entry per session, charged to the ledger with the sessions. A session waits at most one turn to be reported.

use super::Executor;
use crate::ports::network_of;
use crate::ports::{Notice, NoticeSink, PublicId, SessionRooms};
use std::collections::BTreeMap;
use std::sync::Arc;
use stentor_hub::{Attendance, SessionId, Topic};

/// Approximate size of an entry of [`Notices::known`] without the name of its namespace.
const ENTRY_BYTES: usize = 64;

/// A core's notices.
pub(crate) struct Notices {
    sink: Arc<dyn NoticeSink>,
    /// Sessions that have begun in this turn.
    opened: Vec<SessionId>,
    /// Sessions whose beginning was reported.
    known: BTreeMap<SessionId, (PublicId, Box<str>)>,
    /// Size of the names in `known`, in bytes.
    names_bytes: usize,
}

impl Notices {
    pub(crate) fn new(sink: Arc<dyn NoticeSink>) -> Box<Self> {
        Box::new(Self { sink, opened: Vec::new(), known: BTreeMap::new(), names_bytes: 0 })
    }

    pub(crate) fn wants_topics(&self) -> bool {
        self.sink.wants_topics()
    }

    /// The size of the entries of sessions, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.known.len() * ENTRY_BYTES + self.names_bytes
    }

    /// Removes the entry of a session.
    fn remove(&mut self, session: SessionId) -> Option<(PublicId, Box<str>)> {
        let entry = self.known.remove(&session);
        self.names_bytes -= entry.as_ref().map_or(0, |(_, namespace)| namespace.len());
        entry
    }

    /// Records that a session has begun.
    pub(super) fn opened(&mut self, session: SessionId) {
        self.opened.push(session);
    }
}

impl Executor {
    /// Reports the end of a session. Must be called before its identity is removed.
    pub(crate) fn report_end(&mut self, session: SessionId) {
        let Some(notices) = &mut self.notices else { return };
        notices.opened.retain(|opened| *opened != session);
        if let Some((id, namespace)) = notices.remove(session) {
            let identity = self.questions.identities.get(session).map(|identity| &**identity);
            let rooms = &SessionRooms::take(self.hub.rooms_of(session), notices.sink.rooms_max());
            notices.sink.notify(&Notice::Disconnected {
                session: id,
                namespace: &namespace,
                identity,
                rooms,
            });
        }
    }

    /// Records that a session continues on another core or node, so its end isn't reported.
    pub(crate) fn report_departure(&mut self, session: SessionId) {
        if let Some(notices) = &mut self.notices {
            notices.remove(session);
        }
    }

    /// Takes the sessions whose beginning hasn't been reported.
    pub(crate) fn take_opened(&mut self) -> Vec<SessionId> {
        self.notices.as_mut().map(|notices| std::mem::take(&mut notices.opened)).unwrap_or_default()
    }

    /// Reports the beginning of a session in a namespace.
    pub(crate) fn report_begin(&mut self, session: SessionId, protocol: &'static str, namespace: &str) {
        let id = self.public_id(session);
        let address = self.hub.source(session).map(|(source, _)| network_of(source));
        let Some(notices) = &mut self.notices else { return };
        notices.remove(session);
        notices.names_bytes += namespace.len();
        notices.known.insert(session, (id, namespace.into()));
        let identity = self.questions.identities.get(session).map(|identity| &**identity);
        let address = address.as_deref();
        notices.sink.notify(&Notice::Connected { session: id, identity, protocol, namespace, address });
    }

    /// Reports new subscriptions, and topics with their first subscriber or without subscribers.
    pub(crate) fn report_attendance(&mut self) {
        if self.notices.is_none() {
            return;
        }
        let all = self.hub.untracked().take_attendance();
        let Some(notices) = &self.notices else { return };
        let is_reported = |topic: &Topic| match topic {
            Topic::Feed(_) => true,
            Topic::Room(room) => !room.is_all_members(),
            Topic::Presence(_) => false,
        };
        for change in &all {
            match change {
                Attendance::Subscribed(session, topic) if is_reported(topic) => {
                    let Some((id, _)) = notices.known.get(session).cloned() else { continue };
                    let identity = self.questions.identities.get(*session).map(|identity| &**identity);
                    notices.sink.notify(&Notice::Subscribed { session: id, identity, topic });
                }
                Attendance::Occupied(topic) if is_reported(topic) => {
                    notices.sink.notify(&Notice::Occupied(topic));
                }
                Attendance::Vacated(topic) if is_reported(topic) => {
                    notices.sink.notify(&Notice::Vacated(topic));
                }
                _ => {}
            }
        }
    }
}
