//! The list of pages that may connect, for all protocols.
//!
//! A browser sends the `Origin` of the page with each WebSocket handshake and cross-origin request; other clients send none. A
//! request is allowed if it has no `Origin`, if its origin has the same host and port as the request, or if the list names its
//! origin. Pages without a host send `null` (sandboxed frames), `file://` (Android's WebView) or the address of an application
//! (`app://`, `capacitor://localhost`). They are allowed only if the list names exactly this origin. Names are compared whole or
//! by label, never by text within them, so `https://evilexample.com` does not match `https://*.example.com` (CVE-2022-42975).

use std::fmt;
use stentor_wire::http1::Request;

/// The list of allowed origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    any: bool,
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    scheme: String,
    /// `true` if the host begins with `*.`, which stands for one or more labels.
    wildcard: bool,
    host: String,
    port: Option<u16>,
}

/// The reason why a text isn't a pattern of origins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an origin: write \"https://example.com\", \"https://*.example.com\", with \":PORT\" where it isn't the scheme's own, \
     \"file://\", \"null\", or \"*\" for any"
)]
pub struct PatternError(String);

/// The origin that pages without an origin, and pages that hide it, send.
const OPAQUE: &str = "null";

/// A parsed origin: `scheme://host[:port]`, or `scheme://` if the scheme isn't one of the web, or [`OPAQUE`], stored as a
/// scheme without a host.
struct Parsed<'a> {
    scheme: &'a str,
    host: &'a str,
    port: Option<u16>,
}

fn parse(origin: &str) -> Option<Parsed<'_>> {
    if origin == OPAQUE {
        return Some(Parsed { scheme: OPAQUE, host: "", port: None });
    }
    let (scheme, rest) = origin.split_once("://")?;
    let (host, port) = split_port(rest)?;
    let scheme_fits = !scheme.is_empty()
        && !scheme.eq_ignore_ascii_case(OPAQUE)
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let host_fits = is_name(host) || rest.is_empty() && default_port(scheme).is_none();
    (host_fits && scheme_fits).then_some(Parsed { scheme, host, port: port.or(default_port(scheme)) })
}

fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("ws") {
        Some(80)
    } else if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("wss") {
        Some(443)
    } else {
        None
    }
}

pub(crate) fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let after_bracket = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[after_bracket..].find(':') {
        Some(at) => {
            let (host, port) = authority.split_at(after_bracket + at);
            Some((host, Some(port[1..].parse().ok()?)))
        }
        None => Some((authority, None)),
    }
}

/// Returns `true` if a text is a host name, an IPv4 address, or an IPv6 address in brackets.
pub(crate) fn is_name(name: &str) -> bool {
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        }
    }
}

impl Origins {
    /// Reads a list of patterns: `scheme://host[:port]`, where the host may begin with `*.` to match all hosts below it,
    /// `file://`, `null`, or `*` for any origin.
    ///
    /// # Errors
    /// A pattern is not of this form.
    pub fn parse(patterns: &[impl AsRef<str>]) -> Result<Self, PatternError> {
        let mut origins = Self::default();
        for pattern in patterns {
            let text = pattern.as_ref();
            if text == "*" {
                origins.any = true;
                continue;
            }
            let bare = text.replacen("://*.", "://", 1);
            let wildcard = bare != text;
            let parsed = parse(&bare).filter(|origin| !(wildcard && origin.host.is_empty()));
            let parsed = parsed.ok_or_else(|| PatternError(text.to_owned()))?;
            origins.patterns.push(Pattern {
                scheme: parsed.scheme.to_ascii_lowercase(),
                wildcard,
                host: parsed.host.to_ascii_lowercase(),
                port: parsed.port,
            });
        }
        Ok(origins)
    }

    /// The list in the form of a Content Security Policy, for pages that only pages of allowed origins may frame: `'self'
    /// https://*.example.com`. `None` if any origin is allowed. IPv6 addresses and origins without a host can't be written in
    /// this form, and are left out.
    pub(crate) fn ancestors(&self) -> Option<String> {
        if self.any {
            return None;
        }
        let can_be_written = |pattern: &&Pattern| !pattern.host.is_empty() && !pattern.host.starts_with('[');
        let sources = self.patterns.iter().filter(can_be_written).map(Pattern::to_string);
        Some(std::iter::once("'self'".to_owned()).chain(sources).collect::<Vec<_>>().join(" "))
    }

