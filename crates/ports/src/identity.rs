//! Identities of clients: the port through which the data plane verifies tokens.
//!
//! ```text
//!  a request or CONNECT ── Credentials ──► Authenticator::authenticate ── Accepted(Identity) ──► the session keeps it
//!                                              │                     └── Refused(Denial) ────► HTTP 401, CONNECT_ERROR, …
//!                                              └── Pending ── IdentityReply ─► handled again
//!  an action of the session ── Question ──► Identity::authorizer
//!  revoked, new permissions ── Commands::recheck ──► the sessions of its filter
//! ```

use super::{Asking, Authorizer, Denial, EventEmit, Principal, PublicId, ReservedSession, Ticket};
use crate::source_of;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Room;

/// The identity of a client, verified by a token or a hook, or anonymous. Sessions of one client share it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The user: issuer and subject. `None` if the client is anonymous.
    pub principal: Option<Principal>,
    /// The id of the token (`jti`).
    pub token_id: Option<Arc<str>>,
    /// The issuer and the user of the token. A hook may have named another `principal`. `None` if the client has no token.
    pub token_principal: Option<Principal>,
    /// The time at which the token was issued (`iat`), or at which a hook named a client without a token, in Unix seconds.
    pub issued_at: Option<u64>,
    /// The time at which the token expires (`exp`), in Unix seconds. The session ends then, unless its client has presented a
    /// newer token. `None` if the token never expires.
    pub expires_at: Option<u64>,
    /// Public information about the client, for presence and hooks: JSON text.
    pub info: Option<Arc<str>>,
    /// Rooms that a session joins when it opens, without a question to the authorizer. Rooms of other namespaces are left out.
    pub join: Vec<Room>,
    /// Messages to send when a session of this identity opens. `None` if there are none.
    pub emit: Option<Arc<FirstMessages>>,
    /// The id that the client's session gets. `None` if the next free one.
    pub reserved: Option<Arc<ReservedSession>>,
    /// Decides which actions the client may perform, by the token's claims and grants and by the rules for all clients.
    pub authorizer: Arc<dyn Authorizer>,
}

impl Identity {
    /// An anonymous identity, whose actions `authorizer` decides.
    pub fn anonymous(authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            principal: None,
            token_id: None,
            token_principal: None,
            issued_at: None,
            expires_at: None,
            info: None,
            join: Vec::new(),
            emit: None,
            reserved: None,
            authorizer,
        }
    }
}

/// Messages of a hook that has admitted a client, until the client's session opens.
#[derive(Debug)]
pub struct FirstMessages {
    namespace: Box<str>,
    messages: Mutex<Vec<EventEmit>>,
}

impl FirstMessages {
    /// Messages for the session that opens in a namespace.
    pub fn new(namespace: &str, messages: Vec<EventEmit>) -> Self {
        Self { namespace: namespace.into(), messages: Mutex::new(messages) }
    }

    /// Takes the messages when a session has opened in a namespace. Later sessions of the client get none.
    pub fn take(&self, namespace: &str) -> Vec<EventEmit> {
        if *self.namespace != *namespace {
            return Vec::new();
        }
        std::mem::take(&mut *self.messages.lock())
    }
}

/// Returns `true` if a request header has this name, or a spelling that some servers take for it: `_` for `-`.
pub fn is_named(header: &str, name: &str) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    header.bytes().map(dashed).eq(name.bytes().map(dashed))
}

/// The issuer of users that an authenticating proxy names. No issuer of tokens has this name.
pub const PROXY_ISSUER: &str = "proxy";

/// The user of a client, as an authenticating proxy has named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUser {
    /// The user.
    pub subject: Arc<str>,
    /// The groups of the user.
    pub groups: Vec<Box<str>>,
    /// The time of the client's first request, in Unix seconds.
    pub issued_at: u64,
}

