//! Collects answers over HTTP.

use stentor_wire::http1::{BodyDecoder, HeadScanner, Limits, Response, parse_response, write_request_head};

use super::{Dialect, Fault};

/// Maximum size of an answer's body in bytes.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Collects the head of an answer.
#[derive(Debug, Default)]
pub(super) struct AnswerHead {
    scanner: HeadScanner,
    received: Vec<u8>,
}

impl AnswerHead {
    /// Takes received bytes. When the headers are complete, returns the result of `read` and the bytes after them.
    pub(super) fn take<T>(
        &mut self,
        data: &[u8],
        read: impl FnOnce(&Response<'_>) -> Result<T, Fault>,
    ) -> Result<Option<(T, Vec<u8>)>, Fault> {
        self.received.extend_from_slice(data);
        let limits = Limits::default();
        let Some(end) = self.scanner.find_end(&self.received, &limits)? else { return Ok(None) };
        let read = read(&parse_response(&self.received[..end], &limits)?)?;
        let rest = self.received.split_off(end);
        *self = Self::default();
        Ok(Some((read, rest)))
    }
}

/// Collects the answers on a connection, one after the other.
#[derive(Debug, Default)]
pub(super) struct Answer {
    head: AnswerHead,
    status: u16,
    /// The decoder while a body arrives.
    decoder: Option<BodyDecoder>,
    pub(super) body: Vec<u8>,
}

/// Requests on a side connection, one at a time.
#[derive(Debug, Default)]
pub(super) struct Requests {
    answer: Answer,
    under_way: bool,
}

impl Requests {
    /// Returns `true` if the next request may be sent, which then counts as sent.
    pub(super) fn begin(&mut self, is_needed: bool) -> bool {
        let begins = is_needed && !self.under_way;
        self.under_way |= begins;
        begins
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.under_way
    }

    /// Consumes received data. Returns `true` once the request has a successful answer.
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
    /// Consumes received data. Returns `true` once an answer is complete. More data is an error.
    pub(super) fn feed(&mut self, mut data: &[u8]) -> Result<bool, Fault> {
        let Some(decoder) = &mut self.decoder else {
            let begun =
                self.head.take(data, |head| Ok((head.status(), BodyDecoder::new(head.body(false)))))?;
            let Some(((status, decoder), rest)) = begun else { return Ok(false) };
            self.body.clear();
            (self.status, self.decoder) = (status, Some(decoder));
            return self.feed(&rest);
        };
        loop {
            let decoded = decoder.decode(data)?;
            if self.body.len() + decoded.data.len() > BODY_BYTES_MAX {
                return Err(Fault::Answer("an answer that is too long"));
            }
            self.body.extend_from_slice(decoded.data);
            data = &data[decoded.consumed..];
            if decoded.done {
                self.decoder = None;
                return if data.is_empty() { Ok(true) } else { Err(Fault::Answer("more than an answer")) };
            }
            if data.is_empty() {
                return Ok(false);
            }
        }
    }

    /// Checks the status of the answer.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if matches!(self.status, 200 | 204) {
            return Ok(());
        }
        Err(Fault::refused(self.status, &self.body))
    }
}

/// Appends a POST.
pub(super) fn write_post(
    dialect: &Dialect,
    target: &str,
    content_type: &str,
    body: &[u8],
    out: &mut Vec<u8>,
) {
    let length = body.len().to_string();
    let headers =
        [("Host", dialect.host.as_str()), ("Content-Type", content_type), ("Content-Length", &length)];
    write_request_head(out, "POST", target, &headers);
    out.extend_from_slice(body);
}
