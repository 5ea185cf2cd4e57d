//! What handlers asked for, what the hub reports, and the effects of machines.

use super::Core;
use super::table::{Conn, Machine};
use super::timer::Timer;
use crate::app::{Action, Application, Arguments, Context, Envelope, HandlerScope, Sent, Waiter};
use crate::encode::{Encoding, json_string};
use crate::executor::Effect;
use crate::identity::Service;
use crate::identity::{ClientId, ClientKind, Owner};
use crate::subscribe_options::{TOO_MANY_COLD_KEYS, TOO_MANY_TOPICS};
use std::time::Instant;
use stentor_driver::Driver;
use stentor_hub::{Disconnect, Key, Notice, SessionId, SubscribeError, Topic};

/// What a timer of the application's side is for.
pub(super) enum AppTimer {
    Token(Service, u64),
    Ack(u64),
    /// Those that a command waits for.
    Acks(Vec<u64>),
    Write(ClientId, Vec<u8>),
}

impl<D: Driver> Core<D> {
    /// Carries out the effects of machines, in order.
    pub(super) fn carry_out_effects(&mut self) {
        while let Some(effect) = self.ex.effects.pop_front() {
            match effect {
                Effect::EndClient(id, end) => self.end_client(id, end),
                Effect::RemoveClient(id) => self.remove_client(id),
                Effect::FlushClient(id) => self.flush_client(id),
                Effect::ArmClient(id) => self.arm_client(id),
                Effect::WriteLater(at, id, bytes) => self.set_app_timer(at, AppTimer::Write(id, bytes)),
                Effect::MigrateClient(id, core) => self.migrate_or_stay(id, core),
                Effect::AnswerPoll { conn, answer } => self.answer_poll(conn, &answer),
                Effect::TellReceiver { client, conn } => self.answer_receiver(client, conn),
                Effect::FlushConnection(index) => self.flush(index),
                Effect::CloseSocket { conn, code, reason } => self.close_socket_of(conn, code, reason),
                Effect::Write { conn, mut bytes } => {
                    if let Some(index) = self.table.index_of(conn) {
                        self.append_replies(index, &mut bytes);
                        self.flush(index);
                    }
                }
                Effect::CutSocket(conn) => {
                    if let Some(index) = self.table.index_of(conn) {
                        self.end(index);
                    }
                }
                Effect::RefuseInput(conn) => {
                    if let Some(index) = self.table.index_of(conn) {
                        self.refuse_input(index);
                    }
                }
            }
        }
    }

    /// Carries out what handlers asked for.
    pub(super) fn carry_out_actions(&mut self) {
        for action in std::mem::take(&mut self.ex.actions) {
            match action {
                Action::Send { session, what } => self.send_to_session(session, what),
                Action::Close { session, why } => self.disconnect(session, why),
                Action::ListMembers { session, query, for_watcher, reply } => {
                    self.list_members(session, query, for_watcher, reply);
                }
                Action::CloseWith { session, code, reason } => self.close_with(session, code, &reason),
                Action::After { at, service, token } => {
                    self.set_app_timer(at, AppTimer::Token(service, token));
                }
                Action::AckDue { at, number } => self.set_app_timer(at, AppTimer::Ack(number)),
                Action::Admit { request, answer } => self.admit(request.0, answer),
                Action::Renew { session, identity } => match self.ex.check_renewal(session, &identity) {
                    Ok(()) => self.ex.renew(session, identity),
                    Err(_) => self.disconnect(session, Disconnect::TooManyRequests),
                },
                Action::NoHistory { session, topic } => self.handle_notice(&Notice::Gap { session, topic }),
                Action::Withdrawn { session, topic, denial } => self.withdrawn(session, &topic, &denial),
            }
        }
    }

    pub(super) fn send_to_session(&mut self, session: SessionId, what: Sent) {
        if let Sent::Event { name, json, attachments, ack: None } = &what
            && self.ex.send_recoverable(session, name, Arguments { json, attachments })
        {
            return;
        }
        match self.ex.owner_of(session) {
            Some(Owner::Client(id)) => match id.kind() {
                ClientKind::EngineIo => {
                    if let Some(client) = self.engineio.get_mut(id) {
                        client.send(&mut self.ex, session, &what);
                    }
                }
                ClientKind::SockJs => {
                    if let Some(client) = self.sockjs.get_mut(id) {
                        client.send(&mut self.ex, &what);
                    }
                }
            },
            Some(Owner::Connection(index, _)) => {
                let bytes_max = self.ex.options().limits.send_buffer_bytes_max;
                let Some(conn) = self.table.get_mut(index) else { return };
                let Machine::WebSocket(socket) = &conn.machine else { return };
                let encoding = socket.encoding();
                let replies = conn.replies.get_or_insert_default();
                what.write(encoding, "/", replies);
                let is_slow = replies.len() > bytes_max && conn.in_flight;
                conn.weigh(&self.ex.shared.ledger);
                if is_slow {
                    self.disconnect(session, Disconnect::SlowConsumer);
                } else {
                    self.flush(index);
                }
            }
            Some(Owner::Socket(_)) | None => {}
        }
    }

