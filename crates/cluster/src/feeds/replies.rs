//! Answers of the engine.

use super::log::{DecodedLog, Found};
use super::phase::{Holding, Phase, Storing};
use super::requests::{Asked, Purpose, Ticket};
use super::{ACQUIRE_INTERVAL, CHECK_INTERVAL, Feeds, Output, PUSH_RETRY_DELAY, RENEW_INTERVAL, RETRY_DELAY};
use crate::engine::{Channel, EngineError, FeedLog, Reply};
use crate::frame::{Frame, LogEntry};
use std::mem;
use std::time::Instant;
use stentor_hub::{FeedState, Key};
use stentor_ports::FeedUpdate;

/// The reason why a feed is stale whose newest version can't be stored.
const VERSION_REFUSED: &str = "the cluster's engine refuses the newest version";

impl Feeds {
    /// Handles the engine's answer to a request. `has_memory_for` returns `true` if there is memory for this number of bytes. Without memory
    /// for a log's documents, the log counts as unread.
    pub(crate) fn handle_reply(
        &mut self,
        now: Instant,
        ticket: Ticket,
        reply: Result<Reply, EngineError>,
        has_memory_for: impl FnOnce(usize) -> bool,
    ) {
        let Some(Asked { key, incarnation, purpose, at }) = self.requests.asked.remove(&ticket) else {
            return;
        };
        self.cold.handle_answer(ticket, &key);
        if let Purpose::Release(term) = purpose {
            // A node that asks for the lease gets it from now on.
            return self.publish(Channel::from(key), &Frame::Released(term));
        }
        let Some(feed) = self.feeds.get_mut(&key).filter(|feed| feed.incarnation == incarnation) else {
            // The feed that needed the lease has been removed.
            if let (Purpose::Acquire, Ok(Reply::Lease(Some(lease)))) = (purpose, reply) {
                self.request_release(now, &key, lease);
            }
            return;
        };
        let is_expected = match (purpose, feed.phase.holding()) {
            (Purpose::Load | Purpose::Release(_), _) => true,
            (Purpose::Acquire, _) => matches!(feed.phase, Phase::Acquiring { .. }),
            // The answer is about the current lease.
            (Purpose::Renew(term), holding) => holding.is_some_and(|it| it.lease.term == term),
            (Purpose::Store(term), holding) => {
                holding.is_some_and(|it| it.lease.term == term && it.storing().is_some())
            }
        };
        if !is_expected {
            return;
        }
        match (purpose, reply) {
            (Purpose::Load, Ok(Reply::Feed(log))) => {
                let log = log.and_then(|log| self.decoded(&key, log));
                if log.as_ref().is_none_or(|log| has_memory_for(log.document_bytes())) {
                    self.handle_log(now, ticket, &key, log);
                } else if let Some(feed) = self.feeds.get_mut(&key) {
                    feed.phase.handle_read_failure(now + RETRY_DELAY);
                }
            }
            (Purpose::Load, _) => feed.phase.handle_read_failure(now + RETRY_DELAY),
            (Purpose::Acquire, Ok(Reply::Lease(Some(lease)))) => {
                feed.log.term_seen = feed.log.term_seen.max(lease.term);
                feed.log.holder = Some(self.frames.node());
                feed.phase.hold(lease, at);
                self.leases += 1;
                self.holders.begin_reports(now);
                self.fetch(&key);
                let gives_away = self.gives_away(&key, ticket);
                if !gives_away && self.requests.is_former(ticket) {
                    // Another server may have granted the lease before the engine was connected again.
                    self.begin_term(now, &key);
                }
                // Another holder may have stored an entry since the log was read.
                self.load(now, &key);
                if gives_away {
                    self.give_away(now, &key);
                }
            }
            (Purpose::Acquire, reply) => {
                let random = 0.75 + 0.5 * self.random.f64();
                let interval = match reply {
                    _ if feed.is_fetched() => ACQUIRE_INTERVAL,
                    Err(EngineError::Refused(_)) => RETRY_DELAY,
                    _ => PUSH_RETRY_DELAY,
                };
                feed.check_at = now + CHECK_INTERVAL.mul_f64(random);
                feed.phase.follow(now + interval.mul_f64(random));
            }
            (Purpose::Renew(_), Ok(Reply::Lease(Some(_)))) => feed.phase.renew(at),
            (Purpose::Renew(_), Ok(Reply::Lease(None))) => self.lose(now, &key),
            (Purpose::Renew(_), _) => {
                if let Some(holding) = feed.phase.holding_mut() {
                    holding.renew_at = now + RETRY_DELAY;
                }
            }
            (Purpose::Store(_), Ok(_)) => self.handle_stored(now, &key),
            (Purpose::Store(_), Err(EngineError::Fenced)) => {
                feed.phase.holding_mut().and_then(Holding::end_storing);
                self.lose(now, &key);
            }
            (Purpose::Store(_), reply) => {
                // The log has the entry if it was stored. If it wasn't, it is stored again: at once if what the node knew of the
                // log was out of date. An engine that refuses an entry again answers reads only, as Redis does without memory.
                let is_refused = matches!(reply, Err(EngineError::Refused(_)));
                let is_fetched_version = feed.is_storing_fetched_version();
                feed.handle_unknown_outcome();
                self.resyncs += 1;
                let holding = feed.phase.holding_mut();
                let was_refused = holding.is_some_and(|it| mem::replace(&mut it.is_refused, is_refused));
                if was_refused && is_refused {
                    feed.phase.read_at_or_next(now + RETRY_DELAY);
                    self.requests.refused += 1;
                    if is_fetched_version {
                        self.show_refused(now, &key);
                    }
                } else {
                    self.load(now, &key);
                }
            }
            (Purpose::Release(_), _) => {}
        }
        self.reschedule(&key);
    }

