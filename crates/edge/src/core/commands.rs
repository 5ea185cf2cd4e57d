//! Carries out the commands of the control plane ([`crate::ports::CommandInbox`]).
//!
//! Publications and updates of feeds are handled as they are taken. Tasks for sessions and rooms are worked on in the
//! order of their arrival, [`STEPS_PER_TURN`] per turn: a task for 100,000 sessions takes many turns, between which
//! connections have theirs.

use super::Core;
use crate::app::{Alarm, ENVELOPE_BYTES, Sent, Waiter};
use crate::executor::Executor;
use crate::identity::{Owner, Sid};
use crate::ports::{
    Broadcast, Concerned, FeedUpdate, LIST_BYTES_MAX, Named, PublicId, Publish, RoomUpdate, SessionInfo,
    Target,
};
use crate::shared::tasks::{Call, RecheckTask, RoomsTask, SessionsTask, Task, Work};
use crate::shared::{ControlCommand, SocketCommand};
use std::collections::VecDeque;
use std::mem;
use std::time::Instant;
use stentor_driver::Driver;
use stentor_hub::{Data, Disconnect, Emit, FeedState, Key, Policy, Room, SessionId, Tally, Topic};

/// Work on tasks per turn. A step is a member of a room that is visited (about 50 ns).
const STEPS_PER_TURN: usize = 8_192;
/// Steps of a session that joins or leaves a room, or of a room in a list.
const ROOM_STEPS: usize = 8;
/// Steps of a session that is listed, or sent a message, and of a member that is looked at for a list.
const SESSION_STEPS: usize = 16;
/// Steps of a session that is disconnected.
const DISCONNECT_STEPS: usize = 128;
/// Maximum number of members visited at once.
const VISITS_MAX: usize = 512;

/// How often a core takes mail before a barrier.
const MAIL_ROUNDS_MAX: usize = 16;

/// What a core has taken from its inbox.
#[derive(Default)]
pub(super) struct Tasks {
    /// Commands taken in this turn.
    received: Vec<ControlCommand>,
    unfinished: VecDeque<(Box<Task>, usize)>,
    joined: Vec<Joined>,
}

/// A task whose sessions have joined rooms. Its caller waits for the positions of these rooms: what is published after the answer
/// reaches the sessions.
struct Joined {
    task: Box<Task>,
    bytes: usize,
    rooms: Vec<Room>,
    until: Instant,
}

impl<D: Driver> Core<D> {
    /// Whether commands wait.
    pub(super) fn has_commands_left(&self) -> bool {
        !self.tasks.unfinished.is_empty() || !self.ex.shared.inboxes[self.ex.context.core].is_empty()
    }

    /// Whether commands wait that can be carried out now.
    pub(super) fn has_commands(&mut self) -> bool {
        // While other cores are behind, the control plane waits as publishing connections do.
        self.has_commands_left() && !self.are_cores_behind()
    }

    /// Takes the commands that have arrived, to be carried out after the mail of this turn: whoever gave them may know of
    /// members on other cores, which this core learns by mail.
    pub(super) fn take_commands(&mut self) {
        if self.has_commands() {
            self.tasks.received = self.ex.shared.inboxes[self.ex.context.core].take().unwrap_or_default();
        }
    }

