//! Answers that arrive later than their questions.

use crate::{Busy, Denial, EventReply, Identity, Ticket};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// An answer to a question of the data plane.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The decision about an action, or whether the engine has stored a message.
    Permission(Result<(), Denial>),
    /// The client's identity.
    Identity(Result<Arc<Identity>, Denial>),
    /// The reply of the application to an event.
    Event(Result<EventReply, Denial>),
}

impl From<Result<(), Denial>> for Answer {
    fn from(answer: Result<(), Denial>) -> Self {
        Self::Permission(answer)
    }
}

impl From<Result<Arc<Identity>, Denial>> for Answer {
    fn from(answer: Result<Arc<Identity>, Denial>) -> Self {
        Self::Identity(answer)
    }
}

impl From<Result<EventReply, Denial>> for Answer {
    fn from(answer: Result<EventReply, Denial>) -> Self {
        Self::Event(answer)
    }
}

/// Receives answers for the cores that asked, or for a layer between the core and the answering part.
pub trait Answers: Send + Sync {
    /// Answers a question. No effect if the client has disconnected, or the question has timed out or been answered. But
    /// messages to rooms in a late reply to an event are still sent. The call doesn't block.
    ///
    /// # Errors
    /// The core's inbox is full; nothing was answered.
    fn answer(&self, ticket: Ticket, answer: Answer) -> Result<(), Busy>;
}

/// An open question.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// Identifies the question.
    pub ticket: Ticket,
    answers: &'a Arc<dyn Answers>,
}

impl<'a> Asking<'a> {
    /// An open question. `answers` receives the answer.
    pub fn new(ticket: Ticket, answers: &'a Arc<dyn Answers>) -> Self {
        Self { ticket, answers }
    }

    /// Returns a reply by which the question can be answered later.
    pub fn later<T>(&self) -> Reply<T> {
        Reply { ticket: self.ticket, answers: self.answers.clone(), answer: PhantomData }
    }
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ticket.fmt(f)
    }
}

/// Answers one question, from any thread.
pub struct Reply<T> {
    ticket: Ticket,
    answers: Arc<dyn Answers>,
    answer: PhantomData<fn(T)>,
}

/// A reply to a question about a permission, or to a message for the engine.
pub type PermissionReply = Reply<Result<(), Denial>>;
/// A reply to a question about a client's identity.
pub type IdentityReply = Reply<Result<Arc<Identity>, Denial>>;
/// A reply to an event.
pub type ReplyToEvent = Reply<Result<EventReply, Denial>>;

impl<T: Into<Answer>> Reply<T> {
    /// Names the question.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Answers the question; see [`Answers::answer`].
    ///
    /// # Errors
    /// The core's inbox is full; nothing was answered.
    pub fn send(&self, answer: T) -> Result<(), Busy> {
        self.answers.answer(self.ticket, answer.into())
    }
}

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Self { ticket: self.ticket, answers: self.answers.clone(), answer: PhantomData }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ticket.fmt(f)
    }
}
