//! Questions to the other nodes of a cluster about clients that have returned to this one.
//!
//! ```text
//!  begin ── a node has the socket ──► found ── its broadcasts have arrived ──► finished
//!     ├──── a node has the socket, but found ones that wait are too large ───► finished: not found
//!     ├──── all nodes have answered, or have left ───────────────────────────► finished: not found
//!     └──── [`SEARCH_TIME`], the engine is lost ─────────────────────────────► finished: not found
//! ```

use crate::recovery::{Given, Had, Key};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use stentor_link::Handle;
use stentor_ports::LinkSession;

/// Maximum time until the other nodes' answers. Then the client starts a new session.
const SEARCH_TIME: Duration = Duration::from_secs(2);
/// Maximum number of open questions.
const SEARCHES_MAX: usize = 1_024;
/// Maximum length of a private id, and of an offset, in bytes. Socket.IO's have about 20.
const ID_BYTES_MAX: usize = 128;
/// Maximum size of the sockets that wait for broadcasts. A client whose socket exceeds it starts a new session.
const FOUND_BYTES_MAX: usize = 16 << 20;
/// Bytes that a question takes beside its texts, and for each node that hasn't answered.
const SEARCH_BYTES: usize = 256;
const NODE_BYTES: usize = 16;

/// The client, and the worker's request.
pub(crate) struct Asker {
    pub(crate) app: usize,
    pub(crate) session: LinkSession,
    /// The link of the session's worker, and the session's handle there.
    pub(crate) owner: (u32, Handle),
    /// Number of RESTORE.
    pub(crate) request: u32,
    pub(crate) key: Key,
}

/// A socket of another node, and the broadcasts that this node has had.
pub(crate) type Found = (Given, Had);

struct Search {
    asker: Asker,
    /// Nodes that haven't answered.
    waiting: BTreeSet<u64>,
    found: Option<Found>,
    /// Size of the found socket.
    found_bytes: usize,
    until: Instant,
}

/// A question that is finished. `None`: no node has the socket.
pub(crate) type Finished = (Asker, Option<Found>);

/// The open questions, by number.
#[derive(Default)]
pub(crate) struct Searches {
    open: BTreeMap<u32, Search>,
    last: u32,
}

impl Searches {
    /// Begins a question to these nodes. Returns its number.
    ///
    /// # Errors
    /// No node can answer, too many questions are open, or a text is too long: the asker is returned.
    pub(crate) fn begin(
        &mut self,
        asker: Asker,
        offset: &str,
        nodes: BTreeSet<u64>,
        now: Instant,
    ) -> Result<u32, Asker> {
        let is_long = asker.key.1.len() > ID_BYTES_MAX || offset.len() > ID_BYTES_MAX;
        if nodes.is_empty() || is_long || self.open.len() >= SEARCHES_MAX {
            return Err(asker);
        }
        self.last = self.last.wrapping_add(1);
        let search = Search { asker, waiting: nodes, found: None, found_bytes: 0, until: now + SEARCH_TIME };
        self.open.insert(self.last, search);
        Ok(self.last)
    }

    /// The application of a question that waits for a node's answer.
    pub(crate) fn app_of(&self, number: u32, node: u64) -> Option<usize> {
        let search = self.open.get(&number)?;
        search.waiting.contains(&node).then_some(search.asker.app)
    }

    /// A node doesn't have the socket.
    pub(crate) fn handle_none(&mut self, number: u32, node: u64) -> Option<Finished> {
        let search = self.open.get_mut(&number)?;
        (search.waiting.remove(&node) && search.waiting.is_empty()).then_some(())?;
        self.finish(number)
    }

    /// A node has given the socket. The question is finished at `until`, or now and without the socket if too much waits.
    pub(crate) fn handle_found(&mut self, number: u32, found: Found, until: Instant) -> Option<Finished> {
        let found_bytes = found.0.bytes() + found.1.bytes();
        let waiting: usize = self.open.values().map(|search| search.found_bytes).sum();
        if waiting + found_bytes > FOUND_BYTES_MAX {
            return self.finish(number);
        }
        let search = self.open.get_mut(&number)?;
        search.waiting.clear();
        (search.found, search.found_bytes, search.until) = (Some(found), found_bytes, until);
        None
    }

    fn finish(&mut self, number: u32) -> Option<Finished> {
        self.open.remove(&number).map(|search| (search.asker, search.found))
    }

