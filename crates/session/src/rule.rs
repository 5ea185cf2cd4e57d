//! Rules: actions on events of Socket.IO clients, without code. A rule names rooms by [`Template`]s over the event's arguments.
//! Of several templates, the first one that has a value applies, so that a client may send a name or an object with a name in it.

use crate::message::Arguments;
use std::borrow::Cow;
use std::time::Duration;
use stentor_hub::HistoryLimits;
use stentor_json as json;

/// Maximum length of a template in bytes, which is that of a room's name.
const TEMPLATE_BYTES_MAX: usize = 256;

/// A template for a room's name: text with placeholders for an event's arguments. `{}` is the first argument, `{1}` the second,
/// `{name}` a member of the first, and `{1.name}` a member of the second. Only strings and numbers have a value. Numbers are
/// written as in JavaScript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument { number: usize, member: Option<String> },
}

/// The reason why a text isn't a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(&'static str);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// A brace is unpaired, or the text is empty or longer than 256 bytes.
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

    /// Returns the room's name. `None` if an argument is absent, or is neither a string nor a number.
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

/// Parses the text between braces.
fn argument(text: &str) -> Piece {
    let (number, member) = match text.split_once('.') {
        Some((number, member)) if number.parse::<usize>().is_ok() => (number, Some(member)),
        _ if text.parse::<usize>().is_ok() => (text, None),
        _ => ("0", Some(text).filter(|name| !name.is_empty())),
    };
    Piece::Argument { number: number.parse().unwrap_or(0), member: member.map(str::to_owned) }
}

/// Returns the value of a JSON text. `None` if it is neither a string nor a number.
fn scalar(value: &str) -> Option<Cow<'_, str>> {
    json::string(value).or_else(|| json::number_text(value))
}

/// The actions on one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The event's name.
    pub event: String,
    /// The namespace. `None` for all namespaces.
    pub namespace: Option<String>,
    /// Room to join: the first template that has a value.
    pub join: Vec<Template>,
    /// Room to leave: the first template that has a value.
    pub leave: Vec<Template>,
    /// Room to send the event to: the first template that has a value.
    pub broadcast: Vec<Template>,
    /// `true` to send the event to all sockets of the namespace.
    pub broadcast_all: bool,
    /// The name of the sent event. `None` keeps the name.
    pub broadcast_as: Option<String>,
    /// `true` if the sender doesn't receive its own event.
    pub except_sender: bool,
    /// `true` if the event is sent back to its sender.
    pub echo: bool,
    /// `true` if the event is acknowledged.
    pub ack: bool,
}

crate::ports::with_defaults! {
    /// Options of presence: the members of rooms, for clients with the permission.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Presence {
        /// Prefixes of the names of rooms with presence. In other rooms, clients only learn the number of members.
        pub rooms: Vec<String> = Vec::new(),
        /// Maximum number of listed members of a room. Further members are only counted.
        pub members_max: usize = 1_000,
        /// Maximum size of the public information about a member, in bytes. Larger information isn't shown.
        pub info_bytes_max: usize = 512,
        /// Time for which a session stays a member after its end, in case its user reconnects.
        pub grace: Duration = Duration::from_secs(5),
        /// The event with which Socket.IO clients request members and receive notices.
        pub event: String = "stentor:presence".to_owned(),
    }
}

/// Options of the application `rooms`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    /// `true` if clients may publish.
    pub publish: bool,
    /// Rooms with history, by prefix of the name. The longest matching prefix applies.
    pub history: Vec<(String, HistoryLimits)>,
    /// Socket.IO namespaces besides the main one.
    pub namespaces: Vec<String>,
    /// Rules for events of Socket.IO clients. The first matching rule applies.
    pub rules: Vec<Rule>,
    /// Presence.
    pub presence: Presence,
}

#[cfg(test)]
mod tests;