    pub(super) fn carry_out_commands(&mut self) {
        if self.tasks.received.is_empty() && (self.tasks.unfinished.is_empty() || self.are_cores_behind()) {
            return;
        }
        let shared = self.ex.shared.clone();
        for command in mem::take(&mut self.tasks.received) {
            let bytes = command.bytes();
            match command {
                ControlCommand::Task(task) => {
                    self.tasks.unfinished.push_back((task, bytes));
                    continue;
                }
                ControlCommand::Publish(Publish { room, event, data }) => {
                    self.ex.published_bytes += data.len() + ENVELOPE_BYTES;
                    let Executor { outlet, hub, context, .. } = &mut self.ex;
                    outlet.publish(hub, context.now, &room, (event, data), Emit::default());
                }
                ControlCommand::Receive(message) => self.receive(message),
                ControlCommand::Room(room, update) => self.update_room(&room, update),
                ControlCommand::Presence(room, node, message) => {
                    self.ex.hub.handle_presence_message(self.ex.context.now, &room, node, message);
                }
                ControlCommand::LostNode(node) => self.ex.hub.handle_lost_node(self.ex.context.now, node),
                ControlCommand::Answer(session, answer) => self.send_to_session(session, *answer),
                ControlCommand::Decide(number, answer) => self.ex.questions.decide(number, answer),
                ControlCommand::Reply(number, reply) => self.ex.reply(number, *reply),
                ControlCommand::Identify(number, answer) => self.ex.questions.identified(number, *answer),
                ControlCommand::Feed(key, update) => self.update_feed(&key, update),
                ControlCommand::Socket(command) => self.move_socket(*command),
                ControlCommand::Barrier(barrier) => {
                    self.pass_on_everything();
                    barrier.pass(&shared);
                }
                ControlCommand::Settings(settings, barrier) => {
                    self.set_settings(settings);
                    barrier.pass(&shared);
                }
                ControlCommand::PauseAccepting(is_paused, barrier) => {
                    self.driver.pause_accepting(is_paused);
                    barrier.pass(&shared);
                }
                ControlCommand::Adopt(connection, handover) => self.adopt(*connection, handover),
                ControlCommand::Located(conn, location) => self.located(conn, location),
            }
            shared.inboxes[self.ex.context.core].carried_out(bytes);
            self.pump_if_much_was_published();
        }
        self.work_on_tasks();
        shared.control.space();
    }

    /// Handles what other cores have sent before, and sends them, and reports to the broker, what follows from it.
    fn pass_on_everything(&mut self) {
        // The mail of other cores is bounded; what they add meanwhile isn't waited for.
        for _ in 0..MAIL_ROUNDS_MAX {
            if self.mailboxes.is_empty() {
                break;
            }
            self.take_mail();
        }
        self.tell_wanted();
        self.send_mail();
    }

    fn move_socket(&mut self, command: SocketCommand) {
        match command {
            SocketCommand::Request(name, request, done) => {
                let socket = self.ex.release_socket(&name, request);
                done.answer(Ok(socket));
            }
            SocketCommand::Expect(number, socket, done) => {
                if !self.ex.expect_socket(number, &socket) {
                    return done.answer(Ok(false));
                }
                // Other cores learn of the members, and report them.
                self.send_mail();
                // If an inbox is full, `done` is dropped, and so answered.
                let _ = self.ex.shared.after_barrier(move |_| done.answer(Ok(true)));
            }
            SocketCommand::Deliver(number, socket) => self.ex.deliver_socket(number, socket),
        }
    }

    /// Delivers a message of another node.
    fn receive(&mut self, message: Broadcast) {
        let Broadcast { id, rooms, except_rooms, except_sessions, event, data, volatile } = message;
        let how = if volatile { Emit::volatile() } else { Emit::default() };
        let how = self.leave_out(how.identified(id), except_rooms, except_sessions);
        self.ex.published_bytes += data.len() + ENVELOPE_BYTES;
        self.ex.hub.handle_emit(self.ex.context.now, &rooms, event, data, how);
    }

    /// Leaves out members of rooms, and sessions of this node.
    fn leave_out(&self, how: Emit, rooms: Vec<Room>, sessions: Vec<PublicId>) -> Emit {
        let how = rooms.into_iter().fold(how, Emit::except_room);
        let sessions = sessions.into_iter().filter_map(|id| self.ex.shared.session_of(id));
        sessions.fold(how, |how, (core, session)| how.except_session(core, session))
    }

