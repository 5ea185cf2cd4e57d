//! Merges the answers of all nodes into the result of a command.

use crate::NodeId;
use crate::frame::Answered;
use crate::surveys::Surveyed;
use stentor_ports::{
    Concerned, Done, FeedList, LinkList, MemberList, RoomList, SessionList, SubscriberCounts,
};

/// The callback that receives the result of a survey.
pub(crate) enum Finish {
    Concerned(Done<Concerned>),
    Sessions {
        limit: usize,
        done: Done<SessionList>,
    },
    /// The sessions with the fullest send buffers.
    FullestSessions {
        limit: usize,
        done: Done<SessionList>,
    },
    Rooms {
        limit: usize,
        done: Done<RoomList>,
    },
    Members {
        limit: usize,
        done: Done<MemberList>,
    },
    Links(Done<LinkList>),
    Feeds {
        limit: usize,
        done: Done<FeedList>,
    },
    Subscribers(Done<SubscriberCounts>),
}

impl Finish {
    /// Merges the answers, and passes the result to the callback.
    pub(crate) fn answer(self, result: Surveyed<Answered>, name_of: impl Fn(NodeId) -> String) {
        let Surveyed { answers, missing } = result;
        let missing_nodes: Vec<String> = missing.into_iter().map(name_of).collect();
        macro_rules! sum {
            ($kind:ident($sum:ident), $merge:ident, $done:expr $(, $limit:expr)?) => {{
                let mut sum = $sum { missing_nodes, ..$sum::default() };
                for answer in answers {
                    if let Answered::$kind(part) = answer {
                        sum.$merge(part $(, $limit)?);
                    }
                }
                $done.answer(Ok(sum));
            }};
        }
        match self {
            Self::Concerned(done) => sum!(Concerned(Concerned), merge, done),
            Self::Sessions { limit, done } => sum!(Sessions(SessionList), merge, done, limit),
            Self::FullestSessions { limit, done } => sum!(Sessions(SessionList), merge_fullest, done, limit),
            Self::Members { limit, done } => sum!(Members(MemberList), merge, done, limit),
            Self::Rooms { limit, done } => sum!(Rooms(RoomList), merge, done, limit),
            Self::Feeds { limit, done } => sum!(Feeds(FeedList), merge, done, limit),
            Self::Subscribers(done) => sum!(Subscribers(SubscriberCounts), merge, done),
            Self::Links(done) => sum!(Links(LinkList), merge, done),
        }
    }
}
