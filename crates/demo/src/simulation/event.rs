//! Phases and events of a match.

use serde::Serialize;

/// The phase of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
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

/// The outcome of a shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shot {
    Goal,
    Saved,
    Blocked,
    Wide,
}