    fn update_room(&mut self, room: &Room, update: RoomUpdate) {
        self.ex.published_bytes += update.bytes() + ENVELOPE_BYTES;
        let now = self.ex.context.now;
        match update {
            RoomUpdate::Message { position, event, data, except_rooms, except_sessions } => {
                let how = self.leave_out(Emit::default(), except_rooms, except_sessions);
                self.ex.hub.handle_positioned(now, room, position, event, data, how);
            }
            RoomUpdate::History { after, messages } => {
                self.ex.hub.handle_history(now, room, after, messages);
            }
            RoomUpdate::Confirmed => self.ex.hub.handle_confirmed(room),
        }
    }

    fn update_feed(&mut self, key: &Key, update: FeedUpdate) {
        match update {
            FeedUpdate::Document(document) => {
                // Only sessions with policy `queue` are owed more than the newest, but there may be some.
                self.ex.published_bytes += document.body.len() + ENVELOPE_BYTES;
                self.ex.hub.handle_document(key, FeedState::Live, document, None);
            }
            FeedUpdate::Patched(document, patch) => {
                self.ex.published_bytes += patch.operations.len() + ENVELOPE_BYTES;
                self.ex.hub.handle_document(key, FeedState::Live, document, Some(patch));
            }
            FeedUpdate::At { position, document, patches } => {
                self.ex.published_bytes += document.body.len() + ENVELOPE_BYTES;
                self.ex.hub.handle_document_at(key, position, FeedState::Live, document, &patches);
            }
            FeedUpdate::State { state, reason } => self.ex.hub.handle_state(key, state, reason),
            FeedUpdate::Forget => self.ex.hub.handle_forget(key),
            FeedUpdate::Refuse(requester) => self.ex.hub.handle_refusal(requester.session, key),
            FeedUpdate::Confirmed(read) => self.ex.hub.handle_feed_confirmed(key, read),
        }
    }

    /// Works on tasks, as much as a turn has room for.
    fn work_on_tasks(&mut self) {
        let mut steps = STEPS_PER_TURN;
        while let Some((mut task, bytes)) = self.tasks.unfinished.pop_front() {
            let is_finished = match &mut *task {
                Task::Sessions(task) => self.work_on_sessions(task, &mut steps),
                Task::Rooms(task) => self.work_on_rooms(task, &mut steps),
                Task::Recheck(task) => self.work_on_recheck(task, &mut steps),
                Task::Members(_) => steps > 0,
                Task::Resolve(..) | Task::Emit { .. } => true,
            };
            if !is_finished {
                self.ex.metrics().command_yields.add(1);
                self.tasks.unfinished.push_front((task, bytes));
                break;
            }
            let rooms = self.unprepared_rooms(&task);
            if !rooms.is_empty() {
                let until = self.ex.context.now + self.ex.options().limits.decision_timeout;
                self.tasks.joined.push(Joined { task, bytes, rooms, until });
                continue;
            }
            self.finish(*task, &mut steps);
            self.ex.shared.inboxes[self.ex.context.core].task_finished(bytes);
            self.pump_if_much_was_published();
        }
    }

    /// Rooms that the task's sessions join and that aren't prepared on this core yet.
    fn unprepared_rooms(&mut self, task: &Task) -> Vec<Room> {
        let Task::Sessions(SessionsTask { work: Work::Join { topics, concerned, .. }, .. }) = task else {
            return Vec::new();
        };
        let topics = topics.iter().filter(|_| *concerned != Concerned::default());
        let rooms = topics.filter_map(|topic| if let Topic::Room(room) = topic { Some(room) } else { None });
        rooms.filter(|room| !self.ex.hub.handle_prepare(room)).cloned().collect()
    }

    /// This core knows the position of a room.
    pub(super) fn handle_prepared(&mut self, room: &Room) {
        self.ex.questions.prepared(room);
        for joined in &mut self.tasks.joined {
            if let Some(at) = joined.rooms.iter().position(|other| other == room) {
                joined.rooms.swap_remove(at);
                self.ex.hub.handle_release(room);
            }
        }
        self.finish_joined();
    }

