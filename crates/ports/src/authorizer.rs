//! Permissions: the port through which the data plane asks whether a client may do something.

use super::{Asking, Identity, LazyRooms, PermissionReply, PublicId};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use stentor_hub::{CoreId, Room, Topic};

/// The verified user of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The issuer that verified the user. A subject is unique only within its issuer.
    pub issuer: Arc<str>,
    /// The user.
    pub subject: Arc<str>,
}

/// An action that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access<'a> {
    /// Connect to a namespace. Clients of plain protocols connect to `/`.
    Connect {
        /// The namespace.
        namespace: &'a str,
    },
    /// Receive publications to a topic.
    Subscribe(&'a Topic),
    /// Publish to a room.
    Publish(&'a Room),
    /// List the members of a room, or the subscribers of a feed.
    Presence(&'a Topic),
    /// Receive earlier publications to a topic.
    History(&'a Topic),
}

/// Identifies a question for a later answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The core that asks.
    pub core: CoreId,
    /// The number of the question, on this core.
    pub number: u64,
}

impl Ticket {
    /// A ticket for tests.
    #[doc(hidden)]
    pub fn for_test(number: u64) -> Self {
        Self { core: 0, number }
    }
}

/// A question to the [`Authorizer`].
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The open question, for an answer after [`Decision::Pending`].
    pub asking: Asking<'a>,
    /// The session that asks. `None` before the client is connected.
    pub session: Option<PublicId>,
    /// The rooms of the session.
    pub rooms: LazyRooms<'a>,
    /// A number for the client's IPv4 address or IPv6 /64 network. 0 before the client is connected.
    pub source: u64,
    /// The client's identity. `None` if the node has no [`Authenticator`](super::Authenticator).
    pub identity: Option<&'a Identity>,
    /// The requested action.
    pub access: Access<'a>,
}

impl Question<'_> {
    /// Returns a reply by which the question can be answered after [`Decision::Pending`].
    pub fn later(&self) -> PermissionReply {
        self.asking.later()
    }
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The action is allowed.
    Allow,
    /// The action is refused.
    Deny(Denial),
    /// The decision takes time. It follows through [`Question::later`], within `limits.decision_timeout`. Until then, the
    /// client's message or request waits, and so does all input that the client sends after it. The action is refused with
    /// [`Denial::UNAVAILABLE`], and the client may try again, if no decision arrives in time, if too many questions are open
    /// (`limits.decisions_max`), or if an application asks in a handler that can't wait. Only handlers of messages and events
    /// can wait.
    Pending,
}

/// The reason for refusing an action, as it is reported to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// For programs: lowercase words joined by `_`.
    pub code: Cow<'static, str>,
    /// For people.
    pub message: Cow<'static, str>,
    /// `true` if the same request may succeed later.
    pub retry: bool,
}

/// Codes that clients know: `token_missing`, `token_expired`, `token_not_yet_valid`, `token_invalid`, `token_revoked`, `not_allowed`,
/// `unavailable` and `too_many_requests`.
impl Denial {
    /// The decision didn't arrive in time.
    pub const UNAVAILABLE: Self = Self {
        code: Cow::Borrowed("unavailable"),
        message: Cow::Borrowed("it isn't known yet whether this is allowed; try again later"),
        retry: true,
    };

    /// The client has presented no token, and needs one.
    pub const TOKEN_MISSING: Self = Self {
        code: Cow::Borrowed("token_missing"),
        message: Cow::Borrowed("a token is needed"),
        retry: false,
    };

    /// The client's token, or its user, has been revoked.
    pub const TOKEN_REVOKED: Self = Self {
        code: Cow::Borrowed("token_revoked"),
        message: Cow::Borrowed("the token has been revoked"),
        retry: false,
    };

    /// `true` if the decision is missing or late, so no rule has denied the action.
    pub fn is_unavailable(&self) -> bool {
        self.retry && self.code == Self::UNAVAILABLE.code
    }

    /// A denial with `retry` false: repeating the request doesn't help.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: code.into(), message: message.into(), retry: false }
    }
}

/// Decides what clients may do. The cores call it on their threads, so it must not block: if the decision takes time, it
/// returns [`Decision::Pending`].
///
/// On a node with an [`Authenticator`](super::Authenticator), the authorizer of the client's [`Identity`] decides, and the
/// authorizer in the node's options is not used.
///
/// The data plane asks before it carries out a client's action. Commands of the control plane ([`Commands`](super::Commands)) and
/// actions of an application itself are allowed without a question.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides whether the client may perform the action.
    fn authorize(&self, question: &Question<'_>) -> Decision;

    /// Cancels a pending question, because its client has disconnected. A later decision has no effect.
    fn cancel(&self, _ticket: Ticket) {}

    /// `true` if an answer holds until the identity is renewed or
    /// [`Authenticator::generation`](super::Authenticator::generation) changes, so the same question needn't be asked
    /// again.
    fn is_cacheable(&self, _access: Access<'_>) -> bool {
        false
    }
}