/// Credentials that a client presents.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The user that an authenticating proxy names. It counts only from a page of the server's own origin, or of one that is allowed
    /// by name. A token beside it must belong to the same user.
    pub user: Option<&'a ProxyUser>,
    /// The token, from any of its sources. A token in a cookie counts only if the page has the server's own origin or is allowed
    /// by name.
    pub token: Option<&'a str>,
    /// Properties of the client's connection.
    pub client: ClientFacts<'a>,
    /// The id that is reserved for the client's session ([`Authenticator::reserves_sessions`]). The
    /// identity keeps it. `None` if the client opens no session.
    pub session: Option<&'a Arc<ReservedSession>>,
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        let Self { user, token, client, session } = self;
        let has_token = token.is_some();
        f.debug_struct("Credentials")
            .field("user", user)
            .field("has_token", &has_token)
            .field("client", client)
            .field("session", session)
            .finish()
    }
}

/// Properties of a client that its transport knows. No message of the client contributes to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientFacts<'a> {
    /// The client's address.
    pub address: Option<IpAddr>,
    /// `websocket`, `primus`, `engineio`, `socketio`, `sockjs`, `sse` or `http`.
    pub protocol: &'static str,
    /// The Socket.IO namespace that the client connects to.
    pub namespace: Option<&'a str>,
    /// The header `Origin` of the client's request.
    pub origin: Option<&'a str>,
    /// The header `User-Agent` of the client's request.
    pub user_agent: Option<&'a str>,
    /// The header `traceparent` of the client's request, if it is well-formed (W3C Trace Context, section 3.2).
    pub traceparent: Option<&'a str>,
}

impl ClientFacts<'_> {
    /// A number that stands for the client's IPv4 address or IPv6 /64 network. 0 if the address isn't known.
    pub fn source(&self) -> u64 {
        self.address.map_or(0, source_of)
    }
}

/// The answer to [`Credentials`].
#[derive(Clone, Debug)]
pub enum Authentication {
    /// The client's identity.
    Accepted(Arc<Identity>),
    /// The client is refused. The code is one that [`Denial`] lists, so clients know what to do.
    Refused(Denial),
    /// The identity isn't known yet: an [`IdentityReply`](super::IdentityReply) follows, within `limits.decision_timeout`.
    /// Until then, the client's request or message waits.
    Pending,
    /// Verifying the token takes more work than this turn has left ([`SignatureWork::take`]). The data plane asks again in a
    /// later turn.
    Postponed,
}

/// The CPU time that a turn of a core has left for verifying signatures, for all of its connections together.
#[derive(Clone, Copy, Debug)]
pub struct SignatureWork {
    used: Duration,
    max: Duration,
}

impl SignatureWork {
    /// The work of one turn. With `Duration::ZERO`, the turn has none left.
    pub fn new(max: Duration) -> Self {
        Self { used: Duration::ZERO, max }
    }

    /// Takes the approximate time that a token needs. The first token of a turn gets any amount. Returns `false` if the turn has
    /// too little left; the answer is then [`Authentication::Postponed`].
    #[must_use]
    pub fn take(&mut self, time: Duration) -> bool {
        let fits = if self.used.is_zero() { !self.max.is_zero() } else { self.used + time <= self.max };
        if fits {
            self.used += time;
        }
        fits
    }

    /// Adds time that was spent.
    pub fn add(&mut self, time: Duration) {
        self.used += time;
    }

    /// `true` if the turn has time left.
    pub fn is_left(&self) -> bool {
        self.used < self.max
    }
}

/// Verifies the identities of clients. The cores call it on their threads, so it must not block: if the answer takes time, it
/// returns [`Authentication::Pending`].
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Verifies a client's identity when the client connects, and again when it presents a newer token. The time for a signature
    /// is taken from `work` before the signature is verified.
    fn authenticate(
        &self,
        asking: Asking<'_>,
        credentials: &Credentials<'_>,
        work: &mut SignatureWork,
    ) -> Authentication;

    /// Cancels a pending question, because its client has disconnected. A later answer has no effect.
    fn cancel(&self, _ticket: Ticket) {}

    /// `true` if the authorizers of identities decide about publishing. Otherwise `rooms.publish` decides, as without an
    /// authenticator.
    fn decides_publishing(&self) -> bool {
        true
    }

    /// A number that changes with the rules. Decisions under another number are void. Revocations don't change the number.
    fn generation(&self) -> u64 {
        0
    }

    /// `true` if the authenticator receives the id of the session that the client will have ([`Credentials::session`]), and each
    /// identity keeps it ([`Identity::reserved`]).
    fn reserves_sessions(&self) -> bool {
        false
    }

    /// `true` if an identity has been revoked: its user, its token, or all tokens issued before some time.
    fn is_revoked(&self, _identity: &Identity) -> bool {
        false
    }
}

