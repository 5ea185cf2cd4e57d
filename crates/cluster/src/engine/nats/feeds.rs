//! Stores the lease and the log of each feed on one subject. Documents have a subject of their own.
//!
//! Each message contains the holder of the lease and the parts of the log. It is stored only if its writer knows the
//! newest message. So a node that acquires the lease fences the former holder, whose later messages are refused. A
//! holder measures the lease by its own clock from its request on. Other nodes measure it by their clocks from the
//! arrival of the newest message, so the lease ends for the holder first.
//!
//! A version renews the lease as well: a feed with a version every second needs no other renewals.
//!
//! The log is a document (on a subject of its own, without subscribers) and the changes since. As messages expire, a holder stores
//! the document again once a day.

use super::Shared;
use super::entries::{Entry, add_recent};
use super::jetstream::{IDLE_TTL, Outcome, Session, Stored, Stream, Which, unexpected};
use super::observed::Observed;
use super::snapshot;
use super::topics::Topic;
use crate::clock::since_1970;
use crate::engine::{EngineError, FEED_CHANGES_BYTES_MAX, FEED_CHANGES_MAX, FeedLog, Lease, Reply, Version};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use stentor_hub::{Epoch, Key, Position};
use tokio::time::Instant;

/// The header of a message.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Meta {
    /// The server's generation when the log was stored.
    g: String,
    /// The lease: its term, its token and its duration (ms). With duration zero, the lease is free.
    t: u64,
    k: u64,
    x: u64,
    /// Sequences of the parts of the log's document. Empty if there is no log.
    b: Vec<u64>,
    /// The time at which the document was stored, in seconds since 1970, by the holder's clock.
    a: u64,
    /// The changes since: the sequences of those before this message, newest first; their number with this message; and
    /// their bytes.
    p: Vec<u64>,
    c: usize,
    z: usize,
    /// The position, if the message is a version.
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    o: Option<u64>,
    /// `true` if the log began anew with this message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    base: bool,
    /// Sequences of the message's other parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    n: Vec<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    part: bool,
}

impl Meta {
    fn lease(&self) -> Option<Lease> {
        (self.x > 0).then_some(Lease { term: self.t, token: self.k })
    }

    fn is_change(&self) -> bool {
        self.o.is_some() && !self.base && !self.part
    }

    /// The header of the next message, before its changes.
    fn next(mut self, session: &Session, sequence: u64) -> Self {
        if self.is_change() {
            add_recent(&mut self.p, sequence);
        }
        let g = session.generation.clone();
        Self { g, e: None, o: None, base: false, n: Vec::new(), part: false, ..self }
    }

    fn without_log(self) -> Self {
        Self { b: Vec::new(), p: Vec::new(), c: 0, z: 0, ..self }
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The state after the newest message on the subject.
#[derive(Clone, Debug)]
struct Known {
    /// The connection on which the message was read or stored.
    connection: u64,
    sequence: u64,
    /// The next message's header, unless that message changes it.
    next: Meta,
    /// `true` if the newest message only has the lease. It is deleted once another one is stored.
    is_spent: bool,
}

/// A renewal is left out if a version was stored so recently, as a part of the lease's duration.
const RECENT: u32 = 6;

/// A lease that this node holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    lease: Lease,
    until: Instant,
    /// The newest message that this node has stored under the lease.
    sequence: u64,
}

/// This node's knowledge of a feed.
#[derive(Default)]
pub(super) struct FeedState {
    known: Option<Known>,
    held: Option<Held>,
    observed: Observed,
}

impl Topic for FeedState {
    fn is_needed(&self) -> bool {
        self.held.is_some_and(|held| Instant::now() < held.until)
    }

    fn bytes(&self) -> usize {
        self.known.as_ref().map_or(0, |Known { next, .. }| {
            next.g.len()
                + [&next.b, &next.p, &next.n].map(|list| size_of_val(&list[..])).iter().sum::<usize>()
        })
    }
}

/// The subjects of a feed.
pub(super) struct Subjects {
    pub(super) log: String,
    pub(super) base: String,
}

/// A request about a feed, while it has its turn.
pub(super) struct FeedTurn<'a> {
    pub(super) shared: &'a Shared,
    pub(super) session: &'a Session,
    pub(super) subjects: &'a Subjects,
    pub(super) state: &'a mut FeedState,
}

