//! The table of responses: settings, responses, results.

use super::{Reply, Shape, raw, reply, shape};
use crate::options::{Content, Redirects, RequestMethod, UpstreamOptions};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;

const ANY: fn(&mut UpstreamOptions) = |options| options.content = Content::Any;
const POSTS: fn(&mut UpstreamOptions) = |options| {
    options.method = RequestMethod::Post;
    options.key = "{id}".into();
    options.body = r#"{"id":"{id}"}"#.into();
};
const POSTS_AND_FOLLOWS: fn(&mut UpstreamOptions) = |options| {
    POSTS(options);
    options.redirects = Redirects::SamePath;
};
const IGNORES: fn(&mut UpstreamOptions) =
    |options| options.ignore = vec!["/at".into(), "/items/*/age".into()];
const ENDS: fn(&mut UpstreamOptions) = |options| options.complete_on_max_age_zero = true;

fn gzip(body: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn brotli(body: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let params = brotli::enc::BrotliEncoderParams { quality: 5, ..Default::default() };
    brotli::BrotliCompress(&mut body.as_bytes(), &mut out, &params).unwrap();
    out
}

/// All rows.
pub(super) fn all() -> Vec<Shape> {
    let groups = [
        statuses(),
        validators(),
        cache_control(),
        bodies(),
        ignored(),
        posts(),
        codings(),
        framing(),
        heads(),
    ];
    groups.into_iter().flatten().collect()
}

fn statuses() -> Vec<Shape> {
    let failing = |name, head, expect: &str| shape(name, [reply(head, "no")], &[expect]);
    vec![
        shape("200", [reply("200 OK", "1")], &["1", "same"]),
        shape("200 without a reason", [reply("200 ", "1")], &["1"]),
        shape("200 without a blank", [reply("200", "1")], &["1"]),
        shape("200 with a long reason", [reply("200 All is well, thank you", "1")], &["1"]),
        shape("203", [reply("203 Non-Authoritative Information", "1")], &["1"]),
        shape(
            "100 before 200",
            [raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1")],
            &["1"],
        ),
        shape(
            "103 before 200",
            [raw(
                "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1",
            )],
            &["1"],
        ),
        failing("201", "201 Created", "status: the upstream answered 201"),
        failing("202", "202 Accepted", "status: the upstream answered 202"),
        shape("204", [raw("HTTP/1.1 204 No Content\r\n\r\n")], &["status: the upstream answered 204"]),
        failing("206", "206 Partial Content", "status: the upstream answered 206"),
        failing(
            "300",
            "300 Multiple Choices",
            "redirect: the upstream answered 300, a redirect to an unknown host (no Location header); redirects aren't followed",
        ),
        shape(
            "304 without a request for it",
            [raw("HTTP/1.1 304 Not Modified\r\n\r\n")],
            &["status: the upstream answered 304"],
        ),
        failing("400", "400 Bad Request", "client_error: the upstream answered 400 to /api/k: no"),
        failing(
            "401",
            "401 Unauthorized|www-authenticate: Basic",
            "unauthorized: the upstream answered 401 to /api/k: no",
        ),
        failing("403", "403 Forbidden", "unauthorized: the upstream answered 403 to /api/k: no"),
        failing("404", "404 Not Found", "not found: the upstream answered 404 to /api/k: no"),
        failing("405", "405 Method Not Allowed|allow: POST", "client_error: the upstream answered 405"),
        failing("406", "406 Not Acceptable", "client_error: the upstream answered 406"),
        failing("408", "408 Request Timeout", "client_error: the upstream answered 408"),
        failing("410", "410 Gone", "gone"),
        failing("412", "412 Precondition Failed", "client_error: the upstream answered 412"),
        failing("418", "418 I'm a teapot", "client_error: the upstream answered 418"),
        failing("422", "422 Unprocessable Content", "client_error: the upstream answered 422 to /api/k: no"),
        failing("425", "425 Too Early|retry-after: 1", "client_error: the upstream answered 425 after 1s"),
        failing("429", "429 Too Many Requests", "too_many_requests: the upstream answered 429"),
        failing(
            "429 with seconds",
            "429 Too Many Requests|retry-after: 30",
            "too_many_requests: the upstream answered 429 after 30s",
        ),
        failing(
            "429 with a date in the past",
            "429 Too Many Requests|retry-after: Wed, 21 Oct 2015 07:28:00 GMT",
            "too_many_requests: the upstream answered 429 after 0ns",
        ),
        failing(
            "429 with a fraction",
            "429 Too Many Requests|retry-after: 1.5",
            "too_many_requests: the upstream answered 429",
        ),
        failing("451", "451 Unavailable For Legal Reasons", "client_error: the upstream answered 451"),
        failing("500", "500 Internal Server Error", "server_error: the upstream answered 500"),
        failing("501", "501 Not Implemented", "server_error: the upstream answered 501"),
        failing("502", "502 Bad Gateway", "server_error: the upstream answered 502"),
        failing("503", "503 Service Unavailable", "server_error: the upstream answered 503"),
        failing(
            "503 with seconds",
            "503 Service Unavailable|retry-after: 5",
            "server_error: the upstream answered 503 after 5s",
        ),
        failing("504", "504 Gateway Timeout", "server_error: the upstream answered 504"),
        failing("599", "599 Network Connect Timeout Error", "server_error: the upstream answered 599"),
        failing("600", "600 Beyond", "status: the upstream answered 600"),
        failing(
            "308 to a slash",
            "308 Permanent Redirect|location: /api/k/",
            "redirect: the upstream answered 308, a redirect to the same URL with a trailing slash: change `url`",
        ),
        failing(
            "302 to a login page",
            "302 Found|location: https://id.example/login",
            "redirect: the upstream answered 302, a redirect to the host id.example; redirects aren't followed",
        ),
        shape(
            "400 in gzip",
            [reply("400 Bad Request|content-encoding: gzip", gzip("no\n such thing"))],
            &["client_error: the upstream answered 400 to /api/k: no\\n such thing"],
        ),
        shape(
            "403 in half of gzip",
            [reply("403 Forbidden|content-encoding: gzip", &gzip(&"no".repeat(200))[..15])],
            &["unauthorized: "],
        ),
        shape(
            "401 with a long body, then 200",
            [reply("401 Unauthorized", "x".repeat(100_000)), reply("200 OK", "1")],
            &[&format!("unauthorized: the upstream answered 401 to /api/k: {}", "x".repeat(200)), "1"],
        ),
        shape(
            "422 with a secret",
            [reply("422 Unprocessable Content", "not for tok-1234, nor ?key=abcdef")],
            &["client_error: the upstream answered 422 to /api/k?…: not for ***, nor ?***"],
        )
        .with(|options| {
            options.url += "?key=abcdef";
            options.headers = vec![("Authorization".into(), "Bearer tok-1234".into())];
        }),
        shape(
            "400 whose body is cut",
            [raw("HTTP/1.1 400 Bad\r\ncontent-length: 99\r\n\r\nno")],
            &["client_error: the upstream answered 400 to /api/k: no"],
        ),
        shape(
            "a failure after a document",
            [reply("200 OK|etag: \"1\"", "1"), reply("500 No", ""), raw("HTTP/1.1 304 Not Modified\r\n\r\n")],
            &[
                "1",
                "[if-none-match: \"1\"] server_error: the upstream answered 500",
                "[if-none-match: \"1\"] same",
            ],
        ),
    ]
}

fn validators() -> Vec<Shape> {
    let not_modified = || raw("HTTP/1.1 304 Not Modified\r\n\r\n");
    let old = "Wed, 21 Oct 2015 07:28:00 GMT";
    let later = "Wed, 21 Oct 2015 07:29:00 GMT";
    let dated = |modified: &str, date: &str, more: &str| {
        reply(&format!("200 OK|last-modified: {modified}|date: {date}{more}"), "1")
    };
    let conditional = format!("[if-modified-since: {old}] same");
    vec![
        shape(
            "a strong ETag",
            [reply("200 OK|etag: \"1\"", "1"), not_modified()],
            &["1", "[if-none-match: \"1\"] same"],
        ),
        shape(
            "a weak ETag",
            [reply("200 OK|etag: W/\"1\"", "1"), not_modified()],
            &["1", "[if-none-match: W/\"1\"] same"],
        ),
        shape(
            "an ETag without quotes",
            [reply("200 OK|etag: 1", "1"), not_modified()],
            &["1", "[if-none-match: 1] same"],
        ),
        shape(
            "an empty ETag",
            [reply("200 OK|etag: \"\"", "1"), not_modified()],
            &["1", "[if-none-match: \"\"] same"],
        ),
        shape(
            "an ETag in Latin-1",
            [Reply::latin1("200 OK|etag: \"\u{e9}\"", "1"), not_modified()],
            &["1", "[if-none-match: \"\u{e9}\"] same"],
        ),
        shape(
            "an ETag of 2 kB",
            [reply(&format!("200 OK|etag: \"{}\"", "x".repeat(2048)), "1")],
            &["1", "same"],
        ),
        shape(
            "a new ETag of the same document",
            [reply("200 OK|etag: \"1\"", "1"), reply("200 OK|etag: \"2\"", "1"), not_modified()],
            &["1", "[if-none-match: \"1\"] same", "[if-none-match: \"2\"] same"],
        ),
        shape(
            "an ETag that is gone",
            [reply("200 OK|etag: \"1\"", "1"), reply("200 OK", "2")],
            &["1", "[if-none-match: \"1\"] 2", "same"],
        ),
        shape(
            "Last-Modified long before Date",
            [dated(old, "Wed, 21 Oct 2015 07:28:02 GMT", ""), not_modified()],
            &["1", &conditional],
        ),
        shape(
            "Last-Modified a second before Date",
            [dated(old, "Wed, 21 Oct 2015 07:28:01 GMT", "")],
            &["1", "same"],
        ),
        shape("Last-Modified as Date", [dated(old, old, "")], &["1", "same"]),
        shape("Last-Modified after Date", [dated(later, old, "")], &["1", "same"]),
        shape(
            "Last-Modified as Date, then before it",
            [dated(old, old, ""), dated(old, later, ""), not_modified()],
            &["1", "same", &conditional],
        ),
        shape(
            "Last-Modified as Date, with an ETag",
            [dated(old, old, "|etag: \"1\""), not_modified()],
            &["1", "[if-none-match: \"1\"] same"],
        ),
        shape(
            "Last-Modified as Date, with an ETag of nginx",
            [dated(old, old, "|etag: \"56273e80-1\"")],
            &["1", "same"],
        ),
        shape(
            "Last-Modified before Date, with an ETag of nginx",
            [dated(old, later, "|etag: \"56273e80-1\""), not_modified()],
            &["1", &format!("[if-none-match: \"56273e80-1\"] [if-modified-since: {old}] same")],
        ),
        shape(
            "Last-Modified without Date",
            [reply(&format!("200 OK|last-modified: {old}"), "1"), not_modified()],
            &["1", &conditional],
        ),
        shape(
            "Last-Modified in the future, without Date",
            [reply("200 OK|last-modified: Fri, 31 Dec 2100 00:00:00 GMT", "1")],
            &["1", "same"],
        ),
        shape(
            "Last-Modified that is no date",
            [reply("200 OK|last-modified: yesterday", "1"), not_modified()],
            &["1", "[if-modified-since: yesterday] same"],
        ),
        shape(
            "Last-Modified with an invalid Date",
            [dated(old, "now", ""), not_modified()],
            &["1", &conditional],
        ),
        shape(
            "Last-Modified in the format of RFC 850",
            [dated("Wednesday, 21-Oct-15 07:28:00 GMT", old, "")],
            &["1", "same"],
        ),
        shape(
            "two documents within a second",
            [dated(old, old, ""), reply(&format!("200 OK|last-modified: {old}|date: {old}"), "2")],
            &["1", "2"],
        ),
    ]
}

fn cache_control() -> Vec<Shape> {
    let one = |name, field: &str, expect: &str| {
        shape(name, [reply(&format!("200 OK|cache-control: {field}"), "1")], &[expect])
    };
    let then = |name, [before, first]: [&str; 2], after: &str, second: &str| {
        let document = reply(&format!("200 OK|etag: \"1\"|cache-control: {before}"), "1");
        let not_modified = raw(format!("HTTP/1.1 304 Not Modified\r\n{after}\r\n"));
        shape(name, [document, not_modified], &[first, &format!("[if-none-match: \"1\"] {second}")])
    };
    let minute = ["max-age=60", "1 for 60s"];
    vec![
        one("max-age", "max-age=60", "1 for 60s"),
        one("max-age among others", "public, Max-Age=60, must-revalidate", "1 for 60s"),
        one("max-age in quotes", "max-age=\"60\"", "1 for 60s"),
        one("max-age of a private response", "private, max-age=60", "1 for 60s"),
        one("max-age, immutable", "max-age=31536000, immutable", "1 for 31536000s"),
        one("max-age=0", "max-age=0, must-revalidate", "1"),
        one("a negative max-age", "max-age=-1", "1"),
        one("a max-age that is no number", "max-age=soon", "1"),
        one("a max-age without a value", "max-age", "1"),
        one("two of max-age", "max-age=60, max-age=5", "1 for 60s"),
        one("no-cache and max-age", "no-cache, max-age=60", "1"),
        one("max-age and no-cache", "max-age=60, no-cache", "1"),
        one("no-cache for a header", "no-cache=\"set-cookie\", max-age=60", "1 for 60s"),
        one("max-age within quotes", "no-cache=\"x, max-age=5\", max-age=60", "1 for 60s"),
        one("no-store and max-age", "no-store, max-age=60", "1"),
        one("s-maxage", "s-maxage=60", "1 for 60s"),
        one("s-maxage and max-age", "max-age=5, s-maxage=60", "1 for 60s"),
        one("s-maxage=0 and max-age", "max-age=60, s-maxage=0", "1"),
        one("s-maxage and max-age=0", "max-age=0, s-maxage=60", "1 for 60s"),
        one("no-store and s-maxage", "no-store, s-maxage=60", "1"),
        one("stale-while-revalidate", "max-age=60, stale-while-revalidate=600", "1 for 60s"),
        one("an empty Cache-Control", "", "1"),
        shape(
            "two headers",
            [reply("200 OK|cache-control: public|cache-control: max-age=60", "1")],
            &["1 for 60s"],
        ),
        shape("Age", [reply("200 OK|cache-control: max-age=60|age: 20", "1")], &["1 for 40s"]),
        shape("Age above max-age", [reply("200 OK|cache-control: max-age=60|age: 61", "1")], &["1"]),
        shape("Age and s-maxage", [reply("200 OK|cache-control: s-maxage=60|age: 20", "1")], &["1 for 40s"]),
        shape("Expires alone", [reply("200 OK|expires: Fri, 31 Dec 2100 00:00:00 GMT", "1")], &["1"]),
        shape("Pragma alone", [reply("200 OK|pragma: no-cache", "1")], &["1"]),
        one("Cache-Control that is ignored", "max-age=60", "1")
            .with(|options| options.ignore_cache_control = true),
        one("max-age=0 that ends", "max-age=0", "1 and no more").with(ENDS),
        one("no-store and max-age=0 that ends", "no-store, max-age=0", "1 and no more").with(ENDS),
        one("s-maxage and max-age=0 that would end", "max-age=0, s-maxage=60", "1 for 60s").with(ENDS),
        then("304 without Cache-Control", minute, "", "same for 60s"),
        then("304 with another max-age", minute, "cache-control: max-age=5\r\n", "same for 5s"),
        then("304 with no-cache", minute, "cache-control: no-cache\r\n", "same"),
        then("304 with Age", minute, "age: 20\r\n", "same for 40s"),
        then("304 with the first max-age", ["public", "1"], "cache-control: max-age=5\r\n", "same for 5s"),
        then("304 without Cache-Control after no-store", ["no-store", "1"], "", "same"),
        shape(
            "304 that changes the lifetime for the next one",
            [
                reply("200 OK|etag: \"1\"|cache-control: max-age=60", "1"),
                raw("HTTP/1.1 304 Not Modified\r\ncache-control: max-age=5\r\n\r\n"),
                raw("HTTP/1.1 304 Not Modified\r\n\r\n"),
            ],
            &["1 for 60s", "[if-none-match: \"1\"] same for 5s", "[if-none-match: \"1\"] same for 5s"],
        ),
        shape(
            "200 without Cache-Control after max-age",
            [reply("200 OK|cache-control: max-age=60", "1"), reply("200 OK", "1")],
            &["1 for 60s", "same"],
        ),
    ]
}

fn bodies() -> Vec<Shape> {
    let text = |name, body: &str, expect: &str| shape(name, [reply("200 OK", body)], &[expect]);
    let typed = |name, kind: &str, body: &[u8], expect: &str| {
        shape(name, [reply(&format!("200 OK|content-type: {kind}"), body)], &[expect])
    };
    vec![
        text("an object", "{ \"a\" : [ 1 ] }\n", "{\"a\":[1]}"),
        text("a text", "\"a\"", "\"a\""),
        text("null", "null", "null"),
        text("a byte order mark", "\u{feff}[1]", "[1]"),
        text("no body", "", "invalid_json: "),
        text("only blanks", " \n", "invalid_json: "),
        text("half a document", "{\"a\":", "invalid_json: "),
        text("two documents", "1 2", "invalid_json: "),
        text("lines of JSON", "{}\n{}\n", "invalid_json: "),
        text("NaN", "NaN", "invalid_json: "),
        text("a comment", "[1] // one", "invalid_json: "),
        text("a trailing comma", "[1,]", "invalid_json: "),
        text("single quotes", "{'a':1}", "invalid_json: "),
        text("a control character", "\"\u{1}\"", "invalid_json: "),
        text("JSONP", "callback({})", "invalid_json: "),
        text("a repeated member", "{\"a\":1, \"a\":2}", "{\"a\":1,\"a\":2}"),
        text("an escape", "\"\\u0041\\/\"", "\"\\u0041\\/\""),
        text("an emoji", "\"\u{1f600}\"", "\"\u{1f600}\""),
        typed("HTML", "text/html", b"<p>hello</p>", "not_json: "),
        typed("HTML that is wanted", "text/html", b"<p>hello</p>", "text/html <p>hello</p>").with(ANY),
        typed("JSON by its suffix", "application/problem+json", b"[ 1 ]", "[1]").with(ANY),
        typed("JSON as text", "text/plain", b"[ 1 ]", "[1]"),
        typed("JSON as wanted text", "text/plain", b"[ 1 ]", "text/plain [ 1 ]").with(ANY),
        typed("no media type", "", b"x", "application/octet-stream x").with(ANY),
        typed("UTF-8 by name", "application/json; charset=utf-8", b"[1]", "[1]"),
        typed("Latin-1", "application/json; charset=iso-8859-1", b"\"\xe9\"", "\"\u{e9}\""),
        typed("UTF-16", "application/json; charset=utf-16le", b"[\x001\0]\0", "[1]"),
        typed("invalid UTF-8", "application/json", b"\"\xe9\"", "invalid_json: "),
        text("as large as allowed", "[1234567]", "[1234567]").with(|options| options.document_bytes_max = 9),
        text("too large", "[12345678]", "too_large: the document has more than 9 bytes (document_bytes_max)")
            .with(|options| options.document_bytes_max = 9),
        shape(
            "the same value, written otherwise",
            [reply("200 OK", "{\"a\":1,\"b\":2}"), reply("200 OK", "{ \"b\": 2.0, \"a\": 1 }")],
            &["{\"a\":1,\"b\":2}", "same"],
        ),
    ]
}

fn codings() -> Vec<Shape> {
    let coded = |name, coding: &str, body: Vec<u8>, expect: &str| {
        shape(name, [reply(&format!("200 OK|content-encoding: {coding}"), body)], &[expect])
    };
    let refused = |name, coding: &str| {
        let expect = format!("encoding: the body has the encoding {coding:?}; only gzip and br are accepted");
        coded(name, coding, b"x".to_vec(), &expect)
    };
    let broken = "encoding: the compressed body is broken: ";
    vec![
        coded("gzip", "gzip", gzip("[ 1 ]"), "[1]"),
        coded("x-gzip", "x-gzip", gzip("[1]"), "[1]"),
        coded("GZIP", "GZIP", gzip("[1]"), "[1]"),
        coded("Brotli", "br", brotli("[1]"), "[1]"),
        coded("identity", "identity", b"[1]".to_vec(), "[1]"),
        coded("an empty coding", "", b"[1]".to_vec(), "[1]"),
        refused("deflate", "deflate"),
        refused("zstd", "zstd"),
        refused("gzip twice", "gzip, gzip"),
        coded("gzip that is none", "gzip", b"[1]".to_vec(), broken),
        coded("half of gzip", "gzip", gzip("[1]")[..10].to_vec(), broken),
        coded("two members of gzip", "gzip", [gzip("[1"), gzip("]")].concat(), "[1]"),
        coded("nothing as gzip", "gzip", Vec::new(), broken),
        coded("Brotli that is none", "br", b"[1]".to_vec(), broken),
        coded(
            "gzip that inflates too far",
            "gzip",
            gzip(&format!("[{}]", " ".repeat(1000))),
            "too_large: the document has more than 900 bytes (document_bytes_max)",
        )
        .with(|options| options.document_bytes_max = 900),
        shape("gzip without its name", [reply("200 OK", gzip("[1]"))], &["invalid_json: "]),
        shape(
            "gzip, then plain, of the same document",
            [reply("200 OK|content-encoding: gzip", gzip("[1]")), reply("200 OK", "[1]")],
            &["[1]", "same"],
        ),
    ]
}

fn ignored() -> Vec<Shape> {
    let document = |at: u32, age: u32, n: u32| {
        format!(
            r#"{{"at":{at},"items":[{{"age":{age},"name":"one","n":{n}}},{{"age":{age},"name":"two","n":0}}]}}"#
        )
    };
    let documents = [document(1, 1, 1), document(2, 2, 1), document(3, 3, 2)];
    let replies = |coding: fn(&str) -> Vec<u8>, head: &str| {
        let mut tags = "abc".chars();
        let reply = |text: &String| {
            reply(&format!("{head}|etag: \"{}\"", tags.next().unwrap_or_default()), coding(text))
        };
        documents.iter().map(reply).collect::<Vec<_>>()
    };
    let same = r#"[if-none-match: "a"] same"#;
    let next = format!(r#"[if-none-match: "b"] {}"#, documents[2]);
    let expect = [&documents[0], same, &next];
    vec![
        shape("ignored members", replies(|text| text.into(), "200 OK"), &expect).with(IGNORES),
        shape("ignored members in gzip", replies(gzip, "200 OK|content-encoding: gzip"), &expect)
            .with(IGNORES),
    ]
}

fn posts() -> Vec<Shape> {
    let post = |result: &str| format!(r#"[application/json {{"id":"k"}}] {result}"#);
    let [one, two, same] = ["1", "2", "same"].map(post);
    let tagged = |body: &str| reply("200 OK|etag: \"a\"|last-modified: Wed, 21 Oct 2015 07:28:00 GMT", body);
    let retried = post(&two);
    let redirect = |status: &str| reply(&format!("{status}|location: /api/k/"), "");
    let not_modified = post("status: the upstream answered 304");
    vec![
        shape("POST", [tagged("1"), tagged("1"), tagged("2")], &[&one, &same, &two]).with(POSTS),
        shape(
            "POST on a connection that is lost",
            [reply("200 OK", "1"), raw(""), reply("200 OK", "2")],
            &[&one, &retried],
        )
        .with(POSTS),
        shape(
            "304 after POST",
            [tagged("1"), raw("HTTP/1.1 304 Not Modified\r\n\r\n")],
            &[&one, &not_modified],
        )
        .with(POSTS),
        shape("307 after POST", [redirect("307 Temporary Redirect"), reply("200 OK", "1")], &[&post(&one)])
            .with(POSTS_AND_FOLLOWS),
        shape("302 after POST", [redirect("302 Found"), reply("200 OK", "1")], &[&post("redirect: ")])
            .with(POSTS_AND_FOLLOWS),
        shape(
            "POST with another Content-Type",
            [reply("200 OK", "1")],
            &[r#"[application/graphql+json {"id":"k"}] 1"#],
        )
        .with(|options| {
            POSTS(options);
            options.headers = vec![("Content-Type".into(), "application/graphql+json".into())];
        }),
    ]
}

fn framing() -> Vec<Shape> {
    let good = |name, bytes: &str, expect: &str| shape(name, [raw(bytes)], &[expect]);
    let broken = |name, bytes: &str| shape(name, [raw(bytes)], &["broken: "]);
    vec![
        good(
            "chunks",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n[\r\n2\r\n1]\r\n0\r\n\r\n",
            "[1]",
        ),
        good(
            "chunks with an extension and a trailer",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\n1\r\n0\r\nt: u\r\n\r\n",
            "1",
        ),
        good(
            "chunks and a length",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
            "1",
        ),
        good("until the end", "HTTP/1.1 200 OK\r\n\r\n[1]", "[1]"),
        good("HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n[1]", "[1]"),
        good("HTTP/1.0 with a length", "HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\n[1]", "[1]"),
        shape(
            "Connection: close",
            [raw("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\n1"), reply("200 OK", "2")],
            &["1", "2"],
        ),
        good(
            "a length twice, alike",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n1",
            "1",
        ),
        good("bare line feeds", "HTTP/1.1 200 OK\ncontent-length: 1\n\n1", "1"),
        shape("a header in Latin-1", [Reply::latin1("200 OK|x: \u{e9}", "1")], &["1"]),
        shape("a header without a value", [reply("200 OK|x:", "1")], &["1"]),
        broken("a body that is cut", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1"),
        broken("chunks that are cut", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n1\r\n"),
        broken(
            "a chunk without a size",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n1\r\n0\r\n\r\n",
        ),
        broken("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12"),
        broken("a length that is no number", "HTTP/1.1 200 OK\r\ncontent-length: one\r\n\r\n1"),
        broken("headers that are cut", "HTTP/1.1 200 OK\r\ncontent-le"),
        broken("nothing", ""),
        broken("no HTTP", "SSH-2.0-OpenSSH_9.6\r\n"),
        broken("HTTP/2", "HTTP/2 200 OK\r\n\r\n"),
        broken("HTTP/0.9", "[1]"),
    ]
}

fn heads() -> Vec<Shape> {
    let good = |name, head: String, expect: &str| {
        shape(name, [reply(&head, "1")], &[expect, &expect.replacen('1', "same", 1)])
    };
    let fields = |count| (0..count).map(|n| format!("|x-{n}: {n}")).collect::<String>();
    let long = |bytes| format!("200 OK|x: {}", "x".repeat(bytes));
    let refused = |name, head: String| {
        let expect = "too_large: the headers have more than 131072 bytes (response_header_bytes_max), are more than 1000, or declare an impossible length";
        shape(name, [reply(&head, "1")], &[expect; 4])
    };
    vec![
        good("a folded line", "200 OK|x: a|  b|cache-control: max-age=60".into(), "1 for 60s"),
        good("a folded line of a header that counts", "200 OK|cache-control: public,|\tmax-age=60".into(), "1 for 60s"),
        good("a blank before the colon", "200 OK|x : a|Cache-Control : max-age=60".into(), "1 for 60s"),
        good("a blank before the colon of the length", "200 OK|content-length : 1".into(), "1"),
        good("300 headers", format!("200 OK{}", fields(300)), "1"),
        good("70 kB of headers", long(70_000), "1"),
        good("a header of 120 kB", long(120_000), "1"),
        good("a hundred cookies", format!("200 OK{}", "|set-cookie: a=b; path=/".repeat(100)), "1"),
        refused("a header of 140 kB", long(140_000)),
        refused("a header of 200 kB", long(200_000)),
        refused("a header of 400 kB", long(400_000)),
        refused("1,100 headers", format!("200 OK{}", fields(1100))),
        shape("headers above a smaller bound",
            [reply(&long(9000), "1"), reply(&long(5000), "1")],
            &["too_large: the headers have more than 8192 bytes (response_header_bytes_max), are more than 1000, or declare an impossible length", "1"])
            .with(|options| options.response_header_bytes_max = 8 << 10),
    ]
}
