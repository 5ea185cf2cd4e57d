//! Warnings about files with secrets, when a configuration is checked without its secrets.

use super::{Config, Sources};
use stentor_control::Secrets;

/// Warns about files that would prevent a server from starting. Does nothing if secrets are read, because
/// such files are then reported as mistakes.
pub(super) fn unusable_files(sources: &mut Sources) {
    if !sources.config.secrets.is_sample() {
        return;
    }
    let warnings: Vec<_> = texts(&sources.config)
        .flat_map(|(section, key, text)| {
            let location = sources.location(&section, key);
            let name = section.split('[').next().unwrap_or_default();
            let warning = move |why| {
                (location.clone(), format!("{key} in [[{name}]]: {why}; the server won't start without it"))
            };
            Secrets::unusable_files(text).into_iter().map(warning).collect::<Vec<_>>()
        })
        .collect();
    for (location, text) in warnings {
        sources.warn(location, text);
    }
}

/// Iterates over the texts that may refer to files, each with its section and key.
pub(super) fn texts(config: &Config) -> impl Iterator<Item = (String, &'static str, &str)> {
    let feeds = config.feeds.iter().enumerate().flat_map(|(n, feed)| {
        let headers = feed.headers.0.iter().map(|(_, value)| ("headers", value.reveal()));
        [("url", feed.url.as_str()), ("basic_auth", feed.basic_auth.0.reveal())]
            .into_iter()
            .chain(headers)
            .map(move |(key, text)| (format!("feeds[{n}]"), key, text))
    });
    let hooks = config.hooks.iter().enumerate();
    let hooks = hooks.map(|(n, hook)| (format!("hooks[{n}]"), "secret", hook.secret.0.reveal()));
    let issuers = config.issuers.iter().enumerate();
    let issuers = issuers.flat_map(|(n, issuer)| {
        issuer.keys.secrets().map(move |text| (format!("auth.issuers[{n}]"), "keys", text))
    });
    let links = config.links.iter().enumerate();
    let links = links.map(|(n, link)| (format!("links[{n}]"), "token", link.token.0.reveal()));
    feeds.chain(hooks).chain(issuers).chain(links)
}
