//! NATS's client protocol: operations of the server, and commands to it.
//! <https://docs.nats.io/reference/reference-protocols/nats-protocol>

use bytes::{Buf, Bytes, BytesMut};
use std::fmt::Write;

/// Maximum length of a line. The line `INFO` names all servers of a cluster.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Maximum size of a message: a part (see [`super::parts`]), quoted in JetStream's JSON.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// An operation of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Op {
    Info(String),
    Message(Incoming),
    Ping,
    Pong,
    /// An error, as the server words it.
    Error(String),
}

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    pub(super) sid: u64,
    pub(super) subject: String,
    /// All header lines. The first one is `NATS/1.0`, with a status if there is one. Empty without headers.
    pub(super) headers: Bytes,
    pub(super) payload: Bytes,
}

impl Incoming {
    /// The status that the server answers with in place of a payload.
    pub(super) fn status(&self) -> Option<u16> {
        let line = lines(&self.headers).next()?;
        line.strip_prefix("NATS/1.0")?.split_whitespace().next()?.parse().ok()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

fn lines(headers: &[u8]) -> impl Iterator<Item = &str> {
    headers.split(|byte| *byte == b'\n').filter_map(|line| Some(str::from_utf8(line).ok()?.trim_end()))
}

/// The value of a header.
pub(super) fn header<'a>(headers: &'a [u8], name: &str) -> Option<&'a str> {
    lines(headers).find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim_start()))
}

/// Removes the next operation from the received bytes. `None` if it isn't complete.
///
/// # Errors
/// A text for people if the server doesn't speak the protocol.
pub(super) fn parse(received: &mut BytesMut) -> Result<Option<Op>, &'static str> {
    let Some(end) = received.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        return match received.len() {
            LINE_BYTES_MAX.. => Err("the server sent a line that is too long"),
            _ => Ok(None),
        };
    };
    let unknown = Err("the server doesn't speak NATS's protocol");
    let Ok(line) = str::from_utf8(&received[..end]).map(str::trim_end) else { return unknown };
    let (name, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let op = match name {
        "MSG" | "HMSG" => return message(received, end + 1),
        "PING" => Op::Ping,
        "PONG" => Op::Pong,
        "INFO" => Op::Info(rest.into()),
        "-ERR" => Op::Error(rest.trim_matches([' ', '\'']).into()),
        // Acknowledgements (`+OK`) aren't requested, and other operations are unknown.
        _ => return unknown,
    };
    received.advance(end + 1);
    Ok(Some(op))
}

/// `MSG SUBJECT SID [REPLY-TO] BYTES`, or `HMSG SUBJECT SID [REPLY-TO] HEADER-BYTES BYTES`.
fn message(received: &mut BytesMut, line_end: usize) -> Result<Option<Op>, &'static str> {
    const BROKEN: &str = "the server sent a broken message";
    let line = str::from_utf8(&received[..line_end]).map_err(|_| BROKEN)?;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |field: Option<&&str>| field.and_then(|field| field.parse::<u64>().ok());
    let size = |at: usize| number(fields.get(at)).and_then(|size| usize::try_from(size).ok());
    let (header_bytes, bytes) = match (fields.first(), fields.len()) {
        (Some(&"MSG"), count @ 4..=5) => (Some(0), size(count - 1)),
        (Some(&"HMSG"), count @ 5..=6) => (size(count - 2), size(count - 1)),
        _ => return Err(BROKEN),
    };
    let (Some(header_bytes), Some(bytes), Some(sid)) = (header_bytes, bytes, number(fields.get(2))) else {
        return Err(BROKEN);
    };
    if bytes > MESSAGE_BYTES_MAX || header_bytes > bytes {
        return Err("the server sent a message that is larger than any of Stentor's");
    }
    let total = line_end + bytes + 2;
    if received.len() < total {
        received.reserve(total - received.len());
        return Ok(None);
    }
    let subject = fields[1].to_string();
    let content = &received[line_end..total];
    if !content.ends_with(b"\r\n") {
        return Err(BROKEN);
    }
    // The content is copied. Otherwise, a short message that is stored would keep all bytes received with it.
    let mut content = Bytes::copy_from_slice(&content[..bytes]);
    received.advance(total);
    let headers = content.split_to(header_bytes);
    Ok(Some(Op::Message(Incoming { sid, subject, headers, payload: content })))
}

