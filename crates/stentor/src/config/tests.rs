//! Tests of the configuration's values and messages, and of the generated reference.

mod auth;
mod messages;
mod options;

use auth::ISSUER;

use super::schema::{App, Driver, LogFormat};
use super::setting::{Raw, Setting};
use super::value::{Bytes, Origin};
use super::*;
use std::time::Duration;

/// Makes sources with `text` as the content of `stentor.toml`.
fn from_file(text: &str) -> Sources {
    let mut sources = Sources::default();
    file::apply(&mut sources, "stentor.toml", text);
    sources
}

fn load(text: &str) -> Result<Config, String> {
    from_file(text).load().map(|(config, _)| config).map_err(|problems| problems.to_string())
}

/// Asserts the messages about the mistakes in `text`, one per line. Empty for a valid text.
#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(load(text).err().unwrap_or_default(), expect, "in {text:?}");
}

#[test]
fn an_empty_file_is_a_configuration() {
    assert_eq!(load(""), Ok(Config::default()));
    let defaults = Config::default();
    assert_eq!(defaults.limits.message_bytes_max, Bytes(1_000_000));
    assert_eq!(defaults.limits.send_buffer_bytes_max, Bytes(1_048_576));
    assert_eq!(defaults.heartbeat.interval, Duration::from_secs(25));
    assert_eq!(defaults.heartbeat.timeout, Duration::from_secs(20));
    assert!(!defaults.rooms.publish);
    assert_eq!(defaults.changed(), []);
}

#[test]
fn defaults_lie_within_their_ranges() {
    // Lines that must accompany a section, because the section has no effect alone.
    let beside = |section: &str| if section.starts_with("auth") { auth::ISSUER } else { "" };
    for section in sections().into_iter().filter(|info| !info.repeated) {
        for key in section.keys.iter().filter(|key| key.default != "none") {
            let beside = beside(section.name);
            let text = format!("[{}]\n{} = {}\n{beside}", section.name, key.name, key.default);
            assert_eq!(load(&text), load(beside), "{text}");
            assert!(load(beside).is_ok());
        }
    }
}

#[test]
fn every_key_is_described() {
    let mut seen = std::collections::HashSet::new();
    for section in sections() {
        assert!(section.doc.ends_with('.'), "{}", section.name);
        for key in section.keys {
            assert!(key.doc.ends_with('.'), "{} in [{}]: {:?}", key.name, section.name, key.doc);
            assert!(seen.insert((section.name, key.name)));
        }
    }
}

#[test]
fn too_many_feeds_are_refused() {
    let many = "[[feeds]]\n".repeat(schema::REPEATED_MAX + 1);
    check(&many, "stentor.toml:1: 1001 feeds; the maximum is 1000");
}

