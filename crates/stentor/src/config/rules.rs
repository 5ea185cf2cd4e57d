//! What concerns several keys, or needs more than a type: checked last, when it is known what won.

use super::schema::Feed;
use super::value::{Bytes, Setting};
use super::{Place, Sources};
use std::collections::HashMap;

/// Notes what is wrong.
pub(super) fn check(sources: &mut Sources) {
    admin_beyond_loopback(sources);
    feeds(sources);
    socketio(sources);
    rules(sources);
    sockjs(sources);
}

/// The admin port can publish and read everything, so beyond loopback it needs a token (DESIGN.md,
/// "Public routes").
fn admin_beyond_loopback(sources: &mut Sources) {
    let server = &sources.config.server;
    let addr = server.admin;
    if addr.ip().is_loopback() || server.admin_token.0.is_some() {
        return;
    }
    let text = format!(
        "the admin port at {addr} can be reached from other machines, which needs admin_token in [server] \
         (or STENTOR_SERVER_ADMIN_TOKEN)"
    );
    sources.problem(sources.place("server", "admin"), text);
}

fn feeds(sources: &mut Sources) {
    let feeds = std::mem::take(&mut sources.config.feeds);
    let all_bytes_max = sources.config.feeds_limits.documents_bytes_max;
    let mut names = HashMap::new();
    let mut prefixes = HashMap::new();
    for (n, feed) in feeds.iter().enumerate() {
        let place = |sources: &Sources, key| sources.place(&format!("feeds[{n}]"), key);
        let mut wrong = |key, text: Option<String>| {
            // A required key that isn't there has been told already.
            if let (Some(text), true) = (text, place(sources, key) != Place::Default) {
                sources.problem(place(sources, key), format!("{key} in [[feeds]]: {text}"));
            }
        };
        wrong("name", name(&feed.name));
        wrong("prefix", prefix(&feed.prefix));
        wrong("url", url(&feed.url));
        let again =
            |before: Option<usize>| before.map(|m| format!("the feed number {} has it already", m + 1));
        wrong("name", again(names.insert(&feed.name, n)));
        if let Some(before) = prefixes.insert(&feed.prefix, n) {
            let key = if feed.prefix.is_empty() { "name" } else { "prefix" };
            let text = format!("the feed number {} has the prefix {:?} already", before + 1, feed.prefix);
            wrong(key, Some(text));
        }
        wrong("document_bytes_max", document_bytes(feed, all_bytes_max));
    }
    sources.config.feeds = feeds;
}

fn socketio(sources: &mut Sources) {
    let wrong: Vec<_> =
        sources.config.socketio.namespaces.iter().filter_map(|name| namespace(name)).collect();
    for text in wrong {
        sources.problem(sources.place("socketio", "namespaces"), format!("namespaces in [socketio]: {text}"));
    }
}

fn rules(sources: &mut Sources) {
    let rules = std::mem::take(&mut sources.config.rules);
    for (n, rule) in rules.iter().enumerate() {
        let place = |sources: &Sources, key| sources.place(&format!("rules[{n}]"), key);
        if let Some(text) = namespace(&rule.namespace).filter(|_| !rule.namespace.is_empty()) {
            sources.problem(place(sources, "namespace"), format!("namespace in [[rules]]: {text}"));
        }
        let templates = [("join", &rule.join), ("leave", &rule.leave), ("broadcast", &rule.broadcast)];
        for (key, texts) in templates {
            for text in texts.iter().filter(|text| key != "broadcast" || *text != "*") {
                if let Err(error) = stentor_edge::Template::parse(text) {
                    sources.problem(place(sources, key), format!("{key} in [[rules]]: {error}: {text:?}"));
                }
            }
        }
    }
    sources.config.rules = rules;
}

fn sockjs(sources: &mut Sources) {
    let prefixes = crate::wiring::sockjs_options(&sources.config.sockjs);
    if let Err(text) = stentor_edge::SockJs::check(&prefixes) {
        let place = sources.place("sockjs[0]", "prefix");
        sources.problem(place, text);
    }
}

fn namespace(name: &str) -> Option<String> {
    let room = stentor_hub::Room::everybody(name);
    match room {
        Ok(_) if name.starts_with('/') && !name.contains([',', '?']) => None,
        Ok(_) => Some(format!("a namespace begins with / and has no comma or question mark: {name:?}")),
        Err(error) => Some(format!("{error}: {name:?}")),
    }
}

fn document_bytes(feed: &Feed, all: Bytes) -> Option<String> {
    let one = feed.document_bytes_max;
    (one > all)
        .then(|| format!("{} is more than {} for all documents in [feeds_limits]", one.show(), all.show()))
}

fn name(name: &str) -> Option<String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    let valid = (1..=64).contains(&name.len()) && name.bytes().all(allowed);
    (!valid).then(|| format!("expected 1 to 64 of a-z 0-9 - _, found {name:?}"))
}

/// A prefix is what a key may begin with.
fn prefix(prefix: &str) -> Option<String> {
    let key = format!("{prefix}x");
    stentor_hub::Key::parse(&key).err().map(|error| error.to_string().replace("the key", "the prefix"))
}

fn url(url: &str) -> Option<String> {
    let wrong = |why: &str| Some(format!("{why}: {:?}", url.chars().take(100).collect::<String>()));
    let Ok(uri) = url.parse::<hyper::Uri>() else { return wrong("this is no URL") };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return wrong("expected a URL that begins with http:// or https://");
    }
    let Some(authority) = uri.authority().filter(|a| !a.host().is_empty()) else {
        return wrong("this URL has no host");
    };
    if authority.as_str().contains('@') {
        return wrong("credentials belong in the headers, not in the URL");
    }
    if url.contains('#') {
        return wrong("a fragment is never sent, so this URL can't have one");
    }
    None
}
