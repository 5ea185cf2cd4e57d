//! Workers that crash, hang, leave, lose their connection and return, and sessions that move between them, on virtual time, from seeds.
//!
//! By policy, each message is handled and answered exactly once, or the session is closed (`disconnect`); at least once, with no gap
//! (`redeliver`); or at most once (`drop`); always in order. Only `disconnect` closes sessions, and only those with a message that its worker
//! hasn't acknowledged. Planned changes lose and repeat nothing. In the end, all workers have about as many sessions, and nothing is held. `STENTOR_SEED=17` runs one seed.

use crate::{hello_frame, json, number_in, text_of};
use bytes::Bytes;
use smallvec::smallvec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_link::{
    Action, Application, ApplicationOptions, Change, Closing, Exchange, Handle, Hello, Link, LinkOptions,
    Message, Namespace, QueuedBytes, Received, Select, SelectFlags, SendFlags, ServerEntry, SessionId,
    Transmit, WorkerEntry,
};

const SEEDS: u64 = 2_000;
const STEPS: u32 = 120;
/// Bytes that wait for a client's worker, above which the client isn't read.
const QUEUE_BYTES_MAX: usize = 2_000;
const POLICIES: [&str; 3] = ["disconnect", "redeliver", "drop"];

#[derive(Default)]
struct Client {
    sent: u64,
    /// Number of the last message that a worker has handled.
    handled: u64,
    /// Number of the last message that a worker has acknowledged.
    acknowledged: u64,
    /// Number of the last message whose answer has arrived.
    answered: u64,
    is_open: bool,
    is_paused: bool,
    queued: QueuedBytes,
}

/// A process of a worker.
struct Process {
    instance: String,
    /// The link that the server has made for it.
    link: u32,
    /// The link of the last WELCOME.
    known: Option<u32>,
    exchange: Exchange<ServerEntry, WorkerEntry>,
    /// The sessions that it knows.
    sessions: BTreeMap<Handle, u64>,
    inbox: VecDeque<Bytes>,
    /// Messages that it has handled and not acknowledged: the frame's number, the client, and the message's number.
    handled: VecDeque<(u32, u64, u64)>,
    /// The last acknowledgement that has arrived.
    ack: u32,
    /// Number of its last change of other workers' sockets.
    changes: u64,
    is_welcome: bool,
    /// `true` after BYE `done`.
    is_done: bool,
    /// `true` if it handles and answers nothing any more, although its connection is open.
    is_hung: bool,
}

