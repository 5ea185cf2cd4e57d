//! Applies changes of the configuration while the server runs.
//!
//! ```text
//!  SIGHUP, POST /api/v1/reload ─► load ─► apply ─► prepare ─► commit
//!                                 every mistake    each part,   each part,
//!                                 at once          may fail     can't fail
//! ```
//!
//! All or nothing: what can fail is done in [`Reloader::prepare`], for all parts, before [`Reloader::commit`] changes the
//! first one. A part that has something to reload gets a field in [`Prepared`], which the one makes and the other applies.
//! Keys that need a restart keep their values ([`Config::apply`]), and are reported by each reload until then.
//!
//! **Invariants.** Reloads run one after the other. What [`Reloader::running`] returns applies.

use crate::config::options::Options;
use crate::config::{Changes, Config, Problems};
use crate::logging::LevelHandle;
use crate::machine;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use stentor_control::{Auth, ControlHandle, Reload};
use stentor_edge::{
    CommandInbox, Done, IdentityFilter, NodeHandle, PreparedTls, Recheck, RecheckAction, TlsHandle,
};
use tokio::sync::oneshot;

/// Reads the configuration again, with its warnings.
pub(crate) type Load = Box<dyn Fn() -> Result<(Config, Vec<String>), Problems> + Send + Sync>;

/// See the module's documentation.
pub(crate) struct Reloader {
    load: Load,
    log: LevelHandle,
    running: Mutex<Config>,
    /// Held by the reload that runs.
    turn: tokio::sync::Mutex<()>,
    /// The parts of the server, which start after the admin port has got its reference to this.
    parts: OnceLock<Parts>,
}

/// The parts that take options while they run.
pub(crate) struct Parts {
    /// Without the planes of clusters around it.
    pub(crate) plane: Arc<NodeHandle>,
    pub(crate) control: ControlHandle,
    pub(crate) admin_addr: SocketAddr,
    pub(crate) auth: Option<Arc<Auth>>,
    pub(crate) tls: Option<TlsHandle>,
    pub(crate) admin_tls: Option<TlsHandle>,
}

/// New options of all parts, checked.
struct Prepared {
    edge: stentor_edge::Options,
    control: stentor_control::Prepared,
    /// If the server speaks TLS.
    tls: Option<PreparedTls>,
    /// If the admin port does.
    admin_tls: Option<PreparedTls>,
    config: Config,
}

/// What a reload has done.
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
    /// For a server that is about to start as `running` says.
    pub(crate) fn new(running: Config, load: Load, log: LevelHandle) -> Arc<Self> {
        let (running, turn, parts) = (Mutex::new(running), tokio::sync::Mutex::default(), OnceLock::new());
        Arc::new(Self { load, log, running, turn, parts })
    }

    /// The server has started.
    pub(crate) fn started(&self, parts: Parts) {
        // It starts once.
        let _ = self.parts.set(parts);
    }

    /// The configuration that applies.
    pub(crate) fn running(&self) -> Config {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reloads, and logs what happened. The answer is for the caller: a report in JSON, or why nothing has changed.
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
        Ok(Report { changes, warnings })
    }

    /// Checks the new options of all parts, and opens and reads what they name.
    fn prepare(parts: &Parts, config: Config) -> anyhow::Result<Prepared> {
        let options = machine::options(&config);
        let admin_tls = options.admin_tls().map(|tls| TlsHandle::prepare(&tls)).transpose()?;
        let Options { edge, mut control, tls, .. } = options;
        machine::leave_idle_feeds_to_cluster(&config, &mut control);
        // A service manager may have opened it at another address, for which a token is required.
        control.admin.listen = parts.admin_addr;
        // Its warnings are among those of the configuration.
        let tls = parts.tls.as_ref().map(|_| TlsHandle::prepare(&tls)).transpose()?;
        Ok(Prepared { edge, control: control.prepare()?, tls, admin_tls, config })
    }

    /// Applies options to all parts. Only the first step can fail: if a file has changed since it was checked.
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
        parts.plane.configure(edge, Done::new(move |_| _ = applied.send(())));
        parts.control.configure(control).await;
        // If a core has failed, the process ends anyway.
        let _ = all_cores.await;
        if parts.auth.is_some() && changes.concern_permissions() {
            // What was allowed before may not be any more.
            let everybody = Recheck { filter: IdentityFilter::default(), action: RecheckAction::Authorize };
            let (looked_at, all_sessions) = oneshot::channel();
            parts.plane.recheck(everybody, Done::new(move |_| _ = looked_at.send(())));
            let _ = all_sessions.await;
        }
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }
}

impl Reload for Reloader {
    fn reload(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> {
        // A task of its own: the end of the request doesn't stop it half way.
        let task = tokio::spawn(async move { self.run().await });
        Box::pin(async move { task.await.unwrap_or_else(|error| Err(error.to_string())) })
    }
}

#[cfg(test)]
mod tests;
