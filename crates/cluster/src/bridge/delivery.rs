//! What arrives: events for sessions of this node.

use super::Bridge;
use super::inbox::{Arrived, Kind};
use super::namespace::Namespace;
use super::refused::Refused;
use crate::metrics::count;
use crate::socketio::{Broadcast, Event, Selection};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stentor_edge::{Busy, Command, CommandError, DataPlane, Done};
use tokio::sync::oneshot;

impl Bridge {
    /// Handles what arrives, in order, for as long as the node runs.
    pub(super) async fn handle_all(self: Arc<Self>, plane: Arc<dyn DataPlane>) {
        loop {
            let arrived = self.inbox.next().await;
            if let Err(reason) = self.handle(arrived, &plane).await {
                self.counters.count_refused(reason);
                if !self.has_reported_refusal.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        prefix = self.prefix,
                        %reason,
                        "a message of another server is refused; further ones are counted only, in stentor_bridge_messages_refused_total"
                    );
                }
            }
        }
    }

    async fn handle(self: &Arc<Self>, arrived: Arrived, plane: &Arc<dyn DataPlane>) -> Result<(), Refused> {
        let namespace = &self.namespaces[arrived.namespace];
        match arrived.kind {
            Kind::Broadcast => {
                let broadcast = Broadcast::decode(&arrived.payload)?;
                if broadcast.namespace != namespace.name {
                    return Err(Refused::Namespace);
                }
                let Broadcast { selection, flags, event, .. } = broadcast;
                self.deliver(namespace, &selection, event, flags.volatile, plane).await
            }
            Kind::Request | Kind::Response => Ok(()),
        }
    }

    /// Delivers an event to sessions of this node.
    async fn deliver(
        &self,
        namespace: &Namespace,
        selection: &Selection,
        event: Event,
        volatile: bool,
        plane: &Arc<dyn DataPlane>,
    ) -> Result<(), Refused> {
        let local = namespace.local(selection)?;
        if local.is_empty() {
            return Ok(());
        }
        count(&self.counters.received);
        // Each session once: those by name are not members of the rooms.
        while let Some(target) = local.sessions_only(&namespace.all_members) {
            let (done, answered) = oneshot::channel();
            // A later message waits for it, or it could overtake.
            let done = Done::new(move |result| _ = done.send(result));
            let (event, data) = (Some(event.name.clone()), event.arguments.clone());
            plane.command(target, Command::Emit { event, data, volatile, done });
            if !matches!(answered.await, Ok(Err(CommandError::Busy))) {
                break;
            }
            self.space.wait().await;
        }
        let Some(message) = local.into_broadcast(event, volatile) else { return Ok(()) };
        while plane.receive(message.clone()) == Err(Busy) {
            self.space.wait().await;
        }
        Ok(())
    }
}