    pub(super) fn set_app_timer(&mut self, at: Instant, what: AppTimer) {
        let slot = self.app_timers.insert(what);
        self.driver.timer_set(at, Timer::App(slot).token());
    }

    /// A timer of the application's side has fired.
    pub(super) fn app_due(&mut self, slot: usize) {
        match self.app_timers.try_remove(slot) {
            Some(AppTimer::Token(service, token)) => {
                let scope = HandlerScope { service, ..HandlerScope::default() };
                self.ex.notify_app(scope, |app, ctx| app.timer(ctx, token));
            }
            Some(AppTimer::Ack(number)) => {
                // Unless it has come.
                if let Some((session, Waiter::App(token))) = self.ex.acks.take(number, None) {
                    self.notify_app_about(session, |app, ctx| app.acked(ctx, session, token, None));
                }
            }
            Some(AppTimer::Acks(numbers)) => {
                for number in numbers {
                    self.ex.acks.take(number, None);
                }
            }
            Some(AppTimer::Write(id, bytes)) => {
                if let Some(client) = self.engineio.get_mut(id) {
                    client.write(&mut self.ex, |_, out| out.extend_from_slice(&bytes));
                }
            }
            None => {}
        }
    }

    /// Handles a notice of the hub about a subscription.
    pub(super) fn handle_notice(&mut self, notice: &Notice) {
        let session = notice.session();
        let Some(owner) = self.ex.owner_of(session) else { return };
        let Some(encoding) = self.ex.encoding_of(session) else { return };
        if let Owner::Connection(index, _) = owner
            && encoding.is_response()
        {
            if let Notice::Refused { reason, .. } = notice {
                self.refuse_document(index, *reason);
            }
            return;
        }
        let envelope = encoding.envelope();
        // A client that receives bodies only is notified by closing only; its pending deliveries have been left out.
        match notice {
            Notice::NotFound { .. } if envelope == Envelope::Raw => {
                self.disconnect(session, Disconnect::NotFound)
            }
            Notice::Refused { topic: Topic::Feed(key), reason: SubscribeError::TooManyColdKeys, .. }
                if envelope == Envelope::SocketIo =>
            {
                self.refuse_feed_event(session, key);
            }
            Notice::Refused { .. } if envelope == Envelope::Raw => {
                self.disconnect(session, Disconnect::Overloaded);
            }
            _ => self.notify_app_about(session, |app, ctx| app.notice(ctx, notice)),
        }
    }

    /// The subscription of a request that waits has been refused.
    fn refuse_document(&mut self, index: usize, why: SubscribeError) {
        let (status, text) = match why {
            SubscribeError::TooManyColdKeys => (429, TOO_MANY_COLD_KEYS),
            SubscribeError::TooManyTopics | SubscribeError::TooManySubscriptions => (503, TOO_MANY_TOPICS),
        };
        self.fail_request(index, status, text);
    }

    /// Answers a request that waits with an error.
    pub(super) fn fail_request(&mut self, index: usize, status: u16, text: &str) {
        let Some(http) = self.table.get_mut(index).and_then(Conn::http) else { return };
        let mut out = Vec::new();
        http.fail(&self.ex, status, text, &mut out);
        let deadline = http.poll_timeout();
        if !out.is_empty() {
            self.append_replies(index, &mut out);
            self.arm(index, deadline);
            self.flush(index);
        }
        self.end_events(index, None);
    }

    /// Notifies a Socket.IO client, with its feed event, that a subscription has ended. Clients that receive
    /// documents as strings expect no other message.
    fn refuse_feed_event(&mut self, session: SessionId, key: &Key) {
        let options = &self.ex.options().engine;
        if options.feed_as_string {
            return;
        }
        let text = |text| String::from_utf8(json_string(text)).unwrap_or_default();
        let [key, reason] = [key.as_str(), TOO_MANY_COLD_KEYS].map(text);
        let json = format!(r#"{{"type":"state","feed":{key},"state":"not_found","reason":{reason}}}"#);
        let what = Sent::Event { name: options.feed_event.clone(), json, attachments: Vec::new(), ack: None };
        self.ex.actions.push(Action::Send { session, what });
    }

    /// Calls the application about a session, not in answer to its client.
    fn notify_app_about(
        &mut self,
        session: SessionId,
        call: impl FnOnce(&mut dyn Application, &mut Context<'_>),
    ) {
        let service = match self.ex.owner_of(session) {
            Some(Owner::Connection(_, service)) => service,
            Some(Owner::Client(id)) if id.kind() == ClientKind::SockJs => {
                self.sockjs.get(id).map(|client| client.service).unwrap_or_default()
            }
            _ => Service::default(),
        };
        let encoding = self.ex.encoding_of(session).unwrap_or(Encoding::RAW);
        self.ex.notify_app(HandlerScope { encoding, service, ..HandlerScope::default() }, call);
    }
}
