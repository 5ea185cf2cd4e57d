//! Requests for a WebSocket that has a session of its own.

use super::clients::Clients;
use super::dialect::{AnyDialect, Plain, SocketProfile, Upgraded};
use super::message::{self, scope_of};
use super::opening::{Admitted, NotAdmitted, Opening};
use super::query::ConnectQuery;
use super::request::{RequestContext, RequestOutcome, ResponseOptions, borrowed};
use super::route::{Protocol, RouteFacts};
use super::token::{V1_PROTOCOL, disconnect_for, subprotocol};
use crate::app::Envelope;
use crate::encode::WINDOW_BITS;
use crate::executor::Feeds;
use crate::identity::Service;
use crate::model::Key;
use crate::options::Options;
use crate::ports::Denial;
use stentor_wire::ws::{DeflateOptions, Opcode, encode, handshake};

/// The routes of custom protocols ([`Options::protocols`]).
pub(crate) struct CustomProtocols;

fn custom_place(path: &str, options: &Options) -> Option<usize> {
    options.protocols.iter().position(|protocol| protocol.path == path)
}

impl Protocol for CustomProtocols {
    fn route(&self, path: &str, options: &Options) -> Option<RouteFacts> {
        custom_place(path, options)?;
        Some(RouteFacts { opens_session: true, has_socket: true, ..RouteFacts::default() })
    }

    fn handle_request(&self, cx: &mut RequestContext<'_>, clients: &mut Clients) -> RequestOutcome {
        let place = custom_place(cx.request.path(), cx.ex.options());
        let service = place.map(Service::of_custom).unwrap_or_default();
        handle_request(cx, clients, Plain.into(), service, None)
    }
}

/// Handles a request for a WebSocket of a service. With a key, the WebSocket carries this feed in raw mode, and the client may
/// send no messages.
pub(crate) fn handle_request(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    dialect: AnyDialect,
    service: Service,
    key: Option<Key>,
) -> RequestOutcome {
    let push_only = key.is_some();
    let deflate = dialect.get().allows_deflate() && cx.ex.options().deflate.enabled;
    // While memory is short, a client can't keep its compression context, because its window takes too much. Browsers can do
    // without.
    let offered = DeflateOptions { allows_context: !cx.ex.is_memory_short(), ..DeflateOptions::default() };
    let accepted = match handshake::check_request(cx.request, deflate.then_some(&offered)) {
        Ok(accepted) => accepted,
        Err(error) => return cx.refuse(error.status(), error.headers(), &error.to_string()),
    };
    let parsed = ConnectQuery::parse(cx.request.query(), &cx.ex.options().keys)
        .and_then(|mut query| Ok((query.feeds(key, true)?, query.raw)));
    let (feeds, raw) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return cx.refuse_last(400, &[], &error),
    };
    if let Some(unavailable) = cx.unavailable_while_draining(&[]) {
        return unavailable;
    }
    let envelope = if push_only || raw { Envelope::Raw } else { cx.ex.app_of(service).envelope() };
    let opening = Opening::new(dialect.get().name(), envelope, service).push_only(push_only);
    cx.admit(clients, opening, move |cx, _, admitted| match admitted {
        Ok(admitted) => {
            open(cx, &accepted, SocketProfile { dialect, push_only, service }, envelope, feeds, admitted)
        }
        Err(NotAdmitted::Denied(denial)) => refuse(cx, &accepted, dialect, &denial),
        Err(NotAdmitted::Refused { status, message }) => cx.refuse_last(status, &[], &message),
    })
}

/// Accepts a WebSocket and opens its session.
fn open(
    cx: &mut RequestContext<'_>,
    accepted: &handshake::Accepted,
    profile: SocketProfile,
    envelope: Envelope,
    feeds: Feeds,
    Admitted { identity, headers }: Admitted,
) -> RequestOutcome {
    let SocketProfile { dialect, push_only, service } = profile;
    accepted.write_response(cx.out, &borrowed(&headers), subprotocol(cx.request));
    dialect.get().open(cx.out);
    // Shared compressed frames use the largest window.
    let deflates = accepted.deflate.is_some_and(|d| d.server_max_window_bits >= WINDOW_BITS);
    let encoding = dialect.get().encoding(service, envelope, deflates);
    let session = cx.ex.open_session(encoding, cx.owner(service), cx.client.source(), identity);
    if !push_only {
        message::open(cx.ex, scope_of(session, encoding, service, Some(cx.request)), cx.out);
        cx.ex.join_rooms(session, "/");
    }
    cx.ex.subscribe_feeds(cx.conn, session, feeds);
    *cx.session = Some(session);
    RequestOutcome::Upgraded(Upgraded { client: None, profile, encoding, deflate: accepted.deflate })
}

/// Refuses a client whose token isn't accepted. Pages can't read the status of a refused handshake, so a page's handshake
/// is accepted, and the WebSocket is closed with a code. So are handshakes of clients that declare that they know these
/// codes. Other clients receive a status.
fn refuse(
    cx: &mut RequestContext<'_>,
    accepted: &handshake::Accepted,
    dialect: AnyDialect,
    denial: &Denial,
) -> RequestOutcome {
    if cx.request.header("origin").is_none() && subprotocol(cx.request) != Some(V1_PROTOCOL) {
        cx.options = ResponseOptions::last(cx.ex);
        return cx.refuse_denied(denial, &[]);
    }
    close_denied(cx, accepted, Some(dialect), denial)
}

/// Accepts the handshake of a client whose token isn't accepted, and closes the WebSocket with a code.
pub(super) fn close_denied(
    cx: &mut RequestContext<'_>,
    accepted: &handshake::Accepted,
    dialect: Option<AnyDialect>,
    denial: &Denial,
) -> RequestOutcome {
    cx.count_error();
    let why = disconnect_for(denial);
    cx.ex.count_disconnect(why);
    accepted.write_response(cx.out, &[], subprotocol(cx.request));
    let (code, reason) = (why.code(), why.reason());
    if let Some(dialect) = dialect {
        dialect.get().close(code, reason, cx.out);
    }
    let payload = [&code.to_be_bytes(), reason.as_bytes()].concat();
    encode(cx.out, Opcode::Close, &payload, false, None);
    RequestOutcome::LAST
}
