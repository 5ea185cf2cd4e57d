//! Requests for a WebSocket that has a session of its own.

use super::message::{self, scope_of};
use super::profile::{Framing, SocketProfile, Upgraded};
use super::query::ConnectQuery;
use super::request::{RequestContext, RequestOutcome, borrowed};
use crate::app::{Connect, Envelope};
use crate::encode::{Format, WINDOW_BITS, frame};
use crate::identity::{Owner, Service};
use crate::model::Key;
use stentor_wire::sockjs::{self, Wrapping};
use stentor_wire::ws::{DeflateOptions, Opcode, handshake};

/// Handles a request for a WebSocket of a service. With a key, it carries the bodies of this feed, and accepts no
/// messages.
pub(crate) fn handle_request<W>(
    cx: &mut RequestContext<'_>,
    framing: Framing,
    service: Service,
    key: Option<Key>,
) -> RequestOutcome<W> {
    let push_only = key.is_some();
    let deflate = framing == Framing::Plain && cx.ex.options().deflate.enabled;
    let offered = DeflateOptions::default();
    let accepted = match handshake::check_request(cx.request, deflate.then_some(&offered)) {
        Ok(accepted) => accepted,
        Err(error) if service.is_sockjs() => {
            return cx.refuse_last(400, error.headers(), sockjs::answer::NOT_WEBSOCKET);
        }
        Err(error) => {
            // A client that meant to speak WebSocket continues in frames.
            cx.options.keep_alive &= error.status() != 400;
            return cx.refuse(error.status(), error.headers(), &error.to_string());
        }
    };
    let parsed = ConnectQuery::parse(cx.request.query())
        .and_then(|mut query| Ok((query.feeds(key, true)?, query.raw)));
    let (feeds, raw) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return cx.refuse_last(400, &[], &error),
    };
    if let Some(unavailable) = cx.unavailable_while_draining(&[]) {
        return unavailable;
    }
    let envelope = if push_only || raw { Envelope::Raw } else { cx.ex.app_of(service).envelope() };
    let mut headers = Vec::new();
    if !push_only {
        match cx.ask_to_connect(envelope, service, None) {
            Connect::Accept => {}
            Connect::AcceptWith(extra) => headers = extra,
            Connect::Pending => return RequestOutcome::Admission(None),
            Connect::Refuse { status, message } => return cx.refuse_last(status, &[], &message),
        }
    }
    accepted.write_response(cx.out, &borrowed(&headers), None);
    if framing == Framing::SockJs {
        frame(cx.out, Opcode::Text, 1, |out| Wrapping::WebSocket.write(out, &sockjs::Frame::Open));
    }
    // Shared deflated frames are made with the largest window.
    let deflates = accepted.deflate.is_some_and(|d| d.server_max_window_bits >= WINDOW_BITS);
    let format = match (framing, service.custom()) {
        (Framing::Primus(_), _) => Format::primus(envelope),
        (Framing::SockJs, _) => Format::sockjs(Wrapping::WebSocket, envelope),
        (Framing::Plain, Some(place)) => Format::Custom(place as u8),
        (Framing::Plain, None) => Format::websocket(envelope, deflates),
    };
    let session = cx.ex.open_session(format, Owner::Connection(cx.conn.index()), cx.source);
    if !push_only {
        let writer = framing.writer(envelope);
        message::open(cx.ex, scope_of(session, writer, envelope, service, Some(cx.request)), cx.out);
    }
    cx.ex.subscribe_feeds(session, feeds);
    *cx.session = Some(session);
    let profile = SocketProfile { framing, push_only, service };
    RequestOutcome::Upgraded(Upgraded { client: None, profile, envelope, deflate: accepted.deflate })
}
