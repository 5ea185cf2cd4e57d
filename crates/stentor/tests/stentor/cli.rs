//! Tests of the binary's command-line interface: output, exit codes, and whether the output goes to stdout or
//! stderr.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Makes a command of the binary, without environment variables that configure Stentor.
fn stentor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stentor"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STENTOR_") {
            command.env_remove(name);
        }
    }
    command
}

struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(command: &mut Command) -> Outcome {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// Runs `check` on a file with this text, in a separate directory.
fn check_file(text: &str) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("stentor.toml"), text).unwrap();
    run(stentor().current_dir(dir.path()).args(["check", "stentor.toml"]))
}

/// Answers one request per connection, each with the next of these responses. Returns the last request.
fn answer(listener: TcpListener, responses: &'static [&'static str]) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut request = Vec::new();
        for response in responses {
            let (mut stream, _) = listener.accept().unwrap();
            request.clear();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            stream.write_all(response.as_bytes()).unwrap();
        }
        String::from_utf8(request).unwrap()
    })
}

#[test]
fn a_key_is_fetched_once_and_explained() {
    let check = |settings: &str, responses: &'static [&'static str], code: i32, expect: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = answer(listener, responses);
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "[[feeds]]\nname = \"scores\"\nprefix = \"s/\"\nurl = \"http://{addr}/api?key=abcdef\"\n\
             headers = {{ Authorization = \"Bearer ${{API_TOKEN}}\" }}\nmax_age_max = \"30s\"\n{settings}"
        );
        std::fs::write(dir.path().join("stentor.toml"), text).unwrap();
        let arguments = ["check", "stentor.toml", "--fetch", "s/1"];
        let said = run(stentor().current_dir(dir.path()).env("API_TOKEN", "tok-1234").args(arguments));
        assert!(server.join().unwrap().contains("authorization: Bearer tok-1234\r\n"));
        let out: Vec<_> = said.out.lines().filter(|line| !line.starts_with("time: ")).collect();
        let version = env!("CARGO_PKG_VERSION");
        let expect = format!(
            "feed: scores\nURL: http://{addr}/api/s/1?…\nrequest headers:\n  accept: application/json\n  accept-encoding: gzip, br\n  \
             user-agent: stentor/{version}\n  authorization: ***\n  host: {addr}\n{}",
            expect.replace("ADDR", &addr.to_string())
        );
        assert_eq!((out.join("\n").as_str(), said.code), (expect.as_str(), Some(code)), "{}", said.err);
    };
    check(
        "",
        &[
            "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\nset-cookie: a=b\r\ncontent-length: 5\r\n\r\n[ 1 ]",
        ],
        0,
        "status: 200 OK\nresponse headers:\n  cache-control: max-age=60\n  set-cookie: ***\n  content-length: 5\n\
         document: application/json, 3 bytes, of 5 received\n\
         next fetch: after 30s (max_age_max; Cache-Control says 60s)",
    );
    check(
        "",
        &["HTTP/1.1 403 Forbidden\r\ncontent-length: 12\r\n\r\nnot tok-1234"],
        1,
        "status: 403 Forbidden\nresponse headers:\n  content-length: 12\n\
         failure: unauthorized: the upstream answered 403 to http://ADDR/api/s/1?…: not ***\n\
         next fetch: after at most 1s (backoff_initial), doubled by each further failure up to 60s (backoff_max)",
    );
    check(
        "",
        &["HTTP/1.1 301 Moved\r\nlocation: /api/s/1/?key=abcdef\r\ncontent-length: 0\r\n\r\n"],
        1,
        "status: 301 Moved Permanently\nresponse headers:\n  location: /api/s/1/?***\n  content-length: 0\n\
         failure: redirect: the upstream answered 301, a redirect to the same URL with a trailing slash: change `url`\n\
         next fetch: after at most 1s (backoff_initial), doubled by each further failure up to 60s (backoff_max)",
    );
    check(
        "redirects = \"same_path\"\n",
        &[
            "HTTP/1.1 301 Moved\r\nlocation: /api/s/1/?key=abcdef\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        ],
        0,
        "redirect: 301 Moved Permanently to http://ADDR/api/s/1/?***\nstatus: 200 OK\nresponse headers:\n  content-length: 2\n\
         document: application/json, 2 bytes, of 2 received\n\
         next fetch: after 1s (poll_interval)",
    );
}

