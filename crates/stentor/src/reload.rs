//! Applies changes of the configuration while the server runs.
//!
//! ```text
//!  SIGHUP, POST /api/v1/reload ─► load ─► apply ─► prepare ─► commit
//!                                 every mistake    each part,   each part,
//!                                 at once          may fail     can't fail
//! ```
//!
//! A reload changes all parts or none: [`Reloader::prepare`] does everything that can fail, for all parts,
//! before [`Reloader::commit`] changes the first part. Each reloadable part has a field in [`Prepared`],
//! which `prepare` makes and `commit` applies. Keys that need a restart keep their values
//! ([`Config::apply`]), and each reload reports them until the restart.
//!
//! **Invariants.** Reloads run one after another. [`Reloader::running`] returns the applied configuration.

use crate::config::options::Options;
use crate::config::{Changes, Config, Finding, Problems};
use crate::logging::LevelHandle;
use crate::machine;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use stentor_control::{Auth, ControlHandle, Reload};
use stentor_edge::{NodeHandle, PreparedTls, TlsHandle};
use stentor_ports::{Commands, Done, IdentityFilter, Recheck, RecheckAction};
use tokio::sync::oneshot;

/// Reads the configuration again. Returns it with its warnings.
pub(crate) type Load = Box<dyn Fn() -> Result<(Config, Vec<Finding>), Problems> + Send + Sync>;

/// Reloads the configuration (see the module's documentation).
pub(crate) struct Reloader {
    load: Load,
    log: LevelHandle,
    running: Mutex<Config>,
    /// Locked during a reload, so that reloads run one after another.
    turn: tokio::sync::Mutex<()>,
    /// The parts of the server. Empty until they have started, because the admin port needs a reference to
    /// this reloader to start.
    parts: OnceLock<Parts>,
}

/// The parts that accept new options while they run.
pub(crate) struct Parts {
    /// The data plane itself, without the wrappers of a cluster.
    pub(crate) plane: Arc<NodeHandle>,
    pub(crate) control: ControlHandle,
    pub(crate) admin_addr: SocketAddr,
    pub(crate) auth: Option<Arc<Auth>>,
    pub(crate) tls: Option<TlsHandle>,
    pub(crate) admin_tls: Option<TlsHandle>,
}

/// The checked new options of all parts.
struct Prepared {
    edge: stentor_edge::Options,
    control: stentor_control::Prepared,
    /// `Some` if the server uses TLS.
    tls: Option<PreparedTls>,
    /// `Some` if the admin port uses TLS.
    admin_tls: Option<PreparedTls>,
    config: Config,
}

/// The effect of a reload.
#[derive(Debug)]
struct Report {
    changes: Changes,
    warnings: Vec<String>,
}

impl Report {
    fn to_json(&self) -> String {
        let Changes { applied, restart_needed, .. } = &self.changes;
        let warnings = &self.warnings;
        serde_json::json!({ "applied": applied, "restart_needed": restart_needed, "warnings": warnings })
            .to_string()
    }
}

impl Reloader {
    /// Makes a reloader for a server that is about to start with the configuration `running`.
    pub(crate) fn new(running: Config, load: Load, log: LevelHandle) -> Arc<Self> {
        let (running, turn, parts) = (Mutex::new(running), tokio::sync::Mutex::default(), OnceLock::new());
        Arc::new(Self { load, log, running, turn, parts })
    }

    /// Records that the server has started.
    pub(crate) fn started(&self, parts: Parts) {
        // This can't fail, because the server starts only once.
        let _ = self.parts.set(parts);
    }

    /// Returns the applied configuration.
    pub(crate) fn running(&self) -> Config {
        self.running.lock().clone()
    }

    /// Reloads the configuration and logs the result. Returns a report in JSON, or the reason why nothing has
    /// changed.
    pub(crate) async fn run(&self) -> Result<String, String> {
        let _turn = self.turn.lock().await;
        let outcome = self.reload().await;
        match &outcome {
            Ok(report) => {
                let Changes { applied, restart_needed, .. } = &report.changes;
                for warning in &report.warnings {
                    tracing::warn!("{warning}");
                }
                let (applied, restart_needed) = (applied.join(", "), restart_needed.join(", "));
                tracing::info!(applied, restart_needed, "the configuration was reloaded");
            }
            Err(mistakes) => {
                tracing::error!(mistakes, "the configuration was not reloaded; nothing has changed");
            }
        }
        outcome.map(|report| report.to_json())
    }

    async fn reload(&self) -> Result<Report, String> {
        let Some(parts) = self.parts.get() else { return Err("the server is starting".into()) };
        let (mut config, warnings) = (self.load)().map_err(|problems| problems.to_string())?;
        let changes = config.apply(&self.running());
        let prepared = Self::prepare(parts, config).map_err(|error| format!("{error:#}"))?;
        self.commit(parts, prepared, &changes).await.map_err(|error| format!("{error:#}"))?;
        Ok(Report { changes, warnings: warnings.iter().map(ToString::to_string).collect() })
    }

    /// Checks the new options of all parts, and opens and reads the files that they name.
    fn prepare(parts: &Parts, config: Config) -> anyhow::Result<Prepared> {
        let options = machine::options(&config);
        let admin_tls = options.admin_tls().map(|tls| TlsHandle::prepare(&tls)).transpose()?;
        let Options { edge, mut control, tls, .. } = options;
        machine::leave_idle_feeds_to_cluster(&config, &mut control);
        // The admin port keeps its actual address. A service manager may have opened it at another address
        // than the configured one, which may require a token.
        control.admin.listen = parts.admin_addr;
        // The warnings are ignored, because the warnings of the configuration include them.
        let tls = parts.tls.as_ref().map(|_| TlsHandle::prepare(&tls)).transpose()?;
        Ok(Prepared { edge, control: control.prepare()?, tls, admin_tls, config })
    }

    /// Applies the options to all parts. Only the first step can fail, if a file has changed since it was
    /// checked.
    async fn commit(&self, parts: &Parts, prepared: Prepared, changes: &Changes) -> anyhow::Result<()> {
        let Prepared { edge, control, tls, admin_tls, config } = prepared;
        if let (Some(auth), Some(options)) = (&parts.auth, config.auth_options()) {
            auth.replace(&options)?;
        }
        for (handle, tls) in [(&parts.tls, tls), (&parts.admin_tls, admin_tls)] {
            if let (Some(handle), Some(tls)) = (handle, tls) {
                handle.commit(tls);
            }
        }
        self.log.set(config.server.log_level);
        let (applied, all_cores) = oneshot::channel();
        parts.plane.configure(edge.session, Done::new(move |_| _ = applied.send(())));
        parts.control.configure(control).await;
        // An error means that a core has failed, so the process ends.
        let _ = all_cores.await;
        if parts.auth.is_some() && changes.concern_permissions() {
            // Checks all sessions again, because permissions may have been removed.
            let everybody = Recheck { filter: IdentityFilter::default(), action: RecheckAction::Authorize };
            let (looked_at, all_sessions) = oneshot::channel();
            parts.plane.recheck(everybody, Done::new(move |_| _ = looked_at.send(())));
            let _ = all_sessions.await;
        }
        *self.running.lock() = config;
        Ok(())
    }
}

impl Reload for Reloader {
    fn reload(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> {
        // The reload runs in a separate task, so that the end of the request doesn't stop it halfway.
        let task = tokio::spawn(async move { self.run().await });
        Box::pin(async move { task.await.unwrap_or_else(|error| Err(error.to_string())) })
    }
}

#[cfg(test)]
mod tests;
