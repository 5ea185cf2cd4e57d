//! Effects of handlers and machines, and notices of the hub.

use super::table::{Conn, Machine};
use super::timer::Timer;
use super::{Connections, Mail, Protocols, clients, end, memory, migration, send};
use crate::ports::Denial;
use std::time::Instant;
use stentor_driver::{ConnId, Driver};
use stentor_hub::{Disconnect, Notice, SessionId, SubscribeError, Topic};
use stentor_session::app::{Alarm, Arguments, Effect, Sent, ToClient, ToConnection, ToSession};
use stentor_session::encode::{Encoding, json_error_text};
use stentor_session::identity::{End, Owner};
use stentor_session::message::Envelope;
use stentor_session::subscribe_options::{TOO_MANY_COLD_KEYS, TOO_MANY_TOPICS};

/// Carries out effects, in order.
pub(super) fn carry_out_effects(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
) {
    while let Some(effect) = protocols.ex.pop_effect() {
        carry_out(conns, protocols, mail, effect);
    }
    for effect in protocols.ex.take_other_effects() {
        carry_out(conns, protocols, mail, effect);
    }
}

pub(super) fn send_to_session(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    what: Sent,
) {
    if let Sent::Event { name, json, attachments, ack: None } = &what
        && protocols.ex.send_recoverable(session, name, Arguments { json, attachments })
    {
        return;
    }
    match protocols.ex.owner_of(session) {
        Some(Owner::Client(id)) => {
            if let Some(client) = protocols.clients.get_mut(id) {
                client.send(&mut protocols.ex, session, &what);
            }
        }
        Some(Owner::Connection(index, _)) => {
            write_to_socket(conns, protocols, session, index, |encoding, out| what.write(encoding, "/", out));
        }
        Some(Owner::Socket(_)) | None => {}
    }
}

/// Sends answers that are written in the session's encoding.
fn write_to_session(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    bytes: &[u8],
) {
    match protocols.ex.owner_of(session) {
        Some(Owner::Client(id)) => {
            if let Some(client) = protocols.clients.get_mut(id) {
                client.keep(&mut protocols.ex, bytes);
                protocols.ex.flush_client(id);
            }
        }
        Some(Owner::Connection(index, _)) => {
            write_to_socket(conns, protocols, session, index, |_, out| out.extend_from_slice(bytes));
        }
        Some(Owner::Socket(_)) | None => {}
    }
}

/// Writes to the WebSocket of a session.
fn write_to_socket(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    index: usize,
    write: impl FnOnce(Encoding, &mut Vec<u8>),
) {
    let bytes_max = protocols.ex.options().limits.send_buffer_bytes_max;
    let Some(conn) = conns.table.get_mut(index) else { return };
    let Machine::WebSocket(socket) = &conn.machine else { return };
    let encoding = socket.encoding();
    let replies = conn.replies.get_or_insert_default();
    write(encoding, replies);
    let is_slow = replies.len() > bytes_max && conn.in_flight;
    conn.weigh(protocols.ex.ledger());
    if is_slow {
        end::disconnect(conns, protocols, session, Disconnect::SlowConsumer);
    } else {
        send::flush(conns, protocols, index);
    }
}

/// Handles a notice of the hub about a subscription.
pub(super) fn handle_notice(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    notice: &Notice,
) {
    let session = notice.session();
    let Some(owner) = protocols.ex.owner_of(session) else { return };
    let Some(encoding) = protocols.ex.encoding_of(session) else { return };
    if let Owner::Connection(index, _) = owner
        && encoding.is_response()
    {
        if let Notice::Refused { reason, .. } = notice {
            refuse_document(conns, protocols, index, *reason);
        }
        return;
    }
    let envelope = encoding.envelope();
    // A client in raw mode is notified only by closing its connection. Its pending deliveries have been dropped.
    match notice {
        Notice::NotFound { .. } if envelope == Envelope::Raw => {
            end::disconnect(conns, protocols, session, Disconnect::NotFound)
        }
        Notice::Refused { topic: Topic::Feed(key), reason: SubscribeError::TooManyColdKeys, .. }
            if envelope == Envelope::SocketIo =>
        {
            protocols.refuse_feed_event(session, key);
        }
        Notice::Refused { .. } if envelope == Envelope::Raw => {
            end::disconnect(conns, protocols, session, Disconnect::Overloaded);
        }
        _ => protocols.notify_app_about(session, |app, ctx| app.notice(ctx, notice)),
    }
}

/// Refuses a waiting request because its subscription has been refused.
fn refuse_document(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    why: SubscribeError,
) {
    let (status, text) = match why {
        SubscribeError::TooManyColdKeys => (429, TOO_MANY_COLD_KEYS),
        SubscribeError::TooManyTopics | SubscribeError::TooManySubscriptions => (503, TOO_MANY_TOPICS),
    };
    fail_request(conns, protocols, index, status, text);
    end::end_events(conns, protocols, index, None, Disconnect::Overloaded);
}

