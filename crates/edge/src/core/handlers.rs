//! How a core calls its application, and does what the handlers asked for.
//!
//! A handler runs while something of the core is taken apart, so it asks for actions instead of acting: these are
//! done when it has returned. **Invariant:** nothing here waits.

use super::client::{self, ClientId};
use super::table::Stack;
use super::{APP_TOKEN, Core, Owner, Sockets, TOO_MANY_COLD_KEYS, TOO_MANY_TOPICS};
use crate::app::{Acks, Action, Application, Arguments, Context, Envelope, RequestId, Sent};
use crate::encode::Formats;
use crate::encode::Writer;
use crate::ledger::Pressure;
use crate::millis::Millis;
use crate::options::Service;
use crate::ports::{Access, Authorizer, Decision, Denial, PublicId, Question};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_driver::Driver;
use stentor_hub::{CoreId, Disconnect, Hub, Key, Notice, SessionId, SubscribeError, Topic};
use stentor_wire::http1;

/// What a timer of the application's side is for.
pub(super) enum AppTimer {
    Token(Service, u64),
    Ack(u64),
    Write(ClientId, Vec<u8>),
}

/// What a handler is called about.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) session: Option<SessionId>,
    pub(super) writer: Writer<'a>,
    pub(super) envelope: Envelope,
    pub(super) request: Option<&'a http1::Request<'a>>,
    pub(super) pending: Option<RequestId>,
    pub(super) client: Option<&'a str>,
    pub(super) service: Service,
}

impl Default for About<'_> {
    fn default() -> Self {
        let (session, request, pending, client) = (None, None, None, None);
        let service = Service::default();
        Self {
            session,
            writer: Writer::WebSocket,
            envelope: Envelope::Raw,
            request,
            pending,
            client,
            service,
        }
    }
}

/// What handlers need to know of their core.
pub(crate) struct Facts {
    /// When the turn began.
    pub(crate) now: Instant,
    /// The same.
    pub(super) millis: Millis,
    pub(crate) core: CoreId,
    pub(crate) seed: [u64; 2],
    pub(crate) heartbeat_interval: Duration,
    pub(crate) json_depth_max: usize,
    /// `None`: clients may do everything.
    pub(super) authorizer: Option<Arc<dyn Authorizer>>,
    /// The current memory pressure.
    pub(crate) pressure: Pressure,
    /// Publications refused because of it.
    pub(super) refusals: Cell<u64>,
}

impl Facts {
    /// The public id of a session of this core.
    pub(crate) fn public_id(&self, session: SessionId) -> PublicId {
        PublicId::of(self.seed, self.core, session)
    }

    /// Asks whether the client of a session may do something.
    pub(crate) fn authorize(&self, session: SessionId, access: Access<'_>) -> Result<(), Denial> {
        let Some(authorizer) = &self.authorizer else { return Ok(()) };
        let session = Some(self.public_id(session));
        match authorizer.authorize(&Question { session, principal: None, access }) {
            Decision::Allow => Ok(()),
            Decision::Deny(denial) => Err(denial),
            Decision::Pending => Err(Denial::UNAVAILABLE),
        }
    }

    /// Counts a publication refused because the process is above its memory budget.
    pub(crate) fn count_refusal(&self) {
        self.refusals.set(self.refusals.get() + 1);
    }
}

impl Facts {
    pub(super) fn context<'a>(
        &'a self,
        hub: &'a mut Hub<Formats>,
        sockets: Sockets<'a>,
        acks: &'a mut Acks,
        out: &'a mut Vec<u8>,
        actions: &'a mut Vec<Action>,
        about: About<'a>,
    ) -> Context<'a> {
        let About { session, writer, envelope, request, pending, client, service } = about;
        Context {
            hub,
            out,
            current: session,
            writer,
            envelope,
            request,
            pending,
            client,
            service,
            prefix: None,
            sockets,
            acks,
            actions,
            facts: self,
            published_bytes: 0,
        }
    }
}

