//! The opening handshake (RFC 6455 section 4), with the negotiation of permessage-deflate (RFC 7692 section
//! 7.1).
//!
//! This module only decides about headers. The caller decides about origins, paths and the choice of a
//! subprotocol.

use std::fmt;
use std::str;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use super::deflate::{DeflateOptions, Negotiated, WINDOW_BITS};
use crate::http1::{
    self, BodyKind, Headers, Request, Response, Version, is_token, split_unquoted, tokens, trim,
    write_header, write_headers,
};

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

faults! {
    /// An error in a client's request.
    pub enum HandshakeError;
    /// Returns the HTTP status of the server's response.
    pub fn status;
    /// The method is not GET.
    MethodNotGet = 405, "the method is not GET",
    /// `Upgrade` does not name `websocket`.
    NoUpgrade = 426, "Upgrade is not websocket",
    /// `Connection` does not list `upgrade`, or the version is HTTP/1.0.
    NoConnectionUpgrade = 400, "Connection does not list upgrade",
    /// `Sec-WebSocket-Version` is not exactly one 13.
    BadVersion = 400, "Sec-WebSocket-Version is not 13",
    /// `Sec-WebSocket-Key` is not exactly one base64 value of 16 bytes.
    BadKey = 400, "Sec-WebSocket-Key is not base64 of 16 bytes",
    /// The request announces a body, which could not be distinguished from frames.
    HasBody = 400, "the request has a body",
}

impl HandshakeError {
    /// Returns the headers that the status requires (RFC 9110 sections 15.5.6 and 15.5.22, RFC 6455 section
    /// 4.4).
    pub fn headers(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            HandshakeError::MethodNotGet => &[("Allow", "GET")],
            HandshakeError::NoUpgrade => &[("Upgrade", "websocket"), ("Connection", "Upgrade")],
            HandshakeError::BadVersion => &[("Sec-WebSocket-Version", "13")],
            HandshakeError::NoConnectionUpgrade | HandshakeError::BadKey | HandshakeError::HasBody => &[],
        }
    }
}

/// An error in a server's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseError {
    /// The server refuses with this status instead of 101.
    Refused(u16),
    /// `Upgrade` or `Connection` is missing or wrong.
    NoUpgrade,
    /// `Sec-WebSocket-Accept` does not match our key.
    BadAccept,
    /// `Sec-WebSocket-Extensions` has an extension or a parameter that the client has not offered.
    BadExtensions,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResponseError::Refused(status) => write!(f, "the server refuses with status {status}"),
            ResponseError::NoUpgrade => f.write_str("Upgrade or Connection is wrong in the response"),
            ResponseError::BadAccept => f.write_str("Sec-WebSocket-Accept does not answer our key"),
            ResponseError::BadExtensions => f.write_str("Sec-WebSocket-Extensions was not offered"),
        }
    }
}

impl std::error::Error for ResponseError {}

/// A valid opening handshake. It borrows no data, so that the response can be delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The value of `Sec-WebSocket-Accept`, ASCII.
    pub accept: [u8; 28],
    /// The negotiated compression; `None` without compression.
    pub deflate: Option<Negotiated>,
    /// `true` if the response must state the server's window.
    names_server_window: bool,
}

impl Accepted {
    /// Appends the 101 response. `subprotocol` is one of [`subprotocols`]; `extra_headers` are as in
    /// [`http1::write_response_head`].
    pub fn write_response(
        &self,
        out: &mut Vec<u8>,
        extra_headers: &[(&str, &str)],
        subprotocol: Option<&str>,
    ) {
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
        );
        out.extend_from_slice(&self.accept);
        out.extend_from_slice(b"\r\n");
        if let Some(protocol) = subprotocol {
            write_header(out, "Sec-WebSocket-Protocol", protocol);
        }
        if let Some(negotiated) = self.deflate {
            out.extend_from_slice(
                b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover",
            );
            if !negotiated.client_keeps_context {
                out.extend_from_slice(b"; client_no_context_takeover");
            }
            if self.names_server_window {
                out.extend_from_slice(b"; server_max_window_bits=");
                out.extend_from_slice(negotiated.server_max_window_bits.to_string().as_bytes());
            }
            out.extend_from_slice(b"\r\n");
        }
        write_headers(out, extra_headers);
    }
}

