//! What is between Stentor and an upstream stays there: secrets are shown nowhere, and nothing of a client but its key
//! gets into a request.

use crate::process::{exchange, start_by, upstream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn secrets_are_shown_nowhere_and_clients_add_nothing() {
    let (heads, seen) = mpsc::channel();
    let api = upstream(move |head| {
        // A fetch that fails is reported in the log.
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
    // When the third comes the failure of the second has been told.
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
