//! Joins the machine for rooms with the engine and the data plane.

use super::{Content, Output, RoomStats, Rooms, VacantRooms};
use crate::NodeId;
use crate::clock::now;
use crate::engine::{Engine, EngineError, Reply};
use crate::space::Space;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stentor_hub::{HistoryLimits, Position, Room};
use stentor_ports::{Busy, Charge, Class, Denial, Done, Ledger, LocalNode, PermissionReply};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

/// The share of the decision timeout after which a message is refused. So the decision, with its reason, arrives before the
/// core's own timeout.
const APPEND_TIMEOUT_SHARE: f64 = 0.8;

/// Interval between checks of a room whose history is being read.
pub(crate) const READ_INTERVAL: Duration = Duration::from_millis(2);

/// A publisher that waits for the engine to store its message.
pub(crate) enum Publisher {
    /// A client, on its core.
    Client(PermissionReply),
    /// A caller of this process.
    Caller(Done<Result<(), Denial>>),
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Client",
            Self::Caller(_) => "Caller",
        })
    }
}

/// The rooms with history of a node, for any thread.
pub(crate) struct RoomDriver {
    rooms: Mutex<Rooms<Publisher>>,
    /// Size of the machine's queues. Changes only while it is locked.
    charge: Charge,
    /// Notified when the machine has outputs.
    changed: Notify,
    /// Notified when updates have left the machine.
    drained: Notify,
    /// Number of rounds of [`Self::run`] that have begun.
    rounds_begun: AtomicU64,
    /// The last round that has carried out all outputs of the machine.
    round_done: watch::Sender<u64>,
}

impl RoomDriver {
    /// Makes the rooms of `node`, whose histories `history` configures. A publisher waits for `decision_timeout`.
    pub(crate) fn new(
        node: NodeId,
        history: Vec<(String, HistoryLimits)>,
        decision_timeout: Duration,
        vacant: VacantRooms,
        ledger: Arc<Ledger>,
    ) -> Self {
        let rooms = Rooms::new(node, history, decision_timeout.mul_f64(APPEND_TIMEOUT_SHARE), vacant);
        Self {
            rooms: Mutex::new(rooms),
            charge: Charge::new(ledger, Class::Cluster),
            changed: Notify::new(),
            drained: Notify::new(),
            rounds_begun: AtomicU64::new(0),
            round_done: watch::Sender::new(0),
        }
    }

    /// Changes the machine, and charges the memory of its queues.
    fn change<R>(&self, change: impl FnOnce(&mut Rooms<Publisher>) -> R) -> R {
        let mut rooms = self.rooms.lock();
        let result = change(&mut rooms);
        self.charge.set(rooms.held_bytes());
        result
    }

    pub(crate) fn stats(&self) -> RoomStats {
        self.rooms.lock().stats()
    }

    /// Returns `true` if a room keeps history.
    pub(crate) fn keeps_history(&self, room: &Room) -> bool {
        self.rooms.lock().keeps_history(room)
    }

    /// Publishes a message of a client at the address `source`, or of a backend, with the optional idempotency key of
    /// its publisher. Returns the publisher if too many messages wait.
    pub(crate) fn publish(
        &self,
        room: &Room,
        payload: Bytes,
        publisher: (Option<Publisher>, Option<u64>),
        key: Option<Arc<str>>,
    ) -> Result<(), Option<Publisher>> {
        let result = self.change(|rooms| rooms.handle_publish(now(), room, payload, publisher, key));
        self.changed.notify_one();
        result
    }

    /// Sets whether the node has subscribers of a room. The engine already knows.
    pub(crate) fn set_interest(&self, room: &Room, has_subscribers: bool) {
        self.change(|rooms| rooms.handle_interest(room, has_subscribers));
        self.changed.notify_one();
    }

    /// Returns `true` if the history of a room is being read, or will be.
    pub(crate) fn is_reading(&self, room: &Room) -> bool {
        self.rooms.lock().is_reading(room)
    }

