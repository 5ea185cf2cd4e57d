//! The data plane: one core is one driver, protocol stacks and one hub shard.
//!
//! [`Node::start`] opens the listeners and starts a thread per core; [`NodeHandle`] is the
//! rest of the process's handle on them. A core knows no async runtime and takes no lock that another core holds for long.
//!
//! # Types of other crates
//!
//! Public items name these types of the crates below, so that applications speak of the same rooms,
//! feeds and sessions as the hub. A test compares the table with the code.
//!
//! | crate | types | for |
//! |---|---|---|
//! | `hub` | `Room`, `Topic`, `KeyRule` | what is subscribed and published to |
//! | `hub` | `Body`, `Data`, `Emit` | what is published |
//! | `hub` | `SessionId`, `Policy`, `SubscribeOptions`, `Position`, `SubscribeError`, `Disconnect`, `Notice` | sessions in [`Application`] and [`Context`] |
//! | `hub` | `CoreId`, `HistoryLimits`, `Hub`, `Encoder` | [`Core`], [`AppFactory`] and [`Rooms`] |
//! | `wire` | `Request` | the request in [`Application`] and [`Context`] |
//! | `driver` | `Driver` | [`Core`], which runs over every driver |
//! | `driver` | `SimDriver`, `World` | [`simulated`] |

#[macro_use]
mod table;

mod access;
mod app;
mod budget;
mod core;
mod defaults;
mod encode;
mod executor;
mod hosts;
mod http_date;
mod identity;
mod limits;
mod message;
mod metrics;
mod millis;
mod model;
mod moved;
mod node;
mod options;
mod origin;
mod protocols;
mod proxies;
mod recovery;
mod refusal_log;
mod rule;
mod settings;
mod shared;
mod subscribe_options;
mod tls;
mod tracked;

use stentor_ports::{self as ports, ledger};

pub use access::ACCESS_LOG;
pub use app::{
    Ack, Admission, Application, Arguments, Chat, Connect, Context, Echo, Envelope, Event, Hello, Message,
    NotPublished, NotSubscribed, Page, RequestId, RoomsApp,
};
pub use core::Core;
pub use encode::CUSTOM_PROTOCOLS_MAX;
pub use hosts::{HostError, Hosts};
pub use limits::{AddressLimits, LimitPolicy, SessionLimits, UserLimits};
pub use node::{AppFactory, CoreFailed, DriverChoice, Node, Simulated, StartError, Started, idle, simulated};
pub use options::{
    App, CustomProtocol, Deflate, EngineIo, Heartbeat, LISTENERS_MAX, Limits, ListenerOptions, Options,
    Primus, PublicFile, Recovery, SOCKJS_PREFIXES_MAX, SameSite, SockJs, Sse, StaticRoute, Tokens,
};
pub use origin::{Origins, PatternError};
pub use ports::{
    Access, Acknowledged, Answer, Answers, Asking, Authentication, Authenticator, Authorizer, Broadcast,
    Broker, Busy, CERTIFICATE_EXPIRY, Charge, Class, ClientConnection, ClientEvent, ClientFacts, Command,
    CommandError, Commands, Concerned, ControlPlane, Credentials, Decision, Denial, Done, Drain, EngineAway,
    EventEmit, EventReply, EventSink, FeedSource, FeedUpdate, Feeds, Handover, Histogram, HistogramSample,
    Identity, IdentityFilter, IdentityReply, LIST_BYTES_MAX, Ledger, Lifecycle, LocalNode, Location,
    MOVING_BYTES_MAX, MOVING_MESSAGES_MAX, MOVING_TOPICS_MAX, MemberList, MembersQuery, Metric, MetricKind,
    MetricSource, MovingSocket, MovingSubscription, NetworkError, Networks, NodeInbox, NodeInfo, NodeTag,
    Notice, NoticeSink, Order, PermissionReply, Pid, Principal, PublicId, Publish, PushDenied, PushResult,
    PushedFeed, PushedFeeds, Question, REQUESTERS_MAX, ROOMS_LISTED_MAX, ReadResult, Readiness, Recheck,
    RecheckAction, Relay, RelayPermit, Reply, ReplyToEvent, RevocationList, RevocationsFull, Revoked,
    RoomList, RoomUpdate, RoomsQuery, SESSIONS_LISTED_MAX, SessionClaim, SessionDetails, SessionInfo,
    SessionList, SessionName, SignatureWork, SocketName, SocketQuestion, SocketRequest, Target, Ticket,
    Wanted, expiries,
};
pub use protocols::route::{Closing, closings};
pub use proxies::{ForwardedHeader, Proxies};
pub use rule::{Presence, Rooms, Rule, Template, TemplateError};
pub use shared::Shared as NodeHandle;
pub use tls::{CertificateFiles, PreparedTls, TlsError, TlsHandle, TlsOptions};