    /// Answers the callers of tasks whose rooms have positions, and those that have waited for too long.
    pub(super) fn finish_joined(&mut self) {
        let now = self.ex.context.now;
        let is_finished = |joined: &mut Joined| joined.rooms.is_empty() || joined.until <= now;
        for Joined { task, bytes, rooms, .. } in
            self.tasks.joined.extract_if(.., is_finished).collect::<Vec<_>>()
        {
            rooms.iter().for_each(|room| self.ex.hub.handle_release(room));
            self.finish(*task, &mut 0);
            self.ex.shared.inboxes[self.ex.context.core].task_finished(bytes);
        }
    }

    /// Adds a task's result to those of the other cores.
    fn finish(&mut self, task: Task, steps: &mut usize) {
        match task {
            Task::Resolve(mut target, command) => {
                self.look_up(&mut target);
                self.ex.shared.submit(target, command);
            }
            Task::Emit { rooms, event, data, how, except, gather } => {
                self.ex.published_bytes += data.len() + ENVELOPE_BYTES;
                let Executor { outlet, hub, context, .. } = &mut self.ex;
                outlet.emit(hub, context.now, &rooms, (event, data), how, &except);
                gather.finish(|_| ());
            }
            Task::Sessions(SessionsTask { work, .. }) => match work {
                // Its sessions were added when they were found.
                Work::Send { gather, .. } => gather.finish(|_| ()),
                Work::Call { call, numbers, concerned, gather } => {
                    if !numbers.is_empty() {
                        self.set_alarm(self.ex.context.now + call.timeout, Alarm::Acks(numbers));
                    }
                    gather.finish(|sum| sum.merge(concerned));
                }
                Work::Join { concerned, gather, .. } => {
                    // A core that takes a message of the same caller after the answer knows of the members.
                    self.send_mail();
                    gather.finish(|sum| sum.merge(concerned));
                }
                Work::Leave { concerned, gather, .. } | Work::Disconnect { concerned, gather, .. } => {
                    gather.finish(|sum| sum.merge(concerned))
                }
                Work::List { limit, list, gather } => gather.finish(|sum| sum.merge(list, limit)),
            },
            Task::Recheck(RecheckTask { concerned, gather, .. }) => gather.finish(|sum| sum.merge(concerned)),
            Task::Members(task) => {
                let (list, visited) = self.list_own_members(&task);
                *steps = steps.saturating_sub(SESSION_STEPS * (1 + visited));
                task.gather.finish(|sum| sum.merge(list, task.query.limit));
            }
            Task::Rooms(RoomsTask { query, found, gather, .. }) => {
                gather.finish(|sum| sum.merge(found, query.limit));
            }
        }
    }

    /// Looks up the ids that name clients of this core by their `sid`.
    fn look_up(&self, target: &mut Target) {
        for named in target.sessions.iter_mut().chain(&mut target.except_sessions) {
            let Named::Id(id) = *named else { continue };
            let Some(sid) = Sid::parse(&id.to_string()) else { continue };
            if sid.core(self.ex.shared.cores) == self.ex.context.core {
                let session = self.session_of_client(sid, target.everybody.namespace());
                *named = session
                    .map_or(Named::Unknown(id), |session| Named::Session(self.ex.context.core, session));
            }
        }
    }

    /// The session of a client in a namespace.
    fn session_of_client(&self, sid: Sid, namespace: &str) -> Option<SessionId> {
        self.clients.find(sid)?.session_in(namespace)
    }

