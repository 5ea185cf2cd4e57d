//! Football matches from a seed: clock, score, events, ratings, statistics, commentary.
//!
//! Pure: time comes in as the number of seconds since the world began, so the same seed at the same second
//! gives the same documents, whatever was requested before. The module does no I/O and reads no clock.
//!
//! A match plays [`SECONDS_PER_TICK`] of its seconds per second of real time. When it is over, another one of
//! other teams follows under the same id, after [`CYCLE_TICKS`]. The matches of a world began at
//! different times, so that there is always one to watch.
//!
//! Invariants: a document of a match centre has `document::CENTRE_BYTES` ± 5 %, one of a scoreboard
//! `document::SCOREBOARD_BYTES` ± 20 %; a [`World`] never goes back in time.

mod action;
mod commentary;
mod document;
mod event;
mod game;
mod phases;
mod random;
mod teams;

#[cfg(test)]
mod tests;

pub(crate) use self::document::{centre, scoreboard};
pub use self::event::GoalId;
pub(crate) use self::game::Game;
pub(crate) use self::phases::SECONDS_PER_TICK;

use self::random::Random;

/// Seconds from one match's beginning to the next one's under the same id: both halves with the longest
/// stoppage time, the breaks, and a minute to look at the result.
const CYCLE_TICKS: u64 = 1140;
/// How far match 1 is when the world begins: the eighth minute.
const HEAD_START_TICKS: u64 = 100;
/// Most matches at the same time.
pub(crate) const MATCHES_MAX: u32 = 100;

/// Several matches at the same time.
pub(crate) struct World {
    seed: u64,
    games: Vec<Game>,
}

impl World {
    /// A world of `matches` matches, at most [`MATCHES_MAX`], in its first second.
    pub(crate) fn new(seed: u64, matches: u32) -> Self {
        let matches = matches.min(MATCHES_MAX);
        let games = (1..=matches).map(|id| Self::fixture(seed, id, 0)).collect();
        Self { seed, games }
    }

    /// How many matches there are; their ids count from 1.
    pub(crate) fn matches(&self) -> u32 {
        u32::try_from(self.games.len()).unwrap_or(MATCHES_MAX)
    }

    /// The match `id` when the world is `second` seconds old, or later if it has been seen later. `None`:
    /// there is no such match.
    pub(crate) fn game(&mut self, id: u32, second: u64) -> Option<&Game> {
        let game = self.games.get_mut(usize::try_from(id.checked_sub(1)?).ok()?)?;
        // Every further match of the cycle is another ninth of it ahead, so that ten are spread over it.
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
        // 0 is no match's id, so the draw has a stream of its own.
        Game::new(id, number, world.fork(u64::from(id)).fork(number), world.fork(0).fork(number))
    }
}
