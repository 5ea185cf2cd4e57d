//! Parses headers of a response: RFC 9110 (validators, Retry-After, Location), RFC 9111 (Cache-Control, Age).

use crate::schedule::{Freshness, Lifetime, Validators};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum length of a validator in bytes. A longer one isn't kept.
const VALIDATOR_BYTES_MAX: usize = 1024;
/// Maximum assumed difference between the clocks of an upstream and of this machine.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(60);
/// Maximum length of a media type in bytes. A longer one is ignored.
const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// Returns the headers of the response that the next request needs.
///
/// A `Last-Modified` within a second of `Date` isn't sent back: the document may change again within that
/// second, and would get the same date (RFC 9110, section 8.8.2.2). An `ETag` that nginx made from such a
/// date isn't sent back either.
pub(super) fn validators(headers: &HeaderMap) -> Validators {
    let take = |name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value.map(HeaderValue::as_bytes).filter(|bytes| bytes.len() <= VALIDATOR_BYTES_MAX).map(Arc::from)
    };
    let mut found = Validators {
        etag: take(header::ETAG),
        last_modified: take(header::LAST_MODIFIED),
        lifetime: lifetime(headers),
        target: None,
    };
    if let Some(modified) = date(headers, header::LAST_MODIFIED)
        && is_recent(headers, modified)
    {
        found.last_modified = None;
        let seconds = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let is_of_date =
            |etag: &Arc<[u8]>| memchr::memmem::find(etag, format!("{seconds:x}-").as_bytes()).is_some();
        found.etag = found.etag.filter(|etag| !is_of_date(etag));
    }
    found
}

/// Returns the kept validators with the lifetime from the 304 (RFC 9111, section 4.3.4). `None` if the 304
/// has no `Cache-Control`.
pub(super) fn updated(kept: &Validators, headers: &HeaderMap) -> Option<Validators> {
    let lifetime = lifetime(headers)?;
    Some(Validators { lifetime: Some(lifetime), ..kept.clone() })
}

/// Returns `true` if the document may change again without a change of `Last-Modified`, because it was
/// modified just before the response.
fn is_recent(headers: &HeaderMap, modified: SystemTime) -> bool {
    // Without `Date`, the clocks of the upstream and of this machine are compared.
    let (sent, margin) = match date(headers, header::DATE) {
        Some(sent) => (sent, Duration::from_secs(1)),
        None => (SystemTime::now(), CLOCK_DIFFERENCE_MAX),
    };
    sent.duration_since(modified).map_or(true, |age| age <= margin)
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?.trim()).ok()
}

/// Returns the lifetime that a response gives its document, before `Age` is subtracted. `None` without
/// `Cache-Control`.
///
/// The rules are those of a shared cache: `s-maxage` overrides `max-age` (RFC 9111, section 5.2.2.10). If a
/// directive occurs twice, the first one is used (section 4.2.1). With `no-store`, or `no-cache` for the
/// complete response, there is no lifetime (sections 5.2.2.5 and 5.2.2.4), but `max-age=0` still counts.
fn lifetime(headers: &HeaderMap) -> Option<Lifetime> {
    let fields = headers.get_all(header::CACHE_CONTROL);
    let (mut max_age, mut s_maxage, mut is_uncacheable) = (None, None, false);
    let mut is_present = false;
    for field in fields.iter().filter_map(|field| field.to_str().ok()) {
        is_present = true;
        for (name, value) in directives(field) {
            let age = || Some(value.and_then(|value| seconds(value.trim().trim_matches('"'))));
            match name.to_ascii_lowercase().as_str() {
                "max-age" if max_age.is_none() => max_age = age(),
                "s-maxage" if s_maxage.is_none() => s_maxage = age(),
                "no-store" => is_uncacheable = true,
                // With a value, `no-cache` applies only to the named headers.
                "no-cache" if value.is_none() => is_uncacheable = true,
                _ => {}
            }
        }
    }
    let lifetime = match s_maxage.or(max_age).flatten() {
        Some(..=0) if s_maxage.is_none() => Lifetime::Zero,
        Some(seconds @ 1..) if !is_uncacheable => Lifetime::For(u32::try_from(seconds).unwrap_or(u32::MAX)),
        _ => Lifetime::Unsaid,
    };
    is_present.then_some(lifetime)
}

/// Iterates over the directives of a `Cache-Control` header. A value may be a quoted string with commas.
fn directives(field: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut is_quoted = false;
    let parts = field.split(move |c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    });
    parts.map(|part| match part.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value)),
        None => (part.trim(), None),
    })
}

/// Returns the freshness of the response. Only a lifetime above 0 is used, because `max-age=0`, `no-cache`
/// and `no-store` are meant for caches, and a feed requests the document from the origin each time. The
/// lifetime of a response that is older than its lifetime isn't used either. For a 304 without
/// `Cache-Control`, the lifetime is still `kept` (RFC 9111, section 4.3.4). With `ends_on_zero`, `max-age=0`
/// ends the feed.
pub(super) fn freshness(headers: &HeaderMap, kept: Option<Lifetime>, ends_on_zero: bool) -> Freshness {
    match lifetime(headers).or(kept) {
        None | Some(Lifetime::Unsaid) => Freshness::Unsaid,
        Some(Lifetime::Zero) if ends_on_zero => Freshness::Over,
        Some(Lifetime::Zero) => Freshness::Unsaid,
        Some(Lifetime::For(lifetime_s)) => {
            let age = headers.get(header::AGE).and_then(|v| v.to_str().ok()).and_then(|v| seconds(v.trim()));
            let age = Duration::from_secs(age.unwrap_or(0).max(0).unsigned_abs());
            match Duration::from_secs(lifetime_s.into()).saturating_sub(age) {
                // The response is stale on arrival, for example from a cache that may serve stale responses.
                // So its lifetime says nothing about the next version.
                Duration::ZERO => Freshness::Unsaid,
                left => Freshness::For(left),
            }
        }
    }
}

/// Parses whole seconds, possibly negative. A number that is too large becomes the largest possible one.
fn seconds(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }))
}

/// Parses `Retry-After`: seconds, or a date (RFC 9110, 10.2.3).
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Some(seconds) = seconds(value) {
        return Some(Duration::from_secs(seconds.max(0).unsigned_abs()));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Returns the media type for subscribers, if it is valid.
pub(super) fn content_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value).filter(|value| !value.is_empty() && value.len() <= CONTENT_TYPE_BYTES_MAX)
}

/// Returns `true` for a media type of JSON (`application/json`, `text/json` and `…+json`).
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let suffix = essence.rfind('+').map_or("", |plus| &essence[plus..]);
    let is = |text: &str, name: &str| text.eq_ignore_ascii_case(name);
    is(essence, "application/json") || is(essence, "text/json") || is(suffix, "+json")
}

/// The compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// No compression.
    Identity,
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Brotli,
}

/// Returns the compression of the body.
///
/// # Errors
/// Returns the header's value if it names another coding or more than one.
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
