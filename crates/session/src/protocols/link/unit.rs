//! Units of a client's messages: a packet of Socket.IO with its attachments.
//!
//! Without units, a crash of the worker between two messages would leave attachments without their packet for the next worker. Only the
//! beginning of a text is read: `5` or `6` for an event or an acknowledgement with attachments, then their number and `-`
//! (Socket.IO protocol 5 and 4, "Packet encoding"). A text that comes in place of an attachment ends the unit; the worker's parser finds the
//! mistake.

use crate::ports::{LinkMessage, LinkMessages, LinkParser};
use bytes::Bytes;
use stentor_wire::engineio::Data;

/// The unit has too many bytes or attachments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// A unit of which attachments may be missing.
#[derive(Default)]
pub(crate) struct Unit {
    pub(crate) parser: LinkParser,
    messages: LinkMessages,
    missing: usize,
    bytes: usize,
}

impl Unit {
    /// Size of the received messages, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a message. Returns the unit if it is complete. `bytes_max` and `attachments_max` bound a unit with attachments.
    ///
    /// # Errors
    /// The unit is too large.
    pub(crate) fn push(
        &mut self,
        data: Data<'_>,
        (bytes_max, attachments_max): (usize, usize),
    ) -> Result<Option<LinkMessages>, TooLarge> {
        let message = match data {
            Data::Text(text) => {
                if self.missing == 0 {
                    self.missing = attachments(text, self.parser);
                }
                if self.missing > attachments_max {
                    return Err(TooLarge);
                }
                LinkMessage::Text(Bytes::copy_from_slice(text.as_bytes()))
            }
            Data::Binary(bytes) => LinkMessage::Binary(Bytes::copy_from_slice(bytes)),
        };
        let is_first = self.messages.is_empty();
        if !is_first && matches!(message, LinkMessage::Text(_)) {
            // The previous packet is incomplete, which its parser reports.
            self.missing = 0;
        }
        self.bytes += message.data().len();
        self.messages.push(message);
        if !is_first && self.missing > 0 {
            self.missing -= 1;
        }
        if self.missing > 0 {
            return if self.bytes > bytes_max { Err(TooLarge) } else { Ok(None) };
        }
        self.bytes = 0;
        Ok(Some(std::mem::take(&mut self.messages)))
    }
}

/// The number of attachments that a text announces.
fn attachments(text: &str, parser: LinkParser) -> usize {
    let digits = text.strip_prefix(['5', '6']).filter(|_| parser == LinkParser::Json);
    let number = digits.and_then(|rest| rest.split_once('-')).map(|(number, _)| number);
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: (usize, usize) = (20, 3);

    /// Checks the numbers of messages in the units that complete with each message. `b` stands for a binary message of 4 bytes.
    fn check(parser: LinkParser, messages: &[&str], expect: &[Result<Option<usize>, TooLarge>]) {
        let mut unit = Unit { parser, ..Unit::default() };
        for (message, expect) in messages.iter().zip(expect) {
            let data = if *message == "b" { Data::Binary(b"1234") } else { Data::Text(message) };
            let pushed = unit.push(data, LIMITS).map(|unit| unit.map(|unit| unit.len()));
            assert_eq!(pushed, *expect, "{messages:?}, {message}");
        }
        assert_eq!(messages.len(), expect.len());
    }

    #[test]
    fn a_packet_and_its_attachments_are_one_unit() {
        use LinkParser::{Json, Opaque};
        check(Json, &["2[\"a\"]", "b", "0"], &[Ok(Some(1)), Ok(Some(1)), Ok(Some(1))]);
        check(Json, &["51-[\"a\"]", "b", "2[]"], &[Ok(None), Ok(Some(2)), Ok(Some(1))]);
        check(Json, &["62-/n,3[]", "b", "b", "b"], &[Ok(None), Ok(None), Ok(Some(3)), Ok(Some(1))]);
        check(Json, &["50-[]", "5x-[]", "51", "5-[]"], &[Ok(Some(1)), Ok(Some(1)), Ok(Some(1)), Ok(Some(1))]);
        check(Opaque, &["51-[]", "b"], &[Ok(Some(1)), Ok(Some(1))]);
    }

    #[test]
    fn a_text_in_place_of_an_attachment_ends_the_unit() {
        check(LinkParser::Json, &["52-[]", "b", "2[]", "b"], &[Ok(None), Ok(None), Ok(Some(3)), Ok(Some(1))]);
    }

    #[test]
    fn units_are_bounded() {
        check(LinkParser::Json, &["54-[]"], &[Err(TooLarge)]);
        check(LinkParser::Json, &["599999999999999999999-[]"], &[Ok(Some(1))]);
        check(LinkParser::Json, &["53-[\"12345678\"]", "b", "b"], &[Ok(None), Ok(None), Err(TooLarge)]);
    }
}
