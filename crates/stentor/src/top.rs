//! `stentor top`: the status of a running server in the terminal.

use crate::cli::TopArgs;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;
use stentor_control::ClientError;

const INTERVAL: Duration = Duration::from_secs(2);
/// Moves the cursor to the top left corner, and clears the screen after it.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = args.admin.client();
    let mut latest = Latest::default();
    let mut read = || {
        let (status, overview) = runtime.block_on(async {
            Ok::<_, ClientError>((client.status().await?, client.overview(latest.time_ms).await?))
        })?;
        latest.update(&overview);
        Ok::<_, ClientError>(page(&status, &latest))
    };
    let mut text = read()?;
    if args.once {
        io::stdout().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let mut out = io::stdout().lock();
        out.write_all(format!("{CLEAR}{text}").as_bytes())?;
        out.flush()?;
        drop(out);
        std::thread::sleep(INTERVAL);
        // After a failure, the loop continues, so that the status is shown again when the server has
        // restarted.
        text = read().unwrap_or_else(|error| printable(&format!("{error}\n")));
    }
}

/// The latest values of the time series, and the findings.
#[derive(Default)]
struct Latest {
    /// The Unix time of the latest sample, in milliseconds.
    time_ms: u64,
    /// For each series its chart's name, its own name, and its value with the unit.
    values: Vec<(String, String, String)>,
    /// For each finding its severity and text.
    findings: Vec<(String, String)>,
}

impl Latest {
    /// Takes over a response of `GET /api/v1/overview`. Without new samples, the values stay.
    fn update(&mut self, overview: &Value) {
        let text = |value: &Value| printable(value.as_str().unwrap_or_default());
        let findings = overview["findings"].as_array().into_iter().flatten();
        self.findings =
            findings.map(|finding| (text(&finding["severity"]), text(&finding["text"]))).collect();
        let Some(time_ms) = overview["times_ms"].as_array().and_then(|times| times.last()?.as_u64()) else {
            return;
        };
        self.time_ms = time_ms;
        self.values.clear();
        for chart in overview["charts"].as_array().into_iter().flatten() {
            for series in chart["series"].as_array().into_iter().flatten() {
                let value = series["values"].as_array().and_then(|values| values.last()?.as_f64());
                let value = value.map_or_else(|| "-".to_owned(), |value| with_unit(value, &chart["unit"]));
                self.values.push((text(&chart["name"]), text(&series["name"]), value));
            }
        }
    }
}

/// Returns the status as text: findings, the server, the latest values of the time series, then errors and feeds.
fn page(status: &Value, latest: &Latest) -> String {
    let mut text = String::new();
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let ready = if status["ready"] == true { "ready" } else { "not ready" };
    let version = printable(status["version"].as_str().unwrap_or_default());
    let mut line = |title: &str, value: String| _ = writeln!(text, "{title:<32} {value}");
    line("stentor", format!("{version}, {ready}, up {} s", status["uptime_seconds"]));
    for (severity, finding) in &latest.findings {
        line(severity, finding.clone());
    }
    let process = &status["process"];
    line("resident memory", bytes(number(&process["resident_bytes"])));
    line(
        "file descriptors",
        format!("{} of {}", process["file_descriptors"], process["file_descriptors_max"]),
    );

    let figures = &status["data_plane"];
    for name in ["connections", "sessions", "topics", "deliveries_pending"] {
        line(&words(name), figures[name].to_string());
    }
    let memory = figures["memory_bytes"].as_object();
    let used: f64 = memory.into_iter().flat_map(Map::values).map(number).sum();
    line("memory of clients", format!("{} of {}", bytes(used), bytes(number(&figures["memory_bytes_max"]))));
    for (chart, name, value) in &latest.values {
        line(&format!("{chart}: {name}"), value.clone());
    }
    for (label, value) in
        figures["disconnects"].as_object().into_iter().flatten().filter(|(_, v)| number(v) > 0.0)
    {
        line(&format!("disconnects: {}", words(label)), value.to_string());
    }
    for name in ["protocol_errors", "http_request_errors", "tokens_refused", "connections_refused"] {
        line(&words(name), figures[name].to_string());
    }
    let feeds = &status["feeds"];
    line("feeds", format!("{} live, {} stale, {} keys", feeds["live"], feeds["stale"], feeds["keys"]));
    for upstream in status["upstreams"].as_array().into_iter().flatten() {
        let name = words(upstream["name"].as_str().unwrap_or_default());
        let failure = match upstream["last_failure"]["message"].as_str() {
            Some(message) => {
                format!(", {} s ago: {}", upstream["last_failure"]["seconds_ago"], printable(message))
            }
            None => String::new(),
        };
        line(
            &format!("  feed: {name}"),
            format!("{} fetches, {} failures{failure}", upstream["fetches"], upstream["failures"]),
        );
    }
    text
}

