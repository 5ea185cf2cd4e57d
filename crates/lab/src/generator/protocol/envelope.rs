//! What a protocol puts around a payload, and taking it off again without parsing anything.
//!
//! An [`Envelope`] is what `stentor-wire` writes around a payload, cut where the payload stands: `42["message","` before
//! and `"]` behind it, say. Payloads are what [`crate::payload`] says, so nothing in them is ever escaped, and a message
//! is compared where it lies: the envelope byte by byte, the payload by its checksum, or, where it comes in several pieces, by
//! that and by what its padding has to be. What doesn't begin as the envelope does is gathered and handed out as it is, for those
//! who know the protocol.
//!
//! Without an envelope a message that begins with `"` is a JSON string around the payload, as documents of feeds are: the
//! quotes are checked, and count as its bytes.

use crate::payload::{self, HEAD_BYTES, Head, PADDING, TIMED_BYTES, is_padding};

/// Bytes of a message without a payload: handshakes, heartbeats, events of other names.
pub(super) const OTHER_BYTES_MAX: usize = 64 * 1024;

/// Bytes of what may stand behind or between payloads.
const TAIL_BYTES_MAX: usize = 7;

/// Stands for the payload where an envelope is made.
const MARK: &str = "PAYLOAD";

/// What stands around payloads. See the module's documentation.
///
/// Invariant: `between` and `close` have at most [`TAIL_BYTES_MAX`] bytes, and none of them is padding.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    open: Box<[u8]>,
    /// Between two payloads of one message; empty where there can't be two.
    between: Box<[u8]>,
    close: Box<[u8]>,
    /// Whether quotes are looked for.
    bare: bool,
    /// Whether there are others of the same envelope, which don't begin with a digit.
    around_others: bool,
    /// Of a payload's head, at most [`HEAD_BYTES`].
    head_bytes: usize,
}

impl Envelope {
    /// None.
    pub(super) fn bare() -> Self {
        Self::bare_after("")
    }

    /// Nothing but what stands before.
    pub(super) fn bare_after(open: &str) -> Self {
        Self {
            open: open.as_bytes().into(),
            between: Box::default(),
            close: Box::default(),
            bare: true,
            around_others: false,
            head_bytes: HEAD_BYTES,
        }
    }

    /// The same around payloads whose heads are so long.
    pub(super) fn with_heads_of(self, head_bytes: usize) -> Self {
        Self { head_bytes: head_bytes.min(HEAD_BYTES), ..self }
    }

    /// The same, which may also be around messages that are others, and known by not beginning with a digit.
    pub(super) fn around_others(self) -> Self {
        Self { around_others: true, ..self }
    }

    /// What `write` appends around the text that it is given.
    pub(super) fn of(write: impl FnOnce(&mut Vec<u8>, &str)) -> Self {
        let mut written = Vec::new();
        write(&mut written, MARK);
        let mut parts = Vec::new();
        let mut rest = &written[..];
        while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK.as_bytes()) {
            parts.push(&rest[..at]);
            rest = &rest[at + MARK.len()..];
        }
        let open = parts.first().copied().unwrap_or_default().into();
        let between: Box<[u8]> = parts.get(1).copied().unwrap_or_default().into();
        for tail in [&between[..], rest] {
            assert!(tail.len() <= TAIL_BYTES_MAX && !tail.contains(&PADDING), "{tail:?}");
        }
        Self { open, between, close: rest.into(), bare: false, around_others: false, head_bytes: HEAD_BYTES }
    }

    /// Appends a message with this payload.
    pub(super) fn wrap(&self, out: &mut Vec<u8>, payload: &[u8]) {
        for part in [&self.open, payload, &self.close] {
            out.extend_from_slice(part);
        }
    }

    /// The payload of a message that is whole and as it should be.
    fn intact_payload<'a>(&self, message: &'a [u8]) -> Option<(&'a [u8], u64)> {
        let payload = message.strip_prefix(&*self.open)?.strip_suffix(&*self.close)?;
        let (head, padding) = payload.split_at_checked(self.head_bytes)?;
        let intact = if self.has_checksums() { payload::is_intact(payload) } else { is_padding(padding) };
        intact.then_some((head, payload.len() as u64))
    }

    fn has_checksums(&self) -> bool {
        self.head_bytes == HEAD_BYTES
    }
}

