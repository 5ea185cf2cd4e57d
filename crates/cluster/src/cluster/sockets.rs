//! Socket.IO sockets whose clients reconnect to another node: finds the node that has one, and brings it here.
//!
//! A `pid` names the node that drew it, and that node is asked first. If the socket has moved since, that node knows where the
//! socket is. If that node is dead, all nodes are asked. The steps of a move are ordered so that no message that one of the two
//! nodes receives is lost:
//!
//! 1. If the socket is of the client's user, the old node describes it, ends its connection if there is one, and keeps logging
//!    publications for it.
//! 2. The socket joins its rooms on the new node, which logs messages from now on, and the engine establishes the interest in
//!    them.
//! 3. The new node requests the socket from the old node. All messages published before the interest was established have
//!    reached the old node before this request, because an engine delivers in order to one node, or within
//!    [`Engine::delay_max`](crate::engine::Engine::delay_max). Each of them is in the socket's log there, or was sent to the
//!    client.
//! 4. The old node returns the messages that the client missed and the ids of known messages, and removes the socket.
//! 5. The new node sends the client these missed messages, and then the messages of its own log that the old node didn't have.
//!
//! A step that isn't answered in time, or fails, ends the search, and the client starts a new session.

use super::Cluster;
use crate::NodeId;
use crate::engine::{Channel, EngineError, Request};
use crate::frame::{Frame, SocketAnswer, SocketFrame};
use crate::metrics::{Outcome, count};
use crate::rooms::READ_INTERVAL;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Epoch, Position, Room, Topic};
use stentor_ports::{
    Charge, Class, Done, Ledger, LocalNode, MovingSocket, Pid, SocketName, SocketQuestion, SocketRequest,
    Ticket,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Maximum time of a search. Then the client starts a new session.
const FIND_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of simultaneous searches, and of waiting ones.
const FINDS_MAX: usize = 1_024;
/// Maximum number of sockets for which this node, which drew their `pid`s, stores the current node.
const MOVED_MAX: usize = 65_536;
/// Memory for each of these sockets: its entries in both tables, half filled.
const MOVED_BYTES: usize = 2 * size_of::<(Pid, NodeId)>() + 2 * size_of::<Pid>();
/// Maximum number of rooms whose interest is established at the same time.
const ROOMS_AT_ONCE: usize = 64;

/// A question to one or several nodes.
struct Pending {
    waiting: BTreeSet<NodeId>,
    found: oneshot::Sender<(NodeId, SocketAnswer)>,
}

#[derive(Default)]
struct State {
    pending: HashMap<u64, Pending>,
    /// Current nodes of sockets whose `pid`s this node drew, and the `pid`s, oldest first.
    moved: HashMap<Pid, NodeId>,
    moved_order: VecDeque<Pid>,
}

/// The sockets that move from and to this node.
pub(crate) struct Sockets {
    questions: mpsc::Sender<SocketQuestion>,
    /// The receiver, until the node runs.
    receiver: Mutex<Option<mpsc::Receiver<SocketQuestion>>>,
    state: Mutex<State>,
    /// Charge for the sockets that have moved. Changed while the state is locked.
    charge: Charge,
}

/// Removes a pending question on drop, because its asker has stopped waiting.
struct Asking<'a> {
    sockets: &'a Sockets,
    id: u64,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.sockets.state().pending.remove(&self.id);
    }
}