    /// Works on a task. Returns whether it is finished.
    fn work_on_sessions(&mut self, task: &mut SessionsTask, steps: &mut usize) -> bool {
        if let Work::Call { .. } = task.work {
            // It isn't queued as other messages are, and mustn't overtake them.
            self.pump();
        }
        // Those that were named are few: they are checked at once.
        let mut named = mem::take(&mut task.named);
        let namespace = task.everybody.namespace();
        named.retain(|session| self.namespace_of(*session) == Some(namespace));
        self.ex.hub.leave_out_members(&mut named, &task.except_rooms);
        if let Work::Send { event, data, volatile, gather } = &task.work {
            *steps = steps.saturating_sub(named.len() * SESSION_STEPS);
            self.ex.published_bytes += named.len() * (data.len() + ENVELOPE_BYTES);
            let (event, data) = (event.clone(), data.clone());
            self.ex.hub.handle_send(self.ex.context.now, &named, &task.everybody, event, data, *volatile);
            Tally::add(&**gather, named.len());
            return true;
        }
        task.found.append(&mut named);
        loop {
            while let Some(session) = task.found.pop() {
                if *steps == 0 {
                    task.found.push(session);
                    return false;
                }
                *steps = steps.saturating_sub(self.act_on(session, task));
            }
            let Some(selection) = &mut task.selection else { return true };
            if *steps == 0 {
                return false;
            }
            let visits_max = VISITS_MAX.min(*steps);
            match self.ex.hub.select(selection, visits_max, &mut task.found) {
                Some(visits) => *steps -= visits,
                None => {
                    *steps -= visits_max;
                    task.selection = None;
                }
            }
        }
    }

    /// The namespace of a session, suspended or not.
    fn namespace_of(&self, session: SessionId) -> Option<&str> {
        let owner = Owner::of_tag(self.ex.hub.tag(session)?);
        if let Owner::Socket(slot) = owner {
            let socket = self.ex.recovery.get(slot).filter(|socket| socket.session == session);
            return socket.map(|socket| socket.room.namespace());
        }
        match self.ex.owner_of(session)? {
            Owner::Client(id) => self.clients.get(id)?.namespace_of(session),
            Owner::Connection(..) => Some("/"),
            Owner::Socket(_) => None,
        }
    }

    /// Does what a task wants with one session. Returns the steps that this took.
    fn act_on(&mut self, session: SessionId, task: &mut SessionsTask) -> usize {
        match &mut task.work {
            Work::Call { call, numbers, concerned, .. } => {
                if let Some(number) = self.call(session, &task.everybody, call) {
                    numbers.push(number);
                    concerned.sessions += 1;
                }
                SESSION_STEPS
            }
            Work::Join { topics, concerned, .. } => {
                let is_joined = |topic: &Topic| match topic {
                    // Its policy stays.
                    Topic::Room(room) if self.ex.hub.has_joined(session, room) => true,
                    topic => self.ex.hub.handle_subscribe(session, topic, Policy::Queue, None).is_ok(),
                };
                // Each room, whether another one could be joined or not.
                let joined = topics.iter().map(is_joined).filter(|is_joined| *is_joined).count();
                concerned.merge(match joined == topics.len() {
                    true => Concerned::sessions(1),
                    false => Concerned { refused: 1, ..Concerned::default() },
                });
                topics.len() * ROOM_STEPS
            }
            Work::Leave { topics, concerned, .. } => {
                for topic in topics.iter() {
                    self.ex.leave(session, topic);
                }
                concerned.sessions += 1;
                topics.len() * ROOM_STEPS
            }
            Work::Disconnect { close, concerned, .. } => {
                concerned.sessions += 1;
                match self.ex.owner_of(session) {
                    Some(Owner::Client(id)) if *close => {
                        self.send_pending(session);
                        if let Some(client) = self.clients.get_mut(id) {
                            client.close(&mut self.ex);
                        }
                    }
                    _ => self.disconnect(session, Disconnect::ClosedByApplication),
                }
                DISCONNECT_STEPS
            }
            Work::List { limit, list, .. } => {
                let Some(protocol) = self.protocol_of(session) else { return 1 };
                list.count += 1;
                if list.sessions.len() >= *limit || list.bytes >= LIST_BYTES_MAX {
                    return 1;
                }
                let info = self.describe(session, protocol, LIST_BYTES_MAX - list.bytes);
                let steps = SESSION_STEPS + info.rooms.len() * ROOM_STEPS;
                list.push(info);
                steps
            }
            Work::Send { .. } => 0,
        }
    }

