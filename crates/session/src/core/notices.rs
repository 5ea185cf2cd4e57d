//! Calls of applications without a client's input: alarms and notices.

use super::Protocols;
use crate::app::{Alarm, Application, Context, Effect, HandlerScope, Sent, ToSession, Waiter};
use crate::encode::{Encoding, json_string};
use crate::identity::{Owner, Service};
use crate::subscribe_options::TOO_MANY_COLD_KEYS;
use stentor_hub::{Key, SessionId};

impl Protocols {
    /// Handles the timer of an alarm.
    pub fn alarm_due(&mut self, slot: usize) {
        match self.alarms.try_remove(slot) {
            Some(Alarm::App(service, token)) => {
                let scope = HandlerScope { service, ..HandlerScope::default() };
                self.ex.notify_app(scope, |app, ctx| app.timer(ctx, token));
            }
            Some(Alarm::Ack(number)) => {
                // The acknowledgement may have arrived already.
                if let Some((session, Waiter::App(token))) = self.ex.acks.take(number, None) {
                    self.notify_app_about(session, |app, ctx| app.acked(ctx, session, token, None));
                }
            }
            Some(Alarm::Acks(numbers)) => {
                for number in numbers {
                    self.ex.acks.take(number, None);
                }
            }
            Some(Alarm::LinkCall(number)) => {
                self.ex.link.iter_mut().for_each(|link| link.calls.end(number));
            }
            Some(Alarm::Write(id, bytes)) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.keep(&mut self.ex, &bytes);
                }
            }
            None => {}
        }
    }

    /// Calls the application about a session outside the handling of its client's messages.
    pub fn notify_app_about(
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

    /// Notifies a Socket.IO client, by its feed event, that a subscription has ended. Clients that receive documents as strings
    /// aren't notified, because they expect no other argument.
    pub fn refuse_feed_event(&mut self, session: SessionId, key: &Key) {
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
}
