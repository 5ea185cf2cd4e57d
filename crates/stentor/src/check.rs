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
    let (config, _) = Sources::default().file(&args.file).load()?;
    print!("{}", summary(&args.file.display().to_string(), &config));
    Ok(ExitCode::SUCCESS)
}

/// `stentor keys`: the reference.
#[allow(clippy::print_stdout, reason = "the reference is what was asked for")]
pub(crate) fn keys() -> anyhow::Result<ExitCode> {
    print!("{}", reference::markdown());
    Ok(ExitCode::SUCCESS)
}

/// What the file changes, and its feeds.
fn summary(name: &str, config: &Config) -> String {
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
        let keys = if feed.prefix.is_empty() { "every key".into() } else { format!("{}…", feed.prefix) };
        _ = writeln!(text, "  {}: {keys} from {}", feed.name, feed.url);
        let named = ["name", "prefix", "url"];
        for row in feed.show().into_iter().filter(|row| !defaults.contains(row) && !named.contains(&row.0)) {
            _ = writeln!(text, "    {} = {}", row.0, row.1);
        }
    }
    text
}
