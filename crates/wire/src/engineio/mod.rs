//! Engine.IO, protocol 4 (`EIO=4`) and 3 (`EIO=3`), for both roles: packets, payloads, and the requests and the
//! handshake that open a session.
//!
//! The specification is the engine.io-protocol document of each revision. Where a document is silent,
//! engine.io 6.6 and its parsers decide. A packet travels in its own WebSocket message ([`decode_message`],
//! [`encode_message`]), or with other packets in the body of a request or a response ([`PayloadDecoder`],
//! [`PayloadEncoder`]).
//!
//! Deviations from lenient references:
//! * An empty body is an error in every format. So is the empty packet that a leading, doubled or trailing
//!   separator makes. In protocol 3 a packet of length 0 (`0:`) is skipped, as in the reference, whose server
//!   sends it as an empty response.
//! * Only messages carry binary data. The reference accepts binary data in a packet of any kind, or without a
//!   kind.
//! * A length in protocol 3 consists of digits only, and the body must contain that many units. Base64 uses
//!   the standard alphabet, with or without padding. The reference reads `1e0` as a length and skips
//!   characters outside the alphabet.
//! * `EIO` is `4` or `3`. The reference reads every other value as 3.
//!
//! Deliberately absent: sessions and their timers, the order of packet kinds, WebTransport, and protocol 2,
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