impl Sockets {
    /// An empty table, charged to `ledger`.
    pub(crate) fn new(ledger: Arc<Ledger>) -> Self {
        let (questions, receiver) = mpsc::channel(FINDS_MAX);
        let charge = Charge::new(ledger, Class::Cluster);
        Self { questions, receiver: Mutex::new(Some(receiver)), state: Mutex::default(), charge }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn begin(&self, nodes: BTreeSet<NodeId>) -> (Asking<'_>, oneshot::Receiver<(NodeId, SocketAnswer)>) {
        let (found, answer) = oneshot::channel();
        // An answer counts only if it is of a node that was asked.
        let id = fastrand::u64(..);
        self.state().pending.insert(id, Pending { waiting: nodes, found });
        (Asking { sockets: self, id }, answer)
    }

    /// Handles a node's answer.
    fn handle_answer(&self, id: u64, node: NodeId, answer: SocketAnswer) {
        let pending = &mut self.state().pending;
        let Some(asked) = pending.get_mut(&id) else { return };
        if !asked.waiting.remove(&node) {
            return;
        }
        if (answer != SocketAnswer::None || asked.waiting.is_empty())
            && let Some(Pending { found, .. }) = pending.remove(&id)
        {
            // Fails if the caller has stopped waiting.
            let _ = found.send((node, answer));
        }
    }

    /// Counts a dead node as one that doesn't have the sockets asked for.
    pub(crate) fn handle_left(&self, node: NodeId) {
        let ids: Vec<u64> = self.state().pending.keys().copied().collect();
        ids.into_iter().for_each(|id| self.handle_answer(id, node, SocketAnswer::None));
    }

    fn moved_to(&self, pid: Pid) -> Option<NodeId> {
        self.state().moved.get(&pid).copied()
    }

    /// Records that a socket whose `pid` this node drew is at another node.
    fn set_moved(&self, pid: Pid, to: NodeId) {
        let State { moved, moved_order, .. } = &mut *self.state();
        if moved.insert(pid, to).is_none() {
            moved_order.push_back(pid);
            self.charge.add(MOVED_BYTES);
        }
        if moved_order.len() > MOVED_MAX
            && let Some(oldest) = moved_order.pop_front()
        {
            moved.remove(&oldest);
            self.charge.subtract(MOVED_BYTES);
        }
    }

    /// Records that a socket is at this node.
    fn set_here(&self, pid: Pid) {
        let State { moved, moved_order, .. } = &mut *self.state();
        if moved.remove(&pid).is_some() {
            moved_order.retain(|other| *other != pid);
            self.charge.subtract(MOVED_BYTES);
        }
    }
}

impl Cluster {
    /// Begins a search at the request of the data plane. Returns `false` if no other node can have the socket, or too
    /// many searches wait.
    pub(crate) fn begin_to_find(&self, question: SocketQuestion) -> bool {
        let pid = question.name.pid;
        // The node that drew the pid knows where the socket is.
        let is_nowhere = pid.node() == self.node().tag() && self.sockets.moved_to(pid).is_none();
        if is_nowhere || self.others().is_empty() {
            return false;
        }
        let has_begun = self.sockets.questions.try_send(question).is_ok();
        if !has_begun {
            self.counters.count_find(Outcome::Failed);
        }
        has_begun
    }

    /// Runs the searches for sockets. Never returns.
    pub(crate) async fn find_sockets(self: &Arc<Self>, plane: &Arc<dyn LocalNode>) {
        let receiver = self.sockets.receiver.lock().take();
        let Some(mut questions) = receiver else { return std::future::pending().await };
        let mut finds = JoinSet::new();
        loop {
            tokio::select! {
                Some(question) = questions.recv(), if finds.len() < FINDS_MAX => {
                    let (cluster, plane) = (self.clone(), plane.clone());
                    finds.spawn(async move { cluster.bring(question, &*plane).await });
                }
                Some(_) = finds.join_next() => {}
            }
        }
    }

    async fn bring(&self, SocketQuestion { ticket, name }: SocketQuestion, plane: &dyn LocalNode) {
        let found = timeout(FIND_TIMEOUT, self.find(ticket, &name, plane)).await;
        let (outcome, socket) = match found {
            Ok(Ok(socket)) => (Outcome::Found, Some(socket)),
            Ok(Err(outcome)) => (outcome, None),
            Err(_) => (Outcome::Timeout, None),
        };
        self.counters.count_find(outcome);
        // If an inbox is full, the client starts a new session at its core's deadline.
        let _ = plane.deliver_socket(ticket, socket);
    }

