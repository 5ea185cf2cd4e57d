//! `stentor check FILE` prints the mistakes in a configuration file, or its changes and what it needs. With a topic, it prints
//! the permissions of a client. `stentor keys` prints the reference.
//!
//! The values of environment variables aren't used, so the mistakes are the same on every machine; variables that aren't set cause
//! warnings. With `--fetch` and `--connect`, the values are used.

mod cluster;
mod connect;
mod hooks;
mod needs;
mod permissions;
mod ports;

use crate::cli::CheckArgs;
use crate::config::section::Section;
use crate::config::{Config, Finding, Severity, SourceLocation, Sources, reference};
use crate::serve::{block_on, environment};
use connect::Attempt;
use hooks::HookFacts;
use needs::Need;
use serde_json::{Value, json};
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
    let file = args.file.display().to_string();
    let sources = Sources::default().file(&args.file);
    let sources = if args.connect { sources.environment(environment()) } else { sources };
    let locations = sources.locations();
    let (config, mut warnings) = match sources.load() {
        Ok(loaded) => loaded,
        Err(problems) if args.json => {
            println!("{:#}", json_of(&file, None, &problems.0));
            return Ok(ExitCode::FAILURE);
        }
        Err(problems) => return Err(problems.into()),
    };
    if let Some(topic) = &args.topic {
        print!("{}", permissions::explain(&config, args.claims.as_deref(), &args.namespace, topic)?);
        return Ok(ExitCode::SUCCESS);
    }
    // With the environment, the configuration has values in place of references.
    let with_references =
        Sources::default().file(&args.file).load().map_or_else(|_| config.clone(), |loaded| loaded.0);
    let needs =
        needs::of(&with_references, |name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    warnings.extend(needs.iter().filter_map(|need| need.warning(&locations)));
    warnings.extend(ports::warnings(&config, &locations));
    let attempts = match args.connect {
        true => Some(block_on(async { Ok(connect::run(&config).await) })?),
        false => None,
    };
    let has_failed = attempts.iter().flatten().any(Attempt::has_failed);
    let facts = Facts { hooks: hooks::of(&config), needs, attempts };
    match args.json {
        true => println!("{:#}", json_of(&file, Some((&config, &facts)), &warnings)),
        false => print!("{}", summary(&file, &config, &facts, &warnings)),
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Facts about a valid configuration.
struct Facts {
    needs: Vec<Need>,
    hooks: Vec<HookFacts>,
    /// The results of `--connect`. `None` without it.
    attempts: Option<Vec<Attempt>>,
}

/// Returns the output of `--json`, which docs/operate.md describes. `None` for a configuration with mistakes.
fn json_of(file: &str, valid: Option<(&Config, &Facts)>, findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        let (file, line, variable) = match &finding.location {
            SourceLocation::Line(file, line) => (Some(file), Some(line), None),
            SourceLocation::File(file) => (Some(file), None, None),
            SourceLocation::Variable(name) => (None, None, Some(name)),
            SourceLocation::Flag(_) | SourceLocation::Default => (None, None, None),
        };
        let written = finding.written.as_ref();
        json!({
            "severity": finding.severity.name(),
            "file": file,
            "line": line,
            "variable": variable,
            "section": written.map(|written| &written.section),
            "key": written.map(|written| &written.key),
            "value": written.and_then(|written| written.value.as_ref()),
            "message": finding.text,
        })
    };
    let mut output = json!({
        "version": 1,
        "file": file,
        "valid": !findings.iter().any(|finding| finding.severity == Severity::Error),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    });
    if let Some((config, facts)) = valid {
        let changed = config.changed().into_iter();
        let changed =
            changed.map(|(section, key, value)| json!({ "section": section, "key": key, "value": value }));
        output["changed"] = changed.collect();
        output["needs"] = facts.needs.iter().map(Need::to_json).collect();
        output["hooks"] = facts.hooks.iter().map(HookFacts::to_json).collect();
        if let Some(attempts) = &facts.attempts {
            output["connections"] = attempts.iter().map(Attempt::to_json).collect();
        }
    }
    output
}

/// Prints the reference: `stentor keys`.
#[allow(clippy::print_stdout, reason = "the reference is the requested output")]
pub(crate) fn keys() -> anyhow::Result<ExitCode> {
    print!("{}", reference::markdown());
    Ok(ExitCode::SUCCESS)
}

/// Returns a summary of the file: changes, feeds, rules, hooks, SockJS prefixes, effects of `[cluster]`, needs, connections, and
/// warnings. It contains no secrets.
fn summary(name: &str, config: &Config, facts: &Facts, warnings: &[Finding]) -> String {
    let mut text = format!("{name} is valid.\n");
    let changed = config.changed();
    let Config { feeds, rules, sockjs, bridges, issuers, permissions, links, .. } = config;
    let has_tables = !(feeds.is_empty() && rules.is_empty() && sockjs.is_empty() && bridges.is_empty());
    let has_tables = has_tables
        || !config.hooks.is_empty()
        || !(issuers.is_empty() && permissions.is_empty() && links.is_empty());
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
    hooks::write(&mut text, &facts.hooks);
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
    needs::write(&mut text, &facts.needs);
    if let Some(attempts) = &facts.attempts {
        connect::write(&mut text, attempts);
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
