//! What a request waits for.

use crate::identity::{ClientId, Sid};
use crate::protocols::request::BufferedRequest;
use crate::protocols::response::Response;

/// What a request waits for.
pub enum Waiting {
    /// The rest of its response.
    Response(Box<dyn Response>),
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
    pub(super) fn response(&self) -> Option<&dyn Response> {
        if let Self::Response(response) = self { Some(&**response) } else { None }
    }

    /// Bytes held besides this value, except those counted elsewhere.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Response(response) => response.held_bytes(),
            Self::Body(buffered) => buffered.held_bytes(),
            Self::Admission(_) | Self::StreamAdmission | Self::Location => 0,
        }
    }

    /// The response has been handed to the driver.
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
