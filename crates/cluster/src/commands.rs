//! Commands, feeds and lifecycle of a node in a cluster, as the control plane sees them: commands for sessions reach those of all nodes.

use crate::NodeId;
use crate::calls::forwarder;
use crate::cluster::Cluster;
use crate::finish::Finish;
use crate::frame::{Answered, Question, Task};
use crate::rooms::Publisher;
use std::collections::BTreeSet;
use std::sync::Arc;
use stentor_hub::Key;
use stentor_ports::{
    Broadcast, Busy, Command, CommandError, Commands, Concerned, Denial, Done, Drain, FeedUpdate, Feeds,
    KeyInterest, Lifecycle, LinkApp, LocalNode, MemberList, MembersQuery, Publish, PushResult, PushedFeed,
    PushedFeeds, ReadResult, Readiness, Recheck, RecheckAction, RoomList, RoomsQuery, SESSIONS_LISTED_MAX,
    SessionList, SessionsQuery, SubscriberCounts, Target,
};

/// Maximum number of sessions whose nodes receive a message first. Finding the issuer of an id takes a decryption for each node.
const ISSUERS_MAX: usize = 4;

/// Commands for a node, and for the sessions of the other nodes; and the node's feeds and lifecycle, in agreement with the other nodes.
pub struct ClusterCommands {
    local: Arc<dyn LocalNode>,
    cluster: Arc<Cluster>,
}

impl ClusterCommands {
    /// Commands for the node `local` of `cluster`.
    pub fn new(local: Arc<dyn LocalNode>, cluster: Arc<Cluster>) -> Self {
        Self { local, cluster }
    }

    /// Adds this node's sessions to the answer to an emit that the engine orders: the message isn't delivered yet.
    fn then_count(&self, target: Target, done: Done<Concerned>) -> Done<Concerned> {
        let local = self.local.clone();
        Done::new(move |result| match result {
            Ok(_) => {
                let count = |list: SessionList| Concerned::sessions(list.count);
                let done = Done::new(move |list: Result<SessionList, _>| done.answer(list.map(count)));
                local.command(target, Command::Sessions { limit: 0, done });
            }
            Err(error) => done.answer(Err(error)),
        })
    }

    /// Asks the nodes in `to` for sessions that this node doesn't have, or all nodes if `to` is `None`. `named` is the number of all
    /// sessions; `None` if the target has rooms as well.
    fn then_look_elsewhere(
        cluster: Arc<Cluster>,
        done: Done<Concerned>,
        named: Option<usize>,
        to: impl FnOnce(&Concerned) -> Option<BTreeSet<NodeId>> + Send + 'static,
        question: Question,
    ) -> Done<Concerned> {
        Done::new(move |result: Result<Concerned, _>| match result {
            Ok(found) if named.is_some_and(|named| found.sessions >= named) => done.answer(Ok(found)),
            Ok(found) => {
                let to = to(&found);
                cluster.survey(to.as_ref(), question, Answered::Concerned(found), Finish::Concerned(done));
            }
            Err(error) => done.answer(Err(error)),
        })
    }

    /// Asks the issuers of the ids of `named` sessions, and then the other nodes for sessions that the issuers don't have: sockets
    /// move. No session receives the task twice.
    fn then_ask_issuers(
        &self,
        done: Done<Concerned>,
        named: usize,
        issuers: BTreeSet<NodeId>,
        question: impl Fn() -> Question,
    ) -> Done<Concerned> {
        let (cluster, asked) = (self.cluster.clone(), issuers.clone());
        let rest = move |found: &Concerned| {
            // If the issuers certainly have none of the sessions, one message for all nodes is enough.
            let has_none = found.sessions == 0 && found.missing_nodes.is_empty();
            (!has_none).then(|| &cluster.others() - &asked)
        };
        let then = Self::then_look_elsewhere(self.cluster.clone(), done, Some(named), rest, question());
        Self::then_look_elsewhere(self.cluster.clone(), then, Some(named), |_| Some(issuers), question())
    }

