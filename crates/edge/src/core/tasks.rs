//! Tasks of the control plane for sessions and rooms: this core's part of the work and its results.

use super::{Connections, Mail, Protocols, Work, actions, end, mail};
use crate::ports::{Concerned, LIST_BYTES_MAX};
use std::collections::VecDeque;
use std::time::Instant;
use stentor_driver::Driver;
use stentor_hub::{Data, Disconnect, Policy, Room, SessionId, Topic};
use stentor_session::app::{Alarm, ENVELOPE_BYTES, Sent, Waiter};
use stentor_session::core::link::LinkQueue;
use stentor_session::core::tasks::{ROOM_STEPS, TIMELINE_STEPS, TIMELINES_LISTED_MAX};
use stentor_session::identity::Owner;
use stentor_session::shared::ControlCommand;
use stentor_session::shared::tasks::{
    Call, LinkTask, LinkWork, NodeSessionsTask, RecheckTask, RoomsTask, SessionWork, SessionsTask, Task,
};

/// Steps of work for a session that is listed or sent a message, or for a member that is visited for a list.
pub(super) const SESSION_STEPS: usize = 16;

/// Maximum size of the keys of a session's feeds in a list.
const LISTED_FEEDS_BYTES_MAX: usize = 4 << 10;

/// Steps of work for a session that is disconnected.
const DISCONNECT_STEPS: usize = 128;

/// Commands that a core has taken from its inbox.
#[derive(Default)]
pub(super) struct Tasks {
    /// Commands taken in this turn.
    pub(super) received: Vec<ControlCommand>,
    pub(super) unfinished: VecDeque<(Box<Task>, usize)>,
    pub(super) joined: Vec<Joined>,
    /// Entries of the application link.
    pub(super) link: LinkQueue,
}

/// A task whose sessions have joined rooms. Its caller waits until the positions of the rooms are known, so that each message
/// published after the answer reaches the sessions.
pub(super) struct Joined {
    pub(super) task: Box<Task>,
    pub(super) bytes: usize,
    pub(super) rooms: Vec<Room>,
    pub(super) until: Instant,
}

/// Returns `true` if commands wait.
pub(super) fn has_commands_left(protocols: &Protocols, work: &Work) -> bool {
    !work.tasks.unfinished.is_empty()
        || !work.tasks.link.is_empty()
        || !protocols.ex.shared_core().inbox.is_empty()
}

/// Returns `true` if commands wait that can be carried out now.
pub(super) fn has_commands(protocols: &mut Protocols, work: &Work) -> bool {
    // While other cores are behind, commands wait like publishing connections do.
    has_commands_left(protocols, work) && !mail::are_cores_behind(&mut protocols.ex)
}

/// Called when the position of a room is known on this core.
pub(super) fn handle_prepared(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
    room: &Room,
) {
    protocols.ex.prepared(room);
    for joined in &mut work.tasks.joined {
        if let Some(at) = joined.rooms.iter().position(|other| other == room) {
            joined.rooms.swap_remove(at);
            protocols.ex.hub.handle_release(room);
        }
    }
    finish_joined(conns, protocols, mail, work);
}

/// Answers the callers of tasks whose rooms all have positions, and of tasks whose deadline has passed.
pub(super) fn finish_joined(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) {
    let now = protocols.ex.now();
    let is_finished = |joined: &mut Joined| joined.rooms.is_empty() || joined.until <= now;
    for Joined { task, bytes, rooms, .. } in work.tasks.joined.extract_if(.., is_finished).collect::<Vec<_>>()
    {
        rooms.iter().for_each(|room| protocols.ex.hub.handle_release(room));
        finish(conns, protocols, mail, *task, &mut 0);
        protocols.ex.shared_core().inbox.task_finished(bytes);
    }
}