/// Answers a waiting request with an error.
pub(super) fn fail_request(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    status: u16,
    text: &str,
) {
    let Some(http) = conns.table.get_mut(index).and_then(Conn::http) else { return };
    let mut out = Vec::new();
    http.fail(&protocols.ex, status, text, &mut out);
    let deadline = http.poll_timeout();
    if !out.is_empty() {
        conns.append_replies(&mut protocols.ex, index, &mut out);
        conns.arm(&protocols.ex, index, deadline);
        send::flush(conns, protocols, index);
    }
}

/// Notifies a client that a subscription of its session has ended, with the reason.
pub(super) fn withdrawn(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    topic: &Topic,
    denial: &Denial,
) {
    let (kind, name) = match topic {
        Topic::Feed(key) => ("feed", key.as_str()),
        Topic::Room(room) => ("room", room.name()),
        Topic::Presence(room) => ("presence", room.name()),
    };
    let message = format!("the subscription to {name:?} has ended: {}", denial.message);
    let [name, code, message] = [name, &denial.code, &message].map(json_error_text);
    let text = format!(r#""{kind}":{name},"code":{code},"message":{message},"retry":{}"#, denial.retry);
    match protocols.envelope_of(session) {
        Some(Envelope::V1) => {
            send_to_session(conns, protocols, session, Sent::Text(format!(r#"{{"type":"error",{text}}}"#)));
        }
        Some(Envelope::SocketIo) => {
            send_to_session(conns, protocols, session, event(UNSUBSCRIBED_EVENT, format!("{{{text}}}")));
        }
        // Raw mode has no message for this notice.
        Some(Envelope::Raw) | None => end::disconnect(conns, protocols, session, Disconnect::NotAllowed),
    }
}

pub(super) fn event(name: &str, json: String) -> Sent {
    Sent::Event { name: name.to_owned(), json, attachments: Vec::new(), ack: None }
}

/// The event that notifies Socket.IO clients of the end of a subscription.
const UNSUBSCRIBED_EVENT: &str = "stentor:unsubscribed";

fn act_on_connection(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    conn: ConnId,
    effect: ToConnection,
) {
    let Some(index) = conns.table.index_of(conn) else { return };
    match effect {
        ToConnection::Answer(answer) => clients::answer_client(conns, protocols, conn, answer),
        ToConnection::Flush => send::flush(conns, protocols, index),
        ToConnection::Write(mut bytes) => {
            conns.append_replies(&mut protocols.ex, index, &mut bytes);
            send::flush(conns, protocols, index);
        }
        // A connection with a session of its own is closed in this way only after an invalid message.
        ToConnection::Close(code, reason) => {
            end::close_socket(conns, protocols, index, (code, reason), End::Fault);
        }
        ToConnection::End => end::end(conns, protocols, index),
        ToConnection::Abort => end::abort(conns, protocols, index),
        ToConnection::RefuseInput => memory::refuse_input(conns, protocols, index),
        ToConnection::Admit(answer) => conns.admit(index, answer),
    }
}

fn act_on_session(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    effect: ToSession,
) {
    match effect {
        ToSession::Send(what) => send_to_session(conns, protocols, session, what),
        ToSession::Write(bytes) => write_to_session(conns, protocols, session, &bytes),
        ToSession::Close(why) => end::disconnect(conns, protocols, session, why),
        ToSession::CloseWith(code, reason) => end::close_with(conns, protocols, session, code, &reason),
        ToSession::ListMembers { query, for_watcher, reply } => {
            if let Some(what) = protocols.list_members(session, query, for_watcher, reply) {
                send_to_session(conns, protocols, session, what);
            }
        }
        ToSession::Renew(identity) => match protocols.ex.check_renewal(session, &identity) {
            Ok(()) => protocols.ex.renew(session, identity),
            Err(_) => end::disconnect(conns, protocols, session, Disconnect::TooManyRequests),
        },
        ToSession::NoHistory(topic) => handle_notice(conns, protocols, &Notice::Gap { session, topic }),
        ToSession::Withdrawn(topic, denial) => withdrawn(conns, protocols, session, &topic, &denial),
    }
}

fn carry_out(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    effect: Effect,
) {
    match effect {
        Effect::Connection(conn, effect) => act_on_connection(conns, protocols, conn, effect),
        Effect::Client(id, ToClient::End(end)) => protocols.end_client(id, end),
        Effect::Client(id, ToClient::Remove) => clients::remove_client(conns, protocols, mail, id),
        Effect::Client(id, ToClient::Flush) => clients::flush_client(conns, protocols, id),
        Effect::Client(id, ToClient::Arm) => clients::arm_client(conns, protocols, id),
        Effect::Client(id, ToClient::Migrate(core)) => {
            migration::migrate_or_stay(conns, protocols, mail, id, core)
        }
        Effect::Session(session, effect) => act_on_session(conns, protocols, session, effect),
        Effect::Alarm(at, alarm) => set_alarm(conns, protocols, at, alarm),
    }
}

pub(super) fn set_alarm(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    at: Instant,
    alarm: Alarm,
) {
    let slot = protocols.alarms.insert(alarm);
    conns.driver.timer_set(at, Timer::App(slot).token());
}
