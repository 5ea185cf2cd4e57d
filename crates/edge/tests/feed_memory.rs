//! The memory of a kept key: its document, the patches of its history, and a frame for each format that is sent. There is one
//! test, so that no other test runs in this process, because memory is measured per process. Memory on the heap is counted, not
//! the resident set, in which an allocator keeps free memory.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // Tests may panic, and say what they found.

mod harness;

use bytes::Bytes;
use cap::Cap;
use harness::{Server, Ws, until};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use stentor_hub::{Document, Patch};
use stentor_ports::{DocumentChange, FeedUpdate};

/// The server's allocator, counted.
#[global_allocator]
static ALLOCATOR: Cap<mimalloc::MiMalloc> = Cap::new(mimalloc::MiMalloc, usize::MAX);

const KEYS: usize = 48;
const VERSIONS: usize = 100;
const DOCUMENT_BYTES: usize = 165_000;
const PATCH_BYTES: usize = 1200;
const AT_ONCE: usize = 4;

/// Bytes that this process holds on the heap and in memfds.
fn held_bytes() -> usize {
    let memfd = |path: &std::path::Path| {
        let target = std::fs::read_link(path).ok()?;
        target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:").then_some(())?;
        Some(std::fs::metadata(path).ok()?.blocks() as usize * 512)
    };
    let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| memfd(&entry.ok()?.path()));
    ALLOCATOR.allocated() + files.sum::<usize>()
}

/// The part that changes in version `n`. It has the same length in all versions.
fn changing(n: usize) -> String {
    format!("{n:0>width$}", width = PATCH_BYTES - 45)
}

fn version(n: usize) -> Bytes {
    let (changing, rest) = (changing(n), "x".repeat(DOCUMENT_BYTES - PATCH_BYTES));
    exact(format!(r#"{{"p":"{changing}","rest":"{rest}"}}"#))
}

/// The text without spare capacity, like the documents of the control plane.
fn exact(text: String) -> Bytes {
    text.into_boxed_str().into_boxed_bytes().into()
}

fn name(key: usize) -> String {
    format!("k{key}")
}

/// Publishes all versions of a key. Returns the last one, which the control plane keeps.
fn give(server: &Server, key: usize) -> Document {
    let mut last: Option<Document> = None;
    for n in 0..VERSIONS {
        let document = Document { body: version(n), json: true, content_type: "application/json".into() };
        let patch = last.replace(document.clone()).map(|before| {
            let value = changing(n);
            let operations = exact(format!(r#"[{{"op":"replace","path":"/p","value":"{value}"}}]"#));
            Patch { base: before.body, operations }
        });
        server.update(&name(key), FeedUpdate::Changed(DocumentChange { document: document.into(), patch }));
        // Updates in transit take memory as well, so their number is limited.
        if n % AT_ONCE == 0 {
            server.until_metric("inbox_messages", |waiting| waiting == 0);
        }
    }
    last.unwrap()
}

/// Reads messages of a subscriber until the last version.
fn until_last(ws: &mut Ws) {
    let last = changing(VERSIONS - 1);
    while !ws.next_text().contains(&last) {}
}

/// Reads an SSE stream until the last version. Keeps only the end of the received bytes, which would count as memory.
fn until_last_event(stream: &mut TcpStream) {
    let (last, mut tail, mut piece) = (changing(VERSIONS - 1), Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "the stream has ended");
        tail.extend_from_slice(&piece[..read]);
        if holds(&tail, last.as_bytes()) {
            return;
        }
        tail.drain(..tail.len().saturating_sub(last.len()));
    }
}

fn holds(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}

#[test]
fn a_kept_key_takes_two_documents_its_patches_and_a_frame_for_each_format() {
    let server = Server::on_sockets(1, |options| options.limits.subscriptions_max = KEYS);
    // The first key and clients make the memory of threads, allocator and sockets grow.
    let mut documents = vec![give(&server, KEYS)];
    let mut ws = server.ws("/ws");
    ws.next_json();
    let mut events: Vec<TcpStream> = Vec::new();
    let kept = |server: &Server| server.metric("feed_patch_bytes");

    let check = |server: &Server, before: usize, formats: usize, what: &str| {
        let patches = kept(server) as usize / KEYS;
        // Without the history of each key, the test would measure nothing.
        assert!(patches > VERSIONS * PATCH_BYTES / 2, "{patches}");
        let most = 2 * DOCUMENT_BYTES + patches + formats * DOCUMENT_BYTES;
        let taken = || held_bytes().saturating_sub(before) / KEYS;
        // A client may receive the last byte before the server frees the sent frames.
        until("the server to let go", || taken() <= most);
        let taken = taken();
        eprintln!("{what}: {taken} bytes a key, of which patches {patches}; at most {most}");
        assert!(taken > DOCUMENT_BYTES && taken <= most, "{what}: {taken} bytes a key, and at most {most}");
    };

    let before = held_bytes();
    documents.extend((0..KEYS).map(|key| give(&server, key)));
    server.until_metric("inbox_messages", |waiting| waiting == 0);
    check(&server, before, 0, "nobody has asked");

    // Two formats: messages of `stentor.v1`, and SSE events.
    for key in 0..KEYS {
        ws.ask(serde_json::json!({"type": "subscribe", "feed": name(key)}));
        until_last(&mut ws);
    }
    check(&server, before, 1, "in one format");
    for key in 0..KEYS {
        let mut stream = TcpStream::connect(server.addr).unwrap();
        write!(stream, "GET /sse/{} HTTP/1.1\r\nHost: a\r\n\r\n", name(key)).unwrap();
        until_last_event(&mut stream);
        events.push(stream);
    }
    check(&server, before, 2, "in two formats");

    // All versions again, to connected subscribers. The previous history and its frames are freed.
    for (key, document) in (0..KEYS).zip(&mut documents[1..]) {
        *document = give(&server, key);
        until_last(&mut ws);
        until_last_event(&mut events[key]);
    }
    check(&server, before, 2, "after another history");
}
