//! Starts and stops the control plane.

use crate::admin::{self, Listening, NodeFeeds, Services};
use crate::auth::Auth;
use crate::current::Current;
use crate::error::Error;
use crate::feeds::{Change, Feeds};
use crate::hooks::Hooks;
use crate::links::Links;
use crate::metrics::{Figures, Metrics};
use crate::options::{AdminOptions, AdminTls, FeedsOptions, ProcessCounter, Reload, TOKEN_BYTES_MIN};
use crate::overview::{Overview, Sources};
use crate::pushed_documents::PushedDocuments;
use crate::signals::Signals;
use crate::upstream::{Bodies, Prober, Upstreams};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;
use stentor_ports::{DataPlane, Ledger};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Maximum number of requests of the admin port that wait for the feeds' task.
const FEED_REQUESTS_MAX: usize = 16;

/// All options of the control plane.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Feeds and their upstreams.
    pub feeds: FeedsOptions,
    /// The admin port.
    pub admin: AdminOptions,
    /// Counters of the binary, shown in `/metrics`.
    pub counters: Vec<ProcessCounter>,
    /// A listening socket for the admin port, from a service manager or another process.
    pub admin_socket: Option<Arc<OwnedFd>>,
    /// Certificates of the admin port. `Some` makes the port accept only TLS.
    pub admin_tls: Option<AdminTls>,
    /// The data plane's [`stentor_ports::Authenticator`], if it has one.
    pub auth: Option<Arc<Auth>>,
    /// The hooks, and the data plane to which they answer.
    pub hooks: Option<Arc<Hooks>>,
    /// The ledger to which bodies of admin requests are charged. `None` means that they have no common
    /// budget.
    pub ledger: Option<Arc<Ledger>>,
    /// Reads the configuration again for `POST /api/v1/reload`. `None` means that a reload isn't possible.
    pub reload: Option<Arc<dyn Reload>>,
    /// Takes the connections of workers. `None`: there is no application link.
    pub links: Option<Arc<dyn Links>>,
    /// Returns the page of a document, by a path such as `docs/operate.html`. The admin port serves it. `None`:
    /// there are no documents.
    pub documents: Option<fn(&str) -> Option<String>>,
    /// The runtime of the feeds and their fetches, with time and I/O enabled. It must not end before the control
    /// plane. `None`: that of the control plane.
    pub feeds_runtime: Option<Handle>,
}

impl Options {
    /// Reports whether [`Control::start`] would accept these options. Reads the files that they name
    /// (`ca_file`), but opens no socket and resolves no name. The caller must check the ranges of values.
    ///
    /// # Errors
    /// [`Error::Setting`] or [`Error::TokenMissing`].
    pub fn check(&self) -> Result<(), Error> {
        Upstreams::new(&self.feeds)?;
        let AdminOptions { token, listen, .. } = &self.admin;
        match token {
            None if !listen.ip().is_loopback() => Err(Error::TokenMissing { listen: *listen }),
            Some(token) if token.len() < TOKEN_BYTES_MIN => {
                let message =
                    format!("needs at least {TOKEN_BYTES_MIN} bytes; `openssl rand -hex 32` generates one");
                Err(Error::setting("admin.token", message))
            }
            Some(token) if !token.bytes().all(|b| b.is_ascii_graphic()) => {
                Err(Error::setting("admin.token", "may have visible ASCII characters only"))
            }
            _ => Ok(()),
        }
    }
}

/// Checked options. Applying them can't fail.
pub struct Prepared {
    options: Options,
    upstreams: Upstreams,
}

impl Options {
    /// Checks options for [`ControlHandle::configure`], like [`Self::check`].
    ///
    /// # Errors
    /// The same as for [`Self::check`].
    pub fn prepare(self) -> Result<Prepared, Error> {
        self.check()?;
        Ok(Prepared { upstreams: Upstreams::new(&self.feeds)?, options: self })
    }
}

/// A handle to change the options of a running control plane.
#[derive(Clone)]
pub struct ControlHandle {
    state: Arc<admin::State>,
    changes: mpsc::Sender<Change>,
}

impl ControlHandle {
    /// Applies the options of feeds, and those of the admin port except its address and its maximum of
    /// connections. Returns when they apply.
    pub async fn configure(&self, Prepared { options, upstreams }: Prepared) {
        let listen = self.state.options.load().listen;
        self.state.options.store(AdminOptions { listen, ..options.admin });
        self.state
            .prober
            .store(self.state.prober.load().configured(options.feeds.clone(), upstreams.clone()));
        let (applied, is_applied) = oneshot::channel();
        let change = Change { options: options.feeds, upstreams, applied };
        if self.changes.send(change).await.is_ok() {
            // The feeds' task drops the sender when the options apply, or when it ends.
            let _ = is_applied.await;
        }
    }
}

/// The running control plane. Dropping this value also stops the control plane, without waiting for its end.
pub struct Control {
    admin_addr: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    handle: ControlHandle,
    listener: AdminListener,
}

/// The socket of the admin port, for a process that takes over.
#[derive(Clone, Debug)]
pub struct AdminListener {
    socket: Weak<TcpListener>,
    state: Arc<watch::Sender<Listening>>,
}

impl AdminListener {
    /// Returns a duplicate of the socket. `None` after the admin port has closed.
    pub fn socket(&self) -> Option<OwnedFd> {
        self.socket.upgrade()?.as_fd().try_clone_to_owned().ok()
    }

    /// Pauses or resumes the port. A paused port accepts neither connections nor requests on open
    /// connections, but its socket stays open.
    pub fn pause(&self, is_paused: bool) {
        self.state.send_replace(if is_paused { Listening::Paused } else { Listening::Yes });
    }

