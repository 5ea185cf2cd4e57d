//! The executor: carries out the requests of protocol machines.
//!
//! A machine receives the [`Executor`] with each input. Requests that need an answer at once are calls: subscribe, publish
//! through the application, take the deliveries of a session. An action on another machine or on a connection is an [`Effect`]: a
//! value in a queue, which the core carries out after the machine has returned. So a machine runs, and is tested, without a core
//! or a driver.
//!
//! **Invariants.** Every subscription and publication passes through a function of this module or of [`crate::app::Context`]. No
//! function here blocks or knows a protocol.

mod arrivals;
mod decisions;
mod effects;
pub(crate) mod holds;
mod identity;
pub(crate) mod link;
mod notices;
mod observe;
mod recovery;
mod sessions;
mod state;

pub(crate) use crate::app::Feeds;
pub use crate::app::{Alarm, Effect, PollAnswer, ToClient, ToConnection, ToSession};
pub(crate) use stentor_hub::SubscribeOptions;

use crate::app::{
    AT_ONCE_BYTES_MAX, Acks, Application, Arguments, Context, CoreContext, Decided, Effects, HandlerScope,
    Identities, NotSubscribed, Outlet, QuestionLimits, Questions, Refused, Tickets, asking, public_id,
    take_at_once,
};
use crate::budget::Budget;
use crate::drain::DrainState;
use crate::encode::{Encoding, Encodings, FeedEvents};
use crate::identity::Service;
use crate::identity::{Owner, Sid, Sids};
use crate::ledger::Pressure;
use crate::limits::rates::SessionRates;
use crate::limits::{LimitReached, Slot};
use crate::metrics::CoreMetrics;
use crate::millis::{Clock, Millis, part_of};
use crate::options::Options;
use crate::ports::source_of;
use crate::ports::{Access, Done, Identity, Location, PublicId};
use crate::recovery::RecoverableSockets;
use crate::refusal_log::{Logged, Refusal};
use crate::shared::{ControlCommand, Shared};
use crate::system::System;
use crate::timelines::Problem;
use crate::tracked::Tracked;
use holds::SessionHolds;
use link::LinkSessions;
use notices::Notices;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_frame::{ConnId, Frame};
use stentor_hub::{CoreId, Disconnect, Hub, Position, Publication, SessionId, SubscribeError, Topic};

/// Maximum size of an input that is accepted while memory is short.
pub const SMALL_INPUT_BYTES: usize = 16 * 1024;
/// Maximum number of bytes that one vectored send takes from an outbox, unless one frame is larger.
pub const SEND_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of frames that one vectored send takes from an outbox.
pub const SEND_FRAMES_MAX: usize = 512;
/// Time over which the clients of SSE streams reconnect after a restart.
const RECONNECT_WINDOW: Duration = Duration::from_secs(1);

/// The applications of a core.
pub struct Apps {
    /// The node's application.
    pub node: Box<dyn Application>,
    /// Applications of services, by the service's index. `None` if the service has the node's application.
    pub services: Vec<Option<Box<dyn Application>>>,
}

/// One core's executor.
pub struct Executor {
    /// State that all cores of the node share.
    pub shared: Arc<Shared>,
    /// The options in force. Each core has its own reference, so no handler waits, and no option changes within a turn.
    pub(crate) options: Arc<Options>,
    metrics: Arc<CoreMetrics>,
    /// State of the core and its turn, for handlers.
    pub(crate) context: CoreContext,
    /// The core's shard of the hub.
    pub hub: Tracked<Hub<Encodings>>,
    apps: Apps,
    /// Acknowledgements that are awaited.
    pub(crate) acks: Acks,
    /// Effects that haven't been carried out.
    pub(crate) effects: Effects,
    /// Socket.IO sockets that can be recovered.
    pub(crate) recovery: RecoverableSockets,
    /// Counts of sessions in the tables of the node. `None` if no such limit is on.
    holds: Option<SessionHolds>,
    /// Publishes messages on this node and through the broker.
    pub(crate) outlet: Outlet,
    /// Questions to the authorizer.
    pub(crate) questions: Questions,
    /// The sessions of the application link. `None` without a link.
    pub(crate) link: Option<Box<LinkSessions>>,
    /// The work that this turn has room for.
    pub budget: Budget,
    /// Notices to the application behind the server. `None` if it receives none.
    notices: Option<Box<Notices>>,
}

fn question_limits(options: &Options) -> QuestionLimits {
    QuestionLimits { open_max: options.limits.decisions_max, timeout: options.limits.decision_timeout }
}