    /// Sends a session an event. Returns the number of its acknowledgement, if its client gives one.
    fn call(&mut self, session: SessionId, everybody: &Room, call: &Call) -> Option<u64> {
        let Call { event, data, answered, .. } = call;
        self.ex.published_bytes += data.len() + ENVELOPE_BYTES;
        let number = match self.protocol_of(session)? {
            "socketio" => self.ex.acks.expect(session, Waiter::Command(answered.clone())),
            _ => None,
        };
        let (Some(number), Data::Arguments { json, attachments }) = (number, data) else {
            let (event, data) = (Some(event.clone()), data.clone());
            self.ex.hub.handle_send(self.ex.context.now, &[session], everybody, event, data, false);
            return None;
        };
        let json = String::from_utf8_lossy(json).into_owned();
        let attachments = attachments.to_vec();
        let what = Sent::Event { name: event.to_string(), json, attachments, ack: Some(number) };
        self.send_to_session(session, what);
        Some(number)
    }

    /// What a session speaks; `None` while its client is disconnected.
    fn protocol_of(&self, session: SessionId) -> Option<&'static str> {
        match self.ex.owner_of(session)? {
            Owner::Socket(_) => None,
            Owner::Connection(..) | Owner::Client(_) => self.ex.encoding_of(session)?.protocol(),
        }
    }

    /// Reports to the application behind the server what has happened in this turn.
    pub(super) fn mind_notices(&mut self) {
        for session in self.ex.take_opened() {
            if let Some(protocol) = self.protocol_of(session) {
                let namespace = self.namespace_of(session).unwrap_or("/").to_owned();
                self.ex.report_begin(session, protocol, &namespace);
            }
        }
        self.ex.report_attendance();
    }

    /// An entry of a list, with names of at most about `bytes_max`.
    fn describe(&self, session: SessionId, protocol: &'static str, bytes_max: usize) -> SessionInfo {
        let mut bytes = 0;
        let rooms = self.ex.hub.rooms_of(session).filter(|room| !room.is_all_members());
        let rooms = rooms.map(|room| room.name().to_owned()).take_while(|name| {
            bytes += name.len();
            bytes <= bytes_max
        });
        let handshake = match self.ex.owner_of(session) {
            Some(Owner::Client(id)) => self.ex.handshakes.get(id).map(Into::into),
            _ => None,
        };
        let details = self.ex.details(session);
        SessionInfo { id: self.id_of(session), protocol, rooms: rooms.collect(), handshake, details }
    }

    /// The id that a session's client knows it by.
    pub(super) fn id_of(&self, session: SessionId) -> String {
        let client = self.ex.owner_of(session).and_then(Owner::client).and_then(|id| self.clients.get(id));
        let own = client.and_then(|client| client.id_of(session));
        own.unwrap_or_else(|| self.ex.public_id(session).to_string())
    }

    /// Continues to list rooms. Returns whether it is finished.
    fn work_on_rooms(&mut self, task: &mut RoomsTask, steps: &mut usize) -> bool {
        let RoomsTask { query, next, found, .. } = task;
        while *steps > 0 {
            let visits_max = VISITS_MAX.min(*steps);
            *steps -= visits_max;
            let rest = self.ex.hub.walk_rooms(*next, visits_max, |room, members| {
                let is_asked_for = room.namespace() == query.namespace
                    && !room.is_all_members()
                    && room.name().starts_with(&query.prefix)
                    && room.name() > query.after.as_str();
                if is_asked_for {
                    *steps = steps.saturating_sub(ROOM_STEPS);
                    found.add(room.name(), members, query.limit);
                }
            });
            match rest {
                Some(rest) => *next = rest,
                None => return true,
            }
        }
        false
    }
}
