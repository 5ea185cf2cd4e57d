//! Clients that leave: their sockets are kept for their return, unless they leave on purpose.

use super::Applications;
use crate::recovery::{Closed, Persisted};
use std::time::Instant;
use stentor_ports::{LinkMessage, LinkMessages, LinkSession, LinkSocket};

/// Returns `true` if a client's packet leaves a namespace. It has no attachments.
pub(super) fn is_disconnect(unit: &LinkMessages) -> bool {
    matches!(unit.first(), Some(LinkMessage::Text(packet)) if packet.first() == Some(&b'1'))
}

impl Applications {
    /// Counts what a link's worker has acknowledged. The entries of its frames with these acknowledgements, such as PERSIST, have been carried
    /// out.
    pub(super) fn acknowledge(&mut self, app: usize, link: u32) {
        if let Some(found) = self.applications[app].link(link) {
            self.recoveries[app].unreported.acknowledge(link, found.forgotten());
        }
    }

    /// Keeps the sockets of an ended session, so that its client can recover them. The worker's PERSIST replaces what is kept
    /// here. `worker`: the link of the session's worker, and the count of the frame with the session's last message.
    pub(super) fn keep(
        &mut self,
        app: usize,
        session: LinkSession,
        worker: Option<(u32, u64)>,
        sockets: Vec<LinkSocket>,
        now: Instant,
    ) {
        let (Some(known), Some(ttl)) = (self.sessions.get(session), self.recoveries[app].ttl) else { return };
        let link = worker.and_then(|(link, message)| Some((self.applications[app].link(link)?, message)));
        for LinkSocket { namespace, id, rooms } in sockets {
            if let Some((pid, data, brought)) = known.kept(&namespace) {
                let (key, socket) = ((namespace, pid), Persisted { id, rooms, data, brought });
                match link {
                    None => self.recoveries[app].persist(key, socket, (now, ttl)),
                    Some((link, message)) => {
                        let closed = Closed::of(link, message, now);
                        self.recoveries[app].leave(closed, key, socket, (now, ttl));
                    }
                }
            }
        }
    }
}
