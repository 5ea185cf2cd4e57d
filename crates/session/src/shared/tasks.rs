//! Divides commands into tasks of cores, and merges the cores' results into one answer.
//!
//! A command becomes one task per core that it may concern: all cores for members of rooms, and the core of each session
//! that the command names. A message to rooms is one task: one core publishes it, and the hubs distribute it. The tasks of
//! a command enter the inboxes together or not at all.
//!
//! **Invariant.** A command is answered exactly once: when the last task is finished, or dropped.

use super::fullest::FullestSessions;
use super::gather::Gather;
use super::{ControlCommand, Shared};
use crate::identity::ClientId;
use crate::ports::{
    Acknowledged, Command, CommandError, Concerned, Done, LinkApp, LinkBroadcast, LinkSelect, MemberList,
    MembersQuery, Named, PublicId, Recheck, RecheckAction, RoomList, RoomsQuery, SessionList, SessionsQuery,
    SubscriberCounts, Target,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{
    CoreId, Data, Emit, MEMBERS_LISTED_MAX, Room, Rooms, Selection, SessionId, Topic, core_of,
};

/// Estimated size of one entry of a list in bytes, charged while the list is made.
const LIST_ENTRY_BYTES: usize = 256;

/// A core's part of a command.
#[expect(missing_docs, reason = "the names of the variants' fields say what they are")]
pub enum Task {
    /// Looks up ids of clients that only this core knows, and then submits the command again.
    Resolve(Target, Command),
    /// Sends a message to rooms, on all cores.
    Emit {
        rooms: Rooms,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
        /// Sessions that other nodes leave out.
        except: Vec<PublicId>,
        gather: Arc<Gather<Concerned>>,
    },
    /// Work on sessions.
    Sessions(SessionsTask),
    /// Lists rooms.
    Rooms(RoomsTask),
    /// Lists sessions.
    NodeSessions(NodeSessionsTask),
    /// Checks identities again.
    Recheck(RecheckTask),
    /// Lists members of a room.
    Members(MembersTask),
    /// Counts subscribers of feeds.
    Subscribers(SubscribersTask),
    /// Work on sockets of applications whose clients are served by workers.
    Link(LinkTask),
}

/// Names of rooms of an application.
pub type Names = Vec<Box<str>>;

/// A core's part of a command for sockets of an application.
pub struct LinkTask {
    /// The application.
    pub app: LinkApp,
    /// The namespace of the sockets.
    pub namespace: Arc<str>,
    /// The work.
    pub work: LinkWork,
}

/// The action on the sockets.
#[expect(missing_docs, reason = "the names of the variants' fields say what they are")]
pub enum LinkWork {
    /// Sends an event.
    Send { broadcast: Arc<LinkBroadcast>, gather: Arc<Gather<Concerned>> },
    /// Sends an event that requests acknowledgements.
    Call { call: Arc<LinkCall>, gather: Arc<Gather<Concerned>> },
    /// Changes sockets: `found` are those that remain, and the number of all, once they have been found.
    Change { select: Arc<LinkSelect>, found: Option<(Vec<ClientId>, usize)>, gather: Arc<Gather<Concerned>> },
    /// Lists the sockets in one of the first rooms and in none of the second ones. Without first rooms: all.
    List { rooms: Arc<(Names, Names)>, limit: usize, gather: Arc<Gather<SessionList>> },
    /// Lists rooms.
    Rooms { query: Arc<RoomsQuery>, gather: Arc<Gather<FoundRooms>> },
}

/// An event for the sockets in one of the rooms and in no excepted one, which requests acknowledgements. Without rooms: all.
#[expect(missing_docs, reason = "the names of the fields say what they are")]
pub struct LinkCall {
    pub call: Call,
    pub rooms: Names,
    pub except: Names,
}

impl LinkTask {
    /// Approximate size.
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.work {
                LinkWork::Send { broadcast, .. } => {
                    broadcast.messages.iter().map(|message| message.data().len()).sum()
                }
                LinkWork::Call { call, .. } => call.call.data.len(),
                LinkWork::Change { select, .. } => {
                    (select.rooms.len() + select.targets.len()) * size_of::<Room>()
                }
                LinkWork::List { limit, .. } => limit * LIST_ENTRY_BYTES,
                LinkWork::Rooms { query, .. } => query.limit * LIST_ENTRY_BYTES,
            }
    }
}

