//! The checks of the fuzz targets. Common rule: the same bytes give the same events, however they are cut
//! into pieces.
//!
//! An input is a byte of flags, seven bytes that determine the cuts, and then the peer's bytes.

pub mod cluster_frame;
pub mod delta;
pub mod engineio;
mod json;
pub mod link;
mod proxy;
pub mod redis_adapter;
pub mod socketio;

use stentor_wire::http1::{
    self, BodyDecoder, BodyKind, Error, HeadScanner, Headers, Limits, parse_request, parse_response,
};
use stentor_wire::ws::handshake::{ClientHandshake, check_request, subprotocols};
use stentor_wire::ws::{
    self, Connection, DeflateOptions, Deflater, Event, Inflater, Kind, Negotiated, Role, Shared,
};

mod sockjs;
pub mod token;

pub use json::json;
pub use proxy::proxy_header;
pub use sockjs::{sockjs_incoming, sockjs_path, sse_decoder};

/// Splits an input into flags, cuts, and the peer's bytes.
fn parts(data: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&flags, rest) = data.split_first()?;
    let (cuts, bytes) = rest.split_at_checked(7)?;
    Some((flags, cuts, bytes))
}

/// Cuts `bytes` into pieces of the lengths in `cuts`, used cyclically. A zero means 300 bytes.
fn pieces<'b>(mut bytes: &'b [u8], cuts: &[u8]) -> Vec<&'b [u8]> {
    let mut pieces = Vec::new();
    for &cut in cuts.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at(if cut == 0 { 300 } else { usize::from(cut) }.min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fn find_end(pieces: &[&[u8]], limits: &Limits) -> Result<Option<usize>, Error> {
    let (mut scanner, mut buf) = (HeadScanner::default(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        if let Some(end) = scanner.find_end(&buf, limits)? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// Returns the headers at the start of `bytes`, if they are complete. Checks that the result is the same in
/// pieces.
fn head<'b>(bytes: &'b [u8], cuts: &[u8], limits: &Limits) -> Option<&'b [u8]> {
    let whole = find_end(&[bytes], limits);
    // An empty input has no pieces, and is no error.
    assert_eq!(find_end(&pieces(bytes, cuts), limits), if bytes.is_empty() { Ok(None) } else { whole });
    whole.ok().flatten().map(|end| &bytes[..end])
}

/// Checks parsed headers: one line each, valid names, and values without line breaks or NUL.
fn check_headers(headers: Headers<'_>, head: &[u8]) {
    let lines = head.iter().filter(|&&byte| byte == b'\n').count();
    let mut count = 0;
    for (name, value) in headers.iter() {
        assert!(!name.is_empty() && !name.contains([' ', '\t', ':', '\r', '\n', '\0']));
        assert!(!value.iter().any(|byte| b"\r\n\0".contains(byte)));
        assert_eq!(headers.all(name).next(), headers.all(&name.to_ascii_uppercase()).next());
        count += 1;
    }
    assert!(count + 2 <= lines);
}

/// Checks a request's headers.
pub fn http1_request(data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let limits =
        if flags & 1 == 0 { Limits::default() } else { Limits { header_bytes_max: 100, headers_max: 4 } };
    let Some(head) = head(bytes, cuts, &limits) else { return };
    let Ok(request) = parse_request(head, &limits) else { return };
    check_headers(request.headers(), head);
    assert!(request.headers().iter().count() <= limits.headers_max);
    assert!(request.body() != BodyKind::UntilClose);
    let has = |name: &str| request.header(name).is_some();
    assert!(!(has("content-length") && has("transfer-encoding")));
    assert!(request.headers().all("host").count() <= 1);
    let _ = http1::percent_decode(request.path());
    http1::query_pairs(request.query()).for_each(drop);
    // A request that is written from these parts parses to the same parts.
    let headers: Vec<(&str, &str)> = request
        .headers()
        .iter()
        .filter_map(|(name, value)| Some((name, str::from_utf8(value).ok()?)))
        .collect();
    if request.version() == http1::Version::Http11 && headers.len() == request.headers().iter().count() {
        let mut written = Vec::new();
        http1::write_request_head(&mut written, request.method(), request.target(), &headers);
        let limits = Limits { header_bytes_max: usize::MAX, ..limits };
        let again = parse_request(&written, &limits).expect("our own head is sound");
        assert_eq!(again.headers().iter().collect::<Vec<_>>(), request.headers().iter().collect::<Vec<_>>());
        assert_eq!(
            (again.target(), again.path(), again.query()),
            (request.target(), request.path(), request.query())
        );
        assert_eq!((again.body(), again.keep_alive()), (request.body(), request.keep_alive()));
    }
}

/// Checks a response's headers and body.
pub fn http1_response(data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let limits = Limits::default();
    let Some(head) = head(bytes, cuts, &limits) else { return };
    let Ok(response) = parse_response(head, &limits) else { return };
    check_headers(response.headers(), head);
    assert!(response.status() >= 100);
    check_body(response.body(flags & 1 != 0), &bytes[head.len()..], cuts);
}

/// Checks a chunked body.
pub fn http1_chunked(data: &[u8]) {
    let Some((_, cuts, bytes)) = parts(data) else { return };
    check_body(BodyKind::Chunked, bytes, cuts);
    // A body that is written as chunks decodes to the same bytes.
    let mut written = Vec::new();
    pieces(bytes, cuts).iter().for_each(|piece| http1::write_chunk(&mut written, piece));
    http1::write_last_chunk(&mut written);
    assert_eq!(decode(BodyKind::Chunked, &[&written]), Ok((bytes.to_vec(), 0, true)));
}

fn check_body(kind: BodyKind, bytes: &[u8], cuts: &[u8]) {
    let whole = decode(kind, &[bytes]);
    assert_eq!(decode(kind, &pieces(bytes, cuts)), whole);
    if let Ok((body, rest, _)) = whole {
        assert!(body.len() + rest <= bytes.len());
    }
}

/// Decodes a body. Returns it, the number of bytes after it, and `true` if it has ended.
fn decode(kind: BodyKind, pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), Error> {
    let mut decoder = BodyDecoder::new(kind);
    let (mut body, mut rest) = (Vec::new(), 0);
    for piece in pieces {
        let mut input = *piece;
        while !input.is_empty() && !decoder.is_done() {
            let decoded = decoder.decode(input)?;
            assert!(decoded.consumed > 0);
            body.extend_from_slice(decoded.data);
            input = &input[decoded.consumed..];
        }
        rest += input.len();
    }
    Ok((body, rest, decoder.is_done()))
}

#[derive(Debug, PartialEq)]
enum Seen {
    Message(Kind, Vec<u8>),
    Ping,
    Pong(Vec<u8>),
    Closed(u16, String, Option<ws::Error>),
}

/// Checks a WebSocket connection's input, in either role.
pub fn ws(role: Role, data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let limits = if flags & 1 == 0 {
        ws::Limits::default()
    } else {
        ws::Limits { message_bytes_max: 50, fragments_max: 3 }
    };
    let deflate = (flags & 2 != 0).then_some(Negotiated {
        server_max_window_bits: 15,
        client_max_window_bits: 15,
        client_keeps_context: flags & 4 != 0,
    });
    let closes_first = flags & 4 != 0;
    let run = |pieces: &[&[u8]]| {
        let (mut connection, mut shared) = (Connection::new(role, deflate), Shared::new(limits));
        let (mut transmit, mut seen) = (Vec::new(), Vec::new());
        if closes_first {
            connection.close(4000, "fuzz", &mut transmit);
        }
        for piece in pieces {
            let mut input = piece.to_vec();
            let (mut at, end) = (0, input.len());
            while at < end {
                let received = connection.receive(&mut shared, &mut input[at..], &mut transmit);
                assert!(received.consumed > 0 && received.consumed <= end - at);
                at += received.consumed;
                seen.extend(received.event.map(|event| match event {
                    Event::Message(message) => {
                        let (kind, data) = (message.kind(), message.bytes());
                        assert!(data.len() <= limits.message_bytes_max);
                        assert!(kind == Kind::Binary || str::from_utf8(data).is_ok());
                        Seen::Message(kind, data.to_vec())
                    }
                    Event::Ping => Seen::Ping,
                    Event::Pong(data) => Seen::Pong(data.to_vec()),
                    Event::Closed { code, reason, error } => Seen::Closed(code, reason.to_owned(), error),
                }));
                assert!(connection.held_bytes() <= 1024 + 2 * bytes.len());
                assert_eq!(connection.is_mid_message(), connection.held_bytes() > 0);
            }
        }
        (seen, transmit, connection.is_mid_message(), connection.is_closed())
    };
    let whole = run(&[bytes]);
    assert_eq!(run(&pieces(bytes, cuts)), whole);
    let closed = whole.0.iter().position(|seen| matches!(seen, Seen::Closed(..)));
    assert!(closed.is_none_or(|at| at + 1 == whole.0.len()));
    // The other side accepts everything that the connection transmits.
    let other = if role == Role::Server { Role::Client } else { Role::Server };
    let (mut connection, mut shared) = (Connection::new(other, None), Shared::new(ws::Limits::default()));
    let (mut transmit, mut at) = (whole.1, 0);
    while at < transmit.len() {
        let received = connection.receive(&mut shared, &mut transmit[at..], &mut Vec::new());
        at += received.consumed;
        assert!(!matches!(received.event, Some(Event::Closed { error: Some(_), .. })));
    }
}

/// Checks an opening handshake: a client's request, or a server's response.
pub fn ws_handshake(data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let limits = Limits::default();
    let Some(head) = head(bytes, cuts, &limits) else { return };
    let client = ClientHandshake::new(*b"the sample nonce", flags & 1 != 0);
    if let Ok(response) = parse_response(head, &limits) {
        let _ = client.check_response(&response);
    }
    let Ok(request) = parse_request(head, &limits) else { return };
    let options = DeflateOptions { window_bits_max: flags >> 4, allows_context: flags & 8 == 0 };
    let protocol = subprotocols(&request).last();
    match check_request(&request, (flags & 2 != 0).then_some(&options)) {
        Err(error) => assert!((400..500).contains(&error.status())),
        Ok(accepted) => {
            let mut response = Vec::new();
            accepted.write_response(&mut response, &[], protocol);
            let response = parse_response(&response, &limits).expect("our own head is sound");
            assert_eq!(response.status(), 101);
            assert_eq!(response.header_str("sec-websocket-protocol"), protocol);
            assert_eq!(response.header("sec-websocket-extensions").is_some(), accepted.deflate.is_some());
        }
    }
}

/// Checks that deflated bytes inflate to the original, and that random bytes inflate to at most the limit.
pub fn deflate_roundtrip(data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let mut inflater = Inflater::new();
    let limit = usize::from(cuts[0]) << 6;
    if let Ok(inflated) = inflater.inflate(bytes, limit) {
        assert!(inflated.len() <= limit);
    }
    let mut deflater = Deflater::new(flags & 0x0f);
    let deflated = deflater.deflate(bytes, 9 + (flags >> 4) % 7);
    assert_eq!(inflater.inflate(deflated, bytes.len()), Ok(bytes));
    if !bytes.is_empty() {
        assert_eq!(inflater.inflate(deflated, bytes.len() - 1), Err(ws::Error::MessageTooBig));
    }
}
