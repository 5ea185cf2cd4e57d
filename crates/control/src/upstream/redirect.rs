//! Redirects that stay within the path of an upstream (`redirects = "same_path"`).
//!
//! A redirect is followed only if its target has the scheme, host and port of `url`, and begins with the text
//! of `url` before the first placeholder. So that every server reads the same path, the target must contain
//! neither a segment `.` or `..` (also with parameters, as in `..;a`), nor `//` or `\`, nor percent-encoded
//! `.`, `/`, `\`, control characters or escapes.

use super::explain::{port, resolve};
use hyper::header::{HeaderMap, LOCATION};
use hyper::{StatusCode, Uri};

/// Maximum number of redirects of one fetch.
pub(super) const REDIRECTS_MAX: u32 = 3;

/// The common start of an upstream's URLs.
pub(super) struct Scope {
    origin: Uri,
    begin: String,
}

impl Scope {
    /// Makes the scope. `begin` is the text of `url` before its first placeholder.
    pub(super) fn new(begin: &str) -> Option<Self> {
        let origin: Uri = begin.parse().ok()?;
        Some(Self { begin: path_and_query(&origin), origin })
    }

    /// Returns the target of a redirect. `None` if the response is no redirect, or if the target isn't in the
    /// scope.
    pub(super) fn target(&self, asked: &Uri, status: StatusCode, headers: &HeaderMap) -> Option<Uri> {
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let target = resolve(headers.get(LOCATION)?.to_str().ok()?.trim(), asked)?;
        let authority = target.authority()?.as_str();
        let is_same_server = target.scheme() == self.origin.scheme()
            && target.host()?.eq_ignore_ascii_case(self.origin.host()?)
            && port(&target) == port(&self.origin)
            && !authority.contains('@');
        let path = path_and_query(&target);
        let is_within = is_same_server && is_plain(target.path()) && path.starts_with(&self.begin);
        let mut parts = self.origin.clone().into_parts();
        parts.path_and_query = Some(path.parse().ok()?);
        Uri::from_parts(parts).ok().filter(|_| is_within)
    }
}

/// Returns the path of a URL with its query, if there is one.
pub(super) fn path_and_query(url: &Uri) -> String {
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{query}", url.path())
}

/// Returns `true` if every server reads the same path, even a server that decodes twice.
fn is_plain(path: &str) -> bool {
    let is_dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    let is_escape = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    let mut pieces = path.split('%');
    let mut decoded = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| is_escape(digits.as_bytes()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = byte.filter(|byte| !b"./\\".contains(byte) && !byte.is_ascii_control()) else {
            return false;
        };
        decoded.push(byte);
        decoded.extend(&piece.as_bytes()[2..]);
    }
    !path.split('/').any(is_dots)
        && !path.contains("//")
        && !path.contains('\\')
        && !decoded.windows(3).any(|bytes| bytes[0] == b'%' && is_escape(&bytes[1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn a_redirect_never_leaves_the_path() {
        let check = |begin: &str, asked: &str, location: &str, expect: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, HeaderValue::from_str(location).unwrap());
            let scope = Scope::new(begin).unwrap();
            let target = scope.target(&asked.parse().unwrap(), StatusCode::FOUND, &headers);
            assert_eq!(target.map(|target| target.to_string()).as_deref(), expect, "{begin}: {location}");
        };
        let begin = "http://h/api/";
        let followed = |location, expect| check(begin, "http://h/api/k", location, Some(expect));
        for location in ["/api/k/", "k/", "http://h/api/k/", "http://H:80/api/k/", "//h/api/k/", "/api/k/#x"]
        {
            followed(location, "http://h/api/k/");
        }
        followed("/api/k?full=1", "http://h/api/k?full=1");
        followed("?full=../1", "http://h/api/k?full=../1");
        followed("/api/other/k", "http://h/api/other/k");
        followed("/api/a%20b/...", "http://h/api/a%20b/...");
        followed("/api/", "http://h/api/");
        followed("/api/50%25/", "http://h/api/50%25/");
        followed("/api/S%C3%A3o%20Paulo/", "http://h/api/S%C3%A3o%20Paulo/");
        for location in [
            "/api",
            "/apix/k",
            "/",
            "/admin",
            "x:/api/k",
            "https://h/api/k",
            "http://h:81/api/k",
            "http://evil/api/k",
            "//evil/api/k",
            "http://h@evil/api/k",
            "http://evil@h/api/k",
            "http://h.evil/api/k",
            "http://169.254.169.254/api/",
            "/api/../admin",
            "/api/./k",
            "../admin",
            "..",
            ".",
            "/api/..;/admin",
            "/api/.;a/k",
            "/api/..;a=b",
            "/api//admin",
            "/api/%2e%2e/admin",
            "/api/%2E./admin",
            "/api/..%2fadmin",
            "/api/a%2Fb",
            "/api/..%5cadmin",
            "/api/..\\admin",
            "/api/%252e%252e%252fadmin",
            "/api/%",
            "/api/%2",
            "/api/%zz",
            "/api/%+f",
            "/api/%25%32e/",
            "/api/%252%65/",
            "/api/%00",
            "/api/%0d%0a",
            "ftp://h/api/k",
            "http://[",
        ] {
            check(begin, "http://h/api/k", location, None);
        }
        check("https://h/a-", "https://h/a-1", "https://h:443/a-1/x", Some("https://h/a-1/x"));
        check("https://h/a-", "https://h/a-1", "http://h:443/a-1/x", None);
        check("https://h/a-", "https://h/a-1", "/a", None);
        check("http://h:8080", "http://h:8080/k", "http://h:8080/x", Some("http://h:8080/x"));
        check("http://h:8080", "http://h:8080/k", "http://h/x", None);
        check("http://h?k=", "http://h/?k=1", "/?k=1&a", Some("http://h/?k=1&a"));
        check("http://h/a?k=", "http://h/a?k=1", "/a?k=2", Some("http://h/a?k=2"));
        check("http://h/a?k=", "http://h/a?k=1", "/a/?k=2", None);
        check("http://[::1]:8/a", "http://[::1]:8/a", "http://[::1]:8/a/", Some("http://[::1]:8/a/"));
    }

    #[test]
    fn only_redirects_are_followed() {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("/k/"))]);
        let followed = |status: &u16| {
            let status = StatusCode::from_u16(*status).unwrap();
            Scope::new("http://h").unwrap().target(&"http://h/k".parse().unwrap(), status, &headers).is_some()
        };
        let statuses: Vec<u16> = (200..600).filter(followed).collect();
        assert_eq!(statuses, [301, 302, 303, 307, 308]);
        assert!(
            Scope::new("http://h")
                .unwrap()
                .target(&"http://h/k".parse().unwrap(), StatusCode::FOUND, &HeaderMap::new())
                .is_none()
        );
    }
}
