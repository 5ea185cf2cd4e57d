//! The parts of the control plane's tasks that concern rooms, and the list of a core's sessions.

use super::Protocols;
use crate::executor::link::Members;
use crate::identity::{ClientId, Owner};
use crate::ports::{
    Concerned, LinkApp, LinkSocket, SessionApp, SessionDetails, SessionInfo, SubscriberCounts,
};
use crate::shared::tasks::{NodeSessionsTask, RoomsTask, SessionWork, SessionsTask, Task};
use stentor_hub::{Room, SessionId, Topic};

/// Number of steps for a session that joins or leaves a room, or for a room in a list.
pub const ROOM_STEPS: usize = 8;

/// Number of steps for a session that is described.
const SESSION_STEPS: usize = 16;

/// Maximum size of the names of a session's rooms in the list of a node's sessions.
const LISTED_ROOMS_BYTES_MAX: usize = 1 << 10;

/// Number of sessions in a list whose timelines are listed.
pub const TIMELINES_LISTED_MAX: usize = 10;

/// Number of steps for a timeline: the events of a core's sessions are searched.
pub const TIMELINE_STEPS: usize = 256;

/// Maximum number of members that are visited at once.
pub const VISITS_MAX: usize = 512;

impl Protocols {
    /// Returns the rooms that the task's sessions join and that aren't prepared on this core yet.
    pub fn unprepared_rooms(&mut self, task: &Task) -> Vec<Room> {
        let Task::Sessions(SessionsTask { work: SessionWork::Join { topics, concerned, .. }, .. }) = task
        else {
            return Vec::new();
        };
        let topics = topics.iter().filter(|_| *concerned != Concerned::default());
        let rooms = topics.filter_map(|topic| if let Topic::Room(room) = topic { Some(room) } else { None });
        rooms.filter(|room| !self.ex.hub.handle_prepare(room)).cloned().collect()
    }

    /// Continues to list rooms. Returns `true` if the task is finished.
    pub fn work_on_rooms(&mut self, task: &mut RoomsTask, steps: &mut usize) -> bool {
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

    /// Counts this core's subscribers of feeds.
    pub fn count_subscribers(&self, feeds: &[Topic], steps: &mut usize) -> SubscriberCounts {
        *steps = steps.saturating_sub(feeds.len() * ROOM_STEPS);
        let counts = feeds.iter().map(|feed| self.ex.hub.subscriber_count(feed)).collect();
        SubscriberCounts { counts, missing_nodes: Vec::new() }
    }

    /// Continues to list sessions. Returns `true` if the task is finished. A session that opens meanwhile may be missed.
    pub fn work_on_node_sessions(&self, task: &mut NodeSessionsTask, steps: &mut usize) -> bool {
        while task.next < self.ex.hub.session_places() {
            if *steps == 0 {
                return false;
            }
            *steps -= 1;
            if let Some((session, queued)) = self.ex.hub.session_at(task.next) {
                *steps = steps.saturating_sub(self.list_session(task, session, queued));
            }
            task.next += 1;
        }
        true
    }

    /// Adds a session to the list, if it matches, and if its send buffer is one of the fullest. Returns the number of
    /// steps.
    fn list_session(&self, task: &mut NodeSessionsTask, session: SessionId, queued: usize) -> usize {
        let NodeSessionsTask { query, found, .. } = task;
        let Some(protocol) = self.protocol_of(session) else { return 0 };
        if query.names_user() && !query.is_for_user(self.ex.who_is(session).0.as_ref()) {
            return 1;
        }
        let members = self.members_of_workers(session);
        if query.is_for_all() && !found.takes(queued) {
            found.count += members.map_or(0, |(_, members, client)| members.count(client)).max(1);
            return 0;
        }
        let app = members.map(|(app, ..)| app);
        let sockets =
            members.map_or(Vec::new(), |(_, members, client)| members.list(client, LISTED_ROOMS_BYTES_MAX));
        let mut info = self.describe(session, protocol, LISTED_ROOMS_BYTES_MAX);
        info.details.app = app.map(SessionApp::Number);
        info.details.namespace = self.namespace_of(session).map(Into::into);
        let rooms = info.rooms.len() + sockets.iter().map(|socket| socket.rooms.len()).sum::<usize>();
        let steps = SESSION_STEPS * sockets.len().max(1) + rooms * ROOM_STEPS;
        if sockets.is_empty() {
            if query.matches(&info) {
                found.add(info);
            }
            return steps;
        }
        for LinkSocket { namespace, id, rooms } in sockets {
            let rooms = rooms.into_iter().map(String::from).collect();
            let details = SessionDetails { namespace: Some((*namespace).into()), ..info.details.clone() };
            let socket = SessionInfo { id: id.into(), rooms, details, ..info.clone() };
            if query.matches(&socket) {
                found.add(socket);
            }
        }
        steps
    }

    /// The application of a client of workers, and the sockets of all clients. `None`: the session isn't one of workers.
    fn members_of_workers(&self, session: SessionId) -> Option<(LinkApp, &Members, ClientId)> {
        let client = self.ex.owner_of(session).and_then(Owner::client)?;
        let app = self.clients.engineio.get(client)?.link()?.app;
        Some((app, &self.ex.link.as_ref()?.members, client))
    }
}