    async fn find(
        &self,
        ticket: Ticket,
        name: &SocketName,
        plane: &dyn LocalNode,
    ) -> Result<MovingSocket, Outcome> {
        let (owner, socket) = self.locate(name).await?;
        let rooms = rooms_of(&socket);
        let (done, is_ready) = oneshot::channel();
        plane.expect_socket(ticket, socket, Done::new(move |answer| _ = done.send(answer)));
        if is_ready.await != Ok(Ok(true)) {
            return Err(Outcome::Failed);
        }
        self.establish(&rooms).await?;
        // Earlier messages may be in transit to the socket's node for this time.
        sleep(self.engine.delay_max()).await;
        match self.ask([owner].into(), Channel::Node(owner), name, SocketRequest::Take).await {
            Some((_, SocketAnswer::Socket(socket))) => {
                self.sockets.set_here(name.pid);
                Ok(*socket)
            }
            _ => Err(Outcome::NotFound),
        }
    }

    /// Finds the node that has a socket.
    async fn locate(&self, name: &SocketName) -> Result<(NodeId, MovingSocket), Outcome> {
        let (tag, others) = (name.pid.node(), self.others());
        let owner = match tag == self.node().tag() {
            true => Some(self.sockets.moved_to(name.pid).ok_or(Outcome::NotFound)?),
            false => others.iter().copied().find(|node| node.tag() == tag),
        };
        let describe = SocketRequest::Describe;
        let mut found = match owner {
            Some(node) if !others.contains(&node) => None,
            Some(node) => self.ask([node].into(), Channel::Node(node), name, describe).await,
            // The node that drew the `pid` is dead, but the socket may have moved before.
            None => self.ask(others.clone(), Channel::Nodes, name, describe).await,
        };
        if let Some((_, SocketAnswer::At(node))) = found {
            found = match others.contains(&node) {
                true => self.ask([node].into(), Channel::Node(node), name, describe).await,
                false => None,
            };
        }
        match found {
            Some((node, SocketAnswer::Socket(socket))) => Ok((node, *socket)),
            _ => Err(Outcome::NotFound),
        }
    }

    /// Asks nodes until one has the socket or all have answered.
    async fn ask(
        &self,
        nodes: BTreeSet<NodeId>,
        channel: Channel,
        name: &SocketName,
        request: SocketRequest,
    ) -> Option<(NodeId, SocketAnswer)> {
        let (asking, answer) = self.sockets.begin(nodes);
        let question = SocketFrame::Question { id: asking.id, name: name.clone(), request };
        self.send(channel, &Frame::Socket(question)).ok()?;
        answer.await.ok()
    }

