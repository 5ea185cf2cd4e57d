//! What is between Stentor and an upstream stays there: secrets are shown nowhere, and nothing of a client but its key
//! gets into a request.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// An API with one answer, and the heads of the requests that it gets.
fn upstream() -> (std::net::SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (heads, seen) = mpsc::channel();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut head, mut line) = (String::new(), String::new());
            while reader.read_line(&mut line).unwrap() > 2 {
                head += &std::mem::take(&mut line);
            }
            // One that fails is told of in the log.
            let status = if n == 0 { "200 OK" } else { "500 Internal Server Error" };
            let answer = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n1"
            );
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            if heads.send(head).is_err() {
                return;
            }
        }
    });
    (addr, seen)
}

fn exchange(addr: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn secrets_are_shown_nowhere_and_clients_add_nothing() {
    let (api, seen) = upstream();
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("stentor.toml");
    let text = format!(
        "[server]\nlog_level = \"trace\"\n\
         [[feeds]]\nname = \"api\"\nkey = \"k/{{x}}\"\nurl = \"http://{api}/{{x}}?apikey=hunter3\"\npoll_interval = \"50ms\"\n\
         headers = {{ Authorization = \"Bearer ${{SECRET_OF_TEST}}\", X-Key = \"hunter4\" }}\n"
    );
    std::fs::write(&config, text).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_stentor")).arg("check").arg(&config).output().unwrap();
    let shown = String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap();
    assert!(checked.status.success() && !shown.contains("hunter"), "{shown}");

    let mut child = Command::new(env!("CARGO_BIN_EXE_stentor"))
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "1", "--config"])
        .arg(&config)
        .env("SECRET_OF_TEST", "hunter2")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut log = String::new();
        stderr.read_to_string(&mut log).unwrap();
        log
    });
    let addr = ready.trim().strip_prefix("ready http://").unwrap();
    let request = "GET /feed/k/8?apikey=mine HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer mine\r\n\
                   x-key: mine\r\nx-forwarded-host: mine\r\ncookie: mine=1\r\n\r\n";
    let answer = exchange(addr, request);
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
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let log = log.join().unwrap();
    assert!(log.contains("feed configured") && log.contains("a fetch failed"), "{log}");
    assert!(!log.contains("hunter") && !answer.contains("hunter"), "{log}");
}

#[test]
fn without_its_variable_it_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("stentor.toml");
    let text = "[[feeds]]\nname = \"api\"\nurl = \"http://127.0.0.1:9\"\nheaders = { X-Key = \"${SECRET_OF_TEST}\" }\n";
    std::fs::write(&config, text).unwrap();
    let said = Command::new(env!("CARGO_BIN_EXE_stentor"))
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"])
        .arg(&config)
        .env_remove("SECRET_OF_TEST")
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(1));
    let said = String::from_utf8(said.stderr).unwrap();
    let expect = "4: headers in [[feeds]]: the header \"x-key\" needs the environment variable SECRET_OF_TEST, which is not set\n";
    assert!(said.ends_with(expect), "{said}");
}
