use super::answer::*;
use super::*;

fn resource(path: &str) -> Resource<'_> {
    parse_path(path).unwrap().resource
}

#[test]
fn methods_are_checked() {
    fn check(path: &str, expect: &str) {
        let resource = resource(path);
        assert_eq!(resource.methods(), expect, "{path}");
        for method in ["GET", "POST", "OPTIONS", "HEAD", "PUT", "", "GE", "OPTIONS, GET"] {
            let listed = expect.split(", ").any(|one| one == method);
            assert_eq!(resource.allows(method), listed, "{path} {method}");
        }
    }
    check("", "GET");
    check("/iframe.html", "GET");
    check("/info", "OPTIONS, GET");
    check("/websocket", "GET");
    check("/a/b/websocket", "GET");
    for transport in ["xhr", "xhr_send", "xhr_streaming"] {
        check(&format!("/a/b/{transport}"), "OPTIONS, POST");
    }
    for transport in ["eventsource", "htmlfile", "jsonp"] {
        check(&format!("/a/b/{transport}"), "GET");
    }
    check("/a/b/jsonp_send", "POST");
}

const NO_CACHE: &str = "Cache-Control: no-store, no-cache, no-transform, must-revalidate, max-age=0";
const TEXT: &str = "Content-Type: text/plain; charset=UTF-8";
const SCRIPT: &str = "Content-Type: application/javascript; charset=UTF-8";
const CORS: &str = "Access-Control-Allow-Credentials: true\nAccess-Control-Allow-Origin: test\nVary: Origin";

