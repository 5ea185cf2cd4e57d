//! Answers over HTTP, gathered.

use stentor_wire::http1::{BodyDecoder, HeadScanner, Limits, parse_response};

use super::Fault;

/// Bytes of an answer's body.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Of a refusal, the bytes that are told.
const TOLD_BYTES: usize = 100;

/// One answer after the other on a connection, gathered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    scanner: HeadScanner,
    head: Vec<u8>,
    status: u16,
    /// While a body comes.
    decoder: Option<BodyDecoder>,
    body: Vec<u8>,
}

/// Requests on a side connection, one at a time.
#[derive(Debug, Default)]
pub(super) struct Requests {
    answer: Answer,
    under_way: bool,
}

impl Requests {
    /// Whether the next one may be sent; then it is taken to be.
    pub(super) fn begin(&mut self, is_needed: bool) -> bool {
        let begins = is_needed && !self.under_way;
        self.under_way |= begins;
        begins
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.under_way
    }

    /// Takes what came; true once the request is answered well.
    pub(super) fn feed(&mut self, data: &[u8]) -> Result<bool, Fault> {
        if !self.under_way {
            return Err(Fault::Answer("an answer to no request"));
        }
        let answered = self.answer.feed(data)?;
        if answered {
            self.answer.check()?;
            self.under_way = false;
        }
        Ok(answered)
    }
}

impl Answer {
    /// Takes what came; true once an answer is whole, and nothing else came.
    pub(super) fn feed(&mut self, mut data: &[u8]) -> Result<bool, Fault> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let decoded = decoder.decode(data)?;
                if self.body.len() + decoded.data.len() > BODY_BYTES_MAX {
                    return Err(Fault::Answer("an answer that is too long"));
                }
                self.body.extend_from_slice(decoded.data);
                data = &data[decoded.consumed..];
                if decoded.done {
                    self.decoder = None;
                    return if data.is_empty() {
                        Ok(true)
                    } else {
                        Err(Fault::Answer("more than an answer"))
                    };
                }
                if data.is_empty() {
                    return Ok(false);
                }
                continue;
            }
            let had = self.head.len();
            self.head.extend_from_slice(data);
            let limits = Limits::default();
            let Some(end) = self.scanner.find_end(&self.head, &limits)? else { return Ok(false) };
            let response = parse_response(&self.head[..end], &limits)?;
            self.status = response.status();
            self.decoder = Some(BodyDecoder::new(response.body(false)));
            self.body.clear();
            self.head.clear();
            data = &data[end - had..];
        }
    }

    /// Whether the server agreed.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if matches!(self.status, 200 | 204) {
            return Ok(());
        }
        let told = &self.body[..self.body.len().min(TOLD_BYTES)];
        Err(Fault::Status(self.status, String::from_utf8_lossy(told).into_owned()))
    }

    /// The body of an answer that is whole.
    pub(super) fn take_body(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }

    /// Takes a body back, to gather the next one in.
    pub(super) fn give_back(&mut self, body: Vec<u8>) {
        self.body = body;
    }
}