/// Lists members of a room of this core.
pub struct MembersTask {
    /// The query.
    pub query: Arc<MembersQuery>,
    /// `true` if the list is for a session that receives notices. The list then has the state as of the session's last notice.
    pub for_watcher: bool,
    /// The result of all cores.
    pub gather: Arc<Gather<MemberList>>,
}

/// An action on sessions of this core.
pub struct SessionsTask {
    /// The room of all sockets of the sessions' namespace.
    pub everybody: Room,
    /// Sessions that the command names. They may belong to another namespace.
    pub named: Vec<SessionId>,
    /// Rooms whose members are left out.
    pub except_rooms: Arc<[Room]>,
    /// The search for members of rooms. `None` once all members have been found.
    pub selection: Option<Selection>,
    /// Sessions that have been found but not handled yet.
    pub found: Vec<SessionId>,
    /// The work.
    pub work: SessionWork,
}

/// The action on the sessions, and the result so far.
#[expect(missing_docs, reason = "the names of the variants' fields say what they are")]
pub enum SessionWork {
    /// Sends an event or message.
    Send { event: Option<Arc<str>>, data: Data, volatile: bool, gather: Arc<Gather<Concerned>> },
    /// Sends an event that is acknowledged.
    Call { call: Arc<Call>, numbers: Vec<u64>, concerned: Concerned, gather: Arc<Gather<Concerned>> },
    /// Joins rooms.
    Join { topics: Arc<[Topic]>, concerned: Concerned, gather: Arc<Gather<Concerned>> },
    /// Leaves rooms.
    Leave { topics: Arc<[Topic]>, concerned: Concerned, gather: Arc<Gather<Concerned>> },
    /// Ends sessions. `close` is `true` if their clients end as well.
    Disconnect { close: bool, concerned: Concerned, gather: Arc<Gather<Concerned>> },
    /// Lists sessions.
    List { limit: usize, list: SessionList, gather: Arc<Gather<SessionList>> },
}

/// An event that clients acknowledge.
pub struct Call {
    /// The name of the event.
    pub event: Arc<str>,
    /// The arguments of the event.
    pub data: Data,
    /// Time to wait for acknowledgements.
    pub timeout: Duration,
    /// Called with each acknowledgement.
    pub answered: Acknowledged,
}

impl SessionWork {
    fn bytes(&self) -> usize {
        match self {
            Self::Send { data, .. } => data.len(),
            Self::Call { call, .. } => call.data.len(),
            Self::List { limit, .. } => limit * LIST_ENTRY_BYTES,
            Self::Join { .. } | Self::Leave { .. } | Self::Disconnect { .. } => 0,
        }
    }
}

/// Checks the identities of this core again.
pub struct RecheckTask {
    /// The filter and the action.
    pub recheck: Arc<Recheck>,
    /// The session that the filter names. `None` if it names no session of this node.
    pub session: Option<SessionId>,
    /// The next identity to visit.
    pub next: usize,
    /// The sessions handled so far.
    pub concerned: Concerned,
    /// The result of all cores.
    pub gather: Arc<Gather<Concerned>>,
}

/// Lists sessions of this core.
pub struct NodeSessionsTask {
    /// The query.
    pub query: Arc<SessionsQuery>,
    /// The next place in the table of sessions to visit.
    pub next: usize,
    /// The sessions found so far: those with the fullest send buffers.
    pub found: FullestSessions,
    /// The result of all cores.
    pub gather: Arc<Gather<SessionList>>,
}