    /// Asks the other nodes after this node has carried out the command. If this node refuses the command, no other
    /// node gets it.
    fn then_ask<T: 'static>(
        &self,
        done: Done<T>,
        question: Question,
        kind: fn(T) -> Answered,
        finish: impl FnOnce(Done<T>) -> Finish + Send + 'static,
    ) -> Done<T> {
        let cluster = self.cluster.clone();
        Done::new(move |result| match result {
            Ok(answer) => cluster.survey(None, question, kind(answer), finish(done)),
            Err(error) => done.answer(Err(error)),
        })
    }

    /// Makes the other nodes carry a command out after this node. `None`: too many calls wait, and the command is answered.
    fn on_all_nodes(&self, command: Command, question: impl FnOnce(Task) -> Question) -> Option<Command> {
        let concerned =
            |done, question| self.then_ask(done, question, Answered::Concerned, Finish::Concerned);
        Some(match command {
            Command::Emit { event, data, volatile, done } => {
                let task = Task::Emit { event: event.clone(), data: data.clone(), volatile };
                Command::Emit { event, data, volatile, done: concerned(done, question(task)) }
            }
            Command::Call { event, data, timeout, answered, done } => {
                let Some(call) = self.cluster.begin_call(timeout, &answered) else {
                    done.answer(Err(CommandError::Busy));
                    return None;
                };
                let task = Task::Call { call, event: event.clone(), data: data.clone(), timeout };
                let answered = forwarder(&answered);
                Command::Call { event, data, timeout, answered, done: concerned(done, question(task)) }
            }
            Command::Join { rooms, done } => {
                let task = Task::Join(rooms.iter().cloned().collect());
                Command::Join { rooms, done: concerned(done, question(task)) }
            }
            Command::Leave { rooms, done } => {
                let task = Task::Leave(rooms.iter().cloned().collect());
                Command::Leave { rooms, done: concerned(done, question(task)) }
            }
            Command::Disconnect { close, done } => {
                Command::Disconnect { close, done: concerned(done, question(Task::Disconnect { close })) }
            }
            Command::Sessions { limit, done } => {
                let finish = move |done| Finish::Sessions { limit, done };
                let done = self.then_ask(done, question(Task::List { limit }), Answered::Sessions, finish);
                Command::Sessions { limit, done }
            }
        })
    }
}

impl Commands for ClusterCommands {
    fn publish(&self, message: Publish) -> Result<(), Busy> {
        // The core passes the message to the broker.
        self.local.publish(message)
    }

    fn publish_kept(&self, message: Publish, key: Option<Arc<str>>, done: Done<Result<(), Denial>>) {
        if !self.cluster.keeps_history(&message.room) {
            return done.answer(self.publish(message).map(Ok).map_err(|Busy| CommandError::Busy));
        }
        let Publish { room, event, data } = message;
        let message = Broadcast {
            // The message's position becomes its id.
            id: 0,
            rooms: room.into(),
            except_rooms: Vec::new(),
            except_sessions: Vec::new(),
            event,
            data,
            volatile: false,
        };
        let key = key.map(|key| format!("backend:{key}").into());
        if let Err(Some(Publisher::Caller(done))) =
            self.cluster.append(&message, Some(Publisher::Caller(done)), None, key)
        {
            done.answer(Err(CommandError::Busy));
        }
    }

    fn recheck(&self, recheck: Recheck, done: Done<Concerned>) {
        let done = match recheck.action {
            // Each node authorizes its own sessions, and ends the revoked ones by its own list.
            RecheckAction::Authorize | RecheckAction::EndRevoked => done,
            RecheckAction::Disconnect | RecheckAction::Renew => {
                let question = Question::Recheck(recheck.clone());
                self.then_ask(done, question, Answered::Concerned, Finish::Concerned)
            }
        };
        self.local.recheck(recheck, done);
    }