impl Executor {
    /// Makes the executor of core number `core`.
    pub fn new(shared: Arc<Shared>, core: CoreId, now: Instant, apps: Apps, system: System) -> Self {
        let options = shared.initial.clone();
        let feeds = FeedEvents {
            name: options.engine.feed_event.clone(),
            as_string: options.engine.feed_as_string,
            presence: options.rooms.presence.event.clone(),
        };
        let deflate = options.deflate;
        let custom = options.protocols.iter().map(|protocol| protocol.encode).collect();
        let meter = shared.ledger.frames.clone();
        let encodings = Encodings::new(meter, deflate.level, deflate.bytes_min, feeds, custom);
        let mut hub = Tracked::new(Hub::new(shared.hub_options(core, &options), encodings));
        let notices = options.notices.clone().map(Notices::new);
        if notices.as_ref().is_some_and(|notices| notices.wants_topics()) {
            hub.report_attendance();
        }
        let context = CoreContext {
            now,
            millis: Millis::at(now, now),
            clock: Clock::new(now, system.unix_millis),
            sids: Sids::new(system),
            core,
            drain: DrainState::default(),
            id_key: shared.ids.key,
            heartbeat_interval: options.heartbeat.interval,
            message_bytes_max: options.limits.message_bytes_max,
            json_depth_max: options.limits.json_depth_max,
            keys: options.keys.clone(),
            pressure: Pressure::None,
            refusals: Cell::new(0),
            rates: SessionRates::new(&options.session_limits, now).map(|rates| Box::new(RefCell::new(rates))),
            timelines: RefCell::default(),
        };
        Self {
            context,
            hub,
            apps,
            acks: Acks::default(),
            effects: Effects::default(),
            recovery: RecoverableSockets::new(core, shared.ids.moved.clone(), shared.ledger.clone()),
            holds: SessionHolds::new(&shared.limits),
            questions: Questions::new(
                options.authorizer.clone(),
                options.events.clone(),
                Identities::new(options.authenticator.clone(), shared.seed, shared.ledger.clone()),
                Tickets::new(core, shared.clone()),
                question_limits(&options),
                shared.ledger.clone(),
            ),
            link: options
                .link
                .as_ref()
                .and_then(|link| LinkSessions::new(link.sink.clone(), core, shared.ledger.clone())),
            outlet: Outlet::new(
                options.broker.clone(),
                shared.clone(),
                shared.ledger.clone(),
                shared.ids.key,
                shared.limits.published.clone(),
            ),
            budget: Budget::new(options.limits.turn_bytes_max, options.limits.send_buffer_bytes_max),
            notices,
            metrics: shared.each[core].metrics.clone(),
            shared,
            options,
        }
    }

    /// Sets the options that apply from now on, and updates all copies of their values.
    pub fn set_options(&mut self, options: Arc<Options>) {
        let limits = &options.limits;
        self.context.message_bytes_max = limits.message_bytes_max;
        self.context.json_depth_max = limits.json_depth_max;
        self.context.keys.clone_from(&options.keys);
        self.budget.set_limits(limits.turn_bytes_max, limits.send_buffer_bytes_max);
        self.questions.set_limits(question_limits(&options));
        self.hub.set_limits(self.shared.hub_options(self.context.core, &options));
        if self.options().session_limits != options.session_limits
            && let Some(rates) = &self.context.rates
        {
            rates.borrow_mut().configure(&options.session_limits);
        }
        let services = self.apps.services.iter_mut().flatten();
        for app in services.chain([&mut self.apps.node]) {
            app.configure(&options.rooms);
        }
        self.options = options;
    }

    /// Begins a turn.
    #[inline]
    pub fn begin_turn(&mut self, now: Instant) {
        self.context.now = now;
        self.context.millis = self.context.clock.at(now);
        self.budget.begin_turn();
        // Records a change only if a deadline of the hub has passed, which is rare.
        if self.hub.untracked().handle_time(now) {
            self.hub.note_change();
        }
    }

    /// The time of this turn.
    #[inline]
    pub fn millis(&self) -> Millis {
        self.context.millis
    }

    /// The options in force.
    #[inline]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The core's metrics.
    #[inline]
    pub fn metrics(&self) -> &CoreMetrics {
        &self.metrics
    }

    /// Returns the log line of a refusal. `None` if the refusal isn't logged now.
    pub fn log_refusal(&self, refusal: Refusal, value: &str) -> Option<Logged> {
        self.shared.refusals.admit(self.context.now, refusal, value)
    }

