//! Checks combinations of keys, and values that need more than a type and a range. Runs when all sources have
//! been applied.

use super::schema::{
    Adapter, AdminTls, App, ClassicParser, CookieSameSite, Feed, ProxyProtocol, Rule, SubscriptionMode,
};
use super::setting::Setting;
use super::value::{Bytes, EngineUrl};
use super::{Config, SourceLocation, Sources};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;
use stentor_cluster_settings::Kind;
use stentor_control::schedule::share;
use stentor_control::{Route, RouteError, TOKEN_BYTES_MIN};
use stentor_edge::LISTENERS_MAX;

/// Maximum length in bytes of the prefix of the channels that Socket.IO servers use.
const BRIDGE_PREFIX_BYTES_MAX: usize = 256;

/// Maximum length of the prefix of all paths.
const BASE_PATH_BYTES_MAX: usize = 256;

/// Share of fetches below which a section causes a warning: the section is slow while the APIs of others
/// hang.
const SHARE_LOW: usize = 4;

/// Records the mistakes.
pub(super) fn check(sources: &mut Sources) {
    super::secrets::unusable_files(sources);
    admin_beyond_loopback(sources);
    admin_tls(sources);
    two_ports(sources);
    listeners(sources);
    hosts(sources);
    base_path(sources);
    proxies(sources);
    feeds(sources);
    super::auth::check(sources);
    hooks(sources);
    history(sources);
    cluster(sources);
    internal_listener(sources);
    socketio(sources);
    rules(sources);
    super::schema::check_prefixes(sources);
    bridges(sources);
    links(sources);
}

/// Checks that an admin port beyond loopback has a token, because it can publish and read everything.
fn admin_beyond_loopback(sources: &mut Sources) {
    let server = &sources.config.server;
    let addr = server.admin;
    if addr.ip().is_loopback() || server.admin_token.0.is_some() {
        return;
    }
    let text = format!(
        "the admin port at {addr} can be reached from other machines: set admin_token in [server] \
         (or STENTOR_SERVER_ADMIN_TOKEN)"
    );
    sources.problem(sources.location("server", "admin"), text);
}

fn admin_tls(sources: &mut Sources) {
    let AdminTls { certificate, key } = &sources.config.admin_tls;
    if certificate.is_empty() != key.is_empty() {
        let has = if key.is_empty() { "certificate" } else { "key" };
        let text = "certificate and key in [admin_tls] need each other: set both";
        sources.problem(sources.location("admin_tls", has), text);
    }
}

/// Returns `true` if two listeners would share a port.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    same && one.port() == other.port() && one.port() != 0
}

/// Checks that clients and the admin API use different addresses. The later error "address in use" would
/// suggest another process.
fn two_ports(sources: &mut Sources) {
    let (clients, admin) = (sources.config.server.listen, sources.config.server.admin);
    if !overlap(clients, admin) {
        return;
    }
    // Usually one of the addresses is the default, so the mistake is reported for the other one.
    let written =
        |key| Some(sources.location("server", key)).filter(|location| *location != SourceLocation::Default);
    let location = written("admin").or_else(|| written("listen")).unwrap_or(SourceLocation::Default);
    let text = format!("listen and admin in [server] can't both use port {}", clients.port());
    sources.problem(location, text);
}

/// Checks that each address is used by only one listener.
fn listeners(sources: &mut Sources) {
    let Config { server, listeners, .. } = &sources.config;
    let mut wrong = Vec::new();
    if listeners.len() >= LISTENERS_MAX {
        wrong.push((0, format!("at most {} [[listeners]] are allowed", LISTENERS_MAX - 1)));
    }
    let mut others = vec![
        ("listen in [server]".to_owned(), server.listen),
        ("admin in [server]".to_owned(), server.admin),
    ];
    for (n, listener) in listeners.iter().enumerate() {
        let address = listener.address;
        if let Some((other, _)) = others.iter().find(|(_, other)| overlap(address, *other)) {
            wrong
                .push((n, format!("address in [[listeners]]: {other} uses port {} already", address.port())));
        }
        others.push((format!("[[listeners]] number {}", n + 1), address));
        if listener.tls && sources.config.tls.is_empty() {
            wrong.push((n, "tls = true in [[listeners]] needs a certificate: add a [[tls]]".to_owned()));
        }
    }
    for (n, text) in wrong {
        sources.problem(sources.location(&format!("listeners[{n}]"), "address"), text);
    }
}