fn lines(headers: &[Header<'_>]) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
}

#[test]
fn successful_responses_have_their_headers() {
    fn check(path: &str, status: u16, cookie: bool, expect: &[&str]) {
        let mut headers = Vec::new();
        push_headers(&mut headers, &resource(path), &Cors { origin: Some("test"), request_headers: None });
        assert_eq!(lines(&headers), expect.join("\n"), "{path}");
        assert_eq!((resource(path).status(), resource(path).has_cookie()), (status, cookie), "{path}");
        // CVE-2020-7693: only these resources upgrade.
        assert_eq!(resource(path).is_websocket(), status == 101, "{path}");
    }
    let year = "Cache-Control: public, max-age=31536000\nExpires: Thu, 31 Dec 2037 23:55:55 GMT";
    check("/", 200, false, &[TEXT]);
    check("/iframe.html", 200, false, &["Content-Type: text/html; charset=UTF-8", year]);
    check("/info", 200, false, &["Content-Type: application/json; charset=UTF-8", NO_CACHE, CORS]);
    check("/websocket", 101, false, &[]);
    check("/a/b/websocket", 101, false, &[]);
    check("/a/b/xhr", 200, true, &[SCRIPT, NO_CACHE, CORS]);
    check("/a/b/xhr_streaming", 200, true, &[SCRIPT, NO_CACHE, CORS]);
    check("/a/b/xhr_send", 204, true, &[TEXT, NO_CACHE, CORS]);
    check("/a/b/eventsource", 200, true, &["Content-Type: text/event-stream", NO_CACHE, CORS]);
    check("/a/b/htmlfile", 200, true, &["Content-Type: text/html; charset=UTF-8", NO_CACHE]);
    check("/a/b/jsonp", 200, true, &[SCRIPT, NO_CACHE, "X-Content-Type-Options: nosniff"]);
    check("/a/b/jsonp_send", 200, true, &[TEXT, NO_CACHE]);
}

#[test]
fn errors_and_preflights_have_their_headers() {
    let cors = Cors { origin: Some("test"), request_headers: Some("a, b, c") };
    let mut headers = Vec::new();
    push_error_headers(&mut headers, &resource("/a/b/xhr_send"), &cors);
    assert_eq!(lines(&headers), [TEXT, NO_CACHE, CORS, "Access-Control-Allow-Headers: a, b, c"].join("\n"));
    for (path, methods) in [("/info", "OPTIONS, GET"), ("/a/b/xhr", "OPTIONS, POST")] {
        headers.clear();
        push_preflight_headers(&mut headers, &resource(path), &cors);
        let expect = format!(
            "Cache-Control: public, max-age=31536000\nExpires: Thu, 31 Dec 2037 23:55:55 GMT\n\
            Access-Control-Allow-Methods: {methods}\nAccess-Control-Max-Age: 31536000\n{CORS}\n\
            Access-Control-Allow-Headers: a, b, c"
        );
        assert_eq!(lines(&headers), expect);
    }
}

#[test]
fn origins_are_allowed_or_refused() {
    fn check(request: &str, expect: &str) {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{request}\r\n");
        let request = crate::http1::parse_request(head.as_bytes(), &crate::http1::Limits::default()).unwrap();
        let mut headers = Vec::new();
        Cors::of(&request).push(&mut headers);
        assert_eq!(lines(&headers), expect, "{head:?}");
    }
    check("", "Access-Control-Allow-Origin: *\nVary: Origin");
    check("Origin: test\r\nAccess-Control-Request-Headers: \r\n", CORS);
    let null = CORS.replace("test", "null");
    check("Origin: null\r\n", &null);
    check(
        "Origin: null\r\nAccess-Control-Request-Headers: a, b\r\n",
        &format!("{null}\nAccess-Control-Allow-Headers: a, b"),
    );
}

#[test]
fn cookies_are_echoed() {
    fn check(cookies: Option<&str>, expect: &str) {
        assert_eq!(jsessionid(cookies, "/rt"), format!("JSESSIONID={expect}; path=/rt"), "{cookies:?}");
    }
    check(None, "dummy");
    check(Some(""), "dummy");
    check(Some("a=b; XJSESSIONID=c"), "dummy");
    check(Some("JSESSIONID="), "dummy");
    check(Some("JSESSIONID=abcdef"), "abcdef");
    check(Some("a=b ;  JSESSIONID = abcdef;c"), "abcdef");
}

#[test]
fn the_info_response_is_written() {
    let mut out = Vec::new();
    write_info(&mut out, true, false, u32::MAX);
    assert_eq!(out, br#"{"websocket":true,"origins":["*:*"],"cookie_needed":false,"entropy":4294967295}"#);
}

#[test]
fn the_iframe_page_is_written() {
    let iframe = Iframe::new("https://a/s.js?a&b\"c", None);
    assert!(
        iframe.page().starts_with("<!DOCTYPE html>\n<html>\n<head>\n  <meta http-equiv=\"X-UA"),
        "{}",
        iframe.page()
    );
    let script = "  <script src=\"https://a/s.js?a&amp;b&quot;c\"></script>\n  <script>\n    document.domain = \
        document.domain;\n    SockJS.bootstrap_iframe();\n  </script>\n</head>\n<body>\n  <h2>Don't panic!</h2>";
    assert!(iframe.page().contains(script), "{}", iframe.page());
    assert!(iframe.page().ends_with("magic.</p>\n</body>\n</html>"));
    assert_ne!(iframe.etag(), Iframe::new("https://b", None).etag());
    let etag = iframe.etag();
    for (list, expect) in [
        (etag.to_owned(), true),
        (format!("W/{etag}"), true),
        (format!("\"x\", {etag}"), true),
        ("*".to_owned(), true),
        (etag.trim_matches('"').to_owned(), false),
        ("\"x\"".to_owned(), false),
        (String::new(), false),
    ] {
        assert_eq!(iframe.is_named_by(&list), expect, "{list}");
    }
    let mut headers = Vec::new();
    push_unchanged_headers(&mut headers, &iframe);
    assert_eq!(
        headers.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["ETag", "Cache-Control", "Expires"]
    );
    // The pages that may contain the frame.
    assert_eq!(iframe.ancestors(), None);
    let ours = Iframe::new("https://a/s.js?a&b\"c", Some("'self' https://a.test"));
    assert_eq!(ours.ancestors(), Some("frame-ancestors 'self' https://a.test"));
    assert_eq!(ours.page(), iframe.page());
    assert_ne!(ours.etag(), iframe.etag());
    headers.clear();
    push_unchanged_headers(&mut headers, &ours);
    assert!(headers.contains(&("Content-Security-Policy", "frame-ancestors 'self' https://a.test")));
}

#[test]
fn callbacks_are_checked() {
    fn check(query: &str, expect: Result<&str, Error>) {
        let callback = Callback::from_query(query);
        assert_eq!(callback.as_ref().map(Callback::as_str).map_err(|error| *error), expect, "{query:?}");
    }
    check("c=%63allback", Ok("callback"));
    check("callback=_jp.a1-B", Ok("_jp.a1-B"));
    check("x=y&callback=b&c=a", Ok("a"));
    check("c=a&c=(", Ok("a"));
    check("c=a&c=%3Cscript%3E&callback=%3Cscript%3E", Ok("a"));
    check("", Err(Error::NoCallback));
    check("d=a", Err(Error::NoCallback));
    // CVE-2020-8823: callbacks with markup or code.
    for bad in [
        "",
        "%20",
        "*",
        "abc(",
        "abc%28",
        "a+b",
        "%3Cscript%3E",
        "<script>alert(1)</script>",
        "a%0A",
        "a%0d%0aX:y",
        "%C3%A4",
        "a;b",
        "a%3Bb",
        "a%00",
        "a=b",
        "%22",
        "a%2F%2A",
        "a%E2%80%A8b",
        "a[0]",
        "%253C",
    ] {
        check(&format!("c={bad}"), Err(Error::BadCallback));
        check(&format!("callback={bad}"), Err(Error::BadCallback));
    }
    check("c=&callback=a", Err(Error::BadCallback));
    let long = "c".repeat(CALLBACK_BYTES_MAX);
    check(&format!("c={long}"), Ok(&long));
    check(&format!("c={long}c"), Err(Error::BadCallback));
    assert_eq!(
        (Error::BadCallback.status(), Error::BadCallback.body()),
        (500, "invalid \"callback\" parameter")
    );
    assert_eq!(
        (Error::NoCallback.status(), Error::NoCallback.body()),
        (500, "\"callback\" parameter required")
    );
}

#[test]
fn preludes_are_written() {
    fn check(transport: Transport, expect: &[u8]) {
        let mut out = b"x".to_vec();
        write_prelude(&mut out, transport);
        assert_eq!(&out[1..], expect, "{transport:?}");
    }
    check(Transport::XhrStreaming, &[&[b'h'; 2048][..], b"\n"].concat());
    check(Transport::EventSource, b"\r\n");
    for transport in [Transport::Xhr, Transport::WebSocket, Transport::Jsonp, Transport::HtmlFile] {
        check(transport, b"");
    }
    let mut out = Vec::new();
    write_html_prelude(&mut out, &Callback::from_query("c=%63allback").unwrap());
    assert!(out.len() > 1024, "{}", out.len());
    let text = str::from_utf8(&out).unwrap();
    assert!(text.ends_with(" \r\n\r\n"));
    let lines: Vec<&str> = text.trim_end().lines().collect();
    assert_eq!(lines[0], "<!doctype html>");
    assert_eq!(lines[2], "  <meta http-equiv=\"X-UA-Compatible\" content=\"IE=edge\" />");
    assert_eq!(
        lines[4..],
        [
            "</head><body><h2>Don't panic!</h2>",
            "  <script>",
            "    document.domain = document.domain;",
            "    var c = parent.callback;",
            "    c.start();",
            "    function p(d) {c.message(d);};",
            "    window.onload = function() {c.stop();};",
            "  </script>",
        ]
    );
}
