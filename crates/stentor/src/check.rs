//! `stentor check FILE`: what is wrong with a configuration file, or what it changes; and `stentor keys`.
//!
//! It looks at the file alone, not at the environment: the answer is the same on every machine.

use crate::cli::CheckArgs;
use crate::config::schema::Feed;
use crate::config::section::Section;
use crate::config::{Config, Sources, reference};
use std::fmt::Write;
use std::process::ExitCode;

#[allow(clippy::print_stdout, reason = "the summary is what was asked for")]
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let (config, warnings) = Sources::default().file(&args.file).load()?;
    print!("{}", summary(&args.file.display().to_string(), &config, &warnings));
    Ok(ExitCode::SUCCESS)
}

/// `stentor keys`: the reference.
#[allow(clippy::print_stdout, reason = "the reference is what was asked for")]
pub(crate) fn keys() -> anyhow::Result<ExitCode> {
    print!("{}", reference::markdown());
    Ok(ExitCode::SUCCESS)
}

/// What the file changes, its feeds, and what is likely not meant. No secrets.
fn summary(name: &str, config: &Config, warnings: &[String]) -> String {
    let mut text = format!("{name} is valid.\n");
    let changed = config.changed();
    // Writing to a string can't fail.
    _ = match changed.len() {
        0 => writeln!(text, "\nEverything has its default."),
        _ => writeln!(text, "\nOther than by default:"),
    };
    for (section, key, value) in changed {
        _ = writeln!(text, "  [{section}] {key} = {value}");
    }
    if config.feeds.is_empty() {
        _ = writeln!(text, "\nNo feeds.");
    } else {
        _ = writeln!(text, "\nFeeds:");
    }
    let defaults = Feed::default().show();
    for feed in &config.feeds {
        let keys = match (feed.prefix.as_str(), feed.key.as_str()) {
            ("", "") => "every key".into(),
            (prefix, "") => format!("{prefix}…"),
            (_, key) => key.into(),
        };
        // A query may hold a secret.
        let url = feed.url.split_once('?').map_or(feed.url.clone(), |(url, _)| format!("{url}?…"));
        _ = match feed.push {
            true => writeln!(text, "  {}: {keys}, pushed", feed.name),
            false => writeln!(text, "  {}: {keys} from {url}", feed.name),
        };
        let named = ["name", "prefix", "key", "push", "url"];
        for row in feed.show().into_iter().filter(|row| !defaults.contains(row) && !named.contains(&row.0)) {
            _ = writeln!(text, "    {} = {}", row.0, row.1);
        }
    }
    for warning in warnings {
        _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}
