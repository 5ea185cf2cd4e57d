use super::*;
use crate::http1::{self, Request, parse_request, parse_response};
use crate::ws::handshake::*;

const GOOD: &str = "Host: h\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn with_request<T>(first: &str, headers: &str, use_it: impl FnOnce(&Request<'_>) -> T) -> T {
    let head = format!("{first}\r\n{headers}\r\n");
    use_it(&parse_request(head.as_bytes(), &http1::Limits::default()).unwrap())
}

#[test]
fn valid_requests_are_accepted() {
    fn check(first: &str, headers: &str, expect: Result<(), HandshakeError>) {
        let seen = with_request(first, headers, |request| check_request(request, None));
        assert_eq!(
            seen.map(|accepted| assert_eq!(&accepted.accept, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")),
            expect
        );
    }
    const GET: &str = "GET /ws HTTP/1.1";
    let without = |name: &str| -> String {
        GOOD.split_inclusive("\r\n").filter(|line| !line.starts_with(name)).collect()
    };
    check(GET, GOOD, Ok(()));
    check(GET, &GOOD.replace("websocket", "h2c, WebSocket"), Ok(()));
    check("POST /ws HTTP/1.1", GOOD, Err(HandshakeError::MethodNotGet));
    check("GET /ws HTTP/1.0", GOOD, Err(HandshakeError::NoConnectionUpgrade));
    check(GET, &without("Upgrade"), Err(HandshakeError::NoUpgrade));
    check(GET, &GOOD.replace("websocket", "websockets"), Err(HandshakeError::NoUpgrade));
    check(GET, &without("Connection"), Err(HandshakeError::NoConnectionUpgrade));
    check(GET, &GOOD.replace(", Upgrade", ""), Err(HandshakeError::NoConnectionUpgrade));
    check(GET, &without("Sec-WebSocket-Version"), Err(HandshakeError::BadVersion));
    check(GET, &GOOD.replace("13", "8"), Err(HandshakeError::BadVersion));
    check(GET, &GOOD.replace("13", "13, 8"), Err(HandshakeError::BadVersion));
    check(GET, &format!("{GOOD}Sec-WebSocket-Version: 13\r\n"), Err(HandshakeError::BadVersion));
    check(GET, &without("Sec-WebSocket-Key"), Err(HandshakeError::BadKey));
    for key in [
        "",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZQ===",
        "dGhlIHNhbXBsZSBub25jZQAA",
        "dGhlIHNhbXBsZSBub25j Q==",
    ] {
        check(GET, &GOOD.replace("dGhlIHNhbXBsZSBub25jZQ==", key), Err(HandshakeError::BadKey));
    }
    check(
        GET,
        &format!("{GOOD}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
        Err(HandshakeError::BadKey),
    );
    check(GET, &format!("{GOOD}Content-Length: 5\r\n"), Err(HandshakeError::HasBody));
    check(GET, &format!("{GOOD}Content-Length: 0\r\n"), Ok(()));
}

#[test]
fn invalid_requests_are_refused() {
    assert_eq!(HandshakeError::MethodNotGet.status(), 405);
    assert_eq!(HandshakeError::MethodNotGet.headers(), [("Allow", "GET")]);
    assert_eq!(HandshakeError::NoUpgrade.status(), 426);
    assert_eq!(HandshakeError::NoUpgrade.headers(), [("Upgrade", "websocket"), ("Connection", "Upgrade")]);
    assert_eq!(HandshakeError::BadVersion.status(), 400);
    assert_eq!(HandshakeError::BadVersion.headers(), [("Sec-WebSocket-Version", "13")]);
    assert_eq!(HandshakeError::BadKey.status(), 400);
}

/// Checks the response to these offers: the negotiated window, and the header.
#[test]
fn compression_is_negotiated() {
    const BASE: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    fn check(offer: &str, window_bits_max: u8, expect: Option<(u8, &str)>) {
        let headers = format!("{GOOD}User-Agent: Mozilla/5.0\r\nSec-WebSocket-Extensions: {offer}\r\n");
        let options = DeflateOptions { window_bits_max, ..DeflateOptions::default() };
        let accepted = with_request("GET / HTTP/1.1", &headers, |request| {
            check_request(request, Some(&options)).unwrap()
        });
        assert_eq!(
            accepted.deflate.map(|negotiated| negotiated.server_max_window_bits),
            expect.map(|(bits, _)| bits)
        );
        let mut response = Vec::new();
        accepted.write_response(&mut response, &[], None);
        let response = parse_response(&response, &http1::Limits::default()).unwrap();
        let answer = expect.map(|(_, parameters)| format!("{BASE}{parameters}"));
        assert_eq!(response.header_str("sec-websocket-extensions"), answer.as_deref(), "{offer}");
    }
    check("permessage-deflate", 15, Some((15, "")));
    check("permessage-deflate; client_max_window_bits", 15, Some((15, "")));
    check("permessage-deflate; client_max_window_bits=8", 15, Some((15, "")));
    check("permessage-deflate;server_no_context_takeover;client_no_context_takeover", 15, Some((15, "")));
    check("permessage-deflate; server_max_window_bits=9", 15, Some((9, "; server_max_window_bits=9")));
    check("permessage-deflate; server_max_window_bits=15", 15, Some((15, "; server_max_window_bits=15")));
    check("permessage-deflate; server_max_window_bits=\"10\"", 15, Some((10, "; server_max_window_bits=10")));
    check("permessage-deflate; server_max_window_bits=14", 12, Some((12, "; server_max_window_bits=12")));
    check("permessage-deflate", 12, Some((12, "; server_max_window_bits=12")));
    check("permessage-deflate", 3, Some((9, "; server_max_window_bits=9")));
    // Declined.
    check("permessage-deflate; server_max_window_bits=8", 15, None);
    for bits in ["7", "16", "", "09", "+9", "9x", "1", "010", "\"", "\"9", "9 9", "99999999999"] {
        check(&format!("permessage-deflate; server_max_window_bits={bits}"), 15, None);
        check(&format!("permessage-deflate; client_max_window_bits={bits}"), 15, None);
    }
    check("permessage-deflate; server_max_window_bits", 15, None);
    check("permessage-deflate; server_no_context_takeover=true", 15, None);
    check("permessage-deflate; client_no_context_takeover=", 15, None);
    check("permessage-deflate; unknown", 15, None);
    check("permessage-deflate;", 15, None);
    check("permessage-deflate; server_no_context_takeover; server_no_context_takeover", 15, None);
    check("permessage-deflate; server_max_window_bits=9; server_max_window_bits=9", 15, None);
    check("permessage-deflate; client_max_window_bits; client_max_window_bits=9", 15, None);
    check("x-webkit-deflate-frame", 15, None);
    // GHSA-5v72-xg48-5rpm: extensions with the names of properties that every JavaScript object has.
    for offer in ["constructor", "__proto__; toString", "permessage-deflate; constructor"] {
        check(offer, 15, None);
    }
    check("", 15, None);
    check(",;=\"\\", 15, None);
    check("permessage-deflate; a=\"", 15, None);
    // The next offer is accepted; a quoted comma separates no offers.
    check(
        "permessage-deflate; unknown, x, permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=11",
        15,
        Some((11, "; server_max_window_bits=11")),
    );
    check("permessage-deflate; a=\", permessage-deflate\"", 15, None);
    check("permessage-deflate; a=\"\\\", permessage-deflate\"", 15, None);
    check("permessage-deflate; x\r\nSec-WebSocket-Extensions: permessage-deflate", 15, Some((15, "")));
    // Compression is disabled.
    let headers = format!("{GOOD}Sec-WebSocket-Extensions: permessage-deflate\r\n");
    let accepted = with_request("GET / HTTP/1.1", &headers, |request| check_request(request, None).unwrap());
    assert_eq!(accepted.deflate, None);
}

/// Netty's clients refuse `client_no_context_takeover` unless they have offered it, and send `Origin` and
/// `client_max_window_bits` like browsers. Tyrus's clients accept it, and keep their context nevertheless.
#[test]
fn only_clients_that_accept_it_are_asked_to_do_without_their_context() {
    const NONE: Option<&str> = None;
    const KEEPS: Option<&str> = Some("permessage-deflate; server_no_context_takeover");
    const RESETS: Option<&str> =
        Some("permessage-deflate; server_no_context_takeover; client_no_context_takeover");
    const WINDOW: &str = "permessage-deflate; client_max_window_bits";
    const OFFERED: &str = "permessage-deflate; client_no_context_takeover; client_max_window_bits";
    let both = format!("{WINDOW}, {OFFERED}");
    for (agent, offer, answer, while_declining) in [
        ("", WINDOW, KEEPS, NONE),
        ("Origin: http://h\r\n", WINDOW, KEEPS, NONE),
        ("User-Agent: Tyrus/Mozilla/5.0\r\n", "permessage-deflate", KEEPS, NONE),
        ("", OFFERED, RESETS, RESETS),
        ("", &both, KEEPS, RESETS),
        ("User-Agent: Mozilla/5.0 (X11)\r\n", WINDOW, RESETS, RESETS),
    ] {
        for (allows_context, answer) in [(true, answer), (false, while_declining)] {
            let headers = format!("{GOOD}{agent}Sec-WebSocket-Extensions: {offer}\r\n");
            let options = DeflateOptions { allows_context, ..DeflateOptions::default() };
            let accepted = with_request("GET / HTTP/1.1", &headers, |request| {
                check_request(request, Some(&options)).unwrap()
            });
            let mut response = Vec::new();
            accepted.write_response(&mut response, &[], None);
            let response = parse_response(&response, &http1::Limits::default()).unwrap();
            assert_eq!(response.header_str("sec-websocket-extensions"), answer, "{agent}{offer}");
            let keeps = accepted.deflate.map(|agreed| agreed.client_keeps_context);
            assert_eq!(keeps, answer.map(|_| answer == KEEPS), "{agent}{offer}");
        }
    }
}

#[test]
fn subprotocols_are_listed() {
    let headers = format!("{GOOD}Sec-WebSocket-Protocol: a, b c, d\r\nSec-WebSocket-Protocol: e\r\n");
    let offered: Vec<String> = with_request("GET / HTTP/1.1", &headers, |request| {
        subprotocols(request).map(str::to_owned).collect()
    });
    assert_eq!(offered, ["a", "d", "e"]);
}

/// CVE-2021-32640: a list that is mostly spaces. Quadratic work would take minutes for these sizes.
#[test]
fn lists_of_spaces_take_linear_time() {
    let limits = http1::Limits { header_bytes_max: 100_000_000, ..http1::Limits::default() };
    let values = [
        format!("b{}x", " ".repeat(1_000_000)),
        format!("b{}x", ", ".repeat(500_000)),
        format!("b;{}", "\"\\".repeat(500_000)),
        ";".repeat(1_000_000),
    ];
    for name in ["Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions", "Connection", "Upgrade"] {
        for value in &values {
            let head = format!("GET /ws HTTP/1.1\r\n{GOOD}{name}: {value}\r\n\r\n");
            let request = parse_request(head.as_bytes(), &limits).unwrap();
            assert!(check_request(&request, Some(&DeflateOptions::default())).unwrap().deflate.is_none());
            subprotocols(&request).for_each(drop);
        }
    }
}

#[test]
fn the_response_is_written() {
    let accepted = with_request("GET / HTTP/1.1", GOOD, |request| check_request(request, None).unwrap());
    let mut out = Vec::new();
    accepted.write_response(&mut out, &[("A", "b"), ("C", "d\r\nE: f")], Some("stentor.v1"));
    assert_eq!(
        str::from_utf8(&out).unwrap(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: stentor.v1\r\nA: b\r\n\r\n"
    );
}

#[test]
fn client_and_server_agree() {
    for offers in [false, true] {
        for takes in [None, Some(15), Some(9)].map(|bits| {
            bits.map(|window_bits_max| DeflateOptions { window_bits_max, ..DeflateOptions::default() })
        }) {
            let client = ClientHandshake::new(*b"the sample nonce", offers);
            let mut request = Vec::new();
            client.write_request(&mut request, "h:80", "/ws?a", &[("Sec-WebSocket-Protocol", "p")]);
            let request = parse_request(&request, &http1::Limits::default()).unwrap();
            assert_eq!((request.authority(), request.query()), ("h:80", "a"));
            assert_eq!(subprotocols(&request).collect::<Vec<_>>(), ["p"]);
            let accepted = check_request(&request, takes.as_ref()).unwrap();
            assert_eq!(accepted.deflate.is_some(), offers && takes.is_some());
            let mut response = Vec::new();
            accepted.write_response(&mut response, &[], Some("p"));
            let response = parse_response(&response, &http1::Limits::default()).unwrap();
            assert_eq!(client.check_response(&response), Ok(accepted.deflate));
        }
    }
}

#[test]
fn responses_are_checked() {
    const GOOD: &str = "HTTP/1.1 101 X\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    fn check(head: &str, offers_deflate: bool, expect: Result<Option<u8>, ResponseError>) {
        let head = format!("{head}\r\n");
        let response = parse_response(head.as_bytes(), &http1::Limits::default()).unwrap();
        let seen = ClientHandshake::new(*b"the sample nonce", offers_deflate).check_response(&response);
        assert_eq!(
            seen.map(|deflate| deflate.map(|deflate| deflate.server_max_window_bits)),
            expect,
            "{head}"
        );
    }
    check(GOOD, false, Ok(None));
    check(GOOD, true, Ok(None));
    check(&GOOD.replace("101", "403"), true, Err(ResponseError::Refused(403)));
    check(&GOOD.replace("WebSocket\r", "x\r"), true, Err(ResponseError::NoUpgrade));
    check(&GOOD.replace("upgrade\r", "x\r"), true, Err(ResponseError::NoUpgrade));
    check(&GOOD.replace("s3p", "S3p"), true, Err(ResponseError::BadAccept));
    let with = |extensions: &str| format!("{GOOD}Sec-WebSocket-Extensions: {extensions}\r\n");
    check(&with("permessage-deflate; server_no_context_takeover"), true, Ok(Some(15)));
    check(
        &with("permessage-deflate; server_no_context_takeover; server_max_window_bits=9"),
        true,
        Ok(Some(9)),
    );
    for bad in [
        "permessage-deflate",
        "permessage-deflate; server_no_context_takeover, permessage-deflate; server_no_context_takeover",
        "permessage-deflate; server_no_context_takeover; client_max_window_bits=9",
        "permessage-deflate; server_no_context_takeover; x",
        "constructor",
        "",
    ] {
        check(&with(bad), true, Err(ResponseError::BadExtensions));
    }
    let unasked = with("permessage-deflate; server_no_context_takeover");
    check(&unasked, false, Err(ResponseError::BadExtensions));
}
