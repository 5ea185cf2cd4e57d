//! Parses the text of a packet into the positions of its parts.

use std::ops::Range;

use super::packet::{Ack, Arguments, Attachments, Body, Event, Packet, RESERVED_EVENTS, Version};
use super::{Error, Role, placeholder};
use stentor_json::{self as json, is_space};

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
    parts: Parts,
}

/// Positions of the parts of a payload.
#[derive(Debug, Clone)]
struct Parts {
    /// The complete payload, or the inside of an array without white space at its ends. Empty if the packet
    /// has no payload.
    payload: Range<usize>,
    /// An event's name is `payload.start..name_end`, its arguments `arguments_start..payload.end`.
    name_end: usize,
    /// `true` if the event's name is a string with escapes.
    is_name_escaped: bool,
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
    let parts = match kind {
        Kind::Event => Parts::of_event(text, at)?,
        Kind::Ack if id.is_none() => return Err(Error::BadId),
        // As in the reference, an ack without payload has no arguments.
        Kind::Ack if at == bytes.len() && attachments == 0 => Parts::of_text(text, at),
        Kind::Ack => Parts::of_array(text, at)?,
        Kind::Connect | Kind::ConnectError | Kind::Disconnect if id.is_some() => return Err(Error::BadId),
        Kind::Connect | Kind::ConnectError | Kind::Disconnect => {
            check_control(kind, version, &text[at..])?;
            Parts::of_text(text, at)
        }
    };
    if is_binary {
        placeholder::check_placeholders(&text[parts.payload.clone()], attachments)?;
    }
    Ok(Layout { kind, attachments, namespace, query, id, parts })
}

/// Reads an event of the main namespace without attachments, the most frequent packet. `None` for any other text, and
/// for an event that isn't valid.
#[inline]
pub fn lone_event(text: &str) -> Option<Event<'_>> {
    let [b'2', ..] = text.as_bytes() else { return None };
    let (id, start) = ack_id(text.as_bytes(), 1).ok()?;
    let (_, list) = inside_of_array(text, start).ok()?;
    read_event(list, id, Attachments::default()).ok()
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
    match bytes.get(start) {
        Some(b'0'..=b'9') => read_ack_id(bytes, start),
        _ => Ok((None, start)),
    }
}

fn read_ack_id(bytes: &[u8], start: usize) -> Result<(Option<u64>, usize), Error> {
    let mut at = start;
    let mut id = 0u64;
    while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
        let digit = u64::from(digit - b'0');
        id = id.checked_mul(10).and_then(|id| id.checked_add(digit)).ok_or(Error::BadId)?;
        at += 1;
    }
    Ok((Some(id), at))
}

impl Parts {
    /// The payload is the rest of the text.
    fn of_text(text: &str, start: usize) -> Self {
        Parts { payload: start..text.len(), name_end: start, is_name_escaped: false, arguments_start: start }
    }

    /// Reads the array that fills the rest of the text.
    fn of_array(text: &str, start: usize) -> Result<Self, Error> {
        let (start, list) = inside_of_array(text, start)?;
        if !list.is_empty() {
            json::check_list(list)?;
        }
        let payload = start..start + list.len();
        Ok(Parts { payload, name_end: start, is_name_escaped: false, arguments_start: start })
    }

    /// Reads the event whose array fills the rest of the text.
    fn of_event(text: &str, start: usize) -> Result<Self, Error> {
        let (start, list) = inside_of_array(text, start)?;
        let Event { raw_name, is_name_escaped, arguments, .. } =
            read_event(list, None, Attachments::default())?;
        let payload = start..start + list.len();
        let arguments_start = payload.end - arguments.raw.len();
        Ok(Parts { payload, name_end: start + raw_name.len(), is_name_escaped, arguments_start })
    }

    #[inline]
    fn arguments<'a>(&self, text: &'a str) -> Arguments<'a> {
        Arguments { raw: part(text, self.arguments_start..self.payload.end) }
    }

    #[inline]
    fn event<'a>(&self, text: &'a str, id: Option<u64>, attachments: Attachments<'a>) -> Event<'a> {
        Event {
            raw_name: part(text, self.payload.start..self.name_end),
            is_name_escaped: self.is_name_escaped,
            arguments: self.arguments(text),
            raw: part(text, self.payload.clone()),
            id,
            attachments,
        }
    }
}

