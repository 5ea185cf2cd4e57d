//! One core's part of the hub: its sessions, the topics that they are subscribed to, and for topics with their home
//! here, order and history. This module is the interface. [`crate::interest`] describes how cores follow topics,
//! [`crate::broadcast`] the path of a publication, [`crate::feed`] feeds at their home core, [`crate::delivery`]
//! policies and budgets.

use crate::awaiting::Awaiting;
use crate::budget::{Counters, Footprint, LiveBytes};
use crate::disconnect::Disconnect;
use crate::dispatch::{CORES_MAX, CoreId, Exceptions};
use crate::encoder::Encoder;
use crate::history::HistoryStats;
use crate::ids::Ids;
use crate::key::Key;
use crate::log::{Log, LogStats};
use crate::members::Presence;
use crate::notice::{Attendance, Notice, Requester, SubscribeError};
use crate::options::Options;
use crate::outgoing::{Outbound, Outgoing};
use crate::patches::FeedStats;
use crate::presence::Absence;
use crate::publication::{Body, Data, FORMATS_MAX, FormatId, Position, Publication};
use crate::recipients::Recipients;
use crate::session::Sessions;
use crate::session_id::SessionId;
use crate::subscription::{Flags, Member, Policy, SubscribeOptions};
use crate::suspension::Suspended;
use crate::topic::{Room, Topic};
use crate::topics::{Seeded, Topics};
use crate::version_lag::UNKNOWN;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One core's part of the hub. Sans-I/O: `handle_*` in, `poll_*` out.
pub struct Hub<E: Encoder> {
    pub(crate) core: CoreId,
    pub(crate) cores: usize,
    subscriptions_max: usize,
    feed_interval_min: Duration,
    pub(crate) external_positions: bool,
    pub(crate) live: LiveBytes,
    pub(crate) sessions: Sessions<E>,
    pub(crate) topics: Topics<E::Frame>,
    pub(crate) outgoing: Outbound<E::Frame>,
    /// Topics whose subscribers are reported by this core, and may have gained the first or lost the last one.
    pub(crate) changed_topics: VecDeque<Topic>,
    pub(crate) reports_rooms: bool,
    /// The positions that clients named, of members that wait for what followed them.
    pub(crate) awaiting: Awaiting,
    /// Rooms with members whose positions can't be placed, by index.
    pub(crate) to_confirm: BTreeSet<u32>,
    /// Number of requests to prepare a room that this core has sent. It is the shard's, because a topic that a core has left is forgotten.
    pub(crate) preparations: u64,
    /// Rooms that this core has prepared.
    pub(crate) prepared: VecDeque<Room>,
    /// Requesters of feeds of this home core that have no state yet.
    pub(crate) requesters: VecDeque<(Key, Requester)>,
    pub(crate) notices: VecDeque<Notice>,
    /// The last one that [`Hub::poll_notice`] has returned, until its next call.
    pub(crate) last_notice: Option<Notice>,
    pub(crate) suspended: HashMap<SessionId, Suspended, Seeded>,
    /// Notices that suspended sessions have.
    pub(crate) deferred_notices: usize,
    pub(crate) recipients: Recipients,
    pub(crate) ids: Ids,
    /// `None`: nobody wants to know.
    pub(crate) attendance: Option<Vec<Attendance>>,
    /// `None`: no room has presence.
    pub(crate) presence: Option<Box<Presence>>,
}

