//! Keys of feeds, in each request that can name a key: accepted and refused keys, and the form of the answer.

use crate::feed::requester;
use crate::harness::{HOUR, Http, Io, Server, UPGRADE, Way, Ws, on_one_and_three, request};
use serde_json::{Value, json};
use stentor_edge::Options;
use stentor_hub::KeyRule;
use stentor_ports::FeedUpdate;
use stentor_wire::engineio::Version;

/// Keys of real APIs, with characters that URLs, JSON, headers and patterns escape.
const KEYS: [&str; 12] = [
    "S\u{e3}o Paulo",
    "o'brien@example.com",
    "50%/a b",
    "a?b#c&d=e",
    "a;b!1!2",
    "\"q\"<script>{id}|^`",
    "*",
    "**/>",
    "a+b,c/(d)[e]$",
    "\u{1f980}/e\u{301}/\u{e9}",
    "%/2e",
    "..a/ /.. b",
];

/// Texts that are never keys, whichever characters are allowed.
const HOSTILE: [&str; 27] = [
    "..",
    "../admin",
    "a/../../admin",
    "a/..",
    "./a",
    "a/.",
    "..;/admin",
    "a/..;x=1/b",
    "a/.. /b",
    "a/..?b",
    "a/..#",
    "%2e%2e/admin",
    "a%2fb",
    "a%252fb",
    "a%5cb",
    "a%00b",
    "%0d%0aHost:%20evil.test",
    "a\\..\\b",
    "a\r\nHost: evil.test",
    "a\u{0}b",
    "a\u{85}b",
    "a\u{2028}b",
    "a\u{202e}b",
    "/etc/passwd",
    "//evil.test/a",
    "a//b",
    "a/",
];

/// Percent-encodes a text for a path or a query. Only letters, digits and slashes stay.
fn encoded(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'/' => "/".to_owned(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// The document that a client receives, or the text of a refusal.
type Answer = Result<Value, String>;

fn refused(response: &crate::harness::Response) -> Result<(), String> {
    if response.status == 400 { Err(response.text().to_owned()) } else { Ok(()) }
}

fn socket(server: &Server, target: &str) -> Result<Ws, String> {
    refused(&server.request("GET", target, UPGRADE))?;
    Ok(server.ws(target))
}

/// The document of the next message of `stentor.v1`.
fn snapshot(ws: &mut Ws, key: &str) -> Value {
    let message = ws.next_json();
    assert_eq!((&message["type"], &message["feed"]), (&json!("snapshot"), &json!(key)), "{message}");
    message["data"].clone()
}

fn stream(server: &Server, target: &str, headers: &str) -> Result<Http, String> {
    let mut http = server.http();
    http.send(request("HEAD", target, headers));
    if http.response_to(true).status == 400 {
        refused(&server.request("GET", target, headers))?;
    }
    let mut http = server.http();
    http.send(request("GET", target, headers));
    assert_eq!(http.stream_head().header("content-type"), "text/event-stream");
    assert!(http.next_chunk().starts_with("retry: "));
    Ok(http)
}

/// The document of the next event, which may have an id.
fn event(http: &mut Http) -> Value {
    let mut text = http.next_chunk();
    if !text.contains("event:") {
        text += &http.next_chunk();
    }
    serde_json::from_str(text.split_once("data: ").unwrap().1.trim_end()).unwrap()
}

fn engine(server: &Server, path: &'static str, query: &str) -> Result<Io, String> {
    refused(&server.get(&format!("{path}?EIO=4&transport=polling{query}")))?;
    Ok(Io::open(server.addr, path, Version::V4, Way::Polling, query))
}

/// A request that names a key: a description, and a function that sends it.
type NamedWay = (&'static str, fn(&Server, &str) -> Answer);

const WAYS: [NamedWay; 13] = [
    ("/feed/KEY", |server, key| {
        let response = server.get(&format!("/feed/{}", encoded(key)));
        refused(&response).map(|()| serde_json::from_str(response.text()).unwrap())
    }),
    ("/ws/KEY", |server, key| Ok(socket(server, &format!("/ws/{}", encoded(key)))?.next_json())),
    ("/ws?feed=KEY", |server, key| {
        let mut ws = socket(server, &format!("/ws?feed={}", encoded(key)))?;
        assert_eq!(ws.next_json()["type"], "welcome");
        Ok(snapshot(&mut ws, key))
    }),
    ("/ws?format=raw&resourceId=KEY", |server, key| {
        Ok(socket(server, &format!("/ws?format=raw&resourceId={}", encoded(key)))?.next_json())
    }),
    ("stentor.v1", |server, key| {
        let mut ws = server.client();
        ws.send_json(json!({"type": "subscribe", "feed": key, "id": 1}));
        let answer = ws.next_json();
        if answer["type"] == "error" {
            assert_eq!(answer["code"], "bad_key");
            return Err(answer["message"].as_str().unwrap().to_owned());
        }
        assert_eq!(answer["type"], "ok", "{answer}");
        Ok(snapshot(&mut ws, key))
    }),
    ("/primus/", |server, key| {
        let mut ws = socket(server, &format!("/primus/?_primuscb=P&feed={}", encoded(key)))?;
        assert_eq!(ws.next_json()["type"], "welcome");
        Ok(snapshot(&mut ws, key))
    }),
    ("/sse/KEY", |server, key| Ok(event(&mut stream(server, &format!("/sse/{}", encoded(key)), "")?))),
    ("/sse?feed=KEY", |server, key| {
        Ok(event(&mut stream(server, &format!("/sse?feed={}", encoded(key)), "")?))
    }),
    ("/engine.io/?feed=KEY", |server, key| {
        let mut io = engine(server, "/engine.io/", &format!("&feed={}", encoded(key)))?;
        let message = |io: &mut Io| -> Value { serde_json::from_str(&io.next_text()[1..]).unwrap() };
        assert_eq!(message(&mut io)["type"], "welcome");
        Ok(message(&mut io)["data"].clone())
    }),
    ("/socket.io/?feed=KEY", |server, key| {
        let mut io = engine(server, "/socket.io/", &format!("&feed={}", encoded(key)))?;
        io.connect("", Value::Null);
        Ok(io.event()[1]["data"].clone())
    }),
    ("Socket.IO", |server, key| {
        let mut io = Io::connected(server, Version::V4, Way::Socket);
        let answer = io.ask("subscribe", &[json!(key)]);
        if answer[0]["ok"] == true {
            let event = io.event();
            assert_eq!(event[1]["feed"], key);
            return Ok(event[1]["data"].clone());
        }
        Err(answer[0]["message"].as_str().unwrap_or_default().to_owned())
    }),
    ("/sockjs/feed/KEY/0/s/xhr", |server, key| {
        let mut http = server.http();
        let poll =
            request("POST", &format!("/sockjs/feed/{}/0/s/xhr", encoded(key)), "Content-Length: 0\r\n");
        let opened = http.ask(poll.clone());
        refused(&opened)?;
        let frames = http.ask(poll);
        let messages: Vec<String> = serde_json::from_str(&frames.text()[1..]).unwrap();
        Ok(serde_json::from_str(&messages[0]).unwrap())
    }),
    ("/sockjs/feed/KEY/0/s/websocket", |server, key| {
        let mut ws = socket(server, &format!("/sockjs/feed/{}/0/s/websocket", encoded(key)))?;
        assert_eq!(ws.next_text(), "o");
        let messages: Vec<String> = serde_json::from_str(&ws.next_text()[1..]).unwrap();
        Ok(serde_json::from_str(&messages[0]).unwrap())
    }),
];

fn wide(options: &mut Options) {
    options.keys = KeyRule::new(|_| true);
    options.heartbeat.interval = HOUR;
}

#[test]
fn keys_with_any_characters_are_the_same_feed_by_each_way() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, wide);
        for (n, key) in KEYS.into_iter().enumerate() {
            server.document(key, &n.to_string());
            for (way, answer) in WAYS {
                assert_eq!(answer(&server, key), Ok(json!(n)), "{way} {key}");
            }
        }
    });
}

