//! Messages as lines of a response that goes on and on: `xhr_streaming` of SockJS, and Server-Sent Events.
//!
//! What a SockJS client sends goes by POST on the side connection, one request at a time. Its response ends when it has
//! become long (`response_limit`), and the next request follows on the same connection. An event stream that ends is lost.
//!
//! ```text
//! connected -request-> Head -200-> Lines -the end-> (request) Head …
//! ```
//!
//! Deliberately strict: lines end with a line feed alone, and the document of an event is in one line.

use std::collections::VecDeque;

use stentor_wire::http1::{BodyDecoder, HeadScanner, Limits, parse_response, write_request_head};

use super::answer::Requests;
use super::envelope::{Arrived, MessageReader};
use super::lines::take_lines;
use super::session::Session;
use super::{ClientEvent, Dialect, Fault, Lane, Out, Protocol, ProtocolClient};

/// See the module's documentation.
#[derive(Debug)]
pub(in super::super) struct StreamingClient {
    session: Session,
    /// Path of the session, where there is one.
    target: String,
    scanner: HeadScanner,
    head: Vec<u8>,
    /// While a body comes.
    body: Option<BodyDecoder>,
    messages: MessageReader,
    /// POSTs on the side connection.
    side: Requests,
    /// Bodies of the next POSTs.
    queue: VecDeque<Vec<u8>>,
}

impl StreamingClient {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self {
            session: Session::new(protocol),
            target: String::new(),
            scanner: HeadScanner::default(),
            head: Vec::new(),
            body: None,
            messages: MessageReader::default(),
            side: Requests::default(),
            queue: VecDeque::new(),
        }
    }

    fn ask(&self, dialect: &Dialect, out: &mut Vec<u8>) {
        let host = ("Host", dialect.host.as_str());
        match dialect.protocol {
            Protocol::Sse => {
                write_request_head(out, "GET", &self.target, &[host, ("Accept", "text/event-stream")]);
            }
            _ => {
                let target = format!("{}/xhr_streaming", self.target);
                write_request_head(out, "POST", &target, &[host, ("Content-Length", "0")]);
            }
        }
    }

    /// Takes what came of a response's head; once it is whole and right, how many bytes of `data` were its own.
    fn hear_head(&mut self, dialect: &Dialect, data: &[u8], out: &mut Out) -> Result<Option<usize>, Fault> {
        let had = self.head.len();
        self.head.extend_from_slice(data);
        let limits = Limits::default();
        let Some(end) = self.scanner.find_end(&self.head, &limits)? else { return Ok(None) };
        let response = parse_response(&self.head[..end], &limits)?;
        if response.status() != 200 {
            let told = self.head[end..].iter().take(100).copied().collect();
            let told = String::from_utf8(told).unwrap_or_default();
            return Err(Fault::Status(response.status(), told));
        }
        self.body = Some(BodyDecoder::new(response.body(false)));
        self.head.clear();
        self.scanner = HeadScanner::default();
        if dialect.protocol == Protocol::Sse {
            out.happened.push(ClientEvent::Opened);
        }
        Ok(Some(end - had))
    }

    /// Posts what waits, unless a POST is under way already.
    fn post(&mut self, dialect: &Dialect, out: &mut Vec<u8>) {
        if !self.side.begin(!self.queue.is_empty()) {
            return;
        }
        let Some(body) = self.queue.pop_front() else { return };
        let (target, length) = (format!("{}/xhr_send", self.target), body.len().to_string());
        let headers =
            [("Host", dialect.host.as_str()), ("Content-Type", "text/plain"), ("Content-Length", &length)];
        write_request_head(out, "POST", &target, &headers);
        out.extend_from_slice(&body);
    }
}

impl ProtocolClient for StreamingClient {
    fn connected(&mut self, dialect: &Dialect, key: u128, out: &mut Out) {
        self.target = match dialect.protocol {
            Protocol::Sse => dialect.path.clone(),
            _ => dialect.sockjs_session(key),
        };
        self.ask(dialect, &mut out.main);
    }

    fn receive(
        &mut self,
        dialect: &Dialect,
        lane: Lane,
        mut data: &[u8],
        out: &mut Out,
    ) -> Result<(), Fault> {
        if lane == Lane::Side {
            if self.side.feed(data)? {
                self.post(dialect, &mut out.side);
            }
            return Ok(());
        }
        loop {
            let Some(body) = &mut self.body else {
                let Some(used) = self.hear_head(dialect, data, out)? else { return Ok(()) };
                data = &data[used..];
                continue;
            };
            let decoded = body.decode(data)?;
            data = &data[decoded.consumed..];
            let Self { messages, session, .. } = self;
            take_lines(messages, &dialect.inbound, decoded.data, |arrived| {
                match arrived {
                    Arrived::Payload { head, payload_bytes, clean } => {
                        out.happened.push(ClientEvent::Payload { head, payload_bytes, clean });
                    }
                    Arrived::Other(line) => {
                        out.happened.extend(session.hear_line(line)?.opened.then_some(ClientEvent::Opened));
                    }
                }
                Ok::<(), Fault>(())
            })?;
            if decoded.done {
                self.body = None;
                if dialect.protocol == Protocol::Sse {
                    return Err(Fault::Ended("the end of its events".to_owned()));
                }
                self.ask(dialect, &mut out.main);
            }
            if data.is_empty() {
                return Ok(());
            }
        }
    }

    fn send(&mut self, dialect: &Dialect, payload: &[u8], out: &mut Out) {
        let mut body = Vec::new();
        dialect.outbound.wrap(&mut body, payload);
        self.queue.push_back(body);
        self.post(dialect, &mut out.side);
    }

    fn side_is_idle(&self) -> bool {
        self.side.is_idle()
    }
}