/// Checks a request for a WebSocket. `deflate` is the policy for offers of compression; `None` declines all
/// of them.
///
/// Bytes after the request's head belong to the first frames.
///
/// # Errors
/// The request is no valid handshake. [`HandshakeError::status`] and [`HandshakeError::headers`] have the
/// response.
pub fn check_request(
    request: &Request<'_>,
    deflate: Option<&DeflateOptions>,
) -> Result<Accepted, HandshakeError> {
    let headers = request.headers();
    if request.method() != "GET" {
        return Err(HandshakeError::MethodNotGet);
    }
    if !request.upgrade_has_websocket() {
        return Err(HandshakeError::NoUpgrade);
    }
    if request.version() != Version::Http11 || !request.connection_has_upgrade() {
        return Err(HandshakeError::NoConnectionUpgrade);
    }
    if only(headers, "sec-websocket-version") != Some(b"13") {
        return Err(HandshakeError::BadVersion);
    }
    let key = only(headers, "sec-websocket-key").filter(|key| is_key(key)).ok_or(HandshakeError::BadKey)?;
    if request.body() != BodyKind::Empty {
        return Err(HandshakeError::HasBody);
    }
    let offer = deflate.and_then(|options| first_good_offer(headers, options));
    Ok(Accepted {
        accept: accept(key),
        deflate: offer.map(|(negotiated, _)| negotiated),
        names_server_window: offer.is_some_and(|(_, names_server_window)| names_server_window),
    })
}

/// Iterates over the subprotocols that a client offers, in its order of preference. Malformed ones are
/// skipped.
pub fn subprotocols<'b>(request: &Request<'b>) -> impl Iterator<Item = &'b str> + use<'b> {
    request.headers().all("sec-websocket-protocol").flat_map(tokens)
}

/// One opening handshake in the client role.
#[derive(Debug, Clone, Copy)]
pub struct ClientHandshake {
    key: [u8; 24],
    offers_deflate: bool,
}

impl ClientHandshake {
    /// Makes a handshake. `key16` are random bytes, new for each connection. `offers_deflate` offers
    /// permessage-deflate.
    pub fn new(key16: [u8; 16], offers_deflate: bool) -> Self {
        let mut key = [b'='; 24];
        // 16 bytes always encode to 24 characters.
        let written = STANDARD.encode_slice(key16, &mut key);
        debug_assert_eq!(written, Ok(24));
        ClientHandshake { key, offers_deflate }
    }

    /// Appends the request. Pass a subprotocol in `extra_headers`; the caller checks the server's choice.
    pub fn write_request(&self, out: &mut Vec<u8>, host: &str, target: &str, extra_headers: &[(&str, &str)]) {
        let key = str::from_utf8(&self.key).unwrap_or_default();
        // write_request_head ends the head, so the extra headers must come first.
        let mut headers = vec![
            ("Host", host),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", key),
        ];
        if self.offers_deflate {
            let offer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
            headers.push(("Sec-WebSocket-Extensions", offer));
        }
        headers.extend_from_slice(extra_headers);
        http1::write_request_head(out, "GET", target, &headers);
    }

    /// Checks the response; `Some` if compression was negotiated. Bytes after the head belong to the first
    /// frames.
    ///
    /// # Errors
    /// The server refuses or errs. The connection must be closed.
    pub fn check_response(&self, response: &Response<'_>) -> Result<Option<Negotiated>, ResponseError> {
        let headers = response.headers();
        if response.status() != 101 {
            return Err(ResponseError::Refused(response.status()));
        }
        let upgrades = only(headers, "upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
        if !upgrades || !response.connection_has_upgrade() {
            return Err(ResponseError::NoUpgrade);
        }
        if only(headers, "sec-websocket-accept") != Some(&accept(&self.key)) {
            return Err(ResponseError::BadAccept);
        }
        let mut extensions =
            headers.all("sec-websocket-extensions").flat_map(|value| split_unquoted(value, b','));
        let Some(extension) = extensions.next() else { return Ok(None) };
        if !self.offers_deflate || extensions.next().is_some() {
            return Err(ResponseError::BadExtensions);
        }
        let parameters = Parameters::read(extension).ok_or(ResponseError::BadExtensions)?;
        // We did not offer client_max_window_bits, so the response must not have it (RFC 7692 section
        // 7.1.2.2). And we can't inflate the messages of a server that keeps its context.
        if !parameters.server_no_context_takeover || parameters.client_max_window_bits.is_some() {
            return Err(ResponseError::BadExtensions);
        }
        let server_max_window_bits = parameters.server_max_window_bits.unwrap_or(*WINDOW_BITS.end());
        Ok(Some(Negotiated {
            server_max_window_bits,
            client_max_window_bits: *WINDOW_BITS.end(),
            // Our own client never keeps its context.
            client_keeps_context: false,
        }))
    }
}

/// Returns the value of a header that occurs exactly once.
fn only<'b>(headers: Headers<'b>, name: &str) -> Option<&'b [u8]> {
    let mut values = headers.all(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Checks for 22 base64 characters and `==`. The unused bits of the last character may have any value.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    key.len() == 24 && key[..22].iter().all(is_digit) && key.ends_with(b"==")
}