impl FeedTurn<'_> {
    pub(super) async fn acquire(
        &mut self,
        key: &Key,
        term_seen: u64,
        ttl: Duration,
    ) -> Result<Reply, EngineError> {
        loop {
            let newest = self.newest().await?;
            let sequence = newest.as_ref().map_or(0, |newest| newest.sequence);
            let meta = meta(newest.as_ref())?;
            self.state.observed.note(Instant::now(), sequence);
            if let Some(seen) = self.shared.seen(key) {
                self.state.observed.merge(seen);
            }
            let is_held = meta.x > 0 && meta.t >= term_seen;
            if is_held && !self.state.observed.is_unchanged_for(Instant::now(), Duration::from_millis(meta.x))
            {
                return Ok(Reply::Lease(None));
            }
            let is_spent = newest.is_some() && meta.o.is_none();
            // After the server's restart, an older log may lack its end.
            let meta = if meta.g == self.session.generation { meta } else { meta.without_log() };
            let term = meta.t.max(term_seen).saturating_add(1).max(since_1970().as_secs() * 1_000);
            let lease = Lease { term, token: fastrand::u64(1..) };
            let meta = Meta { t: term, k: lease.token, ..meta.next(self.session, sequence) };
            let known = Known { connection: self.session.connection, sequence, next: meta, is_spent };
            if self.store_lease(known, lease, ttl).await? {
                return Ok(Reply::Lease(Some(lease)));
            }
        }
    }

    /// Ends a lease. The term of a feed without a log is removed after `term_ttl`.
    pub(super) async fn release(&mut self, lease: Lease, term_ttl: Duration) -> Result<Reply, EngineError> {
        let has_log = self.state.known.as_ref().is_some_and(|known| !known.next.b.is_empty());
        // The term must be removed even if the release fails.
        let is_queued =
            !has_log && self.shared.released_terms.add(Instant::now() + term_ttl, &self.subjects.log, lease);
        self.renew(lease, Duration::ZERO).await?;
        if let Some(Known { sequence, next, .. }) = &self.state.known
            && !is_queued
            && next.b.is_empty()
            && (next.x, next.t, next.k) == (0, lease.term, lease.token)
        {
            self.shared.purge(self.session, Stream::Feeds, &self.subjects.log, sequence + 1);
        }
        Ok(Reply::Done)
    }

    /// Extends a lease to `ttl` from now. Zero ends the lease.
    pub(super) async fn renew(&mut self, lease: Lease, ttl: Duration) -> Result<Reply, EngineError> {
        if self.has_just_stored(lease, ttl) {
            return Ok(Reply::Lease(Some(lease)));
        }
        loop {
            let Some(mut known) = self.known(lease).await? else {
                return Ok(Reply::Lease(None));
            };
            let age = since_1970().as_secs().saturating_sub(known.next.a);
            if !ttl.is_zero() && !known.next.b.is_empty() && age > IDLE_TTL.as_secs() {
                match self.load().await? {
                    Some(log) => self.begin_log(&mut known.next, &log).await?,
                    None => known.next = known.next.without_log(),
                }
            }
            if self.store_lease(known, lease, ttl).await? {
                return Ok(Reply::Lease(Some(lease)));
            }
        }
    }

    /// Returns `true` if this node has just stored a version on this connection, under a lease that lasts nearly until `ttl` from now.
    fn has_just_stored(&self, lease: Lease, ttl: Duration) -> bool {
        let FeedState { known: Some(known), held: Some(held), .. } = &*self.state else { return false };
        let is_version = known.connection == self.session.connection && !known.is_spent;
        let is_recent = held.lease == lease && held.until + ttl / RECENT >= Instant::now() + ttl;
        is_version && is_recent && !ttl.is_zero()
    }

    pub(super) async fn store_version(
        &mut self,
        lease: Lease,
        version: Version,
    ) -> Result<Reply, EngineError> {
        let Version { position, change, base } = version;
        let mut documents = None;
        loop {
            let stored_at = Instant::now();
            let Some(known) = self.known(lease).await? else {
                return Err(EngineError::Fenced);
            };
            let mut meta = known.next.clone();
            match &base {
                Some(base) => {
                    let log = FeedLog {
                        term: lease.term,
                        base_position: position,
                        base: base.clone(),
                        changes: vec![],
                        may_lack_newest: false,
                    };
                    if documents.is_none() {
                        self.begin_log(&mut meta, &log).await?;
                        documents = Some((meta.b.clone(), meta.a));
                    } else if let Some((documents, at)) = &documents {
                        meta = Meta { b: documents.clone(), a: *at, ..meta.without_log() };
                    }
                    meta.base = true;
                }
                None if meta.b.is_empty() => {
                    return Err(EngineError::Refused("the feed has no base for a change".into()));
                }
                None => {
                    (meta.c, meta.z) = (meta.c.saturating_add(1), meta.z.saturating_add(change.len()));
                    if meta.c > FEED_CHANGES_MAX || meta.z > FEED_CHANGES_BYTES_MAX {
                        return Err(EngineError::Refused("the feed's log is full; store a base".into()));
                    }
                }
            }
            (meta.e, meta.o) = (Some(position.epoch.0), Some(position.offset));
            let part_meta = Meta { e: meta.e, o: meta.o, part: true, ..known.next }.text();
            let (subject, expected) = (&*self.subjects.log, known.sequence);
            let entry = Entry { subject, expected, idempotency_key: None, part_meta, content: &change };
            let said = meta.clone();
            let stored = self
                .shared
                .store_entry(self.session, entry, |parts| Meta { n: parts, ..said }.text())
                .await?;
            let Some(Outcome { sequence, .. }) = stored else { continue };
            if let Some(held) = &mut self.state.held {
                held.sequence = sequence;
                held.until = held.until.max(stored_at + Duration::from_millis(meta.x));
            }
            if let Some(first) = meta.b.first().filter(|_| meta.base) {
                // Removes messages before the log's new beginning.
                self.shared.purge(self.session, Stream::Feeds, &self.subjects.log, known.sequence + 1);
                self.shared.purge(self.session, Stream::Feeds, &self.subjects.base, *first);
            } else if known.is_spent {
                self.shared.delete(self.session, Stream::Feeds, known.sequence);
            }
            let next = meta.next(self.session, sequence);
            self.state.known = Some(Known { sequence, next, is_spent: false, ..known });
            return Ok(Reply::Done);
        }
    }

    pub(super) async fn load(&mut self) -> Result<Option<FeedLog>, EngineError> {
        let mut tried = None;
        loop {
            let Some(newest) = self.newest().await? else {
                return Ok(None);
            };
            let (sequence, newest_meta) = (newest.sequence, meta(Some(&newest))?);
            let has_log = newest_meta.g == self.session.generation && !newest_meta.b.is_empty();
            if !has_log || tried == Some(sequence) {
                return Ok(None);
            }
            if let Some(log) = self.log(newest, newest_meta).await? {
                return Ok(Some(log));
            }
            // The holder may have begun the log anew since.
            tried = Some(sequence);
        }
    }

    /// The log that ends with this message. `None` if a part of it has been removed.
    async fn log(&self, newest: Stored, newest_meta: Meta) -> Result<Option<FeedLog>, EngineError> {
        let Some(document) = self.shared.document(self.session, Stream::Feeds, &newest_meta.b).await? else {
            return Ok(None);
        };
        let mut log = snapshot::decode(document).ok_or_else(unexpected)?;
        let mut before = newest_meta.p.clone();
        let is_change = newest_meta.is_change();
        // Parts aren't counted. They repeat the count of the message before them.
        let count = newest_meta.c;
        let (mut changes, mut term) = (Vec::new(), 0);
        let mut chunk = if is_change { vec![Some(newest)] } else { Vec::new() };
        // Reads messages from the newest to the oldest.
        loop {
            for stored in chunk {
                let Some(stored) = stored else { return Ok(None) };
                let meta = meta(Some(&stored))?;
                let (Some(epoch), Some(offset)) = (meta.e, meta.o) else { return Err(unexpected()) };
                let Some(content) =
                    self.shared.content(self.session, Stream::Feeds, stored.payload, &meta.n).await?
                else {
                    return Ok(None);
                };
                term = term.max(meta.t);
                changes.push((Position { epoch: Epoch(epoch), offset }, content));
                before = meta.p;
            }
            before.truncate(count.saturating_sub(changes.len()));
            if before.is_empty() {
                break;
            }
            chunk = self.shared.read_all(self.session, Stream::Feeds, &before).await?;
        }
        if changes.len() != count {
            return Ok(None);
        }
        changes.reverse();
        log.changes.append(&mut changes);
        log.term = log.term.max(term);
        Ok(Some(log))
    }

    /// The newest message on the subject.
    async fn newest(&self) -> Result<Option<Stored>, EngineError> {
        self.shared.read(self.session, Stream::Feeds, Which::Last(&self.subjects.log)).await
    }

    /// The state after the newest message, if this node holds the lease.
    async fn known(&mut self, lease: Lease) -> Result<Option<Known>, EngineError> {
        let Some(held) = self.state.held.filter(|held| held.lease == lease) else { return Ok(None) };
        if Instant::now() >= held.until {
            self.state.held = None;
            return Ok(None);
        }
        // The state is set again when the message is stored. Otherwise, it is read again.
        if let Some(known) =
            self.state.known.take().filter(|known| known.connection == self.session.connection)
        {
            return Ok(Some(known));
        }
        let newest = self.newest().await?;
        let (meta, sequence) = (meta(newest.as_ref())?, newest.as_ref().map_or(0, |newest| newest.sequence));
        if meta.lease() != Some(lease) {
            self.state.held = None;
            return Ok(None);
        }
        // The holder knows which message is the newest. If that message is still there, no message is lost.
        let is_whole = meta.g == self.session.generation || sequence == held.sequence;
        let is_spent = meta.o.is_none();
        let next = meta.next(self.session, sequence);
        let next = if is_whole { next } else { next.without_log() };
        Ok(Some(Known { connection: self.session.connection, sequence, next, is_spent }))
    }

    /// Stores the holder of the lease. Returns `false` if another message was stored first.
    async fn store_lease(&mut self, known: Known, lease: Lease, ttl: Duration) -> Result<bool, EngineError> {
        let asked_at = Instant::now();
        let next = Meta { x: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX), ..known.next };
        let (subject, expected) = (&*self.subjects.log, Some(known.sequence));
        let stored = self.shared.store(self.session, subject, expected, None, &next.text(), &[]).await?;
        let Some(Outcome { sequence, .. }) = stored else { return Ok(false) };
        if known.is_spent {
            self.shared.delete(self.session, Stream::Feeds, known.sequence);
        }
        self.state.held = (!ttl.is_zero()).then(|| Held { lease, until: asked_at + ttl, sequence });
        self.state.known = Some(Known { sequence, next, is_spent: true, ..known });
        Ok(true)
    }

    /// Begins the log with the content of another one.
    async fn begin_log(&self, meta: &mut Meta, log: &FeedLog) -> Result<(), EngineError> {
        let b = self.shared.store_document(self.session, &self.subjects.base, &snapshot::encode(log)).await?;
        *meta = Meta { b, a: since_1970().as_secs(), ..std::mem::take(meta).without_log() };
        Ok(())
    }
}

/// Returns `true` if the newest message on a subject has this lease, held or released, and no log.
pub(super) fn is_only_term(newest: &Stored, lease: Lease) -> Result<bool, EngineError> {
    let Meta { t, k, b, .. } = meta(Some(newest))?;
    Ok(b.is_empty() && Lease { term: t, token: k } == lease)
}

fn meta(stored: Option<&Stored>) -> Result<Meta, EngineError> {
    match stored {
        Some(stored) => stored.meta().ok_or_else(unexpected),
        None => Ok(Meta::default()),
    }
}

/// Arrival times of messages about feeds.
impl Shared {
    fn seen(&self, key: &Key) -> Option<Observed> {
        self.state().seen.get(key).copied()
    }

    /// Records that a message about a feed has arrived.
    pub(super) fn note_seen(&self, key: &Key, sequence: u64) {
        self.state().seen.entry(key.clone()).or_default().note(Instant::now(), sequence);
    }
}
