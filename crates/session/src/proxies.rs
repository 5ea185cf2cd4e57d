//! Determines the address of a request's client behind proxies, and the host that the client named. No other code does this.
//!
//! The peer's address is the client's, unless the peer is a proxy in a trusted network. Then the client's address is the
//! last hop in the configured header that isn't a trusted proxy itself. A client can invent the hops before that one. Only
//! one family of headers is read, because a proxy that sets one header passes on the other as the client wrote it.
//!
//! The host is the first one that the header names. It counts for the origin check and for `[server] hosts` only.

use crate::ports::with_defaults;
use crate::ports::{Networks, source_of};
use std::net::IpAddr;
use std::time::Duration;
use stentor_wire::http1::{Hop, Request, forwarded, forwarded_host, x_forwarded_for, x_forwarded_host};

/// The header to which proxies add a client's address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, with `X-Forwarded-Proto` for the client's protocol and `X-Forwarded-Host` for the server's name.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239), with its `proto` and `host`.
    Forwarded,
    /// Another header, with exactly one address.
    Named(Box<str>),
}

/// The reason why a header with exactly one address doesn't name the client. The proxy then counts as the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Missing,
    Repeated,
    Malformed,
}

impl HeaderFault {
    /// The fault, for people, after "the header".
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Missing => "is missing",
            Self::Repeated => "is there twice",
            Self::Malformed => "isn't exactly one address",
        }
    }
}

with_defaults! {
    /// The proxies in front of the server.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Proxies {
        /// The networks of the proxies.
        pub trusted: Networks = Networks::default(),
        /// The header in which the proxies name the client of a request.
        pub header: ForwardedHeader = ForwardedHeader::default(),
        /// Maximum time from the start of a connection to the end of its PROXY protocol header.
        pub header_timeout: Duration = Duration::from_secs(3),
    }
}

/// The other end of a connection's socket, at this server or at another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketPeer {
    /// `true` if it uses TLS.
    pub is_tls: bool,
    /// `true` if it is an authenticating proxy, which may name users. The address of the connection may be one that it states.
    pub is_gateway: bool,
}

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// The client's address: the farthest one that trusted proxies report.
    pub ip: IpAddr,
    /// `true` if a proxy reported the address.
    pub(crate) is_forwarded: bool,
    /// `true` if the client used HTTPS, according to the proxies or to the connection itself.
    pub(crate) is_secure: bool,
    /// The fault of a header that must have exactly one address.
    pub(crate) fault: Option<HeaderFault>,
}

impl ClientAddress {
    /// A number for the client's address.
    pub fn source(&self) -> u64 {
        source_of(self.ip)
    }
}

impl Proxies {
    /// Returns the client of a request that `peer` sent. `is_tls` is `true` if `peer` used TLS.
    pub(crate) fn client_of(&self, peer: IpAddr, is_tls: bool, request: &Request<'_>) -> ClientAddress {
        let mut client = ClientAddress { ip: peer, is_forwarded: false, is_secure: is_tls, fault: None };
        if self.trusted.is_empty() || !self.trusted.contains(peer) {
            return client;
        }
        let headers = request.headers();
        match &self.header {
            ForwardedHeader::XForwardedFor => {
                // The last value is that of the nearest proxy.
                if let Some(proto) = headers.all("x-forwarded-proto").last() {
                    let proto = proto.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                    client.is_secure = proto.trim_ascii().eq_ignore_ascii_case(b"https");
                }
                let values: Vec<_> = headers.all("x-forwarded-for").collect();
                self.follow(&mut client, values.iter().rev().flat_map(|value| x_forwarded_for(value)));
            }
            ForwardedHeader::Forwarded => {
                let values: Vec<_> = headers.all("forwarded").collect();
                self.follow(&mut client, values.iter().rev().flat_map(|value| forwarded(value)));
            }
            ForwardedHeader::Named(name) => match only_address(headers.all(name)) {
                Ok(ip) => (client.ip, client.is_forwarded) = (ip.to_canonical(), true),
                Err(fault) => client.fault = Some(fault),
            },
        }
        client
    }

    /// Returns the host and port that the client of a request named. A trusted `peer` may state them. Invalid text matches no
    /// name.
    pub(crate) fn authority_of<'r>(&self, peer: IpAddr, request: &Request<'r>) -> &'r str {
        let headers = request.headers();
        let stated = match self.header {
            _ if self.trusted.is_empty() || !self.trusted.contains(peer) => None,
            ForwardedHeader::XForwardedFor => {
                headers.all("x-forwarded-host").next().and_then(x_forwarded_host)
            }
            ForwardedHeader::Forwarded => headers.all("forwarded").find_map(forwarded_host),
            ForwardedHeader::Named(_) => None,
        };
        stated.map_or(request.authority(), |host| str::from_utf8(host).unwrap_or_default())
    }

    /// Follows the hops, beginning with the nearest one, as long as trusted proxies report them.
    fn follow(&self, client: &mut ClientAddress, hops: impl Iterator<Item = Hop>) {
        for hop in hops {
            client.is_secure = hop.is_secure.unwrap_or(client.is_secure);
            // A hop without a valid address ends the search: the proxy that reported it counts as the client.
            let Some(ip) = hop.address else { return };
            (client.ip, client.is_forwarded) = (ip.to_canonical(), true);
            if !self.trusted.contains(ip) {
                return;
            }
        }
    }
}