fn hosts(sources: &mut Sources) {
    for name in sources.config.server.hosts.clone() {
        if let Err(error) = stentor_edge::Hosts::parse(&[name]) {
            sources.problem(sources.location("server", "hosts"), format!("hosts in [server]: {error}"));
        }
    }
}

/// Checks the prefix of all paths. It is written into cookies, so it has none of their separators.
fn base_path(sources: &mut Sources) {
    let path = &sources.config.server.base_path;
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        !part.is_empty() && !matches!(part, "." | "..") && part.bytes().all(is_plain)
    };
    let parts = path.strip_prefix('/').map(|parts| parts.split('/').all(is_part));
    if !path.is_empty() && (parts != Some(true) || path.len() > BASE_PATH_BYTES_MAX) {
        let text = format!(
            "base_path in [server]: expected a path such as \"/rt\", without \"/\" at its end, of letters, digits and -._~, at \
             most {BASE_PATH_BYTES_MAX} bytes; found {path:?}"
        );
        sources.problem(sources.location("server", "base_path"), text);
    }
}

fn proxies(sources: &mut Sources) {
    for network in sources.config.proxies.trusted.clone() {
        if let Err(error) = stentor_ports::Networks::parse(&[network]) {
            sources.problem(sources.location("proxies", "trusted"), format!("trusted in [proxies]: {error}"));
        }
    }
    let Config { server, listeners, proxies, .. } = &sources.config;
    let is_required = |mode| mode == ProxyProtocol::Required;
    let mut all = vec![("server".to_owned(), server.proxy_protocol)];
    all.extend(
        listeners.iter().enumerate().map(|(n, other)| (format!("listeners[{n}]"), other.proxy_protocol)),
    );
    if proxies.trusted.is_empty()
        && let Some((section, _)) = all.into_iter().find(|(_, mode)| is_required(*mode))
    {
        let text = "proxy_protocol = \"required\" needs the networks of the proxies: trusted in [proxies]";
        sources.problem(sources.location(&section, "proxy_protocol"), text.to_owned());
    }
}

fn feeds(sources: &mut Sources) {
    let mut feeds = std::mem::take(&mut sources.config.feeds);
    let all_bytes_max = sources.config.feeds_limits.documents_bytes_max;
    let max_age_max = sources.config.feeds_limits.max_age_max;
    let secrets = sources.config.secrets.clone();
    let mut names = HashMap::new();
    let mut shapes = HashMap::new();
    for (n, feed) in feeds.iter_mut().enumerate() {
        let location = |sources: &Sources, key| sources.location(&format!("feeds[{n}]"), key);
        let mut wrong = |key, text: Option<String>| {
            // A missing required key has already been reported.
            if let (Some(text), true) = (text, location(sources, key) != SourceLocation::Default) {
                sources.problem(location(sources, key), format!("{key} in [[feeds]]: {text}"));
            }
        };
        wrong("name", name(&feed.name));
        let again =
            |before: Option<usize>| before.map(|m| format!("feed number {} has the same name", m + 1));
        wrong("name", again(names.insert(feed.name.clone(), n)));
        let shape = if feed.push {
            let url = (!feed.url.is_empty()).then(|| "a feed with push = true has no url".to_owned());
            wrong("url", url);
            Route::shape_of(&feed.prefix, &feed.key, super::options_of(feed).upstream.keys)
                .map_err(|error| vec![error])
        } else {
            super::proxy::fill(&mut feed.proxy, secrets.variables());
            super::options_of(feed)
                .upstream
                .check()
                .into_iter()
                .for_each(|(key, text)| wrong(key, Some(text)));
            let keys = super::options_of(feed).upstream.keys;
            let url = secrets.url(&feed.url).map_err(|text| vec![RouteError { field: "url", text }]);
            url.and_then(|url| Route::new(&feed.prefix, &feed.key, url, keys, &feed.body))
                .map(|route| route.shape())
        };
        match shape {
            Err(errors) => errors.into_iter().for_each(|error| wrong(error.field, Some(error.text))),
            Ok(shape) => {
                if let Some(before) = shapes.insert(shape, n) {
                    let (key, what) = match (feed.prefix.as_str(), feed.key.as_str()) {
                        ("", "") => ("name", "the prefix \"\"".into()),
                        (prefix, "") => ("prefix", format!("the prefix {prefix:?}")),
                        (_, key) => ("key", format!("the keys of {key:?}")),
                    };
                    wrong(key, Some(format!("feed number {} already has {what}", before + 1)));
                }
            }
        }
        let (key, text) = max_age(feed, max_age_max);
        wrong(key, text);
        wrong("document_bytes_max", document_bytes(feed, all_bytes_max));
        let unread = feed.ignore_cache_control && !feed.complete_on.is_empty();
        wrong(
            "complete_on",
            unread.then(|| "ignore_cache_control must be false, else nothing ends the feed".into()),
        );
        let headers = feed.headers.0.iter();
        headers.for_each(|(name, value)| wrong("headers", secrets.header(name, value.reveal()).err()));
        let basic_auth = Some(feed.basic_auth.0.reveal()).filter(|text| !text.is_empty());
        wrong(
            "basic_auth",
            basic_auth.and_then(|text| Some(format!("it {}", secrets.basic_auth(text).err()?))),
        );
    }
    sources.config.feeds = feeds;
    fetch_limits(sources);
}

