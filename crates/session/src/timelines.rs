//! Timelines of sessions, for operators: changes of the transport, requests and messages that were refused or dropped, and the end.
//!
//! **Bounds.** A core keeps the last [`UPGRADES_MAX`] upgrades and the last [`PROBLEMS_MAX`] problems of all its sessions together, so a
//! session without events takes no memory. Repeated problems of a session share an entry. The metric `timeline_events_lost`
//! counts the events that newer ones have replaced. The events of a session outlive it; the last [`ENDED_MAX`] sessions that have ended
//! can still be looked up.

use crate::identity::End;
use crate::ports::{Denial, SessionEvent};
use std::borrow::Cow;
use std::collections::VecDeque;
use stentor_hub::SessionId;

/// Maximum number of upgrades that a core keeps.
const UPGRADES_MAX: usize = 8_192;
/// Maximum number of problems that a core keeps.
const PROBLEMS_MAX: usize = 2_048;
/// Maximum number of ended sessions that a core keeps.
const ENDED_MAX: usize = 4_096;
/// Number of newest problems among which an equal one is looked for.
const COMPARED_MAX: usize = 16;

crate::ports::named! {
    /// A kind of problem of a session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Problem {
        /// A subscription was refused, for a reason with this code.
        SubscriptionRefused = "subscription_refused",
        /// A publication was refused.
        PublicationRefused = "publication_refused",
        /// Another request, or a message that can't be read, was refused.
        RequestRefused = "request_refused",
        /// A message or publication exceeded a limit of `[session_limits]`. The reason is the limit's key.
        RateLimited = "rate_limited",
        /// Messages for the client were dropped: its send buffer was full, or they were volatile.
        DeliveriesDropped = "deliveries_dropped",
        /// The client broke the protocol.
        ProtocolError = "protocol_error",
    }
}

/// A problem of a session, and its repetitions.
struct Entry {
    session: SessionId,
    problem: Problem,
    reason: &'static str,
    count: u32,
    first: u32,
    last: u32,
}

/// A session that has ended. Times are in seconds since the core started.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) session: SessionId,
    /// The name of its protocol.
    pub(crate) protocol: &'static str,
    /// The number for the client's address.
    pub(crate) source: u64,
    pub(crate) opened_at: u32,
    pub(crate) ended_at: u32,
    pub(crate) why: End,
}

/// The events of a core's sessions. Times are in seconds since the core started.
#[derive(Default)]
pub(crate) struct Timelines {
    /// The sessions whose clients changed to a WebSocket, oldest first.
    upgrades: VecDeque<(SessionId, u32)>,
    /// The problems, those that began first at the front.
    problems: VecDeque<Entry>,
    /// The sessions that have ended, oldest end first.
    ended: VecDeque<Ended>,
    /// Number of messages and publications that exceeded a session's limit.
    pub(crate) limited: u64,
    /// Number of noted problems.
    pub(crate) noted: u64,
    /// Number of events that are no longer kept.
    pub(crate) lost: u64,
}

impl Timelines {
    /// Records that the client of a session has changed to a WebSocket.
    pub(crate) fn upgraded(&mut self, session: SessionId, now: u32) {
        if self.upgrades.len() == UPGRADES_MAX {
            self.upgrades.pop_front();
            self.lost += 1;
        }
        self.upgrades.push_back((session, now));
    }

    /// Records `count` problems of a session.
    pub(crate) fn note(
        &mut self,
        session: SessionId,
        problem: Problem,
        reason: &'static str,
        count: u32,
        now: u32,
    ) {
        self.noted += 1;
        self.limited += u64::from(problem == Problem::RateLimited);
        let is_same = |entry: &&mut Entry| {
            entry.session == session && entry.problem == problem && entry.reason == reason
        };
        if let Some(entry) = self.problems.iter_mut().rev().take(COMPARED_MAX).find(is_same) {
            (entry.count, entry.last) = (entry.count.saturating_add(count), now);
            return;
        }
        if self.problems.len() == PROBLEMS_MAX {
            let oldest = self.problems.pop_front();
            self.lost += oldest.map_or(0, |entry| u64::from(entry.count));
        }
        self.problems.push_back(Entry { session, problem, reason, count, first: now, last: now });
    }

