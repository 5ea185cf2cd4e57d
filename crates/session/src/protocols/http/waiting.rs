//! The reason why a request waits.

use crate::identity::{ClientId, Sid};
use crate::protocols::request::BufferedRequest;
use crate::protocols::response::Response;

/// The reason why a request waits.
pub enum Waiting {
    /// The rest of the request's response isn't available yet.
    Response(Box<dyn Response>),
    /// The application's admission ([`crate::app::Context::admit`]) of a client that will have this id, or a decision, is
    /// missing.
    Admission(Option<Sid>),
    /// Decisions about the feeds of an SSE stream are missing. If the client finishes sending, it doesn't receive the stream.
    StreamAdmission,
    /// The node of the session that the request names isn't known yet.
    Location,
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
            Self::Admission(_) | Self::StreamAdmission | Self::Location => 0,
        }
    }

    /// Whether the response has been passed to the driver.
    pub fn is_answered(&self) -> bool {
        self.response().is_some_and(Response::is_whole)
    }

    /// Whether the connection ends when its client finishes sending.
    pub fn ends_with_input(&self) -> bool {
        matches!(self, Self::StreamAdmission) || self.response().is_some_and(Response::ends_with_input)
    }

    /// The client that the response carries.
    pub fn client(&self) -> Option<ClientId> {
        self.response()?.client()
    }
}
