//! The list of the sessions with the fullest send buffers.

use crate::ports::{LIST_BYTES_MAX, SessionInfo, SessionList};
use std::collections::BTreeMap;

/// The sessions with the fullest send buffers of those that were found: at most `limit`, with about [`LIST_BYTES_MAX`] of
/// ids and names.
pub struct FullestSessions {
    /// Number of all sessions that were found.
    pub count: usize,
    limit: usize,
    /// The listed sessions, by the bytes in their send buffers and a consecutive number, because several may have equal bytes.
    sessions: BTreeMap<(usize, usize), SessionInfo>,
    /// Bytes of the ids and names in `sessions`.
    bytes: usize,
}

impl FullestSessions {
    pub(super) fn new(limit: usize) -> Self {
        Self { count: 0, limit, sessions: BTreeMap::new(), bytes: 0 }
    }

    /// `true` if the list takes a session with this many bytes in its send buffer.
    pub fn takes(&self, queued: usize) -> bool {
        !self.is_full() || self.least_queued().is_some_and(|least| least < queued)
    }

    /// Counts a session, and lists it in place of emptier ones if the list is full.
    pub fn add(&mut self, info: SessionInfo) {
        self.count += 1;
        let queued = info.details.send_buffer_bytes;
        while self.is_full() && self.least_queued().is_some_and(|least| least < queued) {
            let emptiest = self.sessions.pop_first();
            self.bytes -= emptiest.map_or(0, |(_, info)| info.bytes());
        }
        if !self.is_full() {
            self.bytes += info.bytes();
            self.sessions.insert((queued, self.count), info);
        }
    }

    /// Returns the list.
    pub fn into_list(self) -> SessionList {
        SessionList::new(self.sessions.into_values().collect(), self.count)
    }

    fn is_full(&self) -> bool {
        self.sessions.len() >= self.limit || self.bytes >= LIST_BYTES_MAX
    }

    fn least_queued(&self) -> Option<usize> {
        self.sessions.first_key_value().map(|((queued, _), _)| *queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SessionDetails;

    fn session(queued: usize, id_bytes: usize) -> SessionInfo {
        SessionInfo {
            id: "x".repeat(id_bytes),
            protocol: "websocket".into(),
            rooms: Vec::new(),
            handshake: None,
            details: SessionDetails { send_buffer_bytes: queued, ..SessionDetails::default() },
        }
    }

    fn queued(found: FullestSessions) -> Vec<usize> {
        found.into_list().sessions.iter().map(|info| info.details.send_buffer_bytes).collect()
    }

    #[test]
    fn a_full_list_keeps_the_fullest_sessions() {
        let mut found = FullestSessions::new(3);
        for n in [5, 0, 0, 0, 9, 5, 1, 7] {
            assert_eq!(found.takes(n), !matches!((found.count, n), (3.., 0 | 1)), "{n}");
            found.add(session(n, 1));
        }
        assert_eq!((found.count, found.bytes), (8, 3));
        assert_eq!(queued(found), [5, 7, 9]);
        assert!(!FullestSessions::new(0).takes(1));
    }

    #[test]
    fn the_list_is_bounded_in_bytes() {
        let mut found = FullestSessions::new(1_000);
        for n in 0..100 {
            found.add(session(n, LIST_BYTES_MAX / 4));
        }
        assert_eq!(queued(found), [96, 97, 98, 99]);
        let mut found = FullestSessions::new(1_000);
        (0..100).for_each(|_| found.add(session(0, LIST_BYTES_MAX / 100)));
        (1..10).for_each(|n| found.add(session(n, LIST_BYTES_MAX)));
        assert!(found.bytes <= 2 * LIST_BYTES_MAX, "{}", found.bytes);
        assert_eq!(found.count, 109);
    }
}
