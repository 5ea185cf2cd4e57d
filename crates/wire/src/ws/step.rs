//! Received messages that are inflated or delivered in steps, because processing them at once would take too
//! long.
//!
//! ```text
//!  arrived ──► Waiting ──► Inflating, step by step ──► delivered
//!     └─ small, or not compressed ─────────────────────────▲
//! ```
//!
//! Invariant: [`Shared::step_slot`] has at most one [`Inflating`]. A compressed message without the slot is
//! kept as received, and inflated from its start once the slot is free.

use std::sync::Arc;

use super::deflate::{Inflater, Window};
use super::{Error, Kind, Shared};

/// A complete message that hasn't been delivered. Its payload is kept separately, as it arrived.
pub(super) struct Paused {
    pub(super) kind: Kind,
    pub(super) compressed: bool,
    pub(super) inflating: Option<Inflating>,
}

/// The inflated part of a message.
pub(super) struct Inflating {
    inflater: Box<Inflater>,
    /// `true` once the message is completely inflated.
    done: bool,
    slot: Arc<()>,
}

/// The result of a step.
pub(super) enum Step {
    /// The complete message is in [`Shared::inflater`].
    Inflated,
    /// The message isn't completely inflated, or too large to deliver now.
    Paused(Option<Inflating>),
}

impl Paused {
    /// Returns `true` if the message waits until the message of another connection is inflated.
    pub(super) fn waits_for_slot(&self) -> bool {
        self.compressed && self.inflating.is_none()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.inflating.as_ref().map_or(0, |inflating| inflating.inflater.held_bytes())
    }
}

impl Shared {
    /// Returns `true` if a message that arrived with this many bytes may be delivered now.
    pub(super) fn may_deliver(&mut self, bytes: usize) -> bool {
        let may = bytes <= self.steps.deliver_bytes_max;
        if may {
            self.count(bytes);
        }
        may
    }

    /// Inflates the next step of a message with this complete payload. `window` belongs to a client that
    /// keeps its context.
    pub(super) fn inflate_step(
        &mut self,
        payload: &[u8],
        window: Option<&mut Window>,
        inflating: Option<Inflating>,
    ) -> Result<Step, Error> {
        let (mut inflater, mut done, slot) = match inflating {
            Some(Inflating { inflater, done, slot }) => (inflater, done, Some(slot)),
            None => {
                let mut inflater = self.inflater.take().unwrap_or_default();
                inflater.begin(window.as_deref());
                self.count(window.as_deref().map_or(0, Window::cost_bytes));
                (inflater, false, None)
            }
        };
        if !done {
            let before = inflater.inflated().len();
            let advanced =
                inflater.advance(payload, self.limits.message_bytes_max, self.steps.inflate_bytes_max);
            self.count(inflater.inflated().len().saturating_sub(before));
            done = match advanced {
                Ok(done) => done,
                Err(error) => {
                    self.inflater = Some(inflater);
                    return Err(error);
                }
            };
        }
        if done && self.may_deliver(inflater.inflated().len()) {
            if let Some(window) = window {
                window.push(inflater.inflated());
            }
            self.inflater = Some(inflater);
            return Ok(Step::Inflated);
        }
        let free = self.is_step_slot_free();
        match slot.or_else(|| free.then(|| self.step_slot.clone())) {
            Some(slot) => Ok(Step::Paused(Some(Inflating { inflater, done, slot }))),
            None => {
                self.inflater = Some(inflater);
                Ok(Step::Paused(None))
            }
        }
    }
}
