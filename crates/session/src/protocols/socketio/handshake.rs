//! Handshakes of Socket.IO clients, in the form of the package `socket.io`, for other servers that request them. They are kept
//! only if such servers may exist.
//!
//! A handshake contains no secret: it has only the headers in [`HEADERS`], the query parameters of Engine.IO, and no `auth`.

use crate::executor::Executor;
use crate::ledger::{Charge, Class};
use std::net::IpAddr;
use stentor_json::write_string;
use stentor_wire::engineio::{Request as Query, Transport, Version};
use stentor_wire::http1::Request;

/// The headers that are kept.
const HEADERS: [&str; 3] = ["host", "origin", "user-agent"];
/// Maximum size of a kept header, in bytes. Longer headers are cut.
const HEADER_BYTES_MAX: usize = 256;

/// The handshake of a client, as JSON.
pub(crate) struct Handshake {
    pub(crate) text: Box<str>,
    _charge: Charge,
}

impl Handshake {
    /// Keeps a handshake of a client of this core. It is charged to the ledger until it is dropped.
    pub(crate) fn new(ex: &Executor, text: Box<str>) -> Box<Self> {
        let bytes = size_of::<Self>() + text.len();
        Box::new(Self { text, _charge: Charge::of(ex.ledger().clone(), Class::Connections, bytes) })
    }
}

/// Returns a handshake as JSON. `at` is the Unix time in milliseconds.
pub(crate) fn describe(
    request: &Request<'_>,
    query: &Query<'_>,
    (address, is_secure): (IpAddr, bool),
    at: u64,
) -> Box<str> {
    let transport = match query.transport {
        Transport::Polling => "polling",
        Transport::WebSocket => "websocket",
    };
    let version = match query.version {
        Version::V4 => 4,
        Version::V3 => 3,
    };
    let text = |text: &str| {
        let mut out = Vec::new();
        write_string(&mut out, text);
        String::from_utf8(out).unwrap_or_default()
    };
    let headers: Vec<String> = HEADERS
        .iter()
        .filter_map(|name| {
            let value = request.header_str(name)?;
            Some(format!(r#""{name}":{}"#, text(&value[..value.floor_char_boundary(HEADER_BYTES_MAX)])))
        })
        .collect();
    let is_of_other_origin = request.header_str("origin").is_some();
    let url = text(&format!("{}{}?EIO={version}&transport={transport}", request.base(), request.path()));
    format!(
        r#"{{"headers":{{{}}},"time":"{}","address":"{address}","xdomain":{is_of_other_origin},"secure":{is_secure},"issued":{at},"url":{url},"query":{{"EIO":"{version}","transport":"{transport}"}},"auth":{{}}}}"#,
        headers.join(","),
        date(at),
    )
    .into()
}

/// Returns a Unix time in milliseconds in the form of ISO 8601.
fn date(at: u64) -> String {
    let (days, ms) = (at / 86_400_000, at % 86_400_000);
    // Calculates with years that begin in March, and eras of 400 years (Hinnant, chrono-compatible low-level date algorithms).
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_times_become_iso_8601_dates() {
        for (at, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_795_430_491_325, "2026-11-23T10:41:31.325Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(date(at), expected);
        }
    }
}
