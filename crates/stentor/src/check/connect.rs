//! `stentor check --connect`: tries each upstream, hook, issuer and engine once, all at the same time, and describes the results.

use crate::cluster;
use crate::config::Config;
use crate::config::options::Options;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stentor_control::{FeedsOptions, UpstreamOptions};
use stentor_edge::{TlsHandle, TlsOptions};
use tokio::task::JoinSet;

/// Maximum time of an attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of attempts at the same time.
const ATTEMPTS_MAX: usize = 64;
/// Remaining validity of a certificate below which an attempt fails.
const VALIDITY_MIN: Duration = Duration::from_secs(24 * 3600);
const DAY_SECONDS: u64 = 24 * 3600;

/// The result of an attempt.
pub(super) struct Attempt {
    kind: &'static str,
    name: String,
    /// A description of the response, or the reason why there is none.
    outcome: Result<String, String>,
}

impl Attempt {
    pub(super) fn has_failed(&self) -> bool {
        self.outcome.is_err()
    }

    pub(super) fn to_json(&self) -> Value {
        let Self { kind, name, outcome } = self;
        let (Ok(text) | Err(text)) = outcome;
        json!({ "kind": kind, "name": name, "ok": outcome.is_ok(), "message": text })
    }
}

/// Tries all connections. Returns the attempts in the order of the configuration.
pub(super) async fn run(config: &Config) -> Vec<Attempt> {
    let Options { edge, control, cluster, hooks, tls, admin_certificate, .. } = config.options();
    let mut attempts = Attempts::default();
    for upstream in &control.feeds.upstreams {
        let options = FeedsOptions { upstreams: vec![upstream.clone()], ..control.feeds.clone() };
        attempts.add("upstream", upstream.name.clone(), reach_upstream(options)).await;
    }
    for hook in hooks {
        attempts.add("hook", hook.name.clone(), async move { hook.reach().await }).await;
    }
    if let Some(auth) = config.auth_options() {
        for issuer in auth.issuers {
            let (Some(url), ca_file) = (issuer.jwks_url, auth.ca_file.clone()) else { continue };
            attempts.add("issuer", issuer.name, reach_issuer(url, ca_file)).await;
        }
    }
    for (kind, name, attempt) in cluster::attempts(cluster, &edge) {
        attempts.add(kind, name, attempt).await;
    }
    let mut all = attempts.finish().await;
    let files = tls.certificates.into_iter().chain([admin_certificate]);
    all.extend(files.filter(|files| !files.certificate.as_os_str().is_empty()).map(|files| {
        let name = files.certificate.display().to_string();
        let options = TlsOptions { certificates: vec![files], ticket_secret_file: None };
        Attempt { kind: "certificate", name, outcome: validity(&options) }
    }));
    all
}

/// The attempts in progress.
#[derive(Default)]
struct Attempts {
    running: JoinSet<(usize, Attempt)>,
    ended: Vec<(usize, Attempt)>,
    count: usize,
}

impl Attempts {
    /// Starts an attempt, which ends within [`ATTEMPT_TIMEOUT`]. Waits while [`ATTEMPTS_MAX`] are in progress.
    async fn add(
        &mut self,
        kind: &'static str,
        name: String,
        attempt: impl Future<Output = Result<String, String>> + Send + 'static,
    ) {
        if self.running.len() >= ATTEMPTS_MAX {
            self.join().await;
        }
        let number = self.count;
        self.count += 1;
        self.running.spawn(async move {
            let late = |_| Err(format!("no answer within {ATTEMPT_TIMEOUT:?}"));
            let outcome = tokio::time::timeout(ATTEMPT_TIMEOUT, attempt).await.unwrap_or_else(late);
            (number, Attempt { kind, name, outcome })
        });
    }

    /// Waits for the next end of an attempt. Returns `false` if none is in progress.
    async fn join(&mut self) -> bool {
        let joined = self.running.join_next().await;
        let is_some = joined.is_some();
        self.ended.extend(joined.and_then(Result::ok));
        is_some
    }

    async fn finish(mut self) -> Vec<Attempt> {
        while self.join().await {}
        self.ended.sort_by_key(|(number, _)| *number);
        self.ended.into_iter().map(|(_, attempt)| attempt).collect()
    }
}

/// Fetches one key of a feed. If the configuration names no key, the key is made up, so a missing document is no failure.
async fn reach_upstream(options: FeedsOptions) -> Result<String, String> {
    let (key, is_made_up) = options.upstreams.first().map(sample_key).unwrap_or_default();
    let probe = stentor_control::probe(&options, &key).await.map_err(|error| error.to_string())?;
    match probe.status {
        _ if probe.has_document => Ok(probe.summary),
        Some(400 | 404 | 410 | 422) if is_made_up => {
            Ok(format!("{} (the key {key:?} is made up; try a real one with --fetch KEY)", probe.summary))
        }
        _ => Err(probe.summary),
    }
}

/// Returns a key that the upstream serves. `true` means that it may not exist.
fn sample_key(upstream: &UpstreamOptions) -> (String, bool) {
    if upstream.key.is_empty() {
        return (format!("{}0", upstream.prefix), true);
    }
    let mut key = String::new();
    for (n, part) in upstream.key.split('{').enumerate() {
        match part.split_once('}').filter(|_| n > 0) {
            Some((_, rest)) => key.extend(["0", rest]),
            None => key.push_str(part),
        }
    }
    let is_made_up = key != upstream.key;
    (key, is_made_up)
}

async fn reach_issuer(url: String, ca_file: Option<std::path::PathBuf>) -> Result<String, String> {
    let (keys, skipped) = stentor_control::reach_issuer(&url, ca_file.as_deref()).await?;
    Ok(format!("{keys} keys, and {skipped} that can't verify tokens"))
}

/// Describes the validity of a certificate.
fn validity(options: &TlsOptions) -> Result<String, String> {
    let (handle, _) = TlsHandle::load(options).map_err(|error| error.to_string())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = handle.expiries().into_iter().map(|(_, expiry)| expiry).min().unwrap_or_default();
    let left = first.saturating_sub(now);
    match left.as_secs() / DAY_SECONDS {
        _ if left.is_zero() => Err("the certificate has expired: renew it".into()),
        _ if left < VALIDITY_MIN => Err("the certificate expires within a day: renew it".into()),
        days => Ok(format!("valid for {days} days")),
    }
}

/// Writes the list.
pub(super) fn write(text: &mut String, attempts: &[Attempt]) {
    let title = if attempts.is_empty() { "\nNothing to connect to.\n" } else { "\nConnections:\n" };
    text.push_str(title);
    for Attempt { kind, name, outcome } in attempts {
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        let (Ok(message) | Err(message)) = outcome;
        // Writing to a string can't fail.
        _ = writeln!(text, "  {word:<6} {kind} {name}: {message}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_placeholders_is_real() {
        let check = |prefix: &str, key: &str, expect: (&str, bool)| {
            let options = UpstreamOptions { prefix: prefix.into(), key: key.into(), ..Default::default() };
            assert_eq!(sample_key(&options), (expect.0.to_owned(), expect.1), "{prefix:?} {key:?}");
        };
        check("", "", ("0", true));
        check("scores/", "", ("scores/0", true));
        check("", "table", ("table", false));
        check("", "match/{id}/{part}.json", ("match/0/0.json", true));
    }
}
