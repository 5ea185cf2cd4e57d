//! The messages and requests of this node that wait for Redis.

use super::{Adapter, Options};
use crate::engine::common::Outgoing;
use crate::engine::redis::direct::Direct;
use crate::engine::redis::link::Link;
use crate::engine::redis::publications::Publish;
use crate::engine::redis::publisher;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stentor_ports::Ledger;

pub(super) struct Publisher {
    pub(super) messages: Arc<Direct>,
    is_connected: AtomicBool,
}

impl Publisher {
    pub(super) fn new(options: &Options, ledger: Arc<Ledger>) -> Self {
        let command = if options.adapter == Adapter::Sharded { "SPUBLISH" } else { "PUBLISH" };
        let outgoing = Outgoing::new(ledger, &options.limits);
        let messages = Direct::new(outgoing, Publish { command, prefix: b"" });
        Self { messages, is_connected: AtomicBool::new(false) }
    }

    /// Returns `true` while the publishing connection exists.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }

    /// Publishes a payload as soon as there is a connection. Returns `true` if the queue has room for it.
    pub(super) fn push(&self, channel: String, payload: Bytes) -> bool {
        let bytes = payload.len();
        let has_room = self.messages.outgoing.append(channel, payload).is_ok();
        if has_room {
            self.messages.flush(bytes);
        }
        has_room
    }

    /// Publishes over one connection until it is lost. Returns the reason.
    pub(super) async fn serve(&self, link: &mut Link) -> String {
        self.set_connected(true);
        let reason = publisher::serve(&self.messages, link).await;
        self.set_connected(false);
        reason
    }
}