    /// Records that a session has ended.
    pub(crate) fn end(&mut self, ended: Ended) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }

    /// Iterates over those of the sessions whose ends are kept, newest end first. `sessions` are sorted.
    pub(crate) fn ended_of(&self, sessions: &[SessionId]) -> impl Iterator<Item = Ended> {
        self.ended.iter().rev().filter(move |ended| sessions.binary_search(&ended.session).is_ok()).copied()
    }

    /// Number of ended sessions that can be looked up.
    pub(crate) fn ended_count(&self) -> usize {
        self.ended.len()
    }

    /// Returns the events of a session, oldest first. `start` is the Unix time when the core started, in seconds.
    pub(crate) fn of(&self, session: SessionId, start: u64) -> Vec<SessionEvent> {
        let at = |seconds: u32| start + u64::from(seconds);
        let upgrades = self.upgrades.iter().filter(|(of, _)| *of == session);
        let upgrades = upgrades.map(|(_, time)| SessionEvent {
            name: "upgraded".into(),
            reason: "websocket".into(),
            count: 1,
            first: at(*time),
            last: at(*time),
        });
        let problems = self.problems.iter().filter(|entry| entry.session == session);
        let problems = problems.map(|entry| SessionEvent {
            name: entry.problem.name().into(),
            reason: entry.reason.into(),
            count: entry.count,
            first: at(entry.first),
            last: at(entry.last),
        });
        let mut all: Vec<SessionEvent> = upgrades.chain(problems).collect();
        all.sort_by_key(|event| event.first);
        all
    }

    /// The memory that the events take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.upgrades.capacity() * size_of::<(SessionId, u32)>()
            + self.problems.capacity() * size_of::<Entry>()
            + self.ended.capacity() * size_of::<Ended>()
    }
}

/// The code of a denial, if it is one of the server's own. Other codes aren't kept, because they take memory.
pub(crate) fn own_code(denial: &Denial) -> &'static str {
    match denial.code {
        Cow::Borrowed(code) => code,
        Cow::Owned(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(index: u64) -> SessionId {
        SessionId::from_bits(index)
    }

    fn shown(timelines: &Timelines, of: u64) -> Vec<String> {
        let events = timelines.of(session(of), 1_000).into_iter();
        events.map(|e| format!("{} {} {} {}-{}", e.name, e.reason, e.count, e.first, e.last)).collect()
    }

    #[test]
    fn events_of_a_session_are_listed_in_order_and_repeated_ones_once() {
        let mut all = Timelines::default();
        all.note(session(1), Problem::RateLimited, "session_limits.messages_per_second", 1, 7);
        all.upgraded(session(1), 5);
        all.upgraded(session(2), 5);
        all.note(session(2), Problem::RateLimited, "session_limits.messages_per_second", 1, 8);
        all.note(session(1), Problem::RateLimited, "session_limits.messages_per_second", 2, 9);
        all.note(session(1), Problem::SubscriptionRefused, "not_allowed", 1, 9);
        all.note(session(1), Problem::SubscriptionRefused, "unavailable", 1, 10);
        let expect = [
            "upgraded websocket 1 1005-1005",
            "rate_limited session_limits.messages_per_second 3 1007-1009",
            "subscription_refused not_allowed 1 1009-1009",
            "subscription_refused unavailable 1 1010-1010",
        ];
        assert_eq!(shown(&all, 1), expect);
        assert_eq!(shown(&all, 2).len(), 2);
        assert_eq!(shown(&all, 3), [""; 0]);
        assert_eq!((all.limited, all.noted, all.lost), (3, 5, 0));
    }

    #[test]
    fn the_oldest_events_are_replaced_and_counted() {
        let mut all = Timelines::default();
        for n in 0..UPGRADES_MAX as u64 + 3 {
            all.upgraded(session(n), 0);
        }
        assert_eq!(all.lost, 3);
        assert_eq!([2, 3].map(|n| shown(&all, n).len()), [0, 1]);
        let problems = PROBLEMS_MAX as u64;
        for n in 0..problems {
            all.note(session(n), Problem::DeliveriesDropped, "", 2, 0);
        }
        let bytes = all.bytes();
        all.note(session(problems), Problem::DeliveriesDropped, "", 2, 0);
        assert_eq!((all.lost, all.problems.len()), (5, PROBLEMS_MAX));
        assert_eq!([0, 1].map(|n| shown(&all, n).len()), [0, 1]);
        assert_eq!(all.bytes(), bytes);
        assert!(bytes < 300_000, "{bytes}");
    }

    #[test]
    fn the_sessions_that_ended_last_are_found() {
        let mut all = Timelines::default();
        let ends = ENDED_MAX as u64 + 3;
        for n in 0..ends {
            let (opened_at, ended_at) = (n as u32, n as u32 + 1);
            let (session, protocol, source, why) = (session(n), "sse", n, End::Gone);
            all.end(Ended { session, protocol, source, opened_at, ended_at, why });
        }
        assert_eq!(all.ended_count(), ENDED_MAX);
        let named = [2, 3, ends - 1, ends].map(session);
        let found: Vec<_> =
            all.ended_of(&named).map(|ended| (ended.source, ended.opened_at, ended.ended_at)).collect();
        let newest = ends as u32 - 1;
        assert_eq!(found, [(ends - 1, newest, newest + 1), (3, 3, 4)]);
        assert!((ENDED_MAX * 40..200_000).contains(&all.bytes()), "{}", all.bytes());
    }
}
