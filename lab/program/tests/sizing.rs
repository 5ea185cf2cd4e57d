//! The calculator of `size` against a real, optimized server: CPU of echoes and of a fan-out, and CPU and memory of idle
//! connections. A calibration precedes each round of a load, so the test compares CPU seconds with CPU seconds of the same minute,
//! and measures no other time.
//!
//! Other programs only add to the CPU of a load or of a calibration (cold caches, a busy sibling thread). So the smallest of several
//! rounds counts, and a further round follows only if the result is beyond the tolerance.
//!
//! `STENTOR_SIZING=update cargo test --test sizing -- --nocapture` measures the figures of the source `sizing` and writes them into
//! `src/sizing/costs.toml`. It takes about six minutes on a quiet machine, and needs a release build: `STENTOR_OPTIMIZED=PATH`.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stentor_lab::generator::{FanoutPlan, LoadSpec, Outcome, Protocol, Publisher, Spec, TopicsPlan, run};
use stentor_lab::measure::{ProcessMemory, Server, ServerCommand, cores, resident_bytes};
use stentor_lab::sizing::{Costs, Load, MEASURED_HERE, Machines, bare_echo, plan};
use tempfile::TempDir;

/// Permitted difference between the plan and the run.
const TOLERANCE: f64 = 0.25;
/// Maximum number of rounds of a load.
const ROUNDS: usize = 6;
/// Duration of a calibration.
const CALIBRATION: Duration = Duration::from_secs(1);
/// Number of connections that send or receive.
const CONNECTIONS: usize = 500;
/// Number of idle connections.
const IDLE: usize = 5_000;
/// The same for the figures, which a megabyte of the allocator must not change.
const IDLE_OF_FIGURES: usize = 10_000;

/// Path of an optimized server: that of `STENTOR_OPTIMIZED`, or the one that `cargo build --profile counts` makes.
fn optimized() -> Option<PathBuf> {
    let built =
        Path::new(env!("CARGO_BIN_EXE_stentor-lab")).parent()?.with_file_name("counts").join("stentor");
    let path = std::env::var_os("STENTOR_OPTIMIZED").map_or(built, PathBuf::from);
    if !path.exists() {
        eprintln!(
            "skipped: there is no {}; `cargo build --profile counts -p stentor` makes it",
            path.display()
        );
    }
    path.exists().then_some(path)
}

/// A server with a load.
#[derive(Clone)]
struct Run {
    stentor: PathBuf,
    folder: PathBuf,
    application: &'static str,
    protocol: Protocol,
    tls: bool,
    deflate: bool,
    /// Cores of the server; they share one of the machine.
    cores: usize,
    /// `true` if the generator has the server's core, so that the number of messages per wake-up doesn't depend on other programs.
    shares_core: bool,
    connections: usize,
    load: LoadSpec,
}

impl Run {
    fn new(stentor: &Path, folder: &TempDir, application: &'static str, protocol: Protocol) -> Self {
        Self {
            stentor: stentor.to_owned(),
            folder: folder.path().to_owned(),
            application,
            protocol,
            tls: false,
            deflate: false,
            cores: 1,
            shares_core: false,
            connections: CONNECTIONS,
            load: LoadSpec::Ask,
        }
    }

    /// Echoes of 64 bytes, one in flight on each connection.
    fn echo(stentor: &Path, folder: &TempDir, protocol: Protocol) -> Self {
        let seconds = Duration::from_secs;
        let load = LoadSpec::EchoClosed { bytes: 64, warm_up: seconds(1), measure: seconds(3) };
        Self { load, shares_core: true, ..Self::new(stentor, folder, "echo", protocol) }
    }

    /// A fan-out of messages to all connections, of as many as an unoptimized generator receives.
    fn fan_out(
        stentor: &Path,
        folder: &TempDir,
        protocol: Protocol,
        connections: usize,
        bytes: usize,
    ) -> Self {
        let most = [5e3, 2e7 / bytes as f64].map(|deliveries_hz| deliveries_hz / connections as f64);
        let rate_hz = most[0].min(most[1]).min(200.0);
        let [warm_up, count] = [1.0, 3.0].map(|seconds: f64| (seconds * rate_hz) as u64);
        let plan = FanoutPlan { bytes, rate_hz, warm_up, count, publisher: Publisher::Own };
        let run = Self::new(stentor, folder, "chat", protocol);
        Self { load: LoadSpec::Fanout(plan), connections, ..run }
    }

    /// Connections that are only held.
    fn idle(stentor: &Path, folder: &TempDir, protocol: Protocol) -> Self {
        let load = LoadSpec::Idle { hold: Duration::ZERO };
        Self { load, connections: IDLE, ..Self::new(stentor, folder, "chat", protocol) }
    }