/// Lists rooms of this core.
pub struct RoomsTask {
    /// The query.
    pub query: Arc<RoomsQuery>,
    /// The next topic to visit.
    pub next: usize,
    /// The rooms found so far.
    pub found: FoundRooms,
    /// The result of all cores.
    pub gather: Arc<Gather<FoundRooms>>,
}

/// A core's part of a count of subscribers.
pub struct SubscribersTask {
    /// The feeds.
    pub feeds: Arc<[Topic]>,
    /// The result of all cores.
    pub gather: Arc<Gather<SubscriberCounts>>,
}

impl SubscribersTask {
    /// Approximate size. The cores share the feeds, but each is charged for them.
    fn bytes(&self) -> usize {
        self.feeds.len() * (size_of::<Topic>() + size_of::<usize>())
    }
}

/// The first rooms that match a query, with their members.
#[derive(Default)]
pub struct FoundRooms {
    rooms: BTreeMap<String, usize>,
    truncated: bool,
}

impl FoundRooms {
    /// Answers a list of rooms.
    pub(super) fn answering(done: Done<RoomList>) -> Done<Self> {
        Done::new(move |found: Result<Self, CommandError>| {
            done.answer(found.map(|Self { rooms, truncated }| RoomList {
                missing_nodes: Vec::new(),
                rooms: rooms.into_iter().collect(),
                truncated,
            }));
        })
    }

    /// Adds members of a room. If there are more than `limit` rooms, removes the last one. The counts of the first `limit`
    /// rooms of all cores are still complete, because on each core, fewer than `limit` rooms precede any of these rooms.
    pub fn add(&mut self, name: &str, members: usize, limit: usize) {
        if let Some(sum) = self.rooms.get_mut(name) {
            *sum += members;
            return;
        }
        if self.rooms.len() >= limit {
            self.truncated = true;
            if self.rooms.last_key_value().is_none_or(|(last, _)| name > last.as_str()) {
                return;
            }
            self.rooms.pop_last();
        }
        self.rooms.insert(name.to_owned(), members);
    }

    /// Adds the rooms of another core.
    pub fn merge(&mut self, other: Self, limit: usize) {
        self.truncated |= other.truncated;
        for (name, members) in other.rooms {
            self.add(&name, members, limit);
        }
    }
}

impl Task {
    /// Approximate size.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Resolve(target, command) => target.bytes() + command.bytes(),
            Self::Emit { rooms, data, how, except, .. } => {
                let except = except.len() * size_of::<PublicId>();
                data.len() + rooms.iter().count() * size_of::<Room>() + how.bytes() + except
            }
            Self::Sessions(task) => {
                task.named.len() * size_of::<SessionId>()
                    + task.except_rooms.len() * size_of::<Room>()
                    + task.work.bytes()
            }
            Self::Rooms(task) => task.query.limit * LIST_ENTRY_BYTES,
            Self::NodeSessions(task) => task.query.limit * LIST_ENTRY_BYTES,
            Self::Recheck(_) => size_of::<RecheckTask>(),
            Self::Members(task) => task.query.limit * LIST_ENTRY_BYTES,
            Self::Subscribers(task) => task.bytes(),
            Self::Link(task) => task.bytes(),
        }
    }
}

/// A target whose ids have been decoded.
struct Resolved {
    everybody: Room,
    rooms: Arc<[Room]>,
    sessions: Vec<(CoreId, SessionId)>,
    except_rooms: Arc<[Room]>,
    except_sessions: Vec<(CoreId, SessionId)>,
    /// Ids that name no session of this node. They may name sessions of other nodes.
    except_unknown: Vec<PublicId>,
}

