//! Merges the answers of all nodes into the result of a command.

use crate::NodeId;
use crate::frame::Answered;
use crate::surveys::Surveyed;
use stentor_ports::{Concerned, Done, MemberList, RoomList, SessionList};

/// The callback that receives the result of a survey.
pub(crate) enum Finish {
    Concerned(Done<Concerned>),
    Sessions { limit: usize, done: Done<SessionList> },
    Rooms { limit: usize, done: Done<RoomList> },
    Members { limit: usize, done: Done<MemberList> },
}

impl Finish {
    /// Adds the answers up.
    pub(crate) fn answer(self, result: Surveyed<Answered>, name_of: impl Fn(NodeId) -> String) {
        let Surveyed { answers, missing } = result;
        let missing_nodes: Vec<String> = missing.into_iter().map(name_of).collect();
        match self {
            Self::Concerned(done) => {
                let mut sum = Concerned { missing_nodes, ..Concerned::default() };
                for answer in answers {
                    if let Answered::Concerned(concerned) = answer {
                        sum.merge(concerned);
                    }
                }
                done.answer(Ok(sum));
            }
            Self::Sessions { limit, done } => {
                let mut sum = SessionList { missing_nodes, ..SessionList::default() };
                for answer in answers {
                    if let Answered::Sessions(list) = answer {
                        sum.merge(list, limit);
                    }
                }
                done.answer(Ok(sum));
            }
            Self::Members { limit, done } => {
                let mut sum = MemberList { missing_nodes, ..MemberList::default() };
                for answer in answers {
                    if let Answered::Members(list) = answer {
                        sum.merge(list, limit);
                    }
                }
                done.answer(Ok(sum));
            }
            Self::Rooms { limit, done } => {
                let mut sum = RoomList { missing_nodes, ..RoomList::default() };
                for answer in answers {
                    if let Answered::Rooms(list) = answer {
                        sum.merge(list, limit);
                    }
                }
                done.answer(Ok(sum));
            }
        }
    }
}
