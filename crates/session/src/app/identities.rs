//! Identities of a core's sessions and clients, verified by the authenticator, and their expiry.
//!
//! Identities are stored apart from the sessions, so that a node without an authenticator needs no memory for them. A session
//! receives an identity when it opens, and a newer one of the same principal when its client renews the token. The identity is
//! removed when the session closes.
//!
//! **Bounds.** One entry per session, and per client with an identity. An entry has at most as many topics as the session may
//! have subscriptions (`limits.subscriptions_max`), and at most [`PUBLISHES_MAX`] rooms with a cached permission to publish.
//! Entries and names of topics are charged to the ledger.

use crate::identity::ClientId;
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::{Access, Authenticator, Denial, Identity, ProxyUser, UnusedSessions};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Room, SessionId, Topic};

/// Approximate size of an entry with its identity, in bytes.
const ENTRY_BYTES: usize = 512;
/// Approximate size of a topic in an entry, besides its name.
const TOPIC_BYTES: usize = 64;
/// Maximum number of rooms per session for which the permission to publish is cached.
const PUBLISHES_MAX: usize = 8;

/// A step that is due for a session's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Asks the client for a new token. The current token expires in this number of milliseconds.
    Renewal(SessionId, u64),
    /// The token has expired.
    End(SessionId),
}

/// The identity of a session.
struct Entry {
    session: SessionId,
    identity: Arc<Identity>,
    /// The Unix times in milliseconds of the next step ([`Due`]) and of the session's end. `None` if there is none.
    due_at: Option<u64>,
    ends_at: Option<u64>,
    /// Topics that the client requested and may subscribe to, without rooms to which the application or a backend added the
    /// session.
    granted: BTreeSet<Topic>,
    /// Rooms to which the client may publish, according to the rules of `generation`.
    publishes: Vec<Room>,
    generation: u64,
}

/// The identity of a client that outlives its connections.
#[derive(Clone)]
pub struct ClientIdentity {
    /// The identity in its handshake. A Socket.IO client may present another token later, for each namespace.
    pub identity: Option<Arc<Identity>>,
    /// The token of its handshake, which counts for each namespace of a Socket.IO client.
    pub token: Option<Box<str>>,
    /// The user that an authenticating proxy named in its handshake.
    pub user: Option<ProxyUser>,
    /// Digest of the last verified token of one of its requests. A request with the same token isn't verified again.
    pub(crate) request_token: Option<u64>,
    pub(crate) address: IpAddr,
}

impl ClientIdentity {
    fn bytes(&self) -> usize {
        let user = self.user.iter().map(|user| {
            let groups = user.groups.iter().map(|group| size_of_val(group) + group.len());
            user.subject.len() + groups.sum::<usize>()
        });
        ENTRY_BYTES + self.token.as_ref().map_or(0, |token| token.len()) + user.sum::<usize>()
    }
}

/// The identities of a core.
pub struct Identities {
    authenticator: Option<Arc<dyn Authenticator>>,
    seed: [u64; 2],
    /// Entries by the index of the session.
    slots: Vec<Option<Box<Entry>>>,
    clients: BTreeMap<ClientId, ClientIdentity>,
    /// Times of the next steps, with the bits of the session's id, earliest first. Some entries are out of date.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    count: usize,
    /// Ids that were reserved for sessions that didn't open.
    pub(crate) unused: Arc<UnusedSessions>,
    /// Number of refused tokens.
    pub refused: u64,
    charge: Charge,
}

fn index_of(session: SessionId) -> usize {
    session.to_bits() as u32 as usize
}

/// Approximate size of a topic in an entry.
fn topic_bytes(topic: &Topic) -> usize {
    let name = match topic {
        Topic::Feed(key) => key.as_str(),
        Topic::Room(room) | Topic::Presence(room) => room.name(),
    };
    TOPIC_BYTES + name.len()
}

/// Returns `true` if two identities belong to the same user of the same issuer.
pub(crate) fn is_same_principal(one: &Identity, other: &Identity) -> bool {
    one.principal == other.principal
}

/// Whether `new` replaces `old`: its token is newer and belongs to the same user.
///
/// # Errors
/// `new` belongs to another user.
pub(crate) fn renews(old: &Identity, new: &Identity) -> Result<bool, Denial> {
    if !is_same_principal(old, new) {
        return Err(Denial::new("not_allowed", "the token is another user's"));
    }
    let age = |identity: &Identity| (identity.issued_at, identity.expires_at.unwrap_or(u64::MAX));
    Ok(age(new) > age(old))
}