impl Resolved {
    fn new(target: Target) -> Self {
        let Target { everybody, rooms, sessions, except_rooms, except_sessions } = target;
        let unknown = except_sessions.iter().filter_map(|named| match named {
            Named::Unknown(id) => Some(*id),
            Named::Id(_) | Named::Session(..) => None,
        });
        let except_unknown = unknown.collect();
        let place = |(core, session): &(CoreId, SessionId)| (*core, session.to_bits());
        let known = |named: Vec<Named>| -> Vec<(CoreId, SessionId)> {
            let mut known: Vec<_> = named
                .into_iter()
                .filter_map(|named| match named {
                    Named::Session(core, session) => Some((core, session)),
                    Named::Id(_) | Named::Unknown(_) => None,
                })
                .collect();
            known.sort_unstable_by_key(place);
            known.dedup();
            known
        };
        let except_sessions = known(except_sessions);
        let mut sessions = known(sessions);
        // A binary search, because a request may name many sessions in both lists.
        sessions.retain(|session| except_sessions.binary_search_by_key(&place(session), place).is_err());
        let (rooms, except_rooms) = (rooms.into(), except_rooms.into());
        Self { everybody, rooms, sessions, except_rooms, except_sessions, except_unknown }
    }

    /// The cores that may have some of the target's sessions.
    fn cores(&self, cores: usize) -> Vec<CoreId> {
        if self.rooms.is_empty() {
            return self.cores_of_named();
        }
        (0..cores).collect()
    }

    fn cores_of_named(&self) -> Vec<CoreId> {
        let mut cores: Vec<CoreId> = self.sessions.iter().map(|(core, _)| *core).collect();
        cores.dedup();
        cores
    }

    fn on(core: CoreId, sessions: &[(CoreId, SessionId)]) -> impl Iterator<Item = SessionId> {
        sessions.iter().filter(move |(of, _)| *of == core).map(|(_, session)| *session)
    }

    /// The task of `core` for the named sessions and, with `members`, for the members of the rooms.
    fn task(&self, core: CoreId, members: bool, work: SessionWork) -> ControlCommand {
        let named: Vec<SessionId> = Self::on(core, &self.sessions).collect();
        let selection = (members && !self.rooms.is_empty()).then(|| {
            let seen = Self::on(core, &self.except_sessions).chain(named.iter().copied());
            Selection::new(self.rooms.clone(), self.except_rooms.clone(), seen)
        });
        ControlCommand::Task(Box::new(Task::Sessions(SessionsTask {
            everybody: self.everybody.clone(),
            named,
            except_rooms: self.except_rooms.clone(),
            selection,
            found: Vec::new(),
            work,
        })))
    }
}

impl Shared {
    /// Divides a command into tasks. If only another core can look up an id, that core does so first.
    pub fn submit(&self, mut target: Target, command: Command) {
        if matches!(command, Command::Emit { .. } | Command::Call { .. })
            && (self.is_out_of_memory() || self.is_broker_behind())
        {
            return command.fail(CommandError::Busy);
        }
        if let Some(core) = self.decode(&mut target) {
            let task = Task::Resolve(target, command);
            if let Err(refused) = self.inbox(core).put(ControlCommand::Task(Box::new(task)))
                && let ControlCommand::Task(task) = *refused
                && let Task::Resolve(_, command) = *task
            {
                command.fail(CommandError::Busy);
            }
            return;
        }
        let target = Resolved::new(target);
        match command {
            Command::Emit { event, data, volatile, done } => self.emit(&target, event, data, volatile, done),
            Command::Call { event, data, timeout, answered, done } => {
                let call = Arc::new(Call { event, data, timeout, answered });
                self.split(&target, done, |gather| SessionWork::Call {
                    call: call.clone(),
                    numbers: Vec::new(),
                    concerned: Concerned::default(),
                    gather,
                });
            }
            Command::Join { rooms, done } => {
                let topics = topics(&target, &rooms);
                self.split(&target, done, |gather| SessionWork::Join {
                    topics: topics.clone(),
                    concerned: Concerned::default(),
                    gather,
                });
            }
            Command::Leave { rooms, done } => {
                let topics = topics(&target, &rooms);
                self.split(&target, done, |gather| SessionWork::Leave {
                    topics: topics.clone(),
                    concerned: Concerned::default(),
                    gather,
                });
            }
            Command::Disconnect { close, done } => {
                self.split(&target, done, |gather| SessionWork::Disconnect {
                    close,
                    concerned: Concerned::default(),
                    gather,
                });
            }
            Command::Sessions { limit, done } => {
                let limit = limit.min(crate::ports::SESSIONS_LISTED_MAX);
                self.split(&target, done, |gather| SessionWork::List {
                    limit,
                    list: SessionList::default(),
                    gather,
                });
            }
        }
    }

