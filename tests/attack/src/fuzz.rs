//! Rounds of mutated sessions against a running server with canaries.
//!
//! Round `r` of seed `s` consists of the sessions `0..n`, each made from `s`, `r` and its number alone: a
//! failing round is replayed by its numbers, and reduced by leaving sessions out. The first sessions of round
//! 0 are the unmutated valid ones: they must reach all [`doors`] (those of a cluster only if Redis is
//! installed). After each round, the process must be alive, no thread may have panicked, every canary must
//! have every publication, and memory must be within the bound. At the end, memory must return.

use crate::canary::{Canaries, Record};
use crate::cluster;
use crate::corpus::Seeds;
use crate::doors::{self, Reached};
use crate::layers;
use crate::measure::Meter;
use crate::mutate::mutate;
use crate::redis::Redis;
use crate::reduce::reduce;
use crate::script::{self, Script};
use crate::second::Second;
use crate::server::{Launch, Server, configuration};
use crate::table::BUDGET_BYTES;
use fastrand::Rng;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Lifetime of one round's sessions. Longer than the server's short timeouts below, which are tested as well.
const ROUND_TIME: Duration = Duration::from_millis(2500);
/// Maximum time until memory returns after the last round.
const RETURN_TIME_MAX: Duration = Duration::from_secs(60);
/// Additional memory that a node of a cluster may hold. Small, so that longer runs detect memory that each
/// round leaves behind.
const CLUSTER_BYTES: u64 = 8_000_000;
/// Time for which the server serves its canaries before the memory at the start is measured.
const CALM_TIME: Duration = Duration::from_secs(1);
/// Number of rounds after which a run ends although it hasn't reached all doors. On a busy machine, fewer sessions of a round get to
/// their end.
const ROUNDS_MAX: u64 = 60;
/// Maximum number of replays for reducing a failing round.
const REDUCE_ATTEMPTS: usize = 24;

/// `heartbeat.timeout`: long enough for an unoptimized server on a busy machine to receive its canaries' answers.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeouts so short that mutated sessions reach them, and a short connection state recovery. Timeouts that a
/// canary could reach on a busy machine are longer.
const LIMITS: &str = r#"message_timeout = "1s"
header_timeout = "1s"
idle_timeout = "3s"
request_timeout = "1s"
close_timeout = "1s"

[socketio]
namespaces = ["/a"]
upgrade_timeout = "1s"
connect_timeout = "2s"
recovery_ttl = "2s"

[[sockjs]]
prefix = "/sockjs"
disconnect_delay = "20s"
response_bytes_max = "4KiB"
"#;

/// The server, the seed and the limits of a fuzzing run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) binary: PathBuf,
    pub(crate) driver: String,
    pub(crate) upstream: SocketAddr,
    /// The backend of the hooks.
    pub(crate) backend: SocketAddr,
    /// `true` if the server is a node of a cluster.
    pub(crate) is_clustered: bool,
    pub(crate) seed: u64,
    pub(crate) sessions: usize,
    /// The maximum memory of the server.
    pub(crate) bound_bytes: u64,
    /// Maximum growth of memory between the start and the end.
    pub(crate) remains_bytes_max: u64,
}

/// A server, and everything that watches the server.
struct Subject {
    // Dropped in this order: the watchers before the server.
    canaries: Canaries,
    meter: Meter,
    server: Server,
    second: Second,
    _redis: Option<Redis>,
    bound_bytes: u64,
    /// The memory that must be reached again after the last round.
    return_bytes: u64,
    reached: Reached,
}

