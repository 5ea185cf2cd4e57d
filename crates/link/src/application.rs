//! The workers and sessions of one application: the worker of each session, and the sessions and messages without one.
//!
//! Sessions and their rooms are the data plane's. This table has the links, and the state of each session
//! ([`crate::session`]): new sessions go to the worker with the fewest sessions. Sessions of a worker that leaves or crashes move to
//! other workers, and their messages wait until then. A worker that joins gets its share of the sessions (`balance.rs`).
//!
//! Calls are followed by [`Application::poll_action`] until it returns nothing, and by [`Application::proceed`]. The owner of a connection
//! reads the next frame only when the actions of the last one were carried out, and not while the link waits ([`Application::is_waiting`]).
//!
//! **Invariant.** A session's messages reach workers in the order in which they arrived. A session has one worker at most, and
//! a worker's handle names one session at most.

mod assignment;
mod balance;
mod changes;
mod ends;
mod holdings;

pub use balance::MOVES_MAX;
pub use holdings::Stats;

use crate::entry::{ServerEntry, WorkerEntry};
use crate::error::{Code, LinkError};
use crate::hello::{Hello, OnCrash, Parser, Refusal, Settings};
use crate::limits::LINK_BITS;
use crate::link::{End, Event, Link, LinkOptions, Transmit};
use crate::session::{Place, QueuedBytes, Session, SessionId, State};
use crate::value::{Handle, Json, Messages, Name, Namespace};
use assignment::Peers;
use balance::Balance;
use bytes::Bytes;
use holdings::Held;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Bounds and times of an application.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationOptions {
    /// Options of its links.
    pub link: LinkOptions,
    /// How long a session or a request waits for a worker.
    pub grace: Duration,
    /// Maximum number of workers.
    pub workers_max: usize,
    /// Maximum number of requests that wait for a worker or its answer.
    pub requests_max: usize,
    /// When more bytes of all clients wait for workers, Stentor stops reading from each client that has any waiting.
    pub total_queue_bytes: usize,
    /// Policy of workers whose HELLO has none.
    pub on_crash: OnCrash,
}

impl Default for ApplicationOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            grace: Duration::from_secs(10),
            workers_max: 64,
            requests_max: 1_000,
            total_queue_bytes: 64 << 20,
            on_crash: OnCrash::default(),
        }
    }
}

/// A change that the caller carries out.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Accepts a client's request, with the headers of the worker's ACCEPT.
    Accept(SessionId, Option<Json>),
    /// Refuses a client's request, with the response of the worker's REFUSE. `None`: status 503, because there is no worker.
    Refuse(SessionId, Option<Json>),
    /// Closes a session. The table has forgotten it.
    Close(SessionId, Closing),
    /// Stops reading from a client.
    Pause(SessionId),
    /// Reads from a client again.
    Continue(SessionId),
    /// The worker has handled the messages before [`Application::confirm`], or has ended.
    Handled(SessionId),
    /// Asks for the `session` of RESUME: see [`Application::handle_description`].
    Describe(SessionId, Handle),
    /// An entry of the worker with this link for a session.
    Session(u32, SessionId, WorkerEntry),
    /// An entry of the worker with this link for a namespace.
    Namespace(u32, WorkerEntry),
}

/// The reason why the table closes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The worker has stopped its application.
    Stopped,
    /// The worker has crashed, and the session has messages that it may have handled.
    Crashed,
    /// There was no worker for too long.
    NoWorker,
    /// No worker can take the session: its sockets have too many rooms.
    TooLarge,
    /// A worker has disconnected the session while it had no worker of its own.
    Disconnected,
}

/// A link and the sessions of its worker.
struct Worker {
    link: Link,
    sessions: BTreeMap<Handle, SessionId>,
    /// The sessions that are open and can move to other workers.
    open: BTreeSet<Handle>,
    /// Number of sessions that wait for their description.
    resuming: usize,
    /// Number of sessions that the worker was asked to give back.
    releasing: usize,
    next_handle: u32,
    /// Sessions whose messages wait for room, in order.
    blocked: VecDeque<SessionId>,
    /// Frames that carry a confirmed message, by count.
    confirms: VecDeque<(u64, SessionId)>,
}