/// Returns a value of the time series with its unit.
fn with_unit(value: f64, unit: &Value) -> String {
    match unit.as_str().unwrap_or_default() {
        "per_second" => format!("{value:.1}/s"),
        "bytes" => bytes(value),
        "bytes_per_second" => format!("{}/s", bytes(value)),
        "seconds" => format!("{:.1} ms", value * 1_000.0),
        "percent" => format!("{value:.1} %"),
        _ => format!("{value}"),
    }
}

/// Replaces control characters in external text, which may contain escape sequences of the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

fn words(name: &str) -> String {
    printable(name).replace('_', " ")
}

fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = if count < 1.0 { 0 } else { (count.log2() / 10.0) as usize }.min(units.len() - 1);
    format!("{:.1} {}", count / 1024_f64.powi(power as i32), units[power])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn overview(time_ms: u64, value: &Value) -> Value {
        json!({
            "times_ms": [1, time_ms],
            "charts": [
                {"name": "bytes", "unit": "bytes_per_second", "series": [{"name": "sent", "values": [1.0, value]}]},
                {"name": "latency", "unit": "seconds", "series": [{"name": "p99", "values": [null, 0.0125]}]},
            ],
            "findings": [{"severity": "error", "text": "The hook a is paused.\x1b"}],
        })
    }

    #[test]
    fn the_latest_values_and_the_findings_are_shown() {
        let mut latest = Latest::default();
        latest.update(&overview(7, &json!(2048.0)));
        let text = page(&json!({}), &latest);
        assert!(text.contains("\nerror                            The hook a is paused.?\n"), "{text}");
        assert!(text.contains("\nbytes: sent                      2.0 KiB/s\n"), "{text}");
        assert!(text.contains("\nlatency: p99                     12.5 ms\n"), "{text}");
        // A response without new samples.
        latest.update(&json!({"times_ms": [], "charts": [], "findings": []}));
        assert!(page(&json!({}), &latest).contains("bytes: sent                      2.0 KiB/s\n"));
        assert_eq!((latest.time_ms, latest.findings.len()), (7, 0));
        latest.update(&overview(9, &Value::Null));
        assert!(page(&json!({}), &latest).contains("bytes: sent                      -\n"));
    }

    #[test]
    fn external_text_cannot_control_the_terminal() {
        let failure = json!({"message": "\x1b[2Jgone\u{9b}31m\r", "seconds_ago": 1});
        let upstream = json!({"name": "\x1b]0;a\x07", "fetches": 1, "failures": 1, "last_failure": failure});
        let text = page(&json!({"upstreams": [upstream]}), &Latest::default());
        assert!(text.contains("?[2Jgone?31m?\n"), "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn bytes_have_units() {
        let shown = [0.0, 1023.0, 1024.0, 1_572_864.0, 1e30].map(bytes);
        assert_eq!(shown[..4], ["0.0 B", "1023.0 B", "1.0 KiB", "1.5 MiB"]);
        assert!(shown[4].ends_with(" TiB"));
    }
}