    /// Waits until the cores have all messages that the engine now has of these rooms, or were notified of gaps.
    pub(crate) async fn catch_up(&self, rooms: &[Room]) {
        let begun: Vec<(&Room, u64)> = self.change(|all| {
            let kept = rooms.iter().filter(|room| all.keeps_history(room)).collect::<Vec<_>>();
            kept.into_iter().map(|room| (room, all.handle_prove(room))).collect()
        });
        self.changed.notify_one();
        for (room, since) in begun {
            while !self.rooms.lock().is_read(room, since) {
                sleep(READ_INTERVAL).await;
            }
        }
        self.flush().await;
    }

    /// Confirms a room for a member on this node whose position its core doesn't know.
    pub(crate) fn confirm(&self, room: &Room) {
        self.change(|rooms| rooms.handle_confirm(room));
        self.changed.notify_one();
    }

    /// Handles the loss of the connection to the engine.
    pub(crate) fn handle_disconnected(&self) {
        self.rooms.lock().handle_disconnected();
    }

    /// Handles a new connection to the engine, the first one or a later one.
    pub(crate) fn handle_connected(&self) {
        self.change(|rooms| rooms.handle_connected(now()));
        self.changed.notify_one();
    }

    /// Handles an arrived message. Waits while too many messages wait for the data plane.
    pub(crate) async fn handle_message(&self, room: &Room, position: Position, content: Option<Content>) {
        while self.rooms.lock().is_full() {
            self.drained.notified().await;
        }
        self.change(|rooms| rooms.handle_message(room, position, content));
        self.changed.notify_one();
    }

    /// Waits until the data plane has all messages that have arrived, except those of rooms whose history is being read.
    pub(crate) async fn flush(&self) {
        let next = self.rounds_begun.load(Ordering::Relaxed) + 1;
        self.changed.notify_one();
        // The sender lives as long as `self`.
        let _ = self.round_done.subscribe().wait_for(|done| *done >= next).await;
    }

    /// Carries out the outputs of the machine. Never returns. `decode` reads the content of a message.
    pub(crate) async fn run(
        &self,
        engine: &dyn Engine,
        plane: &dyn LocalNode,
        space: &Space,
        decode: impl Fn(&Room, &Bytes) -> Option<Content>,
    ) {
        let mut requests = JoinSet::new();
        loop {
            let round = self.rounds_begun.fetch_add(1, Ordering::Relaxed) + 1;
            let timeout = self.change(|rooms| {
                rooms.handle_timeout(now());
                rooms.poll_timeout()
            });
            while let Some(output) = self.change(Rooms::poll_output) {
                self.carry_out(output, engine, plane, space, &mut requests).await;
            }
            // Updates of rooms without subscribers have also left the machine.
            self.drained.notify_one();
            self.round_done.send_replace(round);
            tokio::select! {
                Some(answered) = requests.join_next() => {
                    let Ok((number, reply)) = answered else { continue };
                    self.change(|rooms| rooms.handle_reply(now(), number, reply, &decode));
                }
                () = self.changed.notified() => {}
                () = sleep_until(timeout.unwrap_or_else(now).into()), if timeout.is_some() => {}
            }
        }
    }

    async fn carry_out(
        &self,
        output: Output<Publisher>,
        engine: &dyn Engine,
        plane: &dyn LocalNode,
        space: &Space,
        requests: &mut JoinSet<(u64, Result<Reply, EngineError>)>,
    ) {
        match output {
            Output::Request(number, request) => {
                let answer = engine.request(request);
                requests.spawn(async move { (number, answer.await) });
            }
            Output::Decide(Publisher::Caller(done), decision) => done.answer(Ok(decision)),
            Output::Decide(Publisher::Client(reply), decision) => {
                while reply.send(decision.clone()) == Err(Busy) {
                    space.wait().await;
                }
            }
            Output::Room(room, update) => {
                while plane.update_room(&room, update.clone()) == Err(Busy) {
                    space.wait().await;
                }
                self.drained.notify_one();
            }
        }
    }
}