    /// A node has left. Returns the questions that are finished.
    pub(crate) fn handle_left(&mut self, node: u64) -> Vec<Finished> {
        let numbers: Vec<u32> = self.open.keys().copied().collect();
        numbers.into_iter().filter_map(|number| self.handle_none(number, node)).collect()
    }

    /// The engine is lost: no answer arrives.
    pub(crate) fn end_all(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.open).into_values().map(|search| (search.asker, search.found)).collect()
    }

    /// The questions that are finished now.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<Finished> {
        let due = self.open.iter().filter(|(_, search)| search.until <= now).map(|(number, _)| *number);
        due.collect::<Vec<_>>().into_iter().filter_map(|number| self.finish(number)).collect()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.open.values().map(|search| search.until).min()
    }

    /// Number of open questions of an application.
    pub(crate) fn count(&self, app: usize) -> usize {
        self.open.values().filter(|search| search.asker.app == app).count()
    }

    /// Bytes that the questions hold.
    pub(crate) fn bytes(&self) -> usize {
        let of_search = |search: &Search| {
            let waiting = search.waiting.len() * NODE_BYTES;
            SEARCH_BYTES + search.asker.key.1.len() + waiting + search.found_bytes
        };
        self.open.values().map(of_search).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::{Origins, Persisted};
    use stentor_link::Json;
    use stentor_ports::LinkMessages;

    fn asker(pid: &str) -> Asker {
        let (session, owner) = (LinkSession::from_bits(1), (1, Handle(1)));
        Asker { app: 0, session, owner, request: 1, key: ("/".into(), pid.into()) }
    }

    #[test]
    fn found_sockets_that_wait_are_bounded() {
        let (mut searches, now) = (Searches::default(), Instant::now());
        let mut add = || {
            let Ok(number) = searches.begin(asker("p"), "o", [1].into(), now) else {
                panic!("there is room")
            };
            let data = Json::new(format!("\"{}\"", "x".repeat(1 << 20))).unwrap();
            let socket = Persisted { id: "id".into(), rooms: Vec::new(), data, brought: None };
            let given = Given { socket, missed: LinkMessages::new(), last: "o".into() };
            let had = Had::read(&Origins::default().report(1), 1);
            searches.handle_found(number, (given, had), now + SEARCH_TIME)
        };
        assert!((0..15).all(|_| add().is_none()));
        assert!(add().is_some_and(|(_, found)| found.is_none()));
        assert!(searches.bytes() > 15 << 20);
        let finished = searches.handle_timeout(now + SEARCH_TIME);
        assert!(finished.len() == 15 && finished.iter().all(|(_, found)| found.is_some()));
    }

    #[test]
    fn questions_are_bounded_and_end_in_time() {
        let (mut searches, now) = (Searches::default(), Instant::now());
        let long = "x".repeat(ID_BYTES_MAX + 1);
        for (pid, offset, nodes) in [(&*long, "o", 1), ("p", &*long, 1), ("p", "o", 0)] {
            let nodes = (0..nodes).collect();
            assert!(searches.begin(asker(pid), offset, nodes, now).is_err());
        }
        let begin = |searches: &mut Searches| searches.begin(asker("p"), "o", [1, 2].into(), now).ok();
        let numbers: Vec<u32> = (0..SEARCHES_MAX).filter_map(|_| begin(&mut searches)).collect();
        assert_eq!((numbers.len(), begin(&mut searches)), (SEARCHES_MAX, None));
        assert!(searches.handle_none(numbers[0], 1).is_none());
        assert!(searches.handle_none(numbers[0], 1).is_none(), "a node counts once");
        assert!(searches.handle_none(numbers[0], 2).is_some_and(|(_, found)| found.is_none()));
        assert!(searches.handle_none(numbers[1], 2).is_none());
        assert_eq!(searches.handle_left(1).len(), 1);
        assert_eq!(searches.poll_timeout(), Some(now + SEARCH_TIME));
        assert_eq!(searches.handle_timeout(now + SEARCH_TIME - Duration::from_millis(1)).len(), 0);
        assert_eq!(searches.handle_timeout(now + SEARCH_TIME).len(), SEARCHES_MAX - 2);
        assert_eq!((searches.bytes(), searches.poll_timeout()), (0, None));
    }
}
