//! Cookies of an upstream (`cookies = true`) according to RFC 6265: a few cookies in memory, sent only to the
//! upstream's host.
//!
//! This module has its own parser, because the existing libraries depend on another library for dates.
//! Cookies that aren't ASCII are ignored; section 4.1.1 doesn't allow servers to send others.

use crate::secrets::SECRET_BYTES_MIN;
use hyper::header::{HeaderMap, HeaderValue, SET_COOKIE};
use parking_lot::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of cookies of an upstream. Above it, the least recently used or set cookie is removed.
const COOKIES_MAX: usize = 16;
/// Maximum size of the name, the value and the path of a cookie in bytes. A larger cookie is ignored.
const COOKIE_BYTES_MAX: usize = 4096;
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The cookies of one upstream.
pub(super) struct CookieJar {
    host: String,
    is_secure: bool,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Cookies in the order of their creation.
    cookies: Vec<Cookie>,
    /// Counter of requests and responses with cookies.
    uses: u64,
}

struct Cookie {
    name: String,
    value: String,
    path: String,
    is_secure: bool,
    /// Time of expiry. `None` keeps the cookie as long as the process runs.
    expires: Option<SystemTime>,
    /// Value of [`Kept::uses`] when the cookie was last sent or set.
    last_use: u64,
}

impl CookieJar {
    /// Makes a jar for requests to `host`, over TLS if `is_secure`.
    pub(super) fn new(host: &str, is_secure: bool) -> Self {
        Self { host: host.to_ascii_lowercase(), is_secure, kept: Mutex::default() }
    }

    /// Returns the header `Cookie` for a request (section 5.4).
    pub(super) fn header(&self, path: &str, now: SystemTime) -> Option<HeaderValue> {
        let mut kept = self.kept.lock();
        let kept = &mut *kept;
        kept.remove_expired(now);
        kept.uses += 1;
        let fits =
            |cookie: &&mut Cookie| (self.is_secure || !cookie.is_secure) && is_below(path, &cookie.path);
        let mut sent: Vec<_> = kept.cookies.iter_mut().filter(fits).collect();
        sent.iter_mut().for_each(|cookie| cookie.last_use = kept.uses);
        // The sort is stable, so cookies whose paths have the same length stay in the order of their
        // creation.
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<_> = sent.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        let mut header = HeaderValue::try_from(pairs.join("; ")).ok().filter(|_| !pairs.is_empty())?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Stores the cookies of the response to a request for `path` (section 5.3).
    pub(super) fn store(&self, headers: &HeaderMap, path: &str, now: SystemTime) {
        for field in headers.get_all(SET_COOKIE) {
            let Some(mut cookie) = field.to_str().ok().and_then(|text| self.parse(text, path, now)) else {
                continue;
            };
            let mut kept = self.kept.lock();
            kept.remove_expired(now);
            kept.uses += 1;
            cookie.last_use = kept.uses;
            let is_same = |other: &Cookie| other.name == cookie.name && other.path == cookie.path;
            let is_expired = cookie.is_expired(now);
            match kept.cookies.iter().position(is_same) {
                Some(at) if is_expired => _ = kept.cookies.remove(at),
                Some(at) => kept.cookies[at] = cookie,
                None if is_expired => {}
                None => {
                    if kept.cookies.len() >= COOKIES_MAX {
                        let oldest = (0..COOKIES_MAX).min_by_key(|at| kept.cookies[*at].last_use);
                        kept.cookies.remove(oldest.unwrap_or_default());
                    }
                    kept.cookies.push(cookie);
                }
            }
        }
    }

    /// Masks the values of cookies in a text.
    pub(super) fn mask(&self, text: &str) -> String {
        let kept = self.kept.lock();
        let mut values: Vec<_> = kept.cookies.iter().map(|cookie| cookie.value.as_str()).collect();
        values.retain(|value| value.len() >= SECRET_BYTES_MIN);
        // Masks longer values first, because a long value may contain a short one.
        values.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
        values.into_iter().fold(text.to_owned(), |text, value| text.replace(value, "***"))
    }

    /// Parses a `Set-Cookie` header (section 5.2). Returns `None` if it must be ignored.
    fn parse(&self, text: &str, request_path: &str, now: SystemTime) -> Option<Cookie> {
        let mut parts = text.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let mut cookie = Cookie {
            name: name.trim().into(),
            value: value.trim().into(),
            path: default_path(request_path).into(),
            is_secure: false,
            expires: None,
            last_use: 0,
        };
        let (mut max_age, mut domain) = (None, "");
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "expires" => cookie.expires = date(value).or(cookie.expires),
                "max-age" => max_age = seconds(value).or(max_age),
                "domain" if !value.is_empty() => domain = value.strip_prefix('.').unwrap_or(value),
                "path" if value.starts_with('/') => cookie.path = value.into(),
                "path" => cookie.path = default_path(request_path).into(),
                "secure" => cookie.is_secure = true,
                _ => {}
            }
        }
        if let Some(seconds) = max_age {
            // A time beyond the clock's range means that the cookie never expires.
            cookie.expires = now.checked_add(Duration::from_secs(seconds));
        }
        let bytes = cookie.name.len() + cookie.value.len() + cookie.path.len();
        let is_kept =
            !cookie.name.is_empty() && bytes <= COOKIE_BYTES_MAX && self.is_of(&domain.to_ascii_lowercase());
        is_kept.then_some(cookie)
    }

    /// Returns `true` if the jar's host belongs to the domain (section 5.1.3). An IP address belongs only to
    /// itself.
    fn is_of(&self, domain: &str) -> bool {
        let is_name = self.host.contains(|c: char| c.is_ascii_alphabetic()) && !self.host.contains(':');
        let is_below = || is_name && self.host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        domain.is_empty() || self.host == domain || is_below()
    }
}

