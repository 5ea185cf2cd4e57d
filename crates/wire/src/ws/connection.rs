//! One side of an open WebSocket (RFC 6455 sections 5 to 7).
//!
//! ```text
//!  Open          ── close() ───────────────────▶ Closing
//!  Open, Closing ── peer's close (echoed once) ▶ Closed
//!  Open, Closing ── violation by peer (1002…) ─▶ Failed
//! ```
//!
//! Invariants: `partial` is `Some` exactly while a frame or a fragmented message is incomplete, while a message has arrived
//! and is paused, or if the client keeps its context and has sent a compressed message. Its memory is at most about twice
//! the received bytes, which are at most `message_bytes_max`, plus the window. (Data inflated in steps is additional, for
//! one connection at a time.) While a message is paused no input is consumed. At most one close frame is ever transmitted.

use super::deflate::Negotiated;
use super::frame::{self, CONTROL_BYTES_MAX, FIN, HEADER_BYTES_MAX, Kind, MASKED, Opcode, RSV1, RSV2_RSV3};
use super::outcome::{Outcome, PayloadRange};
use super::partial::{Frame, Message, Partial};
use super::step::{Paused, Step};
use super::{Error, Event, Received, Role, Shared, mask, utf8};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Our close frame has been sent.
    Closing,
    /// Both close frames have been sent.
    Closed,
    /// The peer made an error.
    Failed,
}

/// One side of one connection. Takes 24 bytes between messages, unless the client keeps its context.
pub struct Connection {
    partial: Option<Box<Partial>>,
    mask_state: u32,
    deflate: Option<Negotiated>,
    role: Role,
    phase: Phase,
}

impl Connection {
    /// Makes the connection after the opening handshake.
    pub fn new(role: Role, deflate: Option<Negotiated>) -> Self {
        Connection { partial: None, mask_state: 0, deflate, role, phase: Phase::Open }
    }

    /// Seeds the masks of a client. The masks are well distributed but predictable from the seed. That is
    /// sufficient if the caller itself chooses the payloads. A browser, which runs scripts of third parties,
    /// would need more (RFC 6455 section 10.3).
    pub fn seed_masks(&mut self, seed: u32) {
        self.mask_state = seed;
    }

    /// Returns the mask for the next frame that the caller encodes; `None` for a server.
    pub fn next_mask(&mut self) -> Option<[u8; 4]> {
        if self.role == Role::Server {
            return None;
        }
        // A Weyl sequence through the finalizer of MurmurHash3: every state is visited, neighbours differ in
        // all bits.
        self.mask_state = self.mask_state.wrapping_add(0x9e37_79b9);
        let mut bits = self.mask_state;
        bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
        bits = (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35);
        Some((bits ^ bits >> 16).to_ne_bytes())
    }

    /// Returns the compression parameters that the handshake negotiated.
    pub fn deflate(&self) -> Option<Negotiated> {
        self.deflate
    }

    /// Returns `true` while a frame or a fragmented message is incomplete. The caller limits that time.
    pub fn is_mid_message(&self) -> bool {
        self.partial
            .as_ref()
            .is_some_and(|partial| partial.paused.is_none() && !partial.is_between_messages())
    }

