//! Socket.IO's Redis adapters: one payload, decoded as each kind of message.

use bytes::Bytes;
use stentor_cluster::socketio::channels::Channels;
use stentor_cluster::socketio::{
    ATTACHMENTS_MAX, Broadcast, Parser, ROOMS_MAX, Request, Response, WireError, python, sender, sharded,
};

/// Checks that a decoded message can be encoded, unless limits prevent it, and decodes to the same message
/// again.
fn check<T>(
    payload: &Bytes,
    decode: impl Fn(&Bytes) -> Result<T, WireError>,
    encode: impl Fn(&T) -> Result<Bytes, WireError>,
) {
    let Ok(message) = decode(payload) else { return };
    let is_limit = |error| {
        use WireError::{NameTooLong, NoBinary, TooDeep, TooLarge, TooMany};
        matches!(error, TooLarge | TooDeep | TooMany | NameTooLong | NoBinary)
    };
    match encode(&message) {
        Ok(encoded) => match decode(&encoded) {
            Ok(again) => assert_eq!(encode(&again), Ok(encoded)),
            Err(error) => assert!(is_limit(error), "{error}"),
        },
        Err(error) => assert!(is_limit(error), "{error}"),
    }
}

/// Checks the input as a payload of each kind, and as a channel.
pub fn payloads(data: &[u8]) {
    let payload = Bytes::copy_from_slice(data);
    let _ = Channels::new("socket.io", "/").decode(data);
    for parser in [Parser::MessagePack, Parser::Json] {
        check(&payload, Request::decode, |request| request.encode(parser));
        check(&payload, Response::decode, |response| response.encode(parser));
        check(&payload, Broadcast::decode, |broadcast| broadcast.encode(parser));
    }
    if let Ok(broadcast) = Broadcast::decode(&payload) {
        assert!(broadcast.selection.rooms.len() <= ROOMS_MAX);
        assert!(broadcast.event.arguments.len() <= 6 * data.len() + 40 * ATTACHMENTS_MAX);
        assert!(sender(data).is_none_or(|sender| sender == &*broadcast.uid));
    }
    check(&payload, sharded::Message::decode, sharded::Message::encode);
    check(&payload, python::Message::decode, python::Message::encode);
}
