//! Tests of `serve` and `demo` as processes: the ready line, signals, reloads, an address in use.

use crate::process::{PATIENCE, Running, answer, ask, exchange, status};
use rustix::process::{Resource, Signal, getrlimit};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Starts the binary and waits for its ready line. Returns the process and its address.
fn start(args: &[&str]) -> (Running, String) {
    start_at("127.0.0.1:0", "127.0.0.1:0", args, Stdio::null())
}

fn start_at(listen: &str, admin: &str, args: &[&str], stderr: Stdio) -> (Running, String) {
    Running::ready(
        Command::new(env!("CARGO_BIN_EXE_stentor"))
            .args(args)
            .env("STENTOR_SERVER_LOG_LEVEL", "debug")
            .args(["--listen", listen, "--admin", admin, "--cores", "1"])
            .stderr(stderr),
    )
}

#[test]
fn each_signal_drains_and_exits_with_0() {
    for (command, signal) in [("serve", Signal::INT), ("serve", Signal::TERM), ("demo", Signal::TERM)] {
        let (mut server, addr) = start(&[command]);
        TcpStream::connect(&addr).unwrap();
        server.signal(signal);
        assert_eq!(server.end(), Some(0), "{command}, {signal:?}");
    }
}

/// Requests a reload. Returns the status and body of the response.
fn reload(admin: &str) -> (u16, String) {
    answer(ask(admin, "POST", "/api/v1/reload", ""))
}

/// Connects as a page of this origin. Returns the status.
fn connect_from(origin: &str, addr: &str) -> u16 {
    exchange(addr, &format!("GET /primus/spec HTTP/1.1\r\nOrigin: {origin}"))[9..12].parse().unwrap()
}

#[test]
fn a_reload_applies_everything_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stentor.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("");
    let args = ["serve", "--config", file.to_str().unwrap()];
    let (mut server, addr) = start_at("127.0.0.1:0", "127.0.0.1:0", &args, Stdio::piped());
    let mut log = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut until_logged = |text: &str| log.find(|line| line.contains(text)).unwrap();
    let admin = until_logged("the admin port is open").split("admin_addr=").nth(1).unwrap().to_owned();
    let admin = admin.split_whitespace().next().unwrap();
    let from = |origin: &str| connect_from(origin, &addr);
    assert_eq!(from("https://b.test"), 403);

    let good = "[origins]\nallow = [\"https://b.test\"]\n";
    for (mistake, expect) in [
        ("[origins", "stentor.toml"),
        ("[limits]\nmessage_bytes_max = \"0\"\n", "message_bytes_max"),
        (
            "[feeds_limits]\nca_file = \"/nowhere.pem\"\n[[feeds]]\nname = \"a\"\nurl = \"https://a.test\"\n",
            "/nowhere.pem",
        ),
    ] {
        write(&format!("{good}{mistake}"));
        let (status, body) = reload(admin);
        assert_eq!(status, 422, "{body}");
        assert!(body.contains(expect) && body.contains("\"configuration\""), "{body}");
        until_logged("nothing has changed");
        assert_eq!(from("https://b.test"), 403);
    }

    // The reload reports the key that needs a restart, and applies the other keys.
    write(&format!("{good}[server]\ndrain_window = \"1s\"\n[heartbeat]\ninterval = \"7s\"\n"));
    let expect = r#"{"applied":["server.drain_window","origins.allow"],"restart_needed":["heartbeat.interval"],"warnings":[]}"#;
    assert_eq!(reload(admin), (200, expect.to_owned()));
    assert_eq!(from("https://b.test"), 200);
    until_logged("the configuration was reloaded");

    write("");
    server.signal(Signal::HUP);
    until_logged("the configuration was reloaded");
    assert_eq!(connect_from("https://b.test", &addr), 403);
    assert_eq!(reload(admin).1, "{\"applied\":[],\"restart_needed\":[],\"warnings\":[]}");
    server.signal(Signal::TERM);
    assert_eq!(server.end(), Some(0));
}

/// With io_uring, the kernel closes the sockets only after the process has ended. A new process waits for the
/// address.
#[test]
fn a_restart_right_after_sigkill_finds_the_address_free() {
    let mut addr = "127.0.0.1:0".to_owned();
    for _ in 0..5 {
        let (mut server, at) = start_at(&addr, "127.0.0.1:0", &["serve"], Stdio::null());
        addr = at;
        let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(&addr).unwrap()).collect();
        server.signal(Signal::KILL);
        assert_eq!(server.end(), None);
        drop(clients);
    }
}

