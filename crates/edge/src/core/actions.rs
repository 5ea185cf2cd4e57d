//! Effects of handlers and machines, and notices of the hub.

use super::Core;
use super::table::{Conn, Machine};
use super::timer::Timer;
use crate::app::{
    Alarm, Application, Arguments, Context, Effect, Envelope, HandlerScope, Sent, ToClient, ToConnection,
    ToSession, Waiter,
};
use crate::encode::{Encoding, json_string};
use crate::identity::Owner;
use crate::identity::Service;
use crate::subscribe_options::{TOO_MANY_COLD_KEYS, TOO_MANY_TOPICS};
use std::time::Instant;
use stentor_driver::{ConnId, Driver};
use stentor_hub::{Disconnect, Key, Notice, SessionId, SubscribeError, Topic};

impl<D: Driver> Core<D> {
    /// Carries out effects, in order.
    pub(super) fn carry_out_effects(&mut self) {
        while let Some(effect) = self.ex.effects.pop() {
            self.carry_out(effect);
        }
        for effect in self.ex.effects.take_others() {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Connection(conn, effect) => self.act_on_connection(conn, effect),
            Effect::Client(id, ToClient::End(end)) => self.end_client(id, end),
            Effect::Client(id, ToClient::Remove) => self.remove_client(id),
            Effect::Client(id, ToClient::Flush) => self.flush_client(id),
            Effect::Client(id, ToClient::Arm) => self.arm_client(id),
            Effect::Client(id, ToClient::Migrate(core)) => self.migrate_or_stay(id, core),
            Effect::Session(session, effect) => self.act_on_session(session, effect),
            Effect::Alarm(at, alarm) => self.set_alarm(at, alarm),
        }
    }

    fn act_on_connection(&mut self, conn: ConnId, effect: ToConnection) {
        let Some(index) = self.table.index_of(conn) else { return };
        match effect {
            ToConnection::Answer(answer) => self.answer_client(conn, answer),
            ToConnection::Flush => self.flush(index),
            ToConnection::Write(mut bytes) => {
                self.append_replies(index, &mut bytes);
                self.flush(index);
            }
            ToConnection::Close(code, reason) => self.close_socket(index, code, reason),
            ToConnection::End => self.end(index),
            ToConnection::Abort => self.abort(index),
            ToConnection::RefuseInput => self.refuse_input(index),
            ToConnection::Admit(answer) => self.admit(index, answer),
        }
    }

    fn act_on_session(&mut self, session: SessionId, effect: ToSession) {
        match effect {
            ToSession::Send(what) => self.send_to_session(session, what),
            ToSession::Close(why) => self.disconnect(session, why),
            ToSession::CloseWith(code, reason) => self.close_with(session, code, &reason),
            ToSession::ListMembers { query, for_watcher, reply } => {
                self.list_members(session, query, for_watcher, reply);
            }
            ToSession::Renew(identity) => match self.ex.check_renewal(session, &identity) {
                Ok(()) => self.ex.renew(session, identity),
                Err(_) => self.disconnect(session, Disconnect::TooManyRequests),
            },
            ToSession::NoHistory(topic) => self.handle_notice(&Notice::Gap { session, topic }),
            ToSession::Withdrawn(topic, denial) => self.withdrawn(session, &topic, &denial),
        }
    }

    pub(super) fn send_to_session(&mut self, session: SessionId, what: Sent) {
        if let Sent::Event { name, json, attachments, ack: None } = &what
            && self.ex.send_recoverable(session, name, Arguments { json, attachments })
        {
            return;
        }
        match self.ex.owner_of(session) {
            Some(Owner::Client(id)) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.send(&mut self.ex, session, &what);
                }
            }
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

    pub(super) fn set_alarm(&mut self, at: Instant, alarm: Alarm) {
        let slot = self.alarms.insert(alarm);
        self.driver.timer_set(at, Timer::App(slot).token());
    }

    /// The timer of an alarm has fired.
    pub(super) fn alarm_due(&mut self, slot: usize) {
        match self.alarms.try_remove(slot) {
            Some(Alarm::App(service, token)) => {
                let scope = HandlerScope { service, ..HandlerScope::default() };
                self.ex.notify_app(scope, |app, ctx| app.timer(ctx, token));
            }
            Some(Alarm::Ack(number)) => {
                // Unless it has come.
                if let Some((session, Waiter::App(token))) = self.ex.acks.take(number, None) {
                    self.notify_app_about(session, |app, ctx| app.acked(ctx, session, token, None));
                }
            }
            Some(Alarm::Acks(numbers)) => {
                for number in numbers {
                    self.ex.acks.take(number, None);
                }
            }
            Some(Alarm::Write(id, bytes)) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.keep(&mut self.ex, &bytes);
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
        self.ex.push(Effect::Session(session, ToSession::Send(what)));
    }

    /// Calls the application about a session, not in answer to its client.
    fn notify_app_about(
        &mut self,
        session: SessionId,
        call: impl FnOnce(&mut dyn Application, &mut Context<'_>),
    ) {
        let service = match self.ex.owner_of(session) {
            Some(Owner::Connection(_, service)) => service,
            Some(Owner::Client(id)) => {
                self.clients.get(id).map(|client| client.service()).unwrap_or_default()
            }
            Some(Owner::Socket(_)) | None => Service::default(),
        };
        let encoding = self.ex.encoding_of(session).unwrap_or(Encoding::RAW);
        self.ex.notify_app(HandlerScope { encoding, service, ..HandlerScope::default() }, call);
    }
}
