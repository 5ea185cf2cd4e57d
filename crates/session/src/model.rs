//! The values that protocols share with the rest of the data plane: topics, positions, sessions, frames.

pub use stentor_frame::{ConnId, Frame, TimerId};
pub(crate) use stentor_hub::FeedState;
pub use stentor_hub::{Body, CoreId, Data, Disconnect, Key, Policy, Room, SessionId, SubscribeError, Topic};
pub(crate) use stentor_hub::{Epoch, KeyError, KeyRule, Position};
