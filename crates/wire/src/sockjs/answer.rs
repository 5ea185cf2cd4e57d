//! Parts of a response besides frames: methods, headers, static bodies, preludes.
//!
//! Headers are pushed to a list for [`write_response_head`](crate::http1::write_response_head). The caller
//! adds framing headers, `Connection` and the cookie of [`jsessionid`]. The values follow the specification
//! where it prescribes them, otherwise sockjs-node.

use super::{Error, Resource, Transport};
use crate::http1;
use sha1::{Digest, Sha1};
use std::borrow::Cow;

/// The greeting: `text/plain`, at the prefix itself.
pub const GREETING: &str = "Welcome to SockJS!\n";

/// Body of the response to a `jsonp_send`: some browsers can't handle a 204.
pub const JSONP_SENT: &str = "ok";

/// Body of the response, with status 400, to a request without an upgrade at a WebSocket's URL.
pub const NOT_WEBSOCKET: &str = "Not a valid websocket request";

/// Maximum length of a callback in bytes, as in sockjs-node.
pub const CALLBACK_BYTES_MAX: usize = 32;

const YEAR_SECONDS: &str = "31536000";
const CACHE_YEAR: &str = "public, max-age=31536000";
const NO_CACHE: (&str, &str) =
    ("Cache-Control", "no-store, no-cache, no-transform, must-revalidate, max-age=0");
const TEXT: &str = "text/plain; charset=UTF-8";
const SCRIPT: &str = "application/javascript; charset=UTF-8";
const HTML: &str = "text/html; charset=UTF-8";

/// One header of a response. Its value may be taken from the request.
pub type Header<'r> = (&'static str, &'r str);

impl Resource<'_> {
    /// Returns the resource's methods, as `Allow` and `Access-Control-Allow-Methods` list them. A request
    /// with another method is answered with 405 and this `Allow`, without a body and a content type.
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

    /// Returns `true` for a WebSocket resource. A request to upgrade any other resource is answered with 400,
    /// whatever its method (CVE-2020-7693).
    pub fn is_websocket(&self) -> bool {
        matches!(self, Resource::RawWebSocket | Resource::Session { transport: Transport::WebSocket, .. })
    }

    /// Returns `true` if the resource has this method.
    pub fn allows(&self, method: &str) -> bool {
        self.methods().split(", ").any(|one| one == method)
    }

    /// Returns the status of a successful response: 204 for `xhr_send`, 101 for a WebSocket, otherwise 200.
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
                // Firefox reads a 204 without a content type as XML and logs an error.
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

    /// Returns `true` if responses carry the cookie of [`jsessionid`], for services that enable it.
    pub fn has_cookie(&self) -> bool {
        matches!(self, Resource::Session { transport, .. } if *transport != Transport::WebSocket)
    }
}

/// The request headers that decide about CORS. The origin is already known to be allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cors<'r> {
    /// `Origin`.
    pub origin: Option<&'r str>,
    /// `Access-Control-Request-Headers`.
    pub request_headers: Option<&'r str>,
}

impl<'r> Cors<'r> {
    /// Reads the headers of a request.
    pub fn of(request: &http1::Request<'r>) -> Self {
        Cors {
            origin: request.header_str("origin"),
            request_headers: request.header_str("access-control-request-headers"),
        }
    }

    /// Pushes the headers that allow the request: its own origin, also `null`, with credentials; without an
    /// origin, `*`.
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

/// Pushes the headers of a successful response; none for a WebSocket, whose handshake writes its own.
pub fn push_headers<'r>(headers: &mut Vec<Header<'r>>, resource: &Resource<'_>, cors: &Cors<'r>) {
    if let Some(content_type) = resource.content_type() {
        push_with_type(headers, resource, cors, content_type);
    }
}

/// Pushes the headers of the response to a request with an [`Error`]. The error has the status and the body.
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

/// Pushes the headers of the response to OPTIONS, status 204 without a body. If [`Resource::methods`] has no
/// `OPTIONS`, it is answered with 405 like every other method.
pub fn push_preflight_headers<'r>(headers: &mut Vec<Header<'r>>, resource: &Resource<'_>, cors: &Cors<'r>) {
    push_cache(headers);
    headers.push(("Access-Control-Allow-Methods", resource.methods()));
    headers.push(("Access-Control-Max-Age", YEAR_SECONDS));
    cors.push(headers);
}

