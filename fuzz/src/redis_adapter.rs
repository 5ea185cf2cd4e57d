//! Socket.IO's Redis adapters: one payload, decoded as each kind of message.

use bytes::Bytes;
use stentor_cluster::socketio::channels::Channels;
use stentor_cluster::socketio::{
    ATTACHMENTS_MAX, Broadcast, ROOMS_MAX, Request, Response, WireError, python, sender, sharded,
};

/// What is decoded can be written, and what is written reads the same. Only the limits may prevent that.
fn check<T>(
    payload: &Bytes,
    decode: impl Fn(&Bytes) -> Result<T, WireError>,
    encode: impl Fn(&T) -> Result<Bytes, WireError>,
) -> Option<T> {
    let message = decode(payload).ok()?;
    let is_limit = |error| matches!(error, WireError::TooLarge | WireError::TooDeep | WireError::TooMany | WireError::NameTooLong);
    match encode(&message) {
        Ok(encoded) => match decode(&encoded) {
            Ok(again) => assert_eq!(encode(&again), Ok(encoded)),
            Err(error) => assert!(is_limit(error), "{error}"),
        },
        Err(error) => assert!(is_limit(error), "{error}"),
    }
    Some(message)
}

/// One payload; as a channel, too.
pub fn payloads(data: &[u8]) {
    let payload = Bytes::copy_from_slice(data);
    let _ = Channels::new("socket.io", "/").decode(data);
    if let Some(broadcast) = check(&payload, Broadcast::decode, Broadcast::encode) {
        assert!(broadcast.selection.rooms.len() <= ROOMS_MAX);
        assert!(broadcast.event.arguments.len() <= 6 * data.len() + 40 * ATTACHMENTS_MAX);
        assert!(sender(data).is_none_or(|sender| sender == &*broadcast.uid));
    }
    check(&payload, Request::decode, Request::encode);
    check(&payload, Response::decode, Response::encode);
    check(&payload, sharded::Message::decode, sharded::Message::encode);
    check(&payload, python::Message::decode, python::Message::encode);
}
