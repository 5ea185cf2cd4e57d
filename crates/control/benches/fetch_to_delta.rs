//! Measures the cost of a new version from the upstream's response to the patch: request, body, inflating,
//! parsing, comparing.
//!
//! `cargo bench -p stentor-control --bench fetch_to_delta [-- FOLDER]` runs the control plane against
//! an upstream in another process, which has a new version for each request. It divides the CPU time of the
//! control plane's process by the number of versions that reached the data plane. One of the documents
//! consists of the folder's JSON files, in the order of their names; the others are synthetic, with 20 values
//! changed from one version to the next. The last case has 1,000 keys with documents of 5 kB, of which 3
//! values change, fetched once a second.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "the benchmark prints its measurements")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_control::{AdminOptions, Control, FeedsOptions, Options, Signals, UpstreamOptions};
use stentor_delta::{self as delta, Differ, Seed};
use stentor_hub::Key;
use stentor_ports::fake::{self, Call};
use stentor_ports::{ControlPlane, DataPlane, FeedUpdate, KeyInterest};
use tokio::sync::Notify;

/// Number of versions of a synthetic document.
const VERSIONS: usize = 64;
/// Number of values that change from one version to the next in a large document.
const CHANGED: usize = 20;
/// Number of values that change from one version to the next in a small document.
const SMALL_CHANGED: usize = 3;
/// Number of keys in the case of many keys, each fetched once a second.
const KEYS: usize = 1000;
/// Size of each document in the case of many keys, in kB.
const SMALL_KB: usize = 5;
const WARM_UP: u64 = 50;
const MEASURED: u64 = 400;
const KEYS_MEASURED: u64 = 10 * KEYS as u64;

fn main() {
    // Removes `--bench`, which Cargo adds.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["upstream", case] => upstream(&versions(case).unwrap(), case),
        [] => measure_all(&synthetic_cases()),
        [folder] => {
            let mut cases = synthetic_cases();
            cases.extend([format!("folder:{folder}"), format!("folder-gzip:{folder}")]);
            measure_all(&cases);
        }
        _ => println!("fetch_to_delta [FOLDER]"),
    }
}

fn synthetic_cases() -> Vec<String> {
    let kinds = ["minified", "pretty", "gzip", "br"].map(|kind| format!("{kind}:165"));
    let sizes = [330, 660, 1320, 2640].map(|kb| format!("minified:{kb}"));
    kinds.into_iter().chain(sizes).chain([format!("keys:{SMALL_KB}")]).collect()
}