    /// Returns `true` while the rest of a received message waits for the next call of
    /// [`Connection::receive`]. Pass the input that wasn't consumed, possibly none. See
    /// [`StepLimits`](super::StepLimits).
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.partial.as_ref().is_some_and(|partial| partial.paused.is_some())
    }

    /// Returns `true` while a paused message waits until the message of another connection is inflated
    /// ([`Shared::is_step_slot_free`]).
    pub fn waits_for_step_slot(&self) -> bool {
        let paused = self.partial.as_ref().and_then(|partial| partial.paused.as_ref());
        paused.is_some_and(Paused::waits_for_slot)
    }

    /// Frees the step slot for other connections and drops the inflated part of a paused message. Call this if the
    /// connection can't continue for a while.
    pub fn leave_step_slot(&mut self) {
        if let Some(paused) = self.partial.as_mut().and_then(|partial| partial.paused.as_mut()) {
            paused.inflating = None;
        }
    }

    /// Returns `true` after [`Event::Closed`].
    #[inline]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed | Phase::Failed)
    }

    /// Returns `true` if the connection has ended because of the peer's error.
    pub fn has_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// Returns the memory held for an incomplete message and for the client's context, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| {
            let inflated = partial.paused.as_ref().map_or(0, Paused::held_bytes);
            size_of::<Partial>()
                + partial.payload.capacity()
                + partial.control.capacity()
                + inflated
                + partial.window.held_bytes()
        })
    }

    /// Returns `true` if the connection holds no memory besides itself.
    #[inline]
    pub fn holds_nothing(&self) -> bool {
        self.partial.is_none()
    }

    /// Returns `true` if the connection holds earlier messages: the client keeps its context and has sent a
    /// compressed message.
    pub fn holds_context(&self) -> bool {
        self.partial.as_ref().is_some_and(|partial| !partial.window.is_empty())
    }

    fn keeps_context(&self) -> bool {
        self.role == Role::Server && self.deflate.is_some_and(|agreed| agreed.client_keeps_context)
    }

    /// Starts the closing handshake; the peer's answer is [`Event::Closed`]. Only the first call has an
    /// effect. A reserved code (below 1000, 1004 to 1006, 1015 to 2999, above 4999) is sent as a close
    /// without a code. A reason is truncated to 123 bytes at a character boundary.
    pub fn close(&mut self, code: u16, reason: &str, transmit: &mut Vec<u8>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
            self.send_close(code, reason, transmit);
        }
    }

    /// Processes the start of `input`, unmasking in place. Appends the protocol's own answers (pong, close)
    /// to `transmit`, and returns at most one event. Call it again with the remaining bytes until all are
    /// consumed, or the connection is paused ([`Connection::is_paused`]). All input after [`Event::Closed`]
    /// is discarded.
    ///
    /// One call adds at most 131 bytes to `transmit`. A caller that checks `transmit` between calls limits
    /// the bytes that a flood of pings adds. The event borrows from `input` and `shared`, not from the
    /// connection, which may be used meanwhile.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        shared: &'a mut Shared,
        input: &'a mut [u8],
        transmit: &mut Vec<u8>,
    ) -> Received<'a> {
        // The common case first: one complete, short frame with a complete, uncompressed message.
        match self.simple_frame(shared, input) {
            Some(frame) => self.receive_simple(frame, input, transmit),
            None => self.receive_any(shared, input, transmit),
        }
    }

    /// Like [`Connection::receive`] if `input` is exactly one complete, short frame with a complete, uncompressed
    /// message. Otherwise returns `None` and has no effect.
    #[inline]
    pub fn receive_lone<'a>(
        &mut self,
        shared: &Shared,
        input: &'a mut [u8],
        transmit: &mut Vec<u8>,
    ) -> Option<Received<'a>> {
        let frame = self.simple_frame(shared, input).filter(|(_, _, end)| *end == input.len())?;
        Some(self.receive_simple(frame, input, transmit))
    }

    #[inline]
    fn receive_simple<'a>(
        &mut self,
        (kind, start, end): (Kind, usize, usize),
        input: &'a mut [u8],
        transmit: &mut Vec<u8>,
    ) -> Received<'a> {
        let input_bytes = input.len();
        let (header, payload) = input[..end].split_at_mut(start);
        if self.role == Role::Server
            && let Some(mask) = header.last_chunk()
        {
            mask::apply(payload, *mask);
        }
        match kind.message(payload) {
            Some(message) => Received { consumed: end, event: Some(Event::Message(message)) },
            None => self.violation(Error::BadUtf8, input_bytes, transmit),
        }
    }

    /// Returns the kind, and start and end of the payload, if `input` begins with a complete, final,
    /// uncompressed data frame below 64 kB that is allowed here. All other input, errors included, is for
    /// [`Connection::receive_any`].
    #[inline]
    fn simple_frame(&self, shared: &Shared, input: &[u8]) -> Option<(Kind, usize, usize)> {
        if self.partial.is_some() || self.is_closed() {
            return None;
        }
        let &[first, second, ref rest @ ..] = input else { return None };
        const TEXT: u8 = FIN | Opcode::Text as u8;
        const BINARY: u8 = FIN | Opcode::Binary as u8;
        let kind = match first {
            TEXT => Kind::Text,
            BINARY => Kind::Binary,
            _ => return None,
        };
        let masked = second & MASKED != 0;
        if masked != (self.role == Role::Server) {
            return None;
        }
        let (payload_bytes, length_end) = match second & !MASKED {
            127 => return None,
            126 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), 4),
            short => (usize::from(short), 2),
        };
        let start = length_end + if masked { 4 } else { 0 };
        let end = start + payload_bytes;
        (end <= input.len() && payload_bytes <= shared.limits.message_bytes_max).then_some((kind, start, end))
    }

    fn receive_any<'a>(
        &mut self,
        shared: &'a mut Shared,
        input: &'a mut [u8],
        transmit: &mut Vec<u8>,
    ) -> Received<'a> {
        let mut consumed = 0;
        let outcome = loop {
            if self.is_paused() {
                let resumed = if consumed == 0 { self.resume(shared) } else { Ok(Outcome::Nothing) };
                self.drop_idle_partial();
                match resumed {
                    Ok(Outcome::Nothing) => return Received { consumed, event: None },
                    Ok(outcome) => break outcome,
                    Err(error) => break Outcome::Violation(error),
                }
            }
            if self.is_closed() || consumed == input.len() {
                return Received { consumed: input.len(), event: None };
            }
            let advanced = self.advance(shared, input, &mut consumed, transmit);
            self.drop_idle_partial();
            match advanced {
                Ok(Outcome::Nothing) => {}
                Ok(outcome) => break outcome,
                Err(error) => break Outcome::Violation(error),
            }
        };
        let (shared, input_bytes): (&'a Shared, usize) = (shared, input.len());
        let input: &'a [u8] = input;
        let locate = |place| match place {
            PayloadRange::Input(start, end) => &input[start..end],
            PayloadRange::Gathered(start) => &shared.gathered[start..],
            PayloadRange::Inflated => {
                shared.inflater.as_ref().map_or(&[][..], |inflater| inflater.inflated())
            }
        };
        let event = match outcome {
            Outcome::Nothing => None,
            Outcome::Message(kind, place) => match kind.message(locate(place)) {
                Some(message) => Some(Event::Message(message)),
                None => return self.violation(Error::BadUtf8, input_bytes, transmit),
            },
            Outcome::Ping => Some(Event::Ping),
            Outcome::Pong(place) => Some(Event::Pong(locate(place))),
            Outcome::Closed(code, place) => {
                consumed = input_bytes;
                Some(Event::Closed { code, reason: str::from_utf8(locate(place)).unwrap_or(""), error: None })
            }
            Outcome::Violation(error) => return self.violation(error, input_bytes, transmit),
        };
        Received { consumed, event }
    }

    /// Ends the connection because of the peer's error.
    #[cold]
    fn violation<'a>(&mut self, error: Error, consumed: usize, transmit: &mut Vec<u8>) -> Received<'a> {
        let code = error.close_code();
        if self.phase == Phase::Open {
            self.send_close(code, "", transmit);
        }
        self.phase = Phase::Failed;
        self.partial = None;
        Received { consumed, event: Some(Event::Closed { code, reason: "", error: Some(error) }) }
    }

    /// Takes one step from `input[*consumed..]`, which is not empty: a header with the available part of its
    /// payload, or more bytes of the current payload.
    fn advance(
        &mut self,
        shared: &mut Shared,
        input: &mut [u8],
        consumed: &mut usize,
        transmit: &mut Vec<u8>,
    ) -> Result<Outcome, Error> {
        let resumed = self.partial.as_mut().and_then(|partial| partial.frame.take());
        let Some(frame) = (match resumed {
            Some(frame) => Some(frame),
            None => self.next_header(shared, input, consumed)?,
        }) else {
            return Ok(Outcome::Nothing);
        };
        let start = *consumed;
        let end = start + frame.left.min(input.len() - start);
        *consumed = end;
        if frame.mask != [0; 4] {
            mask::apply(&mut input[start..end], frame.mask);
        }
        if frame.opcode.is_control() {
            return self.control_payload(shared, frame, input, (start, end), transmit);
        }
        if resumed.is_none() {
            match frame.opcode {
                Opcode::Text | Opcode::Binary => {
                    let kind = if frame.opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
                    if frame.fin && end - start == frame.left {
                        let payload = &input[start..end];
                        if !frame.rsv1 {
                            return Ok(Outcome::Message(kind, PayloadRange::Input(start, end)));
                        }
                        let keeps = self.keeps_context();
                        let window = keeps.then(|| &mut self.partial.get_or_insert_default().window);
                        return match shared.inflate_step(payload, window, None)? {
                            Step::Inflated => Ok(Outcome::Message(kind, PayloadRange::Inflated)),
                            Step::Paused(inflating) => {
                                let partial = self.partial.get_or_insert_default();
                                partial.payload = payload.to_vec();
                                partial.paused = Some(Paused { kind, compressed: true, inflating });
                                Ok(Outcome::Nothing)
                            }
                        };
                    }
                    let message = Message { kind, compressed: frame.rsv1, fragments: 1, valid: 0 };
                    self.partial.get_or_insert_default().message = Some(message);
                }
                _ => {
                    if let Some(message) = self.partial.as_mut().and_then(|partial| partial.message.as_mut())
                    {
                        message.fragments += 1;
                    }
                }
            }
        }
        self.data_payload(shared, frame, &input[start..end])
    }

    /// Reads a header that may have begun in an earlier input. `None` if the header continues in the next
    /// input.
    fn next_header(
        &mut self,
        shared: &Shared,
        input: &[u8],
        consumed: &mut usize,
    ) -> Result<Option<Frame>, Error> {
        let rest = &input[*consumed..];
        let pending = self.partial.as_ref().map_or(0, |partial| usize::from(partial.header_len));
        if pending == 0 {
            if let Some((frame, bytes)) = self.read_header(shared, rest)? {
                *consumed += bytes;
                return Ok(Some(frame));
            }
            // read_header reads every header of HEADER_BYTES_MAX bytes, so the incomplete part is shorter.
            let partial = self.partial.get_or_insert_default();
            partial.header[..rest.len()].copy_from_slice(rest);
            partial.header_len = rest.len() as u8;
            *consumed = input.len();
            return Ok(None);
        }
        let mut header = self.partial.as_ref().map_or([0; HEADER_BYTES_MAX], |partial| partial.header);
        let available = pending + rest.len().min(HEADER_BYTES_MAX - pending);
        header[pending..available].copy_from_slice(&rest[..available - pending]);
        let read = self.read_header(shared, &header[..available])?;
        let partial = self.partial.get_or_insert_default();
        if let Some((frame, bytes)) = read {
            // The pending bytes were too few to be read as a header, so bytes > pending.
            *consumed += bytes - pending;
            partial.header_len = 0;
            return Ok(Some(frame));
        }
        partial.header = header;
        partial.header_len = available as u8;
        *consumed = input.len();
        Ok(None)
    }

    /// Reads the header at the start of `bytes` and makes every check that the available bytes allow. `None`
    /// if the header is longer than `bytes`, and valid so far.
    fn read_header(&self, shared: &Shared, bytes: &[u8]) -> Result<Option<(Frame, usize)>, Error> {
        let &[first, second, ref rest @ ..] = bytes else { return Ok(None) };
        let opcode = Opcode::from_bits(first & 0x0f).ok_or(Error::ReservedOpcode)?;
        let (fin, rsv1, masked) = (first & FIN != 0, first & RSV1 != 0, second & MASKED != 0);
        let begins = matches!(opcode, Opcode::Text | Opcode::Binary);
        let message = self.partial.as_ref().and_then(|partial| partial.message);
        if first & RSV2_RSV3 != 0 || rsv1 && !(begins && self.deflate.is_some()) {
            return Err(Error::ReservedBits);
        }
        match self.role {
            Role::Server if !masked => return Err(Error::Unmasked),
            Role::Client if masked => return Err(Error::Masked),
            _ => {}
        }
        if opcode.is_control() {
            if !fin {
                return Err(Error::ControlFragmented);
            }
            if usize::from(second & !MASKED) > CONTROL_BYTES_MAX {
                return Err(Error::ControlTooLong);
            }
        } else if begins && message.is_some() {
            return Err(Error::ExpectedContinuation);
        } else if opcode == Opcode::Continuation {
            let message = message.ok_or(Error::UnexpectedContinuation)?;
            if message.fragments >= shared.limits.fragments_max {
                return Err(Error::TooManyFragments);
            }
        }
        let (payload_bytes, length_bytes) = match second & !MASKED {
            126 => match rest.first_chunk() {
                Some(length) => (u64::from(u16::from_be_bytes(*length)), 2),
                None => return Ok(None),
            },
            127 => match rest.first_chunk() {
                Some(length) => (u64::from_be_bytes(*length), 8),
                None => return Ok(None),
            },
            short => (u64::from(short), 0),
        };
        if payload_bytes > i64::MAX as u64 {
            return Err(Error::BadLength);
        }
        let held = self.partial.as_ref().map_or(0, |partial| partial.payload.len());
        let room = shared.limits.message_bytes_max.saturating_sub(held) as u64;
        if payload_bytes > room && !opcode.is_control() {
            return Err(Error::MessageTooBig);
        }
        let mask = match rest[length_bytes..].first_chunk() {
            _ if !masked => [0; 4],
            Some(mask) => *mask,
            None => return Ok(None),
        };
        let header_bytes = 2 + length_bytes + if masked { 4 } else { 0 };
        Ok(Some((Frame { opcode, fin, rsv1, mask, left: payload_bytes as usize }, header_bytes)))
    }

    /// Processes the next bytes, already unmasked, of a data frame that can't be delivered in place.
    fn data_payload(&mut self, shared: &mut Shared, frame: Frame, bytes: &[u8]) -> Result<Outcome, Error> {
        // A continuation without a message was already refused with its header.
        let Some(partial) = &mut self.partial else { return Err(Error::UnexpectedContinuation) };
        let Some(message) = &mut partial.message else { return Err(Error::UnexpectedContinuation) };
        partial.payload.extend_from_slice(bytes);
        let is_plain_text = message.kind == Kind::Text && !message.compressed;
        if is_plain_text {
            message.valid = utf8::extend_valid(&partial.payload, message.valid)?;
        }
        if bytes.len() < frame.left {
            partial.frame = Some(frame.after(bytes.len()));
            return Ok(Outcome::Nothing);
        }
        if !frame.fin {
            return Ok(Outcome::Nothing);
        }
        if is_plain_text && message.valid < partial.payload.len() {
            return Err(Error::BadUtf8);
        }
        let Message { kind, compressed, .. } = *message;
        partial.message = None;
        partial.paused = Some(Paused { kind, compressed, inflating: None });
        self.resume(shared)
    }

    /// Continues with the paused message.
    fn resume(&mut self, shared: &mut Shared) -> Result<Outcome, Error> {
        let keeps = self.keeps_context();
        let Some(partial) = &mut self.partial else { return Ok(Outcome::Nothing) };
        let Some(Paused { kind, compressed, inflating }) = partial.paused.take() else {
            return Ok(Outcome::Nothing);
        };
        let inflating = if compressed {
            let window = keeps.then_some(&mut partial.window);
            match shared.inflate_step(&partial.payload, window, inflating)? {
                Step::Inflated => {
                    partial.payload = Vec::new();
                    return Ok(Outcome::Message(kind, PayloadRange::Inflated));
                }
                Step::Paused(inflating) => inflating,
            }
        } else if shared.may_deliver(partial.payload.len()) {
            // The UTF-8 was checked on arrival.
            shared.gathered = std::mem::take(&mut partial.payload);
            return Ok(Outcome::Message(kind, PayloadRange::Gathered(0)));
        } else {
            None
        };
        partial.paused = Some(Paused { kind, compressed, inflating });
        Ok(Outcome::Nothing)
    }

    /// Processes the next bytes, `input[start..end]`, already unmasked, of a control frame.
    fn control_payload(
        &mut self,
        shared: &mut Shared,
        frame: Frame,
        input: &[u8],
        (start, end): (usize, usize),
        transmit: &mut Vec<u8>,
    ) -> Result<Outcome, Error> {
        let bytes = &input[start..end];
        if bytes.len() < frame.left {
            let partial = self.partial.get_or_insert_default();
            partial.control.extend_from_slice(bytes);
            partial.frame = Some(frame.after(bytes.len()));
            return Ok(Outcome::Nothing);
        }
        let (payload, place) = match &mut self.partial {
            Some(partial) if !partial.control.is_empty() => {
                partial.control.extend_from_slice(bytes);
                shared.gathered = std::mem::take(&mut partial.control);
                (&shared.gathered[..], PayloadRange::Gathered(0))
            }
            _ => (bytes, PayloadRange::Input(start, end)),
        };
        match frame.opcode {
            Opcode::Ping => {
                if self.phase == Phase::Open {
                    self.send(Opcode::Pong, payload, transmit);
                }
                Ok(Outcome::Ping)
            }
            Opcode::Close => {
                let (code, reason) = match *payload {
                    [] => (1005, &[][..]),
                    [_] => return Err(Error::BadClosePayload),
                    [high, low, ref reason @ ..] => {
                        let code = u16::from_be_bytes([high, low]);
                        if !is_sendable_code(code) {
                            return Err(Error::BadCloseCode);
                        }
                        if str::from_utf8(reason).is_err() {
                            return Err(Error::BadUtf8);
                        }
                        (code, reason)
                    }
                };
                if self.phase == Phase::Open {
                    // Code and reason are sent back unchanged. The reason has just been checked.
                    self.send_close(code, str::from_utf8(reason).unwrap_or_default(), transmit);
                }
                self.phase = Phase::Closed;
                Ok(Outcome::Closed(code, place.after(payload.len().min(2))))
            }
            _ => Ok(Outcome::Pong(place)),
        }
    }

    fn send_close(&mut self, code: u16, reason: &str, transmit: &mut Vec<u8>) {
        let mut payload = [0; CONTROL_BYTES_MAX];
        let mut len = 0;
        if is_sendable_code(code) {
            let reason = &reason[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)];
            len = 2 + reason.len();
            payload[..2].copy_from_slice(&code.to_be_bytes());
            payload[2..len].copy_from_slice(reason.as_bytes());
        }
        self.send(Opcode::Close, &payload[..len], transmit);
    }

    fn send(&mut self, opcode: Opcode, payload: &[u8], transmit: &mut Vec<u8>) {
        let mask = self.next_mask();
        frame::encode(transmit, opcode, payload, false, mask);
    }

    /// Frees the memory for partial messages if it is unused.
    fn drop_idle_partial(&mut self) {
        if self.is_closed() || self.partial.as_ref().is_some_and(|partial| partial.is_idle()) {
            self.partial = None;
        }
    }
}

/// Returns `true` for a code that may be in a close frame (RFC 6455 section 7.4, and the registry: 1012 to
/// 1014).
fn is_sendable_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
