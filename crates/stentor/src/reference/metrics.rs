//! docs/metrics.md, generated from a sample of `/metrics`.

use super::sentence;
use crate::{build_info, cluster, logging};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use stentor_control::{Signals, sample_metrics};
use stentor_ports::DataPlane;

const HEAD: &str = "\
# Metrics

<!-- Generated from the metrics' definitions and crates/stentor/src/reference/metrics.rs; a test compares. To generate it again:
     cargo run -p stentor -- reference metrics > docs/metrics.md -->

`GET /metrics` on the admin port answers in the OpenMetrics text format. [Operate](operate.md#metrics) has the configuration of
Prometheus.

- If a metric has the label `core`, sum over it.
- Some metrics with the label `upstream`, `outcome` or `reason` appear with their first event.
- A histogram has the series `…_bucket`, `…_sum` and `…_count`.
";

/// Metrics on which to alert, each with the condition.
const ALERTS: [(&str, &str); 30] = [
    ("process_open_fds", "above 80 % of `process_max_fds`"),
    ("process_resident_memory_bytes", "above 80 % of the container's limit"),
    ("stentor_connections", "above 80 % of `limits.connections_max` or of your capacity"),
    ("stentor_connections_refused_total", "any increase"),
    ("stentor_connections_evicted_total", "any increase"),
    ("stentor_disconnects_total", "the reasons `slow_consumer`, `overloaded` or `heartbeat_timeout` rise"),
    ("stentor_protocol_errors_total", "a sudden rise"),
    ("stentor_origins_refused_total", "any increase after a deployment"),
    ("stentor_deliveries_dropped_total", "a sudden rise"),
    ("stentor_delivery_seconds", "p99 above what your users notice"),
    ("stentor_turn_yields_total", "a sudden rise"),
    ("stentor_memory_overloads_total", "any increase"),
    ("stentor_feed_keys", "state `stale` above 0 for minutes"),
    ("stentor_feed_fetches_total", "outcomes that begin with `failed_`"),
    ("stentor_feed_failing_keys", "above 0 for minutes"),
    ("stentor_feed_fetch_seconds", "p99 near the `timeout` of the feed"),
    ("stentor_feed_waiting_keys", "above 0 for minutes"),
    ("stentor_admin_publish_refusals_total", "the reason `busy` rises"),
    ("stentor_link_workers", "state `up` below the number of workers that you run"),
    ("stentor_link_sessions_lost_total", "any increase"),
    ("stentor_link_workers_refused_total", "any increase"),
    ("stentor_link_cluster_conflicts", "above 0"),
    ("stentor_cluster_engine_up", "0"),
    ("stentor_cluster_frames_refused_total", "any increase"),
    ("stentor_cluster_nodes", "below the number of nodes that you run"),
    ("stentor_bridge_up", "0"),
    ("stentor_bridge_messages_dropped_total", "any increase"),
    ("stentor_bridge_messages_refused_total", "any increase"),
    ("stentor_mailbox_waits_total", "a constant rise"),
    ("stentor_log_lines_dropped_total", "any increase"),
];

/// The page's tables, with the prefixes of their metrics. A metric is in the first table with a matching
/// prefix.
const SECTIONS: [(&str, &[&str]); 8] = [
    ("Process", &["process_", "stentor_build_", "stentor_log_", "stentor_access_log_"]),
    ("Memory", &["stentor_memory_"]),
    ("Feeds", &["stentor_feed_"]),
    ("Admin port", &["stentor_admin_", "stentor_inbox_", "stentor_mailbox_waits"]),
    ("Workers of applications, with `[[links]]`", &["stentor_link_"]),
    ("Cluster, if `[cluster]` has an engine", &["stentor_cluster_"]),
    ("Namespaces shared with Socket.IO's servers, with `[[cluster.socketio]]`", &["stentor_bridge_"]),
    ("Clients and deliveries", &[""]),
];

pub(super) fn markdown() -> anyhow::Result<String> {
    let node = stentor_edge::idle(stentor_edge::Options::default(), Signals::new());
    let mut data_plane = DataPlane::new(node);
    cluster::add_all_metrics(&mut data_plane)?;
    data_plane.metrics.push(stentor_workers::sample_metrics());
    data_plane.metrics.push(build_info::metric("epoll"));
    let text = sample_metrics(data_plane, logging::dropped_lines(|| 0, || 0))?;
    let metrics = parse(&text);
    let mut page = String::from(HEAD);
    write!(page, "\n## Alerts\n\n| metric | alert when | meaning |\n|---|---|---|\n")?;
    for (name, when) in ALERTS {
        let help = metrics.iter().find(|metric| metric.name() == name).map_or("", |metric| metric.help);
        writeln!(page, "| `{name}` | {when} | {} |", sentence(help))?;
    }
    for (n, (title, _)) in SECTIONS.iter().enumerate() {
        write!(page, "\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")?;
        for metric in metrics.iter().filter(|metric| metric.section() == Some(n)) {
            let labels: Vec<_> = metric.labels.iter().map(|(label, values)| shown(label, values)).collect();
            let (name, kind, help) = (metric.name(), metric.kind, sentence(metric.help));
            writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join("; "))?;
        }
    }
    Ok(page)
}

/// Formats a label, with its values if the sample has several.
fn shown(label: &str, values: &BTreeSet<&str>) -> String {
    if values.len() < 2 {
        return format!("`{label}`");
    }
    let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
    format!("`{label}`: {}", values.join(", "))
}

#[derive(Default)]
struct Metric<'a> {
    /// The metric's name in the `# TYPE` line.
    family: &'a str,
    kind: &'a str,
    help: &'a str,
    labels: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl Metric<'_> {
    /// Returns the name that queries use.
    fn name(&self) -> String {
        let suffix = if self.kind == "counter" { "_total" } else { "" };
        format!("{}{suffix}", self.family)
    }

    fn section(&self) -> Option<usize> {
        let is_in = |prefixes: &[&str]| prefixes.iter().any(|prefix| self.family.starts_with(prefix));
        SECTIONS.iter().position(|(_, prefixes)| is_in(prefixes))
    }
}

/// Parses the metrics in OpenMetrics text. Label values have neither commas nor braces.
fn parse(text: &str) -> Vec<Metric<'_>> {
    let mut all: Vec<Metric<'_>> = Vec::new();
    for line in text.lines() {
        if let Some((family, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            all.push(Metric { family, help, ..Metric::default() });
            continue;
        }
        let Some(metric) = all.last_mut() else { continue };
        if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            metric.kind = kind;
        } else if let Some((_, rest)) = line.split_once('{')
            && let Some((labels, _)) = rest.split_once('}')
        {
            let labels = labels.split(',').filter_map(|label| label.split_once('='));
            for (label, value) in labels.filter(|(label, _)| *label != "le") {
                metric.labels.entry(label).or_default().insert(value.trim_matches('"'));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_name_metrics_that_exist() {
        let page = markdown().unwrap();
        for (name, _) in ALERTS {
            // The metric is once in the table of alerts, and once in a table of metrics.
            assert_eq!(page.matches(&format!("\n| `{name}` | ")).count(), 2, "{name}");
        }
    }
}
