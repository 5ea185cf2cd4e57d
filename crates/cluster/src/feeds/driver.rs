//! Joins the machine for feeds with the engine and both planes.

use super::log::{DecodedLog, Log};
use super::requests::Ticket;
use super::{ColdKeys, FeedStats, Feeds, Output, SourceOf};
use crate::NodeId;
use crate::clock::now;
use crate::engine::{Engine, EngineError, Reply, Request};
use crate::frame::{Frame, FrameError, Frames};
use crate::space::Space;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stentor_hub::{Document, Key, Position};
use stentor_ports::{
    Busy, Charge, Class, ControlPlane, Done, FeedList, FeedUpdate, FeedsQuery, KeyInterest, Ledger,
    LocalNode, PushDenied, PushResult, PushedFeed, ReadResult,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

struct State {
    feeds: Feeds,
    /// Charge for the machine's memory.
    charge: Charge,
    /// Keys to fetch or no longer to fetch, which the control plane hasn't taken.
    to_fetch: Vec<KeyInterest>,
    pushed: u64,
    pushes: HashMap<u64, Done<PushResult>>,
    /// Feeds whose clients wait for the engine.
    to_confirm: HashSet<Key>,
    /// Documents to be read from the engine.
    reads: Vec<(Key, Done<ReadResult>)>,
}

/// The feeds of a node, for any thread.
pub(crate) struct FeedDriver {
    state: Mutex<State>,
    /// Notified when all outputs so far have been carried out.
    settled: Notify,
    /// Notified when the machine may have outputs, or the data plane's subscribers have changed.
    changed: Notify,
}

/// The engine and both planes.
pub(crate) struct Surroundings<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) plane: &'a dyn LocalNode,
    pub(crate) control: &'a OnceLock<Arc<dyn ControlPlane>>,
    pub(crate) space: &'a Space,
    pub(crate) frames: &'a Frames,
    /// Counts a refused frame.
    pub(crate) refuse: Box<dyn Fn(FrameError) + Send + Sync + 'a>,
    /// Returns `true` if there is memory for this number of bytes. A lack of memory is counted.
    pub(crate) has_memory_for: Box<dyn Fn(usize) -> bool + Send + Sync + 'a>,
}

/// An answer of the engine.
enum Answered {
    Machine(Ticket, Result<Reply, EngineError>),
    Read(Key, Done<ReadResult>, Result<Reply, EngineError>),
}

impl FeedDriver {
    /// Creates the feeds of the node that writes `frames`. `source_of` returns the source of a feed's documents. A feed without subscribers is
    /// fetched for `idle_ttl`. `ledger` is charged for the feeds.
    pub(crate) fn new(
        frames: Frames,
        source_of: SourceOf,
        idle_ttl: Duration,
        cold: ColdKeys,
        ledger: Arc<Ledger>,
    ) -> Self {
        let state = State {
            feeds: Feeds::new(frames, source_of, idle_ttl, cold),
            charge: Charge::new(ledger, Class::Cluster),
            to_fetch: Vec::new(),
            pushed: 0,
            pushes: HashMap::new(),
            to_confirm: HashSet::new(),
            reads: Vec::new(),
        };
        Self { state: Mutex::new(state), settled: Notify::new(), changed: Notify::new() }
    }

    /// Changes the machine.
    fn change<R>(&self, change: impl FnOnce(&mut Feeds) -> R) -> R {
        let result = change(&mut self.state.lock().feeds);
        self.changed.notify_one();
        result
    }

    pub(crate) fn stats(&self) -> FeedStats {
        self.state.lock().feeds.stats()
    }

    /// Lists the keys with pushed documents that have subscribers on this node.
    pub(crate) fn list_pushed(&self, query: &FeedsQuery) -> FeedList {
        self.state.lock().feeds.list_pushed(query)
    }

    /// Handles a change of the data plane's subscribers.
    pub(crate) fn interest_changed(&self) {
        self.changed.notify_one();
    }

    /// Takes the keys that the control plane fetches, or no longer fetches.
    pub(crate) fn take_to_fetch(&self) -> Vec<KeyInterest> {
        std::mem::take(&mut self.state.lock().to_fetch)
    }

    /// Handles news of a feed from the control plane. Returns the news if they are for this node alone.
    pub(crate) fn handle_update(&self, key: &Key, update: FeedUpdate) -> Option<FeedUpdate> {
        self.change(|feeds| feeds.handle_update(now(), key, update))
    }

    /// Lets clients of a feed wait until it is read. Returns the number that the read's number will exceed.
    pub(crate) fn confirm(&self, key: &Key) -> u64 {
        let state = &mut *self.state.lock();
        state.to_confirm.insert(key.clone());
        self.changed.notify_one();
        state.feeds.requests_drawn()
    }

    /// Called when the node shuts down: other nodes must fetch its feeds.
    pub(crate) fn leave(&self) {
        self.change(|feeds| feeds.handle_leaving(now()));
    }

    /// Waits until other nodes know which leases this one has released.
    pub(crate) async fn released(&self) {
        while self.state.lock().feeds.is_releasing() {
            self.settled.notified().await;
        }
    }

    pub(crate) fn handle_connected(&self) {
        self.change(|feeds| feeds.handle_connected(now()));
    }

