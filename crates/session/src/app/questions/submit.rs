//! Waits for the engine's answers about messages to rooms that it orders.

use super::{Asked, OUTCOME_UNKNOWN, Questions, Refused};
use crate::app::Answer;
use crate::ports::{Denial, Ticket};
use std::time::Instant;
use stentor_frame::ConnId;
use stentor_hub::SessionId;

impl Questions {
    /// Expects the engine's answer about a message of a session, which has been handled. Returns the ticket of the question, if
    /// the current connection can wait for it. `answer` then answers the client; it holds about `bytes`.
    ///
    /// # Errors
    /// Too many questions are open.
    pub fn expect(
        &mut self,
        now: Instant,
        session: SessionId,
        bytes: usize,
        answer: impl FnOnce() -> Answer,
    ) -> Result<Option<Ticket>, Refused> {
        let Some(conn) = self.asker else { return Ok(None) };
        if !self.make_room(None) {
            self.unanswered += 1;
            return Err(Refused::Denied(OUTCOME_UNKNOWN));
        }
        let number = self.tickets.draw();
        self.defer(now, conn, Asked::Submit, number, None);
        self.charge.add(bytes);
        let questions = self.waiting.get_mut(&conn).map(|waiting| &mut waiting.questions);
        if let Some(question) = questions.and_then(|questions| questions.last_mut()) {
            question.then = Some((session, answer(), bytes));
        }
        Ok(Some(self.tickets.of(number)))
    }

    /// Takes the continuations of a connection whose questions have been answered, with the engine's answers.
    pub(crate) fn take_answers(&mut self, conn: ConnId) -> Vec<(SessionId, Answer, Result<(), Denial>)> {
        let questions = self.waiting.get_mut(&conn).map(|waiting| &mut waiting.questions);
        let mut answers = Vec::new();
        for question in questions.into_iter().flatten() {
            if let Some((session, answer, bytes)) = question.then.take() {
                self.charge.subtract(bytes);
                answers.push((session, answer, question.answer.clone().unwrap_or(Err(OUTCOME_UNKNOWN))));
            }
        }
        answers
    }
}
