use super::*;
use RequestError::{BadHandshakeMethod, BadRequest, UnknownTransport, UnsupportedVersion};

/// Version, transport, sid, jsonp, base64.
type Observed<'s> = (Version, Transport, Option<&'s str>, Option<u32>, bool);

fn check(query: &str, expect: Result<Observed<'_>, RequestError>) {
    let request = Request::parse(query);
    let seen = request.as_ref().map(|request| {
        (request.version, request.transport, request.sid.as_deref(), request.jsonp, request.base64)
    });
    assert_eq!(seen.map_err(|error| *error), expect, "{query}");
}

#[test]
fn queries_are_read() {
    use Transport::{Polling, WebSocket};
    use Version::{V3, V4};
    check("EIO=4&transport=polling", Ok((V4, Polling, None, None, false)));
    check("EIO=3&transport=polling&t=N8hyd6w", Ok((V3, Polling, None, None, false)));
    check(
        "EIO=4&transport=websocket&sid=lv_VI97HAXpY6yYWAAAC",
        Ok((V4, WebSocket, Some("lv_VI97HAXpY6yYWAAAC"), None, false)),
    );
    check("transport=polling&b64=1&j=0&EIO=3&sid=a%2Fb", Ok((V3, Polling, Some("a/b"), Some(0), true)));
    check("EIO=4&transport=polling&sid=&b64=&x", Ok((V4, Polling, None, None, false)));
    check("EIO=3&transport=polling&b64=0", Ok((V3, Polling, None, None, true)));
    check("EIO=3&EIO=4&transport=x&transport=polling&sid=1&sid=2", Ok((V4, Polling, Some("2"), None, false)));
    check("EIO=4&transport=websocket&j=x", Ok((V4, WebSocket, None, None, false)));
    // A session id is opaque text for the caller's table.
    check("EIO=4&transport=polling&sid=__proto__", Ok((V4, Polling, Some("__proto__"), None, false)));
    check("EIO=3&transport=websocket&sid=a", Ok((V3, WebSocket, Some("a"), None, false)));
    // CVE-2023-31125, CVE-2026-102600, CVE-2026-59724: property names of every JavaScript object.
    for transport in [
        "",
        "&transport",
        "&transport=",
        "&transport=abc",
        "&transport=constructor",
        "&transport=__proto__",
        "&transport=toString",
        "&transport=hasOwnProperty",
        "&transport=prototype",
        "&transport=Polling",
        "&transport=webtransport",
        "&transport=polling+",
        "&transport=flashsocket",
    ] {
        check(&format!("EIO=4{transport}"), Err(UnknownTransport));
        check(&format!("EIO=9{transport}"), Err(UnknownTransport));
    }
    // CVE-2026-102599: a later request of a session, without a version, isn't read as version 3.
    for version in [
        "", "EIO", "EIO=", "EIO=abc", "EIO=2", "EIO=1", "EIO=0", "EIO=5", "EIO=44", "EIO=04", "EIO=4.0",
        "EIO=-3", "eio=4",
    ] {
        check(&format!("transport=polling&{version}"), Err(UnsupportedVersion));
        check(&format!("transport=websocket&sid=a&{version}"), Err(UnsupportedVersion));
    }
    // The scripts that answer JSONP polls contain this number.
    for index in [
        "",
        "x",
        "-1",
        "%2B1",
        "1.0",
        "1x",
        "4294967296",
        "0)alert(1",
        "0](alert(1))//",
        "1;alert(1)",
        "</script>",
        "١",
    ] {
        check(&format!("EIO=3&transport=polling&j={index}"), Err(BadRequest));
    }
}

#[test]
fn methods_suit_queries() {
    let check = |query: &str, method: &str, is_upgrade: bool, expect: Result<(), RequestError>| {
        let request = Request::parse(query).unwrap();
        assert_eq!(request.check_method(method, is_upgrade), expect, "{query} {method} {is_upgrade}");
    };
    let (polling, websocket) = ("EIO=4&transport=polling", "EIO=4&transport=websocket");
    check(polling, "GET", false, Ok(()));
    for method in ["POST", "PUT", "get", "OPTIONS", ""] {
        check(polling, method, false, Err(BadHandshakeMethod));
        check(websocket, method, true, Err(BadHandshakeMethod));
    }
    check(polling, "GET", true, Err(BadRequest));
    check(websocket, "GET", true, Ok(()));
    check(websocket, "GET", false, Err(BadRequest));
    let (polling, websocket) = ("EIO=4&transport=polling&sid=a", "EIO=4&transport=websocket&sid=a");
    check(polling, "GET", false, Ok(()));
    check(polling, "POST", false, Ok(()));
    check(polling, "PUT", false, Err(BadRequest));
    check(polling, "POST", true, Err(BadRequest));
    check(websocket, "GET", true, Ok(()));
    check(websocket, "POST", true, Err(BadRequest));
    check(websocket, "GET", false, Err(BadRequest));
}

#[test]
fn refusals_are_json() {
    for (error, status, body) in [
        (UnknownTransport, 400, r#"{"code":0,"message":"Transport unknown"}"#),
        (RequestError::UnknownSession, 400, r#"{"code":1,"message":"Session ID unknown"}"#),
        (BadHandshakeMethod, 400, r#"{"code":2,"message":"Bad handshake method"}"#),
        (BadRequest, 400, r#"{"code":3,"message":"Bad request"}"#),
        (RequestError::Forbidden, 403, r#"{"code":4,"message":"Forbidden"}"#),
        (
            UnsupportedVersion,
            400,
            r#"{"code":5,"message":"Unsupported protocol version: Engine.IO protocols 4 and 3 are spoken here (EIO=4, EIO=3)"}"#,
        ),
    ] {
        let mut out = Vec::new();
        error.write_body(&mut out, None);
        assert_eq!((error.status(), str::from_utf8(&out).unwrap()), (status, body));
    }
    let mut out = Vec::new();
    RequestError::Forbidden.write_body(&mut out, Some("Thou shall \"not\" pass"));
    assert_eq!(out, br#"{"code":4,"message":"Thou shall \"not\" pass"}"#);
}

proptest! {
    #[test]
    fn client_queries_are_read(
        version in any_version(), websocket in any::<bool>(), sid in any::<Option<String>>(), jsonp in any::<Option<u32>>(),
        base64 in any::<bool>(),
    ) {
        let transport = if websocket { Transport::WebSocket } else { Transport::Polling };
        let request = Request {
            version,
            transport,
            sid: sid.filter(|sid| !sid.is_empty()).map(Into::into),
            jsonp: jsonp.filter(|_| !websocket),
            base64,
        };
        let mut query = Vec::new();
        request.write_query(&mut query);
        let query = String::from_utf8(query).unwrap();
        prop_assert!(query.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(Request::parse(&query), Ok(request));
    }
}