fn measure_all(cases: &[String]) {
    println!(
        "{:<24} {:>9} {:>9} {:>12} {:>12} {:>12} {:>12}",
        "document", "bytes", "patch", "CPU", "of it update", "parse + diff", "CPU per kB"
    );
    for case in cases {
        let Some(versions) = versions(case) else {
            println!("{case}: skipped, there is no such folder");
            continue;
        };
        let (update, parse_and_diff, patch_bytes) = alone(&versions);
        let whole = through_the_control_plane(case);
        let bytes = versions.iter().map(Vec::len).sum::<usize>() / versions.len();
        let name = case
            .split_once(':')
            .map_or(case.as_str(), |(kind, what)| if kind.starts_with("folder") { kind } else { what });
        let name = if name.starts_with("folder") {
            name.into()
        } else {
            format!("{} {name} kB", case.split(':').next().unwrap())
        };
        println!(
            "{name:<24} {bytes:>9} {patch_bytes:>9} {:>9.3} ms {:>9.3} ms {:>9.3} ms {:>9.2} µs",
            ms(whole),
            ms(update),
            ms(parse_and_diff),
            ms(whole) * 1e6 / bytes as f64
        );
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the versions of a case, before compression.
fn versions(case: &str) -> Option<Vec<Vec<u8>>> {
    let (kind, what) = case.split_once(':')?;
    if kind.starts_with("folder") {
        let mut files: Vec<_> =
            std::fs::read_dir(Path::new(what)).ok()?.map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        return Some(files.iter().map(|file| std::fs::read(file).unwrap()).collect())
            .filter(|all: &Vec<_>| all.len() > 1);
    }
    Some(synthetic(what.parse::<usize>().ok()? * 1000, kind == "pretty"))
}

/// Makes versions of a list of players of about this size. 20 values change from one version to the next.
fn synthetic(bytes: usize, pretty: bool) -> Vec<Vec<u8>> {
    let mut random = 0x5eed_u64;
    let mut draw = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let count = bytes / if pretty { 166 } else { 145 };
    let mut players: Vec<[usize; 5]> =
        (0..count).map(|_| [draw(100), draw(100), draw(1000), draw(10), draw(2)]).collect();
    let (open, separator, close) = if pretty {
        ("{\n  \"players\": [\n    ", ",\n    ", "\n  ]\n}\n")
    } else {
        ("{\"players\":[", ",", "]}")
    };
    let space = if pretty { " " } else { "" };
    let mut versions = Vec::new();
    for version in 0..VERSIONS {
        let one = |(id, [x, y, touches, passes, on]): (usize, &[usize; 5])| {
            format!(
                r#"{{"id":{s}"player-{id:05}",{s}"name":{s}"Given Family{id}",{s}"position":{s}{{"x":{s}{x}.5,{s}"y":{s}{y}}},{s}"touches":{s}{touches},{s}"passes":{s}{passes},{s}"onPitch":{s}{},{s}"note":{s}"came on for nobody"}}"#,
                *on == 1,
                s = space,
            )
        };
        let list: Vec<_> = players.iter().enumerate().map(one).collect();
        versions.push(format!("{open}{}{close}", list.join(separator)).into_bytes());
        for n in 0..if bytes > SMALL_KB * 1000 { CHANGED } else { SMALL_CHANGED } {
            players[draw(count)][n % 4] = version * 7 + draw(90);
        }
    }
    versions
}

fn compressed(kind: &str, body: &[u8]) -> (Option<&'static str>, Vec<u8>) {
    if kind.ends_with("gzip") {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(body).unwrap();
        (Some("gzip"), encoder.finish().unwrap())
    } else if kind == "br" {
        let mut out = Vec::new();
        let params = brotli::enc::BrotliEncoderParams { quality: 5, ..Default::default() };
        brotli::BrotliCompress(&mut &body[..], &mut out, &params).unwrap();
        (Some("br"), out)
    } else {
        (None, body.to_vec())
    }
}

/// Runs an HTTP server with a new version for each request of a path. Prints its port. Ends when the parent
/// closes the pipe.
fn upstream(versions: &[Vec<u8>], case: &str) {
    let kind = case.split(':').next().unwrap();
    let answers: Vec<Vec<u8>> = versions
        .iter()
        .map(|version| {
            let (coding, body) = compressed(kind, version);
            let coding = coding.map_or(String::new(), |coding| format!("content-encoding: {coding}\r\n"));
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{coding}content-length: {}\r\n\r\n",
                body.len()
            );
            [head.into_bytes(), body].concat()
        })
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let (answers, served) = (Arc::new(answers), Arc::new(Mutex::new(HashMap::<String, usize>::new())));
    for stream in listener.incoming() {
        let (answers, served) = (answers.clone(), served.clone());
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut line, mut path) = (String::new(), String::new());
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                if let Some(target) = line.strip_prefix("GET ") {
                    path = target.split(' ').next().unwrap().to_owned();
                } else if line == "\r\n" {
                    let version = {
                        let mut served = served.lock().unwrap();
                        let version = served.entry(path.clone()).or_default();
                        *version += 1;
                        *version % answers.len()
                    };
                    if reader.get_mut().write_all(&answers[version]).is_err() {
                        break;
                    }
                }
                line.clear();
            }
        });
    }
}

