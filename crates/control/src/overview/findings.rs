//! Findings about current problems: a pure function from [`Readings`] to findings.
//!
//! Each finding names a document that helps. The binary serves these documents on the admin port.

use super::readings::{Deliveries, FailingUpstream, Readings};
use serde::Serialize;

/// Maximum number of findings of one kind. A further finding says how many are left out.
const KIND_MAX: usize = 5;
/// The shares above which memory and file descriptors are reported, in percent.
const FULL_PERCENT: u64 = 80;
/// The time before its expiry from which a certificate is reported.
const CERTIFICATE_DAYS: u64 = 10;
const DAY_SECONDS: u64 = 86_400;
/// The share of dropped deliveries from which they are reported, in percent. Single ones are the normal result of volatile messages.
const DROPPED_PERCENT: u128 = 1;
/// The share of one address in a core's sessions from which it is reported, in percent.
const ADDRESS_SHARE_PERCENT: u64 = 50;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// Clients are affected now.
    Error,
    /// Clients will be affected if nothing is done.
    Warning,
}

use Severity::{Error, Warning};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    severity: Severity,
    code: &'static str,
    text: String,
    /// Path of the document that helps, with the anchor of its section.
    document: &'static str,
}

const HOOKS: &str = "docs/hooks.html#when-a-hook-doesnt-answer";
const FEEDS: &str = "docs/feeds.html#when-a-fetch-fails";
const CLUSTER: &str = "docs/cluster.html#operate";
const BRIDGE: &str = "docs/cluster.html#sharing-rooms-with-socketios-own-servers";
const WORKERS: &str = "docs/deploys.html#workers";
const MEMORY: &str = "docs/operate.html#memory";
const CERTIFICATES: &str = "docs/tls.html#limits";
const ADDRESS: &str = "docs/limits.html#the-clients-address";
const DESCRIPTORS: &str = "docs/operate.html#capacity";
const DRAIN: &str = "docs/deploys.html#drain";
const SLOW_CLIENTS: &str = "docs/operate.html#slow-clients";

/// The documents to which findings refer, with anchors.
pub const DOCUMENTS: [&str; 11] =
    [HOOKS, FEEDS, CLUSTER, BRIDGE, WORKERS, MEMORY, CERTIFICATES, ADDRESS, DESCRIPTORS, DRAIN, SLOW_CLIENTS];

