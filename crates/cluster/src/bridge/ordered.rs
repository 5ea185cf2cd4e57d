//! Messages and commands of other servers for sessions of this node, which take effect in their order.

use crate::engine::ConnectError;
use crate::space::Space;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stentor_hub::{Room, Rooms};
use stentor_ports::{Broadcast, Busy, Command, CommandError, Concerned, Done, LocalNode, Order, Target};
use tokio::sync::oneshot;

pub(super) struct Ordered {
    space: Arc<Space>,
    /// `true` if messages to rooms were delivered after the last command for sessions.
    has_delivered: AtomicBool,
    /// A room with a random name and without members.
    nobody: Room,
}

impl Ordered {
    pub(super) fn new(space: Arc<Space>) -> Result<Self, ConnectError> {
        let nobody = Room::plain(&format!("{:016x}", fastrand::u64(..)));
        let nobody = nobody.map_err(|e| ConnectError(e.to_string()))?;
        Ok(Self { space, has_delivered: AtomicBool::new(false), nobody })
    }

    /// Delivers a message to members of rooms. If necessary, waits until there is room for it.
    pub(super) async fn deliver(&self, plane: &Arc<dyn LocalNode>, message: Broadcast) {
        self.has_delivered.store(true, Ordering::Relaxed);
        while plane.receive(message.clone(), Order::Namespace) == Err(Busy) {
            self.space.wait().await;
        }
    }

    /// Carries out a command for sessions when all earlier messages to rooms have reached the sessions' cores. If necessary,
    /// waits until there is room for it.
    pub(super) async fn carry_out(
        &self,
        plane: &Arc<dyn LocalNode>,
        target: &Target,
        command: impl Fn(Done<Concerned>) -> Command,
    ) -> Result<Concerned, CommandError> {
        if self.has_delivered.swap(false, Ordering::Relaxed) {
            // This request to join matches no session. A core that has answered it has sent its earlier messages to the other
            // cores.
            let nobody = Target::of_rooms(target.everybody.clone(), vec![self.nobody.clone()], Vec::new());
            let rooms = Rooms::from(self.nobody.clone());
            self.submit(plane, &nobody, |done| Command::Join { rooms: rooms.clone(), done }).await?;
        }
        self.submit(plane, target, command).await
    }

    async fn submit(
        &self,
        plane: &Arc<dyn LocalNode>,
        target: &Target,
        command: impl Fn(Done<Concerned>) -> Command,
    ) -> Result<Concerned, CommandError> {
        loop {
            let (done, answered) = oneshot::channel();
            plane.command(target.clone(), command(Done::new(move |result| _ = done.send(result))));
            match answered.await.unwrap_or(Err(CommandError::Stopped)) {
                Err(CommandError::Busy) => self.space.wait().await,
                result => return result,
            }
        }
    }
}
