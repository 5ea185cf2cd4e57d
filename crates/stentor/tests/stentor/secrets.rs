//! Tests of the privacy between Stentor and an upstream: no output shows a secret, and a request contains no
//! client data but the key.

use crate::process::{answer, ask, exchange, start_by, upstream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

#[test]
fn secrets_are_shown_nowhere_and_clients_add_nothing() {
    let (heads, seen) = mpsc::channel();
    let api = upstream(move |head| {
        // All requests but the first fail, so that the log reports a failed fetch.
        static REQUESTS: AtomicUsize = AtomicUsize::new(0);
        let is_first = REQUESTS.fetch_add(1, Ordering::SeqCst) == 0;
        let _ = heads.send(head.to_owned());
        (if is_first { "200 OK" } else { "500 Internal Server Error" }, "1")
    });
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("stentor.toml");
    let text = format!(
        "[server]\nlog_level = \"trace\"\n\
         [[feeds]]\nname = \"api\"\nkey = \"k/{{x}}\"\nurl = \"http://{api}/{{x}}?apikey=hunter3\"\npoll_interval = \"50ms\"\n\
         headers = {{ Authorization = \"Bearer ${{SECRET_OF_TEST}}\", X-Key = \"hunter4\" }}\n"
    );
    std::fs::write(&config, &text).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_stentor")).arg("check").arg(&config).output().unwrap();
    let shown = String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap();
    assert!(checked.status.success() && !shown.contains("hunter"), "{shown}");

    let mut command = Command::new(env!("CARGO_BIN_EXE_stentor"));
    command.env("SECRET_OF_TEST", "hunter2");
    let server = start_by(command, &text);
    let request = "GET /feed/k/8?apikey=mine HTTP/1.1\r\nauthorization: Bearer mine\r\nx-key: mine\r\nx-forwarded-host: mine\r\n\
                   cookie: mine=1";
    let answer = exchange(&server.addr, request);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n1"), "{answer}");
    // When the third request arrives, the log has reported the second one's failure.
    for _ in 0..3 {
        let head = seen.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(head.starts_with("GET /8?apikey=hunter3 HTTP/1.1\r\n"), "{head}");
        let head = head.to_ascii_lowercase();
        assert!(
            head.contains("authorization: bearer hunter2\r\n") && head.contains("x-key: hunter4\r\n"),
            "{head}"
        );
        assert!(!head.contains("mine"), "{head}");
    }
    let log = server.end();
    assert!(log.contains("feed configured") && log.contains("a fetch failed"), "{log}");
    assert!(!log.contains("hunter") && !answer.contains("hunter"), "{log}");
}

/// Rotates the token of an upstream that refuses all other tokens and repeats the request in its response.
#[test]
fn a_secret_changes_and_is_in_no_output() {
    let accepted = Arc::new(Mutex::new("hunter-one"));
    let right = accepted.clone();
    let (answered, documents) = mpsc::channel();
    let api = upstream(move |head| {
        let is_right = head.contains(&format!("authorization: Bearer {}\r\n", right.lock().unwrap()));
        let is_right = is_right && head.starts_with("GET /hunter/k?token=hunter%26q HTTP/1.1\r\n");
        if is_right {
            let _ = answered.send(head.contains("three"));
            return ("200 OK", "1".to_owned());
        }
        ("401 Unauthorized", head.to_owned())
    });
    let dir = tempfile::tempdir().unwrap();
    let (config, token) = (dir.path().join("stentor.toml"), dir.path().join("token"));
    let text = format!(
        "[server]\nlog_level = \"trace\"\n\
         [[feeds]]\nname = \"api\"\nurl = \"${{BASE_OF_TEST}}?token=${{QUERY_OF_TEST}}\"\npoll_interval = \"50ms\"\n\
         headers = {{ Authorization = \"Bearer ${{file:{}}}\" }}\n[feeds_limits]\nbackoff_max = \"50ms\"\n",
        token.display()
    );
    std::fs::write(&config, &text).unwrap();
    std::fs::write(&token, "hunter-one\n").unwrap();
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stentor"));
        command.env("BASE_OF_TEST", format!("http://{api}/hunter/")).env("QUERY_OF_TEST", "hunter&q");
        command
    };
    let output = |arguments: &[&str]| {
        let done = command().arg("check").arg(&config).args(arguments).output().unwrap();
        (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
    };
    let mut shown = Vec::new();
    let (is_valid, checked) = output(&[]);
    assert!(is_valid && checked.contains("every key from ${BASE_OF_TEST}?…"), "{checked}");
    shown.push(checked);
    let (is_fetched, fetched) = output(&["--fetch", "k"]);
    assert!(is_fetched && fetched.contains("URL: ***/k?…\n") && fetched.contains("host: ***\n"), "{fetched}");
    shown.push(fetched);

    let server = start_by(command(), &text);
    let mut get = |addr: &str, path: &str, expect: u16| {
        let answer = exchange(addr, &format!("GET {path} HTTP/1.1"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {expect}")), "{answer}");
        shown.push(answer);
    };
    get(&server.addr, "/feed/k", 200);
    // The file has the new token before the API refuses the old one.
    std::fs::write(&token, "hunter-two\n").unwrap();
    *accepted.lock().unwrap() = "hunter-two";
    server.until_logged(&["a file with a secret has changed"], 1);
    get(&server.addr, "/feed/k", 200);
    *accepted.lock().unwrap() = "hunter-three";
    server.until_logged(&["fetches fail", "the upstream answered 401 to ***/k?…: GET ***/k?*** HTTP/1.1"], 1);
    get(&server.admin, "/api/v1/status", 200);
    get(&server.admin, "/metrics", 200);
    get(&server.admin, "/", 200);
    get(&server.addr, "/feed/k", 200);
    get(&server.addr, "/feed/other", 502);
    shown.push(output(&["--fetch", "k"]).1);
    shown.push(answer(ask(&server.admin, "POST", "/api/v1/fetch", "{\"key\":\"k\"}")).1);
    // A reload while the file is missing keeps the last value. A reload with a new value applies it.
    std::fs::remove_file(&token).unwrap();
    let reload = || {
        let (status, report) = answer(ask(&server.admin, "POST", "/api/v1/reload", ""));
        assert_eq!(status, 200, "{report}");
        report
    };
    shown.push(reload());
    server.until_logged(&["a file with a secret cannot be read", "its last value stays in use"], 1);
    std::fs::write(&token, "hunter-three\n").unwrap();
    shown.push(reload());
    while !documents.recv_timeout(Duration::from_secs(60)).unwrap() {}
    shown.push(server.end());
    for text in shown {
        assert!(!text.contains("hunter") && !text.contains(&api.to_string()), "{text}");
    }
}
