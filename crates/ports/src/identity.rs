//! Who clients are: the port through which the data plane asks for the identity behind a token.
//!
//! ```text
//!  a request or CONNECT ── Credentials ──► Authenticator::authenticate ── Accepted(Identity) ──► the session keeps it
//!                                              │                     └── Refused(Denial) ────► HTTP 401, CONNECT_ERROR, …
//!                                              └── Pending ── IdentityReply ─► handled again
//!  what the session asks for ── Question ──► Identity::authorizer
//!  revoked, new permissions ── Commands::recheck ──► the sessions that it is about
//! ```

use super::{Asking, Authorizer, Denial, Principal, PublicId, Ticket};
use crate::source_of;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Room;

/// Who a client is, as a token or a hook has confirmed it; or nobody in particular. Sessions of one client share it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Issuer and subject. `None`: anonymous.
    pub principal: Option<Principal>,
    /// The id of the token (`jti`).
    pub token_id: Option<Arc<str>>,
    /// The issuer and the user of the token. A hook may have named another `principal`. `None`: the client has no token.
    pub token_principal: Option<Principal>,
    /// When the token was issued (`iat`), or when a hook named a client without a token, in Unix seconds.
    pub issued_at: Option<u64>,
    /// When the token expires (`exp`), in Unix seconds. The session ends then, unless its client has renewed it. `None`: never.
    pub expires_at: Option<u64>,
    /// What others may know of the client: JSON text, for presence and hooks.
    pub info: Option<Arc<str>>,
    /// Rooms that a session joins when it opens, without a question. Those of other namespaces are left out.
    pub join: Vec<Room>,
    /// Decides what the client may do: it knows the claims, the token's grants and the rules for everybody.
    pub authorizer: Arc<dyn Authorizer>,
}

impl Identity {
    /// Nobody in particular, for whom `authorizer` decides.
    pub fn anonymous(authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            principal: None,
            token_id: None,
            token_principal: None,
            issued_at: None,
            expires_at: None,
            info: None,
            join: Vec::new(),
            authorizer,
        }
    }
}

/// What a client presents to show who it is.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The token, wherever it came from. One in a cookie counts only if the page may connect by the server's own origin or by name.
    pub token: Option<&'a str>,
    /// What the connection says about it.
    pub client: ClientFacts<'a>,
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        let Self { token, client } = self;
        f.debug_struct("Credentials").field("has_token", &token.is_some()).field("client", client).finish()
    }
}

/// What the transport says about a client. Nothing of it comes from the client's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientFacts<'a> {
    /// Its address.
    pub address: Option<IpAddr>,
    /// `websocket`, `primus`, `engineio`, `socketio`, `sockjs`, `sse` or `http`.
    pub protocol: &'static str,
    /// The Socket.IO namespace that it connects to.
    pub namespace: Option<&'a str>,
    /// The header `Origin` of its request.
    pub origin: Option<&'a str>,
    /// The header `User-Agent` of its request.
    pub user_agent: Option<&'a str>,
    /// The header `traceparent` of its request, if it has the form of one (W3C Trace Context, section 3.2).
    pub traceparent: Option<&'a str>,
}

impl ClientFacts<'_> {
    /// A number for its address, or its /64 network of IPv6. 0: the address isn't known.
    pub fn source(&self) -> u64 {
        self.address.map_or(0, source_of)
    }
}

/// The answer to [`Credentials`].
#[derive(Clone, Debug)]
pub enum Authentication {
    /// This is who the client is.
    Accepted(Arc<Identity>),
    /// The client isn't let in. The code is one of [`Denial`]'s, so that clients know what to do.
    Refused(Denial),
    /// It isn't known yet: an [`IdentityReply`](super::IdentityReply) follows, within `limits.decision_timeout`.
    /// Until then the client's request or message waits.
    Pending,
    /// Verifying the token takes more work than this turn has left ([`SignatureWork::take`]). The data plane asks again in a later one.
    Postponed,
}

/// CPU time for signatures that a turn of a core has left, for all of its connections.
#[derive(Clone, Copy, Debug)]
pub struct SignatureWork {
    used: Duration,
    max: Duration,
}