/// A message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived<'a> {
    /// One with a payload.
    Payload {
        /// Its head; `None` where it has no such layout.
        head: Option<Head>,
        /// Its length, without the envelope.
        payload_bytes: u64,
        /// Whether checksum, padding and envelope are intact.
        clean: bool,
    },
    /// One in no envelope.
    Other(&'a [u8]),
}

/// A message in no envelope was longer than [`OTHER_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of over {OTHER_BYTES_MAX} bytes that isn't the load's")]
pub(in super::super) struct TooLong;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In the envelope's begin; so many bytes of it have come.
    Open(usize),
    Head,
    /// In the padding, or in what may be the envelope's end.
    Padding,
    Other,
}

/// Reads the messages of one connection, however they are cut.
///
/// Invariant: of the bytes of `tail`, none counts as the payload's yet.
#[derive(Debug)]
pub(super) struct MessageReader {
    stage: Stage,
    start: [u8; HEAD_BYTES],
    start_len: u8,
    tail: [u8; TAIL_BYTES_MAX + 1],
    tail_len: u8,
    quoted: bool,
    clean: bool,
    payload_bytes: u64,
    /// Of the bytes that came of a payload which is clean so far.
    checksum: u32,
    other: Vec<u8>,
}

impl Default for MessageReader {
    fn default() -> Self {
        Self {
            stage: Stage::Open(0),
            start: [0; HEAD_BYTES],
            start_len: 0,
            tail: [0; TAIL_BYTES_MAX + 1],
            tail_len: 0,
            quoted: false,
            clean: true,
            payload_bytes: 0,
            checksum: 0,
            other: Vec::new(),
        }
    }
}

