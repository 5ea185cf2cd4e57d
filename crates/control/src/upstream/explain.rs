//! Explanations of failures for the operator: the requested URL, the start of the response's body, and the
//! setting to change.
//!
//! An upstream may repeat a request in its error page, so secrets are masked.

use super::answer::Coding;
use flate2::bufread::MultiGzDecoder;
use hyper::header::{self, HeaderMap};
use hyper::{StatusCode, Uri};
use std::fmt;
use std::io::Read;

/// Maximum number of bytes of a body that are read for showing its start, before and after decompression.
/// Secrets are masked in all these bytes.
pub(super) const READ_BYTES_MAX: usize = 4 << 10;
/// Maximum number of bytes of a body that are shown.
const SHOWN_BYTES_MAX: usize = 200;
/// Maximum number of shown characters of a host name. No host name is longer (RFC 1035, section 2.3.4).
const HOST_CHARS_MAX: usize = 255;

/// Parts of error messages about connections, each with an explanation.
const HINTS: [(&str, &str); 11] = [
    (
        "fatal alert: CertificateRequired",
        "the upstream requires a client certificate: set `client_certificate_file`",
    ),
    // Servers also send this alert for a certificate whose issuer has the same name as a trusted one.
    ("fatal alert: DecryptError", "the upstream doesn't trust the certificate in `client_certificate_file`"),
    ("fatal alert: UnknownCA", "the upstream doesn't trust the certificate in `client_certificate_file`"),
    (
        "fatal alert: HandshakeFailure",
        "the upstream may require a client certificate (`client_certificate_file`), or another version of TLS",
    ),
    (
        "corrupt message of type InvalidContentType",
        "the upstream speaks plain HTTP: begin `url` with http://",
    ),
    ("certificate: UnknownIssuer", "unknown issuer: set `ca_file`"),
    ("certificate: BadSignature", "unknown issuer: set `ca_file`"),
    ("CaUsedAsEndEntity", "unknown issuer: set `ca_file` to the authority, not to the server's certificate"),
    (
        "tunnel error: proxy authorization required",
        "set `proxy = \"environment\"`, and HTTPS_PROXY to http://USER:PASSWORD@HOST:PORT",
    ),
    ("tunnel error: unsuccessful", "the proxy refuses to connect to the host of `url`"),
    ("certificate not valid for name", "set `host` to a name that the certificate has"),
];

/// Returns `true` for statuses whose bodies usually describe a mistake in the request.
pub(super) fn is_explained(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 401 | 403 | 404 | 422)
}

/// Returns an error message about a connection, with its explanation if there is one.
pub(super) fn with_hint(text: String) -> String {
    match HINTS.iter().find(|(part, _)| text.contains(part)) {
        Some((_, hint)) => format!("{text}: {hint}"),
        None => text,
    }
}

/// A refused request: its URL, and the start of the response's body.
#[derive(Debug)]
pub(crate) struct Refused {
    url: String,
    body: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.body.as_str() {
            "" => write!(f, " to {}, without a body", self.url),
            body => write!(f, " to {}: {body}", self.url),
        }
    }
}

impl Refused {
    /// Explains a refusal. The URL is shown unchanged. `masked` replaces secrets in the start of the body by `***`.
    pub(super) fn new(
        url: String,
        coding: Option<Coding>,
        body: &[u8],
        masked: impl Fn(&str) -> String,
    ) -> Self {
        let body = masked(&beginning(coding, body));
        let body = body.trim();
        Self { url, body: escaped(&body[..body.floor_char_boundary(SHOWN_BYTES_MAX)]) }
    }
}

/// Returns the URL without its query, which may contain a secret.
pub(super) fn shown_url(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let query = if url.query().is_some() { "?…" } else { "" };
    format!("{scheme}://{authority}{}{query}", url.path())
}

/// Returns the start of a body that may be truncated.
fn beginning(coding: Option<Coding>, body: &[u8]) -> String {
    let limit = u64::try_from(READ_BYTES_MAX).unwrap_or(u64::MAX);
    let mut text = Vec::new();
    // If decompression fails, the text has the bytes before the error.
    let _ = match coding {
        None => return "(in an unknown encoding)".into(),
        Some(Coding::Identity) => body.take(limit).read_to_end(&mut text),
        Some(Coding::Gzip) => MultiGzDecoder::new(body).take(limit).read_to_end(&mut text),
        Some(Coding::Brotli) => {
            brotli_decompressor::Decompressor::new(body, READ_BYTES_MAX).take(limit).read_to_end(&mut text)
        }
    };
    String::from_utf8_lossy(&text).into_owned()
}

/// Escapes a text for a log line: control characters, and characters that change the direction of text.
pub(super) fn escaped(text: &str) -> String {
    let is_plain = |c: char| {
        !(c.is_control()
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}'))
    };
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if is_plain(c) {
            line.push(c);
        } else {
            line.extend(c.escape_default());
        }
        line
    })
}

