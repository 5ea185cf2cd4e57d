//! One core's part of the hub: its sessions and their subscriptions, and the topics with their home here. This module is the
//! interface. [`crate::interest`] describes how cores follow topics, [`crate::broadcast`] the path of a publication.

use crate::awaiting::Awaiting;
use crate::budget::{Counters, Footprint};
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
use crate::suspension::Suspensions;
use crate::topic::{Room, Topic};
use crate::topics::Topics;
use crate::version_lag::UNKNOWN;
use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One core's part of the hub. Sans-I/O: `handle_*` in, `poll_*` out.
pub struct Hub<E: Encoder> {
    pub(crate) core: CoreId,
    pub(crate) sessions: Sessions<E>,
    pub(crate) topics: Topics<E::Frame>,
    pub(crate) outgoing: Outbound<E::Frame>,
    /// Members that named a position and wait for the publications after it.
    pub(crate) awaiting: Awaiting,
    /// Topics that [`Hub::poll_unconfirmed`] reports next, by index.
    pub(crate) to_confirm: BTreeSet<u32>,
    /// Number of requests to prepare a room that this core has sent. Counted per shard, because a topic is
    /// forgotten when the core leaves it.
    pub(crate) preparations: u64,
    /// Prepared rooms that [`Hub::poll_prepared`] reports next.
    pub(crate) prepared: VecDeque<Room>,
    /// Requesters of feeds of this home core that have no state yet.
    pub(crate) requesters: VecDeque<(Key, Requester)>,
    pub(crate) suspensions: Suspensions,
    pub(crate) recipients: Recipients,
    pub(crate) ids: Ids,
    /// Reports of attendance; `None` if they are disabled.
    pub(crate) attendance: Option<Vec<Attendance>>,
    /// Presence; `None` if no room has it.
    pub(crate) presence: Option<Box<Presence>>,
}

impl<E: Encoder> Hub<E> {
    /// Makes a shard without sessions.
    ///
    /// # Panics
    /// If `core` isn't below `cores`, or `cores` isn't within 1 to [`CORES_MAX`].
    pub fn new(options: Options, encoder: E) -> Self {
        assert!(options.core < options.cores && options.cores <= CORES_MAX);
        let Options { core, cores, seed, .. } = options;
        let log = Log::new(options.recovery, options.live.clone());
        Self {
            core,
            sessions: Sessions::new(encoder, options.send_buffer_bytes_max, log),
            outgoing: Outbound::new(cores, seed),
            awaiting: Awaiting::default(),
            to_confirm: BTreeSet::new(),
            preparations: 0,
            prepared: VecDeque::new(),
            requesters: VecDeque::new(),
            suspensions: Suspensions::new(seed),
            recipients: Recipients::default(),
            ids: Ids::new(core, seed),
            attendance: None,
            presence: options.presence.clone().map(|presence| Presence::new(presence, cores, seed)),
            topics: Topics::new(options),
        }
    }

    /// Changes the limits of sessions, topics, patches and history. All other options must be those of the
    /// start, and the rooms that keep history must have the same prefixes. Presence is unchanged.
    pub fn set_limits(&mut self, options: Options) {
        self.sessions.send_buffers.set_bytes_max(options.send_buffer_bytes_max);
        self.topics.set_limits(options);
    }

    /// Opens a session that receives frames of `format`. `tag` is chosen by the caller.
    ///
    /// # Panics
    /// If `format` is not below [`FORMATS_MAX`].
    pub fn handle_open(&mut self, format: FormatId, tag: u64) -> SessionId {
        self.sessions.open(format, tag)
    }

    /// Sets an id aside for a session, until [`Self::handle_open_reserved`] or [`Self::release`].
    pub fn reserve(&mut self) -> SessionId {
        self.sessions.reserve()
    }

    /// Like [`Self::handle_open`], with a reserved id. Returns `false` if the id isn't reserved.
    ///
    /// # Panics
    /// If `format` is not below [`FORMATS_MAX`].
    pub fn handle_open_reserved(&mut self, session: SessionId, format: FormatId, tag: u64) -> bool {
        self.sessions.open_reserved(session, format, tag)
    }

