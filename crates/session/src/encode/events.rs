//! Publications as Server-Sent Events.

use super::content::{raw, v1};
use super::json::push_string;
use stentor_hub::{Body, FeedState, Key, Position};
use stentor_wire::sse;
use stentor_wire::ws::Opcode;

/// Returns a publication as an event. After a document, further events may report why the whole document is sent, and that
/// it may be out of date.
pub(super) fn event(body: &Body, with_id: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len() + 128);
    let state_event = |out: &mut Vec<u8>, key: &Key, state: FeedState, reason: Option<&str>| {
        let mut data = Vec::new();
        push_string(&mut data, r#"{"feed":"#, key.as_str());
        push_string(&mut data, r#","state":"#, state.as_str());
        if let Some(reason) = reason {
            push_string(&mut data, r#","reason":"#, reason);
        }
        data.push(b'}');
        let data = std::str::from_utf8(&data).unwrap_or_default();
        sse::write_event(out, &sse::Event { id: None, event: Some("state"), data });
    };
    let write_id = |out: &mut Vec<u8>, key: &Key, Position { epoch, offset }: Position| {
        if with_id {
            sse::write_position_id(out, [sse::Position { key: key.as_str().into(), epoch: epoch.0, offset }]);
        }
    };
    match body {
        Body::Snapshot { key, position, state, snapshot_reason, .. } => {
            write_id(&mut out, key, *position);
            let data = raw(body)?;
            // A page would mistake base64 for text, so documents of bytes have an event of their own.
            let name = if data.opcode == Opcode::Text { "snapshot" } else { "snapshot-base64" };
            sse::write_event(&mut out, &sse::Event { id: None, event: Some(name), data: &data.text() });
            // The reason follows the document. In the other order, a client that is disconnected in between would know the
            // id without having the document.
            if let Some(snapshot_reason) = snapshot_reason {
                let mut data = Vec::new();
                push_string(&mut data, r#"{"feed":"#, key.as_str());
                push_string(&mut data, r#","reason":"#, snapshot_reason.as_str());
                data.push(b'}');
                let data = std::str::from_utf8(&data).unwrap_or_default();
                sse::write_event(&mut out, &sse::Event { id: None, event: Some("reset"), data });
            }
            if *state != FeedState::Live {
                state_event(&mut out, key, *state, None);
            }
        }
        Body::Delta { key, position, .. } => {
            write_id(&mut out, key, *position);
            let data = v1(body);
            sse::write_event(&mut out, &sse::Event { id: None, event: Some("delta"), data: &data.text() });
        }
        Body::State { key, state, reason } => state_event(&mut out, key, *state, Some(reason)),
        Body::Presence { .. } => return None,
        Body::Message { .. } => {
            sse::write_event(&mut out, &sse::Event { data: &raw(body)?.text(), ..sse::Event::default() });
        }
    }
    Some(out)
}
