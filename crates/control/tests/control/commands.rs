//! Tests of commands over the admin port: what the data plane receives, the responses, and refusals.

use crate::common::*;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ID: &str = "nSp4eVh0Zr_L3kW9tQ2b";

impl Rig {
    /// Sends a command. Returns the status and text of the response.
    async fn command(&self, name: &str, body: &str) -> (u16, String) {
        let (status, text) = self.post(&format!("/api/v1/{name}"), body).await;
        (status, text.trim_end().to_owned())
    }

    /// Takes the commands that the data plane has received since the last call.
    fn commands(&self) -> Vec<String> {
        std::mem::take(&mut *self.plane.commands.lock().unwrap())
    }
}

#[tokio::test]
async fn commands_reach_the_data_plane_and_are_answered() {
    let rig = Rig::with_admin(|_| {});
    let check = async |name: &str, body: &str, answer: &str, parts: &[&str]| {
        assert_eq!(rig.command(name, body).await, (200, answer.to_owned()), "{body}");
        let commands = rig.commands();
        let [command] = &commands[..] else { panic!("{commands:?}") };
        for part in parts {
            assert!(command.contains(part), "no {part} in {command}");
        }
    };
    let emit =
        r#"{"rooms":["a","b"],"except":{"rooms":["c"]},"event":"e","data":{"x": 1.0},"volatile":true}"#;
    let emitted = [
        r#"Some("e")"#,
        r#"Json(b"{\"x\": 1.0}"), true"#,
        r#"name: "a""#,
        r#"name: "b""#,
        r#"except_rooms: [Room { namespace: "/", name: "c" }]"#,
    ];
    let everybody = [r#"rooms: [Room { namespace: "/", name: "" }]"#, "false"];
    let only = format!(r#"{{"sessions":["{ID}"],"namespace":"/n","join":["a","a"]}}"#);
    let joined = ["join", "rooms: [], sessions: [Id(", r#"Room { namespace: "/n", name: "a" }"#];
    let close = format!(r#"{{"sessions":["/n#{ID}"],"close":true}}"#);
    let three = r#"{"sessions":3}"#;
    let listed = r#"{"sessions":[{"id":"id","protocol":"socketio","rooms":["a"],"send_buffer_bytes":0}],"count":7,"truncated":true}"#;
    check("emit", emit, three, &emitted).await;
    check("emit", r#"{"namespace":"/","data":null}"#, three, &everybody).await;
    let called = r#"{"rooms":["a"],"event":"e","args":[1,"x"],"ack":{"timeout":"1ms"}}"#;
    let acknowledged = r#"{"sessions":3,"acknowledgements":[[1,"x"]],"missing":2}"#;
    assert_eq!(rig.command("emit", called).await, (200, acknowledged.to_owned()));
    check("join", &only, r#"{"sessions":2,"refused":1}"#, &joined).await;
    check("leave", r#"{"rooms":["a"],"leave":["b"]}"#, three, &["leave"]).await;
    check("disconnect", r#"{"rooms":["a"]}"#, three, &[r#"("disconnect", false)"#]).await;
    check("disconnect", &close, three, &[r#"("disconnect", true)"#]).await;
    check("sessions", r#"{"rooms":["a"]}"#, listed, &[r#"("sessions", 100)"#]).await;
    check("sessions", r#"{"rooms":["a"],"limit":0}"#, listed, &[r#"("sessions", 0)"#]).await;

    let check = async |query: &str, answer: &str, part: &str| {
        let (status, text) = rig.admin(&format!("/api/v1/rooms{query}")).await;
        assert_eq!((status, text.trim_end()), (200, answer), "{query}");
        assert!(rig.commands()[0].contains(part), "{query}");
    };
    let all = r#"{"rooms":[{"name":"a","sessions":2},{"name":"b","sessions":1}]}"#;
    let more = r#"{"rooms":[{"name":"a","sessions":2},{"name":"b","sessions":1}],"next":"b"}"#;
    check("", all, r#"{ namespace: "/", prefix: "", after: "", limit: 100 }"#).await;
    let second = r#"{ namespace: "/n", prefix: "a b&", after: "é", limit: 2 }"#;
    check("?namespace=%2Fn&prefix=a+b%26&after=%C3%A9&limit=2", more, second).await;
}

#[tokio::test]
async fn invalid_commands_are_refused_and_explained() {
    let rig = Rig::with_admin(|options| options.message_bytes_max = 100_000);
    let check = async |name: &str, body: &str, status: u16, code: &str, message: &str| {
        let (found, text) = rig.command(name, body).await;
        assert_eq!(found, status, "{body}: {text}");
        assert!(
            text.starts_with(&format!(r#"{{"code":"{code}","message":""#)) && text.contains(message),
            "{body}: {text}"
        );
    };
    let bad = async |name: &str, body: &str, message: &str| check(name, body, 400, "command", message).await;
    for name in ["emit", "join", "leave", "disconnect", "sessions"] {
        bad(name, "", "a JSON object").await;
        bad(name, "[]", "a JSON object").await;
        bad(name, "{", "EOF").await;
        bad(name, r#"{"rooms":["a"],"namespce":"/x"}"#, "unknown field `namespce`").await;
        // If `room` (the field of `publish`) were ignored here, the command would apply to all sessions.
        bad(name, r#"{"room":"a","namespace":"/"}"#, "unknown field `room`").await;
        bad(name, r#"{"rooms":["a"],"except":{"room":"a"}}"#, "unknown field `room`").await;
        bad(name, r#"{"rooms":"a"}"#, "expected a sequence").await;
        bad(name, r#"{"rooms":["a"],"rooms":["b"]}"#, "duplicate field `rooms`").await;
    }
    let own_fields = [
        ("emit", r#""data":1"#),
        ("join", r#""join":["a"]"#),
        ("leave", r#""leave":["a"]"#),
        ("disconnect", r#""close":true"#),
        ("sessions", r#""limit":1"#),
    ];
    for (name, own) in own_fields {
        bad(name, &format!("{{{own}}}"), "is missing").await;
        bad(name, &format!(r#"{{"rooms":[],{own}}}"#), "are empty").await;
        bad(name, &format!(r#"{{"namespace":"/","sessions":[],"rooms":[],{own}}}"#), "are empty").await;
        bad(name, &format!(r#"{{"rooms":[""],{own}}}"#), "the room's name is empty").await;
        let except = format!(r#"{{"rooms":["a"],"except":{{"rooms":["{}"]}},{own}}}"#, "r".repeat(257));
        bad(name, &except, "longer than 256 bytes").await;
        bad(name, &format!(r#"{{"namespace":"",{own}}}"#), "a namespace has 1 to 256 bytes").await;
        bad(name, &format!(r#"{{"sessions":["me"],{own}}}"#), r#"\"me\" is no session id"#).await;
        let many = vec![r#""a""#; 1_001].join(",");
        bad(name, &format!(r#"{{"rooms":[{many}],{own}}}"#), "at most 1000").await;
        for (_, other) in own_fields.into_iter().filter(|(_, other)| *other != own) {
            let field = other.split('"').nth(1).unwrap();
            let message = format!("`{field}` has no meaning");
            bad(name, &format!(r#"{{"rooms":["a"],{own},{other}}}"#), &message).await;
        }
    }
    let ack = r#"{"rooms":["a"],"event":"e","data":1,"ack":{"timeout":"2 m"}}"#;
    bad("emit", ack, "such as").await;
    let unnamed = r#"{"rooms":["a"],"data":1,"ack":{"timeout":"2s"}}"#;
    bad("emit", unnamed, "needs a name").await;
    let volatile = r#"{"rooms":["a"],"event":"e","data":1,"volatile":true,"ack":{"timeout":"2s"}}"#;
    bad("emit", volatile, "exclude each other").await;
    bad("emit", r#"{"rooms":["a"]}"#, r#"\"data\" or \"args\" is missing"#).await;
    let event = format!(r#"{{"rooms":["a"],"data":1,"event":"{}"}}"#, "e".repeat(257));
    bad("emit", &event, "longer than 256 bytes").await;
    let deep = format!(r#"{{"rooms":["a"],"data":{}1{}}}"#, "[".repeat(129), "]".repeat(129));
    bad("emit", &deep, "deeper than 128").await;
    bad("join", r#"{"rooms":["a"]}"#, "missing field `join`").await;
    bad("join", r#"{"rooms":["a"],"join":[]}"#, "1 to 1000 rooms").await;
    bad("leave", r#"{"rooms":["a"],"leave":[""]}"#, "the room's name is empty").await;
    bad("sessions", r#"{"rooms":["a"],"limit":1001}"#, "at most 1000").await;
    bad("sessions", r#"{"rooms":["a"],"limit":-1}"#, "invalid value").await;
    check("emit", &" ".repeat(100_001), 413, "too_long", "limits.message_bytes_max").await;
    let long = format!("after={}", "a".repeat(257));
    for query in ["x=1", "limit=0", "limit=1001", "limit=a", "prefix=%2", "after=%ff", &long] {
        let (status, text) = rig.admin(&format!("/api/v1/rooms?{query}")).await;
        assert_eq!(status, 400, "{query}");
        assert!(text.contains(r#""code":"query""#), "{text}");
    }
    assert_eq!(rig.commands(), [""; 0]);
    assert!(rig.metric("stentor_admin_refusals_total{reason=\"command\"}").await > Some(100.0));
}

#[tokio::test]
async fn sessions_of_the_node_are_listed() {
    let rig = Rig::with_admin(|_| {});
    let listed = r#"{"sessions":[{"id":"id","protocol":"socketio","rooms":["a"],"send_buffer_bytes":0}],"count":7,"truncated":true}"#;
    for (query, expect) in [
        ("", r#"SessionsQuery { search: "", user: None, issuer: None, address: None, limit: 100 }"#),
        (
            "?search=a+b%2f&limit=1000",
            r#"SessionsQuery { search: "a b/", user: None, issuer: None, address: None, limit: 1000 }"#,
        ),
        (
            "?user=42&issuer=https%3a//id&address=192.0.2.7",
            r#"SessionsQuery { search: "", user: Some("42"), issuer: Some("https://id"), address: Some("192.0.2.7"), limit: 100 }"#,
        ),
    ] {
        let (status, text) = rig.admin(&format!("/api/v1/sessions{query}")).await;
        assert_eq!((status, text.trim_end()), (200, listed));
        assert_eq!(rig.commands(), [expect]);
    }
    for query in ["x=1", "limit=0", "limit=1001", "search=%ff"] {
        let (status, text) = rig.admin(&format!("/api/v1/sessions?{query}")).await;
        assert!(status == 400 && text.contains(r#""code":"query""#), "{query}: {text}");
    }
}

#[tokio::test]
async fn a_full_inbox_delays_commands_or_is_reported() {
    let rig = Rig::with_admin(|options| options.busy_timeout = Duration::from_millis(50));
    rig.plane.busy.store(1, Ordering::SeqCst);
    assert_eq!(rig.command("disconnect", r#"{"rooms":["a"]}"#).await.0, 200);
    assert_eq!(rig.commands().len(), 1);
    rig.plane.busy.store(usize::MAX, Ordering::SeqCst);
    let (status, text) = rig.command("disconnect", r#"{"rooms":["a"]}"#).await;
    assert_eq!(status, 503);
    assert!(text.starts_with(r#"{"code":"busy""#), "{text}");
    assert_eq!(rig.commands(), [""; 0]);
    rig.plane.busy.store(0, Ordering::SeqCst);
    rig.plane.stops.store(true, Ordering::SeqCst);
    let (status, text) = rig.command("disconnect", r#"{"rooms":["a"]}"#).await;
    assert_eq!((status, text.starts_with(r#"{"code":"stopped""#)), (503, true), "{text}");
}
