//! Rules: what an event of a Socket.IO client does, without code. Rooms are named by [`Template`]s over the event's
//! arguments; of several the first that has a value counts, so that a client may send a name or an object with a name in
//! it.

use crate::message::Arguments;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use stentor_hub::HistoryLimits;
use stentor_json as json;

/// Longest template, in bytes: a room's name is no longer.
const TEMPLATE_BYTES_MAX: usize = 256;

/// How a room's name is made of an event's arguments: text, with `{}` for the first argument, `{1}` for the second,
/// `{name}` for a member of the first, and `{1.name}` of the second. A string or a number has a value, nothing else. A number's is as
/// JavaScript writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument { number: usize, member: Option<String> },
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError(&'static str);

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for TemplateError {}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// If a brace has no partner, or the text is empty or longer than a room's name may be.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.is_empty() || text.len() > TEMPLATE_BYTES_MAX {
            return Err(TemplateError("a template has 1 to 256 bytes"));
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            if !rest[open..].starts_with('{') {
                return Err(TemplateError("a } has no { before it"));
            }
            let close = rest[open..].find('}').ok_or(TemplateError("a { has no } after it"))? + open;
            if open > 0 {
                pieces.push(Piece::Text(rest[..open].to_owned()));
            }
            pieces.push(argument(&rest[open + 1..close]));
            rest = &rest[close + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// The room's name; `None` where an argument isn't there or is no string or number.
    pub fn fill<'a>(&'a self, arguments: Arguments<'a>) -> Option<Cow<'a, str>> {
        let value = |piece: &'a Piece| match piece {
            Piece::Text(text) => Some(Cow::Borrowed(text.as_str())),
            Piece::Argument { number, member } => {
                let argument = json::elements(arguments.json).nth(*number)?;
                scalar(match member {
                    None => argument,
                    Some(name) => json::member(argument, name)?,
                })
            }
        };
        if let [piece] = self.0.as_slice() {
            return value(piece);
        }
        let values: Option<Vec<_>> = self.0.iter().map(value).collect();
        Some(Cow::Owned(values?.concat()))
    }
}

/// What stands between braces.
fn argument(text: &str) -> Piece {
    let (number, member) = match text.split_once('.') {
        Some((number, member)) if number.parse::<usize>().is_ok() => (number, Some(member)),
        _ if text.parse::<usize>().is_ok() => (text, None),
        _ => ("0", Some(text).filter(|name| !name.is_empty())),
    };
    Piece::Argument { number: number.parse().unwrap_or(0), member: member.map(str::to_owned) }
}

/// The value of a JSON text that is a string or a number.
fn scalar(value: &str) -> Option<Cow<'_, str>> {
    json::string(value).or_else(|| json::number_text(value))
}

/// What one event does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The event's name.
    pub event: String,
    /// In which namespace; in every one where it is `None`.
    pub namespace: Option<String>,
    /// Rooms to join: the first template that has a value.
    pub join: Vec<Template>,
    /// Rooms to leave, likewise.
    pub leave: Vec<Template>,
    /// The room to send the event to, likewise.
    pub broadcast: Vec<Template>,
    /// To send it to everybody in the namespace.
    pub broadcast_all: bool,
    /// The name that it is sent with, where that is another.
    pub broadcast_as: Option<String>,
    /// Whether its sender doesn't get what it sends.
    pub except_sender: bool,
    /// Whether it is sent back.
    pub echo: bool,
    /// Whether it is acknowledged.
    pub ack: bool,
}

/// Presence: the members of rooms, for clients with the permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The rooms that have presence: prefixes of their names. None: clients learn only how many members there are.
    pub rooms: Vec<String>,
    /// Members of a room that are listed. Further ones are counted.
    pub members_max: usize,
    /// Bytes of what is shown with a member. More isn't shown.
    pub info_bytes_max: usize,
    /// How long a session that ended stays a member, in case that its user returns.
    pub grace: Duration,
    /// The event by which Socket.IO clients ask, and are notified.
    pub event: String,
}

impl Default for Presence {
    fn default() -> Self {
        Self {
            rooms: Vec::new(),
            members_max: 1_000,
            info_bytes_max: 512,
            grace: Duration::from_secs(5),
            event: "stentor:presence".to_owned(),
        }
    }
}

/// What the application `rooms` lets clients do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    /// Whether clients may publish.
    pub publish: bool,
    /// Which rooms keep history: by the longest matching prefix of the name.
    pub history: Vec<(String, HistoryLimits)>,
    /// Namespaces of Socket.IO that there are, beside the main one.
    pub namespaces: Vec<String>,
    /// What events of Socket.IO clients do. The first that is for an event counts.
    pub rules: Vec<Rule>,
    /// Presence.
    pub presence: Presence,
}

#[cfg(test)]
mod tests;
