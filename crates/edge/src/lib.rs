//! The data plane: one core is one driver, protocol stacks and one hub shard.
//!
//! [`Node::start`] opens the listeners and starts a thread per core. The control plane acts on the cores through
//! [`stentor_ports::DataPlane`]. A core has no async runtime and takes no lock that another core holds for long.
//!
//! # Types of other crates
//!
//! The application interface and the options of sessions are those of `stentor_session`. Public items of this crate name these types of
//! the crates below. A test compares the table with the code.
//!
//! | crate | types | for |
//! |---|---|---|
//! | `hub` | `CoreId`, `Hub`, `Encoder` | [`Core`] and [`AppFactory`] |
//! | `driver` | `Driver` | [`Core`], which runs over every driver |
//! | `driver` | `SimDriver`, `World` | [`simulated`] |

mod core;
mod listeners;
mod node;
mod options;
mod system;
mod tls;

use stentor_ports::{self as ports, ledger};

pub use core::Core;
pub use node::{AppFactory, CoreFailed, DriverChoice, Node, Simulated, StartError, Started, idle, simulated};
pub use options::{LISTENERS_MAX, ListenerOptions, Options};
pub use ports::{Access, ControlPlane, Denial, PublicId};
pub use stentor_session::access::ACCESS_LOG;
pub use stentor_session::app::{
    Ack, Admission, Application, Arguments, Chat, Connect, Context, Echo, Envelope, Event, Message,
    NamespaceRequest, Page, RequestId, RoomsApp,
};
pub use stentor_session::encode::CUSTOM_PROTOCOLS_MAX;
pub use stentor_session::hosts::{HostError, Hosts};
pub use stentor_session::identity::Sid;
pub use stentor_session::limits::{AddressLimits, LimitPolicy, SessionLimits, UserLimits};
pub use stentor_session::options::{
    App, CustomProtocol, Deflate, EngineIo, Heartbeat, Limits, LinkRoutes, Primus, PublicFile, Recovery,
    SOCKJS_PREFIXES_MAX, SameSite, SockJs, Sse, StaticRoute, Tokens,
};
pub use stentor_session::origin::{Origins, PatternError};
pub use stentor_session::protocols::route::{Closing, closings};
pub use stentor_session::proxies::{ForwardedHeader, Proxies};
pub use stentor_session::proxy_users::ProxyUsers;
pub use stentor_session::rule::{Presence, Rooms, Rule, Template, TemplateError};
pub use stentor_session::shared::Shared as NodeHandle;
pub use tls::{CertificateFiles, PreparedTls, TlsError, TlsHandle, TlsOptions};