/// Pushes the headers of a 304 response without a body, for a client that has the [`Iframe`] page already.
pub fn push_unchanged_headers<'r>(headers: &mut Vec<Header<'r>>, iframe: &'r Iframe) {
    headers.push(("ETag", iframe.etag()));
    headers.extend(iframe.ancestors().map(|policy| ("Content-Security-Policy", policy)));
    push_cache(headers);
}

fn push_cache(headers: &mut Vec<Header<'_>>) {
    headers.push(("Cache-Control", CACHE_YEAR));
    // For HTTP/1.0, which lacks max-age. A date that is far in the future needs no clock.
    headers.push(("Expires", "Thu, 31 Dec 2037 23:55:55 GMT"));
}

/// Returns the value of `Set-Cookie` with which load balancers keep a client on one server: the request's own
/// `JSESSIONID`, or `dummy`. `cookies` is the value of `Cookie`, `path` the attribute `Path`.
pub fn jsessionid(cookies: Option<&str>, path: &str) -> String {
    let own = cookies.unwrap_or("").split(';').find_map(|cookie| {
        let (name, value) = cookie.split_once('=')?;
        (name.trim() == "JSESSIONID").then_some(value.trim()).filter(|value| !value.is_empty())
    });
    format!("JSESSIONID={}; path={path}", own.unwrap_or("dummy"))
}

/// Appends the body of `/info`. `entropy` is a fresh, unpredictable number for old browsers without a random
/// source.
pub fn write_info(out: &mut Vec<u8>, websocket: bool, cookie_needed: bool, entropy: u32) {
    let info = format!(
        "{{\"websocket\":{websocket},\"origins\":[\"*:*\"],\"cookie_needed\":{cookie_needed},\"entropy\":{entropy}}}"
    );
    out.extend_from_slice(info.as_bytes());
}

/// The page that cross-domain transports load in a frame. Made once per service.
///
/// Messages in the frame have the server's origin, whichever page contains the frame. Only `frame-ancestors`
/// restricts those pages (Content Security Policy 3, section 6.4.2); the runnable specification has no such
/// restriction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iframe {
    page: String,
    etag: String,
    ancestors: Option<String>,
}

impl Iframe {
    /// Makes the page. `client_url` is the URL of the client library; `ancestors` lists the sources of pages
    /// that may contain the frame, `None` allows all.
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
        // The digest covers `ancestors`: a browser that cached the page under other rules must load it again.
        let digest =
            Sha1::new().chain_update(&page).chain_update(ancestors.as_deref().unwrap_or("")).finalize();
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Iframe { page, etag: format!("\"{digest}\""), ancestors }
    }

    /// Returns the body.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// Returns the value of `Content-Security-Policy`; `None` if any page may contain the frame.
    pub fn ancestors(&self) -> Option<&str> {
        self.ancestors.as_deref()
    }

    /// Returns the value of `ETag`, with its quotes.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// Returns `true` if an `If-None-Match` names this page (RFC 9110 section 13.1.2, weak comparison).
    pub fn is_named_by(&self, if_none_match: &str) -> bool {
        let mut tags = if_none_match.split(',').map(str::trim);
        tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag)
    }
}

/// The checked name of the JavaScript function that a client wants called: `[a-zA-Z0-9._-]`, 1 to
/// [`CALLBACK_BYTES_MAX`] bytes. Therefore a client can't inject markup or code into a page (CVE-2020-8823).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback<'q>(Cow<'q, str>);

impl<'q> Callback<'q> {
    /// Reads parameter `c` of a query, or else `callback`. If a parameter is repeated, the first one counts.
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

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Appends the prelude of a streaming response, as a separate chunk before the first frame. It makes browsers
/// deliver later frames at once. Appends nothing for other transports.
pub fn write_prelude(out: &mut Vec<u8>, transport: Transport) {
    match transport {
        Transport::XhrStreaming => {
            out.resize(out.len() + 2048, b'h');
            out.push(b'\n');
        }
        // Opera drops the first line.
        Transport::EventSource => out.extend_from_slice(b"\r\n"),
        _ => {}
    }
}

/// Minimum size of an `htmlfile` response before the first frame, in bytes. With fewer bytes, Internet
/// Explorer waits for more.
const HTML_PRELUDE_BYTES_MIN: usize = 1024;

/// Appends the prelude of an `htmlfile` response: the start of a page, more than 1024 bytes long.
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
