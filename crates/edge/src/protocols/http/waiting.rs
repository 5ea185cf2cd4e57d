//! What a request waits for.

use crate::identity::{ClientId, Sid};
use crate::protocols::document::Awaited;
use crate::protocols::engineio::Poll;
use crate::protocols::page::DelayedBody;
use crate::protocols::request::BufferedRequest;
use crate::protocols::sockjs::Receiver;
use crate::protocols::sse::Events;

/// What a request waits for.
pub(crate) enum Waiting {
    /// A document.
    Document(Box<Awaited>),
    /// Packets for a client of Engine.IO that polls.
    Poll(Poll),
    /// Frames for a client of SockJS.
    Receiver(Box<Receiver>),
    /// Events of feeds, until there are none any more.
    Events(Box<Events>),
    /// The time for the rest of a page.
    Page(Box<DelayedBody>),
    /// [`crate::app::Context::admit`], for a client that will have this id; or a permission.
    Admission(Option<Sid>),
    /// Permissions for the feeds of a stream of events, which nobody receives who has finished sending.
    StreamAdmission,
    /// The answer which node has the session that it names.
    Location,
    /// A turn for the rest of the body: what the first of it has published leaves first.
    Body(Box<BufferedRequest>),
}

impl Waiting {
    /// Bytes held besides this struct, except those counted elsewhere.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Document(awaited) => awaited.held_bytes(),
            Self::Poll(poll) => poll.origin.as_deref().map_or(0, str::len),
            Self::Receiver(receiver) => receiver.held_bytes(),
            Self::Body(buffered) => buffered.held_bytes(),
            Self::Events(_) | Self::Page(_) | Self::Admission(_) | Self::StreamAdmission | Self::Location => {
                0
            }
        }
    }

    /// The response has been handed to the driver.
    pub(crate) fn is_answered(&self) -> bool {
        match self {
            Self::Document(awaited) => awaited.answered,
            Self::Poll(poll) => poll.answered,
            Self::Receiver(receiver) => receiver.answered,
            Self::Events(events) => events.answered,
            Self::Page(later) => later.is_answered(),
            Self::Admission(_) | Self::StreamAdmission | Self::Location | Self::Body(_) => false,
        }
    }

    /// Whether the connection lives on after the response.
    pub(super) fn keep_alive(&self) -> bool {
        match self {
            Self::Document(awaited) => awaited.keep_alive,
            Self::Poll(poll) => poll.keep_alive,
            Self::Receiver(receiver) => receiver.keep_alive,
            Self::Events(events) => events.keep_alive,
            Self::Page(later) => later.keep_alive,
            Self::Admission(_) | Self::StreamAdmission | Self::Location | Self::Body(_) => true,
        }
    }

    /// The client that is carried by the response.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match self {
            Self::Poll(poll) => Some(poll.client),
            Self::Receiver(receiver) => Some(receiver.client),
            Self::Document(_)
            | Self::Events(_)
            | Self::Page(_)
            | Self::Admission(_)
            | Self::StreamAdmission
            | Self::Location
            | Self::Body(_) => None,
        }
    }

    /// Whether nobody waits any more once the client has finished sending: nobody polls who doesn't read.
    pub(crate) fn ends_with_input(&self) -> bool {
        let is_read =
            matches!(self, Self::Poll(_) | Self::Receiver(_) | Self::Events(_) | Self::StreamAdmission);
        is_read && !self.is_answered()
    }

    /// The connection ends after the response.
    pub(crate) fn make_last(&mut self) {
        match self {
            Self::Document(awaited) => awaited.keep_alive = false,
            Self::Poll(poll) => poll.keep_alive = false,
            Self::Receiver(receiver) => receiver.keep_alive = false,
            Self::Events(events) => events.keep_alive = false,
            Self::Page(later) => later.keep_alive = false,
            Self::Admission(_) | Self::StreamAdmission | Self::Location | Self::Body(_) => {}
        }
    }
}