    /// Shows on all nodes that a feed is stale, because the engine refuses its newest version. The log can't have this state, so the
    /// holder repeats it every [`RENEW_INTERVAL`] for nodes that read the log meanwhile.
    fn show_refused(&mut self, now: Instant, key: &Key) {
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let Some(holding) = feed.phase.holding_mut().filter(|it| it.report_refused_at <= now) else { return };
        holding.report_refused_at = now + RENEW_INTERVAL;
        feed.log.state = (FeedState::Stale, VERSION_REFUSED.into());
        let entry = LogEntry::state(holding.lease.term, feed.log.state.clone(), feed.log.sequence);
        self.publish(Channel::from(key.clone()), &Frame::Feed(entry));
        self.show_state(key);
    }

    /// Decodes the log of a feed. A log with a broken frame counts as missing.
    fn decoded(&mut self, key: &Key, log: FeedLog) -> Option<DecodedLog> {
        match DecodedLog::decode(&self.frames, key, log) {
            Ok(log) => Some(log),
            Err(error) => {
                self.outputs.push_back(Output::Refused(error));
                None
            }
        }
    }

    fn handle_log(&mut self, now: Instant, ticket: Ticket, key: &Key, log: Option<DecodedLog>) {
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let is_first = matches!(feed.phase, Phase::Loading(_));
        let again = feed.phase.handle_read(now);
        let before = feed.log.state.clone();
        let writer = log.as_ref().map(|log| log.writer);
        let is_informed = feed.phase.holding().is_some_and(|holding| holding.is_informed);
        let is_unseen = feed.local.shown().is_none();
        let found = log.map(|log| feed.log.replace(log, &mut self.replaced, is_informed, is_unseen));
        if let Some(writer) = writer.filter(|writer| *writer != self.frames.node()) {
            self.holders.handle_named(now, writer);
            feed.log.holder = Some(writer);
        }
        let patches = match found {
            Some(Ok(Found::Newest(patches))) => Some(patches),
            Some(Ok(Found::Lost)) => None,
            Some(Ok(Found::Former)) => {
                // The node asks for the lease even if its holder is alive.
                feed.log.holder = None;
                feed.phase.acquire_at(now);
                None
            }
            // The log is broken, or there is none.
            Some(Err(_)) | None => {
                feed.log.set_missing();
                None
            }
        };
        feed.plan_refresh(now, random, patches.is_none());
        let is_new = self.show_newest(key, patches.unwrap_or_default());
        let Some(feed) = self.feeds.get_mut(key) else { return };
        if !is_new && feed.log.state != before {
            self.show_state(key);
        } else if feed.log.newest.is_none() && !feed.is_fetched() && feed.pushes.is_empty() {
            self.show_absence(key);
        }
        if self.feeds.get_mut(key).is_some_and(|feed| feed.is_confirmed(now, ticket.0, is_first)) {
            self.show(key, FeedUpdate::Confirmed(ticket.0));
        }
        if again {
            self.load(now, key);
        }
        let Some(feed) = self.feeds.get_mut(key) else { return };
        match feed.phase.lease() {
            None if is_first && feed.needs_lease() => self.acquire(now, key),
            None => {}
            Some(lease) if lease.term < feed.log.term_seen => self.lose(now, key),
            Some(lease) if feed.log.needs_new_term(lease.term) => self.begin_term(now, key),
            Some(_) => self.store(now, key),
        }
    }

    fn handle_stored(&mut self, now: Instant, key: &Key) {
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let Some(holding) = feed.phase.holding_mut() else { return };
        let Some(Storing { pending, push: id, then_read }) = holding.end_storing() else { return };
        holding.is_refused = false;
        let (is_logged, update) = feed.log.handle_stored(pending, id.is_some(), &mut self.replaced);
        holding.is_logged = is_logged;
        // A push that has timed out has already been answered.
        let is_first = id.is_some() && feed.pushes.front().map(|push| push.id) == id;
        let push = if is_first { feed.pushes.pop_front() } else { None };
        feed.plan_refresh(now, random, false);
        let state = feed.log.state.0;
        let is_version = update.is_some();
        if let Some(update) = update {
            self.show(key, update);
            if state != FeedState::Live {
                self.show_state(key);
            }
        } else if state == FeedState::NotFound && id.is_some() {
            self.show_state(key);
        } else {
            self.show_newest(key, Vec::new());
        }
        if let Some(push) = push {
            let is_changed = is_version || push.change.is_none();
            self.outputs.push_back(Output::Pushed(push.id, Ok(is_changed)));
        }
        if then_read {
            return self.load(now, key);
        }
        self.store(now, key);
    }
}
