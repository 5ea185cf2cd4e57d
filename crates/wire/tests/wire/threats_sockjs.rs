//! Published attacks on SockJS, and those on its kind, against the crate's public interface. That a running server
//! survives them is tested where there is one.

use stentor_wire::http1;
use stentor_wire::sockjs::answer::{Callback, write_html_prelude};
use stentor_wire::sockjs::{
    Error, Frame, FrameDecoder, Limits, Resource, Transport, Wrapping, jsonp_payload, parse_body, parse_path,
    write_jsonp_callback,
};
use stentor_wire::sse;

/// CVE-2020-7693: a request to upgrade a URL that is no WebSocket's. It is told apart before anything acts on it.
#[test]
fn upgrade_of_other_urls() {
    let mut websockets = 0;
    for path in [
        "",
        "/",
        "/info",
        "/iframe.html",
        "/websocket",
        "/feed/k",
        "/feed/k/info",
        "/feed/k/websocket",
        "/a/b/websocket",
        "/a/b/xhr",
        "/a/b/xhr_send",
        "/a/b/xhr_streaming",
        "/a/b/eventsource",
        "/a/b/htmlfile",
        "/a/b/jsonp",
        "/a/b/jsonp_send",
    ] {
        let head = format!(
            "GET /sockjs{path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let request = http1::parse_request(head.as_bytes(), &http1::Limits::default()).unwrap();
        let resource = parse_path(request.path().strip_prefix("/sockjs").unwrap()).unwrap().resource;
        assert_eq!(resource.is_websocket(), path.ends_with("websocket"), "{path}");
        assert_eq!(resource.is_websocket(), resource.status() == 101, "{path}");
        websockets += usize::from(resource.is_websocket());
    }
    assert_eq!(websockets, 3);
    assert_eq!(parse_path("/a/b/anything"), None);
}

/// CVE-2020-8823: markup as the callback of htmlfile or jsonp, beside a good one.
#[test]
fn callbacks_with_code() {
    let callback = Callback::from_query("c=a&c=%3Cscript%3E&callback=%3Cscript%3E").unwrap();
    let mut out = Vec::new();
    write_html_prelude(&mut out, &callback);
    write_jsonp_callback(&mut out, &callback);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("parent.a;") && text.ends_with("/**/a"));
    assert_eq!(text.matches("<script>").count(), 1);
}

/// The same by a message instead: what ends a script element, or hides its end.
#[test]
fn messages_with_markup() {
    let attack = "</script><script>alert(1)</script><!-- <script>";
    let mut out = Vec::new();
    Wrapping::HtmlFile.write(&mut out, &Frame::Messages(&[attack]));
    let text = String::from_utf8(out).unwrap();
    let inner = text.strip_prefix("<script>").unwrap().strip_suffix("</script>\r\n").unwrap();
    assert!(!inner.contains('<'), "{inner}");
}

/// CVE-2020-36049's kind: payloads that cost more than their length. Quadratic work would take minutes for these sizes.
#[test]
fn long_payloads() {
    let limits = Limits { messages_max: usize::MAX };
    let unended = format!("[\"{}", "\\\"".repeat(500_000));
    assert_eq!(parse_body(unended.as_bytes(), &limits).err(), Some(Error::BadJson));
    let deep = "[".repeat(1_000_000);
    assert_eq!(parse_body(deep.as_bytes(), &limits).err(), Some(Error::NotText));
    let many = format!("[{}\"\"]", "\"\",".repeat(300_000));
    assert_eq!(parse_body(many.as_bytes(), &Limits::default()).err(), Some(Error::TooManyMessages));
    assert_eq!(parse_body(many.as_bytes(), &limits).unwrap().count(), 300_001);
    let spaces = format!("[{}\"a\"{}]", " ".repeat(500_000), "\n".repeat(500_000));
    assert_eq!(parse_body(spaces.as_bytes(), &limits).unwrap().count(), 1);
    let surrogates = format!("[\"{}\"]", "\\ud83d".repeat(300_000));
    let text = parse_body(surrogates.as_bytes(), &limits).unwrap().next().unwrap();
    assert_eq!(text.chars().filter(|character| *character == '\u{fffd}').count(), 300_000);
    let form = "d&".repeat(500_000);
    let form = jsonp_payload(Some("application/x-www-form-urlencoded"), form.as_bytes());
    assert_eq!(form.err(), Some(Error::NoPayload));
}

/// Paths that are all slashes, or whose ids have no end.
#[test]
fn long_paths() {
    assert_eq!(parse_path(&"/".repeat(4_000_000)), None);
    assert_eq!(
        parse_path(&format!("/feed{}", "/a".repeat(2_000_000))).map(|route| route.resource),
        Some(Resource::Greeting)
    );
    let id = "i".repeat(4_000_000);
    assert_eq!(parse_path(&format!("/a/{id}/{}", Transport::Xhr.as_str())), None);
}

/// Against the load generator: frames and events that never end, in small pieces.
#[test]
fn endless_frames_and_events() {
    let mut decoder = FrameDecoder::new(10_000, Limits::default());
    let mut taken = 0;
    while decoder.receive(b"aaaaaaa").is_ok() {
        taken += 7;
        assert!(taken <= 10_000);
    }
    for piece in ["data: x\n", "data", ": xxxxxx", "id: a\r"] {
        let mut decoder = sse::Decoder::new(10_000);
        // Only the ids take nothing, however many there are.
        let ended = (0..100_000).find(|_| decoder.receive(piece.as_bytes()).is_err());
        assert_eq!(ended.is_none(), piece.starts_with("id"), "{piece}");
    }
}