impl Identities {
    pub(crate) fn new(
        authenticator: Option<Arc<dyn Authenticator>>,
        seed: [u64; 2],
        ledger: Arc<Ledger>,
    ) -> Self {
        Self {
            authenticator,
            seed,
            slots: Vec::new(),
            clients: BTreeMap::new(),
            due: BinaryHeap::new(),
            count: 0,
            unused: Arc::default(),
            refused: 0,
            charge: Charge::new(ledger, Class::Identities),
        }
    }

    pub(crate) fn authenticator(&self) -> Option<&Arc<dyn Authenticator>> {
        self.authenticator.as_ref()
    }

    /// Returns `true` if the authenticator's identities decide about publishing.
    pub(crate) fn decides_publishing(&self) -> bool {
        self.authenticator.as_ref().is_some_and(|authenticator| authenticator.decides_publishing())
    }

    /// Returns `true` if clients have identities.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.authenticator.is_some()
    }

    /// Returns a keyed digest of a token. Clients don't know the seed, so they can't find a second token with the same digest.
    pub(crate) fn digest(&self, token: &str, namespace: Option<&str>) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed[0]);
        hasher.write_u64(self.seed[1]);
        hasher.write_usize(token.len());
        hasher.write(token.as_bytes());
        hasher.write(namespace.unwrap_or_default().as_bytes());
        hasher.finish()
    }

    fn entry(&self, session: SessionId) -> Option<&Entry> {
        self.slots.get(index_of(session))?.as_deref().filter(|entry| entry.session == session)
    }

    fn entry_mut(&mut self, session: SessionId) -> Option<&mut Entry> {
        self.slots.get_mut(index_of(session))?.as_deref_mut().filter(|entry| entry.session == session)
    }

    /// The identity of a session.
    pub fn get(&self, session: SessionId) -> Option<&Arc<Identity>> {
        self.entry(session).map(|entry| &entry.identity)
    }

    /// Sets or replaces the identity of a session. `now` is the Unix time in milliseconds. The client is asked for a new token
    /// `lead` before this token expires.
    pub fn set(&mut self, session: SessionId, identity: Arc<Identity>, now: u64, lead: Duration) {
        let ends_at = identity.expires_at.map(|at| at.saturating_mul(1_000));
        let due_at = ends_at.map(|at| {
            let left = at.saturating_sub(now);
            at - (lead.as_millis() as u64).min(left / 2)
        });
        match self.entry_mut(session) {
            Some(entry) => {
                entry.identity = identity;
                (entry.due_at, entry.ends_at) = (due_at, ends_at);
                entry.publishes.clear();
            }
            None => {
                let index = index_of(session);
                if self.slots.len() <= index {
                    self.slots.resize_with(index + 1, || None);
                }
                let (granted, publishes) = (BTreeSet::new(), Vec::new());
                let entry = Entry { session, identity, due_at, ends_at, granted, publishes, generation: 0 };
                if let Some(before) = self.slots[index].replace(Box::new(entry)) {
                    self.removed(&before);
                }
                self.count += 1;
                self.charge.add(ENTRY_BYTES);
            }
        }
        self.schedule(session, due_at);
    }

    /// Asks for a new token now. Unless the client presents one, the session ends after `lead` or when its token expires,
    /// whichever is earlier.
    pub fn shorten(&mut self, session: SessionId, now: u64, lead: Duration) {
        let Some(entry) = self.entry_mut(session) else { return };
        let ends_at = entry.ends_at.unwrap_or(u64::MAX).min(now + lead.as_millis() as u64);
        (entry.due_at, entry.ends_at) = (Some(now), Some(ends_at));
        self.schedule(session, Some(now));
    }

    fn schedule(&mut self, session: SessionId, due_at: Option<u64>) {
        let Some(at) = due_at else { return };
        self.due.push(Reverse((at, session.to_bits())));
        // Renewed tokens and closed sessions leave entries behind, so the queue is rebuilt from time to time.
        if self.due.len() > 2 * self.count + 64 {
            let mut due = std::mem::take(&mut self.due);
            due.retain(|Reverse((at, bits))| self.is_due(*at, SessionId::from_bits(*bits)));
            self.due = due;
        }
    }

    fn is_due(&self, at: u64, session: SessionId) -> bool {
        self.entry(session).is_some_and(|entry| entry.due_at == Some(at))
    }

    /// The Unix time in milliseconds of the next call of [`Self::poll_due`]. It may find no step, because the session has
    /// ended.
    #[inline]
    pub fn next_due(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns the next step that is due, if any.
    pub fn poll_due(&mut self, now: u64) -> Option<Due> {
        while let Some(Reverse((at, bits))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            let session = SessionId::from_bits(bits);
            if !self.is_due(at, session) {
                continue;
            }
            let Some(entry) = self.entry_mut(session) else { continue };
            let ends_at = entry.ends_at.unwrap_or(at);
            if ends_at <= now {
                entry.due_at = None;
                return Some(Due::End(session));
            }
            entry.due_at = Some(ends_at);
            self.schedule(session, Some(ends_at));
            return Some(Due::Renewal(session, ends_at - now));
        }
        None
    }

    /// Removes the identity of a closed session.
    #[inline]
    pub fn remove(&mut self, session: SessionId) {
        if self.count > 0 {
            self.remove_entry(session);
        }
    }

    fn remove_entry(&mut self, session: SessionId) {
        let Some(slot) = self.slots.get_mut(index_of(session)) else { return };
        if let Some(entry) = slot.take_if(|entry| entry.session == session) {
            self.removed(&entry);
        }
    }

    fn removed(&mut self, entry: &Entry) {
        self.count -= 1;
        self.charge.subtract(ENTRY_BYTES + entry.granted.iter().map(topic_bytes).sum::<usize>());
    }

    /// Caches the permission for an action, if it may be cached.
    pub(crate) fn allow(&mut self, session: SessionId, access: Access<'_>) {
        let Access::Publish(room) = access else { return };
        let generation = self.generation();
        let Some(entry) = self.entry_mut(session) else { return };
        if entry.generation != generation || entry.publishes.len() >= PUBLISHES_MAX {
            entry.generation = generation;
            entry.publishes.clear();
        }
        entry.publishes.push(room.clone());
    }

    /// Records that a client has subscribed with permission.
    pub(crate) fn grant(&mut self, session: SessionId, topic: &Topic) {
        let Some(entry) = self.entry_mut(session) else { return };
        if entry.granted.insert(topic.clone()) {
            self.charge.add(topic_bytes(topic));
        }
    }

    pub(crate) fn is_revoked(&self, identity: &Identity) -> bool {
        self.authenticator.as_ref().is_some_and(|authenticator| authenticator.is_revoked(identity))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.authenticator.as_ref().map_or(0, |authenticator| authenticator.generation())
    }

    /// Returns `true` if the permission for an action is cached.
    pub(crate) fn is_allowed(&self, session: SessionId, access: Access<'_>) -> bool {
        let Access::Publish(room) = access else { return false };
        let Some(entry) = self.entry(session) else { return false };
        entry.publishes.contains(room) && entry.generation == self.generation()
    }

    /// Returns `true` if the client requested this subscription and was allowed to subscribe.
    pub(crate) fn is_granted(&self, session: SessionId, topic: &Topic) -> bool {
        self.entry(session).is_some_and(|entry| entry.granted.contains(topic))
    }

    /// Records that a subscription has ended, or that the client didn't request it.
    pub(crate) fn revoke_grant(&mut self, session: SessionId, topic: &Topic) {
        if self.entry_mut(session).is_some_and(|entry| entry.granted.remove(topic)) {
            self.charge.subtract(topic_bytes(topic));
        }
    }

    /// Removes a session's cached permissions to publish.
    pub(crate) fn forget_decisions(&mut self, session: SessionId) {
        if let Some(entry) = self.entry_mut(session) {
            entry.publishes.clear();
        }
    }

    /// The session at this index, `Some(None)` if it has no identity. `None` after the last index.
    pub fn at(&self, index: usize) -> Option<Option<SessionId>> {
        self.slots.get(index).map(|entry| entry.as_ref().map(|entry| entry.session))
    }

    /// The number of sessions with an identity.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn client(&self, id: ClientId) -> Option<&ClientIdentity> {
        self.clients.get(&id)
    }

    /// Stores the identity of a client that outlives its connections.
    pub fn set_client(&mut self, id: ClientId, client: ClientIdentity) {
        self.charge.add(client.bytes());
        let before = self.clients.insert(id, client);
        self.charge.subtract(before.as_ref().map_or(0, ClientIdentity::bytes));
    }

    /// Removes the identity of a client that has ended or moves.
    pub fn take_client(&mut self, id: ClientId) -> Option<ClientIdentity> {
        if self.clients.is_empty() {
            return None;
        }
        let client = self.clients.remove(&id)?;
        self.charge.subtract(client.bytes());
        Some(client)
    }
}
