//! The state of a match: clock, score, events and commentary. Its changes are in [`super::phases`] and [`super::action`].

use super::commentary;
use super::event::{Event, EventKind, GoalId, Line, Phase};
use super::random::Random;
use super::teams::{Team, person, teams};
use std::collections::VecDeque;

/// Seconds of a half, without stoppage time.
pub(super) const HALF_S: u32 = 45 * 60;
/// Maximum number of events. The oldest are dropped.
const EVENTS_MAX: usize = 60;
/// Maximum number of commentary lines, including the lines before the match.
pub(super) const LINES_MAX: usize = 96;

/// A match.
#[derive(Clone, Debug)]
pub(crate) struct Game {
    pub(super) id: u32,
    /// Number of matches that were played under this id before.
    pub(super) number: u64,
    /// The match's age in seconds of real time.
    pub(super) ticks: u64,
    pub(super) random: Random,
    pub(super) teams: [Team; 2],
    pub(super) referee: String,
    pub(super) attendance: i64,
    pub(super) weather: &'static str,
    pub(super) phase: Phase,
    pub(super) phase_ticks: u64,
    /// Elapsed seconds of the current half.
    pub(super) clock_s: u32,
    pub(super) stoppage_s: u32,
    /// The side that has the ball.
    pub(super) side: usize,
    /// Index of the player with the ball, in the team of `side`.
    pub(super) holder: usize,
    /// Position of the ball: column, counted from the own goal of `side`, and row.
    pub(super) ball: (usize, usize),
    /// The player who passed to the player with the ball, while the pass may still become an assist.
    pub(super) passer: Option<usize>,
    pub(super) events: VecDeque<Event>,
    pub(super) lines: VecDeque<Line>,
    told: u32,
    /// For each minute, which side was closer to the opponent's goal: from -100 (away) to 100 (home).
    pub(super) momentum: Vec<i64>,
    pub(super) momentum_now: i64,
}

impl Game {
    /// Makes a match before its kickoff.
    pub(super) fn new(id: u32, number: u64, mut random: Random, mut draw: Random) -> Self {
        let teams = teams(&mut random, &mut draw, id);
        let mut game = Self {
            id,
            number,
            ticks: 0,
            teams,
            referee: person(&mut random),
            attendance: random.between(18_000, 61_000),
            weather: random.pick(&["clear, 14 °C", "light rain, 9 °C", "cloudy, 11 °C", "sunny, 21 °C"]),
            phase: Phase::Before,
            phase_ticks: 0,
            clock_s: 0,
            stoppage_s: 0,
            side: 0,
            holder: 9,
            ball: (0, 0),
            passer: None,
            events: VecDeque::new(),
            lines: VecDeque::new(),
            told: 0,
            momentum: Vec::new(),
            momentum_now: 0,
            random,
        };
        for n in 0..LINES_MAX {
            let text = commentary::before(&mut game.random, &game.teams, n);
            game.add_commentary(text);
        }
        game
    }

    /// Returns the id and the text of the newest goal. No other goal under the match's id has the same id.
    pub(crate) fn newest_goal(&self) -> Option<(GoalId, String)> {
        let goals = self.events.iter().filter(|event| event.kind == EventKind::Goal);
        let goal = goals.max_by_key(|event| event.id)?;
        let [home, away] = &self.teams;
        let [ours, theirs] = goal.score;
        let line = format!("Goal! {} {ours}–{theirs} {} ({})", home.name, away.name, goal.minute);
        Some((GoalId { game: self.number, event: goal.id }, line))
    }

    /// Returns the score, home first.
    pub(super) fn score(&self) -> [u32; 2] {
        [self.teams[0].counts.goals, self.teams[1].counts.goals]
    }

    /// Returns minutes and seconds on the clock. Stoppage time continues after 45 and 90 minutes.
    pub(super) fn clock(&self) -> (u32, u32) {
        let before = match self.phase {
            Phase::Before | Phase::FirstHalf => 0,
            Phase::HalfTime => return (45, 0),
            Phase::SecondHalf => HALF_S,
            Phase::FullTime => return (90, 0),
        };
        ((before + self.clock_s) / 60, self.clock_s % 60)
    }

    /// Returns the minute as it is displayed: `1'` to `90'`, or in stoppage time `45+2'`.
    pub(super) fn minute(&self) -> String {
        let whole = match self.phase {
            Phase::Before => return String::new(),
            Phase::FirstHalf | Phase::HalfTime => 45,
            Phase::SecondHalf | Phase::FullTime => 90,
        };
        let minute = whole - 45 + self.clock_s / 60 + 1;
        if minute > whole { format!("{whole}+{}'", minute - whole) } else { format!("{minute}'") }
    }

    /// Adds an event to the list of events and its text to the commentary.
    pub(super) fn event(&mut self, kind: EventKind, side: Option<usize>, player: Option<u64>, text: String) {
        self.add_commentary(text.clone());
        let event =
            Event { id: self.told, minute: self.minute(), kind, side, player, text, score: self.score() };
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Adds a line of commentary.
    pub(super) fn add_commentary(&mut self, text: String) {
        self.told += 1;
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(Line { id: self.told, minute: self.minute(), text });
    }
}
