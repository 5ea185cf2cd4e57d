//! What the machine for feeds does with the engine's answers.

use super::feed::{Role, Storing};
use super::request::{Answer, Asked, DecodedLog, Output, Ticket};
use super::{
    ACQUIRE_INTERVAL, CHECK_INTERVAL, Feeds, LEASE_MARGIN, LEASE_TTL, PUSH_RETRY_DELAY, Purpose,
    RENEW_INTERVAL, RETRY_DELAY,
};
use crate::engine::{Channel, EngineError};
use crate::frame::Frame;
use std::time::Instant;
use stentor_hub::{FeedState, Key};
use stentor_ports::FeedUpdate;

impl Feeds {
    /// The engine has answered.
    pub(crate) fn handle_reply(&mut self, now: Instant, ticket: Ticket, answer: Answer) {
        let Some(Asked { key, incarnation, purpose, term, at }) = self.asked.remove(&ticket) else { return };
        self.cold.handle_answer(ticket, &key);
        if purpose == Purpose::Release {
            // Not earlier: from now on, a node that asks for the lease gets it.
            self.outputs.push_back(Output::Publish(Channel::from(key), Frame::Released(term)));
            return;
        }
        let Some(feed) = self.feeds.get_mut(&key).filter(|feed| feed.incarnation == incarnation) else {
            // Nobody needs the lease any more.
            if let (Purpose::Acquire, Answer::Lease(Some(lease))) = (purpose, answer) {
                self.request_release(now, &key, lease);
            }
            return;
        };
        let is_expected = match purpose {
            Purpose::Load | Purpose::Release => true,
            Purpose::Acquire => matches!(feed.role, Role::Acquiring),
            // Of the lease that it holds, not of an earlier one.
            Purpose::Renew => feed.lease().is_some_and(|lease| lease.term == term),
            Purpose::Store => feed.storing.is_some() && feed.lease().is_some_and(|lease| lease.term == term),
        };
        if !is_expected {
            return;
        }
        match (purpose, answer) {
            (Purpose::Load, Answer::Log(log)) => self.handle_log(now, ticket, &key, log),
            (Purpose::Load, _) => {
                feed.is_loading = false;
                feed.missed = true;
                feed.load_at = Some(now + RETRY_DELAY);
            }
            (Purpose::Acquire, Answer::Lease(Some(lease))) => {
                feed.term_seen = feed.term_seen.max(lease.term);
                feed.holder = Some(self.node);
                (feed.is_informed, feed.is_logged) = (false, false);
                let ends_at = at + LEASE_TTL - LEASE_MARGIN;
                feed.role = Role::Holding { lease, renew_at: at + RENEW_INTERVAL, ends_at };
                self.leases += 1;
                self.holders.begin_reports(now);
                self.fetch(&key);
                if ticket.0 <= self.drawn_before {
                    // As that of any holder when the engine is connected again: another server may have granted it.
                    self.begin_term(now, &key);
                }
                // Another holder may have stored something since the log was read.
                self.load(now, &key);
            }
            (Purpose::Acquire, _) => {
                let random = 0.75 + 0.5 * self.random.f64();
                let interval = if feed.is_fetched() { ACQUIRE_INTERVAL } else { PUSH_RETRY_DELAY };
                feed.check_at = now + CHECK_INTERVAL.mul_f64(random);
                feed.role = Role::Following { acquire_at: now + interval.mul_f64(random) };
            }
            (Purpose::Renew, Answer::Lease(Some(_))) => {
                if let Role::Holding { renew_at, ends_at, .. } = &mut feed.role {
                    (*renew_at, *ends_at) = (at + RENEW_INTERVAL, at + LEASE_TTL - LEASE_MARGIN);
                }
            }
            (Purpose::Renew, Answer::Lease(None)) => self.lose(now, &key),
            (Purpose::Renew, _) => {
                if let Role::Holding { renew_at, .. } = &mut feed.role {
                    *renew_at = now + RETRY_DELAY;
                }
            }
            (Purpose::Store, Answer::Done) => self.handle_stored(now, &key),
            (Purpose::Store, Answer::Failed(EngineError::Fenced)) => {
                feed.storing = None;
                self.lose(now, &key);
            }
            (Purpose::Store, _) => {
                // Whether it was stored is unknown: the log knows. If it was not, it is stored again.
                let storing = feed.give_up_storing();
                let version = storing.filter(|storing| storing.push.is_none()).and_then(|it| it.version);
                feed.next = feed.next.take().or(version.map(|(newest, _)| (newest.document, None)));
                feed.is_logged = false;
                feed.begin_log_anew();
                self.resyncs += 1;
                self.load(now, &key);
            }
            (Purpose::Release, _) => {}
        }
        self.reschedule(&key);
    }

