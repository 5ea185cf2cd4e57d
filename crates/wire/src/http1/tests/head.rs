use crate::http1::*;

/// Scans a head that arrives in these pieces.
fn scan(pieces: &[&[u8]], limits: &Limits) -> Result<Option<Head>, Error> {
    let (mut scanner, mut buf) = (HeadScanner::default(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        if let Some(head) = scanner.find(&buf, limits)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Finds and parses a head. The result must be the same for every split.
fn parse<'b, T>(
    bytes: &'b [u8],
    limits: &Limits,
    parse: impl Fn(&'b [u8], &Limits) -> Result<T, Error>,
) -> Result<T, Error> {
    let whole = scan(&[bytes], limits);
    for at in 0..=bytes.len() {
        assert_eq!(scan(&[&bytes[..at], &bytes[at..]], limits), whole, "split at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(scan(&single, limits), whole, "byte by byte");
    let head = whole?.ok_or(Error::Incomplete)?;
    let length = head.bytes;
    let [found, whole] = [head.parse_request(bytes, limits), parse_request(&bytes[..length], limits)];
    assert_eq!(format!("{found:?}"), format!("{whole:?}"));
    parse(&bytes[..length], limits)
}

fn request(bytes: &[u8]) -> Result<Request<'_>, Error> {
    parse(bytes, &Limits::default(), parse_request)
}

fn response(bytes: &[u8]) -> Result<Response<'_>, Error> {
    parse(bytes, &Limits::default(), parse_response)
}

#[test]
fn a_request_is_read() {
    let bytes = b"\r\nGET /ws/a%20b?feed=x&y HTTP/1.1\r\nhost: example.com:8000\r\nX-Empty:\r\nConnection: keep-alive , UPGRADE\r\n\
        X-Two:  a \t\r\nx-two:b\xff\r\n\r\nrest";
    let request = request(bytes).unwrap();
    assert_eq!((request.method(), request.target()), ("GET", "/ws/a%20b?feed=x&y"));
    assert_eq!((request.path(), request.query()), ("/ws/a%20b", "feed=x&y"));
    assert_eq!((request.authority(), request.version()), ("example.com:8000", Version::Http11));
    assert_eq!(request.header("HOST"), Some(&b"example.com:8000"[..]));
    assert_eq!(request.header("x-empty"), Some(&b""[..]));
    assert_eq!(request.header("x-none"), None);
    assert_eq!(request.headers().all("X-TWO").collect::<Vec<_>>(), [&b"a"[..], &b"b\xff"[..]]);
    assert_eq!(request.header_str("x-two"), Some("a"));
    assert!(request.connection_has_upgrade());
    assert_eq!(request.headers().iter().count(), 5);
    assert_eq!(request.headers().iter().next(), Some(("host", &b"example.com:8000"[..])));
    assert_eq!(request.body(), BodyKind::Empty);
    assert!(request.keep_alive() && !request.expects_continue());
}

#[test]
fn targets_are_parsed() {
    fn check(method: &str, target: &str, expect: Result<(&str, &str, &str), Error>) {
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
        let seen = request(&bytes).map(|request| (request.authority(), request.path(), request.query()));
        assert_eq!(seen, expect, "{method} {target}");
    }
    check("GET", "/", Ok(("h", "/", "")));
    check("GET", "/a?", Ok(("h", "/a", "")));
    check("GET", "/a?b?c", Ok(("h", "/a", "b?c")));
    check("GET", "//a", Ok(("h", "//a", "")));
    check("GET", "http://other:80/a?b", Ok(("other:80", "/a", "b")));
    check("GET", "WSS://other", Ok(("other", "/", "")));
    check("GET", "http://other?b", Ok(("other", "/", "b")));
    check("GET", "http://[::1]:8000/a", Ok(("[::1]:8000", "/a", "")));
    check("GET", "http:///a", Err(Error::BadTarget));
    check("GET", "http://user@other/a", Err(Error::BadTarget));
    check("GET", "ftp://other/a", Err(Error::BadTarget));
    check("GET", "a", Err(Error::BadTarget));
    check("GET", "*", Err(Error::BadTarget));
    check("GET", "/a#b", Err(Error::BadTarget));
    check("GET", "/\u{e4}", Err(Error::BadTarget));
    check("OPTIONS", "*", Ok(("h", "*", "")));
    check("CONNECT", "other:443", Ok(("other:443", "", "")));
    check("CONNECT", "/a", Err(Error::BadTarget));
    check("GET", &format!("/{}", "a".repeat(16_000)), Ok(("h", &format!("/{}", "a".repeat(16_000)), "")));
}

/// Heads whose framing two readers could interpret differently are refused.
#[test]
fn a_prefix_is_compared_byte_by_byte() {
    fn check(target: &str, base: &str, expect: (&str, &str)) {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let request = request(head.as_bytes()).unwrap().below(base);
        assert_eq!((request.base(), request.path()), expect, "{target} below {base:?}");
        assert_eq!(request.target(), target);
    }
    check("/rt/ws?a=/rt", "", ("", "/rt/ws"));
    check("/rt/ws?a=/rt", "/rt", ("/rt", "/ws"));
    check("http://b/rt/ws", "/rt", ("/rt", "/ws"));
    check("/rt", "/rt", ("/rt", "/"));
    check("/rt/", "/rt", ("/rt", "/"));
    check("/a/b/c", "/a/b", ("/a/b", "/c"));
    for target in ["/", "/r", "/rtx", "/RT/ws", "/%72t/ws", "//rt/ws", "/x/rt/ws"] {
        check(target, "/rt", (target, ""));
    }
}

#[test]
fn smuggling_is_refused() {
    fn check(head: &str, expect: Result<BodyKind, Error>) {
        let bytes = format!("POST / HTTP/1.1\r\n{head}\r\n\r\n").into_bytes();
        assert_eq!(request(&bytes).map(|request| request.body()), expect, "{head:?}");
    }
    check("Host: a", Ok(BodyKind::Empty));
    check("Host: a\r\nContent-Length: 0", Ok(BodyKind::Empty));
    check("Host: a\r\nContent-Length: 007", Ok(BodyKind::Length(7)));
    check("Host: a\r\nContent-Length: 9223372036854775807", Ok(BodyKind::Length(i64::MAX as u64)));
    check("Host: a\r\nTransfer-Encoding: Chunked", Ok(BodyKind::Chunked));
    check("Host: a\r\nTransfer-Encoding: ,chunked", Ok(BodyKind::Chunked));

    check("Host: a\r\nContent-Length: 9223372036854775808", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: 99999999999999999999", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length:", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: +1", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: -1", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: 0x1", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: 1 1", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: 1, 1", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: 1\r\nContent-Length: 1", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: 1\r\nCONTENT-LENGTH: 2", Err(Error::BadContentLength));
    check("Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", Err(Error::ConflictingLength));
    check("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0", Err(Error::ConflictingLength));
    check("Host: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5", Err(Error::ConflictingLength));
    check("Host: a\r\nTransfer-Encoding:", Err(Error::BadTransferEncoding));
    check("Host: a\r\nTransfer-Encoding: identity", Err(Error::BadTransferEncoding));
    check("Host: a\r\nTransfer-Encoding: xchunked", Err(Error::BadTransferEncoding));
    check("Host: a\r\nTransfer-Encoding: \x0bchunked", Err(Error::BadHeader));
    check("Host: a\r\nTransfer-Encoding: \"chunked\"", Err(Error::BadTransferEncoding));
    check("Host: a\r\nTransfer-Encoding: chunked, identity", Err(Error::BadTransferEncoding));
    check("Host: a\r\nTransfer-Encoding: chunked, chunked", Err(Error::BadTransferEncoding));
    check(
        "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        Err(Error::BadTransferEncoding),
    );
    check(
        "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
        Err(Error::BadTransferEncoding),
    );
    check("Host: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: x", Err(Error::BadTransferEncoding));
    check(
        "Host: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        Err(Error::UnsupportedTransferCoding),
    );
    check("Host: a\r\nTransfer-Encoding: gzip, chunked", Err(Error::UnsupportedTransferCoding));

    check("Host: a\r\nA: b\r\n c", Err(Error::BadHeader));
    check("Host: a\r\nA: b\r\n\tc", Err(Error::BadHeader));
    check(" Host: a", Err(Error::BadHeader));
    check("Host : a", Err(Error::BadHeader));
    check("Host\t: a", Err(Error::BadHeader));
    check("Host: a\r\n: b", Err(Error::BadHeader));
    check("Host: a\r\nA", Err(Error::BadHeader));
    check("Host: a\r\nA(: b", Err(Error::BadHeader));
    check("Host: a\r\nA: b\0c", Err(Error::BadHeader));
    check("Host: a\r\nA: b\x7fc", Err(Error::BadHeader));
    check("Host: a\r\nA: b\rc", Err(Error::BadHeader));
    check("Host: a\r\nA: b\r\rc", Err(Error::BadHeader));
    check("Host: a\nA: b", Err(Error::BareLineFeed));
    check("Host: a\n\n", Err(Error::BareLineFeed));

    check("A: b", Err(Error::BadHost));
    check("Host: a\r\nhost: a", Err(Error::BadHost));
    check("Host: a b", Err(Error::BadHost));
    check("Host: a/b", Err(Error::BadHost));
    check("Host: a@b", Err(Error::BadHost));
    check("Host: a, b", Err(Error::BadHost));
    check("Host:", Ok(BodyKind::Empty));
}

#[test]
fn first_lines_are_checked() {
    fn check(first: &str, expect: Result<(Version, bool), Error>) {
        let bytes = format!("{first}\r\nHost: a\r\n\r\n").into_bytes();
        let seen = request(&bytes).map(|request| (request.version(), request.keep_alive()));
        assert_eq!(seen, expect, "{first:?}");
    }
    check("GET / HTTP/1.1", Ok((Version::Http11, true)));
    check("GET / HTTP/1.0", Ok((Version::Http10, false)));
    check("GET / HTTP/1.0\r\nConnection: Keep-Alive", Ok((Version::Http10, true)));
    check("GET / HTTP/1.1\r\nConnection: x, Close", Ok((Version::Http11, false)));
    check("GET / HTTP/1.1\r\nConnection: keep-alive\r\nConnection: close", Ok((Version::Http11, false)));
    check("G!T / HTTP/1.1", Ok((Version::Http11, true)));
    check("GET / HTTP/1.2", Err(Error::UnsupportedVersion));
    check("GET / HTTP/2.0", Err(Error::UnsupportedVersion));
    check("GET / HTTP/1.1 ", Err(Error::BadRequestLine));
    check("GET / http/1.1", Err(Error::UnsupportedVersion));
    check("GET /", Err(Error::BadRequestLine));
    check("GET  / HTTP/1.1", Err(Error::BadRequestLine));
    check("GET /  HTTP/1.1", Err(Error::UnsupportedVersion));
    check(" GET / HTTP/1.1", Err(Error::BadRequestLine));
    check("G(T / HTTP/1.1", Err(Error::BadRequestLine));
    check("GET /\0 HTTP/1.1", Err(Error::BadRequestLine));
    check("GET / HTTP/1.1\r", Err(Error::BadRequestLine));
    check("PRI * HTTP/2.0", Err(Error::UnsupportedVersion));
}

#[test]
fn old_versions_need_no_host_and_have_no_chunks() {
    let seen = request(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!((seen.authority(), seen.body()), ("", BodyKind::Empty));
    let seen = request(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(seen.err(), Some(Error::BadTransferEncoding));
}

#[test]
fn expectations_are_recognized() {
    fn check(rest: &str, expect: bool) {
        let bytes = format!("POST / HTTP/{rest}\r\nHost: a\r\n\r\n").into_bytes();
        assert_eq!(request(&bytes).unwrap().expects_continue(), expect, "{rest}");
    }
    check("1.1\r\nContent-Length: 5\r\nExpect: 100-Continue", true);
    check("1.1\r\nContent-Length: 5", false);
    check("1.1\r\nExpect: 100-continue", false);
    check("1.0\r\nContent-Length: 5\r\nExpect: 100-continue", false);
}

#[test]
fn responses_are_parsed() {
    fn check(head: &str, to_head: bool, expect: Result<(u16, BodyKind), Error>) {
        let bytes = format!("{head}\r\n\r\n").into_bytes();
        let seen = response(&bytes).map(|response| (response.status(), response.body(to_head)));
        assert_eq!(seen, expect, "{head:?}");
    }
    check("HTTP/1.1 200 OK", false, Ok((200, BodyKind::UntilClose)));
    check("HTTP/1.1 200 ", false, Ok((200, BodyKind::UntilClose)));
    check("HTTP/1.1 200", false, Ok((200, BodyKind::UntilClose)));
    check("HTTP/1.1 200 OK\r\nContent-Length: 3", false, Ok((200, BodyKind::Length(3))));
    check("HTTP/1.1 200 OK\r\nContent-Length: 0", false, Ok((200, BodyKind::Empty)));
    check("HTTP/1.1 200 OK\r\nContent-Length: 3", true, Ok((200, BodyKind::Empty)));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", false, Ok((200, BodyKind::Chunked)));
    check("HTTP/1.1 204 No Content", false, Ok((204, BodyKind::Empty)));
    check("HTTP/1.1 304 Not Modified\r\nContent-Length: 3", false, Ok((304, BodyKind::Empty)));
    check("HTTP/1.1 101 Switching Protocols", false, Ok((101, BodyKind::Empty)));
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3",
        false,
        Err(Error::ConflictingLength),
    );
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip", false, Err(Error::BadTransferEncoding));
    check("HTTP/1.1 200 OK\r\nA : b", false, Err(Error::BadHeader));
    check("HTTP/1.1 200 OK\r\nA: b\r\n c", false, Err(Error::BadHeader));
    check("HTTP/1.1 099 X", false, Err(Error::BadStatusLine));
    check("HTTP/1.1 20 X", false, Err(Error::BadStatusLine));
    check("HTTP/1.1 2000 X", false, Err(Error::BadStatusLine));
    check("HTTP/3.0 200 X", false, Err(Error::UnsupportedVersion));
    let seen = response(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
    assert!(!seen.keep_alive() && seen.version() == Version::Http10);
}

#[test]
fn limits_are_enforced() {
    let limits = Limits { header_bytes_max: 60, headers_max: 3 };
    fn check(bytes: &str, limits: &Limits, expect: Option<Error>) {
        let error = parse(bytes.as_bytes(), limits, parse_request).err();
        assert_eq!(error, expect, "{bytes:?}");
    }
    let exact = "GET / HTTP/1.1\r\nHost: a\r\nA: 678901234567890123456789\r\n\r\n";
    let fill = 60 - exact.len();
    let exact = exact.replace("A: ", &format!("A: {}", "x".repeat(fill)));
    assert_eq!(exact.len(), 60);
    check(&exact, &limits, None);
    check(&exact.replace("A: ", "A: x"), &limits, Some(Error::HeadTooLarge));
    check("GET / HTTP/1.1\r\nHost: a\r\nA:1\r\nB:1\r\n\r\n", &limits, None);
    check("GET / HTTP/1.1\r\nHost: a\r\nA:1\r\nB:1\r\nC:1\r\n\r\n", &limits, Some(Error::TooManyHeaders));
    check(&format!("GET /{}", "a".repeat(60)), &limits, Some(Error::TargetTooLong));
    check(&format!("GET / HTTP/1.1\r\n{}", "a".repeat(60)), &limits, Some(Error::HeadTooLarge));
    check(&"\r\n".repeat(40), &limits, Some(Error::TargetTooLong));
    // A limit above the capacity of the parser's table has no effect.
    let limits = Limits { headers_max: 100_000, ..Limits::default() };
    let head = |headers| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A:1\r\n".repeat(headers));
    check(&head(127), &limits, None);
    check(&head(128), &limits, Some(Error::TooManyHeaders));
    // CVE-2024-37890: many more headers than the limit.
    let error = parse_request(head(2000).as_bytes(), &Limits::default()).err();
    assert_eq!(error, Some(Error::TooManyHeaders));
}

/// The parser rejects input that is not exactly one head, even if no scanner has checked it.
#[test]
fn only_one_whole_head_is_parsed() {
    for bytes in [
        &b""[..],
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nmore",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(parse_request(bytes, &Limits::default()).err(), Some(Error::Incomplete));
    }
}

/// Scanned bytes aren't read again, except the byte before a line feed, which would be an error here.
#[test]
fn scanning_is_linear() {
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    let mut scanner = HeadScanner::default();
    for end in 1..head.len() {
        assert_eq!(scanner.find_end(&head[..end], &Limits::default()), Ok(None));
        head[..end - 1].fill(b'\n');
    }
    assert_eq!(scanner.find_end(&head, &Limits::default()), Ok(Some(head.len())));
    // The scanner is ready for the next head.
    let next = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(scanner.find_end(next, &Limits::default()), Ok(Some(next.len())));
}

/// CVE-2023-43669: an endless head that arrives byte by byte costs its length only, and ends at the limit.
#[test]
fn endless_heads_end_at_the_limit() {
    let limits = Limits::default();
    for (start, expect) in
        [("GET /", Error::TargetTooLong), ("GET / HTTP/1.1\r\nHost: a\r\nX: ", Error::HeadTooLarge)]
    {
        let (mut head, mut scanner) = (start.as_bytes().to_vec(), HeadScanner::default());
        while scanner.find_end(&head, &limits) == Ok(None) {
            head.push(b'a');
        }
        assert_eq!(scanner.find_end(&head, &limits), Err(expect));
        assert_eq!(head.len(), limits.header_bytes_max, "{start}");
    }
}

#[test]
fn every_error_has_a_status() {
    for (error, status) in [
        (Error::BadHost, 400),
        (Error::TargetTooLong, 414),
        (Error::HeadTooLarge, 431),
        (Error::TooManyHeaders, 431),
        (Error::UnsupportedTransferCoding, 501),
        (Error::UnsupportedVersion, 505),
    ] {
        assert_eq!(error.status(), status, "{error}");
    }
}
