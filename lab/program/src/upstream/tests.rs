use super::*;
use crate::document::{BODY_AT, HEAD_AT};
use crate::payload::is_padding;

fn start(content: Content, skips: bool, hesitates_ms: u64) -> (Upstream, TcpStream) {
    let upstream = Upstream::start(content, skips, Duration::from_millis(hesitates_ms)).unwrap();
    let stream = TcpStream::connect(upstream.address).unwrap();
    (upstream, stream)
}

fn ask(stream: &mut TcpStream) -> Vec<u8> {
    ask_for(stream, "/key")
}

fn ask_for(stream: &mut TcpStream, path: &str) -> Vec<u8> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Cache-Control"), "{head}");
    let length = head.split("Content-Length: ").nth(1).unwrap().split('\r').next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    body
}

#[test]
fn answers_each_version_once_and_not_before_its_time() {
    let (upstream, mut stream) = start(Content::text(1000), false, 0);
    assert_eq!(ask(&mut stream), b"null");
    upstream.pacer().set_rate_hz(100.0, Duration::from_millis(20));
    let begin_ns = upstream.serving.lock().pace.unwrap().base_ns;
    for sequence in 0..5 {
        let body = ask(&mut stream);
        let intended_ns = begin_ns + sequence * 10_000_000;
        assert!(monotonic_ns() >= intended_ns);
        assert_eq!((body.len(), body[0], body[999]), (1000, b'"', b'"'));
        let head = Head::read(&body[1..=HEAD_BYTES]);
        assert_eq!(head, Some(Head { sequence, intended_ns }));
        assert!(is_padding(&body[1 + HEAD_BYTES..999]));
    }
    let served = upstream.stop();
    assert_eq!((served.lag.len(), served.requests, served.versions), (5, 6, 6));
}

#[test]
fn a_version_counts_once_for_all_who_wait_for_it() {
    let hesitates = Duration::from_millis(500);
    let upstream = Upstream::start(Content::text(1000), false, hesitates).unwrap();
    let address = upstream.address;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || ask(&mut TcpStream::connect(address).unwrap()));
        }
    });
    let served = upstream.stop();
    assert_eq!((served.requests, served.versions), (3, 1));
}

#[test]
fn a_document_is_served_before_its_first_change() {
    let shape = Shape { bytes: 5000, changes: 3 };
    let hesitates = Duration::from_millis(30);
    let upstream = Upstream::start(Content::document(shape), false, hesitates).unwrap();
    let mut expected = Document::new(shape);
    let begun = Instant::now();
    let mut stream = TcpStream::connect(upstream.address).unwrap();
    assert_eq!(ask(&mut stream), expected.text());
    assert!(begun.elapsed() >= hesitates);
    upstream.pacer().set_rate_hz(100.0, Duration::ZERO);
    for _ in 0..3 {
        expected.advance();
        assert_eq!(ask(&mut stream)[BODY_AT..], expected.text()[BODY_AT..]);
    }
}

#[test]
fn each_path_has_a_document_that_changes_with_each_request() {
    let shape = Shape { bytes: 5000, changes: 3 };
    let (_upstream, mut stream) = start(Content::documents(shape), false, 0);
    let begun_ns = monotonic_ns();
    for path in ["/a", "/b"] {
        let mut expected = Document::new(shape);
        assert_eq!(ask_for(&mut stream, path), expected.text());
        for sequence in 0..3 {
            expected.advance();
            let body = ask_for(&mut stream, path);
            assert_eq!(body[BODY_AT..], expected.text()[BODY_AT..]);
            let head = Head::read(&body[HEAD_AT..BODY_AT]).unwrap();
            assert_eq!(head.sequence, sequence);
            assert!((begun_ns..=monotonic_ns()).contains(&head.intended_ns));
        }
    }
}

#[test]
fn closes_the_connection_after_an_invalid_request() {
    let upstream = Upstream::start(Content::text(100), false, Duration::ZERO).unwrap();
    for request in [
        &b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET",
    ] {
        let mut stream = TcpStream::connect(upstream.address).unwrap();
        stream.write_all(request).unwrap();
        let mut rest = Vec::new();
        // The connection ends or is reset, without an answer.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
    }
}

#[test]
fn only_the_newest_version_is_answered_where_the_rate_is_set() {
    let shape = Shape { bytes: 500, changes: 2 };
    let (upstream, mut stream) = start(Content::document(shape), true, 0);
    assert_eq!(ask(&mut stream), Document::new(shape).text());
    let pacer = upstream.pacer();
    let mut numbers = Vec::new();
    for nth in 0..12 {
        if nth % 4 == 0 {
            // Versions change while a request is pending.
            pacer.set_rate_hz(100_000.0 + f64::from(nth), Duration::ZERO);
        }
        let body = ask(&mut stream);
        let head = Head::read(&body[crate::document::HEAD_AT..BODY_AT]).unwrap();
        assert!(head.intended_ns <= monotonic_ns());
        let mut expected = Document::new(shape);
        while expected.version() <= head.sequence {
            expected.advance();
        }
        assert_eq!(body[BODY_AT..], expected.text()[BODY_AT..]);
        numbers.push(head.sequence);
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert!(numbers[11] - numbers[0] > 15, "{numbers:?}");
}
