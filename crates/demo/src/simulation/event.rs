//! Phases and events of a match.

use serde::Serialize;

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

/// A goal of the matches with one id: the number of the match, and of its event.
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

/// How a shot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shot {
    Goal,
    Saved,
    Blocked,
    Wide,
}