    /// The reconnect delay of an SSE client that a drain disconnects: the time until another process replaces this one, and
    /// up to `RECONNECT_WINDOW`. The same number gives the same delay.
    pub fn return_delay(&self, number: u64) -> Duration {
        let now = self.context.now;
        self.context.drain.until_replaced(now) + part_of(RECONNECT_WINDOW, number)
    }

    /// Counts a session or client that the server ends.
    pub fn count_disconnect(&self, why: Disconnect) {
        self.metrics().disconnects[why as usize].add(1);
    }

    /// Counts a new connection, if it may begin. Connections of trusted proxies aren't counted here, but per request
    /// (`hold_forwarded`).
    ///
    /// # Errors
    /// A limit is reached.
    pub fn count_connection(&mut self, ip: IpAddr) -> Result<Slot, LimitReached> {
        let (now, source) = (self.context.now, source_of(ip));
        let limits = &self.shared.limits;
        let table = limits.connections.as_ref().filter(|_| !self.options().proxies.trusted.contains(ip));
        if let Some(connections) = table {
            connections.check(source, now)?;
        }
        limits.check_accept(now)?;
        Ok(table.map_or(Slot::NONE, |connections| connections.hold(source, now)))
    }

    /// Counts a connection that another node passed through, without checking limits.
    pub fn count_adopted(&self, ip: IpAddr) -> Slot {
        let table = self.shared.limits.connections.as_ref();
        let table = table.filter(|_| !self.options().proxies.trusted.contains(ip));
        table.map_or(Slot::NONE, |connections| connections.hold(source_of(ip), self.context.now))
    }

    /// Counts a trusted proxy's connection towards the client address's maximum while it serves that client's request. The
    /// rate of new connections isn't charged.
    ///
    /// # Errors
    /// The client's address has the maximum number of connections.
    pub(crate) fn hold_forwarded(&mut self, source: u64, slot: &mut Slot) -> Result<(), LimitReached> {
        let Some(connections) = &self.shared.limits.connections else { return Ok(()) };
        if let Err(reached) = connections.check_count(source) {
            self.metrics.connections_limited.add(1);
            return Err(reached);
        }
        *slot = connections.hold(source, self.context.now);
        Ok(())
    }

    /// Ends the count of a connection for its address.
    pub fn release_connection(&self, slot: &mut Slot) {
        if let Some(connections) = &self.shared.limits.connections {
            connections.release(std::mem::take(slot));
        }
    }

    /// Checks whether one more session of an address may begin. If so, the session counts towards the address's rate.
    ///
    /// # Errors
    /// A limit is reached.
    pub(crate) fn check_address(&self, source: u64) -> Result<(), LimitReached> {
        let Some(sessions) = &self.shared.limits.sessions else { return Ok(()) };
        self.count_limited(sessions.check(source, self.context.now))
    }

    /// Counts a refused session in the metrics, and returns the result unchanged.
    fn count_limited(&self, checked: Result<(), LimitReached>) -> Result<(), LimitReached> {
        if checked.is_err() {
            self.metrics.sessions_limited.add(1);
        }
        checked
    }

    /// The size of the state of sessions beside the hub, in bytes: limits, notices, sockets that can be recovered, and timelines.
    pub fn session_bytes(&self) -> usize {
        let rates = self.context.rates.as_ref().map_or(0, |rates| rates.borrow().held_bytes());
        let holds = self.holds.as_ref().map_or(0, SessionHolds::held_bytes);
        let notices = self.notices.as_ref().map_or(0, |notices| notices.held_bytes());
        rates + holds + notices + self.recovery.bytes() + self.context.timelines.borrow().bytes()
    }

    /// The public id of a session of this core.
    pub(crate) fn public_id(&self, session: SessionId) -> PublicId {
        public_id(&self.hub, &self.recovery, &self.context, session)
    }

    /// Changes the encoding of a session.
    pub(crate) fn set_encoding(&mut self, session: SessionId, encoding: Encoding) {
        self.hub.set_format(session, encoding.into());
    }

    /// Subscribes a session of this core at its client's request on the connection `conn`, if the client may subscribe.
    /// `decided` is the decision for which the connection waited, if any.
    ///
    /// # Errors
    /// The client isn't allowed to subscribe, or a limit is reached.
    pub(crate) fn subscribe(
        &mut self,
        conn: ConnId,
        session: SessionId,
        topic: &Topic,
        options: impl Into<SubscribeOptions>,
        since: Option<Position>,
        decided: Option<Decided>,
    ) -> Result<(), NotSubscribed> {
        let Self { questions, context, hub, recovery, .. } = self;
        let client = || asking(hub, recovery, context, session);
        let allowed =
            questions.authorize(context.now, Some(conn), session, client, Access::Subscribe(topic), decided);
        let subscribed = allowed.map_err(NotSubscribed::from).and_then(|()| {
            hub.handle_subscribe(session, topic, options, since).map_err(NotSubscribed::Limit)
        });
        match &subscribed {
            Ok(()) => questions.identities.grant(session, topic),
            Err(NotSubscribed::Pending) => {}
            Err(refused) => {
                context.note_refusal(session, Problem::SubscriptionRefused, &refused.clone().into_denial());
            }
        }
        subscribed
    }

