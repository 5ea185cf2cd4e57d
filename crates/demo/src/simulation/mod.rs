//! Football matches made from a seed: clock, score, events, ratings, statistics, commentary.
//!
//! The time is a parameter: the number of seconds since the world began. So a seed and a second always give
//! the same documents, whatever was requested before. The module does no I/O and reads no clock.
//!
//! A match plays [`SECONDS_PER_TICK`] of its seconds per second of real time. When it is over, a match of
//! other teams follows under the same id. [`CYCLE_TICKS`] is the time from the beginning of one match to that
//! of the next. The matches of a world begin at different times, so that there is always one to watch.
//!
//! Invariants: the size of a match centre is `document::CENTRE_BYTES` ± 5 %, and that of a scoreboard
//! `document::SCOREBOARD_BYTES` ± 20 %; a [`World`] never goes back in time.

mod action;
mod clock;
mod commentary;
mod counts;
mod document;
mod event;
mod game;
mod phases;
mod random;
mod teams;

#[cfg(test)]
mod tests;

pub(crate) use self::clock::SECONDS_PER_TICK;
pub(crate) use self::document::{centre, scoreboard};
pub use self::event::GoalId;
pub(crate) use self::game::Game;

use self::random::Random;

/// Seconds from the beginning of a match to that of the next match under the same id: both halves with the
/// longest stoppage time, the breaks, and a minute in which the result is shown.
const CYCLE_TICKS: u64 = 1140;
/// Age of match 1 in seconds when the world begins. It is in its eighth minute.
const HEAD_START_TICKS: u64 = 100;
/// Maximum number of matches at the same time.
pub(crate) const MATCHES_MAX: u32 = 100;

/// Several matches at the same time.
pub(crate) struct World {
    seed: u64,
    games: Vec<Game>,
}

impl World {
    /// Makes a world with this number of matches, at most [`MATCHES_MAX`], in its first second.
    pub(crate) fn new(seed: u64, matches: u32) -> Self {
        let matches = matches.min(MATCHES_MAX);
        let games = (1..=matches).map(|id| Self::fixture(seed, id, 0)).collect();
        Self { seed, games }
    }

    /// Returns the number of matches. Their ids count from 1.
    pub(crate) fn matches(&self) -> u32 {
        u32::try_from(self.games.len()).unwrap_or(MATCHES_MAX)
    }

    /// Returns the match `id` when the world is `second` seconds old, or at a later time that was already
    /// requested. `None` if there is no such match.
    pub(crate) fn game(&mut self, id: u32, second: u64) -> Option<&Game> {
        let game = self.games.get_mut(usize::try_from(id.checked_sub(1)?).ok()?)?;
        // Each further match is a ninth of the cycle ahead of the previous one, so that the matches are
        // spread over the cycle.
        let ahead = HEAD_START_TICKS + u64::from(id - 1) * CYCLE_TICKS / 9;
        let tick = second.saturating_add(ahead);
        let number = tick / CYCLE_TICKS;
        if number > game.number {
            *game = Self::fixture(self.seed, id, number);
        }
        if number == game.number {
            while game.ticks < tick % CYCLE_TICKS {
                game.tick();
            }
        }
        Some(game)
    }

    fn fixture(seed: u64, id: u32, number: u64) -> Game {
        let world = Random::new(seed);
        // No match has the id 0, so the draw has random numbers of its own.
        Game::new(id, number, world.fork(u64::from(id)).fork(number), world.fork(0).fork(number))
    }
}