#[test]
fn each_command_prints_its_result_or_an_error() {
    let version = concat!("stentor ", env!("CARGO_PKG_VERSION"), "\n");
    for (arguments, code, out, err) in [
        (&["--version"][..], 0, version, ""),
        (&["keys"], 0, "# Configuration\n", ""),
        (&["serve", "--lisen", "127.0.0.1:1"], 2, "", "'--listen'"),
        (
            &["check", "/nonexistent.toml"],
            1,
            "",
            "/nonexistent.toml: cannot be read: No such file or directory (os error 2)\n",
        ),
        (
            &["demo", "--replay", "/nonexistent"],
            1,
            "",
            "error: --replay /nonexistent: can't be read: No such file or directory (os error 2)\n",
        ),
    ] {
        let said = run(stentor().args(arguments));
        assert_eq!(said.code, Some(code), "{arguments:?}: {}", said.err);
        assert!(
            said.out.starts_with(out) && said.out.is_empty() == out.is_empty(),
            "{arguments:?}: {}",
            said.out
        );
        assert!(
            said.err.contains(err) && said.err.is_empty() == err.is_empty(),
            "{arguments:?}: {}",
            said.err
        );
    }
}

/// Copies the binary into a separate folder.
fn alone() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = dir.path().join("stentor");
    std::fs::hard_link(env!("CARGO_BIN_EXE_stentor"), &program).unwrap();
    (dir, program)
}

#[test]
fn the_lab_is_the_program_beside_it() {
    let (dir, program) = alone();
    symlink("/bin/sh", dir.path().join("stentor-lab")).unwrap();
    let said = run(Command::new(program).args(["lab", "-c", "echo $0 $1; exit 7", "run", "--help"]));
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(7), "run --help\n", ""));
}

#[test]
fn a_missing_lab_is_reported_with_the_build_command() {
    let (dir, program) = alone();
    let said = run(Command::new(program).args(["lab", "--help"]));
    let lab = dir.path().join("stentor-lab");
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    let begin = format!("error: `stentor lab` runs {}, which isn't there", lab.display());
    assert!(said.err.starts_with(&begin) && said.err.contains("`lab/build`"), "{}", said.err);
}

/// `check` prints settings that differ from their defaults, without secrets, followed by warnings.
#[test]
fn check_shows_a_valid_file() {
    for (file, expect) in [
        ("", "All settings have their defaults.\n\nNo feeds.\n"),
        (
            "[server]\nlisten = \"0.0.0.0:80\"\nadmin_token = \"0123456789abcdef\"\n[limits]\nmessage_bytes_max = 2000000\n\
             [[feeds]]\nname = \"scores\"\nprefix = \"scores/\"\nurl = \"https://api.example.com/v1\"\ntimeout = \"2s\"\n\
             [feeds.headers]\nAuthorization = \"Bearer hunter2\"\n[[feeds]]\nname = \"rest\"\nurl = \"http://localhost\"\n",
            r#"Changed settings:
  [server] listen = "0.0.0.0:80"
  [server] admin_token = (secret)
  [limits] message_bytes_max = "2MB"

Feeds:
  scores: scores/… from https://api.example.com/v1
    timeout = "2s"
    headers = { authorization = (secret) }
  rest: every key from http://localhost
"#,
        ),
        (
            "[rooms]\nhistory_length = 100\nhistory_bytes_max = \"4MiB\"\n[[feeds]]\nname = \"centre\"\nkey = \"m/{id}\"\n\
             url = \"http://api/{id}?token=hunter2\"\nheaders = { Authorization = \"Bearer ${TOKEN}\" }\n",
            r#"Changed settings:
  [rooms] history_length = 100
  [rooms] history_bytes_max = "4MiB"

Feeds:
  centre: m/{id} from http://api/{id}?…
    headers = { authorization = (secret with ${TOKEN}) }

Needs:
  variable TOKEN is not set: headers in [[feeds]]

warning: stentor.toml:3: history_bytes_max in [rooms] is "4MiB", more than the "1MiB" that may be queued for a session (send_buffer_bytes_max in [limits]): a client that resumes and missed that much is disconnected (4501)

warning: stentor.toml:8: headers in [[feeds]]: the environment variable TOKEN is not set here; set it where the server starts
"#,
        ),
        (
            "[[rules]]\nevent = \"join_room\"\njoin = [\"{}\"]\nack = true\n\
             [[sockjs]]\nprefix = \"/chat\"\napp = \"chat\"\n[[sockjs]]\nprefix = \"/sockjs\"\n",
            r#"All other settings have their defaults.

No feeds.

Rules:
  join_room
    join = ["{}"]
    ack = true

SockJS:
  /chat
    app = "chat"
  /sockjs
"#,
        ),
    ] {
        let said = check_file(file);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{file}");
        // Another program or another user may have the ports.
        let is_of_port = |text: &&str| text.contains("address in use") || text.contains("permission denied");
        let said: String = said.out.split_inclusive("\n\n").filter(|text| !is_of_port(text)).collect();
        assert_eq!(
            said.trim_end().to_owned() + "\n",
            format!("stentor.toml is valid.\n\n{expect}"),
            "{file}"
        );
    }
}

