//! Sockets whose clients have left, and whose workers haven't handled CLOSED yet.
//!
//! ```text
//!  CLOSED ──► unreported ── PERSIST ───────────────────────► kept, as PERSIST has it
//!                  │ │ ├─── CLOSED acknowledged ───────────► forgotten: the socket can't be recovered
//!                  │ │ └─── the link ends ─────────────────► kept, as the cores and STATE have it
//!                  │ └───── RESTORE, after [`REPORT_TIME`] ► kept in the same way. A PERSIST that follows is late
//!                  └─────── the link ends, with a message of the session that isn't acknowledged (`disconnect`) ► forgotten
//! ```
//!
//! A worker writes PERSIST before it acknowledges CLOSED. While it may have handled a message of the session, no other worker gets the socket
//! (`disconnect`).

use super::{Key, Persisted, kept_bytes};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};
use stentor_link::{Link, OnCrash};

/// Time in which a worker reports the newest data of a socket. A worker that needs longer is blocked or hangs.
const REPORT_TIME: Duration = Duration::from_millis(250);

/// The end of a session, of which its worker was notified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    link: u32,
    /// Count of the frame with CLOSED.
    frame: u64,
    /// Count of the last frame that a worker which crashes or hangs must have acknowledged: that of the session's last message, or 0.
    needed: u64,
    overdue_at: Instant,
}

impl Closed {
    /// The end of a session, which was the last thing that was written to its worker. `message`: count of the frame with the session's last
    /// message.
    pub(crate) fn of(link: &Link, message: u64, now: Instant) -> Self {
        let is_needed = link.on_crash() == OnCrash::Disconnect && message > link.acknowledged();
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

/// The entries of a link, in order.
#[derive(Default)]
struct OfLink {
    /// Count of the last frame that the worker has acknowledged.
    acknowledged: u64,
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
}

/// The sockets of an application.
pub(crate) struct Unreported {
    bytes_max: usize,
    bytes: usize,
    links: BTreeMap<u32, OfLink>,
    /// The link and the number of the last entry of each socket.
    places: HashMap<Key, (u32, u64)>,
}

fn entry_bytes(entry: &Entry) -> usize {
    let (namespace, pid) = &entry.key;
    let socket = entry.socket.as_ref().map_or(0, |socket| kept_bytes(pid, socket));
    size_of::<Entry>() + namespace.len() + pid.len() + socket
}

impl Unreported {
    /// `bytes_max`: size of the sockets. Above it, no further ones are added.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, links: BTreeMap::new(), places: HashMap::new() }
    }

    /// Adds a socket. Without effect if it has no private id.
    pub(crate) fn add(&mut self, closed: Closed, key: Key, socket: Persisted, until: Instant) {
        let entry = Entry { closed, key, socket: Some(socket), until };
        let bytes = entry_bytes(&entry);
        if entry.key.1.is_empty() || self.bytes + bytes > self.bytes_max {
            return;
        }
        self.bytes += bytes;
        let of_link = self.links.entry(closed.link).or_default();
        let number = of_link.first + of_link.entries.len() as u64;
        self.places.insert(entry.key.clone(), (closed.link, number));
        of_link.entries.push_back(entry);
    }

    /// The last entry of a socket, and the count of the last frame that its worker has acknowledged.
    fn find(&mut self, key: &Key) -> Option<(&mut Entry, u64)> {
        let (link, number) = self.places.get(key)?;
        let of_link = self.links.get_mut(link)?;
        let entry = of_link.entries.get_mut(usize::try_from(number.checked_sub(of_link.first)?).ok()?)?;
        Some((entry, of_link.acknowledged))
    }

    /// Takes the socket of an entry. The entry remains until the worker has handled CLOSED.
    fn take(&mut self, key: &Key, wanted: impl Fn(&Closed, u64) -> bool) -> Option<(Persisted, Instant)> {
        let (entry, _) =
            self.find(key).filter(|(entry, acknowledged)| wanted(&entry.closed, *acknowledged))?;
        let socket = entry.socket.take()?;
        let until = entry.until;
        self.bytes -= kept_bytes(&key.1, &socket);
        Some((socket, until))
    }

    /// A worker reports a socket with PERSIST. Returns `false` if it is late: the socket was recovered without it.
    pub(crate) fn report(&mut self, link: u32, key: &Key) -> bool {
        let is_known = self.find(key).is_some_and(|(entry, _)| entry.closed.link == link);
        !is_known || self.take(key, |_, _| true).is_some()
    }

    /// Takes a socket that its worker should have reported.
    pub(crate) fn take_overdue(&mut self, key: &Key, now: Instant) -> Option<(Persisted, Instant)> {
        self.take(key, |closed, acknowledged| closed.overdue_at <= now && closed.needed <= acknowledged)
    }

    /// A worker has acknowledged the frames up to this count.
    pub(crate) fn acknowledge(&mut self, link: u32, count: u64) {
        let Some(of_link) = self.links.get_mut(&link) else { return };
        of_link.acknowledged = count;
        while of_link.entries.front().is_some_and(|entry| entry.closed.frame <= count) {
            let Some(entry) = of_link.entries.pop_front() else { break };
            self.bytes -= entry_bytes(&entry);
            if self.places.get(&entry.key) == Some(&(link, of_link.first)) {
                self.places.remove(&entry.key);
            }
            of_link.first += 1;
        }
        if of_link.entries.is_empty() {
            self.links.remove(&link);
        }
    }

    /// A link has ended. Returns the sockets of its sessions that can be recovered.
    pub(crate) fn handle_end(&mut self, link: u32) -> Vec<(Key, Persisted, Instant)> {
        let Some(of_link) = self.links.remove(&link) else { return Vec::new() };
        let mut sockets = Vec::new();
        for (number, entry) in (of_link.first..).zip(of_link.entries) {
            self.bytes -= entry_bytes(&entry);
            if self.places.get(&entry.key) == Some(&(link, number)) {
                self.places.remove(&entry.key);
            }
            let Entry { closed, key, socket, until } = entry;
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
