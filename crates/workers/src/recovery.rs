//! Connection state recovery of an application: the sockets whose clients are disconnected, and the log of broadcasts.
//!
//! ```text
//!  PERSIST ──► kept ── RESTORE ──► claimed ── ADD ──► the socket's session receives the missed messages
//!               │ ▲                   │ │
//!               │ └───────────────────┘ │ the session ends or moves before ADD
//!               └── too old, evicted ───┴► forgotten
//! ```
//!
//! A claimed socket is too old when a kept one would be, but not before [`CLAIM_MIN`]. Its session is closed if ADD comes later, because the
//! client was promised the missed messages.
//!
//! The cores receive broadcasts and sockets from one queue, so a socket that is added after the messages that it missed receives each
//! later message once. Missed messages are those of the log after the offset that the client shows, for the rooms of PERSIST, up to ADD.
//!
//! If a session's worker has crashed, no worker writes PERSIST when the session ends. Its sockets are then kept with the rooms
//! that the cores know and the data of the last STATE. [`Unreported`] has the sockets until it is known whether the worker has
//! crashed.
//!
//! A client isn't recovered if its offset is no longer in the log, or if the missed messages exceed its queue. A broadcast to its rooms that
//! excepts it counts as an empty message, so that the search for missed messages is bounded ([`log`]).
//!
//! In a cluster, a client may return to another node ([`moves`]).

mod log;
mod moves;
mod origins;
mod unreported;

pub(crate) use moves::Given;
pub(crate) use origins::{Had, Origins, Report, Source};
pub(crate) use unreported::Closed;

use log::{Log, Logged};
use moves::Moved;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_link::{Json, Names};
use stentor_ports::{LinkBroadcast, LinkMessage, LinkMessages, LinkSession};
use unreported::Unreported;

/// Bytes that a broadcast or a socket needs beside its texts and messages.
const ENTRY_BYTES: usize = 192;
/// Maximum size of a socket, because RESTORED has it.
const SOCKET_BYTES_MAX: usize = 1 << 20;
/// Minimum time for which a claimed socket is kept between RESTORE and ADD, unless it is evicted. Socket.IO disconnects a client that has
/// joined no namespace after 45 s (`connectTimeout`).
const CLAIM_MIN: Duration = Duration::from_secs(60);
/// Shortest time between two looks for what is too old.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Bounds of an application's recovery.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryOptions {
    /// Size of the log and the sockets. Above it, the oldest are evicted.
    pub bytes_max: usize,
    /// Size of the messages that a client may have missed. Above it, the client isn't recovered.
    pub missed_bytes_max: usize,
}

impl Default for RecoveryOptions {
    fn default() -> Self {
        Self { bytes_max: 16 << 20, missed_bytes_max: 512 << 10 }
    }
}

/// Totals since the start, and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecoveryStats {
    /// Sockets that were recovered.
    pub(crate) recovered: u64,
    /// Clients that asked for a socket that couldn't be recovered.
    pub(crate) failed: u64,
    /// Broadcasts and sockets that were evicted.
    pub(crate) evicted: u64,
    /// Sockets that can be recovered.
    pub(crate) sockets: usize,
    /// Clients whose sockets other nodes are asked for.
    pub(crate) searches: usize,
    /// Size of the log and the sockets.
    pub(crate) bytes: usize,
}

/// A socket that has lost its client.
#[derive(Debug, PartialEq)]
pub(crate) struct Persisted {
    pub(crate) id: Box<str>,
    pub(crate) rooms: Names,
    pub(crate) data: Json,
    /// `None`: no other node had the socket before.
    pub(crate) brought: Option<Brought>,
}

/// The end of what a client has received from the nodes before this one, whose logs have another order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Brought {
    /// Offset of the last message of that time.
    pub(crate) last: Box<str>,
    /// Number of the first broadcast after it, in the log of this node.
    pub(crate) since: u64,
}