/// Sessions whose time is limited.
#[derive(Default)]
struct Line {
    /// Sessions without a worker, in order.
    waiting: BTreeMap<Place, SessionId>,
    /// Sessions whose worker has to answer, by the end of its time: requests, and sessions that move.
    answering: BTreeMap<Place, SessionId>,
    /// Number of the last place.
    last: u64,
}

/// The workers and sessions of an application.
pub struct Application {
    options: ApplicationOptions,
    /// Settings of the last worker.
    settings: Option<Settings>,
    workers: BTreeMap<u32, Worker>,
    sessions: HashMap<SessionId, Session>,
    line: Line,
    next_link: u32,
    /// Number of requests that aren't answered.
    requests: usize,
    /// `true` after the last worker has stopped the application: no worker is expected.
    is_stopped: bool,
    peers: Peers,
    actions: VecDeque<Action>,
    /// Changes of other workers' sockets that wait, by link.
    changes: VecDeque<(u32, WorkerEntry)>,
    balance: Balance,
    held: Held,
    stats: Stats,
    /// Links that have ended: number, name of the worker, and how.
    ended: VecDeque<(u32, Box<str>, End)>,
}

impl Application {
    /// An application without workers. `first_link` is the number of the first link, of which [`LINK_BITS`] bits count. It is random, so
    /// that a link has another number than those that a process knows from a former server.
    pub fn new(options: ApplicationOptions, first_link: u32) -> Self {
        Self {
            options,
            settings: None,
            workers: BTreeMap::new(),
            sessions: HashMap::new(),
            line: Line::default(),
            next_link: first_link,
            requests: 0,
            is_stopped: false,
            peers: Peers::default(),
            actions: VecDeque::new(),
            changes: VecDeque::new(),
            balance: Balance::default(),
            held: Held::default(),
            stats: Stats::default(),
            ended: VecDeque::new(),
        }
    }

    /// Returns the next change to carry out.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A link, by its number.
    pub fn link(&self, number: u32) -> Option<&Link> {
        self.workers.get(&number).map(|worker| &worker.link)
    }

    /// The link of the worker that has a session, and the session's handle there.
    pub fn owner_of(&self, id: SessionId) -> Option<(u32, Handle)> {
        let owner = self.sessions.get(&id)?.state.owner()?;
        Some((owner.link, owner.handle))
    }

    /// Like [`Self::owner_of`], but `None` while the worker doesn't know the session, because RESUME hasn't been written.
    pub fn known_by(&self, id: SessionId) -> Option<(u32, Handle)> {
        let state = self.sessions.get(&id)?.state;
        let owner = state.owner().filter(|_| !matches!(state, State::Resuming(_)))?;
        Some((owner.link, owner.handle))
    }

    /// Count of the worker's frame with the last message of a session. 0: the worker has got none.
    pub fn last_message(&self, id: SessionId) -> u64 {
        self.sessions.get(&id).map_or(0, |session| session.written)
    }

    /// The encoding of packets of the last worker.
    pub fn parser(&self) -> Parser {
        self.settings.as_ref().map_or(Parser::Json, |settings| settings.parser)
    }

    /// Number of sessions, including requests.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// `true` if there is no session.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Number of sessions of a worker.
    pub fn sessions_of(&self, link: u32) -> usize {
        self.workers.get(&link).map_or(0, |worker| worker.sessions.len())
    }

    // Links.