    /// Decides whether a client may connect to a namespace. `decided` is the decision for which the client waited, if any.
    ///
    /// # Errors
    /// The connection is refused, or the decision is pending.
    pub(crate) fn authorize_connect(
        &mut self,
        conn: ConnId,
        identity: Option<&Identity>,
        namespace: &str,
        decided: Option<Decided>,
    ) -> Result<(), Refused> {
        self.questions.authorize_connect(self.context.now, conn, identity, namespace, decided)
    }

    /// Prepares the rooms of a namespace that a client with this identity joins when it has connected.
    ///
    /// # Errors
    /// The end of a room's history isn't known yet.
    pub(crate) fn prepare_rooms(
        &mut self,
        conn: ConnId,
        identity: Option<&Identity>,
        namespace: &str,
    ) -> Result<(), Refused> {
        let now = self.context.now;
        let rooms = identity.into_iter().flat_map(|identity| identity.join.iter());
        let prepared = rooms.filter(|room| room.namespace() == namespace);
        let prepared =
            prepared.map(|room| self.questions.prepare(now, Some(conn), &mut self.hub, room).map(|_| ()));
        // Prepares all rooms at the same time, not one after the other.
        prepared.fold(Ok(()), Result::and)
    }

    /// Subscribes a session to the feeds of its first request, which `conn` carried. Closes the session if a subscription is
    /// refused. If a decision is pending, the session is subscribed later, and its client's messages wait.
    pub(crate) fn subscribe_feeds(&mut self, conn: ConnId, session: SessionId, feeds: Feeds) {
        self.resume_feeds(conn, session, feeds, Vec::new());
    }

    /// Like [`Self::subscribe_feeds`], for feeds that waited for these decisions.
    pub(crate) fn resume_feeds(
        &mut self,
        conn: ConnId,
        session: SessionId,
        Feeds { mut keys, options }: Feeds,
        decided: Vec<Decided>,
    ) {
        let mut decided = decided.into_iter();
        let mut refused = None;
        keys.retain(|key| {
            if refused.is_some() {
                return false;
            }
            match self.subscribe(conn, session, &Topic::Feed(key.clone()), options, None, decided.next()) {
                Ok(()) => false,
                Err(NotSubscribed::Pending) => true,
                Err(error) => {
                    refused = Some(error);
                    false
                }
            }
        });
        if let Some(error) = refused {
            self.close(session, disconnect_for(&error));
        } else if !keys.is_empty() {
            let client = self.owner_of(session).and_then(Owner::client);
            self.questions.waiting.keep_feeds(conn, session, Feeds { keys, options }, client);
        }
    }

    /// Passes deliveries of a session to `each`, in order, up to these limits. The deliveries are in flight until
    /// [`Hub::handle_sent`].
    #[inline]
    pub fn take(
        &mut self,
        session: SessionId,
        bytes_max: usize,
        frames_max: usize,
        mut each: impl FnMut(&Publication<Frame>, &Frame),
    ) {
        self.hub.take(session, bytes_max, frames_max, |publication, frame| each(publication, frame));
    }

    /// The number of messages to other cores and nodes since the start. Callers compare it to see whether an input produced
    /// any.
    #[inline]
    pub fn dispatches(&self) -> u64 {
        self.hub.dispatches() + self.outlet.count()
    }

    /// The home core of a topic.
    pub fn core_of(&self, topic: &Topic) -> CoreId {
        self.hub.core_of(topic)
    }

    /// Returns `true` if deliveries of a session are pending.
    #[inline]
    pub fn has_pending(&self, session: SessionId) -> bool {
        self.hub.has_pending(session)
    }

    /// Appends all pending deliveries of a session to `out`, which is sent to its client now.
    pub(crate) fn take_at_once(&mut self, session: SessionId, out: &mut Vec<u8>) {
        take_at_once(&mut self.hub, session, out);
    }

    /// Takes all pending deliveries of a session, or none if they have more than `AT_ONCE_BYTES_MAX` bytes.
    pub fn take_if_few(&mut self, session: SessionId) -> Vec<u8> {
        let mut out = Vec::new();
        if self.hub.waiting_bytes_of(session) <= AT_ONCE_BYTES_MAX {
            self.take_at_once(session, &mut out);
        }
        out
    }

