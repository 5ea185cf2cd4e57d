//! The query of every request, and the response to a refused request.

use std::borrow::Cow;
use std::fmt;

use super::Version;
use crate::http1;
use stentor_json as json;

/// The transport of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Long polling: GET requests wait for packets, POST requests carry packets.
    Polling,
    /// A WebSocket.
    WebSocket,
}

impl Transport {
    /// Returns the name in queries and handshakes.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Polling => "polling",
            Transport::WebSocket => "websocket",
        }
    }
}

/// The parameters in a request's query. If a parameter is repeated, the last one counts, as in the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'q> {
    /// `EIO`.
    pub version: Version,
    /// `transport`.
    pub transport: Transport,
    /// `sid`; `None` opens a session. Not empty, otherwise as the client sent it.
    pub sid: Option<Cow<'q, str>>,
    /// `j`: responses are scripts, POSTs are forms. Only with polling.
    pub jsonp: Option<u32>,
    /// `b64`: the client can't receive raw binary data.
    pub base64: bool,
}

impl<'q> Request<'q> {
    /// Reads the query (without `?`).
    ///
    /// # Errors
    /// [`RequestError::UnknownTransport`], [`RequestError::UnsupportedVersion`] unless `EIO` is 3 or 4, and
    /// [`RequestError::BadRequest`] for a `j` that isn't a number of at most 32 bits.
    pub fn parse(query: &'q str) -> Result<Self, RequestError> {
        let (mut version, mut transport, mut sid, mut jsonp, mut base64) = (None, None, None, None, false);
        for (name, value) in http1::query_pairs(query) {
            match &*name {
                "EIO" => version = Some(value),
                "transport" => transport = Some(value),
                "sid" => sid = Some(value).filter(|sid| !sid.is_empty()),
                "j" => jsonp = Some(value),
                "b64" => base64 = !value.is_empty(),
                _ => {}
            }
        }
        let transport = match transport.as_deref() {
            Some("polling") => Transport::Polling,
            Some("websocket") => Transport::WebSocket,
            _ => return Err(RequestError::UnknownTransport),
        };
        let version = match version.as_deref() {
            Some("4") => Version::V4,
            Some("3") => Version::V3,
            _ => return Err(RequestError::UnsupportedVersion),
        };
        let jsonp = match jsonp {
            Some(index) if transport == Transport::Polling => {
                let is_number = index.bytes().all(|byte| byte.is_ascii_digit());
                Some(index.parse().ok().filter(|_| is_number).ok_or(RequestError::BadRequest)?)
            }
            _ => None,
        };
        Ok(Request { version, transport, sid, jsonp, base64 })
    }

    /// Checks that the HTTP method suits the query. `is_upgrade` is `true` for a WebSocket upgrade.
    ///
    /// # Errors
    /// [`RequestError::BadHandshakeMethod`] if a request other than GET would open a session,
    /// [`RequestError::BadRequest`] for every other mismatch. (The reference checks for an unknown `sid`
    /// first.)
    pub fn check_method(&self, method: &str, is_upgrade: bool) -> Result<(), RequestError> {
        let method_fits = match (&self.sid, self.transport, method) {
            (_, _, "GET") | (Some(_), Transport::Polling, "POST") => true,
            (None, _, _) => return Err(RequestError::BadHandshakeMethod),
            _ => false,
        };
        if method_fits && is_upgrade == (self.transport == Transport::WebSocket) {
            Ok(())
        } else {
            Err(RequestError::BadRequest)
        }
    }

    /// Appends the query as a client sends it (without `?`).
    pub fn write_query(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.version {
            Version::V3 => b"EIO=3&transport=",
            Version::V4 => b"EIO=4&transport=",
        });
        out.extend_from_slice(self.transport.name().as_bytes());
        if self.base64 {
            out.extend_from_slice(b"&b64=1");
        }
        if let Some(index) = self.jsonp {
            out.extend_from_slice(b"&j=");
            out.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
        }
        if let Some(sid) = &self.sid {
            out.extend_from_slice(b"&sid=");
            sid.bytes().for_each(|byte| push_percent_encoded(out, byte));
        }
    }
}

/// Appends a byte of a query's or a form's value, percent-encoded if necessary.
pub(super) fn push_percent_encoded(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte),
        _ => {
            let hex = |digit: u8| b"0123456789ABCDEF"[usize::from(digit)];
            out.extend_from_slice(&[b'%', hex(byte >> 4), hex(byte & 0xf)]);
        }
    }
}

/// Reason for refusing a request. The client is at fault, except for [`RequestError::Forbidden`], which the
/// application decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// `transport` is missing or unknown.
    UnknownTransport,
    /// No session has this id.
    UnknownSession,
    /// A session must be opened with GET.
    BadHandshakeMethod,
    /// The request is inconsistent in another way.
    BadRequest,
    /// The application refuses the request.
    Forbidden,
    /// `EIO` is missing or names an unsupported protocol.
    UnsupportedVersion,
}

impl RequestError {
    /// Returns the error code in the body of the response.
    pub fn code(self) -> u8 {
        match self {
            RequestError::UnknownTransport => 0,
            RequestError::UnknownSession => 1,
            RequestError::BadHandshakeMethod => 2,
            RequestError::BadRequest => 3,
            RequestError::Forbidden => 4,
            RequestError::UnsupportedVersion => 5,
        }
    }

    /// Returns the HTTP status of the response.
    pub fn status(self) -> u16 {
        if self == RequestError::Forbidden { 403 } else { 400 }
    }

    /// Returns the message in the body of the response.
    pub fn message(self) -> &'static str {
        match self {
            RequestError::UnknownTransport => "Transport unknown",
            RequestError::UnknownSession => "Session ID unknown",
            RequestError::BadHandshakeMethod => "Bad handshake method",
            RequestError::BadRequest => "Bad request",
            RequestError::Forbidden => "Forbidden",
            RequestError::UnsupportedVersion => {
                "Unsupported protocol version: Engine.IO protocols 4 and 3 are spoken here (EIO=4, EIO=3)"
            }
        }
    }

    /// Appends the body of the response, `application/json`. `message` replaces the default message.
    pub fn write_body(self, out: &mut Vec<u8>, message: Option<&str>) {
        out.extend_from_slice(b"{\"code\":");
        out.push(b'0' + self.code());
        out.extend_from_slice(b",\"message\":");
        json::write_string(out, message.unwrap_or(self.message()));
        out.push(b'}');
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for RequestError {}