    /// Waits until messages to these rooms reach this node.
    async fn establish(&self, rooms: &[Room]) -> Result<(), Outcome> {
        let since = Position { epoch: Epoch::NONE, offset: 0 };
        for rooms in rooms.chunks(ROOMS_AT_ONCE) {
            let read = |room: &Room| Request::History {
                room: room.clone(),
                since,
                messages_max: 0,
                age_max: Duration::ZERO,
            };
            // A read waits for the interest, whether or not the room keeps history.
            let reads: Vec<_> = rooms.iter().map(|room| self.engine.request(read(room))).collect();
            for read in reads {
                if let Err(EngineError::Unavailable(_) | EngineError::Full) = read.await {
                    return Err(Outcome::Failed);
                }
            }
            for room in rooms {
                while self.rooms.is_reading(room) {
                    sleep(READ_INTERVAL).await;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn handle_socket_frame(
        self: &Arc<Self>,
        sender: NodeId,
        frame: SocketFrame,
        plane: &Arc<dyn LocalNode>,
    ) {
        match frame {
            SocketFrame::Question { id, name, request } => {
                let (this, pid) = (self.clone(), name.pid);
                let done = Done::new(move |socket: Result<Option<MovingSocket>, _>| {
                    this.answer_for_socket(sender, id, pid, request, socket.ok().flatten());
                });
                match request {
                    SocketRequest::Take => self.give_away(name, done, plane.clone()),
                    SocketRequest::Describe | SocketRequest::Look => {
                        plane.request_socket(name, request, done)
                    }
                }
            }
            SocketFrame::Answer { id, answer } => self.sockets.handle_answer(id, sender, answer),
            SocketFrame::Moved { pid, to } => {
                if pid.node() == self.node().tag() {
                    self.sockets.set_moved(pid, to);
                }
            }
        }
    }

    /// Answers with a socket once its log has all messages that the engine has of its rooms, because this node may be behind.
    fn give_away(
        self: &Arc<Self>,
        name: SocketName,
        done: Done<Option<MovingSocket>>,
        plane: Arc<dyn LocalNode>,
    ) {
        let this = self.clone();
        tokio::spawn(async move {
            let (looked, found) = oneshot::channel();
            let done_looking = Done::new(move |socket| _ = looked.send(socket));
            plane.request_socket(name.clone(), SocketRequest::Look, done_looking);
            // The node that asked waits for the same time.
            let has_all = timeout(FIND_TIMEOUT, async {
                let Ok(Ok(Some(socket))) = found.await else { return false };
                this.rooms.catch_up(&rooms_of(&socket)).await;
                true
            });
            match has_all.await {
                Ok(true) => plane.request_socket(name, SocketRequest::Take, done),
                Ok(false) => done.answer(Ok(None)),
                // The client starts a new session. The socket stays on this node until it expires.
                Err(_) => {}
            }
        });
    }

    fn answer_for_socket(
        &self,
        asker: NodeId,
        id: u64,
        pid: Pid,
        request: SocketRequest,
        socket: Option<MovingSocket>,
    ) {
        let answer = match (socket, self.sockets.moved_to(pid)) {
            (Some(socket), _) => SocketAnswer::Socket(Box::new(socket)),
            (None, Some(node)) => SocketAnswer::At(node),
            (None, None) => SocketAnswer::None,
        };
        if request == SocketRequest::Take && matches!(answer, SocketAnswer::Socket(_)) {
            count(&self.counters.sockets_handed_over);
            if pid.node() == self.node().tag() {
                self.sockets.set_moved(pid, asker);
            } else if let Some(home) = self.others().into_iter().find(|node| node.tag() == pid.node()) {
                // If the engine's queue is full, the client's next reconnection starts a new session.
                let _ = self.send(Channel::Node(home), &Frame::Socket(SocketFrame::Moved { pid, to: asker }));
            }
        }
        let _ = self.send(Channel::Node(asker), &Frame::Socket(SocketFrame::Answer { id, answer }));
    }
}

fn rooms_of(socket: &MovingSocket) -> Vec<Room> {
    let rooms = socket.subscriptions.iter().filter_map(|subscription| match &subscription.topic {
        Topic::Room(room) => Some(room.clone()),
        Topic::Feed(_) | Topic::Presence(_) => None,
    });
    rooms.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_moves_often_takes_no_place_of_another() {
        let pid = |text| Pid::parse(text).unwrap_or_else(|| panic!("an id"));
        let (restless, other) = (pid("aaaaaaaaaaaaaaaaaaaa"), pid("baaaaaaaaaaaaaaaaaaa"));
        let ledger = Arc::new(Ledger::new(3 * MOVED_BYTES));
        let sockets = Sockets::new(ledger.clone());
        sockets.set_moved(other, NodeId(2));
        for _ in 0..=MOVED_MAX {
            sockets.set_moved(restless, NodeId(3));
            sockets.set_here(restless);
        }
        assert_eq!((sockets.moved_to(other), sockets.moved_to(restless)), (Some(NodeId(2)), None));
        assert!(ledger.has_room(2 * MOVED_BYTES) && !ledger.has_room(3 * MOVED_BYTES), "one counts");
    }
}
