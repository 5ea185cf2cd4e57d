//! Every message of the configuration, exactly; and that the reference on disk is the one of the table.

mod auth;
mod options;

use super::schema::{App, Driver, LogFormat};
use super::setting::{Raw, Setting};
use super::value::{Bytes, Origin};
use super::*;
use std::time::Duration;

/// Reads `text` as the file `stentor.toml`.
fn from_file(text: &str) -> Sources {
    let mut sources = Sources::default();
    file::apply(&mut sources, "stentor.toml", text);
    sources
}

fn load(text: &str) -> Result<Config, String> {
    from_file(text).load().map(|(config, _)| config).map_err(|problems| problems.to_string())
}

/// What is wrong with `text`, one line for each mistake; empty: nothing.
#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(load(text).err().unwrap_or_default(), expect, "in {text:?}");
}

#[test]
fn nothing_is_a_configuration() {
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
    // A section that means nothing without another one.
    let beside = |section: &str| if section == "auth" { auth::ISSUER } else { "" };
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
fn unknown_keys_and_sections() {
    check(
        "[server]\n\n\nlisen = 5",
        r#"stentor.toml:4: unknown key "lisen" in [server]; did you mean "listen"?"#,
    );
    check("[server]\nquality = 5", r#"stentor.toml:2: unknown key "quality" in [server]"#);
    check(
        "[server]\nmessage_bytes_max = 5",
        r#"stentor.toml:2: unknown key "message_bytes_max" in [server]; did you mean "message_bytes_max" in [limits]?"#,
    );
    check("server.lisen = 5", r#"stentor.toml:1: unknown key "lisen" in [server]; did you mean "listen"?"#);
    check(
        "listen = \"127.0.0.1:80\"",
        r#"stentor.toml:1: unknown key "listen" outside of a section; did you mean "listen" in [server]?"#,
    );
    check(
        "lisen = \"127.0.0.1:80\"",
        r#"stentor.toml:1: unknown key "lisen" outside of a section; did you mean "listen" in [server]?"#,
    );
    check("[limit]\n", "stentor.toml:1: unknown section [limit]; did you mean [limits]?");
    check("\n[[feed]]\n", "stentor.toml:2: unknown section [feed]; did you mean [[feeds]]?");
    check("[whatever]\n", "stentor.toml:1: unknown section [whatever]");
    check(
        "[[feeds]]\nname = \"a\"\nurl = \"http://a\"\npoll_intervall = \"1s\"",
        r#"stentor.toml:4: unknown key "poll_intervall" in [[feeds]]; did you mean "poll_interval"?"#,
    );
}

#[test]
fn the_wrong_kind() {
    check("server = 5", "stentor.toml:1: [server] is a section, not a value");
    check(
        "[feeds]\nname = \"a\"",
        "stentor.toml:1: write [[feeds]] with two brackets: the section may be repeated",
    );
    check("[[server]]\n", "stentor.toml:1: write [server] with one bracket: the section can't be repeated");
    check(
        "[server]\nlisten = \"here\"",
        r#"stentor.toml:2: listen in [server]: expected an address such as "127.0.0.1:8000" or "[::1]:8000", found "here""#,
    );
    check(
        "[server]\nadmin = 8001",
        r#"stentor.toml:2: admin in [server]: expected an address such as "127.0.0.1:8000" or "[::1]:8000", found the number 8001"#,
    );
    check(
        "[server]\ncores = \"many\"",
        r#"stentor.toml:2: cores in [server]: expected a whole number, found "many""#,
    );
    check(
        "[server]\ncores = -1",
        "stentor.toml:2: cores in [server]: expected a whole number, not negative and below 2^63, found the number -1",
    );
    check("[server]\ncores = 5000", "stentor.toml:2: cores in [server]: 5000 is out of range: 0 to 256");
    check(
        "[server]\ndriver = \"uring\"",
        r#"stentor.toml:2: driver in [server]: expected "auto" or "io_uring" or "epoll", found "uring""#,
    );
    check(
        "[rooms]\npublish = \"yes\"",
        r#"stentor.toml:2: publish in [rooms]: expected true or false, found "yes""#,
    );
    check(
        "[limits]\nmessage_bytes_max = \"1 parsec\"",
        r#"stentor.toml:2: message_bytes_max in [limits]: expected a size such as "1MB", "64KiB" or 65536, found "1 parsec""#,
    );
    check(
        "[limits]\nmessage_bytes_max = 0",
        "stentor.toml:2: message_bytes_max in [limits]: 0 is out of range: 1 to \"1GiB\"",
    );
    check(
        "[heartbeat]\ninterval = 25",
        r#"stentor.toml:2: interval in [heartbeat]: expected a duration such as "25s", "300ms", "5min" or "1h", found the number 25; a unit is missing: "25s"?"#,
    );
    check(
        "[heartbeat]\ninterval = \"1ms\"",
        r#"stentor.toml:2: interval in [heartbeat]: "1ms" is out of range: "100ms" to "1h""#,
    );
    check(
        "[origins]\nallow = \"https://a.example\"",
        r#"stentor.toml:2: allow in [origins]: expected an array, found "https://a.example""#,
    );
    check(
        "[origins]\nallow = [\"https://a.example/\"]",
        r#"stentor.toml:2: allow in [origins]: an origin has no path: write "https://a.example", not "https://a.example/""#,
    );
    check(
        "[origins]\nallow = [\"a.example\"]",
        r#"stentor.toml:2: allow in [origins]: expected an origin such as "https://example.com", "https://*.example.com" or "*", found "a.example""#,
    );
    check(
        "[server]\nadmin_token = \"short\"",
        "stentor.toml:2: admin_token in [server]: a token needs at least 16 printable ASCII characters without spaces",
    );
    check(
        "[server]\nhosts = [\"http://a.example\"]",
        r#"stentor.toml:2: hosts in [server]: "http://a.example" is not a host: write a name or an address, such as "example.com", "example.com:8443", "192.0.2.1" or "[::1]""#,
    );
    check(
        "[[feeds]]\nname = \"a\"\nurl = \"http://a\"\ncomplete_on = [\"max-age=0\"]\nignore_cache_control = true",
        "stentor.toml:4: complete_on in [[feeds]]: ignore_cache_control must be false, else nothing ends the feed",
    );
}

#[test]
fn not_toml() {
    check("[server\n", "stentor.toml:1: not TOML: unclosed table, expected `]`");
    check(
        "[server]\ncores = 1\ncores = 2\n[x",
        "stentor.toml:3: not TOML: duplicate key\nstentor.toml:4: not TOML: unclosed table, expected `]`",
    );
}

#[test]
fn all_at_once_in_the_order_of_the_file() {
    check(
        "[server]\nlisen = 1\ncores = -1\n[limts]\nx = 1\n[[feeds]]\n[rooms]\npublish = 1",
        r#"stentor.toml:2: unknown key "lisen" in [server]; did you mean "listen"?
stentor.toml:3: cores in [server]: expected a whole number, not negative and below 2^63, found the number -1
stentor.toml:4: unknown section [limts]; did you mean [limits]?
stentor.toml:6: this feed has no "name"
stentor.toml:6: this feed has no "url"
stentor.toml:8: publish in [rooms]: expected true or false, found the number 1"#,
    );
}

#[test]
fn feeds_are_checked() {
    fn feed(keys: &str) -> String {
        format!("[[feeds]]\nname = \"a\"\nurl = \"http://a\"\n{keys}")
    }
    check(&feed(""), "");
    check(&feed("prefix = \"x/y\""), "");
    check("[[feeds]]\nname = \"a\"\nurl = \"http://a/b/?token=x\"", "");
    check(&feed("prefix = \"x/\""), "");
    check(
        &feed("prefix = \"x/../y\""),
        "stentor.toml:4: prefix in [[feeds]]: the prefix has a segment '.' or '..'",
    );
    let url = |url: &str| format!("[[feeds]]\nname = \"a\"\nurl = {url:?}");
    let wrong = |why: &str, url: &str| format!("stentor.toml:3: url in [[feeds]]: {why}: {url:?}");
    for (text, why) in [
        ("", "this is no URL"),
        ("http://a b", "this is no URL"),
        ("ftp://a", "expected a URL beginning with http:// or https://"),
        ("/path", "expected a URL beginning with http:// or https://"),
        ("http://a/#x", "a URL of an upstream can't have a fragment"),
    ] {
        check(&url(text), &wrong(why, text));
    }
    // What may be secret isn't shown.
    let credentials = "stentor.toml:3: url in [[feeds]]: credentials belong in the headers, not in the URL";
    check(&url("http://me:secret@a"), credentials);
    check(&url("ftp://a/?secret"), &wrong("expected a URL beginning with http:// or https://", "ftp://a/?…"));
    check(
        "[[feeds]]\nname = \"A b\"\nurl = \"http://a\"",
        r#"stentor.toml:2: name in [[feeds]]: expected 1 to 64 of a-z 0-9 - _, found "A b""#,
    );
    check(
        &(feed("prefix = \"p\"\n") + &feed("prefix = \"p\"")),
        "stentor.toml:6: name in [[feeds]]: feed number 1 has the same name\n\
         stentor.toml:8: prefix in [[feeds]]: feed number 1 already has the prefix \"p\"",
    );
    check(
        "[[feeds]]\nname = \"a\"\nurl = \"http://a\"\n[[feeds]]\nname = \"b\"\nurl = \"http://b\"",
        "stentor.toml:5: name in [[feeds]]: feed number 1 already has the prefix \"\"",
    );
    check(
        &feed("document_bytes_max = \"1GiB\""),
        r#"stentor.toml:4: document_bytes_max in [[feeds]]: "1GiB" is more than "256MiB" for all documents in [feeds_limits]"#,
    );
    // What is pushed has no URL, and shares the keys with what is fetched.
    let pushed = |keys: &str| format!("[[feeds]]\nname = \"p\"\npush = true\n{keys}\n");
    check(&pushed("prefix = \"live/\""), "");
    check(&pushed("key = \"live/{id}\""), "");
    check(
        &pushed("url = \"http://a\""),
        "stentor.toml:4: url in [[feeds]]: a feed with push = true has no url",
    );
    check(
        &(pushed("prefix = \"p\"") + &feed("prefix = \"p\"")),
        "stentor.toml:8: prefix in [[feeds]]: feed number 1 already has the prefix \"p\"",
    );
    check("[[feeds]]\nname = \"p\"\npush = false", "stentor.toml:1: this feed has no \"url\"");
    let template = |key: &str, url: &str| format!("[[feeds]]\nname = \"a\"\nkey = {key:?}\nurl = {url:?}\n");
    check(&template("m/{id}/centre", "http://a/match/{id}?full=1"), "");
    check(
        &template("m/{id}", "http://a/"),
        "stentor.toml:4: url in [[feeds]]: {id} of the key isn't used in it",
    );
    check(
        &(template("m/{id}", "http://a/{x}") + "prefix = \"m\""),
        "stentor.toml:3: key in [[feeds]]: a feed has either a prefix or a key, not both",
    );
    check(
        &template("m/{id", "gopher://a"),
        "stentor.toml:3: key in [[feeds]]: a { has no }: \"m/{id\"\n\
         stentor.toml:4: url in [[feeds]]: expected a URL beginning with http:// or https://: \"gopher://a\"",
    );
    check(
        &(template("m/{id}", "http://a/{id}") + &template("m/{x}", "http://a/{x}").replace("\"a\"", "\"b\"")),
        "stentor.toml:7: key in [[feeds]]: feed number 1 already has the keys of \"m/{x}\"",
    );
    check(
        &feed("headers = { \"a b\" = \"x\" }"),
        r#"stentor.toml:4: headers in [[feeds]]: "a b" is no name of a header"#,
    );
    check(
        &feed("headers = { Host = \"x\" }"),
        r#"stentor.toml:4: headers in [[feeds]]: the header "host" is set by the fetcher itself"#,
    );
    check(
        &feed("headers = { X-Key = \"a\\r\\nb\" }"),
        r#"stentor.toml:4: headers in [[feeds]]: the header "x-key" has characters that no header can have"#,
    );
    check(
        &feed("headers = { X-Key = 5 }"),
        r#"stentor.toml:4: headers in [[feeds]]: the header "x-key" has no text in quotes"#,
    );
    let mut many = String::new();
    for _ in 0..=schema::REPEATED_MAX {
        many += "[[feeds]]\n";
    }
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
fn headers_may_name_variables() {
    let load = |value: &str, variables: &[(&str, &str)]| {
        let text = format!("[[feeds]]\nname = \"a\"\nurl = \"http://a\"\nheaders = {{ X-Key = {value:?} }}");
        let variables = variables.iter().map(|(name, held)| ((*name).to_owned(), (*held).to_owned()));
        let loaded = from_file(&text).environment(variables.collect::<Vec<_>>()).load();
        let sent = |config: Config| config.feeds[0].headers.0[0].1.reveal().to_owned();
        loaded.map(|(config, _)| sent(config)).map_err(|problems| problems.to_string())
    };
    let check = |value: &str, variables: &[(&str, &str)], expect: &str| {
        assert_eq!(load(value, variables).as_deref(), Ok(expect), "{value}");
    };
    check("Bearer ${TOKEN}", &[("TOKEN", "hunter2")], "Bearer hunter2");
    check("${A}${_B2}", &[("A", "1"), ("_B2", "2")], "12");
    check("$ $A {A} $$", &[("A", "1")], "$ $A {A} $$");
    // What a variable holds is taken as it is.
    check("${A}", &[("A", "${B}"), ("B", "1")], "${B}");
    let wrong = |value: &str, variables: &[(&str, &str)], expect: &str| {
        let expect = format!("stentor.toml:4: headers in [[feeds]]: {expect}");
        assert_eq!(load(value, variables), Err(expect), "{value}");
    };
    let missing = "the header \"x-key\" needs the environment variable TOKEN, which is not set";
    wrong("Bearer ${TOKEN}", &[], missing);
    wrong("Bearer ${TOKEN}", &[("TOKEN", "")], missing);
    wrong(
        "Bearer ${TOKEN}",
        &[("TOKEN", "hunter2\n")],
        "the environment variable TOKEN, for the header \"x-key\", has characters that are not allowed in a header (a line break at its end?)",
    );
    wrong("${TOKEN", &[], "the header \"x-key\" has a ${ without a }");
    for name in ["", "1A", "A-B", "A B"] {
        let expect = "the header \"x-key\" has a ${…} that is not a valid variable name";
        wrong(&format!("${{{name}}}"), &[], expect);
    }
    // Without the environment, as `check` looks at a file, it is enough that they can be there.
    let text = "[[feeds]]\nname = \"a\"\nurl = \"http://a\"\nheaders = { X-Key = \"hunter2 ${TOKEN}\", Y = \"hunter2\" }";
    let headers = super::tests::load(text).unwrap().feeds[0].headers.show();
    assert_eq!(headers, "{ x-key = (secret with ${TOKEN}), y = (secret) }");
}

#[test]
fn rules_that_can_do_nothing_are_warned_of() {
    let check = |text: &str, expect: &[&str]| {
        let (_, warnings) = from_file(text).load().unwrap();
        assert_eq!(warnings, expect, "{text}");
    };
    check("[[rules]]\nevent = \"a\"\necho = true\n[[rules]]\nevent = \"b\"\njoin = [\"r\"]\n", &[]);
    let nothing = "stentor.toml:2: [[rules]] for \"a\": it does nothing, so the event is ignored (set join, leave, \
                   broadcast, echo or ack)";
    check("[[rules]]\nevent = \"a\"\nnamespace = \"/n\"", &[nothing]);
    let never =
        "stentor.toml:6: [[rules]] for \"a\": it never applies, because rule number 1 is for the same event";
    let two = |first: &str, second: &str| {
        format!(
            "[[rules]]\nevent = \"a\"\necho = true\n{first}\n[[rules]]\nevent = \"a\"\nack = true\n{second}"
        )
    };
    check(&two("", ""), &[never]);
    check(&two("", "namespace = \"/n\""), &[never]);
    check(&two("namespace = \"/n\"", "namespace = \"/n\""), &[never]);
    check(&two("namespace = \"/n\"", ""), &[]);
    check(&two("namespace = \"/n\"", "namespace = \"/m\""), &[]);
    let alone = "stentor.toml:2: [[rules]] for \"a\": except_sender and broadcast_as have no effect without broadcast";
    check("[[rules]]\nevent = \"a\"\necho = true\nexcept_sender = true", &[alone]);
    check("[[rules]]\nevent = \"a\"\nbroadcast = [\"*\"]\nexcept_sender = true", &[]);
}

#[test]
fn a_history_that_no_session_may_be_owed_is_warned_of() {
    let check = |text: &str, expect: &[&str]| {
        let (_, warnings) = from_file(text).load().unwrap();
        assert_eq!(warnings, expect, "{text}");
    };
    let warning = "stentor.toml:3: history_bytes_max in [rooms] is \"2MiB\", more than the \"1MiB\" that may be queued \
                   for a session (send_buffer_bytes_max in [limits]): a client that resumes and missed that much is disconnected (4501)";
    check("[rooms]\nhistory_length = 10\nhistory_bytes_max = \"2MiB\"", &[warning]);
    check("[rooms]\nhistory_bytes_max = \"2MiB\"", &[]);
    check("[rooms]\nhistory_length = 10", &[]);
    check(
        "[rooms]\nhistory_length = 10\nhistory_bytes_max = \"2MiB\"\n[limits]\nsend_buffer_bytes_max = \"2MiB\"",
        &[],
    );
    let smaller = "history_bytes_max in [rooms] is \"1MiB\", more than the \"1KiB\" that may be queued for a session \
                   (send_buffer_bytes_max in [limits]): a client that resumes and missed that much is disconnected (4501)";
    check("[rooms]\nhistory_length = 10\n[limits]\nsend_buffer_bytes_max = 1024", &[smaller]);
}

#[test]
fn the_admin_port_beyond_loopback_needs_a_token() {
    check(
        "[server]\nadmin = \"0.0.0.0:8001\"",
        "stentor.toml:2: the admin port at 0.0.0.0:8001 can be reached from other machines: set admin_token \
         in [server] (or STENTOR_SERVER_ADMIN_TOKEN)",
    );
    check("[server]\nadmin = \"0.0.0.0:8001\"\nadmin_token = \"0123456789abcdef\"", "");
    check("[server]\nadmin = \"[::1]:8001\"", "");
    check("[server]\nadmin = \"127.3.2.1:8001\"", "");
    let flags = vec![("admin", Some("[::]:1".to_owned()))];
    let problems = Sources::default().flags(flags).load().unwrap_err();
    assert!(problems.to_string().starts_with("--admin: the admin port at [::]:1"), "{problems}");
}

#[test]
fn the_admin_port_needs_a_certificate_and_its_key() {
    let expect = "stentor.toml:2: certificate and key in [admin_tls] need each other";
    check("[admin_tls]\ncertificate = \"a.pem\"", expect);
    check("[admin_tls]\nkey = \"a.pem\"", expect);
    let missing = "stentor.toml:2: /nowhere: can't be read: No such file or directory (os error 2)";
    check("[admin_tls]\ncertificate = \"/nowhere\"\nkey = \"/nowhere.key\"", missing);
    check("[admin_tls]\ncertificate = \"\"\nkey = \"\"", "");
}

#[test]
fn clients_and_the_admin_port_need_two_ports() {
    let expect =
        |line, port| format!("stentor.toml:{line}: listen and admin in [server] can't both use port {port}");
    check("[server]\nlisten = \"127.0.0.1:9000\"\nadmin = \"127.0.0.1:9000\"", &expect(3, 9000));
    check("[server]\nlisten = \"0.0.0.0:8001\"", &expect(2, 8001));
    check("[server]\nadmin = \"127.0.0.1:8000\"", &expect(2, 8000));
    check("[server]\nlisten = \"127.0.0.2:8001\"", "");
    check("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"", "");
}

#[test]
fn each_listener_needs_an_address_of_its_own() {
    let listeners = "[[listeners]]\naddress = \"127.0.0.1:8443\"\n[[listeners]]\naddress = \"[::1]:8443\"\n";
    let config = load(listeners).unwrap();
    let addresses: Vec<_> =
        config.options().edge.all_listeners().iter().map(|listener| listener.address).collect();
    assert_eq!(
        addresses,
        ["127.0.0.1:8000", "127.0.0.1:8443", "[::1]:8443"].map(|addr| addr.parse().unwrap())
    );
    let check = |text: &str, line: usize, expect: &str| {
        let expect = format!("stentor.toml:{line}: address in [[listeners]]: {expect} already");
        check(&format!("{listeners}{text}"), &expect);
    };
    check("[[listeners]]\naddress = \"127.0.0.1:8000\"", 6, "listen in [server] uses port 8000");
    check("[[listeners]]\naddress = \"0.0.0.0:8001\"", 6, "admin in [server] uses port 8001");
    check("[[listeners]]\naddress = \"127.0.0.1:8443\"", 6, "[[listeners]] number 1 uses port 8443");
    self::check("[[listeners]]\n", "stentor.toml:1: this listener has no \"address\"");
}

#[test]
fn hooks_are_checked() {
    let hook =
        |more: &str| format!("[[hooks]]\nname = \"a\"\nurl = \"http://h/x?y=1\"\non = [\"event\"]\n{more}");
    let text = hook("secret = \"${KEY}-0123456789abcdef\"");
    let environment = |key: &str| vec![("KEY".to_owned(), key.to_owned())];
    let (config, warnings) =
        Sources::default().text("stentor.toml", &text).environment(environment("k")).load().unwrap();
    let [hook_options] = &config.options().hooks[..] else { panic!("one hook") };
    let secret = hook_options.secret.as_ref().map(|secret| secret.reveal());
    assert_eq!(secret, Some("k-0123456789abcdef"));
    assert_eq!(hook_options.on, [stentor_control::HookKind::Event]);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(!format!("{:?}", config.options()).contains("0123456789abcdef"));
    let missing = Sources::default().text("stentor.toml", &text).environment(environment("")).load();
    let expect = "stentor.toml:5: secret in [[hooks]]: the environment variable KEY is not set";
    assert_eq!(missing.unwrap_err().to_string(), expect);

    check("[[hooks]]\nname = \"a\"\nurl = \"http://h\"", "stentor.toml:1: this hook has no \"on\"");
    let problem = |more: &str, expect: &str| check(&hook(more), &format!("stentor.toml:5: {expect}"));
    problem(
        "secret = \"short\"",
        "secret in [[hooks]]: expected at least 16 bytes; `openssl rand -hex 32` generates some",
    );
    problem("secret = \"${KEY\"", "secret in [[hooks]]: the secret has a ${ without a }");
    problem(
        "timeout = \"5s\"",
        "timeout in [[hooks]]: \"5s\" isn't shorter than \"5s\", which clients wait (decision_timeout in [limits])",
    );
    let again = hook(&hook("")).replacen("\"http://h/x", "\"ftp://h/x", 1);
    check(
        &again,
        "stentor.toml:3: url in [[hooks]]: expected a URL beginning with http:// or https://\n\
         stentor.toml:6: name in [[hooks]]: hook number 1 has the same name",
    );
    check(
        &hook("").replace("http://h", "http://u:password@h"),
        "stentor.toml:3: url in [[hooks]]: credentials don't belong in the URL; use secret to sign requests",
    );
    check(
        &hook("").replace("[\"event\"]", "[]"),
        "stentor.toml:4: on in [[hooks]]: name at least one of connect, subscribe, publish, event, or a notice",
    );
    let (_, warnings) = Sources::default()
        .text("stentor.toml", &format!("[server]\napp = \"echo\"\n{}", hook("")))
        .load()
        .unwrap();
    assert_eq!(warnings, ["[[hooks]]: app = \"echo\" in [server] hands no events over; use \"rooms\""]);
}

/// The parser's table holds 128.
#[test]
fn more_headers_than_can_be_parsed_are_refused() {
    check("[limits]\nheaders_max = 128", "");
    check(
        "[limits]\nheaders_max = 129",
        "stentor.toml:2: headers_max in [limits]: 129 is out of range: 8 to 128",
    );
}

#[test]
fn a_cookie_for_other_sites_has_to_be_secure() {
    let none = "[socketio]\ncookie = \"io\"\ncookie_same_site = \"none\"";
    check(
        none,
        "stentor.toml:3: cookie_same_site = \"none\" in [socketio] needs cookie_secure = true: browsers refuse the cookie \
         without it",
    );
    check(&format!("{none}\ncookie_secure = true"), "");
}

#[test]
fn flags_over_environment_over_file() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\ncores = 1\napp = \"echo\"\nlog = \"json\"";
    let variables = [("STENTOR_SERVER_LISTEN", "127.0.0.1:2"), ("STENTOR_SERVER_CORES", "2"), ("CORES", "9")];
    let variables = variables.map(|(name, value)| (name.to_string(), value.to_string()));
    let flags = vec![("listen", Some("127.0.0.1:3".to_owned())), ("admin", None)];
    let (config, warnings) = from_file(file).environment(variables).flags(flags).load().unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.cores, 2);
    assert_eq!((config.server.app, config.server.log), (App::Echo, LogFormat::Json));
    assert_eq!(config.server.driver, Driver::Auto);
}

#[test]
fn flags_have_the_same_ranges() {
    let flags = vec![("cores", Some("9999".to_owned()))];
    let problems = Sources::default().flags(flags).load().unwrap_err();
    assert_eq!(problems.to_string(), "--cores: 9999 is out of range: 0 to 256");
}

#[test]
fn the_environment() {
    fn environment(name: &str, value: &str) -> Sources {
        Sources::default().environment([(name.to_string(), value.to_string())])
    }
    fn check(name: &str, value: &str, expect: &str) {
        let error = environment(name, value).load().err().map(|problems| problems.to_string());
        assert_eq!(error.unwrap_or_default(), expect, "{name}={value}");
    }
    check("STENTOR_LIMITS_MESSAGE_BYTES_MAX", "2MB", "");
    check("STENTOR_LIMITS_MESSAGE_BYTES_MAX", "2000000", "");
    check("STENTOR_ROOMS_PUBLISH", "true", "");
    check("STENTOR_SERVER_ADMIN", "127.0.0.1:9", "");
    check("STENTOR_ROOMS_PUBLISH", "1", r#"STENTOR_ROOMS_PUBLISH: expected true or false, found "1""#);
    check("STENTOR_SERVER_CORES", "9999", "STENTOR_SERVER_CORES: 9999 is out of range: 0 to 256");
    check(
        "STENTOR_LIMITS_HEADER_TIMEOUT",
        "10",
        r#"STENTOR_LIMITS_HEADER_TIMEOUT: expected a duration such as "25s", "300ms", "5min" or "1h", found "10"; a unit is missing: "10s"?"#,
    );
    let (config, _) =
        environment("STENTOR_ORIGINS_ALLOW", "https://a.example, https://*.b.example").load().unwrap();
    assert_eq!(
        config.origins.allow.iter().map(Origin::as_str).collect::<Vec<_>>(),
        ["https://a.example", "https://*.b.example"]
    );
    let (_, warnings) = environment("STENTOR_SERVER_LISTN", "x").load().unwrap();
    assert_eq!(warnings, ["unknown variable STENTOR_SERVER_LISTN; did you mean STENTOR_SERVER_LISTEN?"]);
    // What Kubernetes sets for a service of that name.
    let (_, warnings) = environment("STENTOR_PORT", "tcp://10.0.0.1:80").load().unwrap();
    assert_eq!(warnings, Vec::<String>::new());
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
    fn check(text: &str, expect: bool) {
        assert_eq!(Origin::read(Raw::Text(text)).is_ok(), expect, "{text:?}");
    }
    for valid in [
        "https://example.com",
        "https://example.com:8443",
        "http://localhost:3000",
        "https://*.example.com",
        "http://127.0.0.1:1",
        "http://[::1]",
        "http://[::1]:80",
        "capacitor://localhost",
        "*",
    ] {
        check(valid, true);
    }
    for wrong in [
        "",
        "example.com",
        "https://",
        "https://a/b",
        "https://*example.com",
        "https://a.*.com",
        "https://*",
        "https://a:99999",
        "https://a:",
        "https://a b",
        "https://me@a",
        "https://`a`",
        "https://a$",
        "https://[::g]",
        "://a",
        "null",
    ] {
        check(wrong, false);
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

/// Whatever the file holds, the answer is a configuration or an error.
#[test]
fn every_cut_of_a_file_is_answered() {
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

/// The example in the reference works.
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
fn a_build_without_engines_says_what_it_lacks() {
    let lacks = |engine| {
        format!(
            "this build has no {engine}; `cargo build --release --package stentor` builds a program that has it"
        )
    };
    check(
        "[cluster]\nengine = \"redis://a\"",
        &format!("stentor.toml:2: engine in [cluster]: {}", lacks("Redis")),
    );
    check(
        "[cluster]\nengine = \"tls://a\"",
        &format!("stentor.toml:2: engine in [cluster]: {}", lacks("NATS")),
    );
    check(
        "[[cluster.socketio]]\nurl = \"redis://a\"",
        &format!("stentor.toml:2: [[cluster.socketio]]: {}", lacks("Redis")),
    );
}

#[test]
fn namespaces_shared_with_other_servers() {
    let engine = "[cluster]\nengine = \"redis://127.0.0.1\"\n";
    let shared =
        |more: &str| format!("{engine}[socketio]\nnamespaces = [\"/a\"]\n[[cluster.socketio]]\n{more}");
    let config = load(&shared("namespaces = [\"/\", \"/a\"]")).unwrap();
    assert_eq!(config.bridges.len(), 1);
    assert_eq!(config.bridges[0].namespaces, ["/", "/a"]);
    check("[[cluster.socketio]]\nurl = \"redis://127.0.0.1\"", "");
    check(&shared("adapter = \"sharded\"\nsubscription_mode = \"dynamic-private\""), "");
    check(&shared("parser = \"json\""), "");
    check(
        &shared("subscription_mode = \"static\""),
        "stentor.toml:6: subscription_mode in [[cluster.socketio]]: it has no effect unless adapter is \"sharded\"",
    );
    check(
        &shared("adapter = \"sharded\"\nparser = \"json\""),
        "stentor.toml:7: parser in [[cluster.socketio]]: it has no effect unless adapter is \"classic\"",
    );
    check(
        "[cluster]\ncertificate_file = \"node.pem\"",
        "stentor.toml:2: certificate_file and key_file in [cluster] need each other",
    );
    check(
        "[[cluster.socketio]]\nnamespaces = [\"/\"]",
        "stentor.toml:2: this [[cluster.socketio]] has no url, and there is no Redis in [cluster] engine to use instead",
    );
    check(
        "[cluster]\nengine = \"nats://a\"\n[[cluster.socketio]]\nnamespaces = [\"/\"]",
        "stentor.toml:4: this [[cluster.socketio]] has no url, and there is no Redis in [cluster] engine to use instead",
    );
    check(
        "[[cluster.socketio]]\nurl = \"nats://a\"\nnamespaces = [\"/\"]",
        "stentor.toml:2: url in [[cluster.socketio]]: expected the URL of a Redis",
    );
    check(
        &shared("namespaces = [\"a\"]"),
        "stentor.toml:6: namespaces in [[cluster.socketio]]: a namespace must begin with / and have no comma or question mark: \"a\"",
    );
    check(
        &shared("namespaces = []"),
        "stentor.toml:6: namespaces in [[cluster.socketio]]: name at least one namespace",
    );
    check(
        &shared("[[cluster.socketio]]\nnamespaces = [\"/\"]"),
        "stentor.toml:7: namespaces in [[cluster.socketio]]: \"/\" is shared already; it can be shared once with servers in Node, \
         and once with those in Python",
    );
    check(
        &format!("{}\n[rooms]\nhistory_length = 1", shared("")),
        "stentor.toml:8: history_length in [rooms] and [[cluster.socketio]] exclude each other: Socket.IO's servers publish without \
         positions, so that rooms of shared namespaces can't keep a history; remove one of them",
    );
    check(
        &shared("prefx = \"a\""),
        "stentor.toml:6: unknown key \"prefx\" in [[cluster.socketio]]; did you mean \"prefix\"?",
    );
    check(
        "[cluster.socketio]\nprefix = \"a\"",
        "stentor.toml:1: write [[cluster.socketio]] with two brackets: the section may be repeated",
    );
    let (_, warnings) = from_file(&shared("namespaces = [\"/b\"]")).load().unwrap();
    assert_eq!(
        warnings,
        [
            "stentor.toml:6: namespaces in [[cluster.socketio]]: clients can't connect to \"/b\", because it isn't in namespaces in \
          [socketio]"
        ]
    );
}
