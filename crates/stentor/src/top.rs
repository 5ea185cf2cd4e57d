//! `stentor top`: the status of a running server in the terminal.

use crate::cli::TopArgs;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);
/// Moves the cursor to the top left corner, and clears the screen after it.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = args.admin.client();
    let read = || runtime.block_on(client.status());
    let mut before = (read()?, Instant::now());
    if args.once {
        io::stdout().write_all(page(&before.0, None).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = page(&before.0, None);
    loop {
        let mut out = io::stdout().lock();
        out.write_all(format!("{CLEAR}{text}").as_bytes())?;
        out.flush()?;
        drop(out);
        std::thread::sleep(INTERVAL);
        // After a failure, the loop continues, so that the status is shown again when the server has
        // restarted.
        text = match read() {
            Ok(status) => {
                let text = page(&status, Some((&before.0, before.1.elapsed())));
                before = (status, Instant::now());
                text
            }
            Err(error) => printable(&format!("{error}\n")),
        };
    }
}

/// Returns the status as text. Rates are computed from an earlier status. Without one, counters are shown.
fn page(status: &Value, before: Option<(&Value, Duration)>) -> String {
    let mut text = String::new();
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let ready = if status["ready"] == true { "ready" } else { "not ready" };
    let version = printable(status["version"].as_str().unwrap_or_default());
    let mut line = |title: &str, value: String| _ = writeln!(text, "{title:<26} {value}");
    line("stentor", format!("{version}, {ready}, up {} s", status["uptime_seconds"]));
    let process = &status["process"];
    line("resident memory", bytes(number(&process["resident_bytes"])));
    line(
        "file descriptors",
        format!("{} of {}", process["file_descriptors"], process["file_descriptors_max"]),
    );

    let figures = &status["data_plane"];
    let sessions =
        figures.as_object().into_iter().flat_map(Map::keys).filter(|name| name.ends_with("_sessions"));
    for name in ["connections", "sessions"].into_iter().chain(sessions.map(String::as_str)).chain(["topics"])
    {
        line(&words(name), figures[name].to_string());
    }
    for name in ["messages_received", "deliveries_sent", "deliveries_dropped", "http_requests"] {
        let rate = before.map(|(before, passed)| {
            let more = number(&figures[name]) - number(&before["data_plane"][name]);
            format!("{:.0}/s", more.max(0.0) / passed.as_secs_f64())
        });
        line(&words(name), rate.unwrap_or_else(|| figures[name].to_string()));
    }
    line("deliveries pending", figures["deliveries_pending"].to_string());
    let memory = figures["memory_bytes"].as_object();
    let used: f64 = memory.into_iter().flat_map(Map::values).map(number).sum();
    line("memory of clients", format!("{} of {}", bytes(used), bytes(number(&figures["memory_bytes_max"]))));
    for (title, name) in [("memory", "memory_bytes"), ("disconnects", "disconnects")] {
        for (label, value) in figures[name].as_object().into_iter().flatten().filter(|(_, v)| number(v) > 0.0)
        {
            let value = if name == "memory_bytes" { bytes(number(value)) } else { value.to_string() };
            line(&format!("  {title}: {}", words(label)), value);
        }
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

    #[test]
    fn rates_are_those_between_two_readings() {
        let at = |n: u64| json!({"data_plane": {"deliveries_sent": n}});
        let text = page(&at(300), Some((&at(100), Duration::from_secs(2))));
        assert!(text.contains("deliveries sent            100/s\n"), "{text}");
        let restarted = page(&at(5), Some((&at(100), Duration::from_secs(2))));
        assert!(restarted.contains("deliveries sent            0/s\n"), "{restarted}");
    }

    #[test]
    fn external_text_cannot_control_the_terminal() {
        let failure = json!({"message": "\x1b[2Jgone\u{9b}31m\r", "seconds_ago": 1});
        let upstream = json!({"name": "\x1b]0;a\x07", "fetches": 1, "failures": 1, "last_failure": failure});
        let text = page(&json!({"upstreams": [upstream]}), None);
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
