//! The paths under the prefixes.

use super::{handle_body, handle_request};
use crate::identity::Service;
use crate::options::Options;
use crate::protocols::clients::Clients;
use crate::protocols::request::{BufferedRequest, RequestContext, RequestOutcome};
use crate::protocols::route::{Closing, Protocol, RouteFacts};
use std::ops::Range;
use stentor_wire::sockjs::{Close, Error, Resource, Route, Transport};

type Outcome = RequestOutcome;

/// The protocol: paths under its prefixes.
pub(crate) struct SockJs;

impl Protocol for SockJs {
    fn route(&self, path: &str, options: &Options) -> Option<RouteFacts> {
        let (_, route) = route_of(path, options)?;
        let takes_body = matches!(
            route.resource,
            Resource::Session { transport: Transport::XhrSend | Transport::JsonpSend, .. }
        );
        // A session over HTTP is counted later, when it is known that no session has its name.
        let opens_session = route.resource.is_websocket();
        Some(RouteFacts { opens_session, takes_body, has_socket: true, outlives_drain: true })
    }

    fn secret(&self, path: &str, options: &Options) -> Option<Range<usize>> {
        let (_, rest) = prefix_of(path, options)?;
        if let Some(Route { resource: Resource::Session { .. }, .. }) = stentor_wire::sockjs::parse_path(rest)
        {
            let end = path.rfind('/')?;
            return Some(path[..end].rfind('/')? + 1..end);
        }
        // `rest` is `/SERVER/SESSION`, and perhaps more.
        let begin = path.len() - rest.len();
        let mut slashes = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > begin);
        let server = slashes.next()?;
        Some(server + 1..slashes.next().unwrap_or(path.len()))
    }

    fn example(&self) -> Option<&'static str> {
        Some("/sockjs/")
    }

    fn closing(&self) -> Option<Closing> {
        let own = |Close { code, reason }: Close<'static>, reconnect, cause| (code, reason, reconnect, cause);
        let broken = Close { code: Error::CLOSE_CODE, reason: Error::CLOSE_REASON };
        Some(Closing {
            protocol: "SockJS",
            reconnect: "the frame `c[CODE,\"REASON\"]`; over WebSocket, then a close frame with the same code",
            refused: "the same",
            codes: vec![
                own(Close::NORMAL, false, "The application ended the session."),
                own(
                    Close::INTERRUPTED,
                    true,
                    "The client asks again for a session whose receiving connection was cut off.",
                ),
                own(Close::ANOTHER_CONNECTION, false, "The session already has a receiving connection."),
                own(broken, false, "A message on the WebSocket is not a JSON array of strings."),
            ],
        })
    }

    fn handle_request(&self, cx: &mut RequestContext<'_>, clients: &mut Clients) -> Outcome {
        let current = cx.ex.options.clone();
        let Some((service, route)) = route_of(cx.request.path(), &current) else {
            return Outcome::LAST;
        };
        handle_request(cx, clients, service, &route)
    }

    fn handle_body(
        &self,
        cx: &mut RequestContext<'_>,
        clients: &mut Clients,
        buffered: &mut BufferedRequest,
    ) -> Outcome {
        let current = cx.ex.options.clone();
        let Some((service, route)) = route_of(cx.request.path(), &current) else {
            return Outcome::LAST;
        };
        handle_body(cx, &mut clients.sockjs, service, &route, buffered)
    }
}

/// The index of the longest prefix that matches a path, and the rest of the path.
fn prefix_of<'p>(path: &'p str, options: &Options) -> Option<(usize, &'p str)> {
    let under =
        |prefix: &str| path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let all = options.sockjs.iter().enumerate();
    let fitting = all.filter_map(|(place, sockjs)| Some((place, under(&sockjs.prefix)?)));
    fitting.min_by_key(|(_, rest)| rest.len())
}

/// The service and the resource of a path.
pub(super) fn route_of<'p>(path: &'p str, options: &Options) -> Option<(Service, Route<'p>)> {
    let (place, rest) = prefix_of(path, options)?;
    Some((Service::of(place), stentor_wire::sockjs::parse_path(rest)?))
}

#[cfg(test)]
mod tests;
