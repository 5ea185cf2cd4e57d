//! The tickets that identify a core's questions.

use crate::ports::{Answers, Asking, Ticket};
use std::sync::Arc;
use stentor_hub::CoreId;

/// Draws the numbers of questions, and makes the tickets and replies by which they are answered.
pub(crate) struct Tickets {
    core: CoreId,
    /// Receives answers that arrive later, from any thread.
    answers: Arc<dyn Answers>,
    /// The last number. No number is drawn twice.
    last: u64,
}

impl Tickets {
    /// Makes tickets of a core. `answers` receives the late answers.
    pub(crate) fn new(core: CoreId, answers: Arc<dyn Answers>) -> Self {
        Self { core, answers, last: 0 }
    }

    /// Draws the number of a question.
    pub(super) fn draw(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The ticket of a question.
    pub(super) fn of(&self, number: u64) -> Ticket {
        Ticket { core: self.core, number }
    }

    /// The question with this number, for a port outside of the core.
    pub(super) fn asking(&self, number: u64) -> Asking<'_> {
        Asking::new(self.of(number), &self.answers)
    }
}