/// Warns about a limit on fetches that can't be reached because of another limit.
fn fetch_limits(sources: &mut Sources) {
    let feeds = sources.config.feeds.iter().enumerate().filter(|(_, feed)| !feed.push);
    let feeds: Vec<_> = feeds.map(|(n, feed)| (n, feed.concurrency_max)).collect();
    let fetches_max = sources.config.feeds_limits.fetches_max;
    let share = share(fetches_max, feeds.len());
    let all: usize = feeds.iter().map(|(_, most)| most).sum();
    let shares: usize = feeds.iter().map(|(_, most)| share.min(*most)).sum();
    for (n, most) in &feeds {
        let location = sources.location(&format!("feeds[{n}]"), "concurrency_max");
        let reachable = (fetches_max + share.min(*most)).saturating_sub(shares).max(share);
        if location != SourceLocation::Default && *most > reachable {
            let sufficient = all.min(most * feeds.len());
            let text = format!(
                "concurrency_max in [[feeds]] is {most}, but fetches_max in [feeds_limits] is {fetches_max} and leaves \
                 {reachable} to this section; set fetches_max to {sufficient}"
            );
            sources.warn(location, text);
        }
    }
    if feeds.len() > 1 && share < SHARE_LOW && feeds.iter().any(|(_, most)| *most > share) {
        let location = sources.location("feeds_limits", "fetches_max");
        let text = format!(
            "fetches_max in [feeds_limits] is {fetches_max}, which guarantees each of {} [[feeds]] only {share} at a \
             time while the others hang; set it to {}",
            feeds.len(),
            SHARE_LOW * feeds.len()
        );
        sources.warn(location, text);
    }
}