    /// Decodes the ids of a target. Returns a core that must look up remaining ids. `None` if none remain.
    fn decode(&self, target: &mut Target) -> Option<CoreId> {
        let mut core = None;
        for named in target.sessions.iter_mut().chain(&mut target.except_sessions) {
            let Named::Id(id) = *named else { continue };
            match self.session_of(id) {
                Some((of, session)) => *named = Named::Session(of, session),
                None if id.is_issued() => *named = Named::Unknown(id),
                // The id may be the `sid` of a client, whose first byte names the core.
                None => core = Some(usize::from(id.bytes()[0]) % self.cores),
            }
        }
        core
    }

    /// Makes one task for each core that may have sessions of the target.
    fn split<T: Default>(
        &self,
        target: &Resolved,
        done: Done<T>,
        work: impl Fn(Arc<Gather<T>>) -> SessionWork,
    ) {
        let cores = target.cores(self.cores);
        let gather = Gather::new(cores.len(), done);
        let tasks = cores.into_iter().map(|core| (core, target.task(core, true, work(gather.clone()))));
        self.put_all(tasks.collect(), &gather);
    }

    fn emit(
        &self,
        target: &Resolved,
        event: Option<Arc<str>>,
        data: Data,
        volatile: bool,
        done: Done<Concerned>,
    ) {
        let cores = target.cores_of_named();
        let rooms = Rooms::try_from(target.rooms.to_vec()).ok();
        let gather = Gather::new(cores.len() + usize::from(rooms.is_some()), done);
        let mut tasks: Vec<(CoreId, ControlCommand)> = cores
            .into_iter()
            .map(|core| {
                let (event, data, gather) = (event.clone(), data.clone(), gather.clone());
                (core, target.task(core, false, SessionWork::Send { event, data, volatile, gather }))
            })
            .collect();
        if let Some(rooms) = rooms {
            // The same core takes other publications to this room, so that all of them keep their order.
            let core = core_of(self.seed, self.cores, &Topic::Room(rooms.first().clone()));
            let mut how = if volatile { Emit::volatile() } else { Emit::default() };
            // Named sessions are left out, because they receive the message individually.
            for (of, session) in target.except_sessions.iter().chain(&target.sessions) {
                how = how.except_session(*of, *session);
            }
            for room in target.except_rooms.iter() {
                how = how.except_room(room.clone());
            }
            let how = how.counted_by(gather.clone());
            // Another node may have a session whose id this node has decoded (`PublicId::decode`).
            let id_of = |(core, session): &(CoreId, SessionId)| PublicId::of(self.ids.key, *core, *session);
            let known = target.except_sessions.iter().map(id_of);
            let except = known.chain(target.except_unknown.iter().copied()).collect();
            let task = Task::Emit { rooms, event, data, how, except, gather: gather.clone() };
            tasks.push((core, ControlCommand::Task(Box::new(task))));
        }
        self.put_all(tasks, &gather);
    }

    /// Lists members of a room on this node.
    pub(crate) fn submit_members(&self, mut query: MembersQuery, for_watcher: bool, done: Done<MemberList>) {
        query.limit = query.limit.min(MEMBERS_LISTED_MAX);
        let query = Arc::new(query);
        let gather = Gather::new(self.cores, done);
        let tasks = (0..self.cores).map(|core| {
            let task = MembersTask { query: query.clone(), for_watcher, gather: gather.clone() };
            (core, ControlCommand::Task(Box::new(Task::Members(task))))
        });
        self.put_all(tasks.collect(), &gather);
    }