    /// Gives up a reserved id. No other session ever has it.
    pub fn release(&mut self, session: SessionId) {
        self.sessions.release(session);
    }

    /// Like [`Self::handle_close`], and reserves the id for the same client. Returns `false` if the id can't be reserved.
    pub fn handle_close_reserving(&mut self, session: SessionId) -> bool {
        self.handle_close(session);
        self.sessions.reserve_again(session)
    }

    /// Sets whether memory is short. If `true`, new topics are refused ([`SubscribeError::TooManyTopics`]),
    /// and members whose sessions end leave without a grace period, which would take more memory than the
    /// members themselves.
    pub fn set_memory_short(&mut self, is_short: bool) {
        self.topics.refuses_topics = is_short;
        if let Some(presence) = &mut self.presence {
            presence.table.is_memory_short = is_short;
        }
    }

    /// Returns `true` if [`Self::drain_sampled`] has entries.
    #[inline]
    pub fn has_sampled(&self) -> bool {
        self.sessions.latencies.has_taken
    }

    /// Takes the publication times of the sampled deliveries that were taken since the last call.
    pub fn drain_sampled(&mut self) -> impl Iterator<Item = Instant> + '_ {
        self.sessions.latencies.drain()
    }

    /// Takes the sessions whose deliveries were dropped since the last call, because they were volatile or a send buffer was full,
    /// each with their number. The second number is that of further deliveries.
    pub fn take_dropped(&mut self) -> (Vec<(SessionId, u32)>, u64) {
        self.sessions.events.dropped.take()
    }

    /// Returns the source of more than half of the sessions and its share in percent, estimated from
    /// `samples_max` sessions. `None` if no source has more than half.
    pub fn majority_source(&self, samples_max: usize) -> Option<(u64, u8)> {
        self.sessions.sources.majority(samples_max)
    }

    /// Sets the source of a session (a number chosen by the caller, the same for all sessions of one
    /// address), and the time at which it opened, in the caller's unit. Default: 0.
    pub fn set_source(&mut self, session: SessionId, source: u64, opened_at: u32) {
        self.sessions.set_source(session, source, opened_at);
    }

    /// Returns the values of [`Self::set_source`].
    pub fn source(&self, session: SessionId) -> Option<(u64, u32)> {
        self.sessions.source(session)
    }

    /// Returns the format of a session.
    pub fn format(&self, session: SessionId) -> Option<FormatId> {
        self.sessions.alive(session).map(|session| session.format)
    }

    /// Returns the number of sessions per format, suspended ones included.
    pub fn formats(&self) -> &[u32; FORMATS_MAX] {
        self.sessions.formats()
    }

    /// Changes the caller's tag of a session.
    pub fn set_tag(&mut self, session: SessionId, tag: u64) {
        if let Some(session) = self.sessions.alive_mut(session) {
            session.tag = tag;
        }
    }

    /// Returns the tag of a session.
    #[inline]
    pub fn tag(&self, session: SessionId) -> Option<u64> {
        self.sessions.alive(session).map(|s| s.tag)
    }

    /// Changes the format of a session, from the next taken frame on. Waiting publications are enqueued
    /// again: if they exceed the send buffer in the new format, policies decide. Publications that the new
    /// format doesn't support are dropped.
    ///
    /// # Panics
    /// If `format` is not below [`FORMATS_MAX`].
    pub fn set_format(&mut self, session: SessionId, format: FormatId) {
        self.sessions.set_format(session, format);
    }

    /// Sets whether a connection can take a session's deliveries now. Volatile messages skip a session without one. A session opens
    /// and resumes with one.
    pub fn set_writable(&mut self, session: SessionId, is_writable: bool) {
        self.sessions.set_writable(session, is_writable);
    }

    /// Ends a session: drops its pending deliveries and ends its subscriptions.
    pub fn handle_close(&mut self, session: SessionId) {
        for member in self.sessions.members(session) {
            self.leave(member, Absence::Ended);
        }
        self.sessions.close(session);
        self.suspensions.end(session);
    }

    /// Subscribes a session.
    ///
    /// - A feed: the session is sent the patches or the document from `since` to the newest one, and the
    ///   feed's state if it differs from the document's.
    /// - A room with history: the session is sent the messages after `since`, or else a [`Notice::Gap`].
    ///
    /// A second call changes the options.
    ///
    /// - A feed: without `since`, or if `since` is of another epoch, the session is sent the newest document
    ///   again, as a snapshot. Otherwise it is sent the versions that were not sent to it yet. `since` is
    ///   ignored, because versions that were sent may not have reached the client.
    /// - A room: `since` is ignored.
    ///
    /// A change to or from `Latest` keeps only the newest pending publication, and so does every change of a feed's
    /// policy.
    ///
    /// # Errors
    /// The session has too many subscriptions, or the core has too many topics.
    pub fn handle_subscribe(
        &mut self,
        session: SessionId,
        topic: &Topic,
        options: impl Into<SubscribeOptions>,
        since: Option<Position>,
    ) -> Result<(), SubscribeError> {
        if self.sessions.alive(session).is_none() {
            return Ok(());
        }
        let options = self.allowed(topic, options.into());
        let hash = self.topics.hash(topic);
        let known = self.topics.find_hashed(topic, hash);
        if let Some(index) = known
            && let Some(member) = self.subscription_to(session, index)
        {
            match topic {
                Topic::Feed(_) => self.subscribe_again(member, index, options, since),
                Topic::Room(_) => self.sessions.set_policy(member, options.policy),
                Topic::Presence(_) => {}
            }
            return Ok(());
        }
        if self.sessions.has_subscriptions(session, self.topics.options.subscriptions_max) {
            return Err(SubscribeError::TooManySubscriptions);
        }
        let index = known.or_else(|| self.topics.insert(topic, hash)).ok_or(SubscribeError::TooManyTopics)?;
        if let Some(member) = self.sessions.subscribe(session, index, options) {
            self.join_topic(member, index, since);
        }
        Ok(())
    }

    /// Returns the subscription of a session to a topic.
    pub(crate) fn subscription_to(&self, session: SessionId, index: u32) -> Option<Member> {
        let state = self.topics.at(index)?;
        self.sessions.find(session, index, &state.members, state.is_joining())
    }

    /// Adjusts options to the topic: only feeds under `Latest` have a minimum interval.
    fn allowed(&self, topic: &Topic, options: SubscribeOptions) -> SubscribeOptions {
        let rated = matches!(topic, Topic::Feed(_)) && options.policy == Policy::Latest;
        let interval =
            if rated { options.interval.max(self.topics.options.feed_interval_min) } else { Duration::ZERO };
        SubscribeOptions { interval, ..options }
    }

    fn subscribe_again(
        &mut self,
        member: Member,
        index: u32,
        options: SubscribeOptions,
        since: Option<Position>,
    ) {
        let lost = self.sessions.set_feed_options(member, options);
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

    /// Ends a subscription. Only deliveries in flight are still sent. Returns `true` if the session was subscribed.
    pub fn handle_unsubscribe(&mut self, session: SessionId, topic: &Topic) -> bool {
        let Some(member) = self.end_subscription(session, topic) else { return false };
        self.sessions.unsubscribe(member);
        true
    }

    /// Removes a session from a room. It still receives the messages published before, as with Socket.IO. A
    /// subscription to another topic ends as in [`Hub::handle_unsubscribe`]. Returns `true` if there was one.
    pub fn handle_leave(&mut self, session: SessionId, topic: &Topic) -> bool {
        match topic {
            Topic::Room(_) => self.end_subscription(session, topic).is_some(),
            Topic::Feed(_) | Topic::Presence(_) => self.handle_unsubscribe(session, topic),
        }
    }

    /// Ends a subscription except for its waiting deliveries.
    fn end_subscription(&mut self, session: SessionId, topic: &Topic) -> Option<Member> {
        let index = self.topics.find(topic)?;
        let member = self.subscription_to(session, index)?;
        self.leave(member, Absence::Unsubscribed);
        if let (Some(_), Topic::Room(room)) = (&self.presence, topic) {
            self.handle_unsubscribe(session, &Topic::Presence(room.clone()));
        }
        Some(member)
    }

    /// Sends a message to sessions of this core, in order with their other deliveries, under
    /// [`Policy::Queue`]. A message that isn't volatile is kept for recovery, also for suspended sessions.
    /// `room` states the namespace; the sessions needn't be its members.
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

    /// Draws the id of a message that will be published here and on other nodes
    /// ([`Emit::identified`](crate::Emit::identified)).
    pub fn draw_id(&mut self) -> u64 {
        self.ids.draw()
    }

    /// Makes a publication of this core. Draws an id unless it has an `id` already.
    pub(crate) fn make(
        &mut self,
        body: Body,
        volatile: bool,
        id: Option<NonZeroU64>,
    ) -> Arc<Publication<E::Frame>> {
        let is_message = matches!(body, Body::Message { .. });
        let recoverable = is_message && !volatile && self.sessions.log.is_on();
        let id = id.map_or_else(|| self.ids.draw(), NonZeroU64::get);
        Publication::made_at(self.sessions.rates.now(), id, recoverable, body, &self.topics.options.live)
    }

    /// Removes expired entries of histories and of the recovery log, and frees frames of documents that were
    /// made ten calls ago. Call it once a second.
    pub fn handle_tick(&mut self, now: Instant) {
        self.sessions.log.expire(now);
        self.sessions.arena.recent.handle_tick();
        for index in self.topics.expire(now) {
            self.topics.remove_if_idle(index);
        }
    }

    /// Sets the current time and releases delayed deliveries. Call it before any other input of that time,
    /// and when [`Hub::poll_timeout`] is due. Returns `false` if no delivery waited for a time.
    #[inline]
    pub fn handle_time(&mut self, now: Instant) -> bool {
        self.sessions.handle_time(now)
    }

    /// Returns the time at which [`Hub::handle_time`] must be called, if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sessions.rates.next_due()
    }

    /// Returns `true` if sessions wait for encodings of other cores. Only [`Hub::handle_time`] notices a
    /// finished encoding, so call it again soon.
    #[inline]
    pub fn awaits_encodings(&self) -> bool {
        !self.sessions.events.encoding_waiters.is_empty()
    }

    /// Frees `excess_bytes` of memory: evicts the recovery log first, then the patches of feeds, then
    /// history. Returns the approximate number of freed bytes.
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

    /// Returns `true` if [`Hub::poll_ready`], [`Hub::poll_terminating`], [`Hub::poll_notice`],
    /// [`Hub::poll_subscribed`], [`Hub::poll_unconfirmed`] and [`Hub::poll_prepared`] have no results: one
    /// check instead of six, in turns that didn't concern the hub.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.sessions.notices.is_empty()
            && self.topics.changed.is_empty()
            && self.requesters.is_empty()
            && self.to_confirm.is_empty()
            && self.prepared.is_empty()
            && self.sessions.events.is_empty()
    }

    /// Returns the next session with new pending deliveries, with its tag.
    pub fn poll_ready(&mut self) -> Option<(SessionId, u64)> {
        self.sessions.poll_ready()
    }

    /// Returns the next session that must end, with its tag. The caller closes it.
    pub fn poll_terminating(&mut self) -> Option<(SessionId, u64, Disconnect)> {
        self.sessions.poll_terminating()
    }

    /// Returns the next notice to a session about its subscriptions. Notices to suspended sessions wait until
    /// they are resumed.
    ///
    /// The session of a [`Notice::Gap`] receives no publications after the gap until this function has
    /// returned its notice and is called again: send the notice before.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.sessions.poll_notice(&mut self.suspensions)
    }

    /// Returns the messages of this shard to `core`, oldest first. Messages that can't be passed on now stay
    /// in the queue.
    pub fn outgoing(&mut self, core: CoreId) -> &mut Outgoing<E::Frame> {
        self.outgoing.to(core)
    }

    /// Returns the number of messages from this shard to others since the start. A change shows that handling
    /// an input produced messages.
    #[inline]
    pub fn dispatches(&self) -> u64 {
        self.outgoing.count
    }

    /// Moves pending deliveries of a session into flight: at least one frame if there is any, more while they
    /// fit into `bytes_max` and `frames_max`. Call [`Hub::handle_sent`] when the kernel has accepted them.
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

    /// Records that the kernel has accepted all deliveries of a session in flight. Returns `true` if more are
    /// waiting.
    pub fn handle_sent(&mut self, session: SessionId) -> bool {
        self.sessions.sent(session)
    }

    /// Returns `true` if deliveries wait for a session.
    pub fn has_pending(&self, session: SessionId) -> bool {
        self.sessions.has_pending(session)
    }

    /// Returns `true` if a publication of this topic waits for a session.
    pub fn has_pending_of(&self, session: SessionId, topic: &Topic) -> bool {
        // Most sessions have nothing pending, and need no search by the topic's name.
        let index = if self.has_pending(session) { self.topics.find(topic) } else { None };
        let member = index.and_then(|index| self.subscription_to(session, index));
        member.is_some_and(|member| self.sessions.subscription(member).waiting > 0)
    }

    /// Returns the pending encoded bytes of a session under byte-limited policies, in flight included.
    pub fn pending_bytes_of(&self, session: SessionId) -> usize {
        self.sessions.alive(session).map_or(0, |s| s.queue_bytes as usize)
    }

    /// Like [`Self::pending_bytes_of`], without the bytes in flight.
    pub fn waiting_bytes_of(&self, session: SessionId) -> usize {
        self.sessions.alive(session).map_or(0, |s| (s.queue_bytes - s.queue_bytes_in_flight) as usize)
    }

    /// Returns `true` if deliveries of a session were taken and not yet accepted by the kernel.
    pub fn is_in_flight(&self, session: SessionId) -> bool {
        self.sessions.alive(session).is_some_and(|s| s.in_flight > 0)
    }

    /// Returns the memory of the shard itself.
    pub fn footprint(&self) -> Footprint {
        let (sessions, subscriptions) = self.sessions.bytes();
        let sessions = sessions + self.suspensions.bytes();
        let subscriptions = subscriptions + self.topics.members_bytes() + self.awaiting.bytes();
        let (topics, outboxes) = (self.topics.bytes(), self.sessions.outbox_bytes());
        Footprint { sessions, subscriptions, topics, outboxes }
    }

    /// Returns the encoded bytes that a session keeps alive, queued or in flight. Shared frames count for
    /// each session. Pending versions of `Latest` subscriptions don't count, because all sessions share the
    /// newest version.
    pub fn held_bytes(&self, session: SessionId) -> usize {
        let Some(session) = self.sessions.alive(session) else { return 0 };
        let latest = session.in_flight_bytes.saturating_sub(session.queue_bytes_in_flight);
        session.queue_bytes as usize + latest as usize
    }

    /// Returns the number of topics to which a session is subscribed.
    pub fn subscriptions(&self, session: SessionId) -> usize {
        self.sessions.subscription_count(session)
    }

    /// Returns the outcome of all deliveries.
    pub fn counters(&self) -> Counters {
        self.sessions.counters
    }

    /// Returns the number of deliveries to sessions of this core that have become due: [`Counters::due`].
    #[inline]
    pub fn due(&self) -> u64 {
        self.sessions.counters.due
    }

    /// Returns the size of the recovery log, and the number of removed publications.
    pub fn log_stats(&self) -> LogStats {
        self.sessions.log.figures()
    }

    /// Returns the size of the history kept for rooms. Don't call it often: it visits each room with history.
    pub fn history_stats(&self) -> HistoryStats {
        self.topics.history_stats()
    }

    /// Returns the numbers of kept patches, and of documents taken in each form.
    pub fn feed_stats(&self) -> FeedStats {
        self.topics.patches.figures(self.sessions.taken)
    }

    /// Returns the number of sessions, suspended ones included.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Returns the number of topics of this core.
    pub fn topics(&self) -> usize {
        self.topics.count()
    }

    /// Returns the pending encoded bytes of all sessions under byte-limited policies. Shared frames count for
    /// each session.
    pub fn pending_bytes(&self) -> usize {
        self.sessions.send_buffers.bytes()
    }

    /// Returns the home core of a topic, if it has one.
    pub fn home_of(&self, topic: &Topic) -> Option<CoreId> {
        self.topics.home_of(topic)
    }

    /// Returns the core that a topic's hash selects.
    pub fn core_of(&self, topic: &Topic) -> CoreId {
        self.topics.core_of(topic)
    }
}