#[test]
fn without_the_setting_other_keys_are_refused_by_its_name() {
    let server = Server::start(1, |options| options.heartbeat.interval = HOUR);
    for key in KEYS {
        for (way, answer) in WAYS {
            let refusal = answer(&server, key).unwrap_err();
            assert!(
                refusal.replace('\\', "").contains("keys = \"utf8\" in [[feeds]]"),
                "{way} {key}: {refusal}"
            );
        }
    }
    assert!(server.plane().take_key_interest().is_empty());
}

#[test]
fn keys_never_leave_their_upstreams_path() {
    for set in [wide, |_: &mut Options| {}] {
        let server = Server::start(1, set);
        for text in HOSTILE {
            for (way, answer) in WAYS {
                // A SockJS path without a key is another resource.
                if !(way.starts_with("/sockjs/")
                    && (text.starts_with('/') || text.contains("//") || text.ends_with('/')))
                {
                    let refusal = answer(&server, text);
                    assert!(refusal.is_err(), "{way} {text:?}: {refusal:?}");
                }
            }
        }
        // An escape in a path is decoded once. An encoded slash is refused.
        for path in ["a%2Fb", "a%2f..", "a%5Cb", "a%5cb", "%2E%2E/b", "a%c0%ae", "a%ff", "a%", "a%2", "a%zz"]
        {
            for way in ["/feed/", "/ws/", "/sse/"] {
                assert_eq!(server.get(&format!("{way}{path}")).status, 400, "{way}{path}");
            }
        }
        assert!(server.plane().take_key_interest().is_empty(), "nothing is asked for what is no key");
        server.check_empty();
    }
}

#[test]
fn event_ids_carry_keys_percent_encoded() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, wide);
        for key in KEYS {
            // Streams of one feed, and of several.
            for target in
                [format!("/sse/{}?x=y", encoded(key)), format!("/sse?feed={}&feed=other", encoded(key))]
            {
                for by_header in [true, false] {
                    server.document(key, "1");
                    let mut http = stream(&server, &target, "").unwrap();
                    let text = http.next_chunk();
                    let id = text.strip_prefix("id: ").unwrap().split_once('\n').unwrap().0;
                    assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
                    let (target, header) = match by_header {
                        true => (target.clone(), format!("Last-Event-ID: {id}\r\n")),
                        false => (format!("{target}&lastEventId={}", encoded(id)), String::new()),
                    };
                    let mut again = stream(&server, &target, &header).unwrap();
                    server.document(key, "2");
                    assert_eq!(event(&mut again), 2, "{target} {header}");
                }
            }
        }
    });
}

#[test]
fn a_key_that_is_refused_to_a_session_is_escaped_in_its_event() {
    let server = Server::start(1, wide);
    let key = "\"a\"/b c";
    let mut io = Io::connected(&server, Version::V4, Way::Socket);
    io.send(&format!("42{}", json!(["subscribe", key])));
    server.update(key, FeedUpdate::Refuse(requester(&server, key)));
    let event = io.event();
    assert_eq!((&event[1]["feed"], &event[1]["state"]), (&json!(key), &json!("not_found")), "{event}");
}
