//! `stentor check FILE TOPIC --as CLAIMS`: the permissions of a client for a feed or room, with the rules
//! that grant them.

use crate::config::Config;
use anyhow::{Context, anyhow};
use std::fmt::Write;
use stentor_auth::{Action, Attributes, Permissions, Topic};

/// Explains the permissions of a client with these claims. `None` means a client without a token.
pub(super) fn explain(
    config: &Config,
    claims: Option<&str>,
    namespace: &str,
    name: &str,
) -> anyhow::Result<String> {
    if !config.has_auth() {
        return Ok("There is no [auth]: every client may subscribe to every room and feed.\n".into());
    }
    let attributes = claims.map(Attributes::parse).transpose();
    let attributes = attributes.map_err(|problem| anyhow!("the value of --as {problem}"))?;
    let grants = attributes.as_ref().map_or(Ok(Vec::new()), Attributes::grants);
    let grants = grants.map_err(|error| anyhow!(error)).context("the claim stentor")?;
    let own = Permissions::new(config.permission_rules());
    let granted = Permissions::new(grants);
    let mut text = String::new();
    let room = Topic::Room { namespace, name };
    let is_key = config.options().control.feeds.key_rule().parse(name).is_ok();
    let feed = is_key.then_some(Topic::Feed(name));
    for topic in feed.into_iter().chain([room]) {
        let sources = [("[[permissions]]", &own), ("the token's grant", &granted)];
        let explained = sources.map(|(source, rules)| (source, rules.explain(attributes.as_ref(), topic)));
        // Writing to a string can't fail.
        _ = writeln!(text, "{topic}:");
        for action in Action::ALL {
            let rules = explained.iter().flat_map(|(source, explanation)| {
                explanation.rules_that_allow(action).map(move |n| format!("{source} {n}"))
            });
            let decision = match rules.collect::<Vec<_>>() {
                none if none.is_empty() => "refused".to_owned(),
                some => format!("allowed by {}", some.join(" and ")),
            };
            _ = writeln!(text, "  {:<10} {decision}", action.name());
        }
        for (source, explanation) in &explained {
            for (n, reason) in &explanation.reasons {
                _ = writeln!(text, "  {source} {n}: {reason}");
            }
        }
        if explained.iter().all(|(_, explanation)| explanation.reasons.is_empty()) {
            _ = writeln!(text, "  no permission concerns it");
        }
    }
    if attributes.is_none() && config.auth_options().is_some_and(|auth| !auth.allow_anonymous) {
        text.push_str("Clients without a token are refused: anonymous = \"refuse\" in [auth].\n");
    }
    Ok(text)
}