fn hooks(sources: &mut Sources) {
    let mut hooks = std::mem::take(&mut sources.config.hooks);
    let decision_timeout = sources.config.limits.decision_timeout;
    let secrets = sources.config.secrets.clone();
    let mut names = HashMap::new();
    for (n, hook) in hooks.iter_mut().enumerate() {
        let location = |sources: &Sources, key| sources.location(&format!("hooks[{n}]"), key);
        let mut wrong = |key, text: Option<String>| {
            // A missing required key has already been reported.
            if let (Some(text), true) = (text, location(sources, key) != SourceLocation::Default) {
                sources.problem(location(sources, key), format!("{key} in [[hooks]]: {text}"));
            }
        };
        wrong("name", name(&hook.name));
        let before = names.insert(hook.name.clone(), n);
        wrong("name", before.map(|m| format!("hook number {} has the same name", m + 1)));
        wrong("secret", hook.secret.fill(&secrets));
        let short =
            || format!("expected at least {TOKEN_BYTES_MIN} bytes; `openssl rand -hex 32` generates some");
        wrong("secret", hook.secret.is_short().then(short));
        super::options_of(hook).hook.check().into_iter().for_each(|(key, text)| wrong(key, Some(text)));
        if hook.timeout >= decision_timeout {
            let text = format!(
                "timeout in [[hooks]]: {} isn't shorter than {}, which clients wait (decision_timeout in [limits])",
                hook.timeout.show(),
                decision_timeout.show()
            );
            let own = location(sources, "timeout");
            let own = if own == SourceLocation::Default { location(sources, "name") } else { own };
            sources.problem(own, text);
        }
    }
    for (n, rule) in sources.config.rules.clone().iter().enumerate() {
        let namespace = Some(rule.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let takes = |hook: &&super::schema::Hook| {
            !hook.events.is_empty() && super::options_of(*hook).hook.takes_event(namespace, &rule.event)
        };
        for hook in hooks.iter().filter(takes) {
            let text = format!(
                "[[rules]] for {:?}: it hides the event from the hook {:?}, because rules come first; remove the rule, or the event \
                 from the hook's events",
                rule.event, hook.name
            );
            sources.warn(sources.location(&format!("rules[{n}]"), "event"), text);
        }
    }
    let app = sources.config.server.app;
    if !hooks.is_empty() && app != App::Rooms {
        let text =
            format!("[[hooks]]: app = {:?} in [server] hands no events over; use \"rooms\"", app.as_str());
        sources.warn(sources.location("server", "app"), text);
    }
    sources.config.hooks = hooks;
}

/// Checks the size of histories. A client that resumes is sent all missed messages at once. If they exceed
/// its send buffer, its session ends.
fn history(sources: &mut Sources) {
    let Config { rooms, limits, .. } = &sources.config;
    if rooms.history_length > 0 && rooms.history_bytes_max > limits.send_buffer_bytes_max {
        let text = format!(
            "history_bytes_max in [rooms] is {}, more than the {} that may be queued for a session (send_buffer_bytes_max in [limits]): \
             a client that resumes and missed that much is disconnected (4501)",
            rooms.history_bytes_max.show(),
            limits.send_buffer_bytes_max.show(),
        );
        sources.warn(sources.location("rooms", "history_bytes_max"), text);
    }
}

fn cluster(sources: &mut Sources) {
    let cluster = &sources.config.cluster;
    if cluster.certificate_file.is_empty() != cluster.key_file.is_empty() {
        let text = "certificate_file and key_file in [cluster] need each other: set both";
        sources.problem(sources.location("cluster", "certificate_file"), text);
    }
    if let Some(engine) = &sources.config.cluster.engine.0
        && let Some(text) = missing_engine(engine.kind())
    {
        sources.problem(sources.location("cluster", "engine"), format!("engine in [cluster]: {text}"));
    }
}

/// Checks the listener for other nodes, which any peer that reaches it could use to impersonate a node.
fn internal_listener(sources: &mut Sources) {
    let cluster = &sources.config.cluster;
    if cluster.engine.0.is_none() {
        return;
    }
    let location = sources.location("cluster", "listen");
    let (addr, has_secret) = (cluster.listen, cluster.secret.0.is_some() || !sources.has_secrets);
    let needs_advertise = addr.ip().is_unspecified() && cluster.advertise.is_empty();
    if !addr.ip().is_loopback() && !has_secret {
        let text = format!(
            "the internal listener at {addr} can be reached from other machines: set secret in [cluster] (or STENTOR_CLUSTER_SECRET)"
        );
        sources.problem(location.clone(), text);
    }
    if needs_advertise {
        let text =
            format!("listen in [cluster]: {addr} names no address of this machine: set advertise as well");
        sources.problem(location, text);
    }
}

/// Returns the mistake if this build doesn't have this engine.
fn missing_engine(kind: Kind) -> Option<String> {
    let command = "cargo build --release --package stentor";
    (!cfg!(feature = "engines"))
        .then(|| format!("this build has no {kind}; `{command}` builds a program that has it"))
}

fn socketio(sources: &mut Sources) {
    let wrong: Vec<_> =
        sources.config.socketio.namespaces.iter().filter_map(|name| namespace(name)).collect();
    for text in wrong {
        sources
            .problem(sources.location("socketio", "namespaces"), format!("namespaces in [socketio]: {text}"));
    }
    let socketio = &sources.config.socketio;
    if socketio.cookie_same_site == CookieSameSite::None && !socketio.cookie_secure {
        let text = "cookie_same_site = \"none\" in [socketio] needs cookie_secure = true: browsers refuse the cookie without it";
        sources.problem(sources.location("socketio", "cookie_same_site"), text.to_owned());
    }
}

fn rules(sources: &mut Sources) {
    let rules = std::mem::take(&mut sources.config.rules);
    for (n, rule) in rules.iter().enumerate() {
        let location = |sources: &Sources, key| sources.location(&format!("rules[{n}]"), key);
        if let Some(text) = namespace(&rule.namespace).filter(|_| !rule.namespace.is_empty()) {
            sources.problem(location(sources, "namespace"), format!("namespace in [[rules]]: {text}"));
        }
        let templates = [("join", &rule.join), ("leave", &rule.leave), ("broadcast", &rule.broadcast)];
        for (key, texts) in templates {
            for text in texts.iter().filter(|text| key != "broadcast" || *text != "*") {
                if let Err(error) = stentor_edge::Template::parse(text) {
                    sources.problem(location(sources, key), format!("{key} in [[rules]]: {error}: {text:?}"));
                }
            }
        }
        if let Some(text) = without_effect(rule, &rules[..n]) {
            let text = format!("[[rules]] for {:?}: {text}", rule.event);
            sources.warn(location(sources, "event"), text);
        }
    }
    sources.config.rules = rules;
}

/// Returns the reason why a rule has no effect after the rules in `before`. Such a rule is valid, because it
/// still disables the event's default action.
fn without_effect(rule: &Rule, before: &[Rule]) -> Option<String> {
    let covers = |first: &Rule| {
        first.event == rule.event && (first.namespace.is_empty() || first.namespace == rule.namespace)
    };
    if let Some(n) = before.iter().position(covers) {
        return Some(format!("it never applies, because rule number {} is for the same event", n + 1));
    }
    let rooms = [&rule.join, &rule.leave, &rule.broadcast].into_iter().any(|texts| !texts.is_empty());
    let nothing = "it does nothing, so the event is ignored (set join, leave, broadcast, echo or ack)";
    if !rooms && !rule.echo && !rule.ack {
        return Some(nothing.to_owned());
    }
    let of_broadcast = rule.except_sender || !rule.broadcast_as.is_empty();
    (of_broadcast && rule.broadcast.is_empty())
        .then(|| "except_sender and broadcast_as have no effect without broadcast".to_owned())
}

/// Checks the namespaces that are shared with Socket.IO servers.
fn bridges(sources: &mut Sources) {
    let bridges = std::mem::take(&mut sources.config.bridges);
    let mut shared = HashSet::new();
    for (n, bridge) in bridges.iter().enumerate() {
        let mut wrong = |key, text: String| {
            let location = sources.location(&format!("cluster.socketio[{n}]"), key);
            sources.problem(location, format!("{key} in [[cluster.socketio]]: {text}"));
        };
        if bridge.namespaces.is_empty() {
            wrong("namespaces", "name at least one namespace".into());
        }
        for name in &bridge.namespaces {
            if let Some(text) = namespace(name) {
                wrong("namespaces", text);
            } else if !shared.insert((name.clone(), bridge.adapter == Adapter::Python)) {
                wrong(
                    "namespaces",
                    format!(
                        "{name:?} is shared already; it can be shared once with servers in Node, and once with those in Python"
                    ),
                );
            }
        }
        let prefix = &bridge.prefix;
        if prefix.len() > BRIDGE_PREFIX_BYTES_MAX || prefix.contains(char::is_control) {
            wrong(
                "prefix",
                format!("expected at most {BRIDGE_PREFIX_BYTES_MAX} bytes without control characters"),
            );
        }
        if bridge.subscription_mode != SubscriptionMode::Dynamic && bridge.adapter != Adapter::Sharded {
            wrong("subscription_mode", "it has no effect unless adapter is \"sharded\"".into());
        }
        if bridge.parser != ClassicParser::MessagePack && bridge.adapter != Adapter::Classic {
            wrong("parser", "it has no effect unless adapter is \"classic\"".into());
        }
    }
    for (n, bridge) in bridges.iter().enumerate() {
        if let Some(text) = missing_engine(Kind::Redis) {
            let key = if bridge.url.0.is_some() { "url" } else { "namespaces" };
            let location = sources.location(&format!("cluster.socketio[{n}]"), key);
            sources.problem(location, format!("[[cluster.socketio]]: {text}"));
        }
        let is_redis = |url: &EngineUrl| url.0.as_ref().is_some_and(|address| address.kind() == Kind::Redis);
        if bridge.url.0.is_some() && !is_redis(&bridge.url) {
            let location = sources.location(&format!("cluster.socketio[{n}]"), "url");
            sources.problem(location, "url in [[cluster.socketio]]: expected the URL of a Redis");
        } else if bridge.url.0.is_none() && !is_redis(&sources.config.cluster.engine) {
            let section = format!("cluster.socketio[{n}]");
            let named = ["namespaces", ""].map(|key| sources.location(&section, key)).into_iter();
            let location = named.into_iter().find(|location| *location != SourceLocation::Default);
            let location = location.unwrap_or(SourceLocation::Default);
            let text = "this [[cluster.socketio]] has no url, and there is no Redis in [cluster] engine to use instead";
            sources.problem(location, text);
        }
        for name in bridge.namespaces.iter().filter(|name| *name != "/") {
            if !sources.config.socketio.namespaces.contains(name) {
                let text = format!(
                    "namespaces in [[cluster.socketio]]: clients can't connect to {name:?}, because it isn't in namespaces in [socketio]"
                );
                sources.warn(sources.location(&format!("cluster.socketio[{n}]"), "namespaces"), text);
            }
        }
    }
    if !bridges.is_empty() && sources.config.rooms.history_length > 0 {
        let text = "history_length in [rooms] and [[cluster.socketio]] exclude each other: Socket.IO's servers publish without positions, so \
                    that rooms of shared namespaces can't keep a history; remove one of them";
        sources.problem(sources.location("rooms", "history_length"), text);
    }
    sources.config.bridges = bridges;
}

fn namespace(name: &str) -> Option<String> {
    let room = stentor_hub::Room::all_members(name);
    match room {
        Ok(_) if name.starts_with('/') && !name.contains([',', '?']) => None,
        Ok(_) => Some(format!("a namespace must begin with / and have no comma or question mark: {name:?}")),
        Err(error) => Some(format!("{error}: {name:?}")),
    }
}

/// Returns the setting of a feed because of which no value of `max-age` is valid, with the reason.
fn max_age(feed: &Feed, all: Duration) -> (&'static str, Option<String>) {
    let (least, most) = (feed.max_age_min, feed.max_age_max);
    if most.is_zero() {
        let all = (least > all)
            .then(|| format!("{} is more than {}, max_age_max in [feeds_limits]", least.show(), all.show()));
        return ("max_age_min", all);
    }
    let text = (least > most).then(|| format!("{} is less than {}, max_age_min", most.show(), least.show()));
    ("max_age_max", text)
}

fn document_bytes(feed: &Feed, all: Bytes) -> Option<String> {
    let one = feed.document_bytes_max;
    (one > all)
        .then(|| format!("{} is more than {} for all documents in [feeds_limits]", one.show(), all.show()))
}

/// The path of an application whose path isn't configured, until its workers have another.
const DEFAULT_LINK_PATH: &str = "/socket.io/";

fn links(sources: &mut Sources) {
    let mut links = std::mem::take(&mut sources.config.links);
    let secrets = sources.config.secrets.clone();
    let (mut names, mut paths, mut serving) = (HashMap::new(), HashMap::new(), None);
    for (n, link) in links.iter_mut().enumerate() {
        let location = |sources: &Sources, key| sources.location(&format!("links[{n}]"), key);
        let mut wrong = |key, text: Option<String>| {
            // A missing required key has already been reported.
            if let Some(text) =
                text.filter(|_| key != "app" || location(sources, key) != SourceLocation::Default)
            {
                let own = location(sources, key);
                let own = if own == SourceLocation::Default { location(sources, "app") } else { own };
                sources.problem(own, format!("{key} in [[links]]: {text}"));
            }
        };
        wrong("app", name(&link.app));
        let before = names.insert(link.app.clone(), n);
        wrong("app", before.map(|m| format!("link number {} has the same app", m + 1)));
        let is_path = link.path.is_empty()
            || link.path.starts_with('/')
                && link.path.ends_with('/')
                && link.path.bytes().all(|b| b.is_ascii_graphic() && !b"?#%".contains(&b));
        wrong(
            "path",
            (!is_path).then(|| format!("expected a path that begins and ends with /, found {:?}", link.path)),
        );
        let path = if link.path.is_empty() { DEFAULT_LINK_PATH } else { &link.path };
        let before = paths.insert(path.to_owned(), n);
        wrong("path", before.map(|m| format!("link number {} has the same path", m + 1)));
        let before = if link.http { serving.replace(n) } else { None };
        wrong("http", before.map(|m| format!("link number {} has it already", m + 1)));
        wrong("token", link.token.fill(&secrets));
        let short =
            || format!("expected at least {TOKEN_BYTES_MIN} bytes; `openssl rand -hex 32` generates some");
        wrong("token", link.token.is_short().then(short));
    }
    if links.len() > stentor_workers::APPS_MAX {
        let text = format!("at most {} [[links]] are allowed", stentor_workers::APPS_MAX);
        sources.problem(sources.location("links[0]", "app"), text);
    }
    sources.config.links = links;
}

fn name(name: &str) -> Option<String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    let valid = (1..=64).contains(&name.len()) && name.bytes().all(allowed);
    (!valid).then(|| format!("expected 1 to 64 of a-z 0-9 - _, found {name:?}"))
}
