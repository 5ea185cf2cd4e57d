//! The service as the cluster calls it.

use crate::inbox::Inbox;
use crate::view::View;
use bytes::Bytes;
use std::sync::Arc;
use stentor_ports::{LinkInfo, LinkNodeSink};

/// The side of the service that the cluster calls.
pub(crate) struct NodeSink {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) view: Arc<View>,
}

stentor_ports::opaque_debug!(NodeSink, "NodeSink");

impl LinkNodeSink for NodeSink {
    fn receive(&self, node: u64, app: &str, message: &Bytes) {
        self.inbox.receive(node, app, message);
    }

    fn links(&self) -> Vec<LinkInfo> {
        self.view.links()
    }

    fn node_left(&self, node: u64) {
        self.inbox.node_left(node);
    }

    fn engine_changed(&self, is_connected: bool) {
        self.inbox.engine_changed(is_connected);
    }
}
