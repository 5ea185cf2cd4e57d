//! A scripted worker on the admin port of the binary, and clients of its application.

use crate::process::{PATIENCE, Server, Subscriber, answer, ask, start, until_metric};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;
use stentor_link::{
    Broadcast, Exchange, Handle, Json, Message, Namespace, Received, SendFlags, ServerEntry, WorkerEntry,
    Writer,
};
use stentor_wire::ws::{Opcode, encode};

const CONFIGURATION: &str = r#"
[[links]]
app = "chat"
token = "token-of-the-chat"
"#;

fn json(text: &str) -> Json {
    Json::new(text).unwrap()
}

fn text(content: &str) -> Message {
    Message::Text(content.to_owned().into())
}

/// A worker that acknowledges what it has read with its next frame.
struct Worker {
    stream: BufReader<TcpStream>,
    exchange: Exchange<ServerEntry, WorkerEntry>,
    /// Entries that were received but not returned.
    entries: VecDeque<ServerEntry>,
}

impl Worker {
    /// Connects and sends HELLO.
    fn connect(server: &Server, token: &str, name: &str, instance: &str) -> Self {
        let mut stream = TcpStream::connect(&server.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "GET /link/v1?app=chat HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             Sec-WebSocket-Protocol: stentor.link.v1\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let mut worker = Self { stream, exchange: Exchange::default(), entries: VecDeque::new() };
        let hello = format!(
            r#"{{"v":[1],"name":"{name}","instance":"{instance}","parser":"json","options":{{}},"on_crash":"redeliver"}}"#
        );
        let mut writer = Writer::default();
        writer.entry(&WorkerEntry::Hello { hello: json(&hello) });
        worker.send(&writer.finish(0, 0).to_bytes());
        worker
    }

    /// A worker that has received WELCOME.
    fn start(server: &Server, name: &str, instance: &str) -> Self {
        let mut worker = Self::connect(server, "token-of-the-chat", name, instance);
        assert!(matches!(worker.entry(), ServerEntry::Welcome { .. }));
        worker
    }

    fn send(&mut self, message: &[u8]) {
        let mut frame = Vec::new();
        encode(&mut frame, Opcode::Binary, message, false, Some([0; 4]));
        self.stream.get_mut().write_all(&frame).unwrap();
    }

    fn write(&mut self, entries: &[WorkerEntry]) {
        // The frame that was read last is handled, and so acknowledged.
        while let Some(entry) = self.exchange.poll_entry().unwrap() {
            self.entries.push_back(entry);
        }
        entries.iter().for_each(|entry| self.exchange.write(entry));
        while let Some(frame) = self.exchange.poll_transmit(Instant::now()) {
            self.send(&frame.to_bytes());
        }
    }

    /// The next binary message.
    fn read(&mut self) -> Vec<u8> {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head).unwrap();
            let mut length = u64::from(head[1]);
            if length >= 126 {
                let mut long = [0; 8];
                let bytes = if length == 126 { 2 } else { 8 };
                self.stream.read_exact(&mut long[8 - bytes..]).unwrap();
                length = u64::from_be_bytes(long);
            }
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut payload).unwrap();
            if head[0] == 0x82 {
                return payload;
            }
        }
    }

    /// The next entry other than PEERS.
    fn entry(&mut self) -> ServerEntry {
        loop {
            let entry = match self.entries.pop_front() {
                Some(entry) => Some(entry),
                None => self.exchange.poll_entry().unwrap(),
            };
            match entry {
                Some(ServerEntry::Peers { .. }) => {}
                Some(entry) => return entry,
                None => {
                    let message = Message::Binary(self.read().into());
                    let frame = message.data().clone();
                    let received = Received::<ServerEntry>::new(frame.clone()).unwrap();
                    if received.number == 0 {
                        self.entries.extend(received.map(Result::unwrap));
                    } else {
                        self.exchange.handle_frame(frame, Instant::now()).unwrap();
                    }
                }
            }
        }
    }

    fn message(&mut self) -> (Handle, String) {
        let ServerEntry::Message { handle, messages } = self.entry() else { panic!("no MESSAGE") };
        (handle, String::from_utf8(messages[0].data().to_vec()).unwrap())
    }

    fn answer(&mut self, handle: Handle, content: &str) {
        let messages = std::iter::once(text(content)).collect();
        self.write(&[WorkerEntry::Send { handle, flags: SendFlags::default(), messages }]);
    }
}

fn links(server: &Server) -> serde_json::Value {
    let (status, body) = answer(ask(&server.admin, "GET", "/api/v1/links", ""));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<serde_json::Value>(&body).unwrap()["links"].clone()
}