    /// Sends an event to a socket that can be recovered. Returns `false` for other sessions.
    pub fn send_recoverable(&mut self, session: SessionId, name: &str, arguments: Arguments<'_>) -> bool {
        let Some(Owner::Socket(slot)) = self.hub.tag(session).map(Owner::of_tag) else { return false };
        let Some(room) = self.recovery.room_of(slot) else { return false };
        let (now, data) = (self.context.now, arguments.to_data());
        self.hub.handle_send(now, &[session], room, Some(name.into()), data, false);
        true
    }

    /// Draws the id of a client of this core.
    pub(crate) fn draw_sid(&mut self) -> Sid {
        self.context.sids.draw(self.context.core, self.shared.cores, self.shared.initial.node_tag)
    }

    /// Returns a callback that reports the node of a session, which a request on `conn` names, to the core from any thread.
    pub(crate) fn when_located(&self, conn: ConnId) -> Done<Location> {
        let (shared, core) = (self.shared.clone(), self.context.core);
        Done::new(move |location| {
            let location = location.unwrap_or(Location::Unknown);
            // If the inbox is full, the request times out.
            let _ = shared.inbox(core).put(ControlCommand::Located(conn, location));
        })
    }

    /// Returns `true` if another node of the cluster has drawn this id.
    pub(crate) fn is_of_other_node(&self, sid: Sid) -> bool {
        self.shared.initial.node_tag.is_some_and(|tag| tag != sid.node())
    }

    /// Returns `true` if an input of this size must be refused, because memory is short and the input isn't small
    /// ([`SMALL_INPUT_BYTES`]).
    #[inline]
    pub(crate) fn is_too_large_now(&self, bytes: usize) -> bool {
        bytes > SMALL_INPUT_BYTES && self.is_memory_short()
    }

    /// Returns `true` if the memory budget is nearly used up.
    pub(crate) fn is_memory_short(&self) -> bool {
        self.shared.ledger.pressure() > Pressure::None
    }

    /// The application of a service.
    pub(crate) fn app_of(&self, service: Service) -> &dyn Application {
        let other = service.place().and_then(|place| self.apps.services.get(place)?.as_ref());
        &**other.unwrap_or(&self.apps.node)
    }

    /// Calls the application outside the handling of a client's input, so there is no client to answer.
    pub fn notify_app<R>(
        &mut self,
        scope: HandlerScope<'_>,
        call: impl FnOnce(&mut dyn Application, &mut Context<'_>) -> R,
    ) -> R {
        self.call_app(scope, &mut Vec::new(), call)
    }

    /// Calls the application. Its answers to `scope.session` are appended to `out`.
    #[inline(always)] // A call would copy the scope once more.
    pub(crate) fn call_app<R>(
        &mut self,
        scope: HandlerScope<'_>,
        out: &mut Vec<u8>,
        call: impl FnOnce(&mut dyn Application, &mut Context<'_>) -> R,
    ) -> R {
        let place = scope.service.place();
        let prefix = place.and_then(|place| self.options.prefix(place)).map(|(prefix, _)| prefix);
        let other = place.and_then(|place| self.apps.services.get_mut(place)?.as_mut());
        let app = other.unwrap_or(&mut self.apps.node);
        let due_before = self.hub.due();
        let mut ctx = Context {
            hub: &mut self.hub,
            out,
            scope,
            prefix,
            recovery: &self.recovery,
            acks: &mut self.acks,
            effects: &mut self.effects,
            core: &self.context,
            outlet: &mut self.outlet,
            questions: &mut self.questions,
            budget: &mut self.budget,
        };
        let result = call(&mut **app, &mut ctx);
        self.budget.count_deliveries(self.hub.due() - due_before);
        result
    }
}

/// The reason to end a session whose subscription is refused.
fn disconnect_for(error: &NotSubscribed) -> Disconnect {
    match error {
        NotSubscribed::Limit(SubscribeError::TooManySubscriptions) => Disconnect::BadRequest,
        NotSubscribed::Limit(SubscribeError::TooManyTopics | SubscribeError::TooManyColdKeys) => {
            Disconnect::Overloaded
        }
        // The subscription may be allowed soon, so the client should reconnect.
        NotSubscribed::Pending => Disconnect::Overloaded,
        NotSubscribed::Denied(denial) if denial.retry => Disconnect::Overloaded,
        NotSubscribed::Denied(_) => Disconnect::NotAllowed,
    }
}
