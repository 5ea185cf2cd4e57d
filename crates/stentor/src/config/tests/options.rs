//! Every key reaches the options, and the defaults are theirs.

use super::super::*;
use super::Bytes;

/// Keys that set no option: the binary reads them itself.
const WITHOUT_OPTION: [&str; 6] =
    ["log", "log_level", "drain_delay", "drain_window", "shutdown_timeout", "takeover_socket"];

/// Several keys may set the same field, and a key may have a default of its own: all are those of the options.
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

/// The options with this file, or `None` if the types or ranges of its values are wrong.
fn options(file: &str) -> Option<String> {
    let mut sources = Sources::default();
    file::apply(&mut sources, "stentor.toml", file);
    let config = &sources.config;
    let all = || (config.options(), config.auth_options(), config.permission_rules());
    sources.problems.is_empty().then(|| format!("{:?}", all()))
}

/// Keys that a section needs to have any effect.
fn needed(section: &str) -> &'static [&'static str] {
    match section {
        "auth" => &["anonymous = \"allow\""],
        "auth.issuers" => &["issuer = \"a\"", "algorithms = [\"HS256\"]"],
        "permissions" => &["feeds = [\"a\"]", "allow = [\"publish\"]"],
        "feeds" => &["name = \"a\"", "url = \"http://a\""],
        "tls" => &["certificate = \"a\"", "key = \"a\""],
        "listeners" => &["address = \"127.0.0.1:1\""],
        "hooks" => &["name = \"a\"", "url = \"http://a\"", "on = [\"event\"]"],
        "rules" => &["event = \"a\""],
        "sockjs" => &["prefix = \"/a\""],
        "socketio" => &["recovery_ttl = \"1s\""],
        "rooms" => &["history_length = 1"],
        _ => &[],
    }
}

/// For each key there is a value that changes the options.
#[test]
fn every_key_reaches_the_options() {
    for section in sections() {
        for key in &section.keys {
            let mut lines = vec![section.bracketed()];
            let others = needed(section.name).iter().filter(|line| !line.starts_with(key.name));
            lines.extend(others.map(|line| (*line).to_owned()));
            let with = |value: &str| options(&format!("{}\n{} = {value}", lines.join("\n"), key.name));
            // Secrets don't show their default, which is none; required keys have none.
            let mut found: Vec<_> = with(&key.default).into_iter().collect();
            let range = key.range.iter().flat_map(|range| range.split(" to ")).filter_map(with);
            let words = key.unit.split('`').filter_map(|word| with(&format!("{word:?}")));
            let values = [
                "true",
                "false",
                "[\"a\"]",
                "[\"max-age=0\"]",
                "[\"connect\"]",
                "{ a = \"b\" }",
                "{ a = \"c\" }",
            ];
            let texts = [
                "\"redis://127.0.0.1\"",
                "\"127.0.0.1:9\"",
                "[\"https://a.example\"]",
                "[\"192.0.2.1\"]",
                "[]",
            ];
            let own = ["[\"ES256\"]", "[\"publish\"]", "[{ secret = \"0123456789abcdef0123456789abcdef\" }]"];
            let tokens = ["\"0123456789abcdef\"", "\"0123456789ABCDEF\""];
            found.extend(range.chain(words));
            found.extend(values.into_iter().chain(texts).chain(own).chain(tokens).filter_map(with));
            let is_option = found.iter().any(|options| *options != found[0]);
            let expect = !WITHOUT_OPTION.contains(&key.name);
            assert_eq!(is_option, expect, "{} in {}", key.name, section.bracketed());
        }
    }
}