    fn command(&self, target: Target, command: Command) {
        let to = target.clone();
        let command = match command {
            // The broker carries the event to the members of rooms on other nodes, in order with other messages.
            Command::Emit { event, data, volatile, done } if target.sessions.is_empty() => {
                let done = match (&target.rooms[..], volatile) {
                    ([room], false) if self.cluster.keeps_history(room) => self.then_count(to, done),
                    _ => done,
                };
                Command::Emit { event, data, volatile, done }
            }
            Command::Emit { event, data, volatile, done } => {
                let (named, has_rooms) = (to.sessions.len(), !to.rooms.is_empty());
                let issuers = match has_rooms || named > ISSUERS_MAX {
                    true => BTreeSet::new(),
                    false => self.cluster.issuers_of(to.session_ids()),
                };
                let to = to.only_sessions();
                let question = || {
                    let task = Task::Emit { event: event.clone(), data: data.clone(), volatile };
                    Question::Sessions(to.clone(), task)
                };
                let done = if issuers.is_empty() {
                    let (cluster, named) = (self.cluster.clone(), (!has_rooms).then_some(named));
                    Self::then_look_elsewhere(cluster, done, named, |_| None, question())
                } else {
                    self.then_ask_issuers(done, named, issuers, question)
                };
                Command::Emit { event, data, volatile, done }
            }
            command => {
                let command = self.on_all_nodes(command, |task| Question::Sessions(to, task));
                return command.into_iter().for_each(|command| self.local.command(target.clone(), command));
            }
        };
        self.local.command(target, command);
    }

    fn list_members(&self, query: MembersQuery, done: Done<MemberList>) {
        let limit = query.limit;
        let question = Question::Members(query.clone());
        let finish = move |done| Finish::Members { limit, done };
        self.local.list_members(query, self.then_ask(done, question, Answered::Members, finish));
    }

    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>) {
        let limit = query.limit;
        let question = Question::Rooms(query.clone());
        let finish = move |done| Finish::Rooms { limit, done };
        self.local.list_rooms(query, self.then_ask(done, question, Answered::Rooms, finish));
    }

    fn list_sessions(&self, query: SessionsQuery, done: Done<SessionList>) {
        let (limit, question) = (query.limit.min(SESSIONS_LISTED_MAX), Question::NodeSessions(query.clone()));
        let finish = move |done| Finish::FullestSessions { limit, done };
        let done = self.then_ask(done, question, Answered::Sessions, finish);
        self.local.list_sessions(query, self.cluster.naming(done));
    }

    fn count_subscribers(&self, keys: Vec<Key>, done: Done<SubscriberCounts>) {
        let question = Question::Subscribers(keys.clone());
        let done = self.then_ask(done, question, Answered::Subscribers, Finish::Subscribers);
        self.local.count_subscribers(keys, done);
    }

    fn command_link(&self, app: LinkApp, target: Target, command: Command) {
        let command = match self.cluster.name_of_application(app) {
            Some(name) => {
                let to = target.clone();
                self.on_all_nodes(command, |task| Question::Sockets(name, to, task))
            }
            None => Some(command),
        };
        if let Some(command) = command {
            self.local.command_link(app, target, command);
        }
    }

    fn list_link_rooms(&self, app: LinkApp, query: RoomsQuery, done: Done<RoomList>) {
        let done = match self.cluster.name_of_application(app) {
            Some(name) => {
                let (limit, question) = (query.limit, Question::SocketRooms(name, query.clone()));
                self.then_ask(done, question, Answered::Rooms, move |done| Finish::Rooms { limit, done })
            }
            None => done,
        };
        self.local.list_link_rooms(app, query, done);
    }
}

impl PushedFeeds for ClusterCommands {
    fn read(&self, key: &Key, done: Done<ReadResult>) {
        self.cluster.feeds().read(key, done);
    }

    fn push(&self, key: &Key, push: PushedFeed, done: Done<PushResult>) {
        self.cluster.feeds().push(key, push, done);
    }
}

impl Feeds for ClusterCommands {
    fn take_key_interest(&self) -> Vec<KeyInterest> {
        self.cluster.feeds().take_to_fetch()
    }

    fn update_feed(&self, key: &Key, update: FeedUpdate) -> Result<(), Busy> {
        match self.cluster.feeds().handle_update(key, update) {
            Some(own) => self.local.update_feed(key, own),
            None => Ok(()),
        }
    }

    fn pushed_feeds(&self) -> Option<&dyn PushedFeeds> {
        Some(self)
    }
}

impl Lifecycle for ClusterCommands {
    fn readiness(&self) -> Readiness {
        self.local.readiness()
    }

    fn connections(&self) -> usize {
        self.local.connections()
    }

    fn pause_accepting(&self, is_paused: bool, done: Done<()>) {
        self.local.pause_accepting(is_paused, done);
    }

    fn drain(&self, drain: Drain) {
        // The feeds come first, so that subscribers on other nodes don't wait until the leases expire.
        self.cluster.feeds().leave();
        self.local.drain(drain);
    }
}
