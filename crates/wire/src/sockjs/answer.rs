//! What answers consist of besides frames: methods, headers, static bodies, preludes.
//!
//! Headers are pushed to a list for [`write_response_head`](crate::http1::write_response_head); framing headers,
//! `Connection` and the cookie of [`jsessionid`] are added by whoever writes the response. The values are those of the
//! specification where it prescribes them, else of sockjs-node.

use super::{Error, Resource, Transport};
use crate::http1;
use sha1::{Digest, Sha1};
use std::borrow::Cow;

/// The greeting: `text/plain`, at the prefix itself.
pub const GREETING: &str = "Welcome to SockJS!\n";

/// What a `jsonp_send` is answered with: some browsers can't do with a 204.
pub const JSONP_SENT: &str = "ok";

/// What a request to a WebSocket's URL without an upgrade is answered with, status 400.
pub const NOT_WEBSOCKET: &str = "Not a valid websocket request";

/// Longest callback, in bytes, as in sockjs-node.
pub const CALLBACK_BYTES_MAX: usize = 32;

const YEAR_SECONDS: &str = "31536000";
const CACHE_YEAR: &str = "public, max-age=31536000";
const NO_CACHE: (&str, &str) =
    ("Cache-Control", "no-store, no-cache, no-transform, must-revalidate, max-age=0");
const TEXT: &str = "text/plain; charset=UTF-8";
const SCRIPT: &str = "application/javascript; charset=UTF-8";
const HTML: &str = "text/html; charset=UTF-8";

/// One header of an answer, its value perhaps taken from the request.
pub type Header<'r> = (&'static str, &'r str);

impl Resource<'_> {
    /// The methods it has, as `Allow` and `Access-Control-Allow-Methods` list them. Anything else is answered with 405,
    /// this `Allow`, and neither body nor content type.
    pub fn methods(&self) -> &'static str {
        match self {
            Resource::Info => "OPTIONS, GET",
            Resource::Greeting | Resource::Iframe | Resource::RawWebSocket => "GET",
            Resource::Session { transport, .. } => match transport {
                Transport::Xhr | Transport::XhrSend | Transport::XhrStreaming => "OPTIONS, POST",
                Transport::JsonpSend => "POST",
                Transport::WebSocket | Transport::EventSource | Transport::HtmlFile | Transport::Jsonp => {
                    "GET"
                }
            },
        }
    }

    /// Whether it is a WebSocket's. A request to upgrade anything else is answered with 400, whatever its method
    /// (CVE-2020-7693).
    pub fn is_websocket(&self) -> bool {
        matches!(self, Resource::RawWebSocket | Resource::Session { transport: Transport::WebSocket, .. })
    }

    /// Whether a request may have this method.
    pub fn allows(&self, method: &str) -> bool {
        self.methods().split(", ").any(|one| one == method)
    }

    /// The status of an answer that went well: 204 for `xhr_send`, 101 for a WebSocket, else 200.
    pub fn status(&self) -> u16 {
        match self {
            Resource::Session { transport: Transport::XhrSend, .. } => 204,
            resource if resource.is_websocket() => 101,
            _ => 200,
        }
    }

    fn content_type(&self) -> Option<&'static str> {
        Some(match self {
            Resource::Greeting => TEXT,
            Resource::Iframe => HTML,
            Resource::Info => "application/json; charset=UTF-8",
            Resource::RawWebSocket => return None,
            Resource::Session { transport, .. } => match transport {
                Transport::WebSocket => return None,
                Transport::Xhr | Transport::XhrStreaming | Transport::Jsonp => SCRIPT,
                // Firefox takes a 204 without a type for XML, and complains.
                Transport::XhrSend | Transport::JsonpSend => TEXT,
                Transport::EventSource => "text/event-stream",
                Transport::HtmlFile => HTML,
            },
        })
    }

    fn has_cors(&self) -> bool {
        match self {
            Resource::Info => true,
            Resource::Session { transport, .. } => matches!(
                transport,
                Transport::Xhr | Transport::XhrSend | Transport::XhrStreaming | Transport::EventSource
            ),
            _ => false,
        }
    }

    /// Whether the answers bear the cookie of [`jsessionid`], where a service wants it.
    pub fn has_cookie(&self) -> bool {
        matches!(self, Resource::Session { transport, .. } if *transport != Transport::WebSocket)
    }
}

/// What of a request decides about CORS headers. The origin has been allowed already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cors<'r> {
    /// `Origin`.
    pub origin: Option<&'r str>,
    /// `Access-Control-Request-Headers`.
    pub request_headers: Option<&'r str>,
}