    /// A process has connected and sent HELLO. Returns the number of its link. If that link has a former connection, the caller
    /// drops it.
    ///
    /// # Errors
    ///
    /// If the application has too many workers, or runs with other options.
    pub fn handle_hello(&mut self, mut hello: Hello, now: Instant) -> Result<u32, Refusal> {
        hello.on_crash.get_or_insert(self.options.on_crash);
        let is_same = |worker: &Worker| worker.link.instance() == hello.instance && !worker.link.is_ended();
        let same = self.workers.iter().find(|(_, worker)| is_same(worker)).map(|(number, _)| *number);
        if let Some(number) = same {
            if hello.link == same {
                let servers = self.all_servers();
                if let Some(worker) = self.workers.get_mut(&number) {
                    worker.link.handle_rejoin(&hello, servers, now);
                }
                self.handle_events(number, now);
                return Ok(number);
            }
            // The process doesn't know of this link: WELCOME was lost. Its numbers are those of a former link.
            self.replace(number, now);
        }
        let settings = Settings::of(&hello);
        let known = self.settings.as_ref().filter(|_| self.is_bound());
        if let Some(difference) = known.and_then(|known| known.difference(&settings, "the running workers")) {
            return Err(Refusal::new(Code::OptionsConflict, difference));
        }
        // The next process of a worker whose connection is broken takes its place.
        let is_former = |worker: &Worker| worker.link.is_lost() && worker.link.name() == hello.name;
        let former = self.workers.iter().find(|(_, worker)| is_former(worker)).map(|(number, _)| *number);
        if let Some(number) = former {
            self.replace(number, now);
        }
        if self.workers.values().filter(|worker| !worker.link.is_ended()).count() >= self.options.workers_max
        {
            let message = format!("the application has {} workers already", self.options.workers_max);
            return Err(Refusal::new(Code::TooManyWorkers, message));
        }
        self.settings = Some(settings);
        let number = self.draw_link();
        self.is_stopped = false;
        let link = Link::new(number, hello, self.all_servers().saturating_add(1), self.options.link, now);
        let worker = Worker {
            link,
            sessions: BTreeMap::new(),
            open: BTreeSet::new(),
            resuming: 0,
            releasing: 0,
            next_handle: 1,
            blocked: VecDeque::new(),
            confirms: VecDeque::new(),
        };
        self.workers.insert(number, worker);
        self.balance.is_on = true;
        self.progress(now);
        Ok(number)
    }

    /// Draws the number of a link. The bits above [`LINK_BITS`] stay the same.
    fn draw_link(&mut self) -> u32 {
        const COUNT: u32 = (1 << LINK_BITS) - 1;
        loop {
            let number = self.next_link;
            self.next_link = (number & !COUNT) | (number.wrapping_add(1) & COUNT);
            if number & COUNT != 0 && !self.workers.contains_key(&number) {
                return number;
            }
        }
    }

    /// `true` while a worker must have the options of the last one: a client is connected, or another worker is running. Otherwise, the
    /// process that replaces a worker may have others.
    pub fn is_bound(&self) -> bool {
        !self.sessions.is_empty() || self.workers.values().any(|worker| worker.link.takes_sessions())
    }

