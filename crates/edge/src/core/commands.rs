//! Carries out the commands of the control plane ([`crate::ports::Commands`]).
//!
//! Publications and updates of feeds are handled when they are taken from the inbox. Tasks for sessions and rooms are worked on
//! in the order of their arrival, [`STEPS_PER_TURN`] steps per turn. So a task for 100,000 sessions takes many turns, and
//! connections are served in between.

use super::mail::CoreMessage;
use super::tasks::{Joined, SESSION_STEPS};
use super::{
    Connections, Mail, Protocols, Work, actions, handover, identities, link, mail, migration, relay, tasks,
    turn,
};
use std::mem;
use std::sync::atomic::Ordering;
use stentor_driver::Driver;
use stentor_driver::mailbox::Receiver;
use stentor_hub::Tally;
use stentor_session::app::ENVELOPE_BYTES;
use stentor_session::core::tasks::VISITS_MAX;
use stentor_session::shared::tasks::{SessionWork, SessionsTask, Task};
use stentor_session::shared::{ControlCommand, SocketCommand};

/// Steps of work on tasks per turn. One step is a visited member of a room (about 50 ns).
const STEPS_PER_TURN: usize = 8_192;
/// Maximum number of times that a core takes mail before a barrier.
const MAIL_ROUNDS_MAX: usize = 16;

/// Takes the commands that have arrived. They are carried out after this turn's mail, because a command's caller may already know
/// of members on other cores, and this core learns of those members by mail.
pub(super) fn take_commands(protocols: &mut Protocols, work: &mut Work) {
    if tasks::has_commands(protocols, work) {
        work.tasks.received = protocols.ex.shared_core().inbox.take().unwrap_or_default();
    }
}

pub(super) fn carry_out_commands(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) {
    if work.tasks.received.is_empty()
        && work.tasks.link.is_empty()
        && (work.tasks.unfinished.is_empty() || mail::are_cores_behind(&mut protocols.ex))
    {
        return;
    }
    let shared = protocols.ex.shared.clone();
    for command in mem::take(&mut work.tasks.received) {
        let bytes = command.bytes();
        match command {
            ControlCommand::Task(task) => {
                work.tasks.unfinished.push_back((task, bytes));
                continue;
            }
            ControlCommand::Link(batch) => {
                work.tasks.link.push(batch);
                continue;
            }
            ControlCommand::LinkSpace => protocols.retry_link_reports(),
            ControlCommand::Publish(message) => protocols.ex.publish(message),
            ControlCommand::Receive(message) => protocols.receive(message),
            ControlCommand::Room(room, update) => protocols.update_room(&room, update),
            ControlCommand::Presence(room, node, message) => {
                protocols.ex.receive_presence(&room, node, message);
            }
            ControlCommand::LostNode(node) => {
                protocols.ex.lose_node(node);
            }
            ControlCommand::Answer(session, answer) => {
                actions::send_to_session(conns, protocols, session, *answer)
            }
            ControlCommand::Decide(number, answer) => protocols.ex.decide(number, answer),
            ControlCommand::Reply(number, reply) => protocols.ex.reply(number, *reply),
            ControlCommand::Identify(number, answer) => protocols.ex.decide_identity(number, *answer),
            ControlCommand::Feed(key, update) => protocols.update_feed(&key, update),
            ControlCommand::Socket(command) => move_socket(protocols, mail, *command),
            ControlCommand::Barrier(barrier) => {
                pass_on_everything(conns, protocols, mail, work);
                barrier.pass(&shared);
            }
            ControlCommand::Options(options, barrier) => {
                protocols.set_options(options);
                barrier.pass(&shared);
            }
            ControlCommand::PauseAccepting(is_paused, barrier) => {
                conns.driver.pause_accepting(is_paused);
                barrier.pass(&shared);
            }
            ControlCommand::Adopt(connection, handover) => {
                relay::adopt(conns, protocols, mail, *connection, handover)
            }
            ControlCommand::Located(conn, location) => conns.located(conn, location),
        }
        shared.inbox(protocols.ex.core()).carried_out(bytes);
        turn::pump_if_much_was_published(conns, protocols, mail, work);
    }
    link::work_on_entries(conns, protocols, mail, work);
    work_on_tasks(conns, protocols, mail, work);
    shared.control.space();
}

/// Handles all earlier messages of other cores, and then sends the resulting messages to other cores and reports to the broker.
fn pass_on_everything(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) {
    // The mail of other cores is bounded. Mail that arrives during this loop isn't awaited.
    for _ in 0..MAIL_ROUNDS_MAX {
        if mail.mailboxes.is_empty() {
            break;
        }
        take_mail(conns, protocols, mail, work);
    }
    protocols.report_interest();
    mail.send(&mut protocols.ex);
}

fn move_socket(protocols: &mut Protocols, mail: &mut Mail, command: SocketCommand) {
    match command {
        SocketCommand::Request(name, request, done) => {
            let socket = protocols.ex.release_socket(&name, request);
            done.answer(Ok(socket));
        }
        SocketCommand::Expect(number, socket, done) => {
            if !protocols.ex.expect_socket(number, &socket) {
                return done.answer(Ok(false));
            }
            // Other cores then know the members and report them.
            mail.send(&mut protocols.ex);
            // If an inbox is full, `done` is dropped, and the caller receives an error.
            let _ = protocols.ex.shared.after_barrier(move |_| done.answer(Ok(true)));
        }
        SocketCommand::Deliver(number, socket) => protocols.ex.deliver_socket(number, socket),
    }
}

