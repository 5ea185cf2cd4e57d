//! Starts a server from the options.
//!
//! Both planes start here: the data plane first, because the control plane holds its handle. The [`Signals`]
//! are made before both, because both use them.

use crate::build_info;
use crate::cluster::{self, Member};
use crate::config::options::Options;
use crate::library;
use crate::links;
use crate::machine;
use crate::own_thread::OwnThread;
use crate::port_holder::holder;
use crate::reload::{Parts, Reloader};
use crate::takeover::{self, Inheritance};
use anyhow::{Context, ensure};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use stentor_control::{
    AdminTls, Control, HookAuthenticator, HookAuthorizer, HookKind, Hooks, ProcessCounter, Reload, Signals,
};
use stentor_edge::{CoreFailed, Node, StartError, Started, StaticRoute, TlsHandle};
use stentor_ports::{DataPlane, Ledger};

/// A listening server.
pub(crate) struct Launched {
    /// Address, driver and cores of the data plane.
    pub(crate) started: Started,
    pub(crate) plane: DataPlane,
    pub(crate) control: Control,
    /// The thread of the feeds, which `control` uses.
    pub(crate) feeds: OwnThread,
    /// The listening sockets of the data plane.
    pub(crate) sockets: Vec<Weak<OwnedFd>>,
    /// `true` if a service manager also has the sockets, so that connections wait in their queues while no
    /// process accepts them.
    pub(crate) is_activated: bool,
    /// The process from which this server takes over the sockets. That process continues until it is
    /// notified.
    pub(crate) inheritance: Option<Inheritance>,
    /// Membership in a cluster. `None` for a single node.
    pub(crate) member: Option<Member>,
    /// Completes when the data plane has ended or one of its cores has failed.
    pub(crate) ended: Pin<Box<dyn Future<Output = Result<(), CoreFailed>> + Send>>,
}

/// Makes the error for an address at which the server can't listen. It names the flag to change.
fn cannot_listen(flag: &str, addr: SocketAddr, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let by =
                holder(addr).map_or_else(String::new, |(name, pid)| format!(" by {name} (process {pid})"));
            format!("address in use{by}; choose another with {flag} or stop the other process")
        }
        io::ErrorKind::PermissionDenied => format!(
            "permission denied; ports below 1024 need CAP_NET_BIND_SERVICE, or choose another with {flag}"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address; choose another with {flag}")
        }
        _ => error.to_string(),
    };
    anyhow::anyhow!("{flag} {addr}: {why}")
}

/// Makes the data plane ask the hooks.
fn install(hooks: &Arc<Hooks>, edge: &mut stentor_edge::Options) {
    if hooks.asks_about(HookKind::Event) {
        edge.events = Some(hooks.clone());
    }
    if hooks.has_notices() {
        edge.notices = Some(hooks.clone());
    }
    let decides = hooks.asks_about(HookKind::Subscribe) || hooks.asks_about(HookKind::Publish);
    if hooks.asks_about(HookKind::Connect) || (decides && edge.authenticator.is_some()) {
        let inner = edge.authenticator.take();
        edge.authenticator = Some(Arc::new(HookAuthenticator::new(inner, hooks.clone())));
    } else if decides {
        let inner = edge.authorizer.take();
        edge.authorizer = Some(Arc::new(HookAuthorizer::new(inner, hooks.clone())));
    }
}

/// Makes the id of a node outside a cluster.
fn random_id() -> String {
    format!("{:016x}", fastrand::u64(..))
}

/// Installs the sockets that a service manager has opened: the socket named `admin`, and the sockets of the
/// clients' listeners in order.
fn activate(
    sockets: Vec<(String, OwnedFd)>,
    edge: &mut stentor_edge::Options,
    control: &mut stentor_control::Options,
) -> anyhow::Result<()> {
    for (name, socket) in sockets {
        let listener = TcpListener::from(socket);
        let address =
            listener.local_addr().with_context(|| format!("LISTEN_FDS: {name:?} is no TCP socket"))?;
        let socket = Arc::new(listener.into());
        if name == "admin" {
            // The options get the socket's address, because it determines whether the admin port needs a
            // token.
            control.admin.listen = address;
            control.admin_socket = Some(socket);
        } else {
            edge.sockets.push(vec![socket]);
        }
    }
    let (sockets, listeners) = (edge.sockets.len(), edge.all_listeners().len());
    ensure!(
        sockets <= listeners,
        "LISTEN_FDS: {sockets} sockets for clients, but the configuration has {listeners} listeners; add a [[listeners]] \
         for each, or set FileDescriptorName=admin for the admin port's socket"
    );
    Ok(())
}

