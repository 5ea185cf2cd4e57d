//! Requests for a WebSocket that has a session of its own.

use super::WebSocket;
use crate::app::{Connect, Envelope, HandlerScope};
use crate::encode::Format;
use crate::encode::{WINDOW_BITS, frame};
use crate::identity::Owner;
use crate::identity::Service;
use crate::model::{Key, SessionId};
use crate::protocols::profile::{Framing, SocketProfile};
use crate::protocols::query::ConnectQuery;
use crate::protocols::request::{RequestContext, ResponseOptions, text};
use stentor_wire::http1::Request;
use stentor_wire::sockjs::{self, Wrapping};
use stentor_wire::ws::{DeflateOptions, Opcode, handshake};

/// A WebSocket that a client asks for.
pub(crate) struct UpgradeTarget {
    /// The one feed that it carries, bodies only.
    key: Option<Key>,
    profile: SocketProfile,
}

/// What became of the request.
pub(crate) enum UpgradeOutcome {
    Answered {
        keep_alive: bool,
    },
    /// It waits for [`crate::app::Context::admit`].
    Admission,
    Upgraded(Box<WebSocket>, SessionId),
}

impl UpgradeOutcome {
    const LAST: Self = Self::Answered { keep_alive: false };
}

impl UpgradeTarget {
    /// One of a service. With a key, it accepts no messages.
    pub(crate) fn new(framing: Framing, service: Service, key: Option<Key>) -> Self {
        Self { profile: SocketProfile { framing, service, push_only: key.is_some() }, key }
    }

    fn format(&self, envelope: Envelope, deflates: bool) -> Format {
        match (self.profile.framing, self.profile.service.custom()) {
            (Framing::Primus(_), _) => Format::primus(envelope),
            (Framing::SockJs, _) => Format::sockjs(Wrapping::WebSocket, envelope),
            (Framing::Plain, Some(place)) => Format::Custom(place as u8),
            (Framing::Plain, None) => Format::websocket(envelope, deflates),
        }
    }

    /// Appends what a session begins with.
    fn write_greeting(&self, out: &mut Vec<u8>) {
        match self.profile.framing {
            Framing::Plain | Framing::Primus(_) => {}
            Framing::SockJs => {
                frame(out, Opcode::Text, 1, |out| Wrapping::WebSocket.write(out, &sockjs::Frame::Open));
            }
        }
    }
}

/// Handles a request for a WebSocket.
pub(crate) fn handle_upgrade(
    cx: &mut RequestContext<'_>,
    request: &Request<'_>,
    target: UpgradeTarget,
    out: &mut Vec<u8>,
) -> UpgradeOutcome {
    let options = ResponseOptions::of(request, cx.ex.draining);
    let SocketProfile { framing, service, push_only } = target.profile;
    let deflate = framing == Framing::Plain && cx.ex.options().deflate.enabled;
    let offered = DeflateOptions::default();
    let accepted = match handshake::check_request(request, deflate.then_some(&offered)) {
        Ok(accepted) => accepted,
        Err(error) => {
            cx.count_error();
            if service.is_sockjs() {
                let why = sockjs::answer::NOT_WEBSOCKET;
                text(out, ResponseOptions::LAST, 400, error.headers(), why);
                return UpgradeOutcome::LAST;
            }
            // A client that meant to speak WebSocket continues in frames.
            let keep_alive = options.keep_alive && error.status() != 400;
            let options = ResponseOptions { keep_alive, ..options };
            text(out, options, error.status(), error.headers(), &error.to_string());
            return UpgradeOutcome::Answered { keep_alive };
        }
    };
    let parsed = ConnectQuery::parse(request.query())
        .and_then(|mut query| Ok((query.feeds(target.key.clone(), true)?, query.raw)));
    let (feeds, raw) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            cx.count_error();
            text(out, ResponseOptions::LAST, 400, &[], &error.to_string());
            return UpgradeOutcome::LAST;
        }
    };
    if cx.ex.draining {
        text(out, ResponseOptions::LAST, 503, &[("Retry-After", "1")], "the server is shutting down");
        return UpgradeOutcome::LAST;
    }
    let envelope = if push_only || raw { Envelope::Raw } else { cx.ex.app_of(service).envelope() };
    let mut headers = Vec::new();
    if !push_only {
        match cx.ask_to_connect(request, envelope, service, None) {
            Connect::Accept => {}
            Connect::AcceptWith(extra) => headers = extra,
            Connect::Pending => return UpgradeOutcome::Admission,
            Connect::Refuse { status, message } => {
                cx.count_error();
                text(out, ResponseOptions::LAST, status, &[], &message);
                return UpgradeOutcome::LAST;
            }
        }
    }
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    accepted.write_response(out, &headers, None);
    target.write_greeting(out);
    // Shared deflated frames are made with the largest window.
    let deflates = accepted.deflate.is_some_and(|d| d.server_max_window_bits >= WINDOW_BITS);
    let ex = &mut *cx.ex;
    let owner = Owner::Connection(cx.conn.index());
    let session = ex.open_session(target.format(envelope, deflates), owner, cx.source);
    let socket = WebSocket::new(ex.millis(), target.profile, envelope, accepted.deflate);
    if !push_only {
        let scope = HandlerScope {
            session: Some(session),
            writer: framing.writer(envelope),
            envelope,
            request: Some(request),
            service,
            ..HandlerScope::default()
        };
        ex.call_app(scope, out, |app, ctx| app.opened(ctx, session, envelope));
    }
    ex.subscribe_feeds(session, feeds);
    UpgradeOutcome::Upgraded(Box::new(socket), session)
}
