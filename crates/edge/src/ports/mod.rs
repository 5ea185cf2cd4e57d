//! What the data plane offers to, and asks of, the rest of the process: small traits and typed commands. Nothing here
//! knows a core or a protocol.

mod inbox;
mod session_id;

pub(crate) use inbox::Named;
pub use inbox::{
    Busy, Command, CommandError, CommandInbox, Concerned, Done, FeedUpdate, LIST_BYTES_MAX, Publish,
    ROOMS_LISTED_MAX, RoomList, RoomsQuery, SESSIONS_LISTED_MAX, SessionInfo, SessionList, Target,
};
pub use session_id::PublicId;
