//! Decisions about a request that opens a session: who the client is, and whether it may connect.
//!
//! ```text
//!  identify ──► authorize ──► prepare rooms ──► ask the application ──► the protocol opens the session
//! ```
//!
//! A step whose answer comes later suspends the request, which then continues at this step.

use super::clients::Clients;
use super::request::{RequestContext, RequestOutcome, Suspended, status_of};
use super::token::opens_session;
use crate::app::{Connect, Decided, Envelope, HandlerScope, Refused, RequestId};
use crate::encode::Encoding;
use crate::identity::{Service, Sid};
use crate::ports::{Denial, Identity};
use std::sync::Arc;

/// A request that opens a session, and how far it has been decided.
pub(crate) struct Opening {
    /// The name of the protocol, for the authenticator.
    protocol: &'static str,
    envelope: Envelope,
    service: Service,
    /// The id that the client will have. `None` if the application doesn't receive it.
    client: Option<Sid>,
    identity: Option<Arc<Identity>>,
    next: Step,
}

/// The next step of the decisions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Verifies the client's identity. The client sends no messages, so nothing else is decided.
    IdentifyOnly,
    /// Verifies the client's identity.
    Identify,
    /// Asks the authorizer whether the client may connect.
    Authorize,
    /// Prepares the rooms that the client joins.
    Prepare,
    /// Asks the application whether the client may connect.
    Ask,
}

/// A client whose session may be opened.
pub(crate) struct Admitted {
    pub(crate) identity: Option<Arc<Identity>>,
    /// The application's headers for the response.
    pub(crate) headers: Vec<(String, String)>,
}

/// The reason why no session is opened.
pub(crate) enum NotAdmitted {
    /// The client's token is refused, or its user has too many sessions.
    Denied(Denial),
    /// The client may not connect.
    Refused { status: u16, message: String },
}

impl Opening {
    /// A request whose client is identified first.
    pub(crate) fn new(protocol: &'static str, envelope: Envelope, service: Service) -> Self {
        Self { protocol, envelope, service, client: None, identity: None, next: Step::Identify }
    }

    /// Makes the request of a client that sends no messages. Only its identity is verified.
    pub(crate) fn push_only(self, push_only: bool) -> Self {
        Self { next: if push_only { Step::IdentifyOnly } else { self.next }, ..self }
    }

    /// Sets the id that the client will have.
    pub(crate) fn of_client(self, client: Sid) -> Self {
        Self { client: Some(client), ..self }
    }

    /// Makes the request of a client that is identified later. The authorizer decides later as well if clients have
    /// identities.
    pub(crate) fn identified_later(self, has_identities: bool) -> Self {
        Self { next: if has_identities { Step::Ask } else { Step::Authorize }, ..self }
    }

    /// Carries out the steps up to the next decision that isn't known at once. `decided` are the decisions for which the request
    /// waited.
    ///
    /// # Errors
    /// The client's token is refused, or a decision is pending.
    fn decide(&mut self, cx: &mut RequestContext<'_>, decided: Vec<Decided>) -> Result<Connect, Refused> {
        let mut decided = decided.into_iter();
        if matches!(self.next, Step::IdentifyOnly | Step::Identify) {
            self.identity = cx.identify(self.protocol, decided.next())?;
            if self.next == Step::IdentifyOnly {
                return Ok(Connect::Accept);
            }
            self.next = Step::Authorize;
        } else if decided.len() > 0 {
            self.check_again(cx).map_err(Refused::Denied)?;
        }
        if self.next == Step::Authorize {
            match cx.ex.authorize_connect(cx.conn, self.identity.as_deref(), "/", decided.next()) {
                Ok(()) => self.next = Step::Prepare,
                Err(Refused::Pending) => return Err(Refused::Pending),
                Err(Refused::Denied(denial)) => {
                    let status = status_of(&denial);
                    return Ok(Connect::Refuse { status, message: denial.message.into_owned() });
                }
            }
        }
        if self.next == Step::Prepare {
            // The client is admitted even if a room couldn't be prepared in time.
            let has_waited = decided.by_ref().count() > 0;
            if !has_waited {
                cx.ex.prepare_rooms(cx.conn, self.identity.as_deref(), "/")?;
            }
            self.next = Step::Ask;
        }
        Ok(self.ask(cx))
    }

    /// Asks the application whether the client may connect.
    fn ask(&self, cx: &mut RequestContext<'_>) -> Connect {
        let request = cx.request;
        let scope = HandlerScope {
            encoding: Encoding::websocket(self.envelope, false),
            request: Some(request),
            pending: Some(RequestId(cx.conn)),
            service: self.service,
            client: self.client,
            ..HandlerScope::default()
        };
        cx.ex.notify_app(scope, |app, ctx| app.connect(ctx, request))
    }

    /// Checks identity and limits again after a wait.
    fn check_again(&self, cx: &RequestContext<'_>) -> Result<(), Denial> {
        match &self.identity {
            _ if opens_session(self.protocol) => {
                cx.ex.check_again(cx.client.source(), self.identity.as_deref())
            }
            Some(identity) => cx.ex.check_identity(identity),
            None => Ok(()),
        }
    }
}

impl RequestContext<'_> {
    /// Decides whether a session may be opened. `then` opens it, now or after the last decision that isn't known at once.
    pub(crate) fn admit(
        &mut self,
        clients: &mut Clients,
        opening: Opening,
        then: impl FnOnce(&mut RequestContext<'_>, &mut Clients, Result<Admitted, NotAdmitted>) -> RequestOutcome
        + 'static,
    ) -> RequestOutcome {
        self.decide(clients, opening, Vec::new(), then)
    }

    fn decide(
        &mut self,
        clients: &mut Clients,
        mut opening: Opening,
        decided: Vec<Decided>,
        then: impl FnOnce(&mut RequestContext<'_>, &mut Clients, Result<Admitted, NotAdmitted>) -> RequestOutcome
        + 'static,
    ) -> RequestOutcome {
        match opening.decide(self, decided) {
            Ok(decision) => self.conclude(clients, opening, decision, then),
            Err(Refused::Pending) => {
                self.wait(move |cx, clients, decided| cx.decide(clients, opening, decided, then))
            }
            Err(Refused::Denied(denial)) => then(self, clients, Err(NotAdmitted::Denied(denial))),
        }
    }

    /// Continues with the application's decision.
    fn conclude(
        &mut self,
        clients: &mut Clients,
        opening: Opening,
        decision: Connect,
        then: impl FnOnce(&mut RequestContext<'_>, &mut Clients, Result<Admitted, NotAdmitted>) -> RequestOutcome
        + 'static,
    ) -> RequestOutcome {
        let headers = match decision {
            Connect::Accept => Vec::new(),
            Connect::AcceptWith(headers) => headers,
            Connect::Pending => {
                return RequestOutcome::Suspended(Suspended::until_admitted(move |cx, clients, decision| {
                    match opening.check_again(cx) {
                        Ok(()) => cx.conclude(clients, opening, decision, then),
                        Err(denial) => then(cx, clients, Err(NotAdmitted::Denied(denial))),
                    }
                }));
            }
            Connect::Refuse { status, message } => {
                return then(self, clients, Err(NotAdmitted::Refused { status, message }));
            }
        };
        then(self, clients, Ok(Admitted { identity: opening.identity, headers }))
    }
}
