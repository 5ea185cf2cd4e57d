//! Sockets of clients that have left, until their worker has handled CLOSED.
//!
//! ```text
//!  CLOSED ──► unreported ── PERSIST ───────────────────────► kept, as PERSIST has it
//!                  │ │ ├─── CLOSED acknowledged ───────────► forgotten: the socket can't be recovered
//!                  │ │ └─── the link ends ─────────────────► kept, as the cores and STATE have it
//!                  │ └───── RESTORE, after [`REPORT_TIME`] ► kept in the same way. A PERSIST that follows is late
//!                  ├─────── too old, evicted ──────────────► forgotten. A PERSIST that follows is late
//!                  └─────── the link ends, with a message of the session that isn't acknowledged (`disconnect`) ► forgotten
//! ```
//!
//! A worker writes PERSIST before it acknowledges CLOSED. While it may have handled a message of the session, no other worker gets the socket
//! (`disconnect`).

use super::{Brought, Key, Persisted, kept_bytes};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};
use stentor_link::{Link, OnCrash};

/// Time in which a worker reports the newest data of a socket. A worker that needs longer is blocked or hangs.
const REPORT_TIME: Duration = Duration::from_millis(250);

/// The end of a session, of which its worker was notified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(super) link: u32,
    /// Count of the frame with CLOSED.
    pub(super) frame: u64,
    /// Count of the last frame that a worker which crashes or hangs must have acknowledged: that of the session's last message, or 0.
    pub(super) needed: u64,
    pub(super) overdue_at: Instant,
}

impl Closed {
    /// The end of a session, which was the last thing that was written to its worker. `message`: count of the frame with the session's last
    /// message.
    pub(crate) fn of(link: &Link, message: u64, now: Instant) -> Self {
        let is_needed = link.on_crash() == OnCrash::Disconnect && message > link.forgotten();
        let needed = if is_needed { message } else { 0 };
        let overdue_at = if link.is_lost() { now } else { now + REPORT_TIME };
        Self { link: link.number(), frame: link.written(), needed, overdue_at }
    }
}

struct Entry {
    closed: Closed,
    key: Key,
    /// `None`: a client has recovered the socket, or PERSIST has arrived.
    socket: Option<Persisted>,
    until: Instant,
}

impl Entry {
    /// Takes the socket. The entry remains until the worker has handled CLOSED, so that a PERSIST that is late is known.
    fn take(&mut self, bytes: &mut usize) -> Option<Persisted> {
        let socket = self.socket.take()?;
        *bytes -= kept_bytes(&self.key.1, &socket);
        Some(socket)
    }
}

/// The entries of a link, in order.
#[derive(Default)]
struct OfLink {
    /// Count of the last frame that the worker has acknowledged with a frame that is handled ([`Link::forgotten`]).
    acknowledged: u64,
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    /// Number of the last entry of each socket.
    places: HashMap<Key, u64>,
    /// Count of the last frame with the CLOSED of an entry that was too old or evicted.
    dropped: u64,
}

impl OfLink {
    fn index(&self, key: &Key) -> Option<usize> {
        usize::try_from(self.places.get(key)?.checked_sub(self.first)?).ok()
    }

    /// The last entry of a socket.
    fn entry(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(self.index(key)?)
    }

    fn entry_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        let index = self.index(key)?;
        self.entries.get_mut(index)
    }

    /// The socket with this key, if the worker should have reported it and other workers may have it.
    fn overdue(&self, key: &Key, now: Instant) -> Option<&Persisted> {
        let Entry { closed, socket, until, .. } = self.entry(key)?;
        let is_overdue = closed.overdue_at <= now && closed.needed <= self.acknowledged;
        socket.as_ref().filter(|_| is_overdue && *until > now)
    }

    fn pop(&mut self, bytes: &mut usize) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        *bytes -= entry_bytes(&entry);
        if self.places.get(&entry.key) == Some(&self.first) {
            self.places.remove(&entry.key);
        }
        self.first += 1;
        Some(entry)
    }
}

/// The sockets of an application. At most one entry of a private id has a socket: the newest.
#[derive(Default)]
pub(crate) struct Unreported {
    bytes: usize,
    links: BTreeMap<u32, OfLink>,
}

/// Size of an entry of `places`, at the usual load between two doublings.
const PLACE_BYTES: usize = size_of::<(Key, u64)>() * 3 / 2;