    /// Lists members of a room for a client. A client that receives notices gets the members as of its last notice, other
    /// clients get the members on all nodes.
    pub(crate) fn list_members_for_client(
        &self,
        query: MembersQuery,
        for_watcher: bool,
        answer: impl FnOnce(Result<MemberList, CommandError>) + Send + 'static,
    ) {
        let broker = self.initial.broker.clone().filter(|_| !for_watcher);
        let asked = query.clone();
        let done = Done::new(move |list: Result<MemberList, CommandError>| match (broker, list) {
            (Some(broker), Ok(list)) => broker.list_members(asked, list, Done::new(answer)),
            (_, list) => answer(list),
        });
        self.submit_members(query, for_watcher, done);
    }

    /// Lists rooms of all cores.
    pub(crate) fn submit_list(&self, mut query: RoomsQuery, done: Done<RoomList>) {
        query.limit = query.limit.min(crate::ports::ROOMS_LISTED_MAX);
        let query = Arc::new(query);
        let gather = Gather::new(self.cores, FoundRooms::answering(done));
        let tasks = (0..self.cores).map(|core| {
            let (query, gather, found) = (query.clone(), gather.clone(), FoundRooms::default());
            (core, ControlCommand::Task(Box::new(Task::Rooms(RoomsTask { query, next: 0, found, gather }))))
        });
        self.put_all(tasks.collect(), &gather);
    }

    /// Checks identities again: on the core of the session that the filter names, or on all cores.
    /// [`RecheckAction::Authorize`] isn't refused even if inboxes are full, so that subscriptions that are no longer allowed
    /// end.
    pub(crate) fn submit_recheck(&self, recheck: Recheck, done: Done<Concerned>) {
        let named = recheck.filter.session.and_then(|id| self.session_of(id));
        let cores = named.map_or(0..self.cores, |(core, _)| core..core + 1);
        let session = named.map(|(_, session)| session);
        let is_certain = recheck.action == RecheckAction::Authorize;
        let (recheck, gather) = (Arc::new(recheck), Gather::new(cores.len(), done));
        let tasks = cores.map(|core| {
            let (recheck, gather, concerned) = (recheck.clone(), gather.clone(), Concerned::default());
            let task = RecheckTask { recheck, session, next: 0, concerned, gather };
            (core, ControlCommand::Task(Box::new(Task::Recheck(task))))
        });
        if is_certain {
            return tasks.for_each(|(core, task)| self.inbox(core).put_always(task));
        }
        self.put_all(tasks.collect(), &gather);
    }

    pub(super) fn put_all<T: Default>(&self, tasks: Vec<(CoreId, ControlCommand)>, gather: &Gather<T>) {
        if self.put_together(tasks).is_err() {
            gather.fail(CommandError::Busy);
        }
    }
}

/// Returns the rooms to join or leave as topics.
fn topics(target: &Resolved, rooms: &Rooms) -> Arc<[Topic]> {
    let namespace = target.everybody.namespace();
    rooms.iter().filter(|room| room.namespace() == namespace).cloned().map(Topic::Room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the time as well: comparing each session with each left-out session would take minutes.
    #[test]
    fn many_sessions_are_left_out_at_once() -> Result<(), stentor_hub::RoomError> {
        // Number of sessions with which a search per session would take hours.
        const SESSIONS: u64 = 1_000_000;
        let mut target = Target::of_rooms(Room::all_members("/")?, Vec::new(), Vec::new());
        let named = |bits| Named::Session(0, SessionId::from_bits(bits));
        target.sessions = (0..SESSIONS).rev().map(named).collect();
        target.except_sessions = (0..SESSIONS).filter(|bits| bits % 2 == 1).map(named).collect();
        let resolved = Resolved::new(target);
        assert!(resolved.sessions.iter().all(|(_, session)| session.to_bits() % 2 == 0));
        assert_eq!(resolved.sessions.len() as u64, SESSIONS / 2);
        Ok(())
    }
}
