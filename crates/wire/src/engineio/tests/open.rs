use std::time::Duration;

use super::*;

fn open(sid: &str, websocket_upgrade: bool, payload_bytes_max: Option<u64>) -> Open<'_> {
    Open {
        sid: sid.into(),
        websocket_upgrade,
        ping_interval: Duration::from_millis(300),
        ping_timeout: Duration::from_millis(200),
        payload_bytes_max,
    }
}

fn written(open: &Open<'_>, version: Version) -> String {
    let mut out = Vec::new();
    open.write(version, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn all_members_are_written() {
    let (polling, websocket) = (open("a\"b", true, Some(1_000_000)), open("a", false, Some(100)));
    assert_eq!(
        written(&polling, Version::V4),
        r#"{"sid":"a\"b","upgrades":["websocket"],"pingInterval":300,"pingTimeout":200,"maxPayload":1000000}"#
    );
    assert_eq!(
        written(&polling, Version::V3),
        r#"{"sid":"a\"b","upgrades":["websocket"],"pingInterval":300,"pingTimeout":200}"#
    );
    assert_eq!(
        written(&websocket, Version::V4),
        r#"{"sid":"a","upgrades":[],"pingInterval":300,"pingTimeout":200,"maxPayload":100}"#
    );
    for open in [polling, websocket] {
        assert_eq!(Open::parse(&written(&open, Version::V4)), Ok(open.clone()));
        let without = Open { payload_bytes_max: None, ..open };
        assert_eq!(Open::parse(&written(&without, Version::V3)), Ok(without));
    }
}

#[test]
fn handshakes_of_other_servers_are_read() {
    // Examples of the protocol documents.
    for (text, upgrade, bytes) in [
        (r#"{"sid":"s","upgrades":["websocket"],"pingInterval":300,"pingTimeout":200}"#, true, None),
        (r#"{"sid":"s","pingInterval":300,"pingTimeout":200}"#, false, None),
        (
            r#" { "maxPayload" : 7, "x":{"sid":1}, "upgrades" : [ "webtransport" , "websocket" ] ,
            "pingTimeout":200, "pingInterval":300 , "sid":"x", "sid":"s" } "#,
            true,
            Some(7),
        ),
    ] {
        assert_eq!(Open::parse(text), Ok(open("s", upgrade, bytes)), "{text}");
    }
    for bad in [
        "",
        "{}",
        "[]",
        "null",
        r#"{"sid":"s","pingInterval":300,"pingTimeout":200"#,
        r#"{"sid":7,"pingInterval":300,"pingTimeout":200}"#,
        r#"{"sid":"s","pingInterval":"300","pingTimeout":200}"#,
        r#"{"sid":"s","pingInterval":-1,"pingTimeout":200}"#,
        r#"{"sid":"s","upgrades":{},"pingInterval":1,"pingTimeout":200}"#,
        r#"{"sid":"s","pingInterval":300}"#,
        r#"{"pingInterval":300,"pingTimeout":200}"#,
    ] {
        assert_eq!(Open::parse(bad), Err(Error::BadOpen), "{bad}");
    }
}