impl Subject {
    fn start(plan: &Plan) -> anyhow::Result<Self> {
        let (certificate, files) = layers::certificate()?;
        let mut addresses = layers::addresses(certificate)?;
        let limited = |rooms, limits: &str| {
            configuration(BUDGET_BYTES, plan.upstream, HEARTBEAT_TIMEOUT, rooms, limits)
        };
        let redis = if plan.is_clustered { Some(cluster::start(&mut addresses)?) } else { None };
        let (engine, bridge) = match redis {
            Some(_) => (cluster::configuration(&addresses), cluster::bridge(&addresses)),
            None => Default::default(),
        };
        let plain = Launch {
            binary: plan.binary.clone(),
            driver: plan.driver.clone(),
            configuration: limited("", &format!("{LIMITS}{bridge}")),
            files: Vec::new(),
            addresses: None,
            descriptors_max: None,
        };
        let second = Second::start(plain.clone(), plan.bound_bytes, &mut addresses)?;
        let more = doors::configuration(plan.backend) + &layers::configuration(&addresses) + &engine;
        let server = Server::start(&Launch {
            configuration: limited(doors::ROOMS, &format!("{LIMITS}{more}")),
            files,
            addresses: Some(addresses),
            ..plain
        })?;
        let canaries = Canaries::start(&server)?;
        let meter = Meter::start(&server, plan.bound_bytes)?;
        std::thread::sleep(CALM_TIME);
        let clustered_bytes = if plan.is_clustered { CLUSTER_BYTES } else { 0 };
        let return_bytes = meter.held_bytes() + plan.remains_bytes_max + clustered_bytes;
        meter.reset();
        Ok(Self {
            canaries,
            meter,
            server,
            second,
            _redis: redis,
            bound_bytes: plan.bound_bytes,
            return_bytes,
            reached: Reached::default(),
        })
    }

    /// Runs sessions. In the middle of the round, the server reloads its configuration and the second
    /// server's process is replaced. Returns a fault, if there is one afterwards.
    fn round(&mut self, scripts: Vec<Script>) -> anyhow::Result<Option<String>> {
        let (server, second, number) = (&self.server, &mut self.second, self.server.reloads() + 1);
        let (totals, replaced) = std::thread::scope(|scope| {
            let reload = scope.spawn(|| {
                std::thread::sleep(ROUND_TIME / 2);
                server.reload(number)
            });
            let replacement = scope.spawn(|| {
                std::thread::sleep(ROUND_TIME / 2);
                second.replace()
            });
            let totals = script::run(server.addresses, scripts, ROUND_TIME)?;
            reload.join().map_err(|_| anyhow::anyhow!("the reload panicked"))??;
            let replaced = replacement.join().map_err(|_| anyhow::anyhow!("the replacement panicked"))?;
            anyhow::Ok((totals, replaced))
        })?;
        if let Err(error) = replaced {
            return Ok(Some(format!("the second server: {error:#}")));
        }
        self.reached.add(&totals.doors);
        if let Some(fault) = self.server.fault().or_else(|| self.second.fault()) {
            return Ok(Some(fault));
        }
        if let Err(error) = self.canaries.catch_up() {
            // A server that hangs has often died meanwhile.
            return Ok(Some(self.server.fault().unwrap_or_else(|| format!("canaries {error:#}"))));
        }
        if let Some(fault) = self.canaries.records().iter().find_map(Record::fault) {
            return Ok(Some(self.server.fault().unwrap_or(fault)));
        }
        let (held, allowed) = (self.meter.seen().held_bytes_max, self.bound_bytes);
        Ok((held > allowed).then(|| format!("{held} bytes held, {allowed} are allowed")))
    }

    /// Returns the doors and the events that no round has reached.
    fn missed(&self, is_clustered: bool) -> Vec<&'static str> {
        let Second { takeovers, drains, .. } = self.second;
        let counts = [("reload", self.server.reloads()), ("takeover", takeovers), ("drain", drains)];
        let never = counts.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name);
        self.reached.missed(is_clustered).into_iter().chain(never).collect()
    }

    /// Waits until memory returns after the last round. Returns a fault if it doesn't.
    fn returns(&self) -> Option<String> {
        let allowed = self.return_bytes;
        match self.meter.until_below(allowed, RETURN_TIME_MAX) {
            Some(_) => None,
            None => {
                let held = self.meter.held_bytes();
                Some(format!("{held} bytes held after {RETURN_TIME_MAX:?}, {allowed} are allowed"))
            }
        }
    }
}