impl SignatureWork {
    /// The work of one turn. `Duration::ZERO`: the turn has none left.
    pub fn new(max: Duration) -> Self {
        Self { used: Duration::ZERO, max }
    }

    /// Takes the time that a token needs, approximately. The first token of a turn gets any time. Returns false if the turn has too little
    /// left: the answer is [`Authentication::Postponed`] then.
    #[must_use]
    pub fn take(&mut self, time: Duration) -> bool {
        let fits = if self.used.is_zero() { !self.max.is_zero() } else { self.used + time <= self.max };
        if fits {
            self.used += time;
        }
        fits
    }

    /// Adds what was done.
    pub fn add(&mut self, time: Duration) {
        self.used += time;
    }

    /// Whether something is left.
    pub fn is_left(&self) -> bool {
        self.used < self.max
    }
}

/// Decides who clients are. It is called on the threads of the cores, so it must not block: an answer that takes time is
/// [`Authentication::Pending`].
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Verifies who a client is: when it connects, and again when it presents a newer token. The time for a signature is taken from `work`
    /// before it is verified.
    fn authenticate(
        &self,
        asking: Asking<'_>,
        credentials: &Credentials<'_>,
        work: &mut SignatureWork,
    ) -> Authentication;

    /// The client that waits for a pending answer has gone. An answer has no effect any more.
    fn cancel(&self, _ticket: Ticket) {}

    /// Whether the authorizers of identities decide who may publish. If not, `rooms.publish` does, as without an authenticator.
    fn decides_publishing(&self) -> bool {
        true
    }

    /// A number that changes when the rules have changed: what was decided before is void. Revocations don't change it.
    fn generation(&self) -> u64 {
        0
    }

    /// Whether an identity has been revoked, by user, token id, or because it was issued too early.
    fn is_revoked(&self, _identity: &Identity) -> bool {
        false
    }
}

/// Which sessions a [`Recheck`] is about: those for which all fields that are set match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityFilter {
    /// Identities that this issuer has confirmed.
    pub issuer: Option<Arc<str>>,
    /// Identities of this user.
    pub subject: Option<Arc<str>>,
    /// Identities of the token with this id.
    pub token_id: Option<Arc<str>>,
    /// Identities that were issued before, in Unix seconds. Without an issuer or a user, this concerns tokens only.
    pub issued_before: Option<u64>,
    /// This session.
    pub session: Option<PublicId>,
}

impl IdentityFilter {
    /// Whether an identity matches, whatever its session is.
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

/// What to do with the sessions of an [`IdentityFilter`], also with those whose client is disconnected and may be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecheckAction {
    /// Ends those whose identity is revoked ([`Authenticator::is_revoked`]), and asks about each subscription of the others again.
    Authorize,
    /// Ends those whose identity is revoked, and leaves the others as they are.
    EndRevoked,
    /// Ends them, for the reason `token_revoked`.
    Disconnect,
    /// Asks their clients for a new token. Those that don't present one in time end, for the reason `token_expired`.
    Renew,
}

/// The request of [`Commands::recheck`](super::Commands::recheck).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recheck {
    /// With which sessions.
    pub filter: IdentityFilter,
    /// What.
    pub action: RecheckAction,
}

/// An entry of a node's list of revocations, for the other nodes of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Which tokens are void. It names no session.
    pub filter: IdentityFilter,
    /// No such token is valid from here on, in Unix seconds. `u64::MAX`: the receiving node decides.
    pub until: u64,
}

/// The revocations that a node keeps, which all nodes of a cluster share. Lists merge in any order: the same entries, any number of
/// times, make the same list.
pub trait RevocationList: fmt::Debug + Send + Sync {
    /// The same number for the same entries.
    fn digest(&self) -> u64;

    /// At most `count` entries in their order, beginning after this one.
    fn entries(&self, after: Option<&IdentityFilter>, count: usize) -> Vec<Revoked>;

    /// Adds entries of another node: invalid ones and those that are over are ignored. Returns whether the list has changed. Its
    /// owner rechecks sessions.
    ///
    /// # Errors
    /// The list is full: not all were added.
    fn merge(&self, entries: Vec<Revoked>) -> Result<bool, RevocationsFull>;
}

/// A node's list of revocations has no room for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevocationsFull;
