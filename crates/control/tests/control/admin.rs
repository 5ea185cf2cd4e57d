//! Tests of the admin port over real sockets: publishing, limits and timeouts, and refused clients.

use crate::common::*;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stentor_control::{AdminClient, AdminOptions, ClientError, Control, Error, Options, Target};
use stentor_hub::Data;
use stentor_ports::{Charge, Class, ControlPlane, Ledger, Readiness};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;

fn post(content_type: &str, body: &str) -> Vec<u8> {
    request("POST", "/api/v1/publish", &format!("content-type: {content_type}\r\n"), body)
}

async fn publish(url: &str, token: Option<&str>, target: Target<'_>, data: &str) -> Result<(), ClientError> {
    let (url, token) = (url.to_owned(), token.map(str::to_owned));
    AdminClient { url, token, ca_file: None }.publish(target, data).await
}

fn published(rig: &Rig) -> Vec<String> {
    let messages = std::mem::take(&mut *rig.plane.published.lock().unwrap());
    let show = |data: &Data| match data {
        Data::Json(json) => String::from_utf8_lossy(json).into_owned(),
        other => format!("{other:?}"),
    };
    let event = |event: Option<&str>| event.map(|event| format!("!{event}")).unwrap_or_default();
    messages
        .iter()
        .map(|m| {
            format!("{}{}{}={}", m.room.namespace(), m.room.name(), event(m.event.as_deref()), show(&m.data))
        })
        .collect()
}

#[tokio::test]
async fn a_panic_ends_its_request_only_and_one_in_the_feeds_is_reported() {
    let mut rig = Rig::with_admin(|_| {});
    rig.plane.broken_metrics.store(true, Ordering::SeqCst);
    assert_ne!(rig.admin("/metrics").await.0, 200);
    assert_eq!(rig.admin("/healthz").await.0, 200);
    rig.plane.broken_metrics.store(false, Ordering::SeqCst);
    // The only connection that counts is that of this request. The failed request's connection is closed.
    rig.until_metric("stentor_admin_connections", |connections| connections == 1.0).await;
    assert!(tokio::time::timeout(Duration::ZERO, rig.control.failed()).await.is_err());
    rig.plane.broken_wanted.store(true, Ordering::SeqCst);
    rig.plane.signals.interest_changed();
    patiently("the end of the feeds' task", rig.control.failed()).await;
}