impl Plan {
    /// Runs rounds until `duration` is over or one fails. Returns `true` if none failed and all doors were
    /// reached.
    pub(crate) fn run(&self, duration: Duration) -> anyhow::Result<bool> {
        crate::say(&format!(
            "fuzz: driver {}, seed {}, {} sessions a round",
            self.driver, self.seed, self.sessions
        ));
        let begun = Instant::now();
        let seeds = Seeds::new(self.is_clustered);
        let mut subject = Subject::start(self)?;
        let mut round = 0;
        while begun.elapsed() < duration || (round < ROUNDS_MAX && !self.is_complete(&seeds, &subject, round))
        {
            let all: Vec<usize> = (0..self.sessions).collect();
            if let Some(fault) = subject.round(self.scripts(&seeds, round, &all))? {
                drop(subject);
                self.report(&seeds, round, all, &fault)?;
                return Ok(false);
            }
            round += 1;
        }
        if let Some(fault) = subject.returns() {
            crate::say(&format!("fuzz: driver {}, after {round} rounds: {fault}", self.driver));
            return Ok(false);
        }
        let held = subject.meter.seen().held_bytes_max / 1_000_000;
        let reloads = subject.server.reloads();
        let Second { takeovers, drains, .. } = subject.second;
        crate::say(&format!(
            "fuzz: driver {}: {round} rounds held, {reloads} reloads, {takeovers} takeovers, {drains} drains, at most {held} MB",
            self.driver
        ));
        crate::say(&subject.reached.summary(self.is_clustered));
        let is_complete = self.is_complete(&seeds, &subject, round);
        if !is_complete {
            let missed = subject.missed(self.is_clustered).join(", ");
            crate::say(&format!("fuzz: driver {}: never reached: {missed}", self.driver));
        }
        Ok(is_complete)
    }

    /// Whether all was reached that so many rounds should reach.
    fn is_complete(&self, seeds: &Seeds, subject: &Subject, rounds: u64) -> bool {
        // The second server drains for the first time in the second round.
        self.sessions < seeds.sessions().len() || rounds < 2 || subject.missed(self.is_clustered).is_empty()
    }

    /// Runs one round, or some of its sessions, on a fresh server.
    pub(crate) fn replay(&self, round: u64, only: &[usize]) -> anyhow::Result<bool> {
        let all: Vec<usize> = if only.is_empty() { (0..self.sessions).collect() } else { only.to_vec() };
        let seeds = Seeds::new(self.is_clustered);
        let scripts = self.scripts(&seeds, round, &all);
        if let [script] = scripts.as_slice() {
            crate::say(&format!("{script:#?}"));
        }
        let mut subject = Subject::start(self)?;
        let fault = match subject.round(scripts)? {
            Some(fault) => Some(fault),
            None => subject.returns(),
        };
        crate::say(&format!("round {round}: {}", fault.as_deref().unwrap_or("held")));
        Ok(fault.is_none())
    }

    /// Prints the failure and the command that replays it, with as few sessions as a few attempts find.
    fn report(&self, seeds: &Seeds, round: u64, all: Vec<usize>, fault: &str) -> anyhow::Result<()> {
        crate::say(&format!(
            "fuzz: driver {}, seed {}, round {round} failed: {fault}",
            self.driver, self.seed
        ));
        crate::say("fuzz: reducing");
        let fails = |some: &[usize]| {
            let mut subject = Subject::start(self)?;
            anyhow::Ok(subject.round(self.scripts(seeds, round, some))?.is_some())
        };
        if !fails(&all)? {
            crate::say("fuzz: the round alone doesn't fail on a fresh server: the rounds before matter");
        } else {
            let few = reduce(&all, REDUCE_ATTEMPTS, fails)?;
            let only = few.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            crate::say(&format!(
                "fuzz: replay with\n  stentor-attack fuzz --driver {} --seed {} --sessions {} --held-max {} --round {round} --only {only}",
                self.driver,
                self.seed,
                self.sessions,
                self.bound_bytes / 1_000_000
            ));
        }
        Ok(())
    }

    /// Returns the sessions of a round with these numbers.
    fn scripts(&self, seeds: &Seeds, round: u64, numbers: &[usize]) -> Vec<Script> {
        numbers
            .iter()
            .map(|number| {
                if let (0, Some(valid)) = (round, seeds.sessions().get(*number)) {
                    return valid.clone();
                }
                // Each session has its own generator, so leaving out other sessions doesn't change it.
                let mut rng = Rng::with_seed(self.seed);
                rng = Rng::with_seed(rng.u64(..) ^ round);
                rng = Rng::with_seed(rng.u64(..) ^ *number as u64);
                let (one, other) = (seeds.pick(&mut rng), seeds.pick(&mut rng));
                mutate(one, other, &mut rng)
            })
            .collect()
    }
}
