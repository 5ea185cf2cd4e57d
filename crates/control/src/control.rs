//! Starting and stopping all of the control plane.

use crate::admin;
use crate::auth::Auth;
use crate::error::Error;
use crate::feeds::Feeds;
use crate::hooks::Hooks;
use crate::metrics::Metrics;
use crate::options::{AdminOptions, FeedsOptions, ProcessCounter, TOKEN_BYTES_MIN};
use crate::pushed_documents::PushedDocuments;
use crate::signals::Signals;
use crate::upstream::Upstreams;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use stentor_edge::DataPlane;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// All options of the control plane.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Feeds and their upstreams.
    pub feeds: FeedsOptions,
    /// The admin port.
    pub admin: AdminOptions,
    /// Counters that the binary keeps.
    pub counters: Vec<ProcessCounter>,
    /// What the data plane was started with as its [`stentor_edge::Authenticator`], if it has one.
    pub auth: Option<Arc<Auth>>,
    /// The hooks, with the data plane that they answer.
    pub hooks: Option<Arc<Hooks>>,
}

impl Options {
    /// Reports whether [`Control::start`] would accept these options, without starting anything: no socket is opened, no
    /// name resolved. Files that they name (`ca_file`) are read. Ranges of values are the caller's to check.
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

/// The running control plane. Dropping it stops it as well, without waiting.
pub struct Control {
    admin_addr: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Control {
    /// Starts feeds and admin port on a tokio runtime with time and I/O enabled. `signals` are those that the data
    /// plane was started with, as its [`stentor_edge::ControlPlane`]. When this returns, the admin port listens.
    ///
    /// # Errors
    /// The options are invalid, or the admin port's address can't be bound. Nothing runs then.
    pub fn start(
        runtime: &Handle,
        options: Options,
        data_plane: Arc<dyn DataPlane>,
        signals: Arc<Signals>,
    ) -> Result<Self, Error> {
        options.check()?;
        let _entered = runtime.enter();
        let upstreams = Upstreams::new(&options.feeds)?;
        let listen = options.admin.listen;
        let listener = std::net::TcpListener::bind(listen)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .and_then(TcpListener::from_std);
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (admin_addr, listener) = bound.map_err(|source| Error::Listen { listen, source })?;

        upstreams.iter().for_each(|upstream| upstream.log());
        tracing::info!(%admin_addr, token = options.admin.token.is_some(), "the admin port is open");
        let metrics = Metrics::default();
        let (plane, busy_timeout) = (data_plane.clone(), options.admin.busy_timeout);
        let pushed_documents =
            PushedDocuments::new(options.feeds.clone(), busy_timeout, plane.clone(), signals.clone());
        let feeds = Feeds::new(
            &options.feeds,
            upstreams,
            plane,
            signals.clone(),
            metrics.clone(),
            pushed_documents.clone(),
        );
        let state = admin::State {
            options: options.admin,
            registry: metrics.registry(
                data_plane.clone(),
                feeds.view(),
                pushed_documents.clone(),
                options.counters,
                &options.auth.as_ref().map(|auth| auth.metrics.clone()).unwrap_or_default(),
                options.hooks.as_ref().map(|hooks| hooks.metrics()),
            ),
            feeds: feeds.view(),
            pushed_documents,
            data_plane: data_plane.clone(),
            signals,
            metrics,
            begun: Instant::now(),
            idempotency_keys: Default::default(),
            auth: options.auth.clone(),
        };
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(feeds.run(stopped.clone()));
        if let Some(auth) = options.auth {
            tasks.spawn(auth.run(data_plane.clone(), options.hooks.clone(), stopped.clone()));
        }
        if let Some(hooks) = options.hooks {
            tasks.spawn(hooks.run(state.signals.clone(), stopped.clone()));
        }
        tasks.spawn(admin::serve(listener, Arc::new(state), stopped));
        Ok(Self { admin_addr, stop, tasks })
    }

    /// Where the admin port listens.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Completes when a part of the control plane panics: no feed is fetched any more, or the admin port is closed. A
    /// panic in one fetch, push or request ends only that one.
    ///
    /// Nothing is lost if the future is dropped before it completes.
    pub async fn failed(&mut self) {
        if let Some(Err(error)) = self.tasks.join_next().await {
            tracing::error!(%error, "a part of the control plane has failed");
        }
    }

    /// Stops: fetches in flight are given up, requests to the admin port may end within `shutdown_timeout`.
    pub async fn shutdown(mut self) {
        let _ = self.stop.send(true);
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a part of the control plane had failed");
            }
        }
    }
}