/// Describes the target of a redirect, with a hint about the setting to change.
pub(super) fn redirect(headers: &HeaderMap, asked: &Uri, are_followed: bool) -> String {
    let not_followed =
        if are_followed { "it leads out of the path of `url`" } else { "redirects aren't followed" };
    let Some(location) = headers.get(header::LOCATION) else {
        return format!("an unknown host (no Location header); {not_followed}");
    };
    let Some(target) = location.to_str().ok().and_then(|location| resolve(location.trim(), asked)) else {
        return format!("an invalid Location; {not_followed}");
    };
    let is_secured = asked.scheme_str() == Some("http") && target.scheme_str() == Some("https");
    let (path, target_path) = (asked.path(), target.path());
    let change = match (is_secured, target_path.strip_prefix(path), path.strip_prefix(target_path)) {
        (false, Some("/"), _) => Some("with a trailing slash"),
        (false, _, Some("/")) => Some("without its trailing slash"),
        (true, Some(""), _) => Some("with https"),
        (true, Some("/"), _) => Some("with https and a trailing slash"),
        _ => None,
    };
    let host = target.host().unwrap_or_default();
    let is_same_host = asked.host().is_some_and(|asked| asked.eq_ignore_ascii_case(host));
    let is_same_port = is_secured || port(asked) == port(&target);
    match change.filter(|_| is_same_host && is_same_port && asked.query() == target.query()) {
        Some(change) => format!("the same URL {change}: change `url`"),
        None if is_same_host && is_same_port => format!("another path of its own host; {not_followed}"),
        None => format!("the host {}; {not_followed}", host.chars().take(HOST_CHARS_MAX).collect::<String>()),
    }
}

/// Resolves a `Location` (RFC 3986, section 5.2, without the removal of dot segments).
pub(super) fn resolve(location: &str, asked: &Uri) -> Option<Uri> {
    let (scheme, authority) = (asked.scheme_str()?, asked.authority()?.as_str());
    let location = location.split('#').next().unwrap_or_default();
    let text = if location.split(['/', '?']).next().is_some_and(|begin| begin.ends_with(':')) {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.starts_with('?') {
        format!("{scheme}://{authority}{}{location}", asked.path())
    } else {
        let folder = asked.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    text.parse().ok().filter(|uri: &Uri| uri.host().is_some())
}

pub(super) fn port(uri: &Uri) -> Option<u16> {
    uri.port_u16().or_else(|| Some(if uri.scheme_str()? == "https" { 443 } else { 80 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::{Masks, Secrets};
    use hyper::header::HeaderValue;

    #[test]
    fn redirects_name_the_setting_to_change() {
        fn check(asked: &str, location: &str, expect: &str) {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, HeaderValue::from_str(location).unwrap());
            assert_eq!(redirect(&headers, &asked.parse().unwrap(), false), expect, "{asked} {location}");
        }
        let slash = "the same URL with a trailing slash: change `url`";
        for location in ["http://h/a/k/", "http://H:80/a/k/", "/a/k/", "k/", "//h/a/k/", "/a/k/#x"] {
            check("http://h/a/k", location, slash);
        }
        check("http://h/a/k?q=1", "/a/k/?q=1", slash);
        check("http://h/a/k/", "/a/k", "the same URL without its trailing slash: change `url`");
        check("http://h/a/k", "https://h/a/k", "the same URL with https: change `url`");
        check(
            "http://h:8080/a/k",
            "https://h/a/k/",
            "the same URL with https and a trailing slash: change `url`",
        );
        let elsewhere = "another path of its own host; redirects aren't followed";
        for location in ["/elsewhere", "/a/k/?q=1", "?q=1", "x", "http://h/a/k"] {
            check("http://h/a/k", location, elsewhere);
        }
        let host = |host: &str| format!("the host {host}; redirects aren't followed");
        check("http://h/a/k", "http://169.254.169.254/latest/meta-data", &host("169.254.169.254"));
        check("http://h/a/k", "//evil.example/a/k/", &host("evil.example"));
        check("http://h/a/k", "http://h:81/a/k/", &host("h"));
        check("http://h/", &format!("http://{}/", "h".repeat(300)), &host(&"h".repeat(255)));
        check("http://h/", "http://[", "an invalid Location; redirects aren't followed");
        let nothing = redirect(&HeaderMap::new(), &"http://h/".parse().unwrap(), false);
        assert_eq!(nothing, "an unknown host (no Location header); redirects aren't followed");
    }

    #[test]
    fn a_refusal_shows_neither_secrets_nor_control_characters() {
        let url = "http://h/{x}?token=s3cret&q={x}&n=1";
        let headers = [("Authorization".into(), "Bearer abcdef".into()), ("X-N".into(), "1".into())];
        let masks = Masks::new(&headers, url, Vec::new(), &Secrets::default());
        let check = |body: &[u8], expect: &str| {
            let url = "http://h/a?…".into();
            let refused = Refused::new(url, Some(Coding::Identity), body, |text| masks.mask_cut(text));
            assert_eq!(refused.to_string(), format!(" to http://h/a?…{expect}"));
        };
        check(b"", ", without a body");
        check(b" no\n", ": no");
        check(b"a\r\nb\x1b[31m \xe2\x80\xae\xff", ": a\\r\\nb\\u{1b}[31m \\u{202e}\u{fffd}");
        check(b"bad token abcdef for Bearer abcdef, 1", ": bad token *** for ***, 1");
        check(b"/a?token=s3cret&q=a", ": /a?token=***&q=a");
        check("\u{e9}".repeat(300).as_bytes(), &format!(": {}", "\u{e9}".repeat(100)));
        let secret_at_the_end = format!("{}abcdef", "x".repeat(197));
        check(secret_at_the_end.as_bytes(), &format!(": {}***", "x".repeat(197)));
        check(b"cut off: Bearer abc", ": cut off: ***");
    }
}
