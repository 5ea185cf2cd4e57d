//! The questions and notices that each hook receives, and the rules that take events away from it.

use crate::config::Config;
use crate::config::options::Options;
use crate::config::schema::{Hook, HookOn};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fmt::Write;

/// A hook, and the questions and notices that it receives.
pub(super) struct HookFacts {
    name: String,
    /// The URL without its query, which may be secret.
    url: String,
    /// Each kind, with a description.
    receives: Vec<(HookOn, String)>,
    /// Events that a rule handles instead of the hook.
    hidden_events: Vec<String>,
}

/// Returns the hooks of a configuration.
pub(super) fn of(config: &Config) -> Vec<HookFacts> {
    let Options { hooks, .. } = config.options();
    let facts = |(hook, options): (&Hook, &stentor_control::HookOptions)| {
        let is_hidden = |rule: &&crate::config::schema::Rule| {
            let namespace = Some(rule.namespace.as_str()).filter(|namespace| !namespace.is_empty());
            options.takes_event(namespace, &rule.event)
        };
        HookFacts {
            name: hook.name.clone(),
            url: hook.url.split('?').next().unwrap_or_default().to_owned(),
            receives: hook.on.iter().map(|kind| (*kind, describe(hook, *kind))).collect(),
            hidden_events: config.rules.iter().filter(is_hidden).map(|rule| rule.event.clone()).collect(),
        }
    };
    config.hooks.iter().zip(&hooks).map(facts).collect()
}

/// Describes a kind, with the patterns that limit it.
fn describe(hook: &Hook, kind: HookOn) -> String {
    let value = kind.to_possible_value();
    let help = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string).unwrap_or_default();
    let patterns = |name: &str, texts: &[String]| match texts {
        [] => String::new(),
        texts => format!("; {name}: {}", texts.join(", ")),
    };
    let by_name = match kind {
        HookOn::Connect | HookOn::Connected | HookOn::Disconnected | HookOn::NodeLost | HookOn::Resync => {
            String::new()
        }
        HookOn::Event if hook.events.is_empty() => "; all but subscribe and unsubscribe".into(),
        HookOn::Event => patterns("events", &hook.events),
        _ => patterns("topics", &hook.topics),
    };
    format!("{help}{by_name}{}", patterns("namespaces", &hook.namespaces))
}

impl HookFacts {
    pub(super) fn to_json(&self) -> Value {
        let receives: Vec<_> = self.receives.iter().map(|(kind, _)| kind.as_str()).collect();
        let Self { name, url, hidden_events, .. } = self;
        json!({ "name": name, "url": url, "receives": receives, "events_handled_by_rules": hidden_events })
    }
}

/// Writes the list.
pub(super) fn write(text: &mut String, hooks: &[HookFacts]) {
    if !hooks.is_empty() {
        text.push_str("\nHooks:\n");
    }
    for HookFacts { name, url, receives, hidden_events } in hooks {
        // Writing to a string can't fail.
        _ = writeln!(text, "  {name}: {url}");
        for (kind, description) in receives {
            _ = writeln!(text, "    {}: {description}", kind.as_str());
        }
        if !hidden_events.is_empty() {
            _ = writeln!(text, "    a rule handles instead: {}", hidden_events.join(", "));
        }
    }
}
