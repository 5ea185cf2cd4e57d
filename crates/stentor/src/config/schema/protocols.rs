//! Protocols that have settings of their own.

use super::{HOUR, ms, s};
use crate::config::Sources;
use crate::config::section::section;
use crate::config::setting::{choice, fields};
use crate::config::value::Bytes;
use std::time::Duration;

section! {
    /// Engine.IO at `/engine.io/` and Socket.IO at `/socket.io/`. Heartbeats are those of `[heartbeat]`. A message, and a
    /// polling body, is limited by `limits.message_bytes_max`.
    [socketio] SocketIo => (edge.engine) {
        /// Namespaces besides `/`, for `--app rooms`.
        namespaces: Vec<String> => edge.rooms.namespaces;
        /// Whether clients of Socket.IO 1 and 2 (Engine.IO 3) are accepted.
        allow_version_3: bool;
        /// Whether polling clients of Engine.IO 3 are socket.io-client 1.x, which encodes text as UTF-8 twice. With this on,
        /// polling clients 2.x get garbled text beyond ASCII. The server can't tell 1.x from 2.x.
        polling_1: bool;
        /// Name of a cookie with the session id, for load balancers that need one. Empty: no cookie.
        cookie: String;
        /// Whether browsers send the session cookie over HTTPS only (`Secure`).
        cookie_secure: bool;
        /// Sites from which browsers send the session cookie (`SameSite`).
        cookie_same_site: CookieSameSite;
        /// Packets in one polling body.
        packets_max: usize, in 1..=10_000_000;
        /// Binary attachments of one packet. Socket.IO's own limit is 10.
        attachments_max: usize, in 0..=1000;
        /// Namespaces that one client is connected to.
        namespaces_max: usize, in 1..=1000;
        /// Time for the upgrade from polling to WebSocket, from the handshake on.
        upgrade_timeout: Duration, in ms(100)..=HOUR;
        /// Time from the start of a connection to the first CONNECT packet.
        connect_timeout: Duration, in ms(100)..=HOUR;
        /// Maximum disconnection time for connection state recovery. 0: recovery is off.
        recovery_ttl: Duration => recovery.age_max, in s(0)..=HOUR, [restart];
        /// Memory for messages kept for disconnected clients, per core (`stentor_socketio_recovery_bytes`). When exceeded,
        /// the oldest are evicted (`stentor_socketio_recovery_evicted_total`); clients that missed them start a new session.
        recovery_bytes_max: Bytes => recovery.bytes_max, in Bytes(0)..=Bytes::mib(65_536), [restart];
        /// Sockets of disconnected clients kept for recovery, per core (`stentor_socketio_recovery_sockets`).
        recovery_sockets_max: usize => recovery.sessions_max, in 0..=100_000_000, [restart];
        /// Name of the event that carries feed messages.
        feed_event: String, [restart];
        /// Whether the event's argument is the document as a string, instead of an object with the document and its
        /// position.
        feed_as_string: bool, [restart];
    }
}

choice! {
    /// Sites from which browsers send a cookie.
    CookieSameSite => stentor_edge::SameSite {
        /// The cookie's own site, and other sites when they navigate to it.
        Lax = "lax",
        /// Only the cookie's own site.
        Strict = "strict",
        /// Any site. Browsers demand `cookie_secure` for this.
        None = "none",
    }
}

choice! {
    /// The application of a prefix.
    PrefixApp {
        /// The application of `server.app`.
        Same = "same",
        /// Feeds and rooms, with the `stentor.v1` messages of docs/protocol.md.
        Rooms = "rooms",
        /// Returns each message to its sender.
        Echo = "echo",
        /// Sends each message to every client, the sender included.
        Chat = "chat",
    }
}

section! {
    /// A path prefix for SockJS. Write one `[[sockjs]]` per prefix. Without any, SockJS is served at `/sockjs`. The longest
    /// matching prefix applies.
    [sockjs] SockJs => (sockjs) {
        /// The path. It begins with `/` and doesn't end with `/`.
        prefix: String, [restart];
        /// The application of this prefix.
        app: PrefixApp, [restart];
        /// Whether WebSocket transports are offered.
        websocket: bool, [restart];
        /// Whether responses set the cookie `JSESSIONID`, for load balancers that need one.
        jsessionid: bool, [restart];
        /// Address of the SockJS client library for the iframe page: a path that the web server in front serves, or a URL.
        /// See docs/fallbacks.md.
        client_url: String, [restart];
        /// Size of a streaming response. The client then requests a new one. Browsers hold the whole response in memory.
        response_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024), [restart];
        /// Interval between heartbeats on a waiting request.
        heartbeat: Duration, in ms(100)..=HOUR, [restart];
        /// Time that a session lives without a receiving request.
        disconnect_delay: Duration, in ms(100)..=HOUR, [restart];
        /// Messages in one request body.
        messages_max: usize, in 1..=10_000_000, [restart];
    }
}

/// Checks the prefixes.
pub(crate) fn check_prefixes(sources: &mut Sources) {
    if let Err(text) = stentor_edge::SockJs::check(&sources.config.options().edge.sockjs) {
        let location = sources.location("sockjs[0]", "prefix");
        sources.problem(location, text);
    }
}

fields! {
    PrefixApp => Option<stentor_edge::App>:
        app -> match app {
            PrefixApp::Same => None,
            PrefixApp::Rooms => Some(stentor_edge::App::Rooms),
            PrefixApp::Echo => Some(stentor_edge::App::Echo),
            PrefixApp::Chat => Some(stentor_edge::App::Chat),
        },
        app -> match app {
            None => PrefixApp::Same,
            Some(stentor_edge::App::Rooms) => PrefixApp::Rooms,
            Some(stentor_edge::App::Echo) => PrefixApp::Echo,
            Some(stentor_edge::App::Chat) => PrefixApp::Chat,
        };
}
