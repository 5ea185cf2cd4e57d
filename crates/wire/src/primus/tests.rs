use super::*;
use proptest::prelude::*;

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"before".to_vec();
    write(&mut out);
    String::from_utf8(out).unwrap()["before".len()..].to_owned()
}

#[test]
fn client_messages_are_decoded() {
    fn check(text: &str, expect: FromClient<'_>) {
        assert_eq!(from_client(text), expect, "{text:?}");
    }
    check(r#""primus::pong::1795272443275""#, FromClient::Pong("1795272443275"));
    check(r#""primus::pong::NaN""#, FromClient::Pong("NaN"));
    check(r#""primus::ping::5""#, FromClient::Ping("5"));
    check(r#""primus::id::""#, FromClient::AskId);
    check(r#" "primus::id::" "#, FromClient::AskId);
    for message in ["{\"a\":1}", "null", "5", "", "[\"primus::id::\"]", "primus::id::", "\"hi\" x", "\"hi"] {
        check(message, FromClient::Message(message));
    }
    for text in [r#""hi""#, r#" "a\u0062\"" "#, r#""primus:""#, r#""aprimus::id::""#] {
        check(text, FromClient::Text(RawString::read(text.trim()).unwrap().0));
    }
    for unknown in [
        r#""primus::""#,
        r#""primus::x::y""#,
        r#""primus::server::close""#,
        r#""primus::pong""#,
        r#""primus::pong:5""#,
        r#""primus::p\u006fng::5""#,
        r#""\u0070rimus::id::""#,
        r#""primus::id::" x"#,
    ] {
        check(unknown, FromClient::Unknown);
    }
}

#[test]
fn server_messages_are_decoded() {
    fn check(text: &str, expect: FromServer<'_>) {
        assert_eq!(from_server(text), expect, "{text:?}");
    }
    check(r#""primus::ping::1795272443275""#, FromServer::Ping("1795272443275"));
    check(r#""primus::pong::5""#, FromServer::Pong("5"));
    check(r#""primus::id::YWzS7sV7EuxGH3D1lTrYC""#, FromServer::Id("YWzS7sV7EuxGH3D1lTrYC"));
    check(r#""primus::server::close""#, FromServer::Close);
    check(r#""primus::server::open""#, FromServer::Unknown);
    check(r#""primus::x::""#, FromServer::Unknown);
    check(r#"{"a":"primus::server::close"}"#, FromServer::Message(r#"{"a":"primus::server::close"}"#));
}

/// An application can't send protocol messages, however a string is escaped.
#[test]
fn reserved_strings_are_recognized() {
    fn check(json: &str, expect: bool) {
        assert_eq!(is_reserved(json), expect, "{json:?}");
    }
    check(r#""primus::server::close""#, true);
    check("\t\n\r \"primus::\"", true);
    check(r#""\u0070\u0072\u0069\u006d\u0075\u0073\u003a\u003a""#, true);
    check(r#""primus:\u003aserver::close\n""#, true);
    check("\"primus::\u{e4}\\n\"", true);
    check(r#""Primus::""#, false);
    check(r#""primus:""#, false);
    check(r#""\\primus::""#, false);
    check(r#""\u0070rimus:""#, false);
    let emoji = "\u{1f600}".repeat(14);
    check(&format!("\"{emoji}\\n\""), false);
    check(r#"["primus::server::close"]"#, false);
    check(r#""primus::"#, false);
    check("", false);
}

#[test]
fn messages_are_encoded() {
    assert_eq!(
        written(|out| write_message(out, "{\"a\":1,\"b\":\"\u{2028}\u{2029}\u{201c}\u{e2}\"}")),
        "{\"a\":1,\"b\":\"\\u2028\\u2029\u{201c}\u{e2}\"}"
    );
    assert_eq!(written(|out| write_text(out, "a\"b")), r#""a\"b""#);
    assert_eq!(
        written(|out| write_spec(out, "/primus", Some(Duration::from_millis(300)))),
        r#"{"pingInterval":300,"pathname":"/primus","version":"8.0.9","parser":"json","transformer":"websockets"}"#
    );
    assert!(written(|out| write_spec(out, "/primus", None)).starts_with(r#"{"pingInterval":false,"#));
}

/// Each side decodes the messages that the other side encodes.
#[test]
fn encoded_messages_are_decoded_by_the_other_side() {
    let ping = written(|out| write_ping(out, Duration::from_millis(1_795_272_443_275)));
    assert_eq!(from_server(&ping), FromServer::Ping("1795272443275"));
    assert_eq!(from_client(&ping), FromClient::Ping("1795272443275"));
    let pong = written(|out| write_pong(out, "1795272443275"));
    assert_eq!(from_client(&pong), FromClient::Pong("1795272443275"));
    assert_eq!(from_server(&pong), FromServer::Pong("1795272443275"));
    assert_eq!(from_client(&written(|out| write_id(out, ""))), FromClient::AskId);
    assert_eq!(from_server(&written(|out| write_id(out, "abc"))), FromServer::Id("abc"));
    assert_eq!(from_server(&written(write_close)), FromServer::Close);
}

#[test]
fn paths_are_parsed() {
    for (rest, expect) in [
        ("", Some(Route::Connect)),
        ("/", Some(Route::Connect)),
        ("/primus.js", Some(Route::Library)),
        ("/spec", Some(Route::Spec)),
        ("/spec/", None),
        ("/x", None),
        ("x", None),
    ] {
        assert_eq!(parse_path(rest), expect, "{rest:?}");
    }
}

proptest! {
    /// Every text that isn't refused arrives as a message on both sides.
    #[test]
    fn every_text_round_trips(text in "(primus::)?(?s).{0,20}") {
        let json = written(|out| write_text(out, &text));
        prop_assert_eq!(is_reserved(&json), text.starts_with("primus::"));
        if !is_reserved(&json) {
            prop_assert_eq!(from_server(&json), FromServer::Message(&json));
            let FromClient::Text(decoded) = from_client(&json) else { panic!("{json}") };
            prop_assert_eq!(&*decoded.unescape(), text);
        }
    }
}