/// Returns the findings, the most severe first.
pub(super) fn findings(readings: &Readings) -> Vec<Finding> {
    let mut all = List(Vec::new());
    if let Some(seconds) = readings.engine_away_seconds {
        let text = format!(
            "The cluster's engine has been unreachable for {}. Clients of different nodes don't receive each other's messages.",
            duration(seconds)
        );
        all.add(Error, "engine_away", CLUSTER, text);
    }
    all.each(Error, "upstream_failing", FEEDS, &readings.failing_upstreams, |upstream| {
        let FailingUpstream { name, keys, key, seconds, message } = upstream;
        let time = duration(*seconds);
        match key {
            Some(key) => {
                format!("The feed {key} of the upstream {name} has been failing for {time}. Last failure: {message}.")
            }
            None => {
                let keys = count(*keys, "key");
                format!("The upstream {name} has been failing for {time}: {keys}. Last failure: {message}.")
            }
        }
    });
    all.each(Error, "hook_paused", HOOKS, &readings.paused_hooks, |hook| {
        format!(
            "The hook {hook} is paused, because its requests fail. Its `when_unavailable` decides for it."
        )
    });
    all.each(Error, "worker_lost", WORKERS, &readings.lost_workers, |(app, worker)| {
        format!("The worker {worker} of the application {app} is disconnected. Its sessions wait for it, or for another worker.")
    });
    all.each(Error, "bridge_lost", BRIDGE, &readings.lost_bridges, |redis| {
        format!("The Redis {redis} is disconnected. Socket.IO's own servers and this node don't receive each other's messages.")
    });
    all.each(Warning, "certificate_expires", CERTIFICATES, &readings.certificates, |(file, expires_at)| {
        let now = readings.unix_ms / 1_000;
        match expires_at.checked_sub(now) {
            Some(left) if left > CERTIFICATE_DAYS * DAY_SECONDS => String::new(),
            Some(left) => format!("The certificate {file} expires in {}.", duration(left)),
            None => format!("The certificate {file} expired {} ago.", duration(now - expires_at)),
        }
    });
    if let Some(percent) = above(readings.memory.0, readings.memory.1) {
        let text = format!(
            "Memory for clients is at {percent} % of `limits.memory_bytes_max`. Above 95 %, the server refuses new clients."
        );
        all.add(Warning, "memory", MEMORY, text);
    }
    let (open, open_max) = readings.descriptors;
    if let Some(percent) = above(open as u64, open_max as u64) {
        let text = format!(
            "{percent} % of the {open_max} file descriptors are open. Raise the limit (`ulimit -n`)."
        );
        all.add(Warning, "file_descriptors", DESCRIPTORS, text);
    }
    let Deliveries { due, dropped, slow_consumers } = readings.flow;
    if slow_consumers > 0 {
        let text = format!(
            "{} disconnected in the last minute, because of slow reading: more than `limits.send_buffer_bytes_max` was queued.",
            if slow_consumers == 1 {
                "1 client was".into()
            } else {
                format!("{slow_consumers} clients were")
            }
        );
        all.add(Warning, "slow_clients", SLOW_CLIENTS, text);
    }
    let percent = (u128::from(dropped) * 100).checked_div(due.into()).unwrap_or(0);
    if percent >= DROPPED_PERCENT {
        let text = format!(
            "{percent} % of the last minute's deliveries were dropped ({dropped}): they were volatile, or clients with the policy \
             `drop_oldest` read too slowly."
        );
        all.add(Warning, "deliveries_dropped", SLOW_CLIENTS, text);
    }
    if readings.address_share_percent > ADDRESS_SHARE_PERCENT {
        let percent = readings.address_share_percent;
        let text = format!(
            "One address has {percent} % of a core's sessions. If it is a proxy, add it to `proxies.trusted`."
        );
        all.add(Warning, "one_address", ADDRESS, text);
    }
    if readings.is_draining {
        all.add(Warning, "draining", DRAIN, "The server shuts down. Its clients move to other nodes.".into());
    }
    all.0
}

struct List(Vec<Finding>);

impl List {
    fn add(&mut self, severity: Severity, code: &'static str, document: &'static str, text: String) {
        self.0.push(Finding { severity, code, text, document });
    }

    /// Adds a finding for each thing. An empty text is no finding.
    fn each<T>(
        &mut self,
        severity: Severity,
        code: &'static str,
        document: &'static str,
        things: &[T],
        text: impl Fn(&T) -> String,
    ) {
        let texts: Vec<_> = things.iter().map(text).filter(|text| !text.is_empty()).collect();
        let more = texts.len().saturating_sub(KIND_MAX);
        for text in texts.into_iter().take(KIND_MAX) {
            self.add(severity, code, document, text);
        }
        if more > 0 {
            self.add(severity, code, document, format!("The same holds for {more} more."));
        }
    }
}

