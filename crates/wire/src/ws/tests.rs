use super::handshake::{ClientHandshake, check_request};
use super::*;
use crate::http1;

/// An event that owns its bytes.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Text(String),
    Binary(Vec<u8>),
    Ping,
    Pong(Vec<u8>),
    Closed(u16, String, Option<Error>),
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Seen {
        match event {
            Event::Message { kind: Kind::Text, data } => Seen::Text(str::from_utf8(data).unwrap().to_owned()),
            Event::Message { kind: Kind::Binary, data } => Seen::Binary(data.to_vec()),
            Event::Ping => Seen::Ping,
            Event::Pong(data) => Seen::Pong(data.to_vec()),
            Event::Closed { code, reason, error } => Seen::Closed(code, reason.to_owned(), error),
        }
    }
}

struct Side {
    connection: Connection,
    shared: Shared,
    transmit: Vec<u8>,
    seen: Vec<Seen>,
}

impl Side {
    fn new(role: Role, deflate: bool, limits: Limits) -> Side {
        let deflate =
            deflate.then_some(Negotiated { server_max_window_bits: 15, client_max_window_bits: 15 });
        Side {
            connection: Connection::new(role, deflate),
            shared: Shared::new(limits),
            transmit: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut input = bytes.to_vec();
        let mut at = 0;
        while at < input.len() {
            let received = self.connection.receive(&mut self.shared, &mut input[at..], &mut self.transmit);
            assert!(received.consumed > 0);
            at += received.consumed;
            self.seen.extend(received.event.map(Seen::from));
        }
    }
}

#[test]
fn echo() {
    let mut side = Side::new(Role::Server, false, Limits::default());
    let mut bytes = Vec::new();
    encode(&mut bytes, Opcode::Text, b"hello", false, Some([1, 2, 3, 4]));
    encode(&mut bytes, Opcode::Ping, b"x", false, Some([1, 2, 3, 4]));
    encode(&mut bytes, Opcode::Binary, &[7; 300], false, Some([1, 2, 3, 4]));
    encode(&mut bytes, Opcode::Close, &[3, 232], false, Some([1, 2, 3, 4]));
    side.feed(&bytes);
    assert_eq!(
        side.seen,
        [
            Seen::Text("hello".into()),
            Seen::Ping,
            Seen::Binary(vec![7; 300]),
            Seen::Closed(1000, String::new(), None)
        ]
    );
    let mut one = Side::new(Role::Server, false, Limits::default());
    bytes.iter().for_each(|byte| one.feed(&[*byte]));
    assert_eq!(one.seen, side.seen);
    assert_eq!(one.transmit, side.transmit);
    assert!(!one.connection.is_mid_message());
}

#[test]
fn handshake_both_ways() {
    let client = ClientHandshake::new(*b"the sample nonce", true);
    let mut request = Vec::new();
    client.write_request(&mut request, "server.example.com", "/chat", &[]);
    let request = http1::parse_request(&request, &http1::Limits::default()).unwrap();
    let accepted = check_request(&request, Some(&DeflateOptions::default())).unwrap();
    assert_eq!(&accepted.accept, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let mut response = Vec::new();
    accepted.write_response(&mut response, &[], None);
    let response = http1::parse_response(&response, &http1::Limits::default()).unwrap();
    assert_eq!(client.check_response(&response), Ok(accepted.deflate));
}