#[test]
fn check_describes_shared_namespaces() {
    let said = check_file(
        "[socketio]\nnamespaces = [\"/a\"]\nrecovery_ttl = \"1min\"\n[[cluster.socketio]]\nurl = \"redis://:topsecret@10.0.0.1\"\n\
         namespaces = [\"/\", \"/a\"]\nadapter = \"sharded\"",
    );
    assert_eq!((said.code, &*said.err), (Some(0), ""));
    assert!(!said.out.contains("topsecret"), "{}", said.out);
    for line in [
        "  /, /a\n    url = \"redis://…@10.0.0.1\"\n    adapter = \"sharded\"\n",
        "  The namespaces /, /a are shared over redis://…@10.0.0.1, with Socket.IO's servers and between nodes. Messages reach other \
         servers at most once, and none while this Redis is away. Whoever can write to it can send messages to clients.\n",
        "  Socket.IO clients recover their sessions in shared namespaces on the node that served them only.\n",
    ] {
        assert!(said.out.contains(line), "{}", said.out);
    }
    for (adapter, line) in [
        (
            "sharded",
            "  Each of their channels belongs to one primary of the Redis Cluster. While that is away, messages of the channel don't reach \
             other servers. Messages of several channels, such as rooms, may overtake each other.\n",
        ),
        (
            "classic",
            "  The Redis Cluster forwards their messages to all of its nodes: more nodes don't carry more messages. Messages may be lost while \
             one is away.\n",
        ),
    ] {
        let said = check_file(&format!(
            "[[cluster.socketio]]\nurl = \"redis+cluster://10.0.0.1\"\nnamespaces = [\"/\"]\nadapter = \"{adapter}\"\n"
        ));
        assert!(said.out.contains(line), "{adapter}: {}{}", said.out, said.err);
    }
}

#[test]
fn check_describes_a_cluster() {
    let meaning = |file: &str| {
        let said = check_file(file);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
        said.out
            .split_once("\nWith other nodes:\n")
            .map(|(_, meaning)| meaning.to_owned())
            .unwrap_or_default()
    };
    assert_eq!(meaning("[cluster]\nnode = \"a\"\n"), "");
    let local = meaning("[cluster]\nengine = \"redis://:hunter2@127.0.0.1\"\n");
    assert_eq!(
        local,
        "  Nodes share rooms, feeds and sessions over one Redis server, redis://…@127.0.0.1.\n  \
           The file has no secret. Unless STENTOR_CLUSTER_SECRET is set, whoever can write to the engine can send messages to \
           clients, and commands to nodes.\n  \
           If the engine is away, the node doesn't start. Set wait to let it wait.\n  \
           While the engine is away later, clients of one node still receive each other's messages.\n  \
           Rooms keep no history: a client misses what is published while it, or its node, is disconnected.\n  \
           Socket.IO clients start a new session when they reconnect (recovery_ttl in [socketio] is 0).\n"
    );
    let remote = meaning(
        "[cluster]\nengine = \"redis+sentinel://a,127.0.0.1/m\"\nsecret = \"0123456789abcdef\"\nwait = true\n\
         [rooms]\nhistory_length = 9\n[limits]\nmessage_bytes_max = \"20MiB\"\n[socketio]\nrecovery_ttl = \"1min\"\n",
    );
    for sentence in [
        "the Redis server that Sentinels name, redis+sentinel://a,127.0.0.1/m.",
        "The connection to a isn't encrypted. Use rediss+sentinel:// to encrypt it.",
        "nodes without the secret are refused.",
        "at its start, but waits.",
        "Rooms keep 9 messages in the engine, in one order",
        "Each restart and failover begins a new epoch",
        "Messages of more than 15 MiB reach clients of their own node only.",
        "recover their sessions on any node",
        "set listen in [cluster], or let the load balancer",
    ] {
        assert!(remote.contains(sentence), "{sentence}: {remote}");
    }
    let cluster = meaning("[cluster]\nengine = \"rediss+cluster://a:1,b:2\"\n");
    assert!(
        cluster.contains("over a Redis Cluster, rediss+cluster://a:1,b:2.") && !cluster.contains("encrypted")
    );
    let nats = meaning("[cluster]\nengine = \"nats://a\"\n[rooms]\nhistory_length = 5000\n");
    assert!(nats.contains("Use tls:// to encrypt") && nats.contains("at most 4096 of them."), "{nats}");
}

