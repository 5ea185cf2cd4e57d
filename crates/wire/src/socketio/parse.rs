//! Parses the text of a packet into the positions of its parts.

use std::ops::Range;

use super::packet::{Ack, Arguments, Attachments, Body, Event, Packet, RESERVED_EVENTS, Version};
use super::{Error, Role, placeholder};
use stentor_json::{self as json, is_space, skip_space};

/// Positions of the parts of a packet in its checked text.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    kind: Kind,
    /// Number of attachments that follow.
    pub(super) attachments: usize,
    /// Empty for `/`.
    namespace: Range<usize>,
    /// The namespace's query, in protocol 4.
    query: Option<Range<usize>>,
    id: Option<u64>,
    /// The complete payload, or the inside of an array without white space at its ends. Empty if the packet
    /// has no payload.
    payload: Range<usize>,
    /// An event's name is `payload.start..name_end`, its arguments `arguments_start..payload.end`.
    name_end: usize,
    arguments_start: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connect,
    Disconnect,
    Event,
    Ack,
    ConnectError,
}

/// Reads and checks a packet's text. Attachments aren't checked.
#[inline]
pub(super) fn parse(
    version: Version,
    role: Role,
    attachments_max: usize,
    text: &str,
) -> Result<Layout, Error> {
    let bytes = text.as_bytes();
    let (kind, is_binary) = match bytes.first().ok_or(Error::Empty)? {
        b'0' => (Kind::Connect, false),
        b'1' => (Kind::Disconnect, false),
        b'2' => (Kind::Event, false),
        b'3' => (Kind::Ack, false),
        b'4' if role == Role::Server => return Err(Error::WrongDirection),
        b'4' => (Kind::ConnectError, false),
        b'5' => (Kind::Event, true),
        b'6' => (Kind::Ack, true),
        _ => return Err(Error::UnknownKind),
    };
    let mut at = 1;
    let mut attachments = 0;
    if is_binary {
        (attachments, at) = attachment_count(bytes, at, attachments_max)?;
    }
    let (mut namespace, mut query) = (at..at, None);
    if bytes.get(at) == Some(&b'/') {
        let end = memchr::memchr(b',', &bytes[at..]).map_or(bytes.len(), |comma| at + comma);
        namespace = at..end;
        at = bytes.len().min(end + 1);
        if version == Version::V4
            && let Some(mark) = memchr::memchr(b'?', &bytes[namespace.clone()])
        {
            let mark = namespace.start + mark;
            query = Some(mark + 1..end);
            namespace.end = mark;
        }
    }
    let id;
    (id, at) = ack_id(bytes, at)?;
    let mut layout = Layout {
        kind,
        attachments,
        namespace,
        query,
        id,
        payload: at..bytes.len(),
        name_end: at,
        arguments_start: at,
    };
    match kind {
        Kind::Event => layout.check_event(text)?,
        Kind::Ack => layout.check_ack(text)?,
        Kind::Connect | Kind::ConnectError | Kind::Disconnect => layout.check_control(version, text)?,
    }
    if is_binary {
        placeholder::check_placeholders(&text[layout.payload.clone()], attachments)?;
    }
    Ok(layout)
}

fn attachment_count(bytes: &[u8], start: usize, attachments_max: usize) -> Result<(usize, usize), Error> {
    let mut at = start;
    let mut count = 0usize;
    while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
        count = count.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
        at += 1;
    }
    if bytes.get(at) != Some(&b'-') || count == 0 {
        return Err(Error::BadAttachmentCount);
    }
    if count > attachments_max {
        return Err(Error::TooManyAttachments);
    }
    Ok((count, at + 1))
}

#[inline]
fn ack_id(bytes: &[u8], start: usize) -> Result<(Option<u64>, usize), Error> {
    let mut at = start;
    let mut id = 0u64;
    while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
        let digit = u64::from(digit - b'0');
        id = id.checked_mul(10).and_then(|id| id.checked_add(digit)).ok_or(Error::BadId)?;
        at += 1;
    }
    Ok(((at > start).then_some(id), at))
}