/// The log's pipe is full from the start, so the server can't write even its first line.
#[test]
fn an_unread_log_stalls_nothing_and_lost_lines_are_counted() {
    let (unread, mut full) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    for bytes in [4096, 1] {
        while full.write(&vec![b'.'; bytes]).is_ok() {}
    }
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    // The admin port has an address that no other test uses, because the log contains it.
    let admin = TcpListener::bind("127.77.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (mut server, addr) = start_at("127.0.0.1:0", &admin, &["serve"], full.into());
    assert_eq!(status(&addr, "/healthz"), 200);
    let until = Instant::now() + PATIENCE;
    let dropped = || {
        let metrics = exchange(&admin, "GET /metrics HTTP/1.1");
        let value = metrics.lines().find_map(|line| line.strip_prefix("stentor_log_lines_dropped_total "));
        value.unwrap_or_else(|| panic!("{metrics}")).parse::<u64>().unwrap()
    };
    while dropped() == 0 {
        assert!(Instant::now() < until, "no line was lost");
        // The server logs each of these invalid requests.
        (0..100).for_each(|_| _ = exchange(&admin, "this is no request"));
    }
    assert_eq!(status(&addr, "/healthz"), 200);
    server.signal(Signal::TERM);
    assert_eq!(server.end(), Some(0));
    drop(unread);
}

#[test]
fn the_server_waits_for_an_address_that_is_soon_released() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(taken);
    });
    let (_server, at) = start_at(&addr, "127.0.0.1:0", &["serve"], Stdio::null());
    assert_eq!(at, addr);
}

#[test]
fn a_closed_log_does_not_stop_the_server() {
    let (mut server, _) = start_at("127.0.0.1:0", "127.0.0.1:0", &["serve"], Stdio::piped());
    drop(server.0.stderr.take());
    server.signal(Signal::TERM); // the signal is logged
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_low_descriptor_limit_is_reported_with_a_remedy() {
    let check = |limit: u64, is_told: bool| {
        let mut child = Command::new("sh")
            .args([
                "-c",
                &format!("ulimit -n {limit} && exec \"$0\" \"$@\""),
                env!("CARGO_BIN_EXE_stentor"),
                "serve",
            ])
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The server logs the warning about the limit, if any, before this line.
        let mut said = String::new();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        while !said.contains(" no feeds are configured") {
            assert_ne!(log.read_line(&mut said).unwrap(), 0, "{said}");
        }
        let _ = child.kill();
        child.wait().unwrap();
        let told = said.lines().find(|line| line.contains("LimitNOFILE=") && line.contains("`ulimit -n"));
        assert_eq!(told.is_some(), is_told, "{limit}: {said}");
        if let Some(told) = told {
            let field = |name: &str| {
                told.split(name).nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap()
            };
            // With io_uring, there may be more connections than file descriptors, so this is a minimum.
            assert!(
                field("file_descriptors_max=") == limit && field("connections_max=") >= limit / 2,
                "{told}"
            );
        }
    };
    check(64, true);
    if getrlimit(Resource::Nofile).maximum.is_none_or(|most| most >= 4096) {
        check(4096, false);
    }
}

#[test]
fn an_address_in_use_names_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    check_in_use(&taken.local_addr().unwrap().to_string(), std::process::id());
    // The address of another Stentor process is also refused, although both could share the port.
    let (mut other, addr) = start(&["serve"]);
    check_in_use(&addr, other.0.id());
    other.signal(Signal::TERM);
    assert_eq!(other.end(), Some(0));
}

fn check_in_use(addr: &str, pid: u32) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stentor"))
        .args(["serve", "--listen", addr, "--admin", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let expect = format!(
        "error: --listen {addr}: address in use by {} (process {pid}); choose another with --listen or stop the other process\n",
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim_end(),
    );
    assert!(said.ends_with(&expect), "{said}");
}

#[test]
fn the_client_library_is_served() {
    let library = include_str!("../../../../clients/js/dist/stentor.js");
    for command in ["serve", "demo"] {
        let (_server, addr) = start(&[command]);
        let answer = exchange(&addr, "GET /stentor.js HTTP/1.1");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("\r\nContent-Type: text/javascript; charset=utf-8\r\n"), "{head}");
        assert!(head.contains("\r\nAccess-Control-Allow-Origin: *\r\n"), "{head}");
        assert_eq!(body, library);
    }
}