impl<E: Encoder> Hub<E> {
    /// A shard without sessions.
    ///
    /// # Panics
    /// If `core` isn't below `cores`, or `cores` isn't within 1 to [`CORES_MAX`].
    pub fn new(options: Options, encoder: E) -> Self {
        assert!(options.core < options.cores && options.cores <= CORES_MAX);
        let Options { core, cores, seed, .. } = options;
        let log = Log::new(options.recovery, options.live.clone());
        Self {
            core,
            cores,
            subscriptions_max: options.subscriptions_max,
            feed_interval_min: options.feed_interval_min,
            external_positions: options.external_positions,
            sessions: Sessions::new(encoder, options.send_buffer_bytes_max, log),
            outgoing: Outbound::new(cores, seed),
            changed_topics: VecDeque::new(),
            reports_rooms: options.reports_rooms,
            awaiting: Awaiting::default(),
            to_confirm: BTreeSet::new(),
            preparations: 0,
            prepared: VecDeque::new(),
            requesters: VecDeque::new(),
            notices: VecDeque::new(),
            last_notice: None,
            suspended: HashMap::with_hasher(Seeded(seed)),
            deferred_notices: 0,
            recipients: Recipients::default(),
            ids: Ids::new(core, seed),
            live: options.live.clone(),
            attendance: None,
            presence: options.presence.clone().map(|presence| Presence::new(presence, cores, seed)),
            topics: Topics::new(options),
        }
    }

    /// Changes the limits: those of sessions, topics, patches and history. The other options stay, and so do the rooms that
    /// keep history: the lists of prefixes must have the same ones.
    pub fn set_limits(&mut self, options: Options) {
        self.subscriptions_max = options.subscriptions_max;
        self.feed_interval_min = options.feed_interval_min;
        self.sessions.set_send_buffer_bytes_max(options.send_buffer_bytes_max);
        self.topics.set_limits(options);
    }

    /// Opens a session that is sent frames of `format`. `tag` is the caller's.
    ///
    /// # Panics
    /// If `format` is not below [`FORMATS_MAX`].
    pub fn handle_open(&mut self, format: FormatId, tag: u64) -> SessionId {
        self.sessions.open(format, tag)
    }

    /// Sets whether new topics are refused ([`SubscribeError::TooManyTopics`]) because memory is short, and members whose
    /// sessions end leave without the grace: it would take more memory than the members do.
    pub fn set_memory_short(&mut self, is_short: bool) {
        self.topics.refuses_topics = is_short;
        if let Some(presence) = &mut self.presence {
            presence.table.is_memory_short = is_short;
        }
    }

    /// Whether [`Self::drain_sampled`] has something.
    #[inline]
    pub fn has_sampled(&self) -> bool {
        self.sessions.latencies.has_taken
    }