    /// Like [`AdminListener::pause`], but permanent: closes the socket.
    pub fn close(&self) {
        self.state.send_replace(Listening::Closed);
    }
}

impl Control {
    /// Starts feeds and the admin port on a tokio runtime with time and I/O enabled. `signals` must be the
    /// data plane's [`stentor_ports::ControlPlane`]. When this returns, the admin port listens.
    ///
    /// # Errors
    /// The options are invalid, or the admin port's address can't be bound. The control plane is then not
    /// running.
    pub fn start(
        runtime: &Handle,
        options: Options,
        data_plane: DataPlane,
        signals: Arc<Signals>,
    ) -> Result<Self, Error> {
        options.check()?;
        let _entered = runtime.enter();
        let upstreams = Upstreams::new(&options.feeds)?;
        let listen = options.admin.listen;
        let opened = match &options.admin_socket {
            Some(socket) => socket.try_clone().map(std::net::TcpListener::from),
            None => std::net::TcpListener::bind(listen),
        };
        let listener = opened
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .and_then(TcpListener::from_std);
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (admin_addr, listener) = bound.map_err(|source| Error::Listen { listen, source })?;

        upstreams.iter().for_each(|upstream| upstream.log());
        let (token, tls) = (options.admin.token.is_some(), options.admin_tls.is_some());
        let scheme = if tls { "https" } else { "http" };
        tracing::info!(
            %admin_addr, token, tls,
            "the admin port is open; its status page is {scheme}://{admin_addr}/"
        );
        let metrics = Metrics::default();
        let (plane, busy_timeout) = (data_plane.feeds.clone(), options.admin.busy_timeout);
        let pushed_documents =
            PushedDocuments::new(options.feeds.clone(), busy_timeout, plane.clone(), signals.clone());
        let (changes, changed) = mpsc::channel(1);
        let (feed_requests, requested) = mpsc::channel(FEED_REQUESTS_MAX);
        let ledger = options.ledger.unwrap_or_else(|| Arc::new(Ledger::new(usize::MAX)));
        let bodies = Bodies::new(options.feeds.fetches_bytes_max, ledger.clone());
        let prober = Prober::new(options.feeds.clone(), upstreams.clone(), bodies.clone());
        let feeds = Feeds::new(
            &options.feeds,
            upstreams,
            plane,
            signals.clone(),
            metrics.clone(),
            pushed_documents.clone(),
            bodies,
        );
        let figures = Figures {
            data_plane: data_plane.clone(),
            feeds: feeds.view(),
            pushed_documents: pushed_documents.clone(),
            counters: options.counters,
            admin_expiries: options.admin_tls.as_ref().map(|tls| tls.expiries.clone()),
        };
        let overview = Arc::new(Overview::new(Sources {
            data_plane: data_plane.clone(),
            feeds: feeds.view(),
            metrics: metrics.clone(),
            hooks: options.hooks.clone(),
            links: options.links.clone(),
            admin_tls: options.admin_tls.clone(),
        }));
        let state = admin::State {
            options: Current::new(options.admin),
            services: Services {
                reload: options.reload,
                links: options.links,
                overview: overview.clone(),
                documents: options.documents,
            },
            registry: metrics.registry(
                figures,
                &options.auth.as_ref().map(|auth| auth.metrics.clone()).unwrap_or_default(),
                options.hooks.as_ref().map(|hooks| hooks.metrics()),
            ),
            feeds: feeds.view(),
            prober: Current::new(prober),
            feed_requests,
            pushed_documents,
            data_plane: data_plane.clone(),
            signals,
            metrics,
            begun: Instant::now(),
            idempotency_keys: Default::default(),
            auth: options.auth.clone(),
            ledger,
            tls: options.admin_tls.map(|tls| TlsAcceptor::from(tls.config)),
        };
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let feeds_runtime = options.feeds_runtime.as_ref().unwrap_or(runtime);
        tasks.spawn_on(feeds.run(changed, requested, stopped.clone()), feeds_runtime);
        tasks.spawn(overview.run(stopped.clone()));
        if let Some(auth) = options.auth {
            tasks.spawn(auth.run(stopped.clone()));
        }
        if let Some(hooks) = options.hooks {
            tasks.spawn(hooks.run(data_plane.clone(), state.signals.clone(), stopped.clone()));
        }
        let state = Arc::new(state);
        if let Some(cluster) = &state.data_plane.topology {
            cluster.join_feeds(NodeFeeds::new(&state));
        }
        let (state_of_listener, listening) = watch::channel(Listening::Yes);
        let listener = Arc::new(listener);
        let admin_listener =
            AdminListener { socket: Arc::downgrade(&listener), state: Arc::new(state_of_listener) };
        tasks.spawn(admin::serve(listener, state.clone(), listening, stopped));
        Ok(Self {
            admin_addr,
            stop,
            tasks,
            handle: ControlHandle { state, changes },
            listener: admin_listener,
        })
    }

    /// Returns a handle to change the options.
    pub fn handle(&self) -> ControlHandle {
        self.handle.clone()
    }

    /// Returns the admin port's socket.
    pub fn admin_listener(&self) -> AdminListener {
        self.listener.clone()
    }

    /// Returns the address of the admin port.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Completes when a part of the control plane panics. Feeds are then no longer fetched, or the admin port
    /// is closed. A panic in a single fetch, push or request ends only that fetch, push or request.
    ///
    /// Cancel safe.
    pub async fn failed(&mut self) {
        if let Some(Err(error)) = self.tasks.join_next().await {
            tracing::error!(%error, "a part of the control plane has failed");
        }
    }

    /// Stops the control plane. Aborts fetches in flight. Requests to the admin port may finish within
    /// `shutdown_timeout`.
    pub async fn shutdown(mut self) {
        let _ = self.stop.send(true);
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the control plane had failed");
            }
        }
    }
}