/// Reads the header with exactly one address.
fn only_address<'r>(mut values: impl Iterator<Item = &'r [u8]>) -> Result<IpAddr, HeaderFault> {
    let value = values.next().ok_or(HeaderFault::Missing)?;
    if values.next().is_some() {
        return Err(HeaderFault::Repeated);
    }
    let mut hops = x_forwarded_for(value);
    let address = hops.next().and_then(|hop| hop.address).ok_or(HeaderFault::Malformed)?;
    if hops.next().is_some() { Err(HeaderFault::Malformed) } else { Ok(address) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_wire::http1::{Limits, parse_request};

    /// The client of a request with these headers that came from `peer`, and whether it used HTTPS.
    fn client(header: ForwardedHeader, peer: &str, headers: &[&str]) -> (String, bool) {
        client_by(false, header, peer, headers)
    }

    /// The client of a request, with or without TLS between `peer` and the server.
    fn client_by(is_tls: bool, header: ForwardedHeader, peer: &str, headers: &[&str]) -> (String, bool) {
        with_request(header, headers, |proxies, request| {
            let client = proxies.client_of(peer.parse().unwrap(), is_tls, request);
            assert_eq!(client.is_forwarded, client.ip.to_string() != peer);
            (client.ip.to_string(), client.is_secure)
        })
    }

    fn with_request<T>(
        header: ForwardedHeader,
        headers: &[&str],
        then: impl FnOnce(&Proxies, &Request<'_>) -> T,
    ) -> T {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", headers.join("\r\n") + "\r\n");
        let head = head.replace("\r\n\r\n\r\n", "\r\n\r\n");
        let request = parse_request(head.as_bytes(), &Limits::default()).unwrap();
        let trusted = Networks::parse(&["10.0.0.0/8", "2001:db8:1::/48"]).unwrap();
        then(&Proxies { trusted, header, ..Proxies::default() }, &request)
    }

    #[test]
    fn the_host_that_a_trusted_proxy_states() {
        use ForwardedHeader::{Forwarded, XForwardedFor};
        let check = |header: ForwardedHeader, peer: &str, headers: &[&str], expected: &str| {
            let peer = peer.parse().unwrap();
            let seen = with_request(header, headers, |proxies, request| {
                proxies.authority_of(peer, request).to_owned()
            });
            assert_eq!(seen, expected, "{peer} {headers:?}");
        };
        check(
            XForwardedFor,
            "10.0.0.1",
            &["X-Forwarded-Host: b.test:81, c.test", "X-Forwarded-Host: d"],
            "b.test:81",
        );
        check(XForwardedFor, "10.0.0.1", &[], "a");
        check(XForwardedFor, "10.0.0.1", &["X-Forwarded-Host:"], "a");
        check(XForwardedFor, "10.0.0.1", &["X-Forwarded-Host: \u{fe}"], "\u{fe}");
        check(XForwardedFor, "10.0.0.1", &["Forwarded: host=b.test"], "a");
        check(XForwardedFor, "192.0.2.9", &["X-Forwarded-Host: b.test"], "a");
        check(
            Forwarded,
            "10.0.0.1",
            &["Forwarded: for=192.0.2.1", "Forwarded: host=b.test, host=c.test"],
            "b.test",
        );
        check(Forwarded, "10.0.0.1", &["X-Forwarded-Host: b.test"], "a");
        check(Forwarded, "192.0.2.9", &["Forwarded: host=b.test"], "a");
        let named = ForwardedHeader::Named("X-Real-IP".into());
        check(named, "10.0.0.1", &["X-Forwarded-Host: b.test", "Forwarded: host=b.test"], "a");
    }

    #[test]
    fn another_header_has_exactly_one_address() {
        let check = |peer: &str, headers: &[&str], ip: &str, fault: Option<HeaderFault>| {
            let header = ForwardedHeader::Named("CF-Connecting-IP".into());
            let client = with_request(header, headers, |proxies, request| {
                proxies.client_of(peer.parse().unwrap(), false, request)
            });
            assert_eq!((client.ip.to_string().as_str(), client.fault), (ip, fault), "{headers:?}");
            assert!(!client.is_secure);
        };
        check("10.0.0.1", &["cf-connecting-ip: 192.0.2.1"], "192.0.2.1", None);
        check("10.0.0.1", &["CF-Connecting-IP: [2001:db8::1]:443"], "2001:db8::1", None);
        check("10.0.0.1", &["CF-Connecting-IP: 10.0.0.7", "X-Forwarded-Proto: https"], "10.0.0.7", None);
        check("10.0.0.1", &["X-Forwarded-For: 192.0.2.1"], "10.0.0.1", Some(HeaderFault::Missing));
        let twice = ["CF-Connecting-IP: 192.0.2.1", "CF-Connecting-IP: 192.0.2.1"];
        check("10.0.0.1", &twice, "10.0.0.1", Some(HeaderFault::Repeated));
        for malformed in ["", "unknown", "192.0.2.1, 192.0.2.2", "192.0.2.1,", "for=192.0.2.1", "\u{fe}"] {
            let header = format!("CF-Connecting-IP: {malformed}");
            check("10.0.0.1", &[&header], "10.0.0.1", Some(HeaderFault::Malformed));
        }
        // A peer that isn't trusted is the client, whatever it sends.
        check("192.0.2.9", &["CF-Connecting-IP: 192.0.2.1"], "192.0.2.9", None);
        check("192.0.2.9", &[], "192.0.2.9", None);
    }

    #[test]
    fn the_last_hop_that_is_not_trusted() {
        let check = |peer, headers: &[&str], expected: &str| {
            assert_eq!(client(ForwardedHeader::XForwardedFor, peer, headers).0, expected, "{headers:?}");
        };
        check("10.0.0.1", &["X-Forwarded-For: 192.0.2.1"], "192.0.2.1");
        // Addresses before the last untrusted hop are the client's own text and don't count.
        check("10.0.0.1", &["X-Forwarded-For: 127.0.0.1, 10.9.9.9, 192.0.2.1, 10.0.0.2"], "192.0.2.1");
        check("10.0.0.1", &["X-Forwarded-For: 198.51.100.1", "x-forwarded-for: 192.0.2.1"], "192.0.2.1");
        check("2001:db8:1::1", &["X-Forwarded-For: 2001:db8:2::1, 10.0.0.1"], "2001:db8:2::1");
        check("10.0.0.1", &["X-Forwarded-For: ::ffff:192.0.2.1"], "192.0.2.1");
        // All hops are trusted: the farthest one is the client.
        check("10.0.0.1", &["X-Forwarded-For: 10.0.0.3, 10.0.0.2"], "10.0.0.3");
        // The hop is malformed: the proxy that reports it is the client.
        check("10.0.0.1", &["X-Forwarded-For: 192.0.2.1, unknown"], "10.0.0.1");
        check("10.0.0.1", &["X-Forwarded-For: 192.0.2.1, evil, 10.0.0.2"], "10.0.0.2");
        check("10.0.0.1", &["X-Forwarded-For:"], "10.0.0.1");
        check("10.0.0.1", &["X-Forwarded-For: 192.0.2.1,"], "10.0.0.1");
        // The peer isn't trusted, or the header isn't the configured one.
        check("192.0.2.9", &["X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https"], "192.0.2.9");
        check("10.0.0.1", &["Forwarded: for=192.0.2.1", "X-Real-IP: 192.0.2.1"], "10.0.0.1");
        check("10.0.0.1", &[], "10.0.0.1");
    }

    #[test]
    fn forwarded_and_protocols() {
        let forwarded = |headers: &[&str]| client(ForwardedHeader::Forwarded, "10.0.0.1", headers);
        let hops = "Forwarded: for=198.51.100.1;proto=https, for=\"192.0.2.1:80\";proto=http";
        assert_eq!(forwarded(&[hops]), ("192.0.2.1".to_owned(), false));
        assert_eq!(forwarded(&["Forwarded: proto=https;for=192.0.2.1"]), ("192.0.2.1".to_owned(), true));
        assert_eq!(forwarded(&["X-Forwarded-For: 192.0.2.1"]), ("10.0.0.1".to_owned(), false));
        let proto = |headers: &[&str]| client(ForwardedHeader::XForwardedFor, "10.0.0.1", headers).1;
        assert!(proto(&["X-Forwarded-Proto: HTTPS"]));
        assert!(proto(&["X-Forwarded-Proto: http", "X-Forwarded-Proto: http, https"]));
        assert!(!proto(&["X-Forwarded-Proto: https, http"]));
        assert!(!proto(&["X-Forwarded-Proto: https evil"]));
    }
    #[test]
    fn over_tls_a_client_used_https_unless_a_trusted_proxy_says_otherwise() {
        use ForwardedHeader::{Forwarded, XForwardedFor};
        let check = |header, peer, headers: &[&str], expected| {
            assert_eq!(client_by(true, header, peer, headers).1, expected, "{peer} {headers:?}");
        };
        check(XForwardedFor, "192.0.2.9", &[], true);
        check(XForwardedFor, "192.0.2.9", &["X-Forwarded-Proto: http"], true);
        check(XForwardedFor, "10.0.0.1", &["X-Forwarded-For: 192.0.2.1"], true);
        check(XForwardedFor, "10.0.0.1", &["X-Forwarded-Proto: http"], false);
        check(Forwarded, "10.0.0.1", &["Forwarded: for=192.0.2.1"], true);
        check(Forwarded, "10.0.0.1", &["Forwarded: for=192.0.2.1;proto=http"], false);
        // The hop from the client to the farthest proxy decides.
        let hops = "Forwarded: for=192.0.2.1;proto=https, for=10.0.0.2;proto=http";
        check(Forwarded, "10.0.0.1", &[hops], true);
    }
}
