//! What the data plane offers to, and asks of, the rest of the process: small traits and typed commands. Nothing here
//! knows a core or a protocol.

mod authorizer;
mod broker;
mod events;
mod identity;
mod inbox;
mod lists;
mod members;
mod moving;
mod notices;
mod pushed;
mod readiness;
mod relay;
mod session_id;

pub use crate::node_tag::NodeTag;
pub use authorizer::{Access, Authorizer, Decision, Denial, Principal, Question, Ticket};
pub use broker::{Broadcast, Broker};
pub use events::{ClientEvent, EventEmit, EventReply, EventSink};
pub use identity::{
    Authentication, Authenticator, ClientFacts, Credentials, Identity, IdentityFilter, Recheck,
    RecheckAction, RevocationList, RevocationsFull, Revoked, SignatureWork,
};
pub(crate) use inbox::Named;
pub use inbox::{
    Acknowledged, Busy, Command, CommandError, CommandInbox, Concerned, Done, FeedUpdate, Publish,
    RoomUpdate, Target,
};
pub use lists::{
    LIST_BYTES_MAX, PROTOCOLS, ROOMS_LISTED_MAX, RoomList, RoomsQuery, SESSIONS_LISTED_MAX, SessionDetails,
    SessionInfo, SessionList,
};
pub use members::{MemberList, MembersQuery};
pub(crate) use moving::SocketCommand;
pub use moving::{
    MOVING_BYTES_MAX, MOVING_MESSAGES_MAX, MOVING_TOPICS_MAX, MovingSocket, MovingSubscription, Pid,
    SocketName, SocketQuestion, SocketRequest,
};
pub use notices::{Notice, NoticeSink};
pub use pushed::{FeedSource, PushDenied, PushResult, PushedFeed, PushedFeeds, ReadResult};
pub use readiness::{EngineAway, Readiness};
pub use relay::{ClientConnection, Handover, Location, Relay, RelayPermit, SessionClaim, SessionName};
pub use session_id::PublicId;
