//! Phases and events of a match.

use serde::Serialize;
use std::collections::VecDeque;

/// Maximum number of events. The oldest are dropped.
const EVENTS_MAX: usize = 60;
/// Maximum number of commentary lines, including the lines before the match.
pub(super) const LINES_MAX: usize = 96;

/// The phase of a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    #[default]
    Before,
    FirstHalf,
    HalfTime,
    SecondHalf,
    FullTime,
}

/// The kind of an event.
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

/// An event of a match.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    pub(super) id: u32,
    pub(super) minute: String,
    pub(super) kind: EventKind,
    /// The side: 0 is home, 1 is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) side: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) player: Option<u64>,
    pub(super) text: String,
    pub(super) score: [u32; 2],
}

/// Identifies a goal of the matches with one id: the number of the match, and the number of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoalId {
    pub(crate) game: u64,
    pub(crate) event: u32,
}

/// A line of commentary.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) id: u32,
    pub(super) minute: String,
    pub(super) text: String,
}

/// The newest events and commentary lines of a match, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) events: VecDeque<Event>,
    pub(super) lines: VecDeque<Line>,
    last_id: u32,
}

impl Report {
    /// Adds a line of commentary. Returns its id, which is also that of the line's event.
    pub(super) fn add_line(&mut self, minute: String, text: String) -> u32 {
        self.last_id += 1;
        push(&mut self.lines, LINES_MAX, Line { id: self.last_id, minute, text });
        self.last_id
    }

    pub(super) fn add_event(&mut self, event: Event) {
        push(&mut self.events, EVENTS_MAX, event);
    }
}

fn push<T>(list: &mut VecDeque<T>, max: usize, entry: T) {
    if list.len() == max {
        list.pop_front();
    }
    list.push_back(entry);
}

/// For each minute, which side was closer to the opponent's goal: from -100 (away) to 100 (home).
#[derive(Clone, Debug, Default)]
pub(super) struct Momentum {
    pub(super) minutes: Vec<i64>,
    now: i64,
}

impl Momentum {
    /// Records that `side` comes closer to the opponent's goal.
    pub(super) fn add(&mut self, side: usize, points: i64) {
        self.now += if side == 0 { points } else { -points };
    }

    pub(super) fn end_minute(&mut self) {
        self.minutes.push(self.now.clamp(-100, 100));
        self.now /= 2;
    }
}

/// The outcome of a shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shot {
    Goal,
    Saved,
    Blocked,
    Wide,
}
