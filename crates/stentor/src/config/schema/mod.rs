//! Every key of the configuration, once: its name, type, range, description, and the field of the options
//! that it sets. The field's default is the key's. [`section!`](super::section::section) describes the
//! syntax.
//!
//! `docs/configuration.md` is generated from these files and checked against them by a test.

mod auth;
mod client_limits;
mod cluster;
mod feeds;
mod hooks;
mod links;
mod protocols;
mod rooms;
mod server;
mod tls;

pub(crate) use auth::{Anonymous, Auth, AuthProxy, Issuer, Permission, To};
pub(crate) use client_limits::{AddressLimits, Proxies, ProxyProtocol, SessionLimits, UserLimits};
pub(crate) use cluster::{Adapter, Bridge, ClassicParser, Cluster, SubscriptionMode};
pub(crate) use feeds::{Feed, FeedsLimits};
pub(crate) use hooks::{Hook, HookOn};
pub(crate) use links::Link;
pub(crate) use protocols::{CookieSameSite, SockJs, SocketIo, check_prefixes};
pub(crate) use rooms::{Rooms, Rule};
pub(crate) use server::{
    AdminLimits, App, Deflate, Driver, Heartbeat, Limits, LogFormat, LogLevel, Origins, Server,
};
pub(crate) use tls::{AdminTls, Certificate, Listener};

use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

const HOUR: Duration = s(3600);

/// Returns the required keys of a repeated section.
pub(crate) fn required(section: &str) -> &'static [&'static str] {
    match section {
        "auth.issuers" => &["issuer", "algorithms"],
        "feeds" => &["name", "url"],
        "hooks" => &["name", "url", "on"],
        "links" => &["app"],
        "listeners" => &["address"],
        "permissions" => &["allow"],
        "rules" => &["event"],
        "sockjs" => &["prefix"],
        "tls" => &["certificate", "key"],
        _ => &[],
    }
}

/// Maximum number of sections of one name in a file.
pub(crate) const REPEATED_MAX: usize = 1000;
