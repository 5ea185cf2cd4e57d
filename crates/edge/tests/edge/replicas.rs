//! Replicas of documents at clients of all protocols, over the simulated edge, from one seed.
//!
//! A control plane updates documents, in bursts and one by one. Clients subscribe with all kinds of options, stall, are cut off,
//! reconnect with their positions, and change their subscriptions. From time to time the server restarts. The shadow
//! contains every version. Each message is checked:
//!
//! - a client's document, after each applied message, is an existing version and never older than before, even after a lost
//!   connection or a restart;
//! - a delta applies to this client's version, and only clients that requested deltas receive one;
//! - a client that reconnects and receives a whole document is sent the correct reason;
//! - patches stay within their budget, and the counters add up.
//!
//! After all stalls, all clients have the newest version within [`SETTLES`] (unless their policy says otherwise), and all memory
//! is freed when they have left.
//!
//! A failing run prints its seed: `STENTOR_SEED=n cargo test -p stentor-edge --test edge replicas`.

mod client;
mod document;

use crate::stage::{FEEDS, Heard, Play, Stage, run_seeds};
use client::{Client, MANNERS, Manner, Place};
use document::Versions;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use stentor_delta::{ApplyLimits, apply};
use stentor_edge::{Limits, Options, SockJs};
use stentor_hub::FeedState;
use stentor_ports::FeedUpdate;

const CLIENTS: usize = 14;
const OPERATIONS: usize = 400;
/// Maximum requested interval between two versions.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Time after the last stall within which all clients have the newest version.
const SETTLES: Duration = INTERVAL_MAX.saturating_add(Duration::from_secs(1));
/// Metrics of a server that must not stay 0 in all runs.
const FIGURES: [&str; 4] =
    ["deliveries_conflated", "deliveries_dropped", "feed_patches_evicted", "feed_deltas_joined"];
const PATCH_BYTES_MAX: usize = 4_000;

struct Simulation {
    stage: Stage,
    clients: Vec<Client>,
    versions: BTreeMap<&'static str, Versions>,
    /// Number of occurrences of each situation.
    seen: BTreeMap<String, u64>,
}

impl Play for Simulation {
    fn stage(&mut self) -> &mut Stage {
        &mut self.stage
    }

    fn hear(&mut self, link: usize, heard: Heard) {
        let Some(n) = self.clients.iter().position(|client| client.link == Some(link)) else { return };
        match heard {
            Heard::Opened => self.clients[n].opened(),
            Heard::Text(text) => {
                let (answers, told) = self.clients[n].hear(&text);
                self.send(n, &answers);
                told.iter().for_each(|told| self.check(n, told));
            }
            Heard::Body(piece) => {
                let told = self.clients[n].read_events(&piece);
                told.iter().for_each(|told| self.check(n, told));
            }
            Heard::Closed(code) => {
                assert_eq!(code, 4501, "seed {}", self.stage.seed);
                self.saw("slow consumer");
            }
            Heard::Lost => self.clients[n].lost(),
        }
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut stage = Stage::new(seed, options);
        let versions = FEEDS.iter().map(|feed| (*feed, Versions::new(&mut stage.random))).collect();
        let mut simulation = Self { stage, clients: Vec::new(), versions, seen: BTreeMap::new() };
        for feed in FEEDS {
            simulation.stage.update(feed, simulation.versions[feed].newest());
        }
        for _ in 0..CLIENTS {
            let client = simulation.some_client();
            simulation.clients.push(client);
        }
        simulation
    }

    fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    fn some_client(&mut self) -> Client {
        let manner = self.stage.random.choice(MANNERS).unwrap();
        let first = self.stage.random.usize(..FEEDS.len());
        let count = if manner == Manner::Raw { 1 } else { 1 + self.stage.random.usize(..FEEDS.len()) };
        let feeds: Vec<&str> = (0..count).map(|n| FEEDS[(first + n) % FEEDS.len()]).collect();
        let options = self.some_options();
        Client::new(manner, &feeds, options)
    }

    fn some_options(&mut self) -> Value {
        let mut options = json!({});
        if self.stage.random.usize(..4) != 0 {
            options["delta"] = (self.stage.random.usize(..4) != 0).into();
        }
        match self.stage.random.usize(..6) {
            0 => options["policy"] = "queue".into(),
            1 => options["policy"] = "drop_oldest".into(),
            2 | 3 => {
                options["rate"] =
                    self.stage.random.choice([1.0 / INTERVAL_MAX.as_secs_f64(), 5.0, 60.0]).unwrap().into()
            }
            _ => {}
        }
        options
    }

    fn renew(&mut self) {
        let feed = self.stage.random.choice(FEEDS).unwrap();
        let many = if self.stage.random.usize(..5) == 0 { 1 + self.stage.random.usize(..30) } else { 1 };
        for _ in 0..many {
            self.next_version(feed);
            if self.stage.random.usize(..2) == 0 {
                self.run_for(Duration::from_micros(10));
            }
        }
    }