/// Starts both planes. Returns when they listen. `counters` are shown in `/metrics`. Must be called within
/// the control plane's runtime.
pub(crate) async fn launch(
    reloader: &Arc<Reloader>,
    routes: Vec<StaticRoute>,
    counters: Vec<ProcessCounter>,
) -> anyhow::Result<Launched> {
    let config = reloader.running();
    let options = machine::options(&config);
    let admin_tls = options.admin_tls();
    let Options { mut edge, mut control, driver, cluster, hooks, tls, links, .. } = options;
    let admin_tls = admin_tls.map(|tls| TlsHandle::load(&tls)).transpose()?.map(|(tls, _)| tls);
    control.admin_tls = admin_tls
        .clone()
        .map(|tls| AdminTls { config: tls.config(), expiries: Arc::new(move || tls.expiries()) });
    if !tls.certificates.is_empty() {
        // The warnings are ignored, because they have been logged with those of the configuration.
        edge.tls = Some(TlsHandle::load(&tls)?.0);
    }
    let tls_handle = edge.tls.clone();
    let signals = Signals::new();
    let ledger = Arc::new(Ledger::new(edge.limits.memory_bytes_max));
    let auth = config.auth_options().map(|auth| stentor_control::Auth::new(&auth, &ledger)).transpose()?;
    let revocations = auth.clone().map(|auth| auth as _);
    let joining = cluster::connect(cluster, &edge, &control, ledger.clone(), revocations).await?;
    machine::leave_idle_feeds_to_cluster(&config, &mut control);
    let broker = joining.as_ref().and_then(|joining| joining.broker());
    let node_tag = joining.as_ref().map(|joining| joining.node_tag());
    let relay = joining.as_ref().and_then(|joining| joining.relay());
    let observer = joining.as_ref().map_or(signals.clone() as _, |joining| joining.observe(signals.clone()));
    edge.keeps_handshakes = joining.as_ref().is_some_and(|joining| joining.has_bridges());
    edge.authenticator = auth.clone().map(|auth| auth as _);
    let parts_auth = auth.clone();
    if !hooks.is_empty() {
        let node = joining.as_ref().and_then(|joining| joining.node_id());
        let hooks = Hooks::new(&node.unwrap_or_else(random_id), &hooks, &ledger)?;
        install(&hooks, &mut edge);
        control.hooks = Some(hooks);
    }
    if let Some(joining) = &joining {
        edge.notices = joining.observe_sessions(edge.notices.take());
    }
    let workers = links::prepare(links, &edge, &ledger)?.map(|(workers, thread, routes)| {
        edge.link = Some(routes);
        control.links = Some(links::of_admin(&workers, &thread));
        if let Some(carrier) = joining.as_ref().and_then(|joining| joining.link_carrier()) {
            workers.join(carrier);
        }
        (workers, thread)
    });
    let mut inheritance = None;
    if !config.server.takeover_socket.is_empty() {
        inheritance = takeover::request_sockets(Path::new(&config.server.takeover_socket))?;
    }
    if let Some(inheritance) = &mut inheritance {
        inheritance.install(&mut edge, &mut control)?;
    } else {
        activate(stentor_driver::activated_sockets(), &mut edge, &mut control)?;
    }
    let is_activated = inheritance.is_none() && edge.sockets.len() == edge.all_listeners().len();
    edge.routes = routes;
    edge.files = library::files().into();
    edge.broker = broker;
    edge.node_tag = node_tag;
    edge.relay = relay;
    edge.ledger = Some(ledger.clone());
    let node = Node::start(edge, driver, observer, None);
    let node = node.map_err(|error| match error {
        StartError::Listen(addr, error) => cannot_listen("--listen", addr, &error),
        other => other.into(),
    })?;
    let started = node.started().clone();
    let sockets = node.sockets().to_vec();
    let handle = node.plane();
    let (mut plane, member) = match joining {
        Some(joining) => {
            let (plane, member) = joining.start(handle.clone());
            (plane, Some(member))
        }
        None => (DataPlane::new(handle.clone()), None),
    };
    plane.metrics.push(build_info::metric(started.driver));
    let workers = workers.map(|(workers, thread)| {
        plane.metrics.extend(workers.metrics());
        links::start(&workers, thread, handle.clone());
        workers
    });
    let runtime = tokio::runtime::Handle::current();
    let feeds = OwnThread::start_with_buffers("feeds")?;
    let reload: Option<Arc<dyn Reload>> = Some(reloader.clone());
    let options = stentor_control::Options {
        counters,
        auth,
        reload,
        ledger: Some(ledger),
        documents: Some(stentor_demo::page::document),
        feeds_runtime: Some(feeds.runtime().clone()),
        ..control
    };
    let control = Control::start(&runtime, options, plane.clone(), signals);
    let control = control.map_err(|error| match error {
        stentor_control::Error::Listen { listen, source } => cannot_listen("--admin", listen, &source),
        other => other.into(),
    })?;
    reloader.started(Parts {
        plane: handle,
        control: control.handle(),
        admin_addr: control.admin_addr(),
        auth: parts_auth,
        tls: tls_handle,
        admin_tls,
    });
    let joined = runtime.spawn_blocking(move || node.join());
    let ended = Box::pin(async move {
        let ended = joined.await.unwrap_or_else(|error| {
            tracing::error!(%error, "can't wait for the data plane");
            Ok(())
        });
        // The workers have been notified of the ends of their sessions.
        workers.into_iter().for_each(|workers| workers.stop());
        ended
    });
    Ok(Launched { started, plane, control, feeds, sockets, is_activated, inheritance, member, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_refer_to_documents_that_are_served() {
        for document in stentor_control::FINDING_DOCUMENTS {
            let (path, anchor) = document.split_once('#').unwrap();
            let page = stentor_demo::page::document(path).expect(path);
            assert!(page.contains(&format!("id=\"{anchor}\"")), "{document}");
        }
        assert_eq!(stentor_demo::page::document("docs/operate.md"), None);
    }

    #[test]
    fn errors_name_the_flag() {
        fn check(flag: &str, addr: &str, kind: io::ErrorKind, expect: &str) {
            let error = cannot_listen(flag, addr.parse().unwrap(), &kind.into());
            assert_eq!(error.to_string(), expect);
        }
        check(
            "--listen",
            "127.0.0.1:1",
            io::ErrorKind::AddrInUse,
            "--listen 127.0.0.1:1: address in use; choose another with --listen or stop the other process",
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
