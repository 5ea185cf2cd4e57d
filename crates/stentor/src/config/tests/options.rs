//! Tests that each configuration key changes an option, and that the keys' defaults are those of the options.

use super::super::*;
use super::Bytes;
use crate::config::section::KeyInfo;

/// Keys that set no option. The binary uses their values itself.
const WITHOUT_OPTION: [&str; 6] =
    ["log", "log_level", "drain_delay", "drain_window", "shutdown_timeout", "takeover_socket"];

/// The configuration's defaults result in the options' defaults, also where several keys set the same field
/// or a key has its own default.
#[test]
fn the_defaults_are_those_of_the_options() {
    let mut expect = Options::default();
    expect.control.admin.shutdown_timeout = ADMIN_SHUTDOWN_TIMEOUT;
    expect.edge.primus.ping_interval = expect.edge.heartbeat.interval;
    assert_eq!(format!("{:?}", Config::default().options()), format!("{expect:?}"));
    let repeated: [&dyn Section; 8] = [
        &schema::Issuer::default(),
        &schema::Permission::default(),
        &schema::Certificate::default(),
        &schema::Listener::default(),
        &schema::Rule::default(),
        &schema::SockJs::default(),
        &schema::Bridge::default(),
        &schema::Feed::default(),
    ];
    for section in repeated {
        let found = format!("{:?}", options_of(section));
        assert_eq!(found, format!("{:?}", Options::default()), "{}", section.name());
    }
}

#[test]
fn the_size_of_messages_is_limited_on_both_ports() {
    let mut config = Config::default();
    config.limits.message_bytes_max = Bytes(7);
    let options = config.options();
    assert_eq!((options.edge.limits.message_bytes_max, options.control.admin.message_bytes_max), (7, 7));
}

/// Returns the configuration of this file, or `None` if a value has a wrong type or is out of its range.
fn config(file: &str) -> Option<Config> {
    let mut sources = Sources::default();
    file::apply(&mut sources, "stentor.toml", file);
    (!sources.has_mistakes()).then_some(sources.config)
}

fn options(config: &Config) -> String {
    // The options of a proxy don't show its secret.
    let secret = config.auth_proxy.users().and_then(|users| users.secret);
    format!("{:?}", (config.options(), config.auth_options(), config.permission_rules(), secret))
}

/// Returns the lines that a section needs to have any effect.
fn needed(section: &str) -> &'static [&'static str] {
    match section {
        "auth" => &["anonymous = \"allow\""],
        "auth.proxy" => {
            &["user_header = \"X-User\"", "secret_header = \"X-Secret\"", "secret = \"0123456789abcdef\""]
        }
        "auth.issuers" => &["issuer = \"a\"", "algorithms = [\"HS256\"]"],
        "permissions" => &["feeds = [\"a\"]", "allow = [\"publish\"]"],
        "feeds" => &["name = \"a\"", "url = \"http://a\""],
        "tls" => &["certificate = \"a\"", "key = \"a\""],
        "listeners" => &["address = \"127.0.0.1:1\""],
        "links" => &["app = \"a\""],
        "hooks" => &["name = \"a\"", "url = \"http://a\"", "on = [\"event\"]"],
        "rules" => &["event = \"a\""],
        "sockjs" => &["prefix = \"/a\""],
        "socketio" => &["recovery_ttl = \"1s\""],
        "rooms" => &["history_length = 1"],
        _ => &[],
    }
}

/// Values to try for all keys, one per line. Each is valid for some of them.
const FURTHER: &str = r#"true
false
["a"]
["max-age=0"]
["connect"]
{ a = "b" }
{ a = "c" }
"redis://127.0.0.1"
"127.0.0.1:9"
["https://a.example"]
["192.0.2.1"]
[]
["ES256"]
["publish"]
[{ secret = "0123456789abcdef0123456789abcdef" }]
"0123456789abcdef"
"0123456789ABCDEF""#;

/// Calls `check` with each key of each section, and with configurations that have the key's values: its
/// default, the ends of its range, the words of its unit, and those of [`FURTHER`] that are valid. After
/// three of them, stops at the first that changes the options.
fn for_every_key(check: impl Fn(&SectionInfo, &KeyInfo, &[Config])) {
    for section in sections() {
        for key in &section.keys {
            let mut lines = vec![section.bracketed()];
            let others =
                needed(section.name).iter().filter(|line| line.split(" = ").next() != Some(key.name));
            lines.extend(others.map(|line| (*line).to_owned()));
            let with = |value: &str| config(&format!("{}\n{} = {value}", lines.join("\n"), key.name));
            // Secrets show no default, and required keys have none.
            let range = key.range.iter().flat_map(|range| range.split(" to ")).filter_map(with);
            let words = key.unit.split('`').filter_map(|word| with(&format!("{word:?}")));
            let further = FURTHER.lines().filter_map(with);
            let (mut found, mut is_changed) = (Vec::<Config>::new(), false);
            for config in with(&key.default).into_iter().chain(range).chain(words).chain(further) {
                is_changed |= found.first().is_some_and(|first| options(first) != options(&config));
                found.push(config);
                if is_changed && found.len() > 2 {
                    break;
                }
            }
            check(&section, key, &found);
        }
    }
}

/// For each key, one of the tried values changes the options.
#[test]
fn every_key_reaches_the_options() {
    for_every_key(|section, key, configs| {
        let is_option = configs.iter().any(|config| options(config) != options(&configs[0]));
        let expect = !WITHOUT_OPTION.contains(&key.name);
        assert_eq!(is_option, expect, "{} in {}", key.name, section.bracketed());
    });
}

/// The data plane applies every change that a reload reports as applied. The control plane, the issuers'
/// keys, the certificates and the times of a drain are replaced completely.
#[test]
fn reported_changes_are_applied() {
    for_every_key(|section, key, configs| {
        let name =
            if section.repeated { section.name.into() } else { format!("{}.{}", section.name, key.name) };
        let mut is_changed = false;
        for next in configs {
            let (running, mut next) = (&configs[0], next.clone());
            let Changes { applied, restart_needed, .. } = next.apply(running);
            let has_name = |names: &[String]| names.contains(&name);
            is_changed |= has_name(&applied) || has_name(&restart_needed);
            assert!(!(key.restart && has_name(&applied)), "{name} {}", key.name);
            let (edge, next) = (running.options().edge, next.options().edge);
            let reloaded = stentor_edge::Options { session: edge.reloaded(next.session.clone()), ..edge };
            assert_eq!(format!("{reloaded:?}"), format!("{next:?}"), "{name}: {applied:?}");
        }
        assert!(is_changed, "{name} {}", key.name);
    });
}