/// Returns the share in percent, if it is above [`FULL_PERCENT`].
fn above(used: u64, max: u64) -> Option<u64> {
    let percent = (u128::from(used) * 100).checked_div(max.into())?;
    u64::try_from(percent).ok().filter(|percent| *percent > FULL_PERCENT)
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / DAY_SECONDS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the codes and texts of the findings.
    fn check(readings: Readings, expect: &[(&str, &str)]) {
        let found = findings(&readings);
        let found: Vec<_> = found.iter().map(|finding| (finding.code, finding.text.as_str())).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn nothing_is_wrong() {
        check(Readings::default(), &[]);
        check(
            Readings {
                unix_ms: 1_000_000,
                memory: (80, 100),
                descriptors: (8, 10),
                address_share_percent: 50,
                certificates: vec![("a.pem".into(), 1_000 + 10 * DAY_SECONDS + 1)],
                ..Readings::default()
            },
            &[],
        );
    }

    #[test]
    fn each_finding_names_what_is_wrong() {
        let none = Readings::default;
        check(
            Readings { engine_away_seconds: Some(300), ..none() },
            &[(
                "engine_away",
                "The cluster's engine has been unreachable for 5 minutes. Clients of different nodes don't receive each other's messages.",
            )],
        );
        let upstream = |keys, key: Option<&str>| {
            let key = key.map(Into::into);
            FailingUpstream { name: "api".into(), keys, key, seconds: 61, message: "503".into() }
        };
        for (keys, key, expect) in [
            (2, None, "The upstream api has been failing for 61 s: 2 keys. Last failure: 503."),
            (1, None, "The upstream api has been failing for 61 s: 1 key. Last failure: 503."),
            (
                1,
                Some("news/1"),
                "The feed news/1 of the upstream api has been failing for 61 s. Last failure: 503.",
            ),
        ] {
            let failing_upstreams = vec![upstream(keys, key)];
            check(Readings { failing_upstreams, ..none() }, &[("upstream_failing", expect)]);
        }
        let flow = |due, dropped, slow_consumers| Readings {
            flow: Deliveries { due, dropped, slow_consumers },
            ..none()
        };
        check(flow(1_000, 9, 0), &[]);
        check(
            flow(1_000, 25, 0),
            &[(
                "deliveries_dropped",
                "2 % of the last minute's deliveries were dropped (25): they were volatile, or clients with the policy \
                 `drop_oldest` read too slowly.",
            )],
        );
        check(
            flow(1_000, 0, 2),
            &[(
                "slow_clients",
                "2 clients were disconnected in the last minute, because of slow reading: more than \
                 `limits.send_buffer_bytes_max` was queued.",
            )],
        );
        check(
            Readings { paused_hooks: vec!["auth".into()], ..none() },
            &[(
                "hook_paused",
                "The hook auth is paused, because its requests fail. Its `when_unavailable` decides for it.",
            )],
        );
        check(
            Readings { lost_workers: vec![("chat".into(), "chat@1".into())], ..none() },
            &[(
                "worker_lost",
                "The worker chat@1 of the application chat is disconnected. Its sessions wait for it, or for another worker.",
            )],
        );
        check(
            Readings { lost_bridges: vec!["redis:6379".into()], ..none() },
            &[(
                "bridge_lost",
                "The Redis redis:6379 is disconnected. Socket.IO's own servers and this node don't receive each other's messages.",
            )],
        );
        check(
            Readings { memory: (81, 100), ..none() },
            &[(
                "memory",
                "Memory for clients is at 81 % of `limits.memory_bytes_max`. Above 95 %, the server refuses new clients.",
            )],
        );
        check(
            Readings { descriptors: (81, 100), ..none() },
            &[(
                "file_descriptors",
                "81 % of the 100 file descriptors are open. Raise the limit (`ulimit -n`).",
            )],
        );
        check(
            Readings { address_share_percent: 90, ..none() },
            &[(
                "one_address",
                "One address has 90 % of a core's sessions. If it is a proxy, add it to `proxies.trusted`.",
            )],
        );
        check(
            Readings { is_draining: true, ..none() },
            &[("draining", "The server shuts down. Its clients move to other nodes.")],
        );
    }

    #[test]
    fn certificates_are_reported_ten_days_before_their_expiry() {
        let now = 1_000_000;
        let at = |expires_at| ("a.pem".to_owned(), expires_at);
        let certificates = vec![at(now + 11 * DAY_SECONDS), at(now + 9 * DAY_SECONDS), at(now), at(now - 60)];
        check(
            Readings { unix_ms: now * 1_000, certificates, ..Readings::default() },
            &[
                ("certificate_expires", "The certificate a.pem expires in 9 days."),
                ("certificate_expires", "The certificate a.pem expires in 0 s."),
                ("certificate_expires", "The certificate a.pem expired 60 s ago."),
            ],
        );
    }

    #[test]
    fn many_findings_of_one_kind_are_counted() {
        let hooks = (0..8).map(|n| n.to_string()).collect();
        let found = findings(&Readings { paused_hooks: hooks, ..Readings::default() });
        assert_eq!(found.len(), KIND_MAX + 1);
        assert_eq!(found[KIND_MAX].text, "The same holds for 3 more.");
    }

    #[test]
    fn errors_precede_warnings() {
        let readings = Readings {
            is_draining: true,
            memory: (100, 100),
            paused_hooks: vec!["auth".into()],
            ..Readings::default()
        };
        let found: Vec<_> = findings(&readings).into_iter().map(|finding| finding.severity).collect();
        assert_eq!(found, [Error, Warning, Warning]);
    }
}