impl Kept {
    fn remove_expired(&mut self, now: SystemTime) {
        self.cookies.retain(|cookie| !cookie.is_expired(now));
    }
}

impl Cookie {
    fn is_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Returns the default path of a cookie (section 5.1.4).
fn default_path(request_path: &str) -> &str {
    match request_path.rsplit_once('/') {
        Some((folder, _)) if !folder.is_empty() => folder,
        _ => "/",
    }
}

/// Returns `true` if a request's path is the path of a cookie or below it (section 5.1.4).
fn is_below(path: &str, cookie: &str) -> bool {
    path.strip_prefix(cookie)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || cookie.ends_with('/'))
}

/// Parses the value of `Max-Age`. Returns zero if it is negative, and `None` if it is no number.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if text.starts_with('-') { 0 } else { digits.parse().unwrap_or(u64::MAX) };
    is_number.then_some(seconds)
}

/// Parses the time of an `Expires`, in each format that servers use (section 5.1.1).
fn date(text: &str) -> Option<SystemTime> {
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(|c: char| !c.is_ascii_alphanumeric() && c != ':') {
        let number = |token: &str| token.parse::<u32>().ok();
        let name = token.get(..3).unwrap_or_default();
        let named = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name));
        match token.len() {
            5..=8 if time.is_none() && token.matches(':').count() == 2 => {
                let parts: Option<Vec<_>> = token.split(':').map(number).collect();
                time = Some(parts?);
            }
            1 | 2 if day.is_none() && number(token).is_some() => day = number(token),
            _ if month.is_none() && named.is_some() => month = named,
            2 | 4 if year.is_none() => year = number(token),
            _ => {}
        }
    }
    let year = match year? {
        year @ 0..=69 => 2000 + year,
        year @ 70..=99 => 1900 + year,
        // Years before 1970, which `SystemTime` may not represent, become a time in the past.
        1601..1970 => return Some(UNIX_EPOCH),
        year => year,
    };
    let (time, day, month) = (time?, day?, month?);
    let [hour, minute, second] = time[..] else { return None };
    let month = MONTHS[month];
    // Tries all weekdays, because the library requires the right one and servers may send a wrong one.
    WEEKDAYS.iter().find_map(|weekday| {
        let text = format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT");
        httpdate::parse_http_date(&text).ok()
    })
}

#[cfg(test)]
mod tests;
