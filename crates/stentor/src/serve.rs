//! `stentor serve`: the configuration, the log, the planes, and then the [`lifecycle`].

use crate::cli::ServeArgs;
use crate::config::schema::Server;
use crate::config::{Config, Sources};
use crate::lifecycle::{self, Outcome, TAKEOVER};
use crate::logging::{self, Log};
use crate::own_thread::release_unused_memory;
use crate::reload::Reloader;
use crate::service_manager::{Notice, notify};
use crate::takeover::{Running, TakeoverListener, Unpublished};
use crate::wiring::{self, Launched};
use anyhow::Context;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stentor_control::{AdminListener, Secrets};
use stentor_edge::StaticRoute;
use stentor_ports::{Done, Drain, Lifecycle, NewConnections};
use tokio::sync::mpsc;

/// Maximum time that a takeover waits until all cores have stopped accepting. The new process waits for 5 s.
const STOP_ACCEPTING_WITHIN: Duration = Duration::from_secs(4);
/// A lower limit of file descriptors than this causes a warning. The default of many shells and service
/// managers is 1,024.
const DESCRIPTORS_FEW: u64 = 4096;

/// Number of threads of the control plane's runtime. The control plane has little work compared with the data
/// plane, and blocking work has a separate pool.
const CONTROL_THREADS: usize = 2;

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let (path, flags) = (args.config.clone(), args.flags());
    let secrets = Mutex::new(Secrets::default());
    let load = move || {
        let mut sources = Sources::default();
        if let Some(path) = &path {
            sources = sources.file(path);
        }
        let mut secrets = secrets.lock();
        let loaded = sources.environment_after(environment(), &secrets).flags(flags.clone()).load()?;
        *secrets = loaded.0.secrets.clone();
        Ok(loaded)
    };
    let (config, warnings) = load()?;
    let log = logging::start(config.server.log, config.server.log_level, config.server.access_log)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let reloader = Reloader::new(config, Box::new(load), log.level());
    block_on(async { serve(&reloader, Vec::new(), &log).await })
}

/// Iterates over the environment variables that are text.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Runs `work` on the control plane's runtime. When `work` has ended, doesn't wait for other tasks.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .on_thread_park(release_unused_memory)
        .enable_all()
        .build()
        .context("can't start the threads of the control plane")?;
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)));
    // This is needed after a panic, too: dropping the runtime would wait for the thread that joins the data
    // plane.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Starts the server, reports that it is ready, and runs it until it ends.
pub(crate) async fn serve(
    reloader: &Arc<Reloader>,
    routes: Vec<StaticRoute>,
    log: &Log,
) -> anyhow::Result<ExitCode> {
    let config = &reloader.running();
    let file_descriptors_max = raise_descriptor_limit();
    // The signal handlers are installed before listening, so that a signal never has its default effect.
    let (sender, signals) = lifecycle::signals(reloader).context("can't install signal handlers")?;
    let launched = wiring::launch(reloader, routes, log.dropped_lines()).await?;
    let Launched { started, plane, mut control, sockets, is_activated, inheritance, member, ended, .. } =
        launched;
    // Ends after `control`.
    let _feeds_thread = launched.feeds;
    tracing::info!(
        listen = %started.addr,
        admin = %control.admin_addr(),
        driver = started.driver,
        cores = started.cores,
        app = config.server.app.as_str(),
        file_descriptors_max,
        connections_max = started.connections_max,
        "listening"
    );
    if let Some(reason) = &started.fallback_reason {
        tracing::info!(reason, "io_uring is not available, using epoll");
    }
    if file_descriptors_max < DESCRIPTORS_FEW {
        tracing::warn!(
            file_descriptors_max,
            connections_max = started.connections_max,
            "the limit of file descriptors is low, and each connection needs one; raise the hard limit: \
             `ulimit -n 1048576` before the start, LimitNOFILE= in a unit, --ulimit nofile= for a container"
        );
    }
    tracing::info!(allowed = origins(config), "origins");
    if config.has_auth() {
        let (issuers, permissions) = (config.issuers.len(), config.permissions.len());
        let anonymous = config.auth.anonymous.as_str();
        tracing::info!(
            issuers,
            permissions,
            anonymous,
            "clients may do what their tokens and permissions allow"
        );
    } else {
        tracing::info!(
            "there is no [auth]: every client is anonymous, and may subscribe to every room and feed"
        );
    }
    // Configured feeds are logged by the control plane.
    if config.feeds.is_empty() {
        tracing::info!("no feeds are configured");
    }
    let scheme = if config.tls.is_empty() { "http" } else { "https" };
    let mut published = None;
    if !config.server.takeover_socket.is_empty() {
        let (listener, unpublished) = TakeoverListener::open(Path::new(&config.server.takeover_socket))?;
        let admin = control.admin_listener();
        let running = RunningServer { lifecycle: plane.lifecycle.clone(), sockets, admin, signals: sender };
        let serve = move || listener.serve(&running);
        std::thread::Builder::new().name("takeover".into()).spawn(serve)?;
        published = Some(unpublished);
    }
    // The takeover is confirmed before this process is ready, because a script that waits for `ready` may
    // then end the other process.
    let confirmed = match inheritance {
        None => None,
        Some(inheritance) => {
            let path = config.server.takeover_socket.clone();
            Some(tokio::task::spawn_blocking(move || inheritance.confirm(Path::new(&path))).await??)
        }
    };
    if let Some(Err(error)) = published.map(Unpublished::publish) {
        // This is only logged, because the process already serves clients.
        tracing::error!(error = format!("{error:#}"), "no new process can take over");
    }
    if let Err(error) = print_ready(&mut std::io::stdout().lock(), scheme, started.addr) {
        tracing::warn!(%error, "standard output is closed; the ready line is lost");
    }
    // Logged last, so that it is the last line on a terminal that shows both the log and standard output.
    tracing::info!("ready at {scheme}://{}", started.addr);
    notify(Notice::Ready);
    if let Some(confirmed) = confirmed {
        confirmed.announce_ready();
    }
    let stopping = || {
        notify(Notice::Stopping);
        // A service manager keeps the sockets that it has passed.
        let new_connections = if is_activated { NewConnections::Waiting } else { NewConnections::Accepted };
        drain(&reloader.running(), new_connections)
    };
    let outcome = lifecycle::run(plane.lifecycle, ended, control.failed(), signals, stopping).await;
    if matches!(outcome, Outcome::Drained | Outcome::TimedOut) {
        control.shutdown().await;
    }
    if let Some(member) = member {
        member.leave().await;
    }
    Ok(outcome.into())
}

