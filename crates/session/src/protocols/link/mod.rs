//! The application link on an Engine.IO client: messages pass to the client's worker and back without being parsed.
//!
//! Specification: `crates/ports/src/link.rs`. Transports, heartbeats and upgrades are those of Engine.IO, so the worker sees none of them.
//! Socket.IO's rules (CONNECT, reserved names, timeouts of namespaces) are the worker's.
//!
//! ```text
//!  a message ──► unit ── complete ──► the link ──► the worker
//!                  └─ attachments missing: waits   │ refused: kept, and the client isn't read
//!  Send ──► the client's queue, or its outbox if broadcasts wait there, so that all messages keep their order
//! ```
//!
//! A client has one session of the hub, whatever the number of its namespaces: with a session for each, messages to several namespaces
//! would lose their order. Its rooms are in [`crate::executor`].
//!
//! **Bounds.** A unit has at most `limits.message_bytes_max` bytes and `engine.attachments_max` attachments, and is complete within
//! `limits.message_timeout`. The link refuses a client at most one unit, because then the client isn't read. A client isn't read either
//! while more than `links.queue_bytes_max` of its messages wait in the link.

mod unit;
mod wire;

pub(crate) use unit::Unit;
pub(crate) use wire::{Packets, write_records, write_unit};

use super::client::Flow;
use crate::executor::Executor;
use crate::identity::{ClientId, End};
use crate::millis::Millis;
use crate::model::{ConnId, Disconnect, SessionId};
use crate::ports::{
    Denial, EngineOptions, Identity, LinkAcceptance, LinkApp, LinkCloseReason, LinkHeaders, LinkMessages,
    LinkQueued, LinkRefusal, LinkReport, LinkSession, LinkSocket, content_bytes,
};
use std::sync::Arc;
use stentor_wire::engineio::Data;

/// Size of a client's pending messages above which its worker is notified, in bytes.
pub(crate) const PRESSURE_BYTES: usize = 64 * 1024;

/// The answer of the worker to a client's request.
pub(crate) enum Answer {
    /// The request on this connection waits for it.
    Asked(ConnId),
    Accepted(Box<LinkAcceptance>),
    Refused(Box<LinkRefusal>),
    /// The worker has accepted the client, but the client may no longer open a session.
    Denied(Denial),
    /// The session has begun, and the client has been answered.
    Begun,
}

/// The reason why a connection of the client waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The worker takes no further messages.
    Paused,
    /// The worker hasn't handled the messages of a POST.
    Confirmed,
}

/// The messages of a client, on their way to the worker.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) unit: Unit,
    /// The deadline of the unit. `None` if no attachments are missing.
    unit_until: Option<Millis>,
    /// A unit that the link has refused.
    refused: Option<LinkMessages>,
    /// `true` from [`LinkEntry::Pause`](crate::ports::LinkEntry::Pause) or [`LinkReport::Full`] on.
    is_paused: bool,
    /// `true` if units were passed on since the last confirmation.
    is_unconfirmed: bool,
    /// The question by which a connection waits.
    waits: Option<(u64, Wait)>,
}

/// The messages of the worker, on their way to the client.
pub(crate) struct Output {
    /// `true` if all messages have been written to the client.
    pub(crate) is_drained: bool,
    /// `true` while the worker knows that the client doesn't read.
    is_pressed: bool,
    /// Number of receipts to report.
    receipts: u32,
}

/// A client whose messages go to a worker.
pub(crate) struct Link {
    pub(crate) session: LinkSession,
    pub(crate) app: LinkApp,
    /// Size of the messages that the link holds for the worker.
    queued: LinkQueued,
    /// The client's session in the hub. `None` before the worker has accepted the client.
    pub(crate) hub_session: Option<SessionId>,
    /// The number of the worker's link.
    pub(crate) owner: u32,
    pub(crate) answer: Answer,
    /// The client's identity, until the session in the hub has it.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The options of the application.
    pub(crate) engine: Arc<EngineOptions>,
    pub(crate) upgraded: bool,
    /// Headers of all responses.
    pub(crate) headers: Arc<LinkHeaders>,
    pub(crate) input: Input,
    pub(crate) output: Output,
}

impl Link {
    pub(crate) fn new(
        session: LinkSession,
        app: LinkApp,
        conn: ConnId,
        identity: Option<Arc<Identity>>,
        (queued, engine): (LinkQueued, Arc<EngineOptions>),
    ) -> Self {
        Self {
            session,
            app,
            queued,
            hub_session: None,
            owner: 0,
            answer: Answer::Asked(conn),
            identity,
            engine,
            upgraded: false,
            headers: Arc::default(),
            input: Input::default(),
            output: Output { is_drained: true, is_pressed: false, receipts: 0 },
        }
    }