    /// Handles a frame of another node, about one feed or about all feeds that the node fetches.
    pub(crate) fn handle_frame(
        &self,
        sender: NodeId,
        key: Option<&Key>,
        position: Option<Position>,
        frame: &Frame,
        has_memory_for: impl FnOnce(usize) -> bool,
    ) {
        self.change(|feeds| match (frame, key) {
            (Frame::Feed(entry), Some(key))
                if entry.version.is_some() && !has_memory_for(entry.document_bytes()) =>
            {
                feeds.handle_deferred(now(), key);
            }
            (Frame::Feed(entry), Some(key)) => feeds.handle_entry(now(), sender, key, position, entry),
            (Frame::Released(term), Some(key)) => feeds.handle_released(now(), key, *term),
            (Frame::Alive, _) => feeds.handle_alive(now(), sender),
            _ => {}
        });
    }

    /// Stores a document that was pushed to this node, or deletes it.
    pub(crate) fn push(&self, key: &Key, push: PushedFeed, done: Done<PushResult>) {
        let state = &mut *self.state.lock();
        state.pushed += 1;
        state.pushes.insert(state.pushed, done);
        state.feeds.handle_push(now(), state.pushed, key, push);
        self.changed.notify_one();
    }

    /// Reads the document of a key.
    pub(crate) fn read(&self, key: &Key, done: Done<ReadResult>) {
        let known = self.state.lock().feeds.document(key);
        match known {
            Some(document) => done.answer(Ok(Ok(Some(document)))),
            None => {
                self.state.lock().reads.push((key.clone(), done));
                self.changed.notify_one();
            }
        }
    }

    /// Carries out the machine's outputs for as long as the node runs.
    pub(crate) async fn run(&self, with: Surroundings<'_>) {
        let mut requests = JoinSet::new();
        loop {
            let (timeout, reads) = {
                let state = &mut *self.state.lock();
                // Waiting clients are taken first, so the machine knows that their feeds have subscribers.
                let to_confirm = std::mem::take(&mut state.to_confirm);
                for wanted in with.plane.take_key_interest() {
                    state.feeds.handle_wanted(now(), wanted);
                }
                for key in to_confirm {
                    state.feeds.handle_confirm(now(), &key);
                }
                state.feeds.handle_timeout(now());
                state.charge.set(state.feeds.held_bytes());
                (state.feeds.poll_timeout(), std::mem::take(&mut state.reads))
            };
            for (key, done) in reads {
                let answer = with.engine.request(Request::LoadFeed { key: key.clone() });
                requests.spawn(async move { Answered::Read(key, done, answer.await) });
            }
            while let Some(output) = { self.state.lock().feeds.poll_output() } {
                self.carry_out(output, &with, &mut requests).await;
            }
            self.settled.notify_one();
            tokio::select! {
                Some(answered) = requests.join_next() => match answered {
                    Ok(Answered::Machine(ticket, reply)) => {
                        self.state.lock().feeds.handle_reply(now(), ticket, reply, &with.has_memory_for);
                    }
                    Ok(Answered::Read(key, done, reply)) => done.answer(Ok(with.read(&key, reply))),
                    Err(_) => {}
                },
                () = self.changed.notified() => {}
                () = sleep_until(timeout.unwrap_or_else(now).into()), if timeout.is_some() => {}
            }
        }
    }

    async fn carry_out(&self, output: Output, with: &Surroundings<'_>, requests: &mut JoinSet<Answered>) {
        match output {
            Output::Request(ticket, request) => {
                let answer = with.engine.request(request);
                requests.spawn(async move { Answered::Machine(ticket, answer.await) });
            }
            Output::Publish(channel, payload) => {
                // If the engine's queue is full, followers learn of the frame's content later.
                let _ = with.engine.publish(channel, payload);
            }
            Output::Refused(error) => (with.refuse)(error),
            Output::Control(wanted) => {
                self.state.lock().to_fetch.push(wanted);
                if let Some(control) = with.control.get() {
                    control.interest_changed();
                }
            }
            Output::Plane(key, update) => {
                while with.plane.update_feed(&key, update.clone()) == Err(Busy) {
                    with.space.wait().await;
                }
            }
            Output::Pushed(id, answer) => {
                let done = self.state.lock().pushes.remove(&id);
                if let Some(done) = done {
                    done.answer(Ok(answer));
                }
            }
        }
    }
}

impl Surroundings<'_> {
    /// The document that a log leads to.
    fn read(
        &self,
        key: &Key,
        reply: Result<Reply, EngineError>,
    ) -> Result<Option<Arc<Document>>, PushDenied> {
        let unavailable = Err(PushDenied::Unavailable { is_unknown: false });
        let log = match reply {
            Ok(Reply::Feed(Some(log))) => DecodedLog::decode(self.frames, key, log),
            Ok(Reply::Feed(None)) => return Ok(None),
            _ => return unavailable,
        };
        match log {
            Ok(log) if !(self.has_memory_for)(log.document_bytes()) => unavailable,
            Ok(log) => Ok(Log::document_of(log)),
            Err(error) => {
                (self.refuse)(error);
                Ok(None)
            }
        }
    }
}
