//! A match: its phases, clock, events and commentary. The play is in [`super::action`].
//!
//! ```text
//! before ──▶ first half ──▶ half time ──▶ second half ──▶ full time
//! ```

use super::commentary;
use super::random::Random;
use super::teams::{PlayerState, Team, person, teams};
use serde::Serialize;
use std::collections::VecDeque;

/// Seconds of a match in one of ours.
pub(crate) const SECONDS_PER_TICK: u32 = 6;
/// Seconds of a half, without stoppage time.
const HALF_S: u32 = 45 * 60;
const BEFORE_TICKS: u64 = 20;
const HALF_TIME_TICKS: u64 = 30;
/// What can happen in a tick.
const ACTIONS_PER_TICK: usize = 3;
/// Maximum number of events; the oldest are dropped.
const EVENTS_MAX: usize = 60;
/// Maximum number of commentary lines, including those before the match.
pub(super) const LINES_MAX: usize = 96;
const SUBSTITUTIONS_MAX: u32 = 5;

/// Where a match is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    Before,
    FirstHalf,
    HalfTime,
    SecondHalf,
    FullTime,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EventKind {
    KickOff,
    Goal,
    Shot,
    Corner,
    YellowCard,
    RedCard,
    Substitution,
    HalfTime,
    FullTime,
}

/// An event with a line of its own.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    pub(super) id: u32,
    pub(super) minute: String,
    pub(super) kind: EventKind,
    /// 0: home, 1: away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) side: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) player: Option<u64>,
    pub(super) text: String,
    pub(super) score: [u32; 2],
}

/// A goal among those under one match id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoalId {
    game: u64,
    event: u32,
}

/// A line of commentary.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) id: u32,
    pub(super) minute: String,
    pub(super) text: String,
}

/// A match.
#[derive(Clone, Debug)]
pub(crate) struct Game {
    pub(super) id: u32,
    number: u64,
    ticks: u64,
    pub(super) random: Random,
    pub(super) teams: [Team; 2],
    pub(super) referee: String,
    pub(super) attendance: i64,
    pub(super) weather: &'static str,
    pub(super) phase: Phase,
    phase_ticks: u64,
    /// Of the running half, from 0.
    clock_s: u32,
    pub(super) stoppage_s: u32,
    /// The player with the ball.
    pub(super) side: usize,
    /// Which of their players.
    pub(super) holder: usize,
    /// Where: column as that side sees it, and row.
    pub(super) ball: (usize, usize),
    /// Who passed to the holder, while it may still become an assist.
    pub(super) passer: Option<usize>,
    pub(super) events: VecDeque<Event>,
    pub(super) lines: VecDeque<Line>,
    told: u32,
    /// For each minute, who was closer to the other's goal: -100 to 100, home positive.
    pub(super) momentum: Vec<i64>,
    pub(super) momentum_now: i64,
}

impl Game {
    /// The match before its first whistle.
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

    /// Which one it is under its id.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// How old it is, in seconds of ours.
    pub(super) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// The newest goal: an id that no other goal under the match's id has, and a line about it.
    pub(crate) fn newest_goal(&self) -> Option<(GoalId, String)> {
        let goals = self.events.iter().filter(|event| event.kind == EventKind::Goal);
        let goal = goals.max_by_key(|event| event.id)?;
        let [home, away] = &self.teams;
        let [ours, theirs] = goal.score;
        let line = format!("Goal! {} {ours}–{theirs} {} ({})", home.name, away.name, goal.minute);
        Some((GoalId { game: self.number, event: goal.id }, line))
    }

