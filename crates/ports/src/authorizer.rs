//! Permissions: the port through which the data plane asks whether a client may do something.

use super::{Asking, Identity, PermissionReply, PublicId};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use stentor_hub::{CoreId, Room, Topic};

/// Who a session acts for, as an issuer has confirmed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Who confirmed it. A subject means something only together with its issuer.
    pub issuer: Arc<str>,
    /// The user.
    pub subject: Arc<str>,
}

/// What a client wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access<'a> {
    /// Connect to a namespace; clients of plain protocols to `/`.
    Connect {
        /// The namespace.
        namespace: &'a str,
    },
    /// Receive what is published to a topic.
    Subscribe(&'a Topic),
    /// Publish to a room.
    Publish(&'a Room),
    /// List the members of a room, or the subscribers of a feed.
    Presence(&'a Topic),
    /// Receive what was published to a topic before.
    History(&'a Topic),
}

/// Names a question, for an answer that comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The core that asks.
    pub core: CoreId,
    /// The number of the question, on this core.
    pub number: u64,
}

impl Ticket {
    /// For tests of what answers questions.
    #[doc(hidden)]
    pub fn for_test(number: u64) -> Self {
        Self { core: 0, number }
    }
}

/// A question to the [`Authorizer`].
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Gives out the means to answer a question that is [`Decision::Pending`].
    pub asking: Asking<'a>,
    /// The session that asks. Before a client is connected, there is none.
    pub session: Option<PublicId>,
    /// A number for the client's address, or its /64 network of IPv6. Before a client is connected: 0.
    pub source: u64,
    /// Who the client is. `None`: the node has no [`Authenticator`](super::Authenticator).
    pub identity: Option<&'a Identity>,
    /// What it wants to do.
    pub access: Access<'a>,
}

impl Question<'_> {
    /// The means to answer a question that is [`Decision::Pending`].
    pub fn later(&self) -> PermissionReply {
        self.asking.later()
    }
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The client may.
    Allow,
    /// The client may not.
    Deny(Denial),
    /// It isn't known yet: the answer follows by [`Question::later`], within
    /// `limits.decision_timeout`. Until then the client's message or request waits, and so does what the client sends
    /// after it. Clients are refused with [`Denial::UNAVAILABLE`], and may try again, if no answer comes in time, if too many
    /// questions are open (`limits.decisions_max`), or if an application asks where nothing can wait: in another handler
    /// than those of messages and events.
    Pending,
}

/// Why a client may not do something, as it is reported to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// For programs: lowercase words joined by `_`.
    pub code: Cow<'static, str>,
    /// For people.
    pub message: Cow<'static, str>,
    /// Whether the same request may succeed later.
    pub retry: bool,
}

/// Codes that clients know: `token_missing`, `token_expired`, `token_not_yet_valid`, `token_invalid`, `token_revoked`, `not_allowed`,
/// `unavailable` and `too_many_requests`.
impl Denial {
    /// The answer isn't known in time.
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

    /// Whether nobody has denied anything: the answer couldn't be had, or not in time.
    pub fn is_unavailable(&self) -> bool {
        self.retry && self.code == Self::UNAVAILABLE.code
    }

    /// A denial for good.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: code.into(), message: message.into(), retry: false }
    }
}

/// Decides what clients may do. It is called on the threads of the cores, so it must not block: an answer that takes time is
/// [`Decision::Pending`].
///
/// On a node with an [`Authenticator`](super::Authenticator), the [`Identity`]'s is asked, and
/// the authorizer of the node's options isn't.
///
/// The data plane asks for what clients do. Commands of the control plane ([`Commands`](super::Commands)) and an application's own
/// acts are allowed without a question.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Whether a client may do something. By default it may do everything.
    fn authorize(&self, _question: &Question<'_>) -> Decision {
        Decision::Allow
    }

    /// The client that waits for a pending answer has gone. An answer has no effect any more.
    fn cancel(&self, _ticket: Ticket) {}

    /// Whether an answer holds until the identity is renewed or [`Authenticator::generation`](super::Authenticator::generation)
    /// changes, so that the same question needn't be asked again.
    fn is_cacheable(&self, _access: Access<'_>) -> bool {
        false
    }
}