    fn next_version(&mut self, feed: &str) {
        let update = self.versions.get_mut(feed).unwrap().next(&mut self.stage.random);
        self.stage.update(feed, update);
    }

    fn restart(&mut self) {
        self.note_figures();
        self.stage.restart(options);
        for feed in FEEDS {
            let newest = self.versions[feed].newest();
            // The first clients may reconnect before this update.
            if self.stage.random.usize(..2) == 0 {
                self.run_for(Duration::from_millis(20));
            }
            self.stage.update(feed, newest);
        }
        self.saw("restart");
    }

    fn operate(&mut self) {
        let random = &mut self.stage.random;
        let n = random.usize(..self.clients.len());
        let client = &mut self.clients[n];
        match (random.usize(..100), client.link) {
            (0..40, _) => self.renew(),
            (40..65, None) => self.connect(n),
            (40..50, Some(link)) => self.stage.stall_or_resume(link),
            (50..57, Some(link)) => {
                client.lost();
                let is_reset = random.bool();
                self.stage.cut(link, is_reset);
            }
            (57..63, Some(_)) if client.can_ask() => {
                let options = self.some_options();
                self.clients[n].set_options(options);
                self.ask(n, true);
                self.saw("other options");
            }
            (63..65, Some(_)) if client.can_ask() => {
                self.ask(n, false);
                self.saw("a document again");
            }
            // Another client replaces this one.
            (65..67, None) => self.clients[n] = self.some_client(),
            (67..70, _) => {
                let feed = random.choice(FEEDS).unwrap();
                let state = random.choice([FeedState::Live, FeedState::Stale]).unwrap();
                self.stage.update(feed, FeedUpdate::State { state, reason: "it is so".into() });
            }
            (70, _) if random.bool() => self.restart(),
            _ => {
                let pause = Duration::from_micros(1 + random.u64(..20_000));
                self.run_for(pause);
            }
        }
    }

    fn connect(&mut self, n: usize) {
        let client = &mut self.clients[n];
        client.ready = false;
        let target = client.target();
        client.link = Some(match client.last_event_id_header() {
            _ if client.manner != Manner::Events => self.stage.open_ws(&target),
            Some(id) => self.stage.get(&target, &[("Last-Event-ID", id)]),
            None => self.stage.get(&target, &[]),
        });
    }

    fn connect_all(&mut self) {
        for n in 0..self.clients.len() {
            if self.clients[n].link.is_none() {
                self.connect(n);
            }
        }
    }

    fn ask(&mut self, n: usize, resume: bool) {
        let messages = self.clients[n].ask(resume);
        self.send(n, &messages);
    }

    fn send(&mut self, n: usize, messages: &[String]) {
        let Some(link) = self.clients[n].link else { return };
        messages.iter().for_each(|text| self.stage.send(link, text));
    }

    /// Compares a message that a client received with the shadow.
    fn check(&mut self, n: usize, told: &Value) {
        let seed = self.stage.seed;
        let client = &mut self.clients[n];
        let (manner, kind) = (client.manner, told["type"].as_str().unwrap().to_owned());
        match &*kind {
            "welcome" => return self.ask(n, true),
            "ok" => return client.done(told["id"].as_u64().unwrap()),
            "state" => return,
            "snapshot" | "delta" | "reset" => {}
            other => panic!("seed {seed}: {manner:?} was told {other}: {told}"),
        }
        let feed = told["feed"].as_str().unwrap();
        let who = format!("seed {seed}: client {n}, {manner:?}, {feed}, {}", client.options);
        let (feed, replica) = client.replicas.iter_mut().find(|(known, _)| **known == feed).expect(&who);
        let place: Option<Place> = told["epoch"].as_u64().zip(told["offset"].as_u64());
        let asked = match &*kind {
            "reset" => replica.answered.take(),
            // A message before the answer to a request belongs to an earlier request, if to any.
            _ if replica.is_open() => replica.asked,
            _ => replica.asked.take(),
        };
        replica.answered = asked.filter(|_| kind == "snapshot");
        let mut seen = Vec::new();
        if kind == "delta" {
            let may_be = replica.deltas || replica.deltas_next && replica.is_open();
            assert!(may_be, "{who}: wanted no deltas");
            let base = told["epoch"].as_u64().zip(told["base"].as_u64());
            assert_eq!(base, replica.place, "{who}: a delta for another version");
            let [old, patch] =
                [&replica.document, &told["patch"]].map(|value| serde_json::to_vec(value).unwrap());
            let new = apply(&old, &patch, ApplyLimits::default()).expect(&who);
            replica.document = serde_json::from_slice(&new).unwrap();
            seen.push(if asked.is_some() { "resumed by a delta" } else { "delta" });
            if place.unwrap().1 > base.unwrap().1 + 1 {
                seen.push("joined");
            }
        } else if kind == "snapshot" {
            replica.document = told["data"].clone();
            seen.push("snapshot");
        }
        let may_ask = asked.is_some() && replica.deltas;
        let is_promised = may_ask && replica.is_promised && !replica.is_open();
        let epoch = place.or(replica.place).map(|place| place.0);
        let is_other_epoch = asked.is_some_and(|asked| Some(asked.0) != epoch);
        match told["reason"].as_str() {
            // In an SSE stream, the reason follows the document.
            None if kind == "snapshot" && manner != Manner::Events && is_other_epoch => {
                assert!(!is_promised, "{who}: a document without a reason");
            }
            None => assert_ne!(kind, "reset", "{who}"),
            Some(reason) => {
                assert!(may_ask, "{who}: nobody asked for {reason}");
                assert_eq!(reason, if is_other_epoch { "epoch" } else { "history" }, "{who}");
                seen.push(if reason == "epoch" { "reason epoch" } else { "reason history" });
            }
        }
        if kind != "reset" {
            let version = replica.document["version"].as_u64().unwrap() as usize;
            assert!(
                self.versions[feed].all.get(version) == Some(&replica.document),
                "{who}: never was {version}"
            );
            assert!(replica.version <= Some(version), "{who}: {version} after {:?}", replica.version);
            replica.version = Some(version);
            replica.place = place;
        }
        for what in seen {
            self.saw(format!("{manner:?}: {what}"));
        }
    }

