//! Requests that wait for an answer: for decisions, for the application's admission, or for the node of a session. The rest of
//! the handler is kept and continues with the answer. So each handler runs once.

use super::{RequestContext, RequestOutcome};
use crate::app::{Connect, Decided};
use crate::ports::Location;
use crate::protocols::clients::Clients;

/// Continues a request with an answer.
type Then<A> = Box<dyn FnOnce(&mut RequestContext<'_>, &mut Clients, A) -> RequestOutcome>;

/// The rest of a request's handler, by the kind of the missing answer.
enum Rest {
    Decisions(Then<Vec<Decided>>),
    Admission(Then<Connect>),
    Location(Then<Location>),
}

/// A request that waits for an answer.
pub struct Suspended {
    rest: Rest,
    /// `true` if the connection ends when its client finishes sending.
    pub(in crate::protocols) ends_with_input: bool,
}

/// An answer for a waiting request.
pub(in crate::protocols) enum Answer {
    /// All questions of the request have been answered.
    Decided,
    /// The application's decision about a client that connects.
    Admitted(Connect),
    /// The node of the session that the request names.
    Located(Location),
}

/// Continues a request.
type Resume = Box<dyn FnOnce(&mut RequestContext<'_>, &mut Clients) -> RequestOutcome>;

/// A request whose answer has arrived.
pub struct Answered(Resume);

impl Suspended {
    /// A request that waits for decisions, which `then` receives in the order of the questions.
    pub(in crate::protocols) fn until_decided(
        then: impl FnOnce(&mut RequestContext<'_>, &mut Clients, Vec<Decided>) -> RequestOutcome + 'static,
    ) -> Self {
        Self { rest: Rest::Decisions(Box::new(then)), ends_with_input: false }
    }

    /// A request that waits for [`Context::admit`](crate::app::Context::admit).
    pub(in crate::protocols) fn until_admitted(
        then: impl FnOnce(&mut RequestContext<'_>, &mut Clients, Connect) -> RequestOutcome + 'static,
    ) -> Self {
        Self { rest: Rest::Admission(Box::new(then)), ends_with_input: false }
    }

    /// A request that waits until the node of its session is known.
    pub(in crate::protocols) fn until_located(
        then: impl FnOnce(&mut RequestContext<'_>, &mut Clients, Location) -> RequestOutcome + 'static,
    ) -> Self {
        Self { rest: Rest::Location(Box::new(then)), ends_with_input: false }
    }

    /// Makes the connection end when its client finishes sending.
    pub(in crate::protocols) fn ending_with_input(self) -> Self {
        Self { ends_with_input: true, ..self }
    }

    /// Returns `true` if the request waits for the node of its session.
    pub(in crate::protocols) fn is_lookup(&self) -> bool {
        matches!(self.rest, Rest::Location(_))
    }

    /// Size of the kept state, in bytes.
    pub(in crate::protocols) fn held_bytes(&self) -> usize {
        match &self.rest {
            Rest::Decisions(then) => size_of_val(&**then),
            Rest::Admission(then) => size_of_val(&**then),
            Rest::Location(then) => size_of_val(&**then),
        }
    }

    /// Adds the answer.
    ///
    /// # Errors
    /// The request waits for an answer of another kind.
    pub(in crate::protocols) fn answer(self, answer: Answer) -> Result<Answered, Self> {
        match (self.rest, answer) {
            (Rest::Decisions(then), Answer::Decided) => Ok(Answered(Box::new(move |cx, clients| {
                let decided = cx.ex.questions.take_decided(cx.conn);
                then(cx, clients, decided)
            }))),
            (Rest::Admission(then), Answer::Admitted(decision)) => {
                Ok(Answered(Box::new(move |cx, clients| then(cx, clients, decision))))
            }
            (Rest::Location(then), Answer::Located(location)) => {
                Ok(Answered(Box::new(move |cx, clients| then(cx, clients, location))))
            }
            (rest, _) => Err(Self { rest, ..self }),
        }
    }
}

impl Answered {
    /// Continues the request.
    pub(in crate::protocols) fn resume(
        self,
        cx: &mut RequestContext<'_>,
        clients: &mut Clients,
    ) -> RequestOutcome {
        self.0(cx, clients)
    }

    /// Size of the kept state, in bytes.
    pub(in crate::protocols) fn held_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

impl RequestContext<'_> {
    /// The outcome of a request that waits for decisions.
    pub(in crate::protocols) fn wait(
        &self,
        then: impl FnOnce(&mut RequestContext<'_>, &mut Clients, Vec<Decided>) -> RequestOutcome + 'static,
    ) -> RequestOutcome {
        RequestOutcome::Suspended(Suspended::until_decided(then))
    }

    /// Like [`Self::wait`], for the answer to a single question.
    pub(in crate::protocols) fn wait_for_one(
        &self,
        then: impl FnOnce(&mut RequestContext<'_>, &mut Clients, Option<Decided>) -> RequestOutcome + 'static,
    ) -> RequestOutcome {
        self.wait(move |cx, clients, decided| then(cx, clients, decided.into_iter().next()))
    }
}