    /// Returns `true` if the client's request hasn't been answered.
    pub(crate) fn is_asking(&self) -> bool {
        !matches!(self.answer, Answer::Begun)
    }

    /// Returns `true` if the client can't send a sign of life, because a connection waits for the worker.
    pub(crate) fn waits(&self) -> bool {
        self.input.waits.is_some()
    }

    /// Size of the messages that the link holds for the worker, in bytes. The link charges them.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued.bytes()
    }

    /// Size of the messages that wait for the link, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.input.unit.bytes() + self.input.refused.as_ref().map_or(0, content_bytes)
    }

    /// The deadline of a unit whose attachments are missing.
    pub(crate) fn poll_timeout(&self) -> Option<Millis> {
        self.input.unit_until
    }

    /// Returns `true` if attachments are still missing after their deadline.
    pub(crate) fn is_unit_overdue(&self, now: Millis) -> bool {
        self.input.unit_until.is_some_and(|until| !now.is_before(until))
    }

    /// Moves the deadline of a unit to `until`, because the client can't send its attachments now.
    pub(crate) fn extend_unit(&mut self, until: Millis) {
        self.input.unit_until = self.input.unit_until.map(|_| until);
    }

    /// Handles a message of the client. If the worker or the link takes no further one, the connection then waits.
    pub(crate) fn handle_message(
        &mut self,
        ex: &mut Executor,
        conn: ConnId,
        client: ClientId,
        data: Data<'_>,
    ) -> Flow {
        self.input.waits = None;
        let limits = (ex.options().limits.message_bytes_max, ex.options().engine.attachments_max);
        let bytes = match data {
            Data::Text(text) => text.len(),
            Data::Binary(bytes) => bytes.len(),
        };
        let is_too_large = self.engine.message_bytes_max.is_some_and(|max| bytes > max);
        match if is_too_large { Err(unit::TooLarge) } else { self.input.unit.push(data, limits) } {
            Ok(None) => {
                // As for a fragmented WebSocket message, the timeout starts with the first part.
                let message_timeout = ex.options().limits.message_timeout;
                self.input.unit_until.get_or_insert(ex.millis().after(message_timeout));
            }
            Ok(Some(unit)) => {
                self.input.unit_until = None;
                let calls = ex.link.as_mut().map(|link| &mut link.calls);
                if !calls.is_some_and(|calls| calls.handle_unit(client, &unit)) {
                    self.input.is_unconfirmed = true;
                    self.pass(ex, client, unit);
                }
            }
            Err(unit::TooLarge) => {
                ex.metrics().protocol_errors.add(1);
                ex.end_client(client, End::Fault);
                return Flow::Stop;
            }
        }
        if self.input.is_paused || self.input.refused.is_some() {
            self.wait(ex, conn, client, Wait::Paused);
        }
        Flow::Continue
    }

    /// Makes the connection whose input is being handled wait.
    fn wait(&mut self, ex: &mut Executor, conn: ConnId, client: ClientId, why: Wait) {
        self.input.waits = Some((ex.questions.wait_for_worker(conn, client), why));
    }

    /// Called when the connection continues.
    pub(crate) fn handle_decided(&mut self) {
        self.input.waits = None;
    }

    /// Passes a unit to the link, or keeps it until the link takes reports again.
    fn pass(&mut self, ex: &mut Executor, client: ClientId, unit: LinkMessages) {
        let Some(link) = &mut ex.link else { return };
        let bytes = content_bytes(&unit);
        // Counted first: the link may take the unit at once.
        self.queued.enter(bytes);
        if let Err(LinkReport::Messages(unit)) = link.report(self.session, LinkReport::Messages(unit)) {
            self.queued.leave(bytes);
            self.input.refused = Some(unit);
            link.keep_refused(client);
        } else if !self.input.is_paused && self.queued.bytes() > self.engine.queue_bytes_max {
            // The link's answer takes a while, in which the client could send any number of messages.
            self.input.is_paused = true;
            self.report(ex, LinkReport::Full);
        }
    }

    /// Passes the refused unit to the link.
    pub(crate) fn pass_refused(&mut self, ex: &mut Executor, client: ClientId) {
        if let Some(unit) = self.input.refused.take() {
            self.pass(ex, client, unit);
            self.resume(ex, Wait::Paused);
        }
    }

    /// Stops or resumes reading from the client.
    pub(crate) fn set_paused(&mut self, ex: &mut Executor, is_paused: bool) {
        self.input.is_paused = is_paused;
        self.resume(ex, Wait::Paused);
    }

    /// Continues a connection that waits for this reason, unless the reason holds.
    fn resume(&mut self, ex: &mut Executor, why: Wait) {
        if why == Wait::Paused && (self.input.is_paused || self.input.refused.is_some()) {
            return;
        }
        // The wait is taken even if the connection has ended: otherwise the session would never time out.
        if let Some((number, _)) = self.input.waits.take_if(|(_, waits)| *waits == why) {
            ex.questions.decide(number, Ok(()));
        }
    }

    /// Handles the end of a POST's messages. Returns `true` if the response waits until the worker has handled them.
    pub(crate) fn confirm(&mut self, ex: &mut Executor, conn: ConnId, client: ClientId) -> bool {
        self.input.waits = None;
        if !std::mem::take(&mut self.input.is_unconfirmed) {
            return false;
        }
        self.report(ex, LinkReport::Confirm);
        self.wait(ex, conn, client, Wait::Confirmed);
        true
    }

    /// Called when the worker has handled the messages of the last POST.
    pub(crate) fn handle_handled(&mut self, ex: &mut Executor) {
        self.resume(ex, Wait::Confirmed);
    }

    /// Reports an event that the link always takes.
    pub(crate) fn report(&self, ex: &Executor, report: LinkReport) {
        if let Some(link) = &ex.link {
            let _ = link.report(self.session, report);
        }
    }

    /// Counts a message whose worker wants a receipt.
    pub(crate) fn expect_receipt(&mut self, ex: &Executor) {
        self.output.receipts += 1;
        if self.output.is_drained {
            self.handle_drained(ex);
        }
    }

    /// Called when all messages have been written to the client.
    pub(crate) fn handle_drained(&mut self, ex: &Executor) {
        self.output.is_drained = true;
        for _ in 0..std::mem::take(&mut self.output.receipts) {
            self.report(ex, LinkReport::Receipt);
        }
        if std::mem::take(&mut self.output.is_pressed) {
            self.report(ex, LinkReport::Pressure(false));
        }
    }

    /// Notifies the worker if the client has this many bytes pending and didn't have them before.
    pub(crate) fn check_pressure(&mut self, ex: &Executor, pending_bytes: usize) {
        if pending_bytes > PRESSURE_BYTES && !std::mem::replace(&mut self.output.is_pressed, true) {
            self.report(ex, LinkReport::Pressure(true));
        }
    }

    /// Ends the session.
    pub(crate) fn end(&mut self, ex: &mut Executor, client: ClientId, end: End) {
        if let Some(session) = self.hub_session.take() {
            ex.close_session(session, end);
        }
        let sockets = ex.link.as_mut().map(|link| link.members.take_all(self.app, client));
        self.report_end(ex, reason_of(end), sockets.unwrap_or_default());
    }

    /// Reports the end of the session, which had these sockets, unless it has been reported.
    pub(crate) fn report_end(&self, ex: &mut Executor, reason: LinkCloseReason, sockets: Vec<LinkSocket>) {
        if ex.link.as_mut().is_some_and(|link| link.forget(self.session)) {
            self.report(ex, LinkReport::Closed { reason, sockets });
        }
    }
}

fn reason_of(end: End) -> LinkCloseReason {
    match end {
        End::Gone | End::Closed | End::TakenOver => LinkCloseReason::TransportClose,
        End::Fault => LinkCloseReason::ParseError,
        End::Because(Disconnect::HeartbeatTimeout) => LinkCloseReason::PingTimeout,
        End::Because(_) => LinkCloseReason::ForcedClose,
    }
}

/// Headers of a worker that a response may have. A worker's mistake must not break the framing of the response, so invalid headers and
/// those that the server itself writes are left out.
pub(crate) fn valid_headers(headers: &LinkHeaders) -> impl Iterator<Item = (&str, &str)> {
    /// Headers that the server writes, in lower case.
    const OWN: [&str; 7] = [
        "connection",
        "content-length",
        "content-type",
        "date",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
    ];
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let is_value = |value: &str| !value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
    let is_own = move |name: &str| OWN.iter().any(|own| own.eq_ignore_ascii_case(name));
    let pairs = headers.iter().map(|(name, value)| (&**name, &**value));
    pairs.filter(move |(name, value)| is_name(name) && is_value(value) && !is_own(name))
}
