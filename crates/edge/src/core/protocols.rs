//! State of the protocols on a core: the executor with the hub, client sessions, and the state that all WebSockets share.
//!
//! **Invariant.** The functions of [`Protocols`] see no connection: what they cause on one is an effect or a delivery.

use super::presence::PresenceState;
use crate::app::Alarm;
use crate::executor::{Apps, Executor};
use crate::identity::{Sid, SidHasher};
use crate::options::Limits;
use crate::protocols::clients::Clients;
use crate::settings::Settings;
use crate::shared::Shared;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::{CoreId, Topic};
use stentor_wire::ws;

/// See the module's documentation.
pub(super) struct Protocols {
    pub(super) ex: Executor,
    pub(super) clients: Clients,
    /// Cores of the clients that began here and were moved.
    pub(super) departed: Departed,
    /// State that all WebSockets share.
    pub(super) ws: Box<ws::Shared>,
    /// Purposes of the timers of applications, acknowledgements and delayed writes.
    pub(super) alarms: slab::Slab<Alarm>,
    pub(super) presence: PresenceState,
}

impl Protocols {
    pub(super) fn new(shared: Arc<Shared>, core: CoreId, now: Instant, apps: Apps) -> Self {
        Self {
            clients: Clients::default(),
            departed: Departed::default(),
            ws: Box::new(ws::Shared::new(ws_limits(&shared.initial.options.limits))),
            alarms: slab::Slab::new(),
            presence: PresenceState::new(shared.ledger.clone()),
            ex: Executor::new(shared, core, now, apps),
        }
    }

    /// Takes the settings that apply from now on.
    pub(super) fn set_settings(&mut self, settings: Arc<Settings>) {
        self.ws.set_limits(ws_limits(&settings.options.limits));
        self.ex.set_settings(settings);
    }

    /// Reports feeds with subscribers and their requesters to the control plane. Reports topics with subscribers and histories that
    /// are behind to the broker.
    pub(super) fn tell_wanted(&mut self) {
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
        // Under one lock, so that a key always arrives with its requesters.
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
        self.ex.shared.control.wanted();
    }
}

fn ws_limits(limits: &Limits) -> ws::Limits {
    ws::Limits { message_bytes_max: limits.message_bytes_max, fragments_max: limits.fragments_max }
}

/// Where clients are that began on this core and were moved: no more than may be suspended.
#[derive(Default)]
pub(super) struct Departed(pub(super) HashMap<Sid, CoreId, BuildHasherDefault<SidHasher>>);

impl Departed {
    pub(super) fn core_of(&self, sid: Sid) -> Option<CoreId> {
        self.0.get(&sid).copied()
    }

    pub(super) fn forget(&mut self, sid: Sid) {
        self.0.remove(&sid);
    }
}