impl<D: Driver> Core<D> {
    pub(super) fn act(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Send { session, what: Sent::Event { name, json, attachments, ack: None } }
                    if self.send_recoverable(
                        session,
                        &name,
                        Arguments { json: &json, attachments: &attachments },
                    ) => {}
                Action::Send { session, what } => match self.owner_of(session) {
                    Some(Owner::Client(id)) => self.say_to_client(id, session, &what),
                    Some(Owner::Connection(index)) => {
                        let Some(conn) = self.table.get_mut(index) else { continue };
                        if let Stack::Socket(socket) = &conn.stack {
                            let writer = socket.writer();
                            let replies = conn.replies.get_or_insert_default();
                            what.write(writer, replies);
                            let is_slow = replies.len() > self.shared.options.limits.send_buffer_bytes_max;
                            conn.weigh(&self.shared.ledger);
                            if is_slow && conn.in_flight {
                                self.disconnect(session, Disconnect::SlowConsumer);
                            } else {
                                self.flush(index);
                            }
                        }
                    }
                    None => {}
                },
                Action::Close { session, why } => self.disconnect(session, why),
                Action::Dismiss { session, code, reason } => self.dismiss(session, code, &reason),
                Action::After { at, service, token } => {
                    self.set_app_timer(at, AppTimer::Token(service, token));
                }
                Action::AckDue { at, number } => self.set_app_timer(at, AppTimer::Ack(number)),
                Action::Admit { request, answer } => self.admit(request.0, answer),
            }
        }
    }

    pub(super) fn set_app_timer(&mut self, at: Instant, what: AppTimer) {
        let slot = self.app_timers.insert(what);
        self.driver.timer_set(at, APP_TOKEN + slot as u64);
    }

    /// A timer of the application's side has fired.
    pub(super) fn app_due(&mut self, slot: usize) {
        match self.app_timers.try_remove(slot) {
            Some(AppTimer::Token(service, token)) => {
                let about = About { service, ..About::default() };
                self.ask_app(about, |app, ctx| app.timer(ctx, token));
            }
            Some(AppTimer::Ack(number)) => {
                // Unless it has come.
                if let Some((session, token)) = self.acks.take(number, None) {
                    self.call_app(session, |app, ctx| app.acked(ctx, session, token, None));
                }
            }
            Some(AppTimer::Write(id, bytes)) => {
                self.write_to_client(id, |_, out| out.extend_from_slice(&bytes));
            }
            None => {}
        }
    }

    /// Whether a handler has asked since `asked` to close the session that it was called about.
    pub(super) fn asks_to_close(&self, asked: usize, session: SessionId) -> bool {
        self.actions[asked..]
            .iter()
            .any(|action| matches!(action, Action::Close { session: s, .. } | Action::Dismiss { session: s, .. } if *s == session))
    }

    pub(super) fn notice(&mut self, notice: &Notice) {
        let session = notice.session();
        let raw = match self.owner_of(session) {
            None => return,
            Some(Owner::Client(id)) => {
                let Some(client) = self.clients.get(id) else { return };
                matches!(client.upper, client::Upper::Plain { envelope: Envelope::Raw, .. })
            }
            Some(Owner::Connection(index)) => match self.table.get(index).map(|conn| &conn.stack) {
                Some(Stack::Http(_)) => {
                    if let Notice::Refused { reason, .. } = notice {
                        let (status, text) = match reason {
                            SubscribeError::TooManyColdKeys => (429, TOO_MANY_COLD_KEYS),
                            _ => (503, TOO_MANY_TOPICS),
                        };
                        self.fail_waiting(index, status, text);
                        self.cut_events(index);
                    }
                    return;
                }
                Some(Stack::Socket(socket)) => socket.envelope == Envelope::Raw,
                _ => return,
            },
        };
        // A client that gets bodies only can be told by closing only; what it is owed has been left out.
        match notice {
            Notice::NotFound { .. } if raw => self.disconnect(session, Disconnect::NotFound),
            Notice::Refused { topic: Topic::Feed(key), reason: SubscribeError::TooManyColdKeys, .. }
                if self.is_socketio(session) =>
            {
                self.refuse_feed_event(session, key);
            }
            Notice::Refused { .. } if raw => self.disconnect(session, Disconnect::Overloaded),
            _ => self.call_app(session, |app, ctx| app.notice(ctx, notice)),
        }
    }

    fn is_socketio(&self, session: SessionId) -> bool {
        let Some(Owner::Client(id)) = self.owner_of(session) else { return false };
        self.clients.get(id).is_some_and(|client| matches!(client.upper, client::Upper::SocketIo(_)))
    }

    /// Notifies a Socket.IO client, with its feed event, that a subscription has ended. Clients that receive
    /// documents as strings expect no other message.
    fn refuse_feed_event(&mut self, session: SessionId, key: &Key) {
        let options = &self.shared.options.engine;
        if options.feed_as_string {
            return;
        }
        // Neither a key nor the reason contains a character that JSON escapes.
        let json = format!(
            r#"{{"type":"state","feed":"{key}","state":"not_found","reason":"{TOO_MANY_COLD_KEYS}"}}"#
        );
        let what = Sent::Event { name: options.feed_event.clone(), json, attachments: Vec::new(), ack: None };
        self.actions.push(Action::Send { session, what });
    }

    /// Calls the application about a session, not in answer to its client.
    pub(super) fn call_app(
        &mut self,
        session: SessionId,
        call: impl FnOnce(&mut dyn Application, &mut Context<'_>),
    ) {
        let (envelope, service) = match self.owner_of(session) {
            Some(Owner::Connection(index)) => match self.table.get(index).map(|conn| &conn.stack) {
                Some(Stack::Socket(socket)) => (socket.envelope, socket.speech.service),
                _ => (Envelope::Raw, Service::default()),
            },
            Some(Owner::Client(id)) => match self.clients.get(id).map(|client| &client.upper) {
                Some(client::Upper::Plain { envelope, .. }) => (*envelope, self.service_of(id)),
                _ => (Envelope::SocketIo, Service::default()),
            },
            None => (Envelope::Raw, Service::default()),
        };
        self.ask_app(About { envelope, service, ..About::default() }, call);
    }

    /// Calls the application where there is nobody to answer at once.
    pub(super) fn ask_app<R>(
        &mut self,
        about: About<'_>,
        call: impl FnOnce(&mut dyn Application, &mut Context<'_>) -> R,
    ) -> R {
        self.tell_app(about, &mut Vec::new(), call)
    }

    /// Calls the application; what it answers `about.session` is appended to `out`.
    pub(super) fn tell_app<R>(
        &mut self,
        about: About<'_>,
        out: &mut Vec<u8>,
        call: impl FnOnce(&mut dyn Application, &mut Context<'_>) -> R,
    ) -> R {
        let place = about.service.place();
        let prefix =
            place.and_then(|place| self.shared.options.sockjs.get(place)).map(|sockjs| &*sockjs.prefix);
        let other = place.and_then(|place| self.services.get_mut(place)?.app.as_mut());
        let app = other.unwrap_or(&mut self.app);
        let sockets = Sockets::new(&self.clients, &self.suspended);
        let (hub, acks, actions) = (&mut self.hub, &mut self.acks, &mut self.actions);
        let due_before = hub.due();
        let mut ctx = self.facts.context(hub, sockets, acks, out, actions, about);
        ctx.prefix = prefix;
        let result = call(&mut **app, &mut ctx);
        self.published_bytes += ctx.published_bytes;
        self.budget.count_deliveries(self.hub.due() - due_before);
        result
    }
}