fn entry_bytes(entry: &Entry) -> usize {
    let (namespace, pid) = &entry.key;
    let socket = entry.socket.as_ref().map_or(0, |socket| kept_bytes(pid, socket));
    size_of::<Entry>() + PLACE_BYTES + namespace.len() + 2 * pid.len() + socket
}

impl Unreported {
    /// Adds a socket.
    pub(super) fn add(&mut self, closed: Closed, key: Key, socket: Persisted, until: Instant) {
        // Reports of the client's earlier workers are late from now on.
        for entry in self.links.values_mut().filter_map(|of_link| of_link.entry_mut(&key)) {
            entry.take(&mut self.bytes);
        }
        let entry = Entry { closed, key, socket: Some(socket), until };
        self.bytes += entry_bytes(&entry);
        let of_link = self.links.entry(closed.link).or_default();
        let number = of_link.first + of_link.entries.len() as u64;
        of_link.places.insert(entry.key.clone(), number);
        of_link.entries.push_back(entry);
    }

    /// A worker reports a socket with PERSIST. `None` if it is late: the socket was recovered without it, is too old, or may have been
    /// evicted.
    pub(crate) fn report(&mut self, link: u32, key: &Key, now: Instant) -> Option<Option<Brought>> {
        let Some(of_link) = self.links.get_mut(&link) else { return Some(None) };
        let has_all = of_link.dropped <= of_link.acknowledged;
        let Some(entry) = of_link.entry_mut(key) else { return has_all.then_some(None) };
        let socket = entry.take(&mut self.bytes)?;
        (entry.until > now).then_some(socket.brought)
    }

    /// `true` if all workers have handled the ends of their sessions.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// `true` if there is a socket with this key.
    pub(super) fn has(&self, key: &Key) -> bool {
        let of_link = |of_link: &OfLink| of_link.entry(key).is_some_and(|entry| entry.socket.is_some());
        self.links.values().any(of_link)
    }

    /// The socket that its worker should have reported, and the worker's link.
    pub(super) fn overdue(&self, key: &Key, now: Instant) -> Option<(u32, &Persisted)> {
        self.links.iter().find_map(|(link, of_link)| Some((*link, of_link.overdue(key, now)?)))
    }

    /// Takes a socket: a client recovers it without its worker's report.
    pub(super) fn take(&mut self, link: u32, key: &Key) -> Option<(Persisted, Instant)> {
        let entry = self.links.get_mut(&link)?.entry_mut(key)?;
        Some((entry.take(&mut self.bytes)?, entry.until))
    }

    /// A worker has acknowledged the frames up to this count.
    pub(crate) fn acknowledge(&mut self, link: u32, count: u64) {
        let Some(of_link) = self.links.get_mut(&link) else { return };
        of_link.acknowledged = count;
        while of_link.entries.front().is_some_and(|entry| entry.closed.frame <= count) {
            of_link.pop(&mut self.bytes);
        }
        if of_link.entries.is_empty() && of_link.dropped <= count {
            self.links.remove(&link);
        }
    }

    fn oldest(&self) -> Option<(Instant, u32)> {
        self.links.iter().filter_map(|(link, of_link)| Some((of_link.entries.front()?.until, *link))).min()
    }

    /// The time at which the first entry is too old.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.oldest().map(|oldest| oldest.0)
    }

    /// Drops the entry that would be the first to be too old. Returns `true` if it had a socket.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let Some(of_link) = self.oldest().and_then(|oldest| self.links.get_mut(&oldest.1)) else {
            return false;
        };
        let Some(entry) = of_link.pop(&mut self.bytes) else { return false };
        of_link.dropped = entry.closed.frame;
        entry.socket.is_some()
    }

    /// A link has ended. Returns the sockets of its sessions that can be recovered.
    pub(crate) fn handle_end(&mut self, link: u32) -> Vec<(Key, Persisted, Instant)> {
        let Some(mut of_link) = self.links.remove(&link) else { return Vec::new() };
        let mut sockets = Vec::new();
        while let Some(Entry { closed, key, socket, until }) = of_link.pop(&mut self.bytes) {
            let socket = socket.filter(|_| closed.needed <= of_link.acknowledged);
            sockets.extend(socket.map(|socket| (key, socket, until)));
        }
        sockets
    }

    /// Bytes that the sockets hold.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