    /// The value of `Access-Control-Allow-Origin` for an allowed `Origin`: the origin itself if a pattern lists it or
    /// the list has no `*`, otherwise `*`, with which browsers send no credentials.
    pub fn answer<'a>(&self, origin: Option<&'a str>) -> Option<&'a str> {
        let is_named = |origin| {
            parse(origin).is_some_and(|origin| self.patterns.iter().any(|pattern| pattern.matches(&origin)))
        };
        match origin {
            Some(origin) if !self.any || is_named(origin) => Some(origin),
            _ if self.any => Some("*"),
            _ => None,
        }
    }

    /// Returns `true` if a request with this `Origin`, sent to `host` (a name with its port), is allowed. `is_secure` is `true`
    /// if the request was sent over HTTPS: a page of `http://host` then isn't the server's own.
    pub fn allow(&self, origin: Option<&str>, host: &str, is_secure: bool) -> bool {
        origin.is_none_or(|origin| self.any || self.names(origin, host, is_secure))
    }

    /// Returns `true` if an origin is the server's own or listed by name.
    fn names(&self, origin: &str, host: &str, is_secure: bool) -> bool {
        let Some(origin) = parse(origin) else { return false };
        let same_host = split_port(host).is_some_and(|(name, port)| {
            !name.is_empty()
                && name.eq_ignore_ascii_case(origin.host)
                && port.or(default_port(origin.scheme)) == origin.port
        });
        let is_own = same_host && !(is_secure && origin.scheme.eq_ignore_ascii_case("http"));
        is_own || self.patterns.iter().any(|pattern| pattern.matches(&origin))
    }
}

impl Origins {
    /// Returns `true` if a request comes from a page of the server's own origin, or of an origin that the list names. `false`
    /// for programs that aren't browsers. A same-origin request may have no `Origin`; then the browser must state that the
    /// request is same-origin (Fetch Metadata). `host` is the host and port that the client named.
    pub(crate) fn vouches_for(&self, request: &Request<'_>, host: &str, is_secure: bool) -> bool {
        match request.header("origin") {
            Some(origin) => {
                let names = |origin| self.names(origin, host, is_secure);
                std::str::from_utf8(origin).is_ok_and(names)
            }
            None => request.header_str("sec-fetch-site") == Some("same-origin"),
        }
    }
}

/// The origin of the page that sent a request. `None` for programs that aren't browsers, and for the server's own pages if the
/// browser states so. Empty if the origin is unknown.
///
/// Browsers load scripts from any origin without an `Origin` header, which JSONP depends on. Since 2023, browsers state
/// that a script is for a page of another origin (Fetch Metadata). The `Referer` then names the page's origin, unless the
/// page hides it.
pub(crate) fn of_page<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    if let Some(origin) = request.header("origin") {
        return Some(std::str::from_utf8(origin).unwrap_or(""));
    }
    let is_script = request.header_str("sec-fetch-dest") == Some("script");
    let is_foreign = matches!(request.header_str("sec-fetch-site"), Some("cross-site" | "same-site"));
    (is_script && is_foreign).then(|| {
        let referer = request.header_str("referer").unwrap_or("");
        let host_at = referer.find("://").map_or(0, |at| at + 3);
        let end = referer[host_at..].find('/').map_or(referer.len(), |at| host_at + at);
        &referer[..end]
    })
}

impl Pattern {
    fn matches(&self, origin: &Parsed<'_>) -> bool {
        let host = origin.host.to_ascii_lowercase();
        let host_matches = if self.wildcard {
            host.strip_suffix(&self.host).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
        } else {
            host == self.host
        };
        host_matches && origin.scheme.eq_ignore_ascii_case(&self.scheme) && origin.port == self.port
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, wildcard, host, port } = self;
        if scheme == OPAQUE {
            return f.write_str(OPAQUE);
        }
        write!(f, "{scheme}://{}{host}", if *wildcard { "*." } else { "" })?;
        match port {
            Some(port) if Some(*port) != default_port(scheme) => write!(f, ":{port}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