impl Layout {
    #[inline]
    fn check_event(&mut self, text: &str) -> Result<(), Error> {
        self.check_array(text)?;
        let bytes = text.as_bytes();
        let Range { start, end } = self.payload;
        if !matches!(bytes[start..end].first(), Some(b'"' | b'-' | b'0'..=b'9')) {
            return Err(Error::BadEventName);
        }
        self.name_end = json::value_end(text, start)?;
        if is_reserved(&text[start..self.name_end]) {
            return Err(Error::ReservedEventName);
        }
        // The name is followed by the end, or by a comma and a value.
        let comma = skip_space(bytes, self.name_end);
        self.arguments_start = if comma < end { skip_space(bytes, comma + 1) } else { end };
        Ok(())
    }

    fn check_ack(&mut self, text: &str) -> Result<(), Error> {
        if self.id.is_none() {
            return Err(Error::BadId);
        }
        // As in the reference, an ack without payload has no arguments.
        if self.payload.is_empty() && self.attachments == 0 {
            return Ok(());
        }
        self.check_array(text)?;
        self.arguments_start = self.payload.start;
        Ok(())
    }

    /// Narrows `payload` to the inside of the array, without white space at its ends.
    #[inline]
    fn check_array(&mut self, text: &str) -> Result<(), Error> {
        let bytes = text.as_bytes();
        let Range { start, end } = self.payload;
        match bytes.get(start) {
            Some(b'[') => {}
            Some(_) => return Err(Error::BadPayload),
            None => return Err(Error::MissingPayload),
        }
        let array_end = json::value_end(text, start)?;
        if skip_space(bytes, array_end) != end {
            return Err(Error::BadJson);
        }
        let start = skip_space(bytes, start + 1);
        let mut end = array_end - 1;
        while end > start && is_space(bytes[end - 1]) {
            end -= 1;
        }
        self.payload = start..end;
        Ok(())
    }

    fn check_control(&mut self, version: Version, text: &str) -> Result<(), Error> {
        if self.id.is_some() {
            return Err(Error::BadId);
        }
        let payload = &text[self.payload.clone()];
        let Some(first) = payload.bytes().next() else { return Ok(()) };
        let is_good = match (self.kind, first) {
            (Kind::Connect, b'{') | (Kind::ConnectError, b'{' | b'"') => true,
            (Kind::ConnectError, _) => version == Version::V4 && !is_space(first),
            _ => false,
        };
        if is_good { Ok(json::check(payload)?) } else { Err(Error::BadPayload) }
    }

    /// Makes the packet. `text` must be the text that was parsed.
    #[inline]
    pub(super) fn packet<'a>(&self, text: &'a str, attachments: Attachments<'a>) -> Packet<'a> {
        let part = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
        let payload = part(&self.payload);
        let namespace = if self.namespace.is_empty() { "/" } else { part(&self.namespace) };
        let arguments = Arguments { raw: part(&(self.arguments_start..self.payload.end)) };
        let body = match self.kind {
            Kind::Connect => Body::Connect {
                payload: Some(payload).filter(|payload| !payload.is_empty()),
                query: self.query.as_ref().map(part),
            },
            Kind::ConnectError => {
                Body::ConnectError { payload: Some(payload).filter(|payload| !payload.is_empty()) }
            }
            Kind::Disconnect => Body::Disconnect,
            Kind::Event => Body::Event(Event {
                raw_name: part(&(self.payload.start..self.name_end)),
                arguments,
                raw: payload,
                id: self.id,
                attachments,
            }),
            Kind::Ack => Body::Ack(Ack { id: self.id.unwrap_or_default(), arguments, attachments }),
        };
        Packet { namespace, body }
    }
}

/// Returns `true` if an event's name, as JSON, is reserved.
#[inline]
fn is_reserved(raw_name: &str) -> bool {
    let Some(name) = raw_name.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')) else { return false };
    // The first letter alone excludes most names.
    matches!(name.as_bytes().first(), Some(b'c' | b'd' | b'n' | b'r' | b'\\'))
        && RESERVED_EVENTS.iter().any(|reserved| json::string_is(name, reserved))
}
