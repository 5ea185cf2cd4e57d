//! The control plane: feeds, admin API, metrics (ARCHITECTURE.md).
//!
//! It runs on tokio, its feeds on a runtime of their own, and uses common crates. It uses the data plane only as a
//! [`stentor_ports::DataPlane`]. The data plane uses it only as a [`stentor_ports::ControlPlane`]: the
//! [`Signals`], which are made before both planes:
//! ```text
//! let signals = Signals::new();
//! let edge = /* started with */ signals.clone() /* as its Arc<dyn ControlPlane> */;
//! let control = Control::start(&runtime, options, edge, signals)?;
//! ```
//!
//! - [`schedule`]: the times of fetches, and the updates for subscribers; sans-I/O.
//! - `fair`: queues in which addresses and sessions take turns.
//! - `route`: from a key to an upstream and a URL.
//! - `upstream`: from a URL to a document.
//! - `feeds`: the task that connects `schedule` and `upstream` with the data plane.
//! - `auth`: tokens, permissions and revocations, for the data plane.
//! - `hooks`: questions to the backend.
//! - `links`: the application link, as the admin port calls it.
//! - `admin`: publish API, metrics, health, on their own port.
//! - `overview`: time series and findings, for the status page.
//! - `pushed_documents`: documents that backends push into feeds.
//! - `secrets`: values of the configuration from the environment and from files.
//! - `sample`: a sample of every metric, for the generated reference.

mod access;
mod admin;
mod auth;
mod client;
mod control;
mod current;
mod declare;
mod error;
mod fair;
mod feeds;
mod hooks;
mod links;
mod metrics;
mod options;
mod overview;
mod percent;
mod process;
mod pushed_documents;
mod request_header;
mod route;
mod sample;
pub mod schedule;
mod secrets;
mod signals;
mod unix_time;
mod upstream;
mod upstream_log;
mod view;

pub use admin::{api as admin_api, openapi};
pub use auth::{Auth, AuthOptions, IssuerOptions, check_jwks_url, reach_issuer};
pub use client::{AdminClient, ClientError, FetchReport, ReloadReport, Target};
pub use control::{AdminListener, Control, ControlHandle, Options, Prepared};
pub use error::Error;
pub use hooks::{
    HookAuthenticator, HookAuthorizer, HookKind, HookOptions, HookSecret, Hooks, WhenUnavailable,
};
pub use links::{Connect, Links, WorkerAccepted, WorkerRefused, WorkerRequest};
pub use options::{
    AdminOptions, AdminTls, Content, ContentCoding, FeedsOptions, ProcessCounter, Proxy, PushedKeys,
    Redirects, Reload, RequestMethod, TOKEN_BYTES_MIN, UpstreamOptions,
};
pub use overview::FINDING_DOCUMENTS;
pub use request_header::upstream_header;
pub use route::{Route, RouteError};
pub use sample::sample_metrics;
pub use secrets::{Reference, Secrets, UrlText, literal, references};
pub use signals::Signals;
pub use upstream::{Probe, check_client_certificate, check_trusted_certificates, probe};