    fn serve(&self) -> Server {
        let config = self.folder.join("stentor.toml");
        let mut text = "[rooms]\npublish = true\n".to_owned();
        if self.tls {
            let [certificate, key] = ["certificate.pem", "key.pem"].map(|file| self.folder.join(file));
            text += &format!("[[tls]]\ncertificate = {certificate:?}\nkey = {key:?}\n");
        }
        fs::write(&config, text).unwrap();
        let fixed = "serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --driver epoll --app";
        let cores = self.cores.to_string();
        let own = [self.application, "--cores", &cores, "--config", config.to_str().unwrap()];
        // With SCHED_BATCH the server doesn't preempt the generator on its core at the first message. Otherwise a wake-up has fewer
        // messages when other programs run: beside four that sleep and run in turn, an echo took 1.3 times the CPU, and 1.1 times so.
        let batch = ["--batch", "0", self.stentor.to_str().unwrap()];
        Server::start(&ServerCommand {
            name: "stentor".into(),
            program: "chrt".into(),
            args: batch.into_iter().chain(fixed.split(' ')).chain(own).map(str::to_owned).collect(),
            core: Some(0),
        })
        .unwrap()
    }

    fn spec(&self, server: &Server, connections: usize) -> Spec {
        let path = self.protocol.usual_path();
        let mut spec = Spec::new(server.address(), path, connections, self.load.clone());
        spec.protocol = self.protocol;
        spec.deflate = self.deflate;
        spec.certificate = self.tls.then(|| self.folder.join("certificate.pem"));
        spec.server_pids = vec![server.pid()];
        spec.core = Some(if self.shares_core || cores() == 1 { 0 } else { 1 });
        spec.connect_rate_hz = 2_000.0;
        spec.late = Duration::from_secs(60);
        spec
    }

    fn outcome(&self) -> Outcome {
        let server = self.serve();
        let outcome = run(&self.spec(&server, self.connections), |_| Ok(())).unwrap();
        assert_eq!(outcome.audit.lost_connections, 0, "{:?}", outcome.audit);
        outcome
    }

    /// CPU of a message, in microseconds.
    fn us_per_message(&self) -> f64 {
        self.outcome().server_cpu_per_message().unwrap().as_secs_f64() * 1e6
    }

    /// CPU of opening a connection, in microseconds, and the memory of one. The first tenth of the connections stays open, so that the
    /// server allocates before the measurement what it allocates only once.
    fn connection(&self) -> (f64, f64) {
        let server = self.serve();
        let pid = server.pid();
        let private = || ProcessMemory::of_process(pid).unwrap().private_bytes as f64;
        let first = Spec { first_source: 100, ..self.spec(&server, self.connections / 10) };
        let (spec, connections) = (self.spec(&server, self.connections), self.connections as f64);
        let (mut us, mut bytes) = (0.0, 0.0);
        run(&first, |_| {
            let before = private();
            let outcome = run(&spec, |_| {
                bytes = (private() - before) / connections;
                Ok(())
            })?;
            assert_eq!(outcome.connections as f64, connections, "{:?}", outcome.audit);
            us = outcome.server_cpu_per_connection().unwrap().as_secs_f64() * 1e6;
            Ok(())
        })
        .unwrap();
        (us, bytes)
    }
}

