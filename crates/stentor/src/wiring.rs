//! From the options to a running server.
//!
//! Both planes start here: the data plane first, because the control plane holds its handle. The [`Signals`] come before
//! both, because both use them.

use crate::config::Config;
use crate::config::options::Options;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use stentor_control::{Control, ProcessCounter, Signals};
use stentor_edge::{CoreFailed, DataPlane, Node, StartError, Started, StaticRoute};

/// A server that listens.
pub(crate) struct Launched {
    /// What the data plane has become.
    pub(crate) started: Started,
    pub(crate) plane: Arc<dyn DataPlane>,
    pub(crate) control: Control,
    /// Completes when the data plane has ended, or a core of it has failed.
    pub(crate) ended: Pin<Box<dyn Future<Output = Result<(), CoreFailed>> + Send>>,
}

/// Why a server doesn't start.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The kernel doesn't let it listen there.
    Listen { flag: &'static str, addr: SocketAddr, error: io::Error },
    /// Another error of the data plane.
    Edge(StartError),
    /// Another error of the control plane.
    Control(stentor_control::Error),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flag, addr, error) = match self {
            Self::Listen { flag, addr, error } => (flag, addr, error),
            Self::Edge(error) => return error.fmt(f),
            Self::Control(error) => return error.fmt(f),
        };
        write!(f, "{flag} {addr}: ")?;
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                write!(f, "address in use; choose another with {flag} or stop the other process")
            }
            io::ErrorKind::PermissionDenied => write!(
                f,
                "permission denied; ports below 1024 need CAP_NET_BIND_SERVICE, or choose another with {flag}"
            ),
            io::ErrorKind::AddrNotAvailable => {
                write!(f, "this machine has no such address; choose another with {flag}")
            }
            _ => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LaunchError {}

impl From<StartError> for LaunchError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Listen(addr, error) => Self::Listen { flag: "--listen", addr, error },
            other => Self::Edge(other),
        }
    }
}

impl From<stentor_control::Error> for LaunchError {
    fn from(error: stentor_control::Error) -> Self {
        match error {
            stentor_control::Error::Listen { listen, source } => {
                Self::Listen { flag: "--admin", addr: listen, error: source }
            }
            other => Self::Control(other),
        }
    }
}

/// Starts both planes; returns when they listen. `counters` are shown in `/metrics`. Called within the control plane's
/// runtime.
pub(crate) fn launch(
    config: &Config,
    routes: Vec<StaticRoute>,
    counters: Vec<ProcessCounter>,
) -> Result<Launched, LaunchError> {
    let Options { edge, control, driver, .. } = config.options();
    let signals = Signals::new();
    let node = Node::start(stentor_edge::Options { routes, ..edge }, driver, signals.clone(), None)?;
    let (started, plane) = (node.started().clone(), node.plane());
    let runtime = tokio::runtime::Handle::current();
    let options = stentor_control::Options { counters, ..control };
    let control = Control::start(&runtime, options, plane.clone(), signals)?;
    let joined = runtime.spawn_blocking(move || node.join());
    let ended = Box::pin(async move {
        joined.await.unwrap_or_else(|error| {
            tracing::error!(%error, "can't wait for the data plane");
            Ok(())
        })
    });
    Ok(Launched { started, plane, control, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_flag() {
        fn check(flag: &'static str, addr: &str, kind: io::ErrorKind, expect: &str) {
            let error = LaunchError::Listen { flag, addr: addr.parse().unwrap(), error: kind.into() };
            assert_eq!(error.to_string(), expect);
        }
        check(
            "--listen",
            "127.0.0.1:8000",
            io::ErrorKind::AddrInUse,
            "--listen 127.0.0.1:8000: address in use; choose another with --listen or stop the other process",
        );
        check(
            "--admin",
            "[::1]:80",
            io::ErrorKind::PermissionDenied,
            "--admin [::1]:80: permission denied; ports below 1024 need CAP_NET_BIND_SERVICE, or choose another \
             with --admin",
        );
        check(
            "--listen",
            "10.9.8.7:80",
            io::ErrorKind::AddrNotAvailable,
            "--listen 10.9.8.7:80: this machine has no such address; choose another with --listen",
        );
    }
}
