//! Delivery of events for sessions of this node.

use super::Bridge;
use super::inbox::{Kind, Taken};
use super::namespace::{Namespace, broadcast};
use super::protocol::Incoming;
use super::refused::Refused;
use crate::metrics::count;
use crate::socketio::{Event, Selection};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stentor_ports::{Command, LocalNode};

impl Bridge {
    /// Handles arrived messages in order, for as long as the node runs.
    pub(super) async fn handle_all(self: Arc<Self>, plane: Arc<dyn LocalNode>) {
        loop {
            let taken = self.inbox.next().await;
            if let Err(reason) = self.handle(&taken, &plane).await {
                self.counters.count_refused(reason);
                if !self.has_reported_refusal.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        prefix = self.options.prefix,
                        %reason,
                        "a message of another server is refused; further ones are counted only, in stentor_bridge_messages_refused_total"
                    );
                }
            }
        }
    }

    async fn handle(self: &Arc<Self>, taken: &Taken<'_>, plane: &Arc<dyn LocalNode>) -> Result<(), Refused> {
        let arrived = &taken.message;
        let namespace = &self.namespaces[arrived.namespace];
        if let Kind::Broadcast(Some(room)) = &arrived.kind
            && !namespace.may_concern(room, &**plane)
        {
            return Ok(());
        }
        if !taken.count_decoded() {
            return Err(Refused::Memory);
        }
        let Some((name, incoming)) = namespace.protocol.decode(&arrived.kind, &arrived.payload)? else {
            return Ok(());
        };
        // Servers in Python have one channel for all namespaces, including those that aren't shared.
        let Some(namespace) = self.namespaces.iter().find(|namespace| namespace.name == name) else {
            return Ok(());
        };
        match incoming {
            Incoming::Broadcast { selection, volatile, event } => {
                self.deliver(namespace, &selection, event, volatile, plane).await
            }
            Incoming::Request(request) => self.handle_request(namespace, request, plane).await,
            Incoming::Response(response) => {
                self.pending.handle(response);
                Ok(())
            }
        }
    }

    /// Delivers an event to sessions of this node.
    pub(super) async fn deliver(
        &self,
        namespace: &Namespace,
        selection: &Selection,
        event: Event,
        volatile: bool,
        plane: &Arc<dyn LocalNode>,
    ) -> Result<(), Refused> {
        let target = namespace.local(selection, &**plane)?;
        if target.is_empty() {
            return Ok(());
        }
        count(&self.counters.received);
        // Each session receives the event once, because named sessions are not members of the rooms.
        if !target.sessions.is_empty() {
            // Later messages wait until this event has been sent, so that they can't overtake it.
            let (name, data) = (&event.name, &event.arguments);
            let emit = |done| Command::Emit { event: Some(name.clone()), data: data.clone(), volatile, done };
            // An error means that the node stops, and its sessions end.
            let _ = self.ordered.carry_out(plane, &target.clone().only_sessions(), emit).await;
        }
        if let Some(message) = broadcast(target, event, volatile) {
            self.ordered.deliver(plane, message).await;
        }
        Ok(())
    }
}
