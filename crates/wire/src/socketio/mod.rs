//! Socket.IO, protocol 5 (over Engine.IO 4) and 4 (over Engine.IO 3), for both roles.
//!
//! A packet is the text of an Engine.IO message, followed by its attachments, binary messages each:
//!
//! ```text
//! <kind>[<attachments>-][<namespace>,][<ack id>][<JSON>]
//! ```
//!
//! [`Decoder`] takes messages and yields [`Packet`]s, the `write_*` functions append the text of one. The specification
//! is the socket.io-protocol document of each revision; where it says nothing, socket.io-parser 4.2.7 does, for both
//! revisions, as in the reference server.
//!
//! Decisions:
//! * JSON is checked and passed on as it was written. What is looked into is a list's cut into values, an event's name
//!   and placeholders.
//! * A text packet without attachments is yielded where it lies: no allocation, no copy. Of a packet with attachments,
//!   text and all attachments but the last are gathered, in memory that grows with what has arrived.
//! * An event's name is a string or, as in the reference, a number; the names that Socket.IO keeps for itself are
//!   refused, in every way of writing them.
//! * A placeholder is an object with `"_placeholder":true`, with `num` a whole number that names an attachment, and whatever other
//!   members. Attachments may be named twice or not at all. In a packet without attachments it is an object like others. All this is
//!   as in the reference.
//!
//! Stricter than the reference for packets that no client sends: an event has a payload, an ack has an id and others
//! but events have none, counts and ids are digits (it takes `2 [` for id 0, and `51.0-` for one attachment), an id
//! has 64 bits.
//!
//! Deliberately absent: connections, namespaces and who may send what when ([`Decoder`] only refuses what no server or
//! no client ever sends); other parsers (msgpack).
//!
//! ```
//! use stentor_wire::socketio::{Body, Decoder, Head, Limits, Role, Version, write_event};
//!
//! let mut decoder = Decoder::new(Version::V5, Role::Server);
//! let packet = decoder.text(r#"2/chat,["message",{"a":1}]"#, &Limits::default()).unwrap().unwrap();
//! let Body::Event(event) = packet.body else { panic!() };
//! assert_eq!((packet.namespace, &*event.name(), event.arguments.raw()), ("/chat", "message", r#"{"a":1}"#));
//!
//! // The same arguments, under another name, and one more.
//! let mut out = Vec::new();
//! write_event(&mut out, &Head::new("/chat"), "reply", &[event.arguments.raw(), "\"offset\""]);
//! assert_eq!(out, br#"2/chat,["reply",{"a":1},"offset"]"#);
//! ```

mod decoder;
mod encode;
mod error;
mod packet;
mod parse;
mod placeholder;

pub use crate::ws::Role;
pub use decoder::{Assembled, Decoder, Limits};
pub use encode::{
    Head, write_ack, write_connect, write_connect_error, write_connected, write_disconnect, write_event,
    write_event_list,
};
pub use error::Error;
pub use packet::{Ack, Arguments, Attachments, Body, Event, Packet, RESERVED_EVENTS, Version};
pub use placeholder::{
    Placeholder, check_placeholders, placeholders, renumber_placeholders, write_placeholder,
};

#[cfg(test)]
mod tests;
