//! The reason why a request waits.

use crate::identity::ClientId;
use crate::protocols::request::{Answered, BufferedRequest, Suspended};
use crate::protocols::response::Response;

/// The reason why a request waits.
pub enum Waiting {
    /// The rest of the request's response isn't available yet.
    Response(Box<dyn Response>),
    /// An answer is missing. A request without a body is still at the front of the input.
    Suspended {
        /// The rest of the request's handler.
        request: Suspended,
        /// The request, if its body has arrived.
        buffered: Option<Box<BufferedRequest>>,
    },
    /// The missing answer has arrived, and the request continues when no bytes are in flight.
    Answered {
        /// The rest of the request's handler.
        request: Answered,
        /// The request, if its body has arrived.
        buffered: Option<Box<BufferedRequest>>,
    },
    /// The rest of the body is handled in a later turn, after the publications of the first part have been sent.
    Body(Box<BufferedRequest>),
}

impl Waiting {
    pub(super) fn response(&self) -> Option<&dyn Response> {
        if let Self::Response(response) = self { Some(&**response) } else { None }
    }

    /// Number of bytes held besides this value, without bytes that are counted elsewhere.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Response(response) => response.held_bytes(),
            Self::Body(buffered) => buffered.held_bytes(),
            Self::Suspended { request, buffered } => {
                request.held_bytes() + buffered.as_ref().map_or(0, |buffered| buffered.held_bytes())
            }
            Self::Answered { request, buffered } => {
                request.held_bytes() + buffered.as_ref().map_or(0, |buffered| buffered.held_bytes())
            }
        }
    }

    /// Returns `true` if the response has been passed to the driver.
    pub fn is_answered(&self) -> bool {
        self.response().is_some_and(Response::is_whole)
    }

    /// Returns `true` if the connection ends when its client finishes sending.
    pub fn ends_with_input(&self) -> bool {
        matches!(self, Self::Suspended { request, .. } if request.ends_with_input)
            || self.response().is_some_and(Response::ends_with_input)
    }

    /// The client that the response carries.
    pub fn client(&self) -> Option<ClientId> {
        self.response()?.client()
    }
}