/// Works on tasks for at most the steps of one turn.
fn work_on_tasks(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) {
    let mut steps = STEPS_PER_TURN;
    while let Some((mut task, bytes)) = work.tasks.unfinished.pop_front() {
        let is_finished = match &mut *task {
            Task::Sessions(task) => work_on_sessions(conns, protocols, mail, work, task, &mut steps),
            Task::Rooms(task) => protocols.work_on_rooms(task, &mut steps),
            Task::NodeSessions(task) => protocols.work_on_node_sessions(task, &mut steps),
            Task::Recheck(task) => identities::work_on_recheck(conns, protocols, task, &mut steps),
            Task::Members(_) | Task::Subscribers(_) => steps > 0,
            Task::Link(task) => protocols.work_on_link(task, &mut steps),
            Task::Resolve(..) | Task::Emit { .. } => true,
        };
        if !is_finished {
            protocols.ex.metrics().command_yields.add(1);
            work.tasks.unfinished.push_front((task, bytes));
            break;
        }
        let rooms = protocols.unprepared_rooms(&task);
        if !rooms.is_empty() {
            let until = protocols.ex.now() + protocols.ex.options().limits.decision_timeout;
            work.tasks.joined.push(Joined { task, bytes, rooms, until });
            continue;
        }
        tasks::finish(conns, protocols, mail, *task, &mut steps);
        protocols.ex.shared_core().inbox.task_finished(bytes);
        turn::pump_if_much_was_published(conns, protocols, mail, work);
    }
}

/// Works on a task. Returns `true` if the task is finished.
fn work_on_sessions(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
    task: &mut SessionsTask,
    steps: &mut usize,
) -> bool {
    if let SessionWork::Call { .. } = task.work {
        // This message isn't queued like others, so earlier messages are sent first.
        turn::pump(conns, protocols, mail, work);
    }
    // A command names few sessions, so all of them are checked at once.
    let mut named = mem::take(&mut task.named);
    if let SessionWork::List { list, .. } = &mut task.work {
        *steps = steps.saturating_sub(protocols.list_ended(&named, list));
    }
    let namespace = task.everybody.namespace();
    named.retain(|session| protocols.namespace_of(*session) == Some(namespace));
    protocols.ex.hub.leave_out_members(&mut named, &task.except_rooms);
    if let SessionWork::Send { event, data, volatile, gather } = &task.work {
        *steps = steps.saturating_sub(named.len() * SESSION_STEPS);
        protocols.ex.budget.count_published(named.len() * (data.len() + ENVELOPE_BYTES));
        let (event, data) = (event.clone(), data.clone());
        protocols.ex.send(&named, &task.everybody, event, data, *volatile);
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
            *steps = steps.saturating_sub(tasks::act_on(conns, protocols, session, task));
        }
        let Some(selection) = &mut task.selection else { return true };
        if *steps == 0 {
            return false;
        }
        let visits_max = VISITS_MAX.min(*steps);
        match protocols.ex.hub.select(selection, visits_max, &mut task.found) {
            Some(visits) => *steps -= visits,
            None => {
                *steps -= visits_max;
                task.selection = None;
            }
        }
    }
}

/// Takes the messages of other cores.
pub(super) fn take_mail(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) {
    for from in 0..mail.mailboxes.from.len() {
        let mut taken_bytes = 0;
        for _ in 0..MAIL_PER_TURN {
            let Some(message) = mail.mailboxes.from[from].as_mut().and_then(Receiver::try_recv) else {
                break;
            };
            match message {
                CoreMessage::Dispatch(dispatch) => {
                    taken_bytes += dispatch.weight_bytes();
                    protocols.ex.receive_dispatch(from, dispatch);
                    turn::pump_if_much_was_published(conns, protocols, mail, work);
                }
                CoreMessage::Connection(arrival) => {
                    handover::arrived(conns, protocols, mail, *arrival, false)
                }
                CoreMessage::Client(migration) => migration::arrive(conns, protocols, *migration),
                CoreMessage::Ended(sid) => protocols.departed.forget(sid),
            }
        }
        if taken_bytes > 0 {
            protocols
                .ex
                .shared
                .mail_bytes(from, protocols.ex.core())
                .fetch_sub(taken_bytes, Ordering::Relaxed);
        }
    }
}

/// Handles the messages of other cores and the commands of the control plane. Their senders wake this core.
pub(super) fn handle_mail(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) {
    take_commands(protocols, work);
    take_mail(conns, protocols, mail, work);
    carry_out_commands(conns, protocols, mail, work);
    protocols.review_sessions();
    work.has_mail = !mail.mailboxes.is_empty() || tasks::has_commands_left(protocols, work);
}

/// Maximum number of messages taken from one mailbox per turn, so that connections are served in between.
const MAIL_PER_TURN: usize = 1_024;
