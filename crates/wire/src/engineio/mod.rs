//! Engine.IO, protocol 4 (`EIO=4`) and 3 (`EIO=3`), for both roles: packets, payloads, and the requests and the
//! handshake that open a session.
//!
//! The specification is the engine.io-protocol document of each revision; where it says nothing, engine.io 6.6 and its
//! parsers do. A packet travels in a WebSocket message of its own ([`decode_message`], [`encode_message`]) or, with
//! others, in the body of a request or an answer ([`PayloadDecoder`], [`PayloadEncoder`]).
//!
//! Decisions, where the references are lenient:
//! * An empty body is an error in every format, and so is the empty packet that a leading, doubled or trailing separator
//!   makes. In protocol 3 a packet of length 0 (`0:`) is skipped, as the reference does: its server answers so where it
//!   has nothing to say.
//! * Only messages carry binary data. The reference lets a packet with binary data be of any kind, or of none.
//! * A length of protocol 3 is digits and nothing else, and what it counts is there; base64 is the standard alphabet,
//!   with padding or without. The reference reads `1e0` as a length and skips what is no base64.
//! * `EIO` is `4` or `3`. The reference takes all else for 3.
//!
//! Deliberately absent: sessions and their timers, which kind of packet may come when, WebTransport, and protocol 2,
//! which is refused by name.

mod error;
mod jsonp;
mod open;
mod packet;
mod payload;
mod request;

pub use error::Error;
pub use jsonp::{
    decode_form as decode_jsonp_form, encode_form as encode_jsonp_form, write_answer as write_jsonp_answer,
};
pub use open::Open;
pub use packet::{Data, Packet, PacketKind, Version, decode_message, encode_message, message_header};
pub use payload::{PayloadDecoder, PayloadEncoder, PayloadFormat};
pub use request::{Request, RequestError, Transport};

#[cfg(test)]
mod tests;