    fn check_figures(&self) {
        self.stage.check_counters();
        let bytes_max = (PATCH_BYTES_MAX * self.stage.cores()) as u64;
        let bytes = self.stage.metric("feed_patch_bytes");
        assert!(bytes <= bytes_max, "seed {}: more patches than may be", self.stage.seed);
    }

    /// Adds this server's metrics to the totals.
    fn note_figures(&mut self) {
        for name in FIGURES {
            let value = self.stage.metric(name);
            *self.seen.entry(name.into()).or_default() += value;
        }
    }

    /// Runs to the end. Returns the number of occurrences of each situation.
    fn run(mut self) -> BTreeMap<String, u64> {
        let seed = self.stage.seed;
        for _ in 0..OPERATIONS {
            self.operate();
            self.check_figures();
        }
        // All clients reconnect and read again, twice, so that quiet feeds also have an update.
        for _ in 0..2 {
            self.stage.resume_all();
            self.connect_all();
            self.run_for(SETTLES);
            // Clients that were closed as slow consumers reconnect.
            self.connect_all();
            self.run_for(SETTLES);
            for client in &self.clients {
                match client.options["policy"].as_str() {
                    // The newest version is dropped if older ones in flight fill the outbox.
                    Some("drop_oldest") => continue,
                    // The documents together may exceed the outbox.
                    Some("queue") if client.link.is_none() => continue,
                    _ => assert!(client.link.is_some(), "seed {seed}: {:?} was cut off", client.manner),
                }
                for (feed, replica) in &client.replicas {
                    let newest = self.versions[feed].all.last();
                    let who = (client.manner, feed, &client.options);
                    assert!(newest == Some(&replica.document), "seed {seed}: {who:?} hasn't the newest");
                }
            }
            FEEDS.iter().for_each(|feed| self.next_version(feed));
        }
        self.run_for(SETTLES);
        assert_eq!(self.stage.metric("deliveries_pending"), 0, "seed {seed}");
        self.note_figures();
        self.stage.cut_all();
        self.run_for(Duration::from_secs(30));
        self.stage.forget_feeds();
        self.run_for(Duration::from_secs(1));
        self.check_figures();
        self.stage.check_empty(&["feed_patch_bytes"]);
        self.seen
    }
}

fn options(random: &mut Rng) -> Options {
    let mut options = Options { cores: 1 + random.usize(..3), ..Options::default() };
    options.sockjs = vec![SockJs::at("/sockjs")];
    options.limits = Limits {
        send_buffer_bytes_max: 2_000 + random.usize(..20_000),
        mailbox_messages_max: 2 + random.usize(..30),
        feed_patches_max: random.choice([0, 3, 100]).unwrap(),
        feed_patches_bytes_max: PATCH_BYTES_MAX,
        ..Limits::default()
    };
    options
}

#[test]
fn seeds() {
    let Some(results) = run_seeds(32, |seed| Simulation::new(seed).run()) else { return };
    // The seeds must cover all situations.
    let mut expected: Vec<String> = ["restart", "other options", "a document again", "slow consumer"]
        .into_iter()
        .chain(FIGURES)
        .chain(["Raw: snapshot"])
        .map(str::to_owned)
        .collect();
    for manner in MANNERS.into_iter().filter(|manner| *manner != Manner::Raw) {
        for what in ["snapshot", "delta", "joined", "resumed by a delta", "reason epoch", "reason history"] {
            expected.push(format!("{manner:?}: {what}"));
        }
    }
    for what in expected {
        assert!(results.iter().any(|seen| seen.get(&what) > Some(&0)), "never: {what}");
    }
}
