//! The ports of the data plane: the traits by which the data plane and the rest of the process call each other, their values,
//! and the ledger of memory. No core and no protocol is named here.
//!
//! Any thread may call these traits, and no call blocks. A full inbox is an answer ([`Busy`]): the caller waits for
//! [`ControlPlane::space`] and tries again.

mod arguments;
mod authorizer;
mod broker;
mod events;
mod exposition;
mod identity;
mod inbox;
pub mod ledger;
mod lists;
mod members;
mod moving;
mod networks;
mod node_tag;
mod notices;
mod plane;
mod pushed;
mod readiness;
mod relay;
mod session_id;
mod sid;

pub use arguments::Arguments;
pub use authorizer::{Access, Authorizer, Decision, Denial, Principal, Question, Ticket};
pub use broker::{Broadcast, Broker};
pub use events::{ClientEvent, EventEmit, EventReply, EventSink};
pub use exposition::{CERTIFICATE_EXPIRY, Histogram, HistogramSample, Metric, MetricKind, expiries};
pub use identity::{
    Authentication, Authenticator, ClientFacts, Credentials, Identity, IdentityFilter, Recheck,
    RecheckAction, RevocationList, RevocationsFull, Revoked, SignatureWork,
};
pub use inbox::{
    Acknowledged, Busy, Command, CommandError, CommandInbox, Concerned, Done, FeedUpdate, Named, Publish,
    RoomUpdate, Target,
};
pub use ledger::{Charge, Class, Ledger};
pub use lists::{
    LIST_BYTES_MAX, ROOMS_LISTED_MAX, RoomList, RoomsQuery, SESSIONS_LISTED_MAX, SessionDetails, SessionInfo,
    SessionList,
};
pub use members::{MemberList, MembersQuery};
pub use moving::{
    MOVING_BYTES_MAX, MOVING_MESSAGES_MAX, MOVING_TOPICS_MAX, MovingSocket, MovingSubscription, Pid,
    SocketName, SocketQuestion, SocketRequest,
};
pub use networks::{NetworkError, Networks, network_of, source_of};
pub use node_tag::NodeTag;
pub use notices::{Notice, NoticeSink};
pub use plane::{ControlPlane, DataPlane, Drain, NodeInfo, REQUESTERS_MAX, Wanted};
pub use pushed::{FeedSource, PushDenied, PushResult, PushedFeed, PushedFeeds, ReadResult};
pub use readiness::{EngineAway, Readiness};
pub use relay::{ClientConnection, Handover, Location, Relay, RelayPermit, SessionClaim, SessionName};
pub use session_id::PublicId;
pub use sid::Sid;