/// Appends a command that publishes a message. `headers` are lines without the first one and the last one.
pub(super) fn publish(to: &mut Vec<u8>, subject: &str, reply: &str, headers: &str, payload: &[&[u8]]) {
    let bytes: usize = payload.iter().map(|part| part.len()).sum();
    let mut line = String::with_capacity(subject.len() + reply.len() + headers.len() + 64);
    // Writing to a string can't fail.
    let _ = if headers.is_empty() {
        write!(line, "PUB {subject} {reply} {bytes}\r\n")
    } else {
        let header_bytes = "NATS/1.0\r\n\r\n".len() + headers.len();
        let total = header_bytes + bytes;
        write!(line, "HPUB {subject} {reply} {header_bytes} {total}\r\nNATS/1.0\r\n{headers}\r\n")
    };
    to.reserve(line.len() + bytes + 2);
    to.extend_from_slice(line.as_bytes());
    payload.iter().for_each(|part| to.extend_from_slice(part));
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses input that arrives at once, and the same input byte by byte. Both have the same operations.
    fn parse_all(input: &[u8]) -> Result<Vec<Op>, &'static str> {
        let run = |step: usize| {
            let (mut buffer, mut ops) = (BytesMut::new(), Vec::new());
            for piece in input.chunks(step) {
                buffer.extend_from_slice(piece);
                while let Some(op) = parse(&mut buffer)? {
                    ops.push(op);
                }
            }
            assert!(buffer.is_empty(), "{buffer:?}");
            Ok(ops)
        };
        let all = run(input.len());
        assert_eq!(run(1), all);
        all
    }

    fn incoming(sid: u64, subject: &str, headers: &'static str, payload: &'static str) -> Op {
        Op::Message(Incoming {
            sid,
            subject: subject.into(),
            headers: headers.into(),
            payload: payload.into(),
        })
    }

    #[test]
    fn operations() {
        let input = "INFO {\"a\":1} \r\nPING\r\nPONG\r\n-ERR 'Authorization Violation'\r\n\
            MSG a.b 7 3\r\n\r\n\r\r\nMSG a 8 reply 0\r\n\r\nHMSG x 9 16 18\r\nNATS/1.0\r\nA: b\r\nhi\r\n\
            HMSG x 9 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n";
        let expected = vec![
            Op::Info("{\"a\":1}".into()),
            Op::Ping,
            Op::Pong,
            Op::Error("Authorization Violation".into()),
            incoming(7, "a.b", "", "\r\n\r"),
            incoming(8, "a", "", ""),
            incoming(9, "x", "NATS/1.0\r\nA: b\r\n", "hi"),
            incoming(9, "x", "NATS/1.0 503\r\n\r\n", ""),
        ];
        assert_eq!(parse_all(input.as_bytes()), Ok(expected));
    }

    #[test]
    fn invalid_operations_are_errors() {
        for bad in [
            "HTTP/1.1 400 Bad Request\r\n",
            "MSG a 1\r\n",
            "MSG a 1 x\r\n",
            "MSG a 1 99999999999999999999\r\n",
            "MSG a 1 8388609\r\n",
            "HMSG a 1 5 4\r\nabcd\r\n",
            "MSG a 1 2\r\nabcd",
            "\u{1}\u{2}\n",
        ] {
            assert!(parse(&mut BytesMut::from(bad)).is_err(), "{bad}");
        }
        assert!(parse(&mut BytesMut::from(&[b'x'; LINE_BYTES_MAX][..])).is_err());
    }

    #[test]
    fn a_message_keeps_nothing_but_itself() {
        let mut received = BytesMut::from(&[b"MSG a 1 2\r\nhi\r\n", &[b'x'; 1 << 20][..]].concat()[..]);
        let Ok(Some(Op::Message(Incoming { payload, headers, .. }))) = parse(&mut received) else {
            panic!("it is a message")
        };
        drop((received, headers));
        assert_eq!(payload, "hi");
        assert!(Vec::from(payload).capacity() < 100);
    }

    #[test]
    fn changed_input_does_no_harm() {
        let input = b"INFO {\"a\":1} \r\nPING\r\n-ERR 'no'\r\nMSG a.b 7 3\r\nabc\r\n\
            HMSG x 9 r 16 18\r\nNATS/1.0\r\nA: b\r\nhi\r\nPONG\r\n";
        let pieces: [&[u8]; 8] = [
            b"99999999",
            b"18446744073709551615",
            b"-1",
            b" ",
            b"\r\n",
            b"\n",
            b"\xff",
            b"MSG a 1 8388608\r\n",
        ];
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut changed = input.to_vec();
            for _ in 0..random.usize(1..4) {
                let (at, piece) = (random.usize(..changed.len()), pieces[random.usize(..pieces.len())]);
                let end = random.usize(at..changed.len().min(at + 20));
                drop(changed.splice(at..end, piece.iter().copied()));
            }
            let mut received = BytesMut::from(&changed[..]);
            while let Ok(Some(op)) = parse(&mut received) {
                if let Op::Message(message) = op {
                    assert!(message.headers.len() + message.payload.len() <= changed.len());
                    let _ = (message.status(), message.header("A"));
                }
            }
            // The buffer has room for one message, whatever length the message states.
            assert!(received.capacity() <= 2 * MESSAGE_BYTES_MAX);
        }
    }

    #[test]
    fn headers_are_found_by_name() {
        let headers = b"NATS/1.0 404 No Messages\r\nNats-Sequence: 12\r\nStentor: {\"o\":1}\r\n\r\n";
        let Op::Message(message) = incoming(1, "s", "", "") else { unreachable!() };
        let message = Incoming { headers: Bytes::from_static(headers), ..message };
        assert_eq!(message.status(), Some(404));
        assert_eq!(message.header("Nats-Sequence"), Some("12"));
        assert_eq!(message.header("Stentor"), Some("{\"o\":1}"));
        assert_eq!(message.header("Nats"), None);
    }

    #[test]
    fn published_messages_can_be_parsed() {
        let mut sent = Vec::new();
        publish(&mut sent, "a", "", "", &[b":", b"x"]);
        publish(&mut sent, "a", "r.1", "K: v\r\n", &[b"y"]);
        assert_eq!(
            str::from_utf8(&sent).unwrap(),
            "PUB a  2\r\n:x\r\nHPUB a r.1 18 19\r\nNATS/1.0\r\nK: v\r\n\r\ny\r\n"
        );
    }
}