/// Adds this core's result of a task to the results of the other cores.
pub(super) fn finish(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    task: Task,
    steps: &mut usize,
) {
    match task {
        Task::Resolve(mut target, command) => {
            protocols.look_up(&mut target);
            protocols.ex.shared.submit(target, command);
        }
        Task::Emit { rooms, event, data, how, except, gather } => {
            protocols.ex.emit(&rooms, event, data, how, &except);
            gather.finish(|_| ());
        }
        Task::Sessions(SessionsTask { work, .. }) => match work {
            // The sessions were added to the result when they were found.
            SessionWork::Send { gather, .. } => gather.finish(|_| ()),
            SessionWork::Call { call, numbers, concerned, gather } => {
                if !numbers.is_empty() {
                    actions::set_alarm(
                        conns,
                        protocols,
                        protocols.ex.now() + call.timeout,
                        Alarm::Acks(numbers),
                    );
                }
                gather.finish(|sum| sum.merge(concerned));
            }
            SessionWork::Join { concerned, gather, .. } => {
                // After the answer, the same caller may publish on another core, which must know the members by then.
                mail.send(&mut protocols.ex);
                gather.finish(|sum| sum.merge(concerned));
            }
            SessionWork::Leave { concerned, gather, .. }
            | SessionWork::Disconnect { concerned, gather, .. } => gather.finish(|sum| sum.merge(concerned)),
            SessionWork::List { limit, list, gather } => gather.finish(|sum| sum.merge(list, limit)),
        },
        Task::Recheck(RecheckTask { concerned, gather, .. }) => gather.finish(|sum| sum.merge(concerned)),
        Task::Members(task) => {
            let (list, visited) = protocols.list_own_members(&task);
            *steps = steps.saturating_sub(SESSION_STEPS * (1 + visited));
            task.gather.finish(|sum| sum.merge(list, task.query.limit));
        }
        Task::Subscribers(task) => {
            let counts = protocols.count_subscribers(&task.feeds, steps);
            task.gather.finish(|sum| sum.merge(counts));
        }
        Task::Link(LinkTask { app, namespace, work }) => match work {
            LinkWork::Send { broadcast, gather } => {
                let sent = protocols.send_to_link(app, &namespace, &broadcast, steps);
                gather.finish(|sum| sum.sessions += sent);
            }
            LinkWork::Call { call, gather } => {
                let (sent, number) = protocols.call_link(app, &namespace, &call, steps);
                if let Some(number) = number {
                    let at = protocols.ex.now() + call.call.timeout;
                    actions::set_alarm(conns, protocols, at, Alarm::LinkCall(number));
                }
                gather.finish(|sum| sum.sessions += sent);
            }
            LinkWork::Change { found, gather, .. } => {
                gather.finish(|sum| sum.sessions += found.map_or(0, |(_, count)| count));
            }
            LinkWork::List { rooms, limit, gather } => {
                protocols.ex.note_drops();
                let list = protocols.list_link(app, &namespace, &rooms, limit, steps);
                gather.finish(|sum| sum.merge(list, limit));
            }
            LinkWork::Rooms { query, gather } => {
                let found = protocols.list_link_rooms(app, &namespace, &query, steps);
                gather.finish(|sum| sum.merge(found, query.limit));
            }
        },
        Task::NodeSessions(NodeSessionsTask { query, found, gather, .. }) => {
            gather.finish(|sum| sum.merge_fullest(found.into_list(), query.limit));
        }
        Task::Rooms(RoomsTask { query, found, gather, .. }) => {
            gather.finish(|sum| sum.merge(found, query.limit));
        }
    }
}

/// Carries out a task for one session. Returns the number of steps.
pub(super) fn act_on(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    task: &mut SessionsTask,
) -> usize {
    match &mut task.work {
        SessionWork::Call { call, numbers, concerned, .. } => {
            if let Some(number) = call_session(conns, protocols, session, &task.everybody, call) {
                numbers.push(number);
                concerned.sessions += 1;
            }
            SESSION_STEPS
        }
        SessionWork::Join { topics, concerned, .. } => {
            let is_joined = |topic: &Topic| match topic {
                // The session is a member already and keeps its policy.
                Topic::Room(room) if protocols.ex.hub.has_joined(session, room) => true,
                topic => protocols.ex.hub.handle_subscribe(session, topic, Policy::Queue, None).is_ok(),
            };
            // All rooms are joined, even if one of them is refused.
            let joined = topics.iter().map(is_joined).filter(|is_joined| *is_joined).count();
            concerned.merge(match joined == topics.len() {
                true => Concerned::sessions(1),
                false => Concerned { refused: 1, ..Concerned::default() },
            });
            topics.len() * ROOM_STEPS
        }
        SessionWork::Leave { topics, concerned, .. } => {
            for topic in topics.iter() {
                protocols.ex.leave(session, topic);
            }
            concerned.sessions += 1;
            topics.len() * ROOM_STEPS
        }
        SessionWork::Disconnect { close, concerned, .. } => {
            concerned.sessions += 1;
            match protocols.ex.owner_of(session) {
                Some(Owner::Client(id)) if *close => {
                    end::send_pending(conns, protocols, session);
                    if let Some(client) = protocols.clients.get_mut(id) {
                        client.close(&mut protocols.ex);
                    }
                }
                _ => end::disconnect(conns, protocols, session, Disconnect::ClosedByApplication),
            }
            DISCONNECT_STEPS
        }
        SessionWork::List { limit, list, .. } => {
            let Some(protocol) = protocols.protocol_of(session) else { return 1 };
            list.count += 1;
            if list.sessions.len() >= *limit || list.bytes >= LIST_BYTES_MAX {
                return 1;
            }
            let mut info = protocols.describe(session, protocol, LIST_BYTES_MAX - list.bytes);
            info.details.feeds = protocols.feeds_of(session, LISTED_FEEDS_BYTES_MAX);
            let mut steps = SESSION_STEPS + (info.rooms.len() + info.details.feeds.len()) * ROOM_STEPS;
            if list.sessions.len() < TIMELINES_LISTED_MAX {
                protocols.ex.note_drops();
                info.details.timeline = protocols.timeline_of(session);
                steps += TIMELINE_STEPS;
            }
            list.push(info);
            steps
        }
        SessionWork::Send { .. } => 0,
    }
}

/// Sends an event to a session. Returns the number of the acknowledgement, if the client sends one.
pub(super) fn call_session(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    everybody: &Room,
    call: &Call,
) -> Option<u64> {
    let Call { event, data, answered, .. } = call;
    protocols.ex.budget.count_published(data.len() + ENVELOPE_BYTES);
    let number = match protocols.protocol_of(session)? {
        "socketio" => protocols.ex.expect_ack(session, Waiter::Command(answered.clone())),
        _ => None,
    };
    let (Some(number), Data::Arguments { json, attachments }) = (number, data) else {
        let (event, data) = (Some(event.clone()), data.clone());
        protocols.ex.send(&[session], everybody, event, data, false);
        return None;
    };
    let json = String::from_utf8_lossy(json).into_owned();
    let attachments = attachments.to_vec();
    let what = Sent::Event { name: event.to_string(), json, attachments, ack: Some(number) };
    actions::send_to_session(conns, protocols, session, what);
    Some(number)
}
