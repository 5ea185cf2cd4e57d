//! Information for operators.

use super::Executor;
use crate::encode::Encoding;
use crate::identity::End;
use crate::ports::{ENDED_LISTED_MAX, EndedSession, SessionDetails, SessionEvent, network_of};
use crate::timelines::{Ended, Problem};
use std::time::Instant;
use stentor_hub::SessionId;

impl Executor {
    /// The details of a session, for lists of sessions.
    pub(crate) fn details(&self, session: SessionId) -> SessionDetails {
        let (user, info) = self.who_is(session);
        let source = self.hub.source(session);
        SessionDetails {
            node: None,
            app: None,
            namespace: None,
            user,
            info,
            address: source.map(|(source, _)| network_of(source)),
            since: source.map(|(_, opened_at)| self.context.clock.start_seconds() + u64::from(opened_at)),
            transport: None,
            feeds: Vec::new(),
            timeline: Vec::new(),
            send_buffer_bytes: self.hub.pending_bytes_of(session),
        }
    }

    /// Returns the events of a session, oldest first.
    pub(crate) fn timeline_of(&self, session: SessionId) -> Vec<SessionEvent> {
        self.context.timelines.borrow().of(session, self.context.clock.start_seconds())
    }

    /// Records that the client of a session has changed to a WebSocket.
    pub(crate) fn note_upgrade(&self, session: SessionId) {
        let now = self.context.clock.seconds(self.context.now);
        self.context.timelines.borrow_mut().upgraded(session, now);
    }

    /// Keeps the times of a session that closes, and the reason, so that its timeline can still be looked up.
    pub(super) fn note_end(&self, session: SessionId, why: End) {
        let protocol = self.encoding_of(session).and_then(Encoding::protocol);
        let (Some(protocol), Some((source, opened_at))) = (protocol, self.hub.source(session)) else {
            return;
        };
        let ended_at = self.context.clock.seconds(self.context.now);
        let ended = Ended { session, protocol, source, opened_at, ended_at, why };
        self.context.timelines.borrow_mut().end(ended);
    }

    /// Returns those of the sessions that have ended lately, with their events: at most [`ENDED_LISTED_MAX`], newest end first. The last
    /// event of each is its end.
    pub(crate) fn ended_of(&self, mut sessions: Vec<SessionId>) -> Vec<EndedSession> {
        sessions.sort_unstable();
        let start = self.context.clock.start_seconds();
        let timelines = self.context.timelines.borrow();
        let ended = timelines.ended_of(&sessions).take(ENDED_LISTED_MAX);
        let listed = ended.map(|Ended { session, protocol, source, opened_at, ended_at, why }| {
            let ended = start + u64::from(ended_at);
            let (name, reason) = ("ended".into(), why.name().into());
            let mut timeline = timelines.of(session, start);
            timeline.push(SessionEvent { name, reason, count: 1, first: ended, last: ended });
            EndedSession {
                id: self.public_id(session).to_string(),
                protocol: protocol.into(),
                address: network_of(source),
                since: start + u64::from(opened_at),
                ended,
                timeline,
            }
        });
        listed.collect()
    }

    /// Counts an error in the protocol of a client, and records it in the timelines of the client's sessions.
    pub(crate) fn note_fault(&self, sessions: impl Iterator<Item = SessionId>) {
        self.metrics.protocol_errors.add(1);
        sessions.for_each(|session| self.context.note(session, Problem::ProtocolError, ""));
    }

    /// Records the deliveries that the hub has dropped since the last call. Called once per tick, and before timelines are read.
    pub fn note_drops(&mut self) {
        let now = self.context.clock.seconds(self.context.now);
        let timelines = self.context.timelines.get_mut();
        let (dropped, unlisted) = self.hub.untracked().take_dropped();
        for (session, count) in dropped {
            timelines.note(session, Problem::DeliveriesDropped, "", count, now);
        }
        timelines.lost += unlisted;
    }

    /// Records counts of questions, identities, refused messages and histories.
    pub fn record_counts(&self) {
        let (questions, metrics) = (&self.questions, &self.metrics);
        metrics.publications_refused.set(self.context.refusals.get());
        let timelines = self.context.timelines.borrow();
        metrics.messages_limited.set(timelines.limited);
        metrics.timeline_lost.set(timelines.lost);
        metrics.sessions_ended.set(timelines.ended_count() as u64);
        metrics.publications_repeated.set(self.outlet.repeated.get());
        metrics.decisions_pending.set(questions.open() as u64);
        metrics.decisions_unanswered.set(questions.unanswered);
        metrics.identities.set(questions.identities.count() as u64);
        metrics.tokens_refused.set(questions.identities.refused);
        metrics.record_protocols(&self.hub);
        metrics.record_past(self.hub.history_stats(), self.hub.log_stats());
    }

    /// Records the latencies of sampled deliveries that the kernel has accepted.
    #[inline]
    pub fn record_latencies(&mut self, clock: fn() -> Instant) {
        if self.hub.has_sampled() {
            self.record_sampled(clock());
        }
    }

    #[inline(never)]
    fn record_sampled(&mut self, now: Instant) {
        // A virtual clock may be ahead of the real one.
        let now = self.context.now.max(now);
        for taken_at in self.hub.untracked().drain_sampled() {
            self.metrics.record_delivery(now.saturating_duration_since(taken_at));
        }
    }
}
