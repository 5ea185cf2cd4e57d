//! Routes of protocols: the facts about a request that are checked before its protocol handles it.

use super::clients::Clients;
use super::request::{BufferedRequest, RequestContext, RequestOutcome};
use crate::options::Options;
use std::ops::Range;

/// Facts about the requests of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteFacts {
    /// The request always opens a session, which counts for its address.
    pub(crate) opens_session: bool,
    /// The body is needed, so it isn't limited by [`Limits::body_bytes_max`](crate::options::Limits::body_bytes_max).
    pub(crate) takes_body: bool,
    /// The protocol answers requests for a WebSocket.
    pub(crate) has_socket: bool,
    /// The connection lives on after a response while the node drains: sessions send their next requests on it.
    pub(crate) outlives_drain: bool,
}

/// The end of a session, as clients of a protocol see it. docs/close-codes.md is made from it.
pub struct Closing {
    /// The name of the protocol.
    pub protocol: &'static str,
    /// The end for clients that should reconnect.
    pub reconnect: &'static str,
    /// The end for clients that should not reconnect.
    pub refused: &'static str,
    /// Codes of the protocol's own: code, reason, whether the client should reconnect, cause.
    pub codes: Vec<(u16, &'static str, bool, &'static str)>,
}

/// The ends of sessions of all protocols of the table that have a form of their own.
pub fn closings() -> Vec<Closing> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.closing()).collect()
}

/// A protocol with routes. Its requests come from pages that may connect only.
pub trait Protocol: Sync {
    /// Facts about the requests of a path. `None`: it isn't a path of the protocol.
    fn route(&self, path: &str, options: &Options) -> Option<RouteFacts>;

    /// A path that clients request, for the answer to others.
    fn example(&self) -> Option<&'static str> {
        None
    }

    /// The part of a path that names a session, and isn't logged.
    fn secret(&self, _path: &str, _options: &Options) -> Option<Range<usize>> {
        None
    }

    /// The end of a session, if it has a form of its own.
    fn closing(&self) -> Option<Closing> {
        None
    }

    /// Handles the head of a request.
    fn handle_request(&self, cx: &mut RequestContext<'_>, clients: &mut Clients) -> RequestOutcome;

    /// Handles the body of a request, or what is left of it.
    fn handle_body(
        &self,
        _cx: &mut RequestContext<'_>,
        _clients: &mut Clients,
        _buffered: &mut BufferedRequest,
    ) -> RequestOutcome {
        RequestOutcome::LAST
    }
}

/// All protocols with routes, in the order in which they are asked for a path.
pub(crate) static PROTOCOLS: &[&dyn Protocol] = &routed_protocols!();
