//! `check` and `serve` report every mistake of a configuration in one run.

use crate::process::upstream;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

/// Each case is the head of a section and lines of it, separated by ` | `. The indented lines below it are the expected findings, with
/// the number of the line in the case.
const MISCONFIGURATIONS: &str = r##"
[server] | lisen = "0.0.0.0:80"
  2: unknown key "lisen" in [server]; did you mean "listen"?
[server] | cores = "2"
  2: cores in [server]: expected a whole number, found "2"; write 2 without quotes
[server] | admin = "0.0.0.0:8001"
  2: the admin port at 0.0.0.0:8001 can be reached from other machines: set admin_token in [server] (or STENTOR_SERVER_ADMIN_TOKEN)
[server] | base_path = "rt/"
  2: base_path in [server]: expected a path such as "/rt", without "/" at its end, of letters, digits and -._~, at most 256 bytes; found "rt/"
[server] | driver
  2: not TOML: key with no value, expected `=`
[limits] | message_bytes_max = "5"
  2: message_bytes_max in [limits]: expected a size such as "1MB", "64KiB" or 65536, found "5"; a unit is missing: "5B" or "5MB"?
[limits] | header_timeout = 10
  2: header_timeout in [limits]: expected a duration such as "25s", "300ms", "5min" or "1h", found the number 10; a unit is missing: "10s"?
[heartbeat] | interval = "1ms"
  2: interval in [heartbeat]: "1ms" is out of range: "100ms" to "1h"
[origins] | allow = ["example.com", "https://example.com/"]
  2: allow in [origins]: expected an origin such as "https://example.com", "https://*.example.com" or "*", found "example.com"; an origin has no path: write "https://example.com", not "https://example.com/"
[rooms] | publish = "true"
  2: publish in [rooms]: expected true or false, found "true"; write true without quotes
[proxies] | trusted = ["10.0.0.300", "10.0.0.0/40"]
  2: trusted in [proxies]: "10.0.0.300" is not a network: write an address, or one with the length of its prefix and no bits after it, such as "10.0.0.0/8", "192.0.2.1" or "2001:db8::/32"
  2: trusted in [proxies]: "10.0.0.0/40" is not a network: write an address, or one with the length of its prefix and no bits after it, such as "10.0.0.0/8", "192.0.2.1" or "2001:db8::/32"
[socketio] | cookie_same_site = "none"
  2: cookie_same_site = "none" in [socketio] needs cookie_secure = true: browsers refuse the cookie without it
[server2] | listen = "0.0.0.0:80"
  1: unknown section [server2]; did you mean [server]?
[admin_tls] | certificate = "/nowhere/admin.pem"
  2: certificate and key in [admin_tls] need each other: set both; found "/nowhere/admin.pem"
[cluster] | ca_file = "/nowhere/ca.pem"
  2: ca_file in [cluster]: /nowhere/ca.pem: No such file or directory (os error 2); name a file that the server's user can read
[[listeners]] | address = "127.0.0.1:8443" | [[listeners]] | address = "127.0.0.1:8443"
  4: address in [[listeners]]: [[listeners]] number 1 uses port 8443 already; found "127.0.0.1:8443"
[[tls]] | certificate = "/nowhere/a.pem" | key = "/nowhere/a.key"
  2: certificate in [[tls]]: /nowhere/a.pem: can't be read: No such file or directory (os error 2); name a file that the server's user can read
  3: key in [[tls]]: /nowhere/a.key: can't be read: No such file or directory (os error 2); name a file that the server's user can read
[[feeds]] | name = "a" | prefix = "a/" | poll_interval = "5"
  1: this feed has no "url"
  4: poll_interval in [[feeds]]: expected a duration such as "25s", "300ms", "5min" or "1h", found "5"; a unit is missing: "5s"?
[[feeds]] | name = "B" | prefix = "b/" | url = "ftp://b"
  2: name in [[feeds]]: expected 1 to 64 of a-z 0-9 - _, found "B"
  4: url in [[feeds]]: expected a URL beginning with http:// or https://: "ftp://b"
[[feeds]] | name = "c" | prefix = "c/" | url = "https://c" | ca_file = "/nowhere/ca.pem"
  5: ca_file in [[feeds]]: /nowhere/ca.pem: No such file or directory (os error 2); name a file that the server's user can read
[[feeds]] | name = "d" | prefix = "d/" | url = "http://d" | headers = { X-Key = "${KEY" } | method = "PUT"
  5: headers in [[feeds]]: the header "x-key" has a ${ without a }
  6: method in [[feeds]]: expected "GET" or "POST", found "PUT"