impl<'r> Cors<'r> {
    /// Reads a request's headers.
    pub fn of(request: &http1::Request<'r>) -> Self {
        Cors {
            origin: request.header_str("origin"),
            request_headers: request.header_str("access-control-request-headers"),
        }
    }

    /// Pushes what allows the request: its own origin, `null` too, with credentials; without one `*`.
    pub fn push(&self, headers: &mut Vec<Header<'r>>) {
        if self.origin.is_some() {
            headers.push(("Access-Control-Allow-Credentials", "true"));
        }
        headers.push(("Access-Control-Allow-Origin", self.origin.unwrap_or("*")));
        headers.push(("Vary", "Origin"));
        if let Some(names) = self.request_headers.filter(|names| !names.is_empty()) {
            headers.push(("Access-Control-Allow-Headers", names));
        }
    }
}

/// Pushes the headers of the answer to a good request; none for a WebSocket, whose handshake has its own.
pub fn push_headers<'r>(headers: &mut Vec<Header<'r>>, resource: &Resource<'_>, cors: &Cors<'r>) {
    if let Some(content_type) = resource.content_type() {
        push_with_type(headers, resource, cors, content_type);
    }
}

/// Pushes the headers of the answer to a request with an [`Error`], whose status and body the error has.
pub fn push_error_headers<'r>(headers: &mut Vec<Header<'r>>, resource: &Resource<'_>, cors: &Cors<'r>) {
    push_with_type(headers, resource, cors, TEXT);
}

fn push_with_type<'r>(
    headers: &mut Vec<Header<'r>>,
    resource: &Resource<'_>,
    cors: &Cors<'r>,
    content_type: &'static str,
) {
    headers.push(("Content-Type", content_type));
    match resource {
        Resource::Greeting => {}
        Resource::Iframe => push_cache(headers),
        _ => headers.push(NO_CACHE),
    }
    if resource.has_cors() {
        cors.push(headers);
    }
    if matches!(resource, Resource::Session { transport: Transport::Jsonp, .. }) {
        headers.push(("X-Content-Type-Options", "nosniff"));
    }
}

/// Pushes the headers of the answer to OPTIONS, status 204 without a body. Where `OPTIONS` is not among
/// [`Resource::methods`] it is 405 as any other.
pub fn push_preflight_headers<'r>(headers: &mut Vec<Header<'r>>, resource: &Resource<'_>, cors: &Cors<'r>) {
    push_cache(headers);
    headers.push(("Access-Control-Allow-Methods", resource.methods()));
    headers.push(("Access-Control-Max-Age", YEAR_SECONDS));
    cors.push(headers);
}

/// Pushes the headers of the answer to a request for the [`Iframe`] page that has it already: 304 without a body.
pub fn push_unchanged_headers<'r>(headers: &mut Vec<Header<'r>>, iframe: &'r Iframe) {
    headers.push(("ETag", iframe.etag()));
    headers.extend(iframe.ancestors().map(|policy| ("Content-Security-Policy", policy)));
    push_cache(headers);
}

fn push_cache(headers: &mut Vec<Header<'_>>) {
    headers.push(("Cache-Control", CACHE_YEAR));
    // For HTTP/1.0, which has no max-age; a date that is far enough needs no clock.
    headers.push(("Expires", "Thu, 31 Dec 2037 23:55:55 GMT"));
}

/// The value of `Set-Cookie` by which load balancers keep a client at one server: the request's own `JSESSIONID`, or
/// `dummy`. `cookies` is the value of `Cookie`.
pub fn jsessionid(cookies: Option<&str>) -> String {
    let own = cookies.unwrap_or("").split(';').find_map(|cookie| {
        let (name, value) = cookie.split_once('=')?;
        (name.trim() == "JSESSIONID").then_some(value.trim()).filter(|value| !value.is_empty())
    });
    format!("JSESSIONID={}; path=/", own.unwrap_or("dummy"))
}

/// Appends the body of `/info`. `entropy` is a fresh, unpredictable number: old browsers have no source of their own.
pub fn write_info(out: &mut Vec<u8>, websocket: bool, cookie_needed: bool, entropy: u32) {
    let info = format!(
        "{{\"websocket\":{websocket},\"origins\":[\"*:*\"],\"cookie_needed\":{cookie_needed},\"entropy\":{entropy}}}"
    );
    out.extend_from_slice(info.as_bytes());
}

/// The page that transports across domains load, made once for a service.
///
/// What is said in its frame comes from the server's own origin, whichever page the frame is in: who may be told by
/// `frame-ancestors` only (Content Security Policy 3, section 6.4.2), of which the runnable specification knows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iframe {
    page: String,
    etag: String,
    ancestors: Option<String>,
}