    /// Ends a link whose worker has another one now.
    fn replace(&mut self, number: u32, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&number) {
            worker.link.give_up();
        }
        self.handle_events(number, now);
    }

    /// Takes a message of a link's connection.
    pub fn handle_frame(&mut self, link: u32, frame: Bytes, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&link) {
            worker.link.handle_frame(frame, now);
            self.handle_events(link, now);
        }
    }

    /// Ends a link whose worker has broken a rule of the connection.
    pub fn handle_violation(&mut self, link: u32, error: LinkError, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&link) {
            worker.link.fail(error);
            self.handle_events(link, now);
        }
    }

    /// Takes a WebSocket pong of a link's connection.
    pub fn handle_pong(&mut self, link: u32, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&link) {
            worker.link.handle_pong(now);
        }
    }

    /// A link's connection has ended.
    pub fn handle_disconnect(&mut self, link: u32, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&link) {
            worker.link.handle_disconnect(now);
            let is_ended = worker.link.is_ended();
            self.handle_events(link, now);
            if is_ended {
                self.workers.remove(&link);
            }
            self.progress(now);
        }
    }

    /// Returns the next thing to send on a link's connection. The caller closes a connection whose link isn't known any more.
    pub fn poll_transmit(&mut self, link: u32, now: Instant) -> Option<Transmit> {
        // A write may have ended the link. Its sessions are taken from it before it is forgotten.
        if self.link(link)?.is_ended() {
            self.handle_events(link, now);
        }
        let transmit = self.workers.get_mut(&link)?.link.poll_transmit(now);
        if matches!(transmit, Some(Transmit::Close)) {
            self.workers.remove(&link);
        }
        transmit
    }

    /// Writes an entry about a session that the table doesn't write itself. Without effect if no worker knows the session.
    pub fn write(&mut self, session: SessionId, entry: impl FnOnce(Handle) -> ServerEntry, now: Instant) {
        if let Some((link, handle)) = self.known_by(session) {
            self.write_to(link, &entry(handle));
            self.handle_events(link, now);
        }
    }

    /// Writes an entry about a namespace to a worker.
    pub fn write_to_link(&mut self, link: u32, entry: &ServerEntry, now: Instant) {
        self.write_to(link, entry);
        self.settle(now);
    }

    /// Reports a refused request to a worker that listens to them.
    pub fn report_error(&mut self, error: Json, now: Instant) {
        let takes = |worker: &Worker| worker.link.takes_errors() && worker.link.has_room_for_answers();
        let found = self.workers.iter().find(|(_, worker)| takes(worker)).map(|(number, _)| *number);
        if let Some(link) = found {
            self.write_to_link(link, &ServerEntry::ConnError { error }, now);
        }
    }

    /// Ends the links and sessions that have timed out.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.keep_waiting(now);
        let numbers: Vec<u32> = self.workers.keys().copied().collect();
        for number in numbers {
            if let Some(worker) = self.workers.get_mut(&number) {
                worker.link.handle_timeout(now);
                self.handle_events(number, now);
            }
        }
        while let Some((place, &id)) = self.line.waiting.first_key_value()
            && place.0 <= now
        {
            self.close(id, Closing::NoWorker);
        }
        while let Some((place, &id)) = self.line.answering.first_key_value()
            && place.0 <= now
        {
            self.take_back(id, now);
        }
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_transmit`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let links = self.workers.values().filter_map(|worker| worker.link.poll_timeout());
        let places = [self.line.waiting.keys().next(), self.line.answering.keys().next()];
        links.chain(places.into_iter().flatten().map(|place| place.0)).min()
    }

    // Sessions.

    /// A client requests a session. The answer is [`Action::Accept`] or [`Action::Refuse`]. The table adds the size of the client's
    /// messages that wait for its worker to `queued`.
    pub fn handle_request(&mut self, id: SessionId, handshake: Json, queued: QueuedBytes, now: Instant) {
        if self.is_stopped || self.requests >= self.options.requests_max {
            self.stats.requests_refused += 1;
            self.actions.push_back(Action::Refuse(id, None));
            return;
        }
        self.held.handshake_bytes += handshake.as_str().len();
        let place = self.new_place(now);
        self.sessions.insert(id, Session::new(State::Held(place), handshake, queued));
        self.line.waiting.insert(place, id);
        self.requests += 1;
        self.progress(now);
    }

    /// A client has sent messages that belong together.
    pub fn handle_message(&mut self, id: SessionId, messages: Messages, now: Instant) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        self.held.queued_bytes += session.count_queued(&messages);
        session.queue.push_back(messages);
        self.drain(id);
        self.settle(now);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let is_full = self.held.queued_bytes > self.options.total_queue_bytes;
        if is_full && !session.queue.is_empty() && !session.is_paused {
            session.is_paused = true;
            self.actions.push_back(Action::Pause(id));
        }
    }

    /// The caller has stopped reading from a client, because too many bytes wait for its worker. [`Action::Continue`] follows when none
    /// waits.
    pub fn handle_full(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.is_paused = true;
        self.drain(id);
        self.settle(now);
    }

    /// Asks for [`Action::Handled`] when the worker has handled the session's messages so far.
    pub fn confirm(&mut self, id: SessionId, now: Instant) {
        match self.sessions.get_mut(&id) {
            Some(session) => session.is_confirming = true,
            None => return self.actions.push_back(Action::Handled(id)),
        }
        self.drain(id);
        self.settle(now);
    }

    /// A session has changed its transport.
    pub fn handle_upgrade(&mut self, id: SessionId, transport: Name, now: Instant) {
        let is_known = |session: &Session| matches!(session.state, State::Open(_) | State::Moving(..));
        if self.sessions.get(&id).is_some_and(is_known) {
            self.write(id, |handle| ServerEntry::Upgrade { handle, transport }, now);
        }
    }

    /// A session has ended.
    pub fn handle_closed(&mut self, id: SessionId, reason: Name, description: Option<Json>, now: Instant) {
        self.write(id, |handle| ServerEntry::Closed { handle, reason, description }, now);
        self.forget(id);
        self.progress(now);
        self.settle(now);
    }

    /// The answer to [`Action::Describe`]: the handshake and the sockets of a session.
    pub fn handle_description(&mut self, id: SessionId, handle: Handle, session: Json, now: Instant) {
        let Some(known) = self.sessions.get(&id) else { return };
        let State::Resuming(owner) = known.state else { return };
        let takes = self.workers.get(&owner.link).is_some_and(|worker| !worker.link.is_draining());
        if owner.handle != handle || !takes {
            // The description is for a former worker, or the worker is leaving. The session then waits when the worker has left.
            return;
        }
        if !self.workers.get(&owner.link).is_some_and(|worker| worker.link.has_room()) {
            // Further descriptions would exceed the worker's bound of frames without acknowledgement.
            self.wait(id, now);
            return self.settle(now);
        }
        if session.as_str().len() > self.options.link.unacknowledged_bytes_max / 2 {
            // A worker that got it would lose its link, and so would the next one.
            self.close(id, Closing::TooLarge);
            return self.progress(now);
        }
        self.write_to(owner.link, &ServerEntry::Resume { handle, session });
        self.stats.sessions_resumed += 1;
        self.set_state(id, State::Open(owner));
        self.drain(id);
        self.progress(now);
        self.settle(now);
    }

    // Workers' entries.

    /// Handles what a link has for us, and then all that may go on.
    fn handle_events(&mut self, number: u32, now: Instant) {
        // A POST is answered before the effects of the frame that acknowledges its messages. A client that closes its session while its
        // POST is open would hang.
        if let Some(worker) = self.workers.get_mut(&number) {
            let acknowledged = worker.link.acknowledged();
            while let Some(&(count, id)) = worker.confirms.front()
                && count <= acknowledged
            {
                worker.confirms.pop_front();
                self.actions.push_back(Action::Handled(id));
            }
        }
        while let Some(event) = self.next_event(number) {
            match event {
                Event::Entry(entry) => self.handle_entry(number, entry, now),
                Event::Draining => {}
                Event::Ended(end) => {
                    let name = self.workers.get(&number).map(|worker| worker.link.name().into());
                    self.ended.push_back((number, name.unwrap_or_default(), end));
                    self.handle_end(number, end, now);
                    if end == End::Lost {
                        self.workers.remove(&number);
                    }
                }
            }
        }
        self.progress(now);
    }

    /// The events of links that a write has ended.
    fn settle(&mut self, now: Instant) {
        let ended: Vec<u32> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.link.is_ended())
            .map(|(number, _)| *number)
            .collect();
        ended.into_iter().for_each(|number| self.handle_events(number, now));
    }

    fn handle_entry(&mut self, link: u32, entry: WorkerEntry, now: Instant) {
        use WorkerEntry as E;
        let handle = match &entry {
            E::Accept { handle, .. }
            | E::Refuse { handle, .. }
            | E::Send { handle, .. }
            | E::Close { handle, .. }
            | E::Add { handle, .. }
            | E::Del { handle, .. }
            | E::Join { handle, .. }
            | E::Leave { handle, .. }
            | E::State { handle, .. }
            | E::Restore { handle, .. }
            | E::Watch { handle, .. }
            | E::Released { handle, .. }
            | E::Kept { handle } => *handle,
            _ => return self.actions.push_back(Action::Namespace(link, entry)),
        };
        // Entries about sessions that have ended, or that another worker has, are late.
        let Some(&id) = self.workers.get(&link).and_then(|worker| worker.sessions.get(&handle)) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        match (entry, session.state) {
            (E::Accept { headers, .. }, State::Asking(owner, _)) => {
                self.held.forget_handshake(session);
                self.set_state(id, State::Open(owner));
                self.actions.push_back(Action::Accept(id, Some(headers)));
                self.drain(id);
            }
            (E::Refuse { response, .. }, State::Asking(..)) => {
                self.forget(id);
                self.actions.push_back(Action::Refuse(id, Some(response)));
            }
            (E::Accept { .. } | E::Refuse { .. }, _) => {}
            (E::Released { namespace: Namespace::END, .. }, State::Moving(..)) => {
                self.stats.sessions_moved += 1;
                self.wait(id, now);
            }
            (E::Released { namespace: Namespace::END, .. }, _) => {}
            (E::Kept { .. }, State::Moving(owner, _)) => self.stay(id, owner, now),
            (E::Kept { .. }, _) => {}
            (entry, _) => self.actions.push_back(Action::Session(link, id, entry)),
        }
    }
}