[[hooks]] | name = "a" | url = "h/x" | on = ["evnt"] | secret = "short" | timeout = "1h"
  3: url in [[hooks]]: expected a URL beginning with http:// or https://: invalid format; found "h/x"
  4: on in [[hooks]]: expected "connect" or "subscribe" or "publish" or "event" or "connected" or "disconnected" or "subscribed" or "occupied" or "vacated" or "node_lost" or "resync", found "evnt"
  5: secret in [[hooks]]: expected at least 16 bytes; `openssl rand -hex 32` generates some
  6: timeout in [[hooks]]: "1h" isn't shorter than "5s", which clients wait (decision_timeout in [limits])
[[rules]] | event = "a" | join = ["r-{"] | echo = true
  3: join in [[rules]]: a { has no } after it: "r-{"
[[sockjs]] | prefix = "chat"
  2: "chat" is not a SockJS prefix: it must begin with "/", not end with "/", and have no "?"
[[auth.issuers]] | issuer = "a" | algorithms = ["none"] | jwks_url = "http://a.example/keys" | audience = "b"
  3: algorithms in [[auth.issuers]]: expected an algorithm such as "RS256", "ES256", "EdDSA" or "HS256", found "none"
  4: jwks_url in [[auth.issuers]]: expected a URL such as https://id.example.com/.well-known/jwks.json; http:// only with 127.0.0.1, [::1] or localhost; found "http://a.example/keys"
[[auth.issuers]] | issuer = "b" | algorithms = ["HS256"] | keys = [{ secret = "short" }]
  4: keys in [[auth.issuers]]: key number 1: a secret needs 32 to 1,024 bytes, as many as the hash of its algorithm (HS256: 32); `openssl rand -hex 32` makes one
[[auth.issuers]] | issuer = "c" | algorithms = ["ES256"] | jwks_url = "https://c.example/keys" | audience = "c" | [[permissions]] | rooms = ["user-*"] | allow = ["read"]
  7: [[permissions]] number 1: "user-*" has a * next to other characters: * stands for a whole segment, between / or :
  8: [[permissions]] number 1: "read" is not an action; expected subscribe, publish, presence or history
"##;

struct Case {
    lines: Vec<&'static str>,
    /// Expected findings: the line in the case, and the text.
    findings: Vec<(usize, &'static str)>,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in MISCONFIGURATIONS.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("  ").and_then(|finding| finding.split_once(": ")) {
            Some((line, text)) => cases.last_mut().unwrap().findings.push((line.parse().unwrap(), text)),
            None => cases.push(Case { lines: line.split(" | ").collect(), findings: Vec::new() }),
        }
    }
    assert!(cases.len() >= 25);
    cases
}

fn stentor(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stentor"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STENTOR_") {
            command.env_remove(name);
        }
    }
    command.current_dir(dir);
    command
}

/// Returns the mistakes that a command prints for this file, without warnings.
fn mistakes(command: &mut Command) -> Vec<String> {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(1), 0), "{text}");
    text.lines().filter(|line| !line.starts_with("warning: ")).map(str::to_owned).collect()
}

/// Asserts that `check` and `serve` print these mistakes of a file.
fn assert_mistakes(text: &str, mut expect: Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("stentor.toml"), text).unwrap();
    let checked = mistakes(stentor(dir.path()).args(["check", "stentor.toml"]));
    assert_eq!(checked, expect, "check of:\n{text}");
    // This mistake prevents a start if the file's mistakes aren't found.
    let mut serve = stentor(dir.path());
    let served =
        mistakes(serve.env("STENTOR_SERVER_CORES", "9999").args(["serve", "--config", "stentor.toml"]));
    expect.push("STENTOR_SERVER_CORES: 9999 is out of range: 0 to 256".to_owned());
    assert_eq!(served, expect, "serve with:\n{text}");
}

#[test]
fn check_and_serve_report_each_misconfiguration() {
    for Case { lines, findings } in cases() {
        let expect = findings.iter().map(|(line, text)| format!("stentor.toml:{line}: {text}"));
        assert_mistakes(&lines.join("\n"), expect.collect());
    }
}

/// All cases in one file. A section that can't be repeated gets the lines of all its cases.
#[test]
fn no_mistake_hides_another() {
    let cases = cases();
    let (mut heads, mut members) = (Vec::new(), BTreeMap::<&str, Vec<&Case>>::new());
    for case in &cases {
        let head = case.lines[0];
        if !members.contains_key(head) {
            heads.push(head);
        }
        members.entry(head).or_default().push(case);
    }
    let (mut text, mut expect) = (Vec::new(), Vec::new());
    for head in heads {
        for (n, case) in members[head].iter().enumerate() {
            // Number of lines before the case's first one.
            let mut before = text.len();
            if n == 0 || head.starts_with("[[") {
                text.push(head);
            } else {
                before -= 1;
            }
            text.extend(&case.lines[1..]);
            expect.extend(case.findings.iter().map(|(line, text)| (before + line, *text)));
        }
    }
    expect.sort_by_key(|(line, _)| *line);
    let expect = expect.iter().map(|(line, text)| format!("stentor.toml:{line}: {text}")).collect();
    assert_mistakes(&text.join("\n"), expect);
}

