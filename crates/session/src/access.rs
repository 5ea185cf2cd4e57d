//! The access log ([`Options::access_log`](crate::options::Options)): one line per request, when its response is complete
//! or its connection ends.
//!
//! A WebSocket or an SSE stream is one request that lasts as long as its connection. Lines are events of `tracing` with the
//! target [`ACCESS_LOG`], whose subscriber must not block. A line contains neither query nor headers, because these contain
//! tokens and ids of sessions. In the paths of SockJS, `*` replaces the name of the session.
//!
//! **Bounds.** One entry per connection, with [`LOGGED_PATH_BYTES_MAX`] bytes of the path. Entries are charged to the ledger.

use crate::ledger::{Charge, Class, Ledger};
use crate::ports::{LOGGED_PATH_BYTES_MAX, shown};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

pub use crate::ports::ACCESS_LOG;

/// A request whose response isn't complete.
pub struct Entry {
    pub(crate) begun: Instant,
    pub(crate) method: Box<str>,
    pub(crate) path: Box<str>,
    pub(crate) address: IpAddr,
    pub(crate) user: Option<Arc<str>>,
    /// The status of the response. `None` until the response begins.
    pub status: Option<u16>,
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.method.len() + self.path.len()
    }

    fn log(&self, now: Instant) {
        let Self { method, path, address, user, status, begun } = self;
        let duration_ms =
            u64::try_from(now.saturating_duration_since(*begun).as_millis()).unwrap_or(u64::MAX);
        tracing::info!(
            target: ACCESS_LOG,
            %address, user = user.as_deref(), method = &**method, path = &**path, status, duration_ms,
            "request"
        );
    }
}

/// The access log of a core.
pub struct AccessLog {
    /// `true` if requests are logged. Checked before each send.
    pub is_on: bool,
    /// Entries by the connection's index.
    entries: Vec<Option<Box<Entry>>>,
    charge: Charge,
}

impl AccessLog {
    /// An empty log. `is_on` is `true` if requests are logged.
    pub fn new(is_on: bool, ledger: Arc<Ledger>) -> Self {
        Self { is_on, entries: Vec::new(), charge: Charge::new(ledger, Class::Connections) }
    }

    /// Begins an entry for a request whose response so far is `response`. `lasts` is `true` if more of the response follows. A
    /// complete response is logged at once.
    pub fn begin(&mut self, index: usize, now: Instant, mut entry: Entry, response: &[u8], lasts: bool) {
        self.end(index, now);
        entry.status = status_of(response);
        if entry.status.is_some() && !lasts {
            return entry.log(now);
        }
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.charge.add(entry.bytes());
        self.entries[index] = Some(Box::new(entry));
    }

    /// Returns `true` if a connection has a request whose response hasn't begun.
    pub fn awaits_status(&self, index: usize) -> bool {
        self.entries
            .get(index)
            .is_some_and(|entry| entry.as_ref().is_some_and(|entry| entry.status.is_none()))
    }

    /// Records that a connection sends `response`. `is_whole` is `true` if this completes the response, so the request is
    /// logged.
    pub fn sent(&mut self, index: usize, now: Instant, response: &[u8], is_whole: bool) {
        let Some(Some(entry)) = self.entries.get_mut(index) else { return };
        entry.status = entry.status.or_else(|| status_of(response));
        // The request of a WebSocket lasts as long as its connection.
        if is_whole && entry.status.is_some_and(|status| status != 101) {
            self.end(index, now);
        }
    }

    /// Logs the request of a connection that has ended, or whose next request begins.
    pub fn end(&mut self, index: usize, now: Instant) {
        if let Some(entry) = self.entries.get_mut(index).and_then(Option::take) {
            self.charge.subtract(entry.bytes());
            entry.log(now);
        }
    }
}

/// The path for a line of the log. `*` replaces `secret`, the range of a client's secret in the path, and `?` each byte
/// that isn't printable ASCII.
pub(crate) fn shown_path(base: &str, path: &str, secret: Option<Range<usize>>) -> Box<str> {
    let mut path = shown(path);
    if let Some(secret) = secret {
        path.replace_range(secret, "*");
    }
    path.insert_str(0, &shown(base));
    path.truncate(LOGGED_PATH_BYTES_MAX);
    path.into()
}

/// The status of a response. `None` if these bytes don't contain a final status.
fn status_of(response: &[u8]) -> Option<u16> {
    let rest = response.strip_prefix(b"HTTP/1.1 ").or_else(|| response.strip_prefix(b"HTTP/1.0 "))?;
    let status = std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()?;
    if status != 100 {
        return Some(status);
    }
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    status_of(&response[end + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_shows_no_secret_and_no_control_characters() {
        assert_eq!(&*shown_path("", "/a/secret/b", Some(3..9)), "/a/*/b");
        assert_eq!(&*shown_path("/rt", "/a/secret/b", Some(3..9)), "/rt/a/*/b");
        assert_eq!(&*shown_path("", "/é/secret", Some(4..10)), "/??/*");
        assert_eq!(&*shown_path("", "/\u{1b}", None), "/?");
        let long = format!("/{}", "x".repeat(300));
        assert_eq!(&*shown_path("", &long, None), &long[..256]);
        assert_eq!(&*shown_path("", &format!("{long}/secret"), Some(302..308)), &long[..256]);
    }

    #[test]
    fn the_status_is_that_of_the_final_response() {
        assert_eq!(status_of(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), Some(101));
        assert_eq!(status_of(b"HTTP/1.0 404 Not Found\r\n"), Some(404));
        assert_eq!(status_of(b"HTTP/1.1 100 Continue\r\n\r\n"), None);
        assert_eq!(
            status_of(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Content Too Large\r\n\r\n"),
            Some(413)
        );
        for broken in [&b""[..], b"HTTP/1.1 ", b"HTTP/1.1 2x0 ", b"event: message"] {
            assert_eq!(status_of(broken), None);
        }
    }
}
