//! Clients behind proxies, and limits per address, user and session.

use super::super::section::section;
use super::super::setting::{Raw, Setting, choice, fields};
use super::super::value::{Bytes, HeaderName};
use super::{HOUR, ms, s};
use std::time::Duration;
use stentor_edge::ForwardedHeader;

impl Setting for ForwardedHeader {
    const UNIT: &'static str = "`x-forwarded-for`, `forwarded` or the name of a header";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let name = raw.text().filter(|text| HeaderName::is_name(text)).ok_or_else(|| {
            raw.mismatch(
                "\"x-forwarded-for\", \"forwarded\" or the name of a header (letters, digits and \"-\")",
            )
        })?;
        Ok(match &*name.to_ascii_lowercase() {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            _ => Self::Named(name.into()),
        })
    }

    fn show(&self) -> String {
        match self {
            Self::XForwardedFor => "\"x-forwarded-for\"".into(),
            Self::Forwarded => "\"forwarded\"".into(),
            Self::Named(name) => format!("{name:?}"),
        }
    }
}

choice! {
    /// The treatment of a message above a session's limit.
    LimitPolicy => stentor_edge::LimitPolicy {
        /// Drop it without a reply.
        Drop = "drop",
        /// Drop it, and reply with the error `too_many_requests`: as an `error` of `stentor.v1`, or in the event's
        /// acknowledgement. Clients in raw mode receive no reply.
        Error = "error",
        /// End the session with close code 4506.
        Close = "close",
    }
}

choice! {
    /// Whether connections begin with a header of the PROXY protocol.
    ProxyProtocol {
        /// Connections have no header.
        Off = "off",
        /// Each connection comes from `proxies.trusted` and begins with a header of version 1 or 2. Other
        /// connections are closed.
        Required = "required",
    }
}

fields! {
    ProxyProtocol => bool: mode -> *mode == ProxyProtocol::Required,
        required -> if *required { ProxyProtocol::Required } else { ProxyProtocol::Off };
}

section! {
    /// Proxies in front of the server, which state their clients' addresses: docs/limits.md.
    [proxies] Proxies => (edge.proxies) {
        /// Addresses and networks of proxies, such as `10.0.0.0/8`, that are trusted to name their clients. The client's address is
        /// the last hop in `header` that isn't in one of these networks. List only proxies that set or append to the
        /// header, and that clients can't bypass. Empty: the address of the connection is the client's.
        trusted: Vec<String> = Vec::new() => edge.proxies.trusted;
        /// The header in which proxies state the client's address: `x-forwarded-for`, `forwarded` (RFC 7239), or another one with
        /// exactly one address, such as `CF-Connecting-IP`, which the proxy must overwrite. If that is missing, repeated or malformed,
        /// the proxy counts as the client, and a warning is logged once a minute. `X-Forwarded-Proto` and `X-Forwarded-Host` are read
        /// with `x-forwarded-for` only, `proto=` and `host=` with `forwarded` only: a proxy that sets one header may pass on the
        /// other as the client wrote it. The host counts for `origins.allow` and `server.hosts`.
        header: ForwardedHeader;
        /// Time for the header of the PROXY protocol, on listeners with `proxy_protocol`. The connection is then closed.
        header_timeout: Duration, in ms(100)..=s(60);
    }
}

section! {
    /// Limits of one address: an IPv4 address, or a /64 network of IPv6. 0: no limit. Set `proxies.trusted` first; otherwise all clients
    /// behind a proxy share one address. Connections and sessions above a limit are answered with 429 and `Retry-After`. Switching the
    /// first limit of connections or of sessions on, or the last one off, needs a restart; other changes apply at a reload.
    [address_limits] AddressLimits => (edge.address_limits) {
        /// Open connections. Behind an HTTP proxy: WebSockets, streams and requests that wait.
        connections_max: usize, in 0..=100_000_000;
        /// New connections per second, and at once. Not counted behind an HTTP proxy, whose connections carry requests of many
        /// clients; use `sessions_per_second`.
        connections_per_second: usize, in 0..=1_000_000;
        /// Open sessions: one for each WebSocket, stream and polling client, and one for each namespace of a Socket.IO client.
        sessions_max: usize, in 0..=100_000_000;
        /// New WebSockets, streams and polling clients per second, and at once.
        sessions_per_second: usize, in 0..=1_000_000;
        /// Feeds that were never fetched and that all sessions of the address wait for. Further subscriptions are refused with
        /// `too_many_cold_keys`. `limits.cold_keys_max` is the same for one session.
        cold_keys_max: usize => control.feeds.cold_keys_per_address_max, in 0..=1_000_000;
        /// Addresses that are counted at the same time. The tables take 16 bytes each. If more addresses hold something, some of
        /// them aren't limited (`stentor_limit_table_full_total`).
        addresses_max: usize, in 1024..=16_777_216, [restart];
    }
}

section! {
    /// Limits of one user on this node: the issuer and subject of a token. 0: no limit. Anonymous clients have no limit.
    /// Switching the limit on or off needs a restart.
    [user_limits] UserLimits => (edge.user_limits) {
        /// Open sessions. Further ones are refused with `too_many_requests`. A disconnected Socket.IO session counts as long as it can be
        /// recovered.
        sessions_max: usize, in 0..=100_000_000;
        /// Users that are counted at the same time. The table takes 16 bytes each. If more users have sessions, some of them aren't limited
        /// (`stentor_limit_table_full_total`).
        users_max: usize, in 1024..=16_777_216, [restart];
    }
}

section! {
    /// Limits of the messages that one session sends. 0: no limit. Switching the first limit on, or the last
    /// one off, needs a restart; other changes apply at a reload, also to open sessions.
    [session_limits] SessionLimits => (edge.session_limits) {
        /// Messages and Socket.IO events per second.
        messages_per_second: usize, in 0..=1_000_000;
        /// Publications to rooms per second.
        publications_per_second: usize, in 0..=1_000_000;
        /// Bytes of messages and events per second.
        bytes_per_second: Bytes, in Bytes(0)..=Bytes::mib(4095);
        /// Time whose worth of the rates a silent session may send at once.
        burst: Duration, in ms(1)..=HOUR;
        /// Treatment of a message above a limit: docs/limits.md.
        policy: LimitPolicy;
    }
}