impl MessageReader {
    /// Takes the next bytes of a message, the last ones if it `ends` with them, and calls `each` for what has come.
    pub(super) fn take<E: From<TooLong>>(
        &mut self,
        envelope: &Envelope,
        mut bytes: &[u8],
        ends: bool,
        mut each: impl FnMut(Arrived<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if ends
            && self.stage == Stage::Open(0)
            && let Some((head, payload_bytes)) = envelope.intact_payload(bytes)
        {
            return each(Arrived::Payload { head: Head::read(head), payload_bytes, clean: true });
        }
        // What the fast way found no padding isn't looked at twice.
        let mut may_be_padding = true;
        loop {
            match self.stage {
                Stage::Open(matched) => {
                    let expected = &envelope.open[matched..];
                    let same = expected.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                    bytes = &bytes[same..];
                    self.stage = Stage::Open(matched + same);
                    if same == expected.len() {
                        self.stage = Stage::Head;
                    } else if !bytes.is_empty() {
                        self.other.extend_from_slice(&envelope.open[..matched + same]);
                        self.stage = Stage::Other;
                    }
                }
                Stage::Head if envelope.around_others && self.begins_otherwise(bytes) => {
                    self.other.extend_from_slice(&envelope.open);
                    self.stage = Stage::Other;
                }
                Stage::Head => self.take_head(envelope, &mut bytes),
                Stage::Padding => {
                    if self.tail_len == 0 {
                        let close = if ends { envelope.close.len() + usize::from(self.quoted) } else { 0 };
                        let sure = bytes.len().saturating_sub(close);
                        let run = if std::mem::take(&mut may_be_padding) && is_padding(&bytes[..sure]) {
                            sure
                        } else {
                            bytes.iter().take_while(|byte| **byte == PADDING).count()
                        };
                        if self.clean && envelope.has_checksums() {
                            self.checksum = payload::append(self.checksum, &bytes[..run]);
                        }
                        self.payload_bytes += run as u64;
                        bytes = &bytes[run..];
                    }
                    if let Some((byte, rest)) = bytes.split_first() {
                        bytes = rest;
                        if self.take_tail(envelope, *byte) {
                            each(self.payload(envelope, true))?;
                            self.begin(Stage::Head);
                        }
                    }
                }
                Stage::Other => {
                    if self.other.len() + bytes.len() > OTHER_BYTES_MAX {
                        return Err(TooLong.into());
                    }
                    self.other.extend_from_slice(bytes);
                    bytes = &[];
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        if !ends {
            return Ok(());
        }
        let ended = match self.stage {
            Stage::Open(matched) => each(Arrived::Other(&envelope.open[..matched])),
            Stage::Other => each(Arrived::Other(&std::mem::take(&mut self.other))),
            Stage::Head | Stage::Padding => {
                let tail = &self.tail[..usize::from(self.tail_len)];
                let complete = if self.quoted { tail == b"\"" } else { *tail == *envelope.close };
                if self.quoted || !complete {
                    self.payload_bytes += u64::from(self.tail_len);
                }
                each(self.payload(envelope, complete))
            }
        };
        self.begin(Stage::Open(0));
        ended
    }

    fn begin(&mut self, stage: Stage) {
        self.stage = stage;
        (self.start_len, self.tail_len, self.payload_bytes, self.checksum) = (0, 0, 0, 0);
        (self.quoted, self.clean) = (false, true);
    }

    /// Whether what comes behind the envelope's begin isn't a payload's head.
    fn begins_otherwise(&self, bytes: &[u8]) -> bool {
        self.start_len == 0 && bytes.first().is_some_and(|byte| !byte.is_ascii_digit())
    }

    fn payload(&self, envelope: &Envelope, complete: bool) -> Arrived<'static> {
        let start = &self.start[..usize::from(self.start_len)];
        let intact = !envelope.has_checksums() || payload::has_checksum(start, self.checksum);
        Arrived::Payload {
            head: Head::read(start),
            payload_bytes: self.payload_bytes,
            clean: self.clean && complete && intact,
        }
    }

    fn take_head(&mut self, envelope: &Envelope, bytes: &mut &[u8]) {
        if envelope.bare && self.payload_bytes == 0 && bytes.first() == Some(&b'"') {
            self.quoted = true;
            self.payload_bytes = 1;
            *bytes = &bytes[1..];
        }
        let had = usize::from(self.start_len);
        let take = (envelope.head_bytes - had).min(bytes.len());
        self.start[had..had + take].copy_from_slice(&bytes[..take]);
        self.start_len += take as u8;
        self.payload_bytes += take as u64;
        *bytes = &bytes[take..];
        if had + take == envelope.head_bytes {
            if envelope.has_checksums() {
                self.checksum = payload::append(0, &self.start[..TIMED_BYTES]);
            }
            self.stage = Stage::Padding;
        }
    }

    /// Takes a byte that is no padding, or stands behind such a one. True if another payload follows.
    fn take_tail(&mut self, envelope: &Envelope, byte: u8) -> bool {
        self.tail[usize::from(self.tail_len)] = byte;
        self.tail_len += 1;
        let tail = &self.tail[..usize::from(self.tail_len)];
        if tail == &*envelope.between {
            return true;
        }
        let close: &[u8] = if self.quoted { b"\"" } else { &envelope.close };
        let may_end = |tail: &[u8]| close.starts_with(tail) || envelope.between.starts_with(tail);
        if !may_end(tail) {
            // All but perhaps the last byte were the payload's.
            let begins = may_end(&[byte]);
            self.payload_bytes += u64::from(self.tail_len) - u64::from(begins);
            self.tail[0] = byte;
            self.tail_len = u8::from(begins);
            self.clean = false;
        }
        false
    }
}
