//! State of the protocols on a core: the executor with the hub, client sessions, and the state that all WebSockets share.
//!
//! **Invariant.** The functions of [`Protocols`] have no access to connections. They act on a connection by an effect or a
//! delivery.

mod commands;
pub(crate) mod decided;
pub mod link;
mod notices;
mod presence;
mod sessions;
pub mod tasks;

use crate::app::Alarm;
use crate::executor::{Apps, Executor};
use crate::identity::{ClientId, End, Sid, SidHasher};
use crate::options::{Limits, Options};
use crate::protocols::client::ClientState;
use crate::protocols::clients::Clients;
use crate::protocols::engineio;
use crate::shared::Shared;
use crate::system::System;
use presence::PresenceState;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::{CoreId, Topic};
use stentor_wire::ws;

/// Number of reviewed subscriptions above which a call of [`Protocols::review_sessions`] stops.
const REVIEWS_PER_TURN: usize = 512;

/// State of the protocols on a core.
pub struct Protocols {
    /// The executor.
    pub ex: Executor,
    /// Client sessions that outlive their connections.
    pub clients: Clients,
    /// The current cores of clients that began on this core and were moved.
    pub departed: Departed,
    /// State that all WebSockets share.
    pub ws: Box<ws::Shared>,
    /// The actions of timers for applications, acknowledgements and delayed writes.
    pub alarms: slab::Slab<Alarm>,
    presence: PresenceState,
}

impl Protocols {
    /// Makes the state of core number `core`, which begins at `now`.
    pub fn new(shared: Arc<Shared>, core: CoreId, now: Instant, apps: Apps, system: System) -> Self {
        Self {
            clients: Clients::default(),
            departed: Departed::default(),
            ws: Box::new(ws::Shared::new(ws_limits(&shared.initial.limits))),
            alarms: slab::Slab::new(),
            presence: PresenceState::new(shared.ledger.clone()),
            ex: Executor::new(shared, core, now, apps, system),
        }
    }

    /// Sets the options that apply from now on.
    pub fn set_options(&mut self, options: Arc<Options>) {
        self.ws.set_limits(ws_limits(&options.limits));
        self.ex.set_options(options);
    }

    /// The state of a client. `None` if the client has been removed.
    #[inline]
    pub fn client_state(&self, id: ClientId) -> Option<&ClientState> {
        self.clients.get(id).map(|client| client.state())
    }

    /// Ends all sessions of a client.
    pub fn end_client(&mut self, id: ClientId, end: End) {
        if let Some(client) = self.clients.get_mut(id) {
            client.end(&mut self.ex, end);
        }
    }

    /// Keeps a client on this core, because the client can't be moved. The client won't receive its missed messages.
    pub fn stay(&mut self, id: ClientId) {
        if let Some(io) = self.clients.engineio.get_mut(id).and_then(engineio::Client::socketio_mut) {
            io.stays = true;
        }
    }

    /// Continues to review sessions whose subscriptions must be authorized again.
    pub fn review_sessions(&mut self) {
        let mut reviews = 0;
        while reviews < REVIEWS_PER_TURN
            && let Some(session) = self.ex.questions.poll_review()
        {
            reviews += 1 + self.ex.reauthorize(session);
        }
    }

    /// Reports feeds with subscribers and their requesters to the control plane. Reports topics with subscribers, and histories
    /// that are behind, to the broker.
    pub fn report_interest(&mut self) {
        while let Some(topic) = self.ex.hub.poll_unconfirmed() {
            match (self.ex.outlet.broker(), topic) {
                (Some(broker), Topic::Room(room)) => broker.confirm_history(&room),
                (Some(broker), Topic::Feed(key)) => {
                    let asked = broker.confirm_feed(&key);
                    self.ex.hub.handle_asked(&key, asked);
                }
                _ => {}
            }
        }
        let mut wanted = self.ex.hub.poll_subscribed();
        let mut requester = self.ex.hub.poll_requester();
        if wanted.is_none() && requester.is_none() {
            return;
        }
        // Holds the lock for all reports, so that the control plane always receives a key with its requesters.
        let mut demands = self.ex.shared.demands();
        while let Some((topic, level)) = wanted {
            if let Some(broker) = self.ex.outlet.broker() {
                broker.set_interest(&topic, level);
            }
            if let Topic::Feed(key) = topic {
                demands.set_wanted(key, level);
            }
            wanted = self.ex.hub.poll_subscribed();
        }
        while let Some((key, who)) = requester {
            demands.add_requester(key, who);
            requester = self.ex.hub.poll_requester();
        }
        drop(demands);
        self.ex.shared.control.interest_changed();
    }
}

fn ws_limits(limits: &Limits) -> ws::Limits {
    ws::Limits { message_bytes_max: limits.message_bytes_max, fragments_max: limits.fragments_max }
}

/// The current cores of clients that began on this core and were moved, up to the maximum number of suspended sockets.
#[derive(Default)]
pub struct Departed(HashMap<Sid, CoreId, BuildHasherDefault<SidHasher>>);

impl Departed {
    /// Number of clients.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Records the core to which a client moves.
    pub fn insert(&mut self, sid: Sid, core: CoreId) {
        self.0.insert(sid, core);
    }

    /// The core to which a client has moved.
    pub fn core_of(&self, sid: Sid) -> Option<CoreId> {
        self.0.get(&sid).copied()
    }

    /// Removes a client that has ended on its current core.
    pub fn forget(&mut self, sid: Sid) {
        self.0.remove(&sid);
    }
}