/// Measures the time to compare two versions as texts, the time to parse and compare them, and the mean size
/// of the patch in bytes.
fn alone(versions: &[Vec<u8>]) -> (Duration, Duration, usize) {
    let differ = Differ::new(delta::Options::default(), Seed([1, 2]));
    let minified: Vec<_> =
        versions.iter().map(|version| differ.parse(version).unwrap().minified().to_vec()).collect();
    let (mut updating, mut diffing, mut patches, mut rounds) = (Duration::ZERO, Duration::ZERO, 0, 0);
    while rounds < 200 {
        for n in 1..versions.len() {
            let begun = cpu_time();
            let update = differ.update(Some(&minified[n - 1]), &versions[n]).unwrap();
            let updated = cpu_time();
            let new = differ.parse(&versions[n]).unwrap();
            let old = differ.parse(&minified[n - 1]).unwrap();
            drop(differ.diff(&old, &new));
            diffing += cpu_time() - updated;
            updating += updated - begun;
            patches += match update.diff.delta {
                delta::Delta::Patch(patch) => patch.len(),
                delta::Delta::Snapshot => versions[n].len(),
                delta::Delta::Unchanged => 0,
            };
            rounds += 1;
        }
    }
    (updating / rounds, diffing / rounds, patches / rounds as usize)
}

/// A data plane that counts versions.
struct Counting {
    signals: Arc<Signals>,
    wanted: Mutex<Vec<KeyInterest>>,
    versions: AtomicU64,
    changed: Notify,
}

impl Counting {
    fn data_plane(self: &Arc<Self>) -> DataPlane {
        let (this, asked) = (self.clone(), self.clone());
        let mut node = fake::Node::new(move |call| {
            match call {
                Call::UpdateFeed(_, FeedUpdate::Changed(_)) => {
                    this.versions.fetch_add(1, Ordering::SeqCst);
                    this.changed.notify_one();
                }
                Call::UpdateFeed(key, other) => panic!("{key}: {other:?}"),
                _ => {}
            }
            Ok(())
        });
        node.take_key_interest = Box::new(move || std::mem::take(&mut asked.wanted.lock().unwrap()));
        DataPlane::new(Arc::new(node))
    }

    async fn until(&self, versions: u64) {
        while self.versions.load(Ordering::SeqCst) < versions {
            self.changed.notified().await;
        }
    }
}

/// Returns the CPU time of this process per version.
fn through_the_control_plane(case: &str) -> Duration {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["upstream", case])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
    let (keys, measured) = if case.starts_with("keys") { (KEYS, KEYS_MEASURED) } else { (1, MEASURED) };
    let warm_up = WARM_UP + 3 * (keys as u64 - 1);
    let wanted = |n| {
        let key = Key::parse(&format!("k/{n}")).unwrap();
        KeyInterest { key, wanted: true, requesters: Vec::new() }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let spent = runtime.block_on(async {
        let plane = Arc::new(Counting {
            signals: Signals::new(),
            wanted: Mutex::new((0..keys).map(wanted).collect()),
            versions: AtomicU64::new(0),
            changed: Notify::new(),
        });
        let upstream = UpstreamOptions {
            name: "it".into(),
            url: format!("http://127.0.0.1:{}", port.trim()),
            poll_interval: Duration::from_millis(if keys > 1 { 1000 } else { 1 }),
            requests_per_second_max: 10_000,
            ..UpstreamOptions::default()
        };
        let options = Options {
            feeds: FeedsOptions { upstreams: vec![upstream], ..FeedsOptions::default() },
            admin: AdminOptions { listen: "127.0.0.1:0".parse().unwrap(), ..AdminOptions::default() },
            ..Options::default()
        };
        let handle = tokio::runtime::Handle::current();
        let control = Control::start(&handle, options, plane.data_plane(), plane.signals.clone()).unwrap();
        plane.signals.interest_changed();
        plane.until(warm_up).await;
        let (before, first) = (cpu_time(), plane.versions.load(Ordering::SeqCst));
        plane.until(first + measured).await;
        let spent = cpu_time() - before;
        let versions = plane.versions.load(Ordering::SeqCst) - first;
        control.shutdown().await;
        spent / u32::try_from(versions).unwrap()
    });
    drop(child.stdin.take());
    let _ = TcpStream::connect(("127.0.0.1", port.trim().parse().unwrap()));
    child.wait().unwrap();
    spent
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}
