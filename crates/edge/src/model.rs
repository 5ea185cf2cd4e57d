//! The values that protocols share with the rest of the data plane: topics, positions, sessions, frames.

pub(crate) use stentor_frame::{ConnId, Frame, TimerId};
pub(crate) use stentor_hub::{
    Body, CoreId, Data, Disconnect, Epoch, FeedState, Key, KeyError, KeyRule, Policy, Position, Room,
    SessionId, SubscribeError, Topic,
};