    /// One second of ours.
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        self.phase_ticks += 1;
        match self.phase {
            Phase::Before if self.phase_ticks >= BEFORE_TICKS => self.begin(Phase::FirstHalf),
            Phase::HalfTime if self.phase_ticks >= HALF_TIME_TICKS => self.begin(Phase::SecondHalf),
            Phase::FirstHalf | Phase::SecondHalf => self.play(),
            Phase::Before | Phase::HalfTime | Phase::FullTime => {}
        }
    }

    fn begin(&mut self, half: Phase) {
        self.phase = half;
        self.phase_ticks = 0;
        self.clock_s = 0;
        let longest = if half == Phase::FirstHalf { 4 } else { 7 };
        self.stoppage_s = 60 * self.random.between(1, longest) as u32;
        let side = usize::from(half == Phase::SecondHalf);
        self.kick_off(side);
        let text = commentary::kick_off(&self.teams[side], half);
        self.event(EventKind::KickOff, None, None, text);
    }

    fn play(&mut self) {
        let minute = self.clock_s / 60;
        self.clock_s += SECONDS_PER_TICK;
        for player in self.teams.iter_mut().flat_map(|team| &mut team.players).filter(|p| p.is_playing()) {
            player.counts.seconds_played += SECONDS_PER_TICK;
            player.counts.distance_m += 10;
        }
        for _ in 0..ACTIONS_PER_TICK {
            self.act();
        }
        if self.clock_s / 60 > minute {
            self.minute_is_over();
        }
        if self.clock_s >= HALF_S + self.stoppage_s {
            self.end_half();
        }
    }

    fn minute_is_over(&mut self) {
        self.momentum.push(self.momentum_now.clamp(-100, 100));
        self.momentum_now /= 2;
        let text = commentary::colour(&mut self.random, &self.teams, self.side);
        self.add_commentary(text);
        for side in 0..2 {
            let runner = self.random.below(super::teams::TEAM_SIZE);
            self.teams[side].players[runner].counts.sprints += 1;
            if self.phase == Phase::SecondHalf && self.clock_s > 8 * 60 && self.random.chance(110) {
                self.substitute(side);
            }
        }
    }

    fn substitute(&mut self, side: usize) {
        let team = &self.teams[side];
        if team.substitutions >= SUBSTITUTIONS_MAX {
            return;
        }
        let out = self.random.below(10) + 1;
        if !team.players[out].is_playing() {
            return;
        }
        let fits = |n: &usize| {
            let candidate = &team.players[*n];
            candidate.state == PlayerState::Bench && candidate.position == team.players[out].position
        };
        let Some(on) = (11..team.players.len()).find(fits) else { return };
        let team = &mut self.teams[side];
        team.substitutions += 1;
        team.players[out].state = PlayerState::Substituted;
        team.players[on].state = PlayerState::OnPitch;
        let text = commentary::substitution(team, out, on);
        let id = team.players[on].id;
        if self.side == side && self.holder == out {
            self.holder = on;
        }
        self.event(EventKind::Substitution, Some(side), Some(id), text);
    }

    fn end_half(&mut self) {
        self.phase_ticks = 0;
        let (phase, kind) = match self.phase {
            Phase::FirstHalf => (Phase::HalfTime, EventKind::HalfTime),
            _ => (Phase::FullTime, EventKind::FullTime),
        };
        let text = commentary::whistle(&self.teams, phase);
        self.event(kind, None, None, text);
        self.phase = phase;
        if phase == Phase::HalfTime {
            for team in &mut self.teams {
                team.counts.goals_half_time = team.counts.goals;
            }
        }
    }

    /// The score, home first.
    pub(super) fn score(&self) -> [u32; 2] {
        [self.teams[0].counts.goals, self.teams[1].counts.goals]
    }

    /// Minutes and seconds on the clock, stoppage time running on from 45 and 90.
    pub(super) fn clock(&self) -> (u32, u32) {
        let before = match self.phase {
            Phase::Before | Phase::FirstHalf => 0,
            Phase::HalfTime => return (45, 0),
            Phase::SecondHalf => HALF_S,
            Phase::FullTime => return (90, 0),
        };
        ((before + self.clock_s) / 60, self.clock_s % 60)
    }

    /// The minute as displayed: `1'` to `90'`, and `45+2'`.
    pub(super) fn minute(&self) -> String {
        let whole = match self.phase {
            Phase::Before => return String::new(),
            Phase::FirstHalf | Phase::HalfTime => 45,
            Phase::SecondHalf | Phase::FullTime => 90,
        };
        let minute = whole - 45 + self.clock_s / 60 + 1;
        if minute > whole { format!("{whole}+{}'", minute - whole) } else { format!("{minute}'") }
    }

    /// Tells an event, in the commentary too.
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
