//! The state of a match: clock, score, events and commentary. Its changes are in [`super::phases`] and [`super::action`].

use super::clock::Clock;
use super::commentary;
use super::event::{Event, EventKind, GoalId, LINES_MAX, Momentum, Report};
use super::random::Random;
use super::teams::{Team, person, teams};

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
    pub(super) clock: Clock,
    /// The side that has the ball.
    pub(super) side: usize,
    /// Index of the player with the ball, in the team of `side`.
    pub(super) holder: usize,
    /// Position of the ball: column, counted from the own goal of `side`, and row.
    pub(super) ball: (usize, usize),
    /// The player who passed to the player with the ball, while the pass may still become an assist.
    pub(super) passer: Option<usize>,
    pub(super) report: Report,
    pub(super) momentum: Momentum,
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
            clock: Clock::default(),
            side: 0,
            holder: 9,
            ball: (0, 0),
            passer: None,
            report: Report::default(),
            momentum: Momentum::default(),
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
        let goals = self.report.events.iter().filter(|event| event.kind == EventKind::Goal);
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

    /// Adds an event to the list of events and its text to the commentary.
    pub(super) fn event(&mut self, kind: EventKind, side: Option<usize>, player: Option<u64>, text: String) {
        let (minute, score) = (self.clock.minute(), self.score());
        let id = self.report.add_line(minute.clone(), text.clone());
        self.report.add_event(Event { id, minute, kind, side, player, text, score });
    }

    /// Adds a line of commentary.
    pub(super) fn add_commentary(&mut self, text: String) {
        self.report.add_line(self.clock.minute(), text);
    }
}