/// Selects the sessions of a [`Recheck`]: those that match all fields that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityFilter {
    /// Identities of this issuer.
    pub issuer: Option<Arc<str>>,
    /// Identities of this user.
    pub subject: Option<Arc<str>>,
    /// Identities of the token with this id.
    pub token_id: Option<Arc<str>>,
    /// Identities issued before this Unix time in seconds. Without an issuer or a user, only identities with a token match.
    pub issued_before: Option<u64>,
    /// This session.
    pub session: Option<PublicId>,
}

impl IdentityFilter {
    /// `true` if an identity matches. The field `session` is ignored.
    pub fn matches(&self, identity: &Identity) -> bool {
        let is_of = |wanted: &Option<Arc<str>>, found: Option<&Arc<str>>| {
            wanted.as_ref().is_none_or(|wanted| found == Some(wanted))
        };
        let is_user = |principal: Option<&Principal>| {
            is_of(&self.issuer, principal.map(|principal| &principal.issuer))
                && is_of(&self.subject, principal.map(|principal| &principal.subject))
        };
        let names_user = self.issuer.is_some() || self.subject.is_some();
        let is_old = |before| {
            identity.issued_at.is_some_and(|at| at < before)
                && (names_user || identity.token_principal.is_some())
        };
        (is_user(identity.principal.as_ref()) || is_user(identity.token_principal.as_ref()))
            && is_of(&self.token_id, identity.token_id.as_ref())
            && self.issued_before.is_none_or(is_old)
    }
}

/// An action on the sessions of an [`IdentityFilter`]. Suspended sessions, whose clients are disconnected and may be recovered,
/// are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecheckAction {
    /// Ends sessions with a revoked identity ([`Authenticator::is_revoked`]), and authorizes each subscription of the other
    /// sessions again.
    Authorize,
    /// Ends sessions with a revoked identity, and leaves the others as they are.
    EndRevoked,
    /// Ends the sessions, for the reason `token_revoked`.
    Disconnect,
    /// Asks the clients for a new token. A session whose client doesn't present one in time ends, for the reason `token_expired`.
    Renew,
}

/// The request of [`Commands::recheck`](super::Commands::recheck).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recheck {
    /// The sessions.
    pub filter: IdentityFilter,
    /// The action.
    pub action: RecheckAction,
}

/// An entry of a node's list of revocations, for the other nodes of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// The void tokens. The filter names no session.
    pub filter: IdentityFilter,
    /// The Unix time in seconds at which the last such token expires. `u64::MAX` lets the receiving node choose the time.
    pub until: u64,
}

/// The revocations that a node keeps, shared by all nodes of a cluster. Merging is commutative and idempotent: the same entries,
/// merged in any order and any number of times, make the same list.
pub trait RevocationList: fmt::Debug + Send + Sync {
    /// A digest of the entries: equal lists have equal digests.
    fn digest(&self) -> u64;

    /// At most `count` entries that follow `after`, in the order of the list.
    fn entries(&self, after: Option<&IdentityFilter>, count: usize) -> Vec<Revoked>;

    /// Adds entries of another node. Invalid and expired entries are ignored. Returns `true` if the list has changed; the
    /// list's owner then rechecks sessions.
    ///
    /// # Errors
    /// The list is full: some entries were not added.
    fn merge(&self, entries: Vec<Revoked>) -> Result<bool, RevocationsFull>;
}

/// A node's list of revocations has no room for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevocationsFull;
