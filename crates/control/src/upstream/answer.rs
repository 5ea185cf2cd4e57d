//! Headers of a response: RFC 9110 (validators, Retry-After, Location), RFC 9111 (Cache-Control, Age).

use crate::schedule::{Freshness, Validators};
use hyper::Uri;
use hyper::header::{self, HeaderMap, HeaderValue};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A validator longer than this isn't worth sending back.
const VALIDATOR_BYTES_MAX: usize = 1024;
/// A longer media type is ignored.
const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// More of a host's name isn't shown (RFC 1035, 2.3.4: there is no longer one).
const HOST_CHARS_MAX: usize = 255;

/// The validators for the next request.
pub(super) fn validators(headers: &HeaderMap) -> Validators {
    let take = |name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value.map(HeaderValue::as_bytes).filter(|bytes| bytes.len() <= VALIDATOR_BYTES_MAX).map(Arc::from)
    };
    Validators { etag: take(header::ETAG), last_modified: take(header::LAST_MODIFIED) }
}

/// How long the response stays fresh. Only `max-age` above 0 counts. `max-age=0`, `no-cache` and `no-store` are meant
/// for caches, and a feed requests the document from the origin each time. So is a response that is older than its `max-age`. With `ends_on_zero`, `max-age=0` ends the
/// feed.
pub(super) fn freshness(headers: &HeaderMap, ends_on_zero: bool) -> Freshness {
    let fields = headers.get_all(header::CACHE_CONTROL);
    let mut directives = fields.iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    let max_age = directives.find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        let value = value.trim().trim_matches('"');
        if name.trim().eq_ignore_ascii_case("max-age") { seconds(value) } else { None }
    });
    match max_age {
        None => Freshness::Unsaid,
        Some(..=0) if ends_on_zero => Freshness::Over,
        Some(..=0) => Freshness::Unsaid,
        Some(max_age) => {
            let age = headers.get(header::AGE).and_then(|v| v.to_str().ok()).and_then(|v| seconds(v.trim()));
            match max_age.saturating_sub(age.unwrap_or(0).max(0)) {
                // Stale on arrival, as from a cache that is allowed to serve so: it says nothing about the next version.
                ..=0 => Freshness::Unsaid,
                left => Freshness::For(Duration::from_secs(left.unsigned_abs())),
            }
        }
    }
}

/// Whole seconds, possibly negative. A number that is too large becomes the largest.
fn seconds(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }))
}

/// `Retry-After`: seconds, or a date (RFC 9110, 10.2.3).
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Some(seconds) = seconds(value) {
        return Some(Duration::from_secs(seconds.max(0).unsigned_abs()));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// The host that a redirect points to, for a message.
pub(super) fn location_host(headers: &HeaderMap) -> String {
    let Some(location) = headers.get(header::LOCATION) else {
        return "an unknown host (no Location header)".into();
    };
    match location.to_str().ok().and_then(|text| text.parse::<Uri>().ok()) {
        None => "an invalid Location".into(),
        Some(uri) => match uri.host() {
            None => "another path of its own host".into(),
            Some(host) => format!("the host {}", host.chars().take(HOST_CHARS_MAX).collect::<String>()),
        },
    }
}

/// The media type to pass on, if there is a sane one.
pub(super) fn content_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value).filter(|value| !value.is_empty() && value.len() <= CONTENT_TYPE_BYTES_MAX)
}

/// Whether a media type says JSON: `application/json`, `text/json`, `…+json`.
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Not at all.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
}

/// How the body is compressed: in one way at the most.
///
/// # Errors
/// The field, if it names another coding or several.
pub(crate) fn coding(headers: &HeaderMap) -> Result<Coding, String> {
    let mut found = Coding::Identity;
    for field in headers.get_all(header::CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(field.as_bytes());
        for name in text.split(',').map(|name| name.trim().to_ascii_lowercase()) {
            let coding = match name.as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Some(Coding::Gzip),
                "br" => Some(Coding::Brotli),
                _ => None,
            };
            match coding.filter(|_| found == Coding::Identity) {
                Some(coding) => found = coding,
                None => return Err(text.chars().take(64).collect()),
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