/// Makes the folder of the runs, with a certificate, and allows enough file descriptors. `None` if something is missing.
fn prepared() -> Option<(PathBuf, TempDir)> {
    let stentor = optimized()?;
    let folder = TempDir::new().unwrap();
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    if getrlimit(Resource::Nofile).current.is_some_and(|most| most < 2 * IDLE_OF_FIGURES as u64) {
        eprintln!("skipped: too few descriptors are allowed");
        return None;
    }
    let script = "printf '[req]\\ndistinguished_name=n\\nx509_extensions=e\\n[n]\\n[e]\\nsubjectAltName=DNS:localhost\\n\
                  basicConstraints=CA:FALSE\\n' >openssl.cnf && openssl req -config openssl.cnf -x509 -newkey ec -pkeyopt \
                  ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out certificate.pem";
    let output = Command::new("sh").args(["-c", script]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((stentor, folder))
}

/// A machine with one core and no reserve, so that the plan is the load itself.
fn one_core(calibration: f64) -> Machines {
    Machines { cores: 1.0, memory_bytes: 1e12, reserve: 0.0, calibration, engine: "redis".into() }
}

/// Compares the cores of a plan with those of a run. `round` runs the load once, and returns it with the cores that the server used.
fn compare_cores(what: &str, mut round: impl FnMut() -> (Load, f64)) {
    let costs = Costs::committed().unwrap();
    // The load's CPU as a multiple of its plan without a calibration.
    let (mut bare_us, mut factor) = (f64::INFINITY, f64::INFINITY);
    let mut ratio = f64::NAN;
    for _ in 0..ROUNDS {
        bare_us = bare_us.min(bare_echo(CALIBRATION).unwrap());
        let (load, cores) = round();
        factor = factor.min(cores / plan(&load, &one_core(1.0), &costs).unwrap().busy_cores);
        ratio = costs.calibration(bare_us) / factor;
        eprintln!(
            "{what}: calibration {:.2}, planned {ratio:.2} of what was used",
            costs.calibration(bare_us)
        );
        if (ratio - 1.0).abs() <= TOLERANCE {
            return;
        }
    }
    panic!("{what}: the plan has {ratio:.2} times the cores of the run");
}

/// Runs a load of which each message has this many recipients. Returns it with its rate, and the cores that the server used for it.
fn loaded(run: &Run, recipients: usize, bytes: usize) -> (Load, f64) {
    let outcome = run.outcome();
    let deliveries_hz = outcome.messages as f64 / outcome.load.wall.as_secs_f64();
    let load = Load {
        protocol: run.protocol.name().to_owned(),
        tls: run.tls,
        messages_hz: deliveries_hz / recipients as f64,
        recipients: recipients as f64,
        bytes: bytes as f64,
        ..Load::default()
    };
    (load, deliveries_hz * outcome.server_cpu_per_message().unwrap().as_secs_f64())
}

#[test]
fn the_plan_of_three_loads_is_what_a_server_uses() {
    if is_update() {
        return;
    }
    let Some((stentor, folder)) = prepared() else { return };
    let echo = Run::echo(&stentor, &folder, Protocol::WebSocket);
    compare_cores("echo", || loaded(&echo, 1, 64));
    let fan_out =
        Run { tls: true, ..Run::fan_out(&stentor, &folder, Protocol::SocketIo, CONNECTIONS, 1_000) };
    compare_cores("fan-out", || loaded(&fan_out, CONNECTIONS, 1_000));
    let idle = Run { tls: true, ..Run::idle(&stentor, &folder, Protocol::SocketIo) };
    let load = Load { connections: IDLE as f64, protocol: "socketio".into(), tls: true, ..Load::default() };
    let bytes = Cell::new(f64::INFINITY);
    compare_cores("connecting", || {
        let (us, connection_bytes) = idle.connection();
        bytes.set(bytes.get().min(connection_bytes));
        // As if one client connected per second.
        (Load { connections: 0.0, connects_hz: 1.0, ..load.clone() }, us / 1e6)
    });
    let planned = plan(&load, &one_core(1.0), &Costs::committed().unwrap()).unwrap().memory;
    let of_users = planned.iter().filter(|part| ["connections", "TLS"].contains(&part.name));
    let planned = of_users.map(|part| part.amount).sum::<f64>() / IDLE as f64;
    let ratio = planned / bytes.get();
    eprintln!("memory: planned {planned:.0} B, used {:.0} B", bytes.get());
    assert!((ratio - 1.0).abs() <= TOLERANCE, "the plan has {ratio:.2} times the memory of the run");
}

fn is_update() -> bool {
    std::env::var("STENTOR_SIZING").is_ok_and(|what| what == "update")
}

/// The smaller of two measurements.
fn least(measure: impl Fn() -> f64) -> f64 {
    (0..2).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

/// The figures of the source `sizing`, by section and key.
#[derive(Default)]
struct Figures(Vec<(String, &'static str, f64)>);

impl Figures {
    fn push(&mut self, section: &str, key: &'static str, value: f64) {
        eprintln!("{section}.{key} = {value:.2}");
        self.0.push((section.to_owned(), key, value));
    }

    /// Replaces the figures of the source in a text of `costs.toml`.
    fn write_into(&self, text: &str) -> String {
        let mut section = String::new();
        let mut lines = Vec::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.to_owned();
            }
            let is_of_source = line.ends_with(&format!(", \"{MEASURED_HERE}\"]"));
            let key = line.split(" = ").next().unwrap_or_default();
            let figure = self.0.iter().find(|(of, name, _)| *of == section && *name == key);
            lines.push(match figure {
                Some((_, key, value)) if is_of_source => {
                    let decimals = if key.ends_with("bytes") { 0 } else { 2 };
                    let dot = if decimals == 0 { ".0" } else { "" };
                    format!("{key} = [{value:.decimals$}{dot}, \"{MEASURED_HERE}\"]")
                }
                _ => line.to_owned(),
            });
        }
        lines.join("\n") + "\n"
    }
}

/// Measures the figures of the source `sizing`, if asked to.
#[test]
fn figures_are_measured_if_asked_for() {
    if !is_update() {
        return;
    }
    let (stentor, folder) = prepared().expect("a release build");
    let (stentor, folder) = (stentor.as_path(), &folder);
    let mut figures = Figures::default();
    let mut bare_us = Vec::new();
    let mut calibrate = || bare_us.push(bare_echo(Duration::from_secs(3)).unwrap());
    let us = |run: Run| least(|| run.us_per_message());
    let connection = |run: Run| {
        let run = Run { connections: IDLE_OF_FIGURES, ..run };
        let all: Vec<(f64, f64)> = (0..2).map(|_| run.connection()).collect();
        let least = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).fold(f64::INFINITY, f64::min);
        (least(|(us, _)| *us), least(|(_, bytes)| *bytes))
    };
    for protocol in [
        Protocol::WebSocket,
        Protocol::EngineIo,
        Protocol::SocketIo,
        Protocol::SocketIoPolling,
        Protocol::SockJs,
        Protocol::Primus,
    ] {
        calibrate();
        let section = format!("protocols.{}", protocol.name());
        let deliver_us = us(Run::fan_out(stentor, folder, protocol, CONNECTIONS, 100));
        let echo_us = us(Run::echo(stentor, folder, protocol));
        let (connect_us, bytes) = connection(Run::idle(stentor, folder, protocol));
        figures.push(&section, "message_us", echo_us);
        figures.push(&section, "deliver_us", deliver_us);
        figures.push(&section, "connect_us", connect_us);
        figures.push(&section, "bytes", bytes);
    }
    calibrate();
    let topics = |topics, subscribers, rate_hz| {
        let (warm_up, measure) = (Duration::from_secs(1), Duration::from_secs(3));
        let plan = TopicsPlan { bytes: 100, topics, subscribers, rate_hz, warm_up, measure };
        let run = Run::new(stentor, folder, "rooms", Protocol::Rooms);
        us(Run { load: LoadSpec::Topics(plan), connections: CONNECTIONS + 1, ..run })
    };
    figures.push("protocols.stentor-v1", "message_us", topics(CONNECTIONS, 1, 5_000.0));
    figures.push("protocols.stentor-v1", "deliver_us", topics(1, CONNECTIONS, 10.0));
    let rooms = Run { application: "rooms", ..Run::idle(stentor, folder, Protocol::Rooms) };
    let (connect_us, bytes) = connection(rooms);
    figures.push("protocols.stentor-v1", "connect_us", connect_us);
    figures.push("protocols.stentor-v1", "bytes", bytes);
    calibrate();
    let fan_out = |tls: bool, bytes: usize| {
        us(Run { tls, ..Run::fan_out(stentor, folder, Protocol::WebSocket, CONNECTIONS, bytes) })
    };
    let [plain, large, sealed, sealed_large] =
        [(false, 100), (false, 10_100), (true, 100), (true, 10_100)].map(|(tls, bytes)| fan_out(tls, bytes));
    let kilobyte_us = (large - plain) / 10.0;
    figures.push("process", "kilobyte_us", kilobyte_us);
    figures.push("tls", "message_us", sealed - plain);
    figures.push("tls", "kilobyte_us", (sealed_large - sealed) / 10.0 - kilobyte_us);
    let plain = connection(Run::idle(stentor, folder, Protocol::WebSocket));
    let sealed = connection(Run { tls: true, ..Run::idle(stentor, folder, Protocol::WebSocket) });
    figures.push("tls", "connect_us", sealed.0 - plain.0);
    figures.push("tls", "bytes", sealed.1 - plain.1);
    calibrate();
    // What compression adds to a publication to few and to many.
    let added = |connections: usize| {
        let run = |deflate| {
            let run = Run::fan_out(stentor, folder, Protocol::WebSocket, connections, 1_000);
            us(Run { deflate, ..run }) * connections as f64
        };
        run(true) - run(false)
    };
    let (few, many) = (added(10), added(CONNECTIONS));
    let delivery_us = ((many - few) / (CONNECTIONS - 10) as f64).max(0.0);
    figures.push("deflate", "delivery_us", delivery_us);
    figures.push("deflate", "publication_us", few - 10.0 * delivery_us);
    // Nearly every publication has a recipient on the other core.
    let on = |cores| us(Run { cores, ..Run::fan_out(stentor, folder, Protocol::WebSocket, 10, 100) });
    figures.push("process", "hop_us", (on(2) - on(1)) * 10.0);
    let server = Run::idle(stentor, folder, Protocol::WebSocket).serve();
    figures.push("process", "bytes", resident_bytes(server.pid()).unwrap() as f64);
    calibrate();
    bare_us.sort_by(f64::total_cmp);
    eprintln!("calibrations: {bare_us:.2?}");
    figures.push("", "calibration_us", bare_us[0]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sizing/costs.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, figures.write_into(&text)).unwrap();
}