#[test]
fn check_reports_all_mistakes() {
    let said = check_file("[server]\nlisen = \"127.0.0.1:1\"\ncores = \"many\"\n");
    let expect = "stentor.toml:2: unknown key \"lisen\" in [server]; did you mean \"listen\"?\n\
                  stentor.toml:3: cores in [server]: expected a whole number, found \"many\"\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(1), "", expect));
}

#[test]
fn serve_reports_mistakes_of_file_and_environment() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("stentor.toml"), "[rooms]\npublish = 1\n").unwrap();
    let serve = || {
        let mut command = stentor();
        command.current_dir(dir.path()).env("STENTOR_SERVER_APP", "games").arg("serve");
        command
    };
    let expect = "stentor.toml:2: publish in [rooms]: expected true or false, found the number 1\n\
                  STENTOR_SERVER_APP: expected \"rooms\" or \"echo\" or \"chat\", found \"games\"\n";
    let by_flag = run(serve().args(["--config", "stentor.toml"]));
    assert_eq!((by_flag.code, by_flag.out.as_str(), by_flag.err.as_str()), (Some(1), "", expect));
    let by_environment = run(serve().env("STENTOR_CONFIG", "stentor.toml"));
    assert_eq!((by_environment.code, by_environment.err.as_str()), (Some(1), expect));
}

/// Runs an admin API that answers one request with `answer`. Returns its address, and a thread that returns
/// the request.
fn admin(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let handle = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.ends_with(b"}") {
            let n = stream.read(&mut buffer).unwrap();
            assert_ne!(n, 0, "the request ends early: {}", String::from_utf8_lossy(&request));
            request.extend_from_slice(&buffer[..n]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (addr, handle)
}

/// Returns the request that the admin API of [`admin`] received. If the binary hasn't connected, the test
/// fails instead of waiting.
fn request_of(addr: &str, server: std::thread::JoinHandle<String>) -> String {
    drop(TcpStream::connect(addr));
    server.join().unwrap()
}

#[test]
fn publish_sends_a_message_with_the_token_if_there_is_one() {
    let body = [r#"{"room":"news","data":{"n":1}}"#, r#"{"room":"r","event":"e","data":"hello"}"#];
    for (token, scheme, arguments, body) in [
        (None, "http://", &["--room", "news", "{\"n\":1}"][..], body[0]),
        (Some("0123456789abcdef"), "", &["--room", "r", "--event", "e", "hello"], body[1]),
    ] {
        let (addr, server) = admin("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"published\":1}");
        let mut command = stentor();
        command.envs(token.map(|token| ("STENTOR_SERVER_ADMIN_TOKEN", token)));
        let said = run(command.args(["publish", "--admin", &format!("{scheme}{addr}")]).args(arguments));
        let request = request_of(&addr, server);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
        assert!(request.starts_with("POST /api/v1/publish HTTP/1.1\r\n"), "{request}");
        assert!(request.contains(&format!("host: {addr}\r\n")), "{request}");
        assert!(request.contains("content-type: application/json\r\n"), "{request}");
        let authorization = request.lines().find(|line| line.to_lowercase().starts_with("authorization"));
        let expect = token.map(|token| format!("authorization: Bearer {token}"));
        assert_eq!(authorization, expect.as_deref(), "{request}");
        assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
    }
}

#[test]
fn a_refused_publish_is_reported() {
    fn check(answer: &'static str, expect: &str) {
        let (addr, server) = admin(answer);
        let said = run(stentor().args(["publish", "--admin", &addr, "--room", "r", "hello"]));
        request_of(&addr, server);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
        assert_eq!(said.err, expect.replace("ADDR", &addr));
    }
    check(
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 26\r\n\r\n{\"message\":\"no such room\"}",
        "error: http://ADDR refused the message (400): no such room\n",
    );
    check(
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 22\r\n\r\n{\"message\":\"no token\"}",
        "error: http://ADDR wants a token, or another one than given: no token\n",
    );
}

#[test]
fn publish_to_an_unreachable_server_is_reported() {
    // A port that is bound and doesn't listen refuses connections. Another test could take one that was free.
    let refusing = tokio::net::TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = refusing.local_addr().unwrap();
    let said = run(stentor().args(["publish", "--admin", &format!("http://{addr}"), "--room", "r", "hello"]));
    assert_eq!(said.code, Some(1));
    let expect = format!("error: no server answers at http://{addr} (");
    assert!(said.err.starts_with(&expect) && said.err.contains("refused"), "{}", said.err);
}