#[test]
fn secrets_are_not_shown() {
    let text = "[server]\nadmin_token = \"0123456789abcdef\"\n[[feeds]]\nname = \"a\"\nurl = \"http://a\"\n\
                headers = { Authorization = \"Bearer hunter2\" }";
    let config = load(text).unwrap();
    assert_eq!(config.feeds[0].headers.0[0].1.reveal(), "Bearer hunter2");
    assert_eq!(config.server.admin_token.0.as_ref().unwrap().reveal(), "0123456789abcdef");
    let shown = format!("{config:?} {:?} {}", config.changed(), config.feeds[0].headers.show());
    assert!(!shown.contains("hunter2") && !shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn the_header_of_proxies_has_no_case() {
    use stentor_edge::ForwardedHeader::{self, Forwarded, Named, XForwardedFor};
    let check = |text: &str, expect: ForwardedHeader, shown: &str| {
        let header = load(&format!("[proxies]\nheader = \"{text}\"")).unwrap().proxies.header;
        assert_eq!((&header, &*header.show()), (&expect, shown), "{text}");
    };
    check("X-Forwarded-For", XForwardedFor, r#""x-forwarded-for""#);
    check("FORWARDED", Forwarded, r#""forwarded""#);
    check("CF-Connecting-IP", Named("CF-Connecting-IP".into()), r#""CF-Connecting-IP""#);
}

#[test]
fn headers_show_the_secrets_that_they_name() {
    let text = "[[feeds]]\nname = \"a\"\nurl = \"http://a\"\n\
                headers = { X-Key = \"hunter2 ${TOKEN} ${file:/dev}\", Y = \"hunter2\" }";
    let headers = load(text).unwrap().feeds[0].headers.show();
    assert_eq!(headers, "{ x-key = (secret with ${TOKEN}, ${file:/dev}), y = (secret) }");
}

#[test]
fn listeners_add_to_the_first_one() {
    let listeners = "[[listeners]]\naddress = \"127.0.0.1:8443\"\n[[listeners]]\naddress = \"[::1]:8443\"\n";
    let config = load(listeners).unwrap();
    let addresses: Vec<_> =
        config.options().edge.all_listeners().iter().map(|listener| listener.address).collect();
    assert_eq!(
        addresses,
        ["127.0.0.1:8000", "127.0.0.1:8443", "[::1]:8443"].map(|addr| addr.parse().unwrap())
    );
}

#[test]
fn hooks_reach_the_options_with_their_secret() {
    let text = "[[hooks]]\nname = \"a\"\nurl = \"http://h/x?y=1\"\non = [\"event\"]\nsecret = \"${KEY}-0123456789abcdef\"";
    let environment = [("KEY".to_owned(), "k".to_owned())];
    let (config, warnings) = from_file(text).environment(environment).load().unwrap();
    let [hook_options] = &config.options().hooks[..] else { panic!("one hook") };
    let secret = hook_options.secret.as_ref().map(|secret| secret.reveal());
    assert_eq!(secret, Some("k-0123456789abcdef"));
    assert_eq!(hook_options.on, [stentor_control::HookKind::Event]);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(!format!("{:?}", config.options()).contains("0123456789abcdef"));
}

#[test]
fn flags_over_environment_over_file() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\ncores = 1\napp = \"echo\"\nlog = \"json\"";
    let variables = [("STENTOR_SERVER_LISTEN", "127.0.0.1:2"), ("STENTOR_SERVER_CORES", "2"), ("CORES", "9")];
    let variables = variables.map(|(name, value)| (name.to_string(), value.to_string()));
    let flags = vec![("listen", Some("127.0.0.1:3".to_owned())), ("admin", None)];
    let (config, warnings) = from_file(file).environment(variables).flags(flags).load().unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.cores, 2);
    assert_eq!((config.server.app, config.server.log), (App::Echo, LogFormat::Json));
    assert_eq!(config.server.driver, Driver::Auto);
}

#[test]
fn lists_in_the_environment() {
    let variable = ("STENTOR_ORIGINS_ALLOW".to_owned(), "https://a.example, https://*.b.example".to_owned());
    let (config, _) = Sources::default().environment([variable]).load().unwrap();
    assert_eq!(
        config.origins.allow.iter().map(Origin::as_str).collect::<Vec<_>>(),
        ["https://a.example", "https://*.b.example"]
    );
}

#[test]
fn sizes() {
    fn check(text: &str, expect: Option<usize>) {
        assert_eq!(Bytes::read(Raw::Text(text)).ok(), expect.map(Bytes), "{text:?}");
    }
    check("0", Some(0));
    check("512", Some(512));
    check("512B", Some(512));
    check("1kB", Some(1000));
    check("1KB", Some(1000));
    check("1KiB", Some(1024));
    check("64kib", Some(65_536));
    check("1MB", Some(1_000_000));
    check("1 MiB", Some(1 << 20));
    check(" 2GB ", Some(2_000_000_000));
    check("1GiB", Some(1 << 30));
    for wrong in ["", "MB", "-1", "1.5MB", "1TB", "1M", "99999999999999999999", "99999999999999GiB", "1MB2"] {
        check(wrong, None);
    }
    for (bytes, shown) in [(0, "0"), (1, "1"), (512, "512"), (1000, "\"1kB\""), (1 << 20, "\"1MiB\"")] {
        assert_eq!(Bytes(bytes).show(), shown);
    }
}

#[test]
fn durations() {
    fn check(text: &str, expect_ms: Option<u64>) {
        assert_eq!(Duration::read(Raw::Text(text)).ok(), expect_ms.map(Duration::from_millis), "{text:?}");
    }
    check("25s", Some(25_000));
    check("300ms", Some(300));
    check("5min", Some(300_000));
    check("5m", Some(300_000));
    check("1h", Some(3_600_000));
    check("1 s", Some(1000));
    check("0s", Some(0));
    for wrong in ["", "s", "25", "1.5s", "-1s", "1d", "1s5", "99999999999999999999s", "18446744073709551615h"]
    {
        check(wrong, None);
    }
    for (ms, shown) in [(0, "\"0ms\""), (300, "\"300ms\""), (90_000, "\"90s\""), (120_000, "\"2min\"")] {
        assert_eq!(Duration::from_millis(ms).show(), shown);
    }
}

#[test]
fn origins() {
    // Pages from files and sandboxed frames, which have no host, send `null` or `file://`.
    let valid = "https://example.com https://example.com:8443 http://localhost:3000 https://*.example.com http://127.0.0.1:1 \
                 http://[::1] http://[::1]:80 capacitor://localhost null file:// *";
    for text in valid.split(' ') {
        assert!(Origin::read(Raw::Text(text)).is_ok(), "{text:?}");
    }
    let wrong = "example.com https:// https://a/b https://*example.com https://a.*.com https://* https://a:99999 https://a: \
                 https://me@a https://`a` https://a$ https://[::g] ://a";
    for text in wrong.split(' ').chain(["", "https://a b"]) {
        assert!(Origin::read(Raw::Text(text)).is_err(), "{text:?}");
    }
    assert_eq!(Origin::read(Raw::Text("HTTPS://Example.COM")).unwrap().as_str(), "https://example.com");
}

#[test]
fn long_values_are_shortened() {
    let text = format!("[server]\nlisten = {:?}", "é".repeat(1000));
    let message = load(&text).unwrap_err();
    assert!(message.chars().count() < 200, "{message}");
}

#[test]
fn files_that_cannot_be_read() {
    fn check(path: &Path, expect: &str) {
        let problems = Sources::default().file(path).load().unwrap_err().to_string();
        assert_eq!(problems, format!("{}: {expect}", path.display()));
    }
    let dir = tempfile::tempdir().unwrap();
    check(&dir.path().join("none.toml"), "cannot be read: No such file or directory (os error 2)");
    let binary = dir.path().join("binary.toml");
    std::fs::write(&binary, b"\xff\xfe").unwrap();
    check(&binary, "is not UTF-8 text");
    let large = dir.path().join("large.toml");
    std::fs::write(&large, " ".repeat((1 << 20) + 1)).unwrap();
    check(&large, "is larger than 1048576 bytes");
}

/// A file that is cut at any byte results in a configuration or an error, without a panic.
#[test]
fn a_truncated_file_is_accepted_or_refused() {
    let text = "[server]\nlisten = \"127.0.0.1:1\"\ncores = 1\n[origins]\nallow = [\"https://a.example\"]\n\
                [[feeds]]\nname = \"a\"\nurl = \"http://a\"\nheaders = { A = \"b\" }\n[limits]\nheader_bytes_max = \"1MB\"";
    for end in 0..=text.len() {
        let _ = load(&text[..end]);
        let _ = load(&text[end..]);
    }
}

#[test]
fn configuration_reference_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let expect = reference::markdown();
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == expect,
        "docs/configuration.md is old: cargo run -p stentor -- keys > docs/configuration.md"
    );
}

/// Checks that the reference's example is a valid configuration.
#[test]
fn the_example_of_the_reference_is_valid() {
    let page = reference::markdown();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = load(example).unwrap();
    assert_eq!(config.feeds[0].prefix, "scores/");
    assert_eq!(config.origins.allow.len(), 2);
    assert_eq!(config.feeds[1].key, "matchesfeed/{id}/matchcentre");
}

#[cfg(not(feature = "engines"))]
#[test]
fn a_build_without_engines_reports_the_missing_engine() {
    let lacks = |engine| {
        format!(
            "this build has no {engine}; `cargo build --release --package stentor` builds a program that has it"
        )
    };
    check(
        "[cluster]\nengine = \"redis://a\"",
        &format!("stentor.toml:2: engine in [cluster]: {}; found \"redis://a\"", lacks("Redis")),
    );
    check(
        "[cluster]\nengine = \"tls://a\"",
        &format!("stentor.toml:2: engine in [cluster]: {}; found \"tls://a\"", lacks("NATS")),
    );
    check(
        "[[cluster.socketio]]\nurl = \"redis://a\"",
        &format!("stentor.toml:2: [[cluster.socketio]]: {}", lacks("Redis")),
    );
}

#[test]
fn namespaces_shared_with_other_servers() {
    let text = "[cluster]\nengine = \"redis://127.0.0.1\"\n[socketio]\nnamespaces = [\"/a\"]\n\
                [[cluster.socketio]]\nnamespaces = [\"/\", \"/a\"]";
    let config = load(text).unwrap();
    assert_eq!(config.bridges.len(), 1);
    assert_eq!(config.bridges[0].namespaces, ["/", "/a"]);
}
