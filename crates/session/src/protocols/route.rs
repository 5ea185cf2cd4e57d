//! Routes of protocols: the facts about a request that are checked before its protocol handles it.

use super::clients::Clients;
use super::request::{BufferedRequest, RequestContext, RequestOutcome};
use crate::options::Options;
use std::ops::Range;

/// Facts about the requests of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteFacts {
    /// `true` if the request always opens a session, which counts towards the limits of its address.
    pub(crate) opens_session: bool,
    /// `true` if the request needs its body, to which [`Limits::body_bytes_max`](crate::options::Limits::body_bytes_max)
    /// doesn't apply.
    pub(crate) takes_body: bool,
    /// `true` if the path accepts requests for a WebSocket.
    pub(crate) has_socket: bool,
    /// `true` if the connection stays open after a response while the node drains, because sessions send further requests
    /// on it.
    pub(crate) outlives_drain: bool,
}

/// The messages by which a protocol notifies its clients of the end of a session. docs/close-codes.md is made from these
/// texts.
pub struct Closing {
    /// The name of the protocol.
    pub protocol: &'static str,
    /// Describes the end for clients that should reconnect.
    pub reconnect: &'static str,
    /// Describes the end for clients that should not reconnect.
    pub refused: &'static str,
    /// Close codes of the protocol itself: code, reason, `true` if the client should reconnect, and cause.
    pub codes: Vec<(u16, &'static str, bool, &'static str)>,
}

/// Returns the entries of all protocols that notify clients in a form of their own.
pub fn closings() -> Vec<Closing> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.closing()).collect()
}

/// A protocol with routes. The page's origin is checked before a request reaches its protocol.
pub trait Protocol: Sync {
    /// Facts about the requests of a path. `None` if the path doesn't belong to the protocol.
    fn route(&self, path: &str, options: &Options) -> Option<RouteFacts>;

    /// A valid path of the protocol, which the response to a request for another path mentions.
    fn example(&self) -> Option<&'static str> {
        None
    }

    /// The part of a path that names a session. It is a secret, so it isn't logged.
    fn secret(&self, _path: &str, _options: &Options) -> Option<Range<usize>> {
        None
    }

    /// The messages by which clients are notified of the end of a session. `None` if the protocol has no form of its own.
    fn closing(&self) -> Option<Closing> {
        None
    }

    /// Handles the headers of a request.
    fn handle_request(&self, cx: &mut RequestContext<'_>, clients: &mut Clients) -> RequestOutcome;

    /// Handles the body of a request, or the rest of the body.
    fn handle_body(
        &self,
        _cx: &mut RequestContext<'_>,
        _clients: &mut Clients,
        _buffered: &mut BufferedRequest,
    ) -> RequestOutcome {
        RequestOutcome::LAST
    }
}

/// All protocols with routes. The first one whose `route` returns facts handles a request.
pub(crate) static PROTOCOLS: &[&dyn Protocol] = &routed_protocols!();