#[test]
fn clients_of_an_application_survive_its_worker() {
    let server = start(CONFIGURATION);
    let mut refused = Worker::connect(&server, "another-token-than-that", "x", "x");
    let ServerEntry::Error { error } = refused.entry() else { panic!("no ERROR") };
    assert!(error.as_str().starts_with(r#"{"code":"token","#), "{error:?}");
    server.until_logged(&["a worker was refused", "token"], 1);

    // A session.
    let mut first = Worker::start(&server, "worker", "one");
    let mut client = Subscriber::open(&server.addr, "/socket.io/?EIO=4&transport=websocket");
    let open = client.receive();
    assert!(open.starts_with(r#"0{"sid":""#), "{open}");
    let ServerEntry::Open { handle, ask: false, handshake } = first.entry() else { panic!("no OPEN") };
    assert!(handshake.as_str().contains(r#""url":"/socket.io/?EIO=4&transport=websocket""#), "{handshake:?}");
    client.send_text("40");
    assert_eq!(first.message(), (handle, "0".into()));
    let namespace = Namespace(0);
    let add = WorkerEntry::Add {
        handle,
        namespace,
        id: "id".into(),
        pid: "".into(),
        rooms: vec!["id".into()],
        state: json(r#"{"auth":{}}"#),
    };
    first.write(&[WorkerEntry::Nsp { namespace, name: "/".into() }, add]);
    first.answer(handle, r#"0{"sid":"id"}"#);
    assert_eq!(client.receive(), r#"40{"sid":"id"}"#);
    client.send_text(r#"42["hi"]"#);
    assert_eq!(first.message(), (handle, r#"2["hi"]"#.into()));
    first.answer(handle, r#"2["hi"]"#);
    assert_eq!(client.receive(), r#"42["hi"]"#);
    let messages = std::iter::once(text(r#"2["all"]"#)).collect();
    let broadcast = Broadcast { rooms: vec!["id".into()], messages, ..Broadcast::default() };
    first.write(&[
        WorkerEntry::Broadcast { namespace, broadcast },
        WorkerEntry::State { handle, namespace, data: json(r#"{"name":"x"}"#) },
    ]);
    assert_eq!(client.receive(), r#"42["all"]"#);
    let sessions = r#"stentor_link_sessions{app="chat",worker="worker"}"#;
    until_metric(&server.admin, sessions, |value| value == 1.0);
    let all = links(&server);
    assert_eq!((&all[0]["instance"], &all[0]["state"]), (&"one".into(), &"up".into()), "{all}");

    // The worker crashes. The next process has the session, and the client notices nothing.
    drop(first);
    client.send_text(r#"42["waits"]"#);
    let mut second = Worker::start(&server, "worker", "two");
    let ServerEntry::Resume { handle, session } = second.entry() else { panic!("no RESUME") };
    let sockets =
        r#""sockets":[{"nsp":"/","id":"id","pid":"","rooms":["id"],"data":{"name":"x"},"auth":{}}]}"#;
    assert!(session.as_str().ends_with(sockets), "{session:?}");
    assert_eq!(second.message(), (handle, r#"2["waits"]"#.into()));
    second.answer(handle, r#"2["again"]"#);
    assert_eq!(client.receive(), r#"42["again"]"#);
    until_metric(&server.admin, r#"stentor_link_sessions_resumed_total{app="chat"}"#, |value| value == 1.0);
    let all = links(&server);
    assert_eq!((&all[0]["instance"], &all[1]), (&"two".into(), &serde_json::Value::Null), "{all}");

    // The worker closes the session.
    second.write(&[WorkerEntry::Close { handle, discard: false }]);
    assert!(client.try_receive().is_none_or(|last| last.starts_with("close") || last == "41" || last == "1"));
    let ServerEntry::Closed { handle: closed, reason, .. } = second.entry() else { panic!("no CLOSED") };
    assert_eq!((closed, &*reason), (handle, "forced close"));
    drop(client);
    server.end();
}

#[test]
fn a_request_that_is_no_link_is_refused() {
    let server = start("");
    assert_eq!(answer(ask(&server.admin, "GET", "/link/v1", "")).0, 404);
    let server = start("[[links]]\napp = \"chat\"\n");
    let (status, body) = answer(ask(&server.admin, "GET", "/link/v1", ""));
    assert_eq!((status, body.contains("Upgrade is not websocket")), (426, true), "{body}");
    until_metric(&server.admin, r#"stentor_link_workers{app="chat",state="up"}"#, |value| value == 0.0);
}
