//! `stentor check FILE` prints the mistakes in a configuration file, or its changes. With a topic, it prints
//! the permissions of a client. `stentor keys` prints the reference.
//!
//! `check` doesn't read the environment, so the result is the same on every machine. With `--fetch`, it reads
//! the environment too, and fetches a key from its upstream.

mod cluster;
mod permissions;

use crate::cli::CheckArgs;
use crate::config::section::Section;
use crate::config::{Config, Sources, reference};
use crate::serve::{block_on, environment};
use std::fmt::Write;
use std::process::ExitCode;

#[allow(clippy::print_stdout, reason = "the summary is the requested output")]
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if let Some(key) = &args.fetch {
        let (config, _) = Sources::default().file(&args.file).environment(environment()).load()?;
        let options = config.options().control.feeds;
        return block_on(async {
            let probe = stentor_control::probe(&options, key).await?;
            print!("{}", probe.text);
            Ok(if probe.has_document { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        });
    }
    let (config, warnings) = Sources::default().file(&args.file).load()?;
    if let Some(topic) = &args.topic {
        print!("{}", permissions::explain(&config, args.claims.as_deref(), &args.namespace, topic)?);
        return Ok(ExitCode::SUCCESS);
    }
    print!("{}", summary(&args.file.display().to_string(), &config, &warnings));
    Ok(ExitCode::SUCCESS)
}

/// Prints the reference: `stentor keys`.
#[allow(clippy::print_stdout, reason = "the reference is the requested output")]
pub(crate) fn keys() -> anyhow::Result<ExitCode> {
    print!("{}", reference::markdown());
    Ok(ExitCode::SUCCESS)
}

/// Returns a summary of the file: changes, feeds, rules, SockJS prefixes, effects of `[cluster]`, and
/// warnings. It contains no secrets.
fn summary(name: &str, config: &Config, warnings: &[String]) -> String {
    let mut text = format!("{name} is valid.\n");
    let changed = config.changed();
    let Config { feeds, rules, sockjs, bridges, issuers, permissions, links, .. } = config;
    let has_tables = !(feeds.is_empty() && rules.is_empty() && sockjs.is_empty() && bridges.is_empty());
    let has_tables = has_tables || !(issuers.is_empty() && permissions.is_empty() && links.is_empty());
    // Writing to a string can't fail.
    _ = match (changed.len(), has_tables) {
        (0, false) => writeln!(text, "\nAll settings have their defaults."),
        (0, true) => writeln!(text, "\nAll other settings have their defaults."),
        _ => writeln!(text, "\nChanged settings:"),
    };
    for (section, key, value) in changed {
        _ = writeln!(text, "  [{section}] {key} = {value}");
    }
    if config.feeds.is_empty() {
        _ = writeln!(text, "\nNo feeds.");
    } else {
        _ = writeln!(text, "\nFeeds:");
    }
    for feed in &config.feeds {
        let keys = match (feed.prefix.as_str(), feed.key.as_str()) {
            ("", "") => "every key".into(),
            (prefix, "") => format!("{prefix}…"),
            (_, key) => key.into(),
        };
        // The query isn't shown, because it may contain a secret.
        let url = feed.url.split_once('?').map_or(feed.url.clone(), |(url, _)| format!("{url}?…"));
        _ = match feed.push {
            true => writeln!(text, "  {}: {keys}, pushed", feed.name),
            false => writeln!(text, "  {}: {keys} from {url}", feed.name),
        };
        rows(&mut text, feed, &["name", "prefix", "key", "push", "url"]);
    }
    tables(&mut text, "Rules", &config.rules, "event", |rule| rule.event.clone());
    tables(&mut text, "SockJS", &config.sockjs, "prefix", |place| place.prefix.clone());
    tables(&mut text, "Shared with Socket.IO's servers", bridges, "namespaces", |bridge| {
        bridge.namespaces.join(", ")
    });
    tables(&mut text, "Applications with workers", links, "app", |link| link.app.clone());
    tables(&mut text, "Issuers of tokens", issuers, "issuer", |issuer| issuer.issuer.clone());
    tables(&mut text, "Permissions", permissions, "allow", |permission| permission.allow.join(", "));
    let guarantees = cluster::guarantees(config);
    if !guarantees.is_empty() {
        _ = writeln!(text, "\nWith other nodes:");
    }
    for sentence in guarantees {
        _ = writeln!(text, "  {sentence}");
    }
    for warning in warnings {
        _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

/// Writes the tables of a list, each below its name (the value of the key `named`). Writes nothing for an
/// empty list.
fn tables<T: Section + Default>(
    text: &mut String,
    title: &str,
    list: &[T],
    named: &str,
    name: impl Fn(&T) -> String,
) {
    if !list.is_empty() {
        _ = writeln!(text, "\n{title}:");
    }
    for table in list {
        _ = writeln!(text, "  {}", name(table));
        rows(text, table, &[named]);
    }
}

/// Writes the values of a table that differ from their defaults, except those of the keys in `shown`.
fn rows<T: Section + Default>(text: &mut String, table: &T, shown: &[&str]) {
    let defaults = T::default().show();
    for row in table.show().into_iter().filter(|row| !defaults.contains(row) && !shown.contains(&row.0)) {
        _ = writeln!(text, "    {} = {}", row.0, row.1);
    }
}