/// Returns the inside of the array that fills the rest of the text, without whitespace at its ends, and its position.
#[inline]
fn inside_of_array(text: &str, start: usize) -> Result<(usize, &str), Error> {
    let rest = part(text, start..text.len());
    let Some(rest) = json::strip_byte(rest, b'[') else {
        return Err(if rest.is_empty() { Error::MissingPayload } else { Error::BadPayload });
    };
    let rest = json::trim_start(rest);
    let [list @ .., b']'] = json::trim_end(rest).as_bytes() else { return Err(Error::BadJson) };
    Ok((text.len() - rest.len(), json::trim_end(part(rest, 0..list.len()))))
}

/// Reads an event from the inside of its array.
#[inline]
fn read_event<'a>(list: &'a str, id: Option<u64>, attachments: Attachments<'a>) -> Result<Event<'a>, Error> {
    if list.is_empty() {
        return Err(Error::BadEventName);
    }
    let (name_bytes, is_name_escaped) = json::check_list(list)?;
    let bytes = list.as_bytes();
    if !matches!(bytes.first(), Some(b'"' | b'-' | b'0'..=b'9')) {
        return Err(Error::BadEventName);
    }
    // The first letter alone excludes most names.
    if matches!(bytes.get(1), Some(b'c' | b'd' | b'n' | b'r' | b'\\'))
        && is_reserved(part(list, 1..name_bytes - 1), is_name_escaped)
    {
        return Err(Error::ReservedEventName);
    }
    // The end of the list, or a comma and a value, follow the name.
    let (raw_name, rest) = list.split_at_checked(name_bytes).unwrap_or_default();
    let raw = json::strip_byte(json::trim_start(rest), b',').map_or("", json::trim_start);
    Ok(Event { raw_name, is_name_escaped, arguments: Arguments { raw }, raw: list, id, attachments })
}

fn check_control(kind: Kind, version: Version, payload: &str) -> Result<(), Error> {
    let Some(first) = payload.bytes().next() else { return Ok(()) };
    let is_good = match (kind, first) {
        (Kind::Connect, b'{') | (Kind::ConnectError, b'{' | b'"') => true,
        (Kind::ConnectError, _) => version == Version::V4 && !is_space(first),
        _ => false,
    };
    if is_good { Ok(json::check(payload)?) } else { Err(Error::BadPayload) }
}

/// A part of the text that was parsed.
#[inline]
fn part(text: &str, range: Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

impl Layout {
    /// Makes the packet. `text` must be the text that was parsed.
    #[inline]
    pub(super) fn packet<'a>(&self, text: &'a str, attachments: Attachments<'a>) -> Packet<'a> {
        let Layout { namespace, query, id, parts, .. } = self;
        let payload = part(text, parts.payload.clone());
        let body = match self.kind {
            Kind::Connect => Body::Connect {
                payload: Some(payload).filter(|payload| !payload.is_empty()),
                query: query.as_ref().map(|query| part(text, query.clone())),
            },
            Kind::ConnectError => {
                Body::ConnectError { payload: Some(payload).filter(|payload| !payload.is_empty()) }
            }
            Kind::Disconnect => Body::Disconnect,
            Kind::Event => Body::Event(parts.event(text, *id, attachments)),
            Kind::Ack => {
                Body::Ack(Ack { id: id.unwrap_or_default(), arguments: parts.arguments(text), attachments })
            }
        };
        let namespace = if namespace.is_empty() { "/" } else { part(text, namespace.clone()) };
        Packet { namespace, body }
    }
}

/// Returns `true` if an event's name, without its quotes, is reserved.
fn is_reserved(raw_name: &str, is_escaped: bool) -> bool {
    RESERVED_EVENTS
        .iter()
        .any(|reserved| raw_name == *reserved || is_escaped && json::string_is(raw_name, reserved))
}