/// This process, for the takeover by another process.
struct RunningServer {
    lifecycle: Arc<dyn Lifecycle>,
    /// The listening sockets for clients. They are closed in the last phase of a drain.
    sockets: Vec<Weak<OwnedFd>>,
    admin: AdminListener,
    signals: mpsc::Sender<&'static str>,
}

impl Running for RunningServer {
    fn sockets(&self) -> (Vec<Arc<OwnedFd>>, Option<OwnedFd>) {
        (self.sockets.iter().filter_map(Weak::upgrade).collect(), self.admin.socket())
    }

    /// Pauses or resumes accepting. A draining process refuses the connections that it still accepts, so it
    /// must not accept connections that are meant for the new process.
    fn pause_accepting(&self, is_paused: bool) {
        self.admin.pause(is_paused);
        let (done, answer) = std::sync::mpsc::channel();
        self.lifecycle.pause_accepting(is_paused, Done::new(move |_| _ = done.send(())));
        // An error means that it took too long, or that the cores have ended.
        let _ = answer.recv_timeout(STOP_ACCEPTING_WITHIN);
    }

    fn leave(&self) {
        // An error means that this process is about to exit.
        let _ = self.signals.blocking_send(TAKEOVER);
        self.admin.close();
    }
}

/// Returns the configured times of a drain after SIGTERM.
fn drain(config: &Config, new_connections: NewConnections) -> Drain {
    let Server { drain_delay, drain_window, shutdown_timeout, .. } = config.server;
    Drain { delay: drain_delay, window: drain_window, timeout: shutdown_timeout, new_connections }
}

/// Prints the ready line, for which scripts wait.
fn print_ready(out: &mut impl Write, scheme: &str, addr: SocketAddr) -> std::io::Result<()> {
    writeln!(out, "ready {scheme}://{addr}")?;
    out.flush()
}

fn origins(config: &Config) -> String {
    let mut all = vec!["the server's own"];
    all.extend(config.origins.allow.iter().map(|origin| origin.as_str()));
    all.join(", ")
}

/// Raises the limit of file descriptors as far as possible. Returns the limit.
fn raise_descriptor_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        tracing::warn!("can't raise the limit of file descriptors");
    }
    // `None` means unlimited.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A thread that never ends, such as the thread that joins the data plane, doesn't prevent the process
    /// from exiting.
    #[test]
    fn a_panic_does_not_wait_for_other_threads() {
        let (_running, until) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let (left, leaves) = mpsc::channel();
        std::thread::spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                block_on::<()>(async {
                    tokio::task::spawn_blocking(move || {
                        let _ = begun.send(());
                        until.recv()
                    });
                    // Waits until the thread has begun, because the runtime doesn't wait for a thread that
                    // hasn't.
                    begins.recv()?;
                    panic!("on purpose")
                })
            }));
            let _ = left.send(outcome.is_err());
        });
        assert_eq!(leaves.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn ready_is_one_line() {
        let mut out = Vec::new();
        print_ready(&mut out, "http", "127.0.0.1:8000".parse().unwrap()).unwrap();
        print_ready(&mut out, "https", "[::1]:9".parse().unwrap()).unwrap();
        assert_eq!(out, b"ready http://127.0.0.1:8000\nready https://[::1]:9\n");
    }

    #[test]
    fn the_descriptor_limit_is_raised_to_the_hard_limit() {
        let limit = raise_descriptor_limit();
        assert_eq!(Some(limit).filter(|l| *l != u64::MAX), getrlimit(Resource::Nofile).maximum);
    }
}