impl Iframe {
    /// `client_url` is where the page finds the client library; `ancestors` the sources of pages that may have it in a
    /// frame, `None` for all.
    pub fn new(client_url: &str, ancestors: Option<&str>) -> Self {
        let url = client_url.replace('&', "&amp;").replace('"', "&quot;");
        let page = format!(
            "<!DOCTYPE html>\n<html>\n<head>\n\
            \x20 <meta http-equiv=\"X-UA-Compatible\" content=\"IE=edge\" />\n\
            \x20 <meta http-equiv=\"Content-Type\" content=\"text/html; charset=UTF-8\" />\n\
            \x20 <script src=\"{url}\"></script>\n\
            \x20 <script>\n\
            \x20   document.domain = document.domain;\n\
            \x20   SockJS.bootstrap_iframe();\n\
            \x20 </script>\n\
            </head>\n<body>\n\
            \x20 <h2>Don't panic!</h2>\n\
            \x20 <p>This is a SockJS hidden iframe. It's used for cross domain magic.</p>\n\
            </body>\n</html>"
        );
        let ancestors = ancestors.map(|sources| format!("frame-ancestors {sources}"));
        // A browser that has the page under other rules needs it again.
        let digest =
            Sha1::new().chain_update(&page).chain_update(ancestors.as_deref().unwrap_or("")).finalize();
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Iframe { page, etag: format!("\"{digest}\""), ancestors }
    }

    /// The body.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// The value of `Content-Security-Policy`; `None` where any page may have it in a frame.
    pub fn ancestors(&self) -> Option<&str> {
        self.ancestors.as_deref()
    }

    /// The value of `ETag`, with its quotes.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// Whether an `If-None-Match` names this page (RFC 9110 section 13.1.2, weak comparison).
    pub fn is_named_by(&self, if_none_match: &str) -> bool {
        let mut tags = if_none_match.split(',').map(str::trim);
        tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag)
    }
}

/// The name of a JavaScript function that a client asked to be called, checked: `[a-zA-Z0-9._-]`, 1 to
/// [`CALLBACK_BYTES_MAX`] bytes. So no client gets markup or code of its own into a page (CVE-2020-8823).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback<'q>(Cow<'q, str>);

impl<'q> Callback<'q> {
    /// Reads `c` of a query, or else `callback`; the first where there are several.
    ///
    /// # Errors
    /// [`Error::NoCallback`], [`Error::BadCallback`].
    pub fn from_query(query: &'q str) -> Result<Self, Error> {
        let named = |wanted: &str| http1::query_pairs(query).find(|(name, _)| name == wanted);
        let (_, name) = named("c").or_else(|| named("callback")).ok_or(Error::NoCallback)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let sound = !name.is_empty() && name.len() <= CALLBACK_BYTES_MAX && name.bytes().all(allowed);
        if sound { Ok(Callback(name)) } else { Err(Error::BadCallback) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Appends what a streaming response begins with, as a chunk of its own, before any frame. It makes browsers show
/// what follows at once. Nothing for other transports.
pub fn write_prelude(out: &mut Vec<u8>, transport: Transport) {
    match transport {
        Transport::XhrStreaming => {
            out.resize(out.len() + 2048, b'h');
            out.push(b'\n');
        }
        // Opera loses the first line.
        Transport::EventSource => out.extend_from_slice(b"\r\n"),
        _ => {}
    }
}

/// Bytes of an `htmlfile` response before the first frame, at least: with less, Internet Explorer waits for more.
const HTML_PRELUDE_BYTES_MIN: usize = 1024;

/// Appends what an `htmlfile` response begins with: a page, not ended, of more than 1024 bytes.
pub fn write_html_prelude(out: &mut Vec<u8>, callback: &Callback<'_>) {
    let start = out.len();
    let page = format!(
        "<!doctype html>\n<html><head>\n\
        \x20 <meta http-equiv=\"X-UA-Compatible\" content=\"IE=edge\" />\n\
        \x20 <meta http-equiv=\"Content-Type\" content=\"text/html; charset=UTF-8\" />\n\
        </head><body><h2>Don't panic!</h2>\n\
        \x20 <script>\n\
        \x20   document.domain = document.domain;\n\
        \x20   var c = parent.{};\n\
        \x20   c.start();\n\
        \x20   function p(d) {{c.message(d);}};\n\
        \x20   window.onload = function() {{c.stop();}};\n\
        \x20 </script>",
        callback.as_str()
    );
    out.extend_from_slice(page.as_bytes());
    out.resize(out.len().max(start + HTML_PRELUDE_BYTES_MIN), b' ');
    out.extend_from_slice(b"\r\n\r\n");
}
