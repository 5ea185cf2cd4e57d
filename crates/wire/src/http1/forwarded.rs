//! The addresses and the host that proxies add to a request: `X-Forwarded-For`, `X-Forwarded-Host`, and `Forwarded`
//! (RFC 7239).
//!
//! Addresses are read from the right: the last proxy added the last element. The host is the one that the first proxy
//! received, so it is read from the left. A comma always separates two
//! elements, even within quotes: no address contains a comma, and otherwise a client's open quote could hide
//! the element that a proxy appends.

use super::list::trim;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One element: one hop of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Address from which the proxy received the request. `None` if the element has no address in a defined
    /// form.
    pub address: Option<IpAddr>,
    /// `true` if the proxy received the request over TLS (`proto` of `Forwarded`). `None` if the element has
    /// no `proto`.
    pub is_secure: Option<bool>,
}

/// Returns the elements of an `X-Forwarded-For` header, the last one first.
pub fn x_forwarded_for(value: &[u8]) -> impl Iterator<Item = Hop> {
    let elements = value.rsplit(|byte| *byte == b',').map(trim);
    elements.map(|element| Hop { address: node(element), is_secure: None })
}

/// Returns the elements of a `Forwarded` header, the last one first.
pub fn forwarded(value: &[u8]) -> impl Iterator<Item = Hop> {
    value.rsplit(|byte| *byte == b',').map(|element| {
        let mut hop = Hop::default();
        let mut has_address = false;
        for pair in element.split(|byte| *byte == b';').map(trim) {
            let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (&pair[..at], unquoted(&pair[at + 1..]));
            if name.eq_ignore_ascii_case(b"for") {
                // RFC 7239 section 4: each parameter occurs at most once.
                hop.address = if has_address { None } else { node(value) };
                has_address = true;
            } else if name.eq_ignore_ascii_case(b"proto") {
                hop.is_secure = Some(value.eq_ignore_ascii_case(b"https"));
            }
        }
        hop
    })
}

/// Returns the first host of an `X-Forwarded-Host` header. `None` if it is empty.
pub fn x_forwarded_host(value: &[u8]) -> Option<&[u8]> {
    value.split(|byte| *byte == b',').next().map(trim).filter(|host| !host.is_empty())
}

/// Returns the first `host` of a `Forwarded` header. `None` if there is none, or it is empty.
pub fn forwarded_host(value: &[u8]) -> Option<&[u8]> {
    let pairs = value.split(|byte| b",;".contains(byte)).map(trim);
    let host = pairs.filter_map(|pair| {
        let (name, value) = pair.split_at_checked(5)?;
        name.eq_ignore_ascii_case(b"host=").then(|| unquoted(value))
    });
    host.into_iter().next().filter(|host| !host.is_empty())
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// Reads the address of a node (RFC 7239 section 6), with or without a port. An IPv6 address without a port
/// may lack its brackets, as in X-Forwarded-For.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let has_port = port.strip_prefix(':').is_some_and(is_port);
        return address.parse::<Ipv6Addr>().ok().filter(|_| port.is_empty() || has_port).map(IpAddr::from);
    }
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (address, port) = text.split_once(':')?;
    address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port)).map(IpAddr::from)
}

fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read: impl Iterator<Item = Hop>, expected: &[&str]) {
        let read: Vec<_> = read.map(|hop| hop.address.map_or("-".to_owned(), |ip| ip.to_string())).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn x_forwarded_for_from_the_right() {
        let check = |value: &str, expected: &[&str]| check(x_forwarded_for(value.as_bytes()), expected);
        check("192.0.2.1", &["192.0.2.1"]);
        check(
            "192.0.2.1, 198.51.100.2:8080,2001:db8::1 ,\t[2001:db8::2]:1, [::3]",
            &["::3", "2001:db8::2", "2001:db8::1", "198.51.100.2", "192.0.2.1"],
        );
        check("", &["-"]);
        check("192.0.2.1,", &["-", "192.0.2.1"]);
        for malformed in [
            "unknown",
            "_hidden",
            "192.0.2.1:",
            "192.0.2.1:x",
            "192.0.2.1:123456",
            "192.0.2.256",
            "192.0.2.1 192.0.2.2",
            "0x7f.1",
            "[::1",
            "[::1]x",
            "[192.0.2.1]",
            "::1%eth0",
            "\"192.0.2.1\"",
            "\u{7f}",
        ] {
            check(malformed, &["-"]);
        }
        super::tests::check(x_forwarded_for(b"192.0.2.1, \xff"), &["-", "192.0.2.1"]);
    }

    #[test]
    fn forwarded_from_the_right() {
        let check = |value: &str, expected: &[&str]| check(forwarded(value.as_bytes()), expected);
        check("for=192.0.2.60;proto=http;by=203.0.113.43", &["192.0.2.60"]);
        check(
            "For=\"[2001:db8:cafe::17]:4711\", for=192.0.2.43, for=\"192.0.2.1:47011\"",
            &["192.0.2.1", "192.0.2.43", "2001:db8:cafe::17"],
        );
        check("for=unknown, for=\"_gazonk\", by=192.0.2.1", &["-", "-", "-"]);
        check("for=192.0.2.1;for=192.0.2.2", &["-"]);
        check("for = 192.0.2.1", &["-"]);
        // An open quote that a client sends doesn't hide the proxy's element.
        check("for=\"192.0.2.1, for=198.51.100.2", &["198.51.100.2", "-"]);
        let secure = |value: &str| forwarded(value.as_bytes()).map(|hop| hop.is_secure).collect::<Vec<_>>();
        assert_eq!(secure("for=a;proto=https, PROTO=\"HTTP\", for=b"), [None, Some(false), Some(true)]);
    }

    #[test]
    fn the_first_host() {
        let check = |read: fn(&[u8]) -> Option<&[u8]>, value: &str, expected: &str| {
            assert_eq!(read(value.as_bytes()).unwrap_or(b"-"), expected.as_bytes(), "{value}");
        };
        check(x_forwarded_host, "a.test", "a.test");
        check(x_forwarded_host, " a.test:8443 , b.test", "a.test:8443");
        check(x_forwarded_host, "", "-");
        check(x_forwarded_host, ", b.test", "-");
        check(forwarded_host, "for=192.0.2.1;host=a.test;proto=https, host=b.test", "a.test");
        check(forwarded_host, "for=192.0.2.1, Host=\"[::1]:8000\"", "[::1]:8000");
        check(forwarded_host, "for=192.0.2.1;host=, host=b.test", "-");
        check(forwarded_host, "xhost=a.test;host = b.test", "-");
        check(forwarded_host, "", "-");
    }
}