/// Computes `Sec-WebSocket-Accept` (RFC 6455 section 4.2.2, item 5.4).
fn accept(key: &[u8]) -> [u8; 28] {
    let hash = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut accept = [b'='; 28];
    // 20 bytes always encode to 28 characters.
    let written = STANDARD.encode_slice(hash, &mut accept);
    debug_assert_eq!(written, Ok(28));
    accept
}

/// Returns the first acceptable offer (RFC 7692 section 5), and whether the response must state the server's
/// window.
///
/// A client may refuse `client_no_context_takeover` in the response to an offer without it, as Netty's
/// clients do. Browsers accept it (RFC 7692 section 7.1.1.2 asks all clients to).
fn first_good_offer(headers: Headers<'_>, options: &DeflateOptions) -> Option<(Negotiated, bool)> {
    let ours = options.window_bits_max.clamp(*WINDOW_BITS.start(), *WINDOW_BITS.end());
    let is_browser = headers.all("user-agent").next().is_some_and(|agent| agent.starts_with(b"Mozilla/"));
    let mut offers = headers.all("sec-websocket-extensions").flat_map(|value| split_unquoted(value, b','));
    offers.find_map(|offer| {
        let parameters = Parameters::read(offer)?;
        let offered = parameters.server_max_window_bits;
        if offered.is_some_and(|bits| !WINDOW_BITS.contains(&bits)) {
            return None;
        }
        let client_keeps_context = !(is_browser || parameters.client_no_context_takeover);
        if client_keeps_context && !options.allows_context {
            return None;
        }
        let server_max_window_bits = ours.min(offered.unwrap_or(ours));
        // client_max_window_bits merely permits us to limit the client's window, which we never do. A value
        // is a hint about the client's own limit.
        let client_max_window_bits = *WINDOW_BITS.end();
        let negotiated = Negotiated { server_max_window_bits, client_max_window_bits, client_keeps_context };
        Some((negotiated, offered.is_some() || ours < *WINDOW_BITS.end()))
    })
}

/// The parameters of permessage-deflate in one offer or response.
#[derive(Default)]
struct Parameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// `Some(None)`: present without a value.
    client_max_window_bits: Option<Option<u8>>,
}

impl Parameters {
    /// Reads the parameters. `None` for another extension, and for a parameter that is unknown, repeated, or
    /// has an invalid value.
    fn read(extension: &[u8]) -> Option<Parameters> {
        let mut parts = split_unquoted(extension, b';');
        if parts.next()? != b"permessage-deflate" {
            return None;
        }
        let mut parameters = Parameters::default();
        for part in parts {
            let (name, value) = match memchr::memchr(b'=', part) {
                Some(equals) => (trim(&part[..equals]), Some(trim(&part[equals + 1..]))),
                None => (part, None),
            };
            let is_repeated = match (name, value) {
                (b"server_no_context_takeover", None) => {
                    std::mem::replace(&mut parameters.server_no_context_takeover, true)
                }
                (b"client_no_context_takeover", None) => {
                    std::mem::replace(&mut parameters.client_no_context_takeover, true)
                }
                (b"server_max_window_bits", Some(value)) => {
                    parameters.server_max_window_bits.replace(window_bits(value)?).is_some()
                }
                (b"client_max_window_bits", Some(value)) => {
                    parameters.client_max_window_bits.replace(Some(window_bits(value)?)).is_some()
                }
                (b"client_max_window_bits", None) => {
                    parameters.client_max_window_bits.replace(None).is_some()
                }
                _ => return None,
            };
            if is_repeated {
                return None;
            }
        }
        Some(parameters)
    }
}

/// Reads 8 to 15 without leading zeros (RFC 7692 section 7.1.2.1), as a token or quoted.
fn window_bits(value: &[u8]) -> Option<u8> {
    let value = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
    if !is_token(value) {
        return None;
    }
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}
