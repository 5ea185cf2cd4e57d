//! The accepted issuers of tokens, and their keys.

use super::fetch::{FetchError, fetch, key_client, parse_url};
use super::metrics::{AuthMetrics, FetchLabels, IssuerLabels};
use super::options::{AuthOptions, IssuerOptions};
use super::schedule::Schedule;
use crate::error::Error;
use crate::upstream::HttpClient;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::Uri;
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::gauge::Gauge;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stentor_auth::{Issuer, Key, KeySet};
use stentor_ports::{IdentityReply, ProxyUser};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Minimum time between two log lines about failures of the same kind.
const LOG_INTERVAL: Duration = Duration::from_secs(600);

/// A client that waits for the key of its token.
pub(super) struct Waiting {
    pub(super) reply: IdentityReply,
    pub(super) token: Box<str>,
    /// The user that an authenticating proxy names beside the token.
    pub(super) user: Option<ProxyUser>,
    /// The gauge of waiting clients.
    gauge: Gauge,
}

impl Waiting {
    pub(super) fn new(
        reply: IdentityReply,
        token: &str,
        user: Option<&ProxyUser>,
        metrics: &AuthMetrics,
    ) -> Self {
        metrics.waiting.inc();
        Self { reply, token: token.into(), user: user.cloned(), gauge: metrics.waiting.clone() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// An issuer with its keys.
pub(super) struct IssuerState {
    pub(super) rules: Issuer,
    keys: RwLock<Arc<[Key]>>,
    pub(super) remote: Option<Remote>,
}

/// The remote source of an issuer's keys.
pub(super) struct Remote {
    url: Uri,
    client: HttpClient<Empty<Bytes>>,
    schedule: Mutex<Schedule<Waiting>>,
    /// Notified when a token begins to wait.
    wake: Notify,
}

/// A finished fetch of keys.
pub(super) struct Fetched {
    /// The clients that have waited for the fetch.
    pub(super) waiting: Vec<Waiting>,
    pub(super) is_success: bool,
    /// `true` if the keys have changed.
    pub(super) has_changed: bool,
}

/// The issuers by name, of one configuration.
#[derive(Default)]
pub(super) struct Issuers(HashMap<Arc<str>, Arc<IssuerState>>);

impl Issuers {
    /// Checks the options. Unchanged issuers keep the fetched keys that they have in `before`.
    pub(super) fn new(options: &AuthOptions, before: &Self) -> Result<Self, Error> {
        let mut all = HashMap::new();
        let urls = options.issuers.iter().filter_map(|issuer| issuer.jwks_url.as_deref());
        let secure = urls.clone().any(|url| url.starts_with("https"));
        let client = match urls.count() {
            0 => None,
            _ => Some(key_client(options.ca_file.as_deref(), secure)?),
        };
        for issuer in &options.issuers {
            let state = IssuerState::new(issuer, options, client.as_ref())?;
            let known = before.find(&issuer.name).filter(|known| known.is_like(&state)).cloned();
            all.insert(issuer.name.as_str().into(), known.unwrap_or_else(|| Arc::new(state)));
        }
        Ok(Self(all))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<IssuerState>> {
        self.0.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<IssuerState>> {
        self.0.values()
    }

    /// Returns `true` if the set contains this very value, not only an issuer with this name.
    pub(super) fn has(&self, issuer: &Arc<IssuerState>) -> bool {
        self.iter().any(|other| Arc::ptr_eq(other, issuer))
    }

    /// Returns the name of the issuer if there is exactly one.
    pub(super) fn only(&self) -> Option<&Arc<str>> {
        self.0.keys().next().filter(|_| self.0.len() == 1)
    }
}

impl IssuerState {
    fn new(
        issuer: &IssuerOptions,
        options: &AuthOptions,
        client: Option<&HttpClient<Empty<Bytes>>>,
    ) -> Result<Self, Error> {
        let remote = match (&issuer.jwks_url, client) {
            (Some(url), Some(client)) => Some(Remote {
                url: parse_url(url).map_err(|text| Error::setting("auth.issuers.jwks_url", text))?,
                client: client.clone(),
                schedule: Mutex::new(Schedule::new(Instant::now().into_std(), options.jwks_refresh_interval)),
                wake: Notify::new(),
            }),
            _ => None,
        };
        let rules = Issuer {
            name: issuer.name.as_str().into(),
            audience: issuer.audience.as_deref().map(Into::into),
            algorithms: issuer.algorithms.clone(),
            leeway_seconds: options.leeway.as_secs(),
            lifetime_seconds_max: options.token_lifetime_max.as_secs(),
        };
        Ok(Self { rules, keys: RwLock::new(issuer.keys.clone().into()), remote })
    }

    fn is_like(&self, other: &Self) -> bool {
        let url = |state: &Self| state.remote.as_ref().map(|remote| remote.url.clone());
        let same_source = match url(self) {
            None => url(other).is_none() && self.keys() == other.keys(),
            own => own == url(other),
        };
        self.rules == other.rules && same_source
    }

    /// Returns the known keys.
    pub(super) fn keys(&self) -> Arc<[Key]> {
        self.keys.read().clone()
    }

    /// Makes a client wait for a fetch of the keys. Returns `false` if no fetch is possible now.
    pub(super) fn wait(&self, waiting: Waiting) -> bool {
        let Some(remote) = &self.remote else { return false };
        let waits = remote.schedule.lock().wait(Instant::now().into_std(), waiting).is_ok();
        if waits {
            remote.wake.notify_one();
        }
        waits
    }

    /// Waits until a fetch of the keys is due, then fetches. Returns `None` if the keys are part of the
    /// configuration.
    pub(super) async fn next_fetch(&self, metrics: &AuthMetrics, log: &mut FailureLog) -> Option<Fetched> {
        let remote = self.remote.as_ref()?;
        while !remote.schedule.lock().poll_fetch(Instant::now().into_std()) {
            let due_at = remote.schedule.lock().poll_timeout().into();
            tokio::select! {
                () = tokio::time::sleep_until(due_at) => {}
                () = remote.wake.notified() => {}
            }
        }
        let issuer = &self.rules.name;
        let outcome = fetch(&remote.client, &remote.url).await;
        let label = outcome.as_ref().map_or_else(FetchError::label, |_| "ok");
        metrics.fetches.get_or_create(&FetchLabels { issuer: issuer.clone(), outcome: label }).inc();
        log.record(issuer, &outcome, self.keys().len());
        let is_success = outcome.is_ok();
        let has_changed = outcome.is_ok_and(|set| self.replace_keys(set));
        let known = i64::try_from(self.keys().len()).unwrap_or(i64::MAX);
        metrics.keys.get_or_create(&IssuerLabels { issuer: issuer.clone() }).set(known);
        let waiting = remote.schedule.lock().handle_result(Instant::now().into_std(), is_success);
        Some(Fetched { waiting, is_success, has_changed })
    }

    /// Stops fetching keys. Returns the clients that wait for them.
    pub(super) fn give_up(&self) -> Fetched {
        let remote = self.remote.as_ref();
        let waiting =
            remote.map(|remote| remote.schedule.lock().handle_result(Instant::now().into_std(), false));
        Fetched { waiting: waiting.unwrap_or_default(), is_success: false, has_changed: false }
    }

    fn replace_keys(&self, set: KeySet) -> bool {
        let mut keys = self.keys.write();
        let changed = **keys != *set.keys;
        *keys = set.keys.into();
        changed
    }
}

/// Logs failing fetches of an issuer's keys: at once when they begin to fail or fail for another cause, again
/// after [`LOG_INTERVAL`], and when they succeed again.
#[derive(Default)]
pub(super) struct FailureLog {
    logged: Option<(&'static str, Instant)>,
    has_succeeded: bool,
}

impl FailureLog {
    fn record(&mut self, issuer: &str, outcome: &Result<KeySet, FetchError>, known: usize) {
        let now = Instant::now();
        match outcome {
            Ok(set) => {
                if self.logged.take().is_some() || !self.has_succeeded {
                    let (keys, skipped) = (set.keys.len(), set.skipped);
                    tracing::info!(issuer, keys, skipped, "the keys of an issuer of tokens are known");
                }
                self.has_succeeded = true;
            }
            Err(error) => {
                let is_new = |(label, at): (&str, Instant)| {
                    label != error.label() || now.duration_since(at) >= LOG_INTERVAL
                };
                if self.logged.is_none_or(is_new) {
                    self.logged = Some((error.label(), now));
                    let effect = match known {
                        0 => "clients with its tokens can't connect",
                        _ => "the known keys stay in use",
                    };
                    tracing::warn!(issuer, %error, known, "can't fetch the keys of an issuer of tokens: {effect}");
                }
            }
        }
    }
}
