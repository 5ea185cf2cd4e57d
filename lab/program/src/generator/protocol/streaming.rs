//! Messages as lines of an endless response: `xhr_streaming` of SockJS, and Server-Sent Events.
//!
//! A SockJS client sends by POST on the side connection, one request at a time. A long response ends (`response_limit`), and the
//! next request follows on the same connection. An event stream that ends is lost.
//!
//! ```text
//! connected -request-> Head -200-> Lines -the end-> (request) Head …
//! ```
//!
//! Deliberately strict: lines end with a line feed only, and the document of an event is one line.

use std::collections::VecDeque;

use stentor_wire::http1::{BodyDecoder, write_request_head};

use super::answer::{AnswerHead, Requests, write_post};
use super::envelope::MessageReader;
use super::lines::take_lines;
use super::session::Session;
use super::{ClientEvent, Dialect, Fault, Lane, Out, Protocol, ProtocolClient};

/// A client of a streamed response; see the module's documentation.
#[derive(Default)]
pub(in super::super) struct StreamingClient {
    session: Session,
    /// Path of the session. Empty without one.
    target: String,
    head: AnswerHead,
    /// The decoder while a body arrives.
    body: Option<BodyDecoder>,
    messages: MessageReader,
    /// POSTs on the side connection.
    side: Requests,
    /// Bodies of the next POSTs.
    queue: VecDeque<Vec<u8>>,
}

impl StreamingClient {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self { session: Session::new(protocol), ..Self::default() }
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

    /// Posts the queue, unless a POST is in progress.
    fn post(&mut self, dialect: &Dialect, out: &mut Vec<u8>) {
        if !self.side.begin(!self.queue.is_empty()) {
            return;
        }
        if let Some(body) = self.queue.pop_front() {
            write_post(dialect, &format!("{}/xhr_send", self.target), "text/plain", &body, out);
        }
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
                let begun =
                    self.head.take(data, |head| Ok((head.status(), BodyDecoder::new(head.body(false)))))?;
                let Some(((status, decoder), rest)) = begun else { return Ok(()) };
                if status != 200 {
                    return Err(Fault::refused(status, &rest));
                }
                self.body = Some(decoder);
                if dialect.protocol == Protocol::Sse {
                    out.happened.push(ClientEvent::Opened);
                }
                return self.receive(dialect, lane, &rest, out);
            };
            let decoded = body.decode(data)?;
            data = &data[decoded.consumed..];
            let Self { messages, session, .. } = self;
            take_lines(messages, &dialect.inbound, decoded.data, &mut out.happened, |line, happened| {
                happened.extend(session.react_to_message(line)?.opened.then_some(ClientEvent::Opened));
                Ok(())
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