    /// When the deliveries of a sample that were taken since the last call were published.
    pub fn drain_sampled(&mut self) -> impl Iterator<Item = Instant> + '_ {
        self.sessions.latencies.drain()
    }

    /// The source that more than half of the sessions have, and their share in percent, as a sample of `samples_max` sessions
    /// shows it. None of them has 0.
    pub fn majority_source(&self, samples_max: usize) -> Option<(u64, u8)> {
        self.sessions.majority_source(samples_max)
    }

    /// Sets the source of a session: a number chosen by the caller, the same for all sessions of one address. And when it
    /// opened, in the caller's unit. Default: 0.
    pub fn set_source(&mut self, session: SessionId, source: u64, opened_at: u32) {
        self.sessions.set_source(session, source, opened_at);
    }

    /// What [`Self::set_source`] has set.
    pub fn source(&self, session: SessionId) -> Option<(u64, u32)> {
        self.sessions.source(session)
    }

    /// The format of a session.
    pub fn format(&self, session: SessionId) -> Option<FormatId> {
        self.sessions.alive(session).map(|session| session.format)
    }

    /// How many sessions, suspended ones included, have each format.
    pub fn formats(&self) -> &[u32; FORMATS_MAX] {
        self.sessions.formats()
    }

    /// Changes the caller's tag of a session.
    pub fn set_tag(&mut self, session: SessionId, tag: u64) {
        if let Some(session) = self.sessions.alive_mut(session) {
            session.tag = tag;
        }
    }

    /// The tag of a session.
    #[inline]
    pub fn tag(&self, session: SessionId) -> Option<u64> {
        self.sessions.alive(session).map(|s| s.tag)
    }

    /// Changes the format of a session, from the next frame taken on. What waits is enqueued again: if it exceeds
    /// the send buffer in the new format, policies decide. What the new format doesn't support is dropped.
    ///
    /// # Panics
    /// If `format` is not below [`FORMATS_MAX`].
    pub fn set_format(&mut self, session: SessionId, format: FormatId) {
        self.sessions.set_format(session, format);
    }

    /// Ends a session: its pending deliveries are dropped, its subscriptions end.
    pub fn handle_close(&mut self, session: SessionId) {
        for member in self.sessions.members(session) {
            self.leave(member, Absence::Ended);
        }
        self.sessions.close(session);
        // Mostly there is none, and a look takes a hash.
        if !self.suspended.is_empty()
            && let Some(suspended) = self.suspended.remove(&session)
        {
            self.deferred_notices -= suspended.notices.len();
        }
    }

    /// Subscribes a session.
    ///
    /// - A feed: the session is sent what leads from `since` to the newest document, and the feed's state if it
    ///   differs from the document's.
    /// - A room with history: it is sent what followed `since`, or else a [`Notice::Gap`].
    ///
    /// A second call changes the options.
    ///
    /// - A feed: without `since`, or if `since` is of another epoch, the session is sent the newest document again, as
    ///   a snapshot. Otherwise it is sent what it wasn't sent yet, whatever `since` is, because what it was sent may
    ///   still be on its way.
    /// - A room: `since` has no meaning.
    ///
    /// A change to or from `Latest` keeps only the newest pending publication. For a feed, any change of policy does.
    ///
    /// # Errors
    /// The session has too many subscriptions, or the core knows too many topics.
    pub fn handle_subscribe(
        &mut self,
        session: SessionId,
        topic: &Topic,
        terms: impl Into<SubscribeOptions>,
        since: Option<Position>,
    ) -> Result<(), SubscribeError> {
        if self.sessions.alive(session).is_none() {
            return Ok(());
        }
        let terms = self.allowed(topic, terms.into());
        let hash = self.topics.hash(topic);
        let known = self.topics.find_hashed(topic, hash);
        if let Some(index) = known
            && let Some(member) = self.subscription_to(session, index)
        {
            match topic {
                Topic::Feed(_) => self.subscribe_again(member, index, terms, since),
                Topic::Room(_) => self.sessions.set_policy(member, terms.policy),
                Topic::Presence(_) => {}
            }
            return Ok(());
        }
        if self.sessions.has_subscriptions(session, self.subscriptions_max) {
            return Err(SubscribeError::TooManySubscriptions);
        }
        let index = known.or_else(|| self.topics.insert(topic, hash)).ok_or(SubscribeError::TooManyTopics)?;
        if let Some(member) = self.sessions.subscribe(session, index, terms) {
            self.join_topic(member, index, since);
        }
        Ok(())
    }

    /// The subscription of a session to a topic.
    pub(crate) fn subscription_to(&self, session: SessionId, index: u32) -> Option<Member> {
        let state = self.topics.at(index)?;
        self.sessions.find(session, index, &state.members, state.is_joining())
    }

    /// Only feeds under `Latest` have a minimum interval.
    fn allowed(&self, topic: &Topic, terms: SubscribeOptions) -> SubscribeOptions {
        let rated = matches!(topic, Topic::Feed(_)) && terms.policy == Policy::Latest;
        let interval = if rated { terms.interval.max(self.feed_interval_min) } else { Duration::ZERO };
        SubscribeOptions { interval, ..terms }
    }

    fn subscribe_again(
        &mut self,
        member: Member,
        index: u32,
        terms: SubscribeOptions,
        since: Option<Position>,
    ) {
        let lost = self.sessions.set_terms_of_feed(member, terms);
        let subscription = self.sessions.subscription(member);
        let Some(state) = self.topics.at(index).filter(|_| !subscription.flags.has(Flags::PENDING)) else {
            return;
        };
        if state.current().is_none_or(|current| current.behind(since) == UNKNOWN) {
            self.deliver_feed(member, index, since, false);
        } else if lost || (subscription.waiting == 0 && subscription.behind > 0) {
            self.deliver_current(member, index, subscription.behind);
        }
    }

    /// Ends a subscription. Nothing of the topic is sent from now on except what is in flight. Returns whether
    /// there was one.
    pub fn handle_unsubscribe(&mut self, session: SessionId, topic: &Topic) -> bool {
        let Some(member) = self.end_subscription(session, topic) else { return false };
        self.sessions.unsubscribe(member);
        true
    }

    /// Takes a session out of a room. It still receives what was published before, as with Socket.IO. The subscription to
    /// another topic ends as by [`Hub::handle_unsubscribe`]. Returns whether there was one.
    pub fn handle_leave(&mut self, session: SessionId, topic: &Topic) -> bool {
        match topic {
            Topic::Room(_) => self.end_subscription(session, topic).is_some(),
            Topic::Feed(_) | Topic::Presence(_) => self.handle_unsubscribe(session, topic),
        }
    }

    /// Ends a subscription, but for what waits in it.
    fn end_subscription(&mut self, session: SessionId, topic: &Topic) -> Option<Member> {
        let index = self.topics.find(topic)?;
        let member = self.subscription_to(session, index)?;
        self.leave(member, Absence::Unsubscribed);
        if let (Some(_), Topic::Room(room)) = (&self.presence, topic) {
            self.handle_unsubscribe(session, &Topic::Presence(room.clone()));
        }
        Some(member)
    }

    /// Sends a message to sessions of this core, in order with their other deliveries, under [`Policy::Queue`]. Unless it
    /// is volatile, it is kept for recovery, also for suspended sessions. `room` gives the namespace; the sessions
    /// needn't be its members.
    pub fn handle_send(
        &mut self,
        now: Instant,
        sessions: &[SessionId],
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        volatile: bool,
    ) {
        let body = Body::Message { room: room.clone(), event, data, position: None };
        let publication = self.make(body, volatile, None);
        for session in sessions {
            let Some(member) = self.sessions.direct(*session) else { continue };
            if publication.is_recoverable() {
                let except = Exceptions::default();
                self.sessions.log.push(now, &publication, &[], Box::default(), &except, Some(*session));
            }
            self.sessions.fan_out(&[member], &publication, volatile, None);
        }
    }

    /// The id of a message that is about to be published here and on other nodes ([`Emit::identified`](crate::Emit::identified)).
    pub fn draw_id(&mut self) -> u64 {
        self.ids.draw()
    }

    /// A publication of this core's, unless it has an `id` already.
    pub(crate) fn make(
        &mut self,
        body: Body,
        volatile: bool,
        id: Option<NonZeroU64>,
    ) -> Arc<Publication<E::Frame>> {
        let is_message = matches!(body, Body::Message { .. });
        let recoverable = is_message && !volatile && self.sessions.log.is_on();
        let id = id.map_or_else(|| self.ids.draw(), NonZeroU64::get);
        Publication::made_at(self.sessions.rates.now(), id, recoverable, body, &self.live)
    }

    /// Removes what is older than its room's history, or the recovery log, keeps. Frees frames of documents that were made ten
    /// calls ago: call it once a second.
    pub fn handle_tick(&mut self, now: Instant) {
        self.sessions.log.expire(now);
        self.sessions.arena.recent.handle_tick();
        for index in self.topics.expire(now) {
            self.topics.remove_if_idle(index);
        }
    }

    /// Sets the current time: what waited for it leaves. Call it before anything else that happens at that time,
    /// and when [`Hub::poll_timeout`] is due. Returns false if nothing waited for a time.
    #[inline]
    pub fn handle_time(&mut self, now: Instant) -> bool {
        self.sessions.handle_time(now)
    }

    /// When to call [`Hub::handle_time`] if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sessions.rates.next_due()
    }

    /// Whether sessions wait for encodings of other cores. Only [`Hub::handle_time`] notices when an encoding exists,
    /// so call it again soon.
    #[inline]
    pub fn awaits_encodings(&self) -> bool {
        !self.sessions.encoding_waiters.is_empty()
    }

    /// Frees `excess_bytes` of memory: evicts the recovery log first, then the patches of feeds, then history.
    /// Returns the approximate number of freed bytes.
    pub fn handle_overload(&mut self, excess_bytes: usize) -> usize {
        let mut freed = 0;
        while freed < excess_bytes {
            match self.sessions.log.evict_oldest() {
                0 => break,
                bytes => freed += bytes,
            }
        }
        if freed < excess_bytes {
            freed += self.topics.evict_patches(excess_bytes - freed);
        }
        if freed < excess_bytes {
            let (forgotten, empty) = self.topics.evict_stalest_history(excess_bytes - freed);
            freed += forgotten;
            for index in empty {
                self.topics.remove_if_idle(index);
            }
        }
        freed
    }

    /// Whether nothing waits for [`Hub::poll_ready`], [`Hub::poll_terminating`], [`Hub::poll_notice`], [`Hub::poll_subscribed`],
    /// [`Hub::poll_unconfirmed`] or [`Hub::poll_prepared`]: one look instead of six, in turns that didn't concern the hub.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.notices.is_empty()
            && self.last_notice.is_none()
            && self.changed_topics.is_empty()
            && self.requesters.is_empty()
            && self.to_confirm.is_empty()
            && self.prepared.is_empty()
            && self.sessions.is_quiet()
    }

    /// The next session with new pending deliveries, with its tag.
    pub fn poll_ready(&mut self) -> Option<(SessionId, u64)> {
        self.sessions.poll_ready()
    }

    /// The next session that has to end, with its tag. The caller closes it.
    pub fn poll_terminating(&mut self) -> Option<(SessionId, u64, Disconnect)> {
        self.sessions.poll_terminating()
    }

    /// The next notice to a session about its subscriptions. Notices to suspended sessions wait until they are
    /// resumed.
    ///
    /// The session of a [`Notice::Gap`] receives nothing that follows it until its notice is returned and this is called again: send the
    /// notice before.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        if let Some(notice) = self.last_notice.take() {
            self.end_notice(&notice);
        }
        while let Some(notice) = self.notices.pop_front() {
            if self.sessions.alive(notice.session()).is_none() {
                self.end_notice(&notice);
            } else if self.suspended.contains_key(&notice.session()) {
                self.end_notice(&notice);
                self.defer_notice(notice);
            } else {
                self.last_notice = Some(notice.clone());
                return Some(notice);
            }
        }
        None
    }

    /// The messages of this shard to `core`, oldest first. What can't be passed on now stays.
    pub fn outgoing(&mut self, core: CoreId) -> &mut Outgoing<E::Frame> {
        self.outgoing.to(core)
    }

    /// The number of messages from this shard to others since the start. It shows whether handling an input produced
    /// any.
    #[inline]
    pub fn dispatches(&self) -> u64 {
        self.outgoing.count
    }

    /// Moves pending deliveries of a session into flight: at least one frame if there is any, more while they fit
    /// into `bytes_max` and `frames_max`. Call [`Hub::handle_sent`] when the kernel has them.
    pub fn take(
        &mut self,
        session: SessionId,
        bytes_max: usize,
        frames_max: usize,
        each: impl FnMut(&Arc<Publication<E::Frame>>, &E::Frame),
    ) {
        self.sessions.take(session, (bytes_max, frames_max, true), each);
    }

    /// Moves all pending deliveries of a session into flight, also those whose frame another core is making.
    pub fn take_all(&mut self, session: SessionId, each: impl FnMut(&Arc<Publication<E::Frame>>, &E::Frame)) {
        self.sessions.take(session, (usize::MAX, usize::MAX, false), each);
    }

    /// Everything in flight of a session has been taken by the kernel. Returns whether more is waiting.
    pub fn handle_sent(&mut self, session: SessionId) -> bool {
        self.sessions.sent(session)
    }

    /// Whether deliveries wait for a session.
    pub fn has_pending(&self, session: SessionId) -> bool {
        self.sessions.has_pending(session)
    }

    /// Whether a publication of this topic waits for a session.
    pub fn has_pending_of(&self, session: SessionId, topic: &Topic) -> bool {
        let index = self.topics.find(topic).filter(|_| self.has_pending(session));
        let member = index.and_then(|index| self.subscription_to(session, index));
        member.is_some_and(|member| self.sessions.subscription(member).waiting > 0)
    }

    /// Pending encoded bytes of a session under byte-limited policies, in flight included.
    pub fn pending_bytes_of(&self, session: SessionId) -> usize {
        self.sessions.alive(session).map_or(0, |s| s.queue_bytes as usize)
    }

    /// The same, without what is in flight.
    pub fn waiting_bytes_of(&self, session: SessionId) -> usize {
        self.sessions.alive(session).map_or(0, |s| (s.queue_bytes - s.queue_bytes_in_flight) as usize)
    }

    /// Whether something has been taken for a session that the kernel doesn't have yet.
    pub fn is_in_flight(&self, session: SessionId) -> bool {
        self.sessions.alive(session).is_some_and(|s| s.in_flight > 0)
    }

    /// The size of the shard itself.
    pub fn footprint(&self) -> Footprint {
        let (sessions, subscriptions) = self.sessions.bytes();
        let sessions = sessions + self.suspended_bytes();
        let subscriptions = subscriptions + self.awaiting.bytes();
        let (topics, outboxes) = (self.topics.bytes(), self.sessions.outbox_bytes());
        Footprint { sessions, subscriptions, topics, outboxes }
    }

    /// Encoded bytes that a session keeps alive, queued or in flight. Shared frames count for each session. Pending
    /// versions of `Latest` subscriptions don't count, because all sessions share the newest version.
    pub fn held_bytes(&self, session: SessionId) -> usize {
        let Some(session) = self.sessions.alive(session) else { return 0 };
        let latest = session.in_flight_bytes.saturating_sub(session.queue_bytes_in_flight);
        session.queue_bytes as usize + latest as usize
    }

    /// Topics that a session is subscribed to.
    pub fn subscriptions(&self, session: SessionId) -> usize {
        self.sessions.subscription_count(session)
    }

    /// The outcome of all deliveries.
    pub fn counters(&self) -> Counters {
        self.sessions.counters
    }

    /// Deliveries to sessions of this core that have become due: [`Counters::due`].
    #[inline]
    pub fn due(&self) -> u64 {
        self.sessions.counters.due
    }

    /// The size of the recovery log, and what was removed from it.
    pub fn log_stats(&self) -> LogStats {
        self.sessions.log.figures()
    }

    /// The history kept for rooms. Don't call it often: it visits each room that has one.
    pub fn history_stats(&self) -> HistoryStats {
        self.topics.history_stats()
    }

    /// The patches kept, and in which form documents were taken.
    pub fn feed_stats(&self) -> FeedStats {
        self.topics.patches.figures(self.sessions.taken)
    }

    /// The number of sessions, including suspended ones.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// The number of topics that this core knows.
    pub fn topics(&self) -> usize {
        self.topics.count()
    }

    /// Pending encoded bytes under byte-limited policies, of all sessions together. Shared frames count for each
    /// session.
    pub fn pending_bytes(&self) -> usize {
        self.sessions.queue_bytes
    }

    /// The home core of a topic, if it has one.
    pub fn home_of(&self, topic: &Topic) -> Option<CoreId> {
        self.topics.home_of(topic)
    }

    /// The core that a topic's hash points at.
    pub fn core_of(&self, topic: &Topic) -> CoreId {
        self.topics.core_of(topic)
    }
}