#[tokio::test]
async fn messages_are_published() {
    let rig = Rig::with_admin(|_| {});
    let check = async |content_type: &str, body: &str, status: u16, answer: &str, messages: &[&str]| {
        let (found, text) = rig.send(&post(content_type, body)).await;
        assert_eq!((found, text.trim_end()), (status, answer), "{body}");
        assert_eq!(published(&rig), messages, "{body}");
    };
    let (json, lines) = ("application/json", "application/x-ndjson; charset=utf-8");
    let one = r#"{"room":"a","data":{"x": 1.0}}"#;
    let event = r#"{"room":"a","event":"e","data":[1],"namespace":"/n"}"#;
    let pretty = "{\n \"room\": \"a\",\n \"data\": {\n \"x\": 1 }\n}\n";
    let many = "{\"room\":\"a\",\"data\":1}\r\n\n{\"room\":\"b\",\"data\":2}\n{\"room\":\"a\",\"data\":3}\n";
    let broken = "{\"room\":\"a\",\"data\":1}\n\n{\"room\":\"b\"}\n{\"room\":\"a\",\"data\":3}\n";
    let [zero, published_1, three] = [0, 1, 3].map(|count| format!(r#"{{"published":{count}}}"#));
    let missing = r#"{"code":"message","message":"\"data\" or \"args\" is missing"}"#;
    let partly =
        r#"{"published":1,"error":{"line":3,"code":"message","message":"\"data\" or \"args\" is missing"}}"#;
    check(json, one, 200, &published_1, &[r#"/a={"x": 1.0}"#]).await;
    check(json, event, 200, &published_1, &["/na!e=[1]"]).await;
    check(json, pretty, 200, &published_1, &[r#"/a={"x":1}"#]).await;
    check(json, r#"{"room":"a"}"#, 400, missing, &[]).await;
    check(json, "", 400, r#"{"code":"message","message":"the body is empty"}"#, &[]).await;
    check(lines, "", 200, &zero, &[]).await;
    check(lines, one, 200, &published_1, &[r#"/a={"x": 1.0}"#]).await;
    check(lines, many, 200, &three, &["/a=1", "/b=2", "/a=3"]).await;
    check(lines, broken, 400, partly, &["/a=1"]).await;
    let (status, text) = rig.send(&post("text/plain", one)).await;
    assert_eq!(status, 415);
    assert!(text.contains("application/x-ndjson"), "{text}");
    assert_eq!(rig.send(&post("", one)).await.0, 415);
    assert!(published(&rig).is_empty());
}

#[tokio::test]
async fn a_message_with_an_idempotency_key_is_published_once() {
    let rig = Rig::with_admin(|options| options.busy_timeout = Duration::from_millis(1));
    let message =
        |room: &str, key: &str| format!(r#"{{"room":"{room}","data":1,"idempotency_key":"{key}"}}"#);
    let check = async |body: &str, status: u16, messages: &[&str]| {
        let (found, text) = rig.send(&post("application/x-ndjson", body)).await;
        assert_eq!(found, status, "{text}");
        assert_eq!(published(&rig), messages, "{body}");
        text
    };
    check(&message("a", "k"), 200, &["/a=1"]).await;
    check(&message("a", "k"), 200, &[]).await;
    let lines = [message("a", "k"), message("b", "k"), message("b", "k"), message("a", "l")].join("\n");
    let text = check(&lines, 200, &["/b=1", "/a=1"]).await;
    assert_eq!(text.trim_end(), r#"{"published":4}"#, "as if all had been");
    // A message that was refused as busy may be sent again with the same key.
    rig.plane.busy.store(usize::MAX, Ordering::SeqCst);
    check(&message("a", "m"), 503, &[]).await;
    rig.plane.busy.store(0, Ordering::SeqCst);
    check(&message("a", "m"), 200, &["/a=1"]).await;
}

#[tokio::test]
async fn a_stream_is_published_as_it_arrives() {
    let rig = Rig::with_admin(|_| {});
    let head = "POST /api/v1/publish HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut stream = rig.begin(head.as_bytes()).await;
    let text = "{\"room\":\"a\",\"data\":\"x\"}\n";
    for n in 1..=3 {
        // Each line arrives in two chunks.
        for part in [&text[..7], &text[7..]] {
            stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).await.unwrap();
        }
        let arrived = |plane: &FakePlane| (plane.published.lock().unwrap().len() == n).then_some(());
        rig.plane.until("the message", arrived).await;
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(answer(&mut stream).await, (200, "{\"published\":3}\n".into()));
}

#[tokio::test]
async fn a_truncated_body_publishes_no_partial_line() {
    let rig = Rig::with_admin(|_| {});
    let body = post("application/x-ndjson", "{\"room\":\"a\",\"data\":1}\n{\"room\":\"a\",\"data\":2}");
    let mut stream = rig.begin(&body[..body.len() - 1]).await;
    stream.shutdown().await.unwrap();
    answer(&mut stream).await;
    assert_eq!(published(&rig), ["/a=1"]);
}

#[tokio::test]
async fn an_oversized_body_is_refused_without_being_buffered() {
    let rig = Rig::with_admin(|options| options.message_bytes_max = 1000);
    let message = |len: usize| format!("{{\"room\":\"a\",\"data\":\"{}\"}}", "x".repeat(len - 22));
    assert_eq!(message(1000).len(), 1000);
    assert_eq!(rig.send(&post("application/json", &message(1000))).await.0, 200);
    let (status, text) = rig.send(&post("application/json", &message(1001))).await;
    assert_eq!(status, 413);
    assert!(text.contains("limits.message_bytes_max"), "{text}");
    published(&rig);
    // The server responds before it has read the rest of the body, 5 MB.
    let lines = format!("{}\n{}\n{}", message(1000), message(1001), "x".repeat(5_000_000));
    let (status, text) = rig.send(&post("application/x-ndjson", &lines)).await;
    assert_eq!(status, 413, "{text}");
    assert!(text.starts_with("{\"published\":1,\"error\":{\"line\":2,"), "{text}");
    assert_eq!(published(&rig).len(), 1);
}

#[tokio::test]
async fn bodies_are_charged_until_they_are_dropped_and_refused_without_memory() {
    const LEDGER: usize = 140_000;
    const SENT: usize = 40_000;
    /// Size of the buffer with which a connection reads a large body.
    const BUFFER: usize = 16 << 10;
    let ledger = Arc::new(Ledger::new(LEDGER));
    let rig = Rig::start(Options { ledger: Some(ledger.clone()), ..Options::default() });
    let held = async |what: &str, is_held: bool| {
        let changed = async {
            while ledger.has_room(LEDGER - BUFFER - SENT + 1) == is_held {
                tokio::task::yield_now().await;
            }
        };
        patiently(what, changed).await;
    };
    let (body, json, lines) = ("x".repeat(120_000), "application/json", "application/x-ndjson");
    for (method, path, media_type) in [
        ("POST", "/api/v1/publish", json),
        ("POST", "/api/v1/publish", lines),
        ("POST", "/api/v1/emit", json),
        ("PUT", "/api/v1/feeds/a", json),
    ] {
        let whole = request(method, path, &format!("content-type: {media_type}\r\n"), &body);
        let begun = rig.begin(&whole[..whole.len() - body.len() + SENT]).await;
        held(path, true).await;
        let (status, text) = rig.send(&whole).await;
        assert!(status == 503 && text.contains("\"code\":\"memory\""), "{path} {media_type}: {text}");
        drop(begun);
        held(path, false).await;
        assert_ne!(rig.send(&whole[..]).await.0, 200, "no message");
        held(path, false).await;
    }
    // A command is charged twice: its text and a copy of it. So 60 kB don't fit, and 40 kB do.
    let command = format!("{}{}", " ".repeat(60_000), r#"{"namespace":"/","event":"e","data":1}"#);
    assert_eq!(rig.post("/api/v1/emit", &command).await.0, 503);
    assert_eq!(rig.post("/api/v1/emit", &command[20_000..]).await.0, 200);
    // Without memory left, a command is still executed if it and its copy fit into 16 KiB.
    let others = Charge::new(ledger.clone(), Class::Rooms);
    others.add(LEDGER);
    assert_eq!(rig.post("/api/v1/emit", &command[55_000..]).await.0, 200);
    assert_eq!(rig.post("/api/v1/emit", &command[50_000..]).await.0, 503);
}

#[tokio::test]
async fn a_full_mailbox_delays_publications_in_order_or_is_reported() {
    let lines = (0..3).map(|i| format!("{{\"room\":\"a\",\"data\":{i}}}\n")).collect::<String>();
    let publish = async |rig: &Rig| rig.send(&post("application/x-ndjson", &lines)).await;
    // The mailbox has space again before `busy_timeout`.
    let patient = Rig::with_admin(|options| options.busy_timeout = PATIENCE);
    patient.plane.busy.store(1, Ordering::SeqCst);
    assert_eq!(publish(&patient).await, (200, "{\"published\":3}\n".into()));
    assert_eq!(published(&patient), ["/a=0", "/a=1", "/a=2"]);
    assert!(patient.metric("stentor_mailbox_waits_total").await >= Some(1.0));
    // The mailbox stays full longer than `busy_timeout`.
    let rig = Rig::with_admin(|options| options.busy_timeout = Duration::from_millis(50));
    rig.plane.busy.store(usize::MAX, Ordering::SeqCst);
    let (status, text) = publish(&rig).await;
    assert_eq!(status, 503);
    assert!(text.starts_with("{\"published\":0,\"error\":{\"line\":1,\"code\":\"busy\""), "{text}");
    rig.plane.busy.store(0, Ordering::SeqCst);
    rig.plane.signals.space();
    assert!(rig.metric("stentor_mailbox_waits_total").await >= Some(1.0));
}

#[tokio::test]
async fn web_pages_and_unknown_hosts_are_refused() {
    let rig = Rig::with_admin(|_| {});
    let body = r#"{"room":"a","data":1}"#;
    let check = async |fields: &str, expect: u16, code: &str| {
        let head = format!(
            "POST /api/v1/publish HTTP/1.1\r\n{fields}connection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, text) = rig.send(head.as_bytes()).await;
        assert_eq!(status, expect, "{fields}");
        assert!(text.starts_with(&format!("{{\"code\":\"{code}\",\"message\":")), "{text}");
    };
    // DNS rebinding: the page's own host name resolves to this machine.
    check("host: evil.example:8001\r\n", 421, "host").await;
    check("host: localhost\r\nhost: evil.example\r\n", 400, "host").await;
    check("", 400, "host").await;
    check("host: localhost\r\norigin: https://evil.example\r\n", 403, "origin").await;
    check("host: localhost\r\norigin: null\r\n", 403, "origin").await;
    check("host: localhost\r\nsec-fetch-site: cross-site\r\n", 403, "origin").await;
    assert!(published(&rig).is_empty());
    assert_eq!(rig.send(&post("application/json", body)).await.0, 200);
    assert_eq!(rig.metric("stentor_admin_refusals_total{reason=\"origin\"}").await, Some(3.0));
    let preflight = "OPTIONS /api/v1/publish HTTP/1.1\r\nhost: localhost\r\norigin: http://x\r\nconnection: close\r\n\r\n";
    assert_eq!(rig.send(preflight.as_bytes()).await.0, 403);
}

#[tokio::test]
async fn a_configured_token_is_required() {
    let token = "0123456789abcdef";
    let rig = Rig::with_admin(|options| options.token = Some(token.into()));
    assert_eq!(rig.admin("/metrics").await.0, 401);
    assert_eq!(rig.admin("/api/v1/status").await.0, 401);
    assert_eq!(rig.admin("/healthz").await.0, 200);
    let url = format!("http://{}", rig.control.admin_addr());
    let wrong = publish(&url, Some("0123456789abcdeX"), to("a"), "1").await.unwrap_err().to_string();
    assert!(wrong.contains("wants a token, or another one than given: send the token"), "{wrong}");
    publish(&url, Some(token), Target { event: Some("e"), ..to("a") }, "not json").await.unwrap();
    assert_eq!(published(&rig), ["/a!e=\"not json\""]);
}

#[tokio::test]
async fn the_admin_port_listens_only_at_its_address() {
    let start = |admin: AdminOptions| {
        let plane = Arc::<FakePlane>::default();
        let options = Options { admin, ..Options::default() };
        Control::start(&Handle::current(), options, plane.data_plane(), plane.signals.clone())
    };
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let error = start(AdminOptions { listen: anywhere, ..AdminOptions::default() }).err().unwrap();
    assert!(error.to_string().contains("set admin.token"), "{error}");
    let short = AdminOptions { token: Some("short".into()), ..AdminOptions::default() };
    assert!(start(short).err().unwrap().to_string().starts_with("admin.token: needs at least 16 bytes"));
    let token = Some("0123456789abcdef".to_owned());
    let control = start(AdminOptions { listen: anywhere, token, ..AdminOptions::default() }).unwrap();
    // The first control plane uses this port.
    let listen = SocketAddr::from(([127, 0, 0, 1], control.admin_addr().port()));
    let error = start(AdminOptions { listen, ..AdminOptions::default() }).err().unwrap();
    assert!(matches!(error, Error::Listen { .. }) && error.to_string().contains("(--admin)"), "{error}");
}

#[tokio::test]
async fn health_status_and_metrics_are_reported() {
    let rig = Rig::with_admin(|_| {});
    assert_eq!(rig.admin("/readyz").await, (200, "ready\n".into()));
    *rig.plane.readiness.lock().unwrap() = Readiness { is_draining: true, engine_away: None };
    assert_eq!(rig.admin("/readyz").await, (503, "shutting down\n".into()));
    assert_eq!(rig.admin("/healthz").await, (200, "ok\n".into()));
    let (status, text) = rig.admin("/api/v1/status").await;
    assert_eq!(status, 200);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["ready"], false);
    assert_eq!(value["feeds"]["keys"], 0);
    let (status, text) = rig.admin("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "# TYPE stentor_connections gauge",
        "stentor_connections{core=\"0\"} 17",
        "stentor_connections{core=\"1\"} 18",
        "# TYPE stentor_sent_bytes counter",
        "stentor_sent_bytes_total 18446744073709551615",
        "# TYPE stentor_turn_cpu_seconds histogram",
        "stentor_turn_cpu_seconds_bucket{le=\"0.001\",core=\"0\"} 5",
        "stentor_turn_cpu_seconds_bucket{le=\"0.5\",core=\"0\"} 7",
        "stentor_turn_cpu_seconds_bucket{le=\"+Inf\",core=\"0\"} 8",
        "stentor_turn_cpu_seconds_sum{core=\"0\"} 1.5",
        "stentor_turn_cpu_seconds_count{core=\"0\"} 8",
        "stentor_admin_publications_total 0",
        "stentor_feed_keys{state=\"live\"} 0",
        "stentor_admin_connections 1",
        "# TYPE process_resident_memory_bytes gauge",
        "# TYPE process_cpu_seconds counter",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} isn't in\n{text}");
    }
    assert_eq!(rig.admin("/nothing").await.0, 404);
    assert_eq!(rig.admin("/api/v1/publish").await.0, 405);
}

#[tokio::test]
async fn the_overview_has_time_series_and_findings() {
    let mut options = feeds(vec![upstream("matches", script(vec![bare(503)]).await)]);
    options.keys_max = 1;
    let rig = Rig::new(options, AdminOptions::default());
    rig.want("matches/1");
    let overview = async |query: &str| {
        let (status, text) = rig.admin(&format!("/api/v1/overview{query}")).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let found = patiently("the finding", async {
        loop {
            let found = overview("").await;
            if found["findings"][0] != serde_json::Value::Null {
                return found;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let finding = &found["findings"][0];
    assert_eq!((&finding["code"], &finding["severity"]), (&"upstream_failing".into(), &"error".into()));
    let text = finding["text"].as_str().unwrap();
    let expect = "The feed matches/1 of the upstream matches has been failing for ";
    assert!(text.starts_with(expect), "{text}");
    let connections = &found["charts"][0];
    assert_eq!((&connections["name"], &connections["unit"]), (&"connections".into(), &"count".into()));
    let values = connections["series"][0]["values"].as_array().unwrap();
    assert_eq!(values.last(), Some(&35.0.into()));
    let times = found["times_ms"].as_array().unwrap();
    assert_eq!(times.len(), values.len());
    let later = overview(&format!("?after_ms={}", times[0])).await;
    assert!(!later["times_ms"].as_array().unwrap().contains(&times[0]));
    for query in ["?after_ms=", "?after_ms=-1", "?x=1"] {
        assert_eq!(rig.admin(&format!("/api/v1/overview{query}")).await.0, 400, "{query}");
    }
}

#[tokio::test]
async fn documents_are_served_without_the_token() {
    let documents: fn(&str) -> Option<String> = |path| (path == "docs/a.html").then(|| "<p>a".into());
    let admin = AdminOptions { token: Some("0123456789abcdef".into()), ..AdminOptions::default() };
    let rig = Rig::start(Options { documents: Some(documents), admin, ..Options::default() });
    assert_eq!(rig.admin("/docs/a.html").await, (200, "<p>a".into()));
    assert_eq!(rig.admin("/docs/b.html").await.0, 404);
    assert_eq!(rig.admin("/clients/docs/a.html").await.0, 404);
    assert_eq!(rig.admin("/api/v1/overview").await.0, 401);
    assert_eq!(Rig::with_admin(|_| {}).admin("/docs/a.html").await.0, 404);
}

#[tokio::test]
async fn slow_clients_are_cut_off() {
    // Each rig has one short timeout, for the operation that must be too slow, so a busy machine fails no
    // test.
    let brief = Duration::from_millis(100);
    let slow_heads =
        Rig::with_admin(|options| (options.header_timeout, options.body_timeout) = (brief, PATIENCE));
    let slow_bodies =
        Rig::with_admin(|options| (options.header_timeout, options.body_timeout) = (PATIENCE, brief));
    let closed = async |rig: &Rig, bytes: &[u8], expect: &[u16]| {
        let status = rig.send(bytes).await.0;
        assert!(expect.contains(&status), "{status} for {}", String::from_utf8_lossy(bytes));
    };
    // The client sends no bytes, a part of the headers, or a part of the body.
    closed(&slow_heads, b"", &[0]).await;
    closed(&slow_heads, b"GET /healthz HTTP/1.1\r\nhost: loc", &[0, 408]).await;
    let message = post("application/json", r#"{"room":"a","data":1}"#);
    closed(&slow_bodies, &message[..message.len() - 1], &[408]).await;
    let lines = post("application/x-ndjson", "{\"room\":\"a\",\"data\":1}\n{\"room\":\"a\",\"data\":2}\n");
    closed(&slow_bodies, &lines[..lines.len() - 1], &[408]).await;
    assert_eq!(published(&slow_bodies), ["/a=1"]);
    // After one request the client is silent. `header_timeout` also limits the wait for the next request.
    let idle = Rig::with_admin(|options| options.header_timeout = Duration::from_secs(2));
    closed(&idle, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", &[200]).await;

    // Headers, a message and a line arrive one byte every 5 ms. Each byte comes in time, but the whole is too
    // slow.
    let padding = " ".repeat(10_000);
    for (rig, bytes) in [
        (
            &slow_heads,
            format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}", "y".repeat(10_000)).into_bytes(),
        ),
        (&slow_bodies, post("application/json", &format!("{padding}{{\"room\":\"a\",\"data\":1}}"))),
        (&slow_bodies, post("application/x-ndjson", &format!("{padding}{{\"room\":\"a\",\"data\":1}}"))),
    ] {
        let start = bytes.len() - 10_000;
        let mut stream = rig.begin(&bytes[..start]).await;
        let (mut reader, mut writer) = stream.split();
        let drip = async {
            let mut pace = tokio::time::interval(Duration::from_millis(5));
            for byte in &bytes[start..] {
                pace.tick().await;
                if writer.write_all(&[*byte]).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let mut first = [0; 12];
        tokio::select! {
            () = drip => {}
            read = patiently("the end", reader.read(&mut first)) => {
                let read = read.unwrap_or(0);
                assert!(read == 0 || &first[..read] == b"HTTP/1.1 408", "{:?}", &first[..read]);
            }
        }
    }
    for rig in [&slow_heads, &slow_bodies] {
        assert!(published(rig).is_empty());
    }
    assert_eq!(slow_bodies.admin("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut_off() {
    let rig = Rig::with_admin(|options| options.body_timeout = Duration::from_millis(200));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(rig.control.admin_addr()).await.unwrap();
    let requests = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    let flood = async { while stream.write_all(&requests).await.is_ok() {} };
    patiently("the end of the connection", flood).await;
    // The only open connection is that of this request.
    rig.until_metric("stentor_admin_connections", |connections| connections == 1.0).await;
}

#[tokio::test]
async fn connections_are_bounded() {
    let rig = Rig::with_admin(|options| options.connections_max = 2);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = rig.begin(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let mut first = [0; 12];
        patiently("an answer", stream.read_exact(&mut first)).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        held.push(stream);
    }
    let (status, text) = rig.send(b"").await;
    assert_eq!(status, 503);
    assert!(text.contains("admin_limits.connections_max"), "{text}");
    held.pop();
    patiently("a free place", async {
        while rig.admin("/healthz").await.0 != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// At the maximum of connections, a new connection replaces the oldest one that has sent no complete,
/// authorized request.
#[tokio::test]
async fn the_oldest_connection_without_a_request_makes_room() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let rig = Rig::with_admin(|options| {
        options.connections_max = 3;
        options.token = Some(TOKEN.into());
    });
    let authorized = format!("host: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
    // An upload in progress and a connection with an answered request stay open.
    let mut upload = rig.begin(format!(
        "POST /api/v1/publish HTTP/1.1\r\n{authorized}content-type: application/json\r\ncontent-length: 21\r\n\r\n{{"
    ).as_bytes())
    .await;
    let served = format!("GET /api/v1/status HTTP/1.1\r\n{authorized}\r\n");
    let mut stays = rig.begin(served.as_bytes()).await;
    let mut first = [0; 12];
    patiently("an answer", stays.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    for bytes in ["", "GET /healthz HT", "GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let mut idle = rig.begin(bytes.as_bytes()).await;
        assert_eq!(rig.admin("/healthz").await.0, 200, "{bytes}");
        // The new connection has replaced the idle one.
        let mut rest = Vec::new();
        let _ = patiently("its end", idle.read_to_end(&mut rest)).await;
    }
    upload.write_all(b"\"room\":\"r\",\"data\":1}").await.unwrap();
    patiently("an answer", upload.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
}

#[tokio::test]
async fn the_publish_client_explains_itself() {
    let rig = Rig::with_admin(|_| {});
    let url = format!("http://{}/", rig.control.admin_addr());
    publish(&url, None, to("room"), "{\"a\": 1}").await.unwrap();
    assert_eq!(published(&rig), ["/room={\"a\": 1}"]);
    let error = publish(&url, None, to(""), "1").await.unwrap_err();
    assert!(error.to_string().contains("the room's name is empty"), "{error}");
    for not_a_url in ["", "localhost:8001", "ftp://x", "/x"] {
        let error = publish(not_a_url, None, to("a"), "1").await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("--admin {not_a_url}: not a URL")), "{error}");
    }
    let stranger = http(|_, _| async { ok("[]") }).await;
    let error = publish(&format!("http://{stranger}"), None, to("a"), "1").await.unwrap_err();
    assert!(error.to_string().contains("is not Stentor's admin port"), "{error}");
    // A bound socket that doesn't listen refuses connections, and keeps the port reserved.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = format!("http://{}", socket.local_addr().unwrap());
    let error = publish(&closed, None, to("a"), "1").await.unwrap_err().to_string();
    assert!(error.contains(&closed) && error.contains("refused") && error.contains("--admin"), "{error}");
}

#[tokio::test]
async fn requests_in_progress_may_finish_during_shutdown() {
    let rig = Rig::with_admin(|_| {});
    let bytes = post("application/x-ndjson", "{\"room\":\"a\",\"data\":1}\n{\"room\":\"a\",\"data\":2}\n");
    let (first, second) = bytes.split_at(bytes.len() - 10);
    let mut stream = rig.begin(first).await;
    rig.plane
        .until("the first line", |plane| (!plane.published.lock().unwrap().is_empty()).then_some(()))
        .await;
    let plane = rig.plane.clone();
    let stopping = tokio::spawn(rig.control.shutdown());
    stream.write_all(second).await.unwrap();
    assert_eq!(answer(&mut stream).await, (200, "{\"published\":2}\n".into()));
    patiently("shutdown", stopping).await.unwrap();
    assert_eq!(plane.published.lock().unwrap().len(), 2);
}

fn to(room: &str) -> Target<'_> {
    Target { room: Some(room), ..Target::default() }
}