/// Runs `check --json`. Returns the exit code and the output.
fn json(
    dir: &Path,
    text: &str,
    command: impl FnOnce(&mut Command) -> &mut Command,
) -> (Option<i32>, serde_json::Value) {
    std::fs::write(dir.join("stentor.toml"), text).unwrap();
    let output = command(stentor(dir).args(["check", "stentor.toml", "--json"])).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn json_names_the_parts_of_each_finding() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[limits]\nheader_timeout = 10\n[[hooks]]\nname = \"a\"\nurl = \"http://a\"\non = [\"event\"]\nsecret = \"hunter2\"\n";
    let (code, output) = json(dir.path(), text, |command| command);
    assert_eq!((code, &output["valid"], &output["version"]), (Some(1), &false.into(), &1.into()));
    let expect = serde_json::json!([
        {
            "severity": "error", "file": "stentor.toml", "line": 2, "variable": null,
            "section": "limits", "key": "header_timeout", "value": "10",
            "message": "header_timeout in [limits]: expected a duration such as \"25s\", \"300ms\", \"5min\" or \"1h\", found the \
                        number 10; a unit is missing: \"10s\"?",
        },
        {
            "severity": "error", "file": "stentor.toml", "line": 7, "variable": null,
            "section": "hooks[0]", "key": "secret", "value": null,
            "message": "secret in [[hooks]]: expected at least 16 bytes; `openssl rand -hex 32` generates some",
        },
    ]);
    assert_eq!(output["findings"], expect);
}

#[test]
fn the_password_of_a_mistyped_url_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let (code, output) =
        json(dir.path(), "[cluster]\nengine = \"redis:/:hunter2@redis:6379\"\n", |command| command);
    let finding = &output["findings"][0];
    assert_eq!(
        (code, &finding["key"], &finding["value"]),
        (Some(1), &"engine".into(), &serde_json::Value::Null)
    );
    assert!(!output.to_string().contains("hunter2"), "{output}");
}