    fn handle_log(&mut self, now: Instant, ticket: Ticket, key: &Key, log: Option<Box<DecodedLog>>) {
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key) else { return };
        feed.is_loading = false;
        let before = feed.state.clone();
        let writer = log.as_ref().map(|log| log.writer);
        let found = log.map(|log| feed.replace(*log, &mut self.replaced));
        let is_former = matches!(found, Some(Ok(None)));
        let patches = match found {
            Some(Ok(patches)) => patches.unwrap_or_default(),
            // Broken, or there is none.
            Some(Err(_)) | None => {
                feed.set_log_lost();
                Vec::new()
            }
        };
        if let Some(writer) = writer.filter(|writer| *writer != self.node) {
            self.holders.handle_named(now, writer);
            feed.holder = Some(writer);
        }
        if is_former {
            feed.replace_holder(now);
        }
        feed.refresh_later(now, random);
        let is_new = self.show_newest(key, patches);
        // A version came while the log was read, which may be older than it.
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let again = std::mem::take(&mut feed.missed);
        if !is_new && feed.state != before {
            self.show_state(key);
        } else if feed.newest.is_none() && !feed.is_fetched() && feed.pushes.is_empty() {
            self.show_absence(key);
        }
        if self.feeds.get_mut(key).is_some_and(|feed| feed.is_confirmed(now, ticket.0)) {
            self.show(key, FeedUpdate::Confirmed(ticket.0));
        }
        if again {
            self.load(now, key);
        }
        let Some(feed) = self.feeds.get_mut(key) else { return };
        match feed.role {
            Role::Loading if feed.needs_lease() => self.acquire(now, key),
            Role::Loading => feed.role = Role::Following { acquire_at: now },
            Role::Holding { lease, .. } if lease.term < feed.term_seen => self.lose(now, key),
            Role::Holding { lease, .. } if feed.needs_new_term(lease.term) => self.begin_term(now, key),
            Role::Holding { .. } => self.store(now, key),
            Role::Following { .. } | Role::Acquiring => {}
        }
    }

    fn handle_stored(&mut self, now: Instant, key: &Key) {
        let random = self.random.f64();
        let Some(feed) = self.feeds.get_mut(key) else { return };
        let Some(storing) = feed.storing.take() else { return };
        feed.handle_stored(&storing, &mut self.replaced);
        let Storing { version, push: id, .. } = storing;
        let is_version = version.is_some();
        let state = feed.state.0;
        // A push whose time is over has been answered.
        let is_first = id.is_some() && feed.pushes.front().map(|push| push.id) == id;
        let push = if is_first { feed.pushes.pop_front() } else { None };
        if let Some((newest, patch)) = version {
            let (position, document) = (newest.position, newest.document.clone());
            feed.set_newest(newest, &mut self.replaced);
            feed.refresh_later(now, random);
            let patches = patch.into_iter().collect();
            self.show(key, FeedUpdate::At { position, document, patches });
            if state != FeedState::Live {
                self.show_state(key);
            }
        } else {
            feed.refresh_later(now, random);
            if state == FeedState::NotFound && id.is_some() {
                self.show_state(key);
            } else {
                self.show_newest(key, Vec::new());
            }
        }
        if let Some(push) = push {
            let is_changed = is_version || push.document.is_none();
            self.outputs.push_back(Output::Pushed(push.id, Ok(is_changed)));
        }
        if self.feeds.get(key).is_some_and(|feed| feed.missed) {
            return self.load(now, key);
        }
        self.store(now, key);
    }
}
