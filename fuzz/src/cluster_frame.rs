//! Frames between the nodes of a cluster.

use bytes::Bytes;
use stentor_cluster::NodeId;
use stentor_cluster::engine::Channel;
use stentor_cluster::frame::{Frame, Frames};

const DOCUMENT_BYTES_MAX: usize = 1 << 16;

/// Checks that a decoded frame can be encoded, and decodes to the same frame again.
pub fn frame(data: &[u8]) {
    let (channel, frames) = (Channel::Nodes, Frames::new(NodeId(1), None, DOCUMENT_BYTES_MAX));
    let Ok((_, frame)) = frames.decode(&channel, &Bytes::copy_from_slice(data)) else { return };
    if let Frame::Feed(entry) = &frame
        && let Ok(document) = entry.document(b"")
    {
        assert!(document.body.len() <= DOCUMENT_BYTES_MAX);
    }
    let encoded = frames.encode(&channel, &frame);
    let (_, again) = frames.decode(&channel, &encoded).expect("it was decoded before");
    assert_eq!(frames.encode(&channel, &again), encoded);
}