#[test]
fn needs_hooks_and_taken_ports_are_listed() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "0123456789abcdef").unwrap();
    let token = dir.path().join("token").display().to_string();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\nadmin = \"127.0.0.1:0\"\n\
         [[hooks]]\nname = \"chat\"\nurl = \"http://h/x?key=1\"\non = [\"connect\", \"event\"]\nevents = [\"msg*\"]\nsecret = \"${{HOOK_SECRET}}\"\n\
         [[rules]]\nevent = \"msg2\"\necho = true\n\
         [[feeds]]\nname = \"a\"\nurl = \"http://a\"\nheaders = {{ X-Key = \"${{API_KEY}}\", X-Token = \"${{file:{token}}}\" }}\n"
    );
    let (code, output) =
        json(dir.path(), &text, |command| command.env("API_KEY", "k").env_remove("HOOK_SECRET"));
    assert_eq!((code, &output["valid"]), (Some(0), &true.into()));
    let need = |kind: &str, name: &str, section: &str, key: &str, available: bool| serde_json::json!({ "kind": kind, "name": name, "section": section, "key": key, "available": available });
    let expect = [
        need("variable", "API_KEY", "feeds[0]", "headers", true),
        need("file", &token, "feeds[0]", "headers", true),
        need("variable", "HOOK_SECRET", "hooks[0]", "secret", false),
    ];
    assert_eq!(output["needs"], serde_json::json!(expect));
    let hook = serde_json::json!({
        "name": "chat", "url": "http://h/x", "receives": ["connect", "event"], "events_handled_by_rules": ["msg2"],
    });
    assert_eq!(output["hooks"], serde_json::json!([hook]));
    let found: Vec<_> = output["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| (&finding["line"], &finding["message"]))
        .collect();
    let process = std::fs::read_to_string("/proc/self/comm").unwrap();
    let in_use = format!(
        "listen in [server]: 127.0.0.1:{port}: address in use by {} (process {}); stop that process unless it is the server itself, or \
         choose another port",
        process.trim_end(),
        std::process::id()
    );
    let expect = [
        (
            11,
            "[[rules]] for \"msg2\": it hides the event from the hook \"chat\", because rules come first; remove the rule, or the event \
              from the hook's events",
        ),
        (
            9,
            "secret in [[hooks]]: the environment variable HOOK_SECRET is not set here; set it where the server starts",
        ),
        (2, &*in_use),
    ];
    assert_eq!(
        found,
        expect
            .map(|(line, text)| (serde_json::json!(line), serde_json::json!(text)))
            .iter()
            .map(|(a, b)| (a, b))
            .collect::<Vec<_>>()
    );
    let shown = stentor(dir.path()).args(["check", "stentor.toml"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for part in [
        "\nHooks:\n  chat: http://h/x\n    connect: Clients that want to connect\n    event: Events of clients; events: msg*\n    a rule handles instead: msg2\n",
        "\nNeeds:\n  variable API_KEY is not set: headers in [[feeds]]\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn connect_tries_everything_once() {
    let api = upstream(|head| match head.split(' ').nth(1) {
        Some("/doc") => ("200 OK", "[1]"),
        Some("/hook") if head.to_lowercase().contains("\r\nstentor-signature: ") => {
            ("200 OK", "{\"answers\":[]}")
        }
        Some("/hook") => ("401 Unauthorized", ""),
        Some("/page") => ("200 OK", "<html>"),
        _ => ("404 Not Found", ""),
    });
    let dir = tempfile::tempdir().unwrap();
    let certificate = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    std::fs::write(dir.path().join("a.pem"), certificate.cert.pem()).unwrap();
    std::fs::write(dir.path().join("a.key"), certificate.signing_key.serialize_pem()).unwrap();
    let mut text = format!(
        "[[feeds]]\nname = \"one\"\nkey = \"doc\"\nurl = \"http://{api}/doc\"\n\
         [[feeds]]\nname = \"all\"\nprefix = \"m/\"\nurl = \"http://{api}\"\n\
         [[feeds]]\nname = \"away\"\nkey = \"away\"\nurl = \"http://127.0.0.1:1/?key=hunter2\"\n\
         [[hooks]]\nname = \"signed\"\nurl = \"http://{api}/hook\"\non = [\"event\"]\nsecret = \"${{HOOK_SECRET}}\"\n\
         [[hooks]]\nname = \"unsigned\"\nurl = \"http://{api}/hook\"\non = [\"connect\"]\n\
         [[hooks]]\nname = \"page\"\nurl = \"http://{api}/page\"\non = [\"connect\"]\n\
         [[auth.issuers]]\nissuer = \"i\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks_url = \"http://{api}/keys\"\n\
         [[tls]]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n"
    );
    let mut expect = vec![
        ("upstream", "one", true, "/doc: document: application/json, 3 bytes"),
        ("upstream", "all", true, "the key \"m/0\" is made up; try a real one with --fetch KEY"),
        ("upstream", "away", false, "http://127.0.0.1:1/?…: failure: connect: "),
        ("hook", "signed", true, "it answered 200 to a request without questions"),
        ("hook", "unsigned", false, "it answered 401 Unauthorized"),
        ("hook", "page", false, "the response is not as docs/hooks.md describes"),
        ("issuer", "i", false, "the answer is 404 Not Found"),
    ];
    if cfg!(feature = "engines") {
        text.push_str("[cluster]\nengine = \"redis://127.0.0.1:1\"\n");
        expect.push(("engine", "redis://127.0.0.1:1", false, "refused"));
    }
    expect.push(("certificate", "a.pem", true, "valid for "));
    let secret = ("HOOK_SECRET", "0123456789abcdef");
    let (code, output) = json(dir.path(), &text, |command| command.env(secret.0, secret.1).arg("--connect"));
    assert_eq!(code, Some(1), "{output:#}");
    assert_eq!(
        (&output["needs"][0]["name"], &output["needs"][0]["available"]),
        (&"HOOK_SECRET".into(), &true.into())
    );
    let connections = output["connections"].as_array().unwrap();
    assert_eq!(connections.len(), expect.len(), "{output:#}");
    for (connection, (kind, name, ok, part)) in connections.iter().zip(expect) {
        assert_eq!(
            (&connection["kind"], &connection["name"], &connection["ok"]),
            (&kind.into(), &name.into(), &ok.into())
        );
        assert!(connection["message"].as_str().unwrap().contains(part), "{connection:#}");
    }
    assert!(!output.to_string().contains("hunter2"));
    let good = &text[..text.find("[[feeds]]\nname = \"away\"").unwrap()];
    std::fs::write(dir.path().join("good.toml"), good).unwrap();
    let shown = stentor(dir.path()).args(["check", "good.toml", "--connect"]).output().unwrap();
    assert_eq!(shown.status.code(), Some(0));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains(&format!("\nConnections:\n  ok     upstream one: http://{api}/doc: document: ")),
        "{shown}"
    );
}