impl Persisted {
    /// The body of RESTORED.
    pub(crate) fn restored(&self) -> Option<Json> {
        let (id, rooms) = (serde_json::to_string(&self.id).ok()?, serde_json::to_string(&self.rooms).ok()?);
        Json::new(format!(r#"{{"sid":{id},"rooms":{rooms},"data":{}}}"#, self.data.as_str()))
    }
}

/// A socket's namespace and its private id.
pub(crate) type Key = (Arc<str>, Box<str>);

struct Kept {
    socket: Persisted,
    until: Instant,
    /// Order of those with the same `until`.
    number: u64,
}

/// The session that gets a claimed socket, and the socket's namespace.
type Claimant = (LinkSession, Arc<str>);

struct Claim {
    pid: Box<str>,
    /// `None`: the socket was too old, or evicted.
    kept: Option<Kept>,
    /// Number of the first broadcast that the client may have missed.
    from: u64,
    until: Instant,
    /// Order of those with the same `until`.
    number: u64,
    /// `None`: this node had the socket.
    moved: Option<Moved>,
}

impl Claim {
    fn bytes(&self) -> usize {
        let moved = self.moved.as_ref().map_or(0, Moved::bytes);
        match &self.kept {
            Some(kept) => kept_bytes(&self.pid, &kept.socket) + moved,
            None => ENTRY_BYTES + self.pid.len(),
        }
    }

    /// `true` if the client comes from another node, and doesn't miss the broadcast or receives it as missed at that node.
    fn has(&self, logged: &Logged) -> bool {
        self.moved.as_ref().is_some_and(|moved| moved.has(logged))
    }
}

/// The place of a socket in [`Recovery`].
enum Place {
    Kept(Key),
    Claimed(Claimant),
}

/// The socket and the missed messages of a client that is recovered.
#[derive(Debug, PartialEq)]
pub(crate) struct Recovered {
    pub(crate) data: Json,
    pub(crate) missed: LinkMessages,
    pub(crate) brought: Option<Brought>,
}

/// The socket, or messages that the client has missed, were evicted between RESTORE and ADD.
#[derive(Debug, PartialEq)]
pub(crate) struct Evicted;

/// The recovery of an application.
pub(crate) struct Recovery {
    options: RecoveryOptions,
    /// Time for which the last worker's application can recover a socket. `None` if the application recovers no sockets.
    pub(crate) ttl: Option<Duration>,
    log: Log,
    pub(crate) origins: Origins,
    sockets: HashMap<Key, Kept>,
    pub(crate) unreported: Unreported,
    /// Kept and claimed sockets, by the end of their time.
    expiries: BTreeMap<(Instant, u64), Place>,
    /// Sockets that are being recovered.
    claims: BTreeMap<Claimant, Claim>,
    /// Number of the next socket.
    next: u64,
    sweep_at: Option<Instant>,
    bytes: usize,
    stats: RecoveryStats,
}

/// Gives messages memory of their own. They are parts of a frame, which they would keep whole.
pub(crate) fn detach(messages: &mut LinkMessages) {
    for LinkMessage::Text(data) | LinkMessage::Binary(data) in messages {
        *data = bytes::Bytes::copy_from_slice(data);
    }
}

fn content(messages: &LinkMessages) -> usize {
    messages.iter().map(|message| size_of_val(message) + message.data().len()).sum()
}

fn names_bytes(names: &[Box<str>]) -> usize {
    names.iter().map(|name| size_of_val(name) + name.len()).sum()
}

fn kept_bytes(pid: &str, socket: &Persisted) -> usize {
    let last = socket.brought.as_ref().map_or(0, |brought| brought.last.len());
    let texts = 2 * pid.len() + socket.id.len() + socket.data.as_str().len() + last;
    ENTRY_BYTES + texts + names_bytes(&socket.rooms)
}

impl Recovery {
    pub(crate) fn new(options: RecoveryOptions) -> Self {
        Self {
            options,
            ttl: None,
            log: Log::default(),
            origins: Origins::default(),
            sockets: HashMap::new(),
            unreported: Unreported::default(),
            expiries: BTreeMap::new(),
            claims: BTreeMap::new(),
            next: 0,
            sweep_at: None,
            bytes: 0,
            stats: RecoveryStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> RecoveryStats {
        RecoveryStats { sockets: self.sockets.len(), bytes: self.bytes(), ..self.stats }
    }

    /// Adds a broadcast to the log.
    pub(crate) fn log(
        &mut self,
        namespace: Arc<str>,
        (offset, source): (Box<str>, Source),
        broadcast: Arc<LinkBroadcast>,
        (now, ttl): (Instant, Duration),
    ) {
        if let Some(node) = source.node {
            self.origins.handle(node, source.number, now);
        }
        self.log.push(Logged { namespace, offset: offset.into(), source, broadcast, until: now + ttl });
        self.added(now);
    }

    /// Keeps a socket that has lost its client. Without effect if it has no private id, or is too large.
    pub(crate) fn persist(
        &mut self,
        (namespace, pid): (Arc<str>, Box<str>),
        socket: Persisted,
        (now, ttl): (Instant, Duration),
    ) {
        if pid.is_empty() || kept_bytes(&pid, &socket) > SOCKET_BYTES_MAX {
            return;
        }
        let kept = Kept { socket, until: now + ttl, number: self.next };
        self.next += 1;
        self.keep((namespace, pid), kept);
        self.added(now);
    }

    /// The session of a socket has ended, and its worker was notified. The socket is kept unless the worker reports another state of it. Without
    /// effect if it has no private id, or is too large.
    pub(crate) fn leave(
        &mut self,
        closed: Closed,
        key: Key,
        socket: Persisted,
        (now, ttl): (Instant, Duration),
    ) {
        if !key.1.is_empty() && kept_bytes(&key.1, &socket) <= SOCKET_BYTES_MAX {
            self.unreported.add(closed, key, socket, now + ttl);
            self.added(now);
        }
    }

    /// A link has ended: its worker reports no further sockets.
    pub(crate) fn handle_end(&mut self, link: u32, now: Instant) {
        for (key, socket, until) in self.unreported.handle_end(link) {
            self.persist(key, socket, (now, until.saturating_duration_since(now)));
        }
    }

    fn keep(&mut self, key: Key, kept: Kept) {
        self.remove(&key);
        self.bytes += kept_bytes(&key.1, &kept.socket);
        self.expire((kept.until, kept.number), Place::Kept(key.clone()));
        self.sockets.insert(key, kept);
    }

    fn expire(&mut self, at: (Instant, u64), place: Place) {
        self.sweep_at = Some(self.sweep_at.map_or(at.0, |sweep_at| sweep_at.min(at.0)));
        self.expiries.insert(at, place);
    }

    fn remove(&mut self, key: &Key) -> Option<Kept> {
        let kept = self.sockets.remove(key)?;
        self.expiries.remove(&(kept.until, kept.number));
        self.bytes -= kept_bytes(&key.1, &kept.socket);
        Some(kept)
    }

    fn added(&mut self, now: Instant) {
        self.sweep_at.get_or_insert(now + SWEEP_INTERVAL);
        while self.bytes() > self.options.bytes_max
            && let Some(is_evicted) = self.drop_oldest()
        {
            self.stats.evicted += u64::from(is_evicted);
        }
    }

    /// The time at which the first broadcast or socket is too old.
    fn oldest(&self) -> Option<Instant> {
        let socket = self.expiries.keys().next().map(|expiry| expiry.0);
        [self.log.poll_timeout(), socket, self.unreported.poll_timeout()].into_iter().flatten().min()
    }

    /// Drops the broadcast or the socket that would be the first to be too old. Returns `false` if it was a socket that a client or its
    /// worker has taken before, and `None` if there is none.
    fn drop_oldest(&mut self) -> Option<bool> {
        let oldest = self.oldest()?;
        if self.log.poll_timeout() == Some(oldest) {
            self.log.pop();
        } else if self.unreported.poll_timeout() == Some(oldest) {
            return Some(self.unreported.drop_oldest());
        } else {
            self.drop_socket();
        }
        Some(true)
    }

    fn drop_socket(&mut self) {
        match self.expiries.pop_first() {
            None => {}
            Some((_, Place::Kept(key))) => _ = self.remove(&key),
            Some((_, Place::Claimed(claimant))) => {
                if let Some(claim) = self.claims.get_mut(&claimant) {
                    self.bytes -= claim.bytes();
                    (claim.kept, claim.moved) = (None, None);
                    self.bytes += claim.bytes();
                }
            }
        }
    }

    /// A client of a session shows a private id, and the offset of the last message that it has received. Returns the socket if it can
    /// be recovered. It then waits for [`Self::complete`].
    pub(crate) fn claim(
        &mut self,
        session: LinkSession,
        key: Key,
        offset: &str,
        now: Instant,
    ) -> Option<&Persisted> {
        self.handle_timeout(now);
        let (link, from) = self.find(&key, offset, now)?;
        self.release(session, &key.0);
        let number = self.next;
        self.next += 1;
        let kept = self.take(&key, link)?;
        let (namespace, pid) = key;
        let until = kept.until.max(now + CLAIM_MIN);
        let claim = Claim { pid, kept: Some(kept), from, until, number, moved: None };
        let claimant = (session, namespace);
        self.add_claim(claimant.clone(), claim);
        self.claimed(&claimant)
    }

    fn add_claim(&mut self, claimant: Claimant, claim: Claim) {
        self.bytes += claim.bytes();
        self.expire((claim.until, claim.number), Place::Claimed(claimant.clone()));
        self.claims.insert(claimant, claim);
    }

    fn claimed(&self, claimant: &Claimant) -> Option<&Persisted> {
        self.claims.get(claimant)?.kept.as_ref().map(|kept| &kept.socket)
    }

    /// Counts a client that wasn't recovered.
    pub(crate) fn count_failed(&mut self) {
        self.stats.failed += 1;
    }

    /// Finds a socket that can be recovered: the link of the worker that should have reported it, if any, and the number of the first
    /// broadcast that the client may have missed.
    fn find(&self, key: &Key, offset: &str, now: Instant) -> Option<(Option<u32>, u64)> {
        let overdue = self.unreported.overdue(key, now);
        let link = overdue.map(|(link, _)| link);
        let socket = overdue.map(|(_, socket)| socket).or_else(|| Some(&self.sockets.get(key)?.socket))?;
        let from = match &socket.brought {
            Some(Brought { last, since }) if **last == *offset => *since,
            brought => {
                let number = self.log.number_of(offset)?;
                // The client has only a part of what it had missed at another node.
                brought.as_ref().is_none_or(|brought| brought.since <= number).then_some(number + 1)?
            }
        };
        if from < self.log.first() {
            return None;
        }
        let mut bytes = 0;
        let is_within = self.log.addressed(&key.0, &socket.rooms, from).all(|(logged, is_missed)| {
            let missed = if is_missed { content(&logged.broadcast.messages) } else { 0 };
            bytes += missed.max(size_of::<LinkMessage>());
            bytes <= self.options.missed_bytes_max
        });
        is_within.then_some((link, from))
    }

    /// Takes a socket that was found.
    fn take(&mut self, key: &Key, link: Option<u32>) -> Option<Kept> {
        let kept = self.remove(key);
        let overdue = link.and_then(|link| self.unreported.take(link, key));
        let number = self.next;
        self.next += 1;
        overdue.map(|(socket, until)| Kept { socket, until, number }).or(kept)
    }

    fn remove_claim(&mut self, claimant: &Claimant) -> Option<Claim> {
        let claim = self.claims.remove(claimant)?;
        self.expiries.remove(&(claim.until, claim.number));
        self.bytes -= claim.bytes();
        Some(claim)
    }

    /// The broadcasts of a namespace from this number on, for a socket with these rooms.
    fn missed<'a>(
        &'a self,
        namespace: &str,
        rooms: &'a [Box<str>],
        from: u64,
    ) -> impl Iterator<Item = &'a Logged> + use<'a> {
        let addressed = self.log.addressed(namespace, rooms, from);
        addressed.filter_map(|(logged, is_missed)| is_missed.then_some(logged))
    }

    /// A session has a socket with this private id. `None`: the socket isn't recovered.
    pub(crate) fn complete(
        &mut self,
        session: LinkSession,
        namespace: &Arc<str>,
        pid: &str,
    ) -> Option<Result<Recovered, Evicted>> {
        let claimant = (session, namespace.clone());
        if self.claims.get(&claimant).is_none_or(|claim| *claim.pid != *pid) {
            self.release(session, namespace);
            return None;
        }
        let mut claim = self.remove_claim(&claimant)?;
        let Some(kept) = claim.kept.take().filter(|_| claim.from >= self.log.first()) else {
            return Some(Err(Evicted));
        };
        self.stats.recovered += 1;
        let Persisted { rooms, data, mut brought, .. } = kept.socket;
        let mut missed: LinkMessages =
            claim.moved.iter().flat_map(|moved| moved.missed.iter().cloned()).collect();
        let mut last = claim.moved.as_ref().map(|moved| &*moved.last);
        for logged in self.missed(namespace, &rooms, claim.from).filter(|logged| !claim.has(logged)) {
            missed.extend(logged.broadcast.messages.iter().cloned());
            last = last.map(|_| &*logged.offset);
        }
        if let Some(last) = last {
            brought = Some(Brought { last: last.into(), since: self.log.next() });
        }
        Some(Ok(Recovered { data, missed, brought }))
    }

    /// Releases the socket that a session has claimed in a namespace: another session can claim it, unless another node has given it.
    fn release(&mut self, session: LinkSession, namespace: &Arc<str>) {
        if let Some(Claim { pid, kept: Some(kept), moved: None, .. }) =
            self.remove_claim(&(session, namespace.clone()))
        {
            let key = (namespace.clone(), pid);
            if !self.sockets.contains_key(&key) {
                self.keep(key, kept);
            }
        }
    }

    /// Releases all sockets that a session has claimed, because the session has ended or moves to another worker.
    pub(crate) fn release_all(&mut self, session: LinkSession) {
        if self.claims.is_empty() {
            return;
        }
        let from = (session, Arc::<str>::from(""));
        let of_session = self.claims.range(from..).map(|(key, _)| key).take_while(|key| key.0 == session);
        for (_, namespace) in of_session.cloned().collect::<Vec<_>>() {
            self.release(session, &namespace);
        }
    }

    /// Forgets what is too old.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while self.oldest().is_some_and(|oldest| oldest <= now) {
            self.drop_oldest();
        }
        self.sweep_at = self.oldest().map(|oldest| oldest.max(now + SWEEP_INTERVAL));
    }

    /// The time at which [`Self::handle_timeout`] must be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Bytes that the log and the sockets hold.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.log.bytes() + self.unreported.bytes() + self.origins.bytes()
    }
}

#[cfg(test)]
mod tests;
