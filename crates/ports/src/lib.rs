//! The ports of the data plane: the traits by which the data plane and the rest of the process call each other, their values,
//! and the ledger of memory. No core and no protocol is named here.
//!
//! Any thread may call these traits, and no call blocks. If an inbox is full, the call returns [`Busy`]: the caller waits for
//! [`ControlPlane::space`] and tries again.

mod access;
mod answers;
mod arguments;
mod authorizer;
mod broker;
mod commands;
mod control_plane;
mod data_plane;
mod done;
mod engine;
mod events;
mod exposition;
#[cfg(feature = "fake")]
pub mod fake;
mod feed_list;
mod feeds;
mod identity;
pub mod ledger;
mod lifecycle;
mod link;
mod link_nodes;
mod lists;
mod members;
mod moving;
mod named;
mod networks;
mod node_inbox;
mod node_tag;
mod notices;
mod opaque;
mod pushed;
mod readiness;
mod relay;
mod reserved;
mod session_id;
mod session_rooms;
mod sid;
mod topology;
mod with_defaults;

pub use access::{ACCESS_LOG, LOGGED_PATH_BYTES_MAX, shown};
pub use answers::{Answer, Answers, Asking, IdentityReply, PermissionReply, Reply, ReplyToEvent};
pub use arguments::Arguments;
pub use authorizer::{Access, Authorizer, Decision, Denial, Principal, Question, Ticket};
pub use broker::{Broadcast, Broker};
pub use commands::{Acknowledged, Command, Commands, Concerned, Named, Publish, Target};
pub use control_plane::ControlPlane;
pub use data_plane::{DataPlane, LocalNode};
pub use done::{Busy, CommandError, Done};
pub use engine::{
    EngineCookie, EngineCors, EngineOptions, EngineOrigins, Forward, ForwardedClient, LinkApps,
};
pub use events::{ClientEvent, EventEmit, EventReply, EventSink, Recipients};
pub use exposition::{CERTIFICATE_EXPIRY, Histogram, HistogramSample, Metric, MetricKind, expiries};
pub use feed_list::{FeedFetches, FeedInfo, FeedList, FeedLister, FeedsQuery, SubscriberCounts};
pub use feeds::{DocumentChange, FeedUpdate, Feeds, KeyInterest, REQUESTERS_MAX};
pub use identity::{
    Authentication, Authenticator, ClientFacts, Credentials, FirstMessages, Identity, IdentityFilter,
    PROXY_ISSUER, ProxyUser, Recheck, RecheckAction, RevocationList, RevocationsFull, Revoked, SignatureWork,
    is_named,
};
pub use ledger::{Charge, Class, Ledger};
pub use lifecycle::{Drain, Lifecycle, MetricSource, NewConnections};
pub use link::{
    LinkAcceptance, LinkApp, LinkBroadcast, LinkChange, LinkCloseReason, LinkDescription, LinkEntry,
    LinkHandshake, LinkHeaders, LinkInbox, LinkMessage, LinkMessages, LinkParser, LinkQueued, LinkRefusal,
    LinkRefused, LinkReport, LinkSelect, LinkSelected, LinkSession, LinkSink, LinkSocket, content_bytes,
};
pub use link_nodes::{LinkCarrier, LinkInfo, LinkList, LinkNodeSink, LinkState};
pub use lists::{
    ENDED_LISTED_MAX, EndedSession, LIST_BYTES_MAX, ROOMS_LISTED_MAX, RoomList, RoomsQuery,
    SESSIONS_LISTED_MAX, SessionApp, SessionDetails, SessionEvent, SessionInfo, SessionList, SessionsQuery,
};
pub use members::{MemberList, MembersQuery};
pub use moving::{
    Claimant, MOVING_BYTES_MAX, MOVING_MESSAGES_MAX, MOVING_TOPICS_MAX, MovingSocket, MovingSubscription,
    Pid, SocketName, SocketQuestion, SocketRequest,
};
pub use networks::{NetworkError, Networks, network_of, source_of};
pub use node_inbox::{NodeInbox, Order, RoomUpdate};
pub use node_tag::NodeTag;
pub use notices::{Notice, NoticeSink};
pub use pushed::{FeedSource, PushDenied, PushResult, PushedFeed, PushedFeeds, ReadResult};
pub use readiness::{EngineAway, Readiness};
pub use relay::{ClientConnection, Handover, Location, Relay, RelayPermit, SessionClaim, SessionName};
pub use reserved::{ReservedSession, UnusedSessions};
pub use session_id::{IdKey, PublicId};
pub use session_rooms::{LazyRooms, SessionRooms};
pub use sid::Sid;
pub use topology::{NodeInfo, Topology};