struct World {
    rng: fastrand::Rng,
    now: Instant,
    policy: &'static str,
    app: Application,
    clients: BTreeMap<u64, Client>,
    processes: Vec<Process>,
    next_client: u64,
    next_process: u32,
    /// Descriptions that the data plane hasn't answered.
    descriptions: Vec<(SessionId, Handle)>,
    cut: u32,
    hung: u32,
    full: u32,
    resumed: u32,
    moved: u32,
    /// `true` if workers keep some of the sessions that they are asked for.
    keeps: bool,
    kept: u32,
    /// Last change of each process that was carried out.
    changed: BTreeMap<String, u64>,
    /// Frames with a change that has waited.
    waited: u32,
    /// Sessions that began while a worker didn't respond, and that another one got.
    avoided: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        // Longer than two steps take, and shorter than a run.
        let link = LinkOptions { worker_timeout: Duration::from_millis(600), ..LinkOptions::default() };
        let options = ApplicationOptions { total_queue_bytes: 8_000, link, ..ApplicationOptions::default() };
        Self {
            rng: fastrand::Rng::with_seed(seed),
            now: Instant::now(),
            policy: POLICIES[(seed % 3) as usize],
            app: Application::new(options, u32::MAX),
            clients: BTreeMap::new(),
            processes: Vec::new(),
            next_client: 1,
            next_process: 1,
            descriptions: Vec::new(),
            cut: 0,
            hung: 0,
            full: 0,
            resumed: 0,
            moved: 0,
            keeps: seed.is_multiple_of(4),
            kept: 0,
            changed: BTreeMap::new(),
            waited: 0,
            avoided: 0,
        }
    }

    fn any_client(&mut self) -> Option<u64> {
        let open: Vec<u64> =
            self.clients.iter().filter(|(_, client)| client.is_open).map(|(id, _)| *id).collect();
        self.rng.choice(open)
    }

    fn any_process(&mut self) -> Option<usize> {
        let running = |at: &usize| !self.processes[*at].is_hung;
        let all: Vec<usize> = (0..self.processes.len()).filter(running).collect();
        self.rng.choice(all)
    }

    fn step(&mut self) {
        match self.rng.u8(..35) {
            0..4 => {
                let id = self.next_client;
                self.next_client += 1;
                let queued = QueuedBytes::default();
                self.clients.insert(id, Client { queued: queued.clone(), ..Client::default() });
                let handshake = json(&format!(r#"{{"sid":{id}}}"#));
                self.app.handle_request(SessionId(id), handshake, queued, self.now);
                self.check_choice(id);
            }
            4..18 => {
                for _ in 0..self.rng.u8(1..10) {
                    let Some(id) = self.any_client() else { break };
                    let client = self.clients.get_mut(&id).unwrap();
                    if client.is_paused {
                        continue;
                    }
                    client.sent += 1;
                    let message = Message::Text(text_of(client.sent, self.rng.usize(..400)));
                    self.app.handle_message(SessionId(id), smallvec![message], self.now);
                    if self.rng.u8(..8) == 0 {
                        self.app.confirm(SessionId(id), self.now);
                    }
                    self.act();
                    if let Some(client) = self.clients.get_mut(&id)
                        && client.queued.load(Ordering::Relaxed) > QUEUE_BYTES_MAX
                        && !std::mem::replace(&mut client.is_paused, true)
                    {
                        self.full += 1;
                        self.app.handle_full(SessionId(id), self.now);
                    }
                }
            }
            18 => {
                if let Some(id) = self.any_client() {
                    self.clients.remove(&id);
                    self.app.handle_closed(SessionId(id), "transport close".into(), None, self.now);
                }
            }
            19 if self.processes.len() < 3 => self.start(),
            20 => {
                // A crash: nothing of the process is left.
                if let Some(at) = self.any_process().filter(|_| self.rng.bool()) {
                    let process = self.processes.swap_remove(at);
                    self.app.handle_disconnect(process.link, self.now);
                }
            }
            21 => {
                if let Some(at) = self.any_process() {
                    self.cut(at);
                }
            }
            22 => {
                // The worker may have begun its handover before.
                let at = self.any_process().filter(|at| !self.processes[*at].is_done);
                if let Some(process) = at.map(|at| &mut self.processes[at])
                    && self.app.link(process.link).is_some_and(|link| link.takes_sessions())
                    && process.is_welcome
                {
                    process.is_done = true;
                    process.exchange.write(&WorkerEntry::Bye { bye: json(r#"{"mode":"handover"}"#) });
                }
            }
            23 => {
                for _ in 0..self.rng.u8(1..6) {
                    let Some(id) = self.any_client() else { break };
                    self.moved += u32::from(self.app.release(SessionId(id), self.now));
                }
            }
            24 => {
                if let Some(at) = self.any_process().filter(|_| self.rng.bool()) {
                    self.processes[at].is_hung = true;
                    self.hung += 1;
                }
            }
            25..27 => self.now += Duration::from_millis(self.rng.u64(..150)),
            27..29 => {
                // Others can't write entries after BYE.
                let at = self.any_process().filter(|at| self.processes[*at].is_welcome);
                if let Some(process) = at.map(|at| &mut self.processes[at])
                    && !process.is_done
                {
                    process.changes += 1;
                    let change = change(&process.instance, process.changes);
                    process.exchange.write(&change);
                }
            }
            _ => self.now += Duration::from_millis(self.rng.u64(..10)),
        }
        self.pump(1);
    }

    /// A worker that doesn't respond gets no new session while another one does.
    fn check_choice(&mut self, id: u64) {
        let Some((link, _)) = self.app.owner_of(SessionId(id)) else { return };
        let responds = self.app.link(link).unwrap().responds();
        let others = || self.app.links().filter(|link| link.takes_sessions());
        assert!(responds || !others().any(Link::responds), "client {id}");
        self.avoided += u32::from(responds && !others().all(Link::responds));
    }

    fn start(&mut self) {
        let instance = format!("process {}", self.next_process);
        self.next_process += 1;
        let hello = Hello::read(hello_frame(&instance, (None, 0), self.policy)).unwrap();
        let link = self.app.handle_hello(hello, self.now).unwrap();
        self.processes.push(Process {
            instance,
            link,
            known: None,
            exchange: Exchange::default(),
            sessions: BTreeMap::new(),
            inbox: VecDeque::new(),
            handled: VecDeque::new(),
            ack: 0,
            changes: 0,
            is_welcome: false,
            is_done: false,
            is_hung: false,
        });
    }

    /// The connection of a process breaks, and the process connects again: in time, or too late.
    fn cut(&mut self, at: usize) {
        self.cut += 1;
        self.processes[at].inbox.clear();
        self.processes[at].is_welcome = false;
        self.app.handle_disconnect(self.processes[at].link, self.now);
        self.act();
        self.now += Duration::from_millis(self.rng.u64(..300));
        self.app.handle_timeout(self.now);
        self.act();
        let process = &mut self.processes[at];
        let received = process.exchange.received();
        let hello =
            Hello::read(hello_frame(&process.instance, (process.known, received), self.policy)).unwrap();
        process.link = self.app.handle_hello(hello, self.now).unwrap();
    }

    /// The next action. A change may wait.
    fn next_action(&mut self) -> Option<Action> {
        loop {
            match self.app.poll_action() {
                None if self.rng.bool() && self.app.proceed(0, self.now).is_some() => {}
                action => return action,
            }
        }
    }

    /// The data plane carries out actions.
    fn act(&mut self) {
        while let Some(action) = self.next_action() {
            match action {
                Action::Accept(id, _) => {
                    // A client that has closed isn't accepted later.
                    let client = self.clients.get_mut(&id.0).unwrap();
                    assert!(!std::mem::replace(&mut client.is_open, true));
                }
                Action::Refuse(id, response) => {
                    assert_eq!(response, None);
                    self.clients.remove(&id.0);
                }
                Action::Close(id, closing) => {
                    let client = self.clients.remove(&id.0).unwrap();
                    assert!(client.is_open);
                    match closing {
                        Closing::Crashed => {
                            assert_eq!(self.policy, "disconnect");
                            assert!(client.sent > client.acknowledged, "client {}", id.0);
                        }
                        Closing::NoWorker => assert!(self.processes.is_empty()),
                        Closing::Stopped | Closing::Disconnected => panic!("no worker stops or disconnects"),
                        Closing::TooLarge => panic!("descriptions are short"),
                    }
                }
                Action::Pause(id) => {
                    assert!(!std::mem::replace(&mut self.clients.get_mut(&id.0).unwrap().is_paused, true));
                }
                Action::Continue(id) => {
                    assert!(std::mem::take(&mut self.clients.get_mut(&id.0).unwrap().is_paused));
                }
                Action::Handled(_) => {}
                Action::Describe(id, handle) => self.descriptions.push((id, handle)),
                Action::Session(_, id, WorkerEntry::Send { messages, .. }) => {
                    let client = self.clients.get_mut(&id.0).unwrap();
                    let number = number_in(&messages[0]);
                    check_order(self.policy, id.0, number, client.answered);
                    client.answered = client.answered.max(number);
                }
                Action::Session(_, _, entry) => panic!("{entry:?}"),
                Action::Namespace(_, WorkerEntry::Select { select, .. }) => {
                    let (instance, number) = select.targets[0].rsplit_once(' ').unwrap();
                    let last = self.changed.entry(instance.to_owned()).or_default();
                    let number: u64 = number.parse().unwrap();
                    assert!(number > *last, "{number} of {instance} after {last}");
                    *last = number;
                }
                Action::Namespace(_, entry) => panic!("{entry:?}"),
            }
        }
    }

    /// Frames travel, and some of them are handled.
    fn pump(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.app.handle_timeout(self.now);
            self.act();
            while !self.descriptions.is_empty() && self.rng.u8(..4) > 0 {
                let (id, handle) = self.descriptions.swap_remove(self.rng.usize(..self.descriptions.len()));
                let description = json(&format!(r#"{{"sid":{}}}"#, id.0));
                self.app.handle_description(id, handle, description, self.now);
                self.act();
            }
            for at in 0..self.processes.len() {
                self.pump_process(at);
            }
            // A process that has left exits when its BYE is acknowledged. One that hangs is killed after its link has ended.
            let app = &self.app;
            self.processes
                .retain(|process| !(process.is_done || process.is_hung) || app.link(process.link).is_some());
        }
    }

    fn pump_process(&mut self, at: usize) {
        let link = self.processes[at].link;
        while let Some(transmit) = self.app.poll_transmit(link, self.now) {
            match transmit {
                Transmit::Frame(frame) => self.processes[at].inbox.push_back(frame.to_bytes()),
                Transmit::Ping if self.processes[at].is_hung => {}
                Transmit::Ping => self.app.handle_pong(link, self.now),
                Transmit::Close => {}
            }
        }
        if self.processes[at].is_hung {
            return;
        }
        for _ in 0..self.rng.u8(..4) {
            let Some(frame) = self.processes[at].inbox.pop_front() else { break };
            self.handle_in_process(at, frame);
        }
        self.acknowledge(at);
        if self.processes[at].is_welcome && self.rng.u8(..4) > 0 {
            while !self.app.is_waiting(link)
                && let Some(frame) = self.processes[at].exchange.poll_transmit(self.now)
            {
                let frame = frame.to_bytes();
                self.processes[at].ack = Received::<WorkerEntry>::new(frame.clone()).unwrap().ack;
                self.app.handle_frame(link, frame, self.now);
                self.waited += u32::from(self.app.is_waiting(link));
                self.act();
                self.acknowledge(at);
            }
        }
    }

    /// The last acknowledgement of a process counts, unless its frame waits.
    fn acknowledge(&mut self, at: usize) {
        let Process { link, handled, ack, .. } = &mut self.processes[at];
        while !self.app.is_waiting(*link)
            && let Some(&(in_frame, id, number)) = handled.front()
            && in_frame <= *ack
        {
            handled.pop_front();
            if let Some(client) = self.clients.get_mut(&id) {
                client.acknowledged = number;
            }
        }
    }

    fn handle_in_process(&mut self, at: usize, frame: Bytes) {
        let process = &mut self.processes[at];
        if !process.is_welcome {
            let Some(Ok(ServerEntry::Welcome { welcome })) = Received::new(frame).unwrap().next() else {
                panic!("WELCOME is the first frame")
            };
            let welcome: serde_json::Value = serde_json::from_str(welcome.as_str()).unwrap();
            process.is_welcome = true;
            process.known = Some(welcome["link"].as_u64().unwrap() as u32);
            if welcome["resumed"].as_bool().unwrap() {
                let received = welcome["received"].as_u64().unwrap() as u32;
                process.exchange.reconnect(received, self.now).unwrap();
            } else {
                // Stentor has given the sessions to others.
                process.exchange = Exchange::default();
                process.sessions.clear();
                process.handled.clear();
                process.ack = 0;
                process.is_done = false;
                process.exchange.write(&WorkerEntry::Nsp { namespace: Namespace(0), name: "/".into() });
            }
            return;
        }
        let frame_number = Received::<ServerEntry>::new(frame.clone()).unwrap().number;
        process.exchange.handle_frame(frame, self.now).unwrap();
        while let Some(entry) = process.exchange.poll_entry().unwrap() {
            let sid = |text: &str| {
                serde_json::from_str::<serde_json::Value>(text).unwrap()["sid"].as_u64().unwrap()
            };
            match entry {
                ServerEntry::Open { handle, handshake, .. } => {
                    assert_eq!(process.sessions.insert(handle, sid(handshake.as_str())), None);
                }
                ServerEntry::Resume { handle, session } => {
                    self.resumed += 1;
                    assert_eq!(process.sessions.insert(handle, sid(session.as_str())), None);
                }
                ServerEntry::Message { handle, messages } => {
                    let id = process.sessions[&handle];
                    if self.app.owner_of(SessionId(id)) != Some((process.link, handle)) {
                        // The session was taken from a worker that is slow to give it back.
                        continue;
                    }
                    let Some(client) = self.clients.get_mut(&id) else { continue };
                    let number = number_in(&messages[0]);
                    check_order(self.policy, id, number, client.handled);
                    client.handled = client.handled.max(number);
                    process.handled.push_back((frame_number, id, number));
                    process.exchange.write(&WorkerEntry::Send {
                        handle,
                        flags: SendFlags::default(),
                        messages,
                    });
                }
                ServerEntry::Closed { handle, .. } => {
                    process.sessions.remove(&handle);
                }
                ServerEntry::Release { handle } if self.keeps && self.rng.u8(..3) == 0 => {
                    self.kept += 1;
                    process.exchange.write(&WorkerEntry::Kept { handle });
                }
                ServerEntry::Release { handle } => {
                    process.sessions.remove(&handle);
                    let namespace = Namespace::END;
                    process.exchange.write(&WorkerEntry::Released { handle, namespace, data: None });
                }
                ServerEntry::Drained {} => {
                    process.sessions.clear();
                    process.exchange.write(&WorkerEntry::Bye { bye: json(r#"{"mode":"done"}"#) });
                }
                ServerEntry::Nop {} => process.exchange.acknowledge_at_once(),
                ServerEntry::Peers { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A change of other workers' sockets.
fn change(instance: &str, number: u64) -> WorkerEntry {
    let select = Select {
        change: Change::Join,
        flags: SelectFlags::default(),
        rooms: Vec::new(),
        except: Vec::new(),
        targets: vec![format!("{instance} {number}").into()],
    };
    WorkerEntry::Select { namespace: Namespace(0), select }
}

/// Checks the number of a client's message, or of its answer, after the last one.
fn check_order(policy: &str, id: u64, number: u64, last: u64) {
    match policy {
        "disconnect" => assert_eq!(number, last + 1, "client {id}"),
        "redeliver" => assert!(number <= last + 1, "client {id}: {number} after {last}"),
        _ => assert!(number > last, "client {id}: {number} after {last}"),
    }
}

fn run(seed: u64) -> [u32; 7] {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.start();
    for _ in 0..60 {
        world.now += Duration::from_millis(30);
        world.pump(2);
    }
    let open: BTreeSet<u64> = world.clients.keys().copied().collect();
    for (id, client) in &world.clients {
        assert!(client.is_open && !client.is_paused, "client {id}");
        assert_eq!(client.queued.load(Ordering::Relaxed), 0, "client {id}");
        let is_complete = (client.handled, client.answered) == (client.sent, client.sent);
        assert!(world.policy == "drop" || is_complete, "client {id}");
    }
    // Each session has one worker, and sessions that have ended are forgotten.
    let mut known: Vec<u64> =
        world.processes.iter().flat_map(|process| process.sessions.values().copied()).collect();
    known.sort_unstable();
    assert_eq!(known, open.into_iter().collect::<Vec<_>>());
    assert_eq!((world.app.len(), world.app.queued_bytes()), (known.len(), 0));
    assert_eq!(world.app.waiting_changes(), 0);
    // The last worker has its share.
    let serving =
        world.processes.iter().filter(|process| world.app.link(process.link).unwrap().takes_sessions());
    let counts = serving.map(|process| process.sessions.len());
    let (most, fewest) = (counts.clone().max().unwrap(), counts.min().unwrap());
    let is_even = most - fewest <= 1 || world.kept > 0;
    assert!(is_even && world.app.moves() == 0, "{most} and {fewest} sessions");
    for process in &world.processes {
        assert_eq!(world.app.sessions_of(process.link), process.sessions.len());
        assert_eq!(world.app.link(process.link).unwrap().unacknowledged_bytes(), 0);
    }
    // Sessions that have ended hold no memory.
    for id in known {
        world.app.handle_closed(SessionId(id), "transport close".into(), None, world.now);
        while world.app.poll_action().is_some() {}
    }
    let links: usize = world.app.links().map(Link::held_bytes).sum();
    assert_eq!(world.app.held_bytes(), links);
    [world.cut, world.hung, world.full, world.resumed, world.moved, world.avoided, world.waited]
}

#[test]
fn sessions_survive_their_workers() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("STENTOR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STENTOR_SEEDS").unwrap_or(SEEDS),
    };
    let mut counts = [0; 7];
    for seed in seeds.clone() {
        let result = std::panic::catch_unwind(|| run(seed));
        let found = result.unwrap_or_else(|panic| {
            println!("replay with STENTOR_SEED={seed}");
            std::panic::resume_unwind(panic)
        });
        counts = std::array::from_fn(|n| counts[n] + found[n]);
    }
    let is_many = seeds.end - seeds.start >= 100;
    let [cut, hung, full, resumed, moved, avoided, waited] = counts;
    let is_varied = cut > 100
        && hung > 100
        && full > 100
        && resumed > 1_000
        && moved > 1_000
        && avoided > 100
        && waited > 100;
    assert!(
        !is_many || is_varied,
        "{cut} cut connections, {hung} hung workers, {full} full queues, {resumed} resumed and {moved} moved sessions, {avoided} that avoided a worker, {waited} changes that waited"
    );
}
