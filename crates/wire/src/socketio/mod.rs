//! Socket.IO, protocol 5 (over Engine.IO 4) and 4 (over Engine.IO 3), for both roles.
//!
//! A packet is the text of an Engine.IO message. Its attachments follow, each in a binary message:
//!
//! ```text
//! <kind>[<attachments>-][<namespace>,][<ack id>][<JSON>]
//! ```
//!
//! [`Decoder`] reads messages and returns [`Packet`]s; the `write_*` functions append the text of a packet.
//! The specification is the socket.io-protocol document of each revision. Where a document is silent,
//! socket.io-parser 4.2.7 decides for both revisions, as in the reference server.
//!
//! Decisions:
//! * JSON is checked and otherwise passed on unchanged. The decoder only splits lists into values, and reads
//!   event names and placeholders.
//! * A text packet without attachments borrows from the message: no allocation, no copy. The text of a packet
//!   with attachments, and all attachments but the last, are copied to memory that grows with the received
//!   bytes.
//! * An event's name is a string or, as in the reference, a number. Names that Socket.IO reserves are
//!   refused, however they are escaped.
//! * A placeholder is an object with `"_placeholder":true`, with `num` a whole number that refers to an
//!   attachment, and any other members. Attachments may be referenced twice or not at all. In a packet
//!   without attachments, such an object is an ordinary object. All this is as in the reference.
//!
//! Stricter than the reference for packets that no client sends: an event has a payload; an ack has an id;
//! packets other than events and acks have none; counts and ids are digits (the reference reads `2 [` as id
//! 0, and `51.0-` as one attachment); an id has at most 64 bits.
//!
//! Deliberately absent: connections, namespaces and the order of packets ([`Decoder`] only refuses packets
//! that no server or no client ever sends); other parsers (msgpack).
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
    write_event_list, write_lone_event,
};
pub use error::Error;
pub use packet::{Ack, Arguments, Attachments, Body, Event, Packet, RESERVED_EVENTS, Version};
pub use parse::lone_event;
pub use placeholder::{
    Placeholder, check_placeholders, placeholders, renumber_placeholders, write_placeholder,
};

#[cfg(test)]
mod tests;
