//! Socket.IO 0.6, as its `lib/socket.io/utils.js` and `client.js` have it: what is in the frames of its WebSocket
//! (draft 76, see `hixie`).
//!
//! A frame has one message or more, each `~m~LENGTH~m~` and so many UTF-16 units. The first one is the session's id. Those
//! that begin with `~h~` are heartbeats, answered with the same; with `~j~`, JSON. Everything else is the application's.
//!
//! Deliberately absent: messages of a server's that aren't ASCII, whose length would be another one in bytes.

use super::Fault;
use super::envelope::{OTHER_BYTES_MAX, TooLong};
use super::session::Heard;

const MARK: &[u8] = b"~m~";
/// Digits of a length.
const DIGITS_MAX: u8 = 8;
const HEARTBEAT: &[u8] = b"~h~";

/// A part of what frames bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inner<'a> {
    /// The next bytes of a message of the application's, perhaps none, and whether they are the last.
    Load { bytes: &'a [u8], ends: bool },
    /// A whole message that isn't.
    Other(&'a [u8]),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Between two messages.
    #[default]
    Between,
    /// In the mark before a length; so many of its bytes have come.
    Before(usize),
    /// In a length, of which so many digits have come.
    Length(u8),
    /// In the mark behind it.
    Behind(usize),
    /// Before a message, which tells by its first byte what it is.
    First,
    Load,
    Other,
}

/// Cuts the messages of one connection out of its frames.
///
/// Invariant: `left` counts the bytes of the message at hand that have not come.
#[derive(Debug, Default)]
pub(super) struct InnerReader {
    stage: Stage,
    left: usize,
    other: Vec<u8>,
    /// The session's id has come.
    named: bool,
}

impl InnerReader {
    /// Takes the next bytes of a frame, the last ones if it `ends` with them.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        ends: bool,
        mut each: impl FnMut(Inner<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while let Some((first, rest)) = bytes.split_first() {
            match self.stage {
                Stage::Between => self.stage = Stage::Before(0),
                Stage::Before(at) if *first == MARK[at] => {
                    bytes = rest;
                    self.stage = if at + 1 < MARK.len() { Stage::Before(at + 1) } else { Stage::Length(0) };
                }
                Stage::Length(digits) if first.is_ascii_digit() && digits < DIGITS_MAX => {
                    bytes = rest;
                    self.left = self.left * 10 + usize::from(first - b'0');
                    self.stage = Stage::Length(digits + 1);
                }
                Stage::Length(digits) if digits > 0 => self.stage = Stage::Behind(0),
                Stage::Behind(at) if *first == MARK[at] => {
                    bytes = rest;
                    self.stage = if at + 1 < MARK.len() { Stage::Behind(at + 1) } else { Stage::First };
                    if self.stage == Stage::First && self.left == 0 {
                        self.stage = if self.named { Stage::Load } else { Stage::Other };
                        self.hand_out(b"", &mut each)?;
                    }
                }
                Stage::First if !self.named || *first == b'~' => self.stage = Stage::Other,
                Stage::First => self.stage = Stage::Load,
                Stage::Load | Stage::Other => {
                    let (here, rest) = bytes.split_at(self.left.min(bytes.len()));
                    bytes = rest;
                    self.left -= here.len();
                    self.hand_out(here, &mut each)?;
                }
                Stage::Before(_) | Stage::Length(_) | Stage::Behind(_) => {
                    return Err(Fault::Answer("a message without its length"));
                }
            }
        }
        if ends && self.stage != Stage::Between {
            return Err(Fault::Answer("a message that is shorter than its length"));
        }
        Ok(())
    }

    /// The next bytes of the message at hand.
    fn hand_out(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Inner<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (is_load, ends) = (self.stage == Stage::Load, self.left == 0);
        if ends {
            self.stage = Stage::Between;
        }
        if is_load {
            return each(Inner::Load { bytes, ends });
        }
        if self.other.len() + bytes.len() > OTHER_BYTES_MAX {
            return Err(TooLong.into());
        }
        self.other.extend_from_slice(bytes);
        if !ends {
            return Ok(());
        }
        self.named = true;
        each(Inner::Other(&std::mem::take(&mut self.other)))
    }
}

/// A message that isn't the load's, of a session that `is_open` already or not.
pub(super) fn hear(message: &[u8], is_open: bool) -> Heard {
    match str::from_utf8(message) {
        _ if !is_open => Heard::OPENED,
        Ok(heartbeat) if message.starts_with(HEARTBEAT) => Heard::say(heartbeat.to_owned()),
        _ => Heard::NOTHING,
    }
}

/// Appends a message, which is ASCII.
pub(super) fn write_message(out: &mut Vec<u8>, message: &[u8]) {
    out.extend_from_slice(format!("~m~{}~m~", message.len()).as_bytes());
    out.extend_from_slice(message);
}
