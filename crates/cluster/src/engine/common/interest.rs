//! The channels that a node wants to receive. All of them are subscribed to on each new connection.
//!
//! No names are kept: an engine makes the name of a channel when it subscribes. A message is found by the name's parts, or by the id
//! of its subscription. Such an id has the channel's number in its lower half. Its upper half counts subscriptions, so a late message
//! of a subscription that has ended isn't taken for one of the channel that has the number now.

use crate::NodeId;
use crate::engine::Channel;
use hashbrown::HashTable;
use parking_lot::Mutex;
use slab::Slab;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use stentor_hub::Topic;
use tokio::sync::{Notify, watch};

/// A channel whose names aren't copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum ChannelName<'a> {
    Room { namespace: &'a str, name: &'a str },
    Feed(&'a str),
    Node(NodeId),
    Nodes,
    Application(&'a str),
}

impl<'a> From<&'a Channel> for ChannelName<'a> {
    fn from(channel: &'a Channel) -> Self {
        match channel {
            // Presence has no messages of its own on a channel.
            Channel::Topic(Topic::Room(room) | Topic::Presence(room)) => {
                Self::Room { namespace: room.namespace(), name: room.name() }
            }
            Channel::Topic(Topic::Feed(key)) => Self::Feed(key.as_str()),
            Channel::Node(node) => Self::Node(*node),
            Channel::Nodes => Self::Nodes,
            Channel::Application(app) => Self::Application(app),
        }
    }
}

struct Entry {
    channel: Channel,
    /// The upper half of the subscription's id on the current connection, or zero without a subscription. So ids below 2^32 are
    /// free for the engine.
    subscription: u32,
    is_wanted: bool,
    /// `true` if the server has confirmed the subscription.
    is_confirmed: bool,
    /// `true` if the number is in [`Channels::changed`].
    is_changed: bool,
}

#[derive(Default)]
struct Channels {
    entries: Slab<Entry>,
    /// The numbers of the entries, by the hashes of their channels.
    numbers: HashTable<u32>,
    hasher: RandomState,
    /// Numbers of the entries whose interest and subscription may differ.
    changed: Vec<u32>,
    subscriptions: u32,
}

fn id_of(number: u32, subscription: u32) -> u64 {
    (u64::from(subscription) << 32) | u64::from(number)
}

impl Channels {
    fn find(&self, name: ChannelName<'_>) -> Option<u32> {
        let is_it = |number: &u32| {
            let entry = self.entries.get(*number as usize);
            entry.is_some_and(|entry| ChannelName::from(&entry.channel) == name)
        };
        self.numbers.find(self.hasher.hash_one(name), is_it).copied()
    }

    /// The entry of a subscription that hasn't ended.
    fn subscribed(&mut self, id: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(id as u32 as usize)?;
        (entry.subscription != 0 && id >> 32 == u64::from(entry.subscription)).then_some(entry)
    }

    /// Adds a channel in which the node is interested.
    fn insert(&mut self, channel: Channel) {
        let hash = self.hasher.hash_one(ChannelName::from(&channel));
        let entry =
            Entry { channel, subscription: 0, is_wanted: true, is_confirmed: false, is_changed: true };
        let number = self.entries.insert(entry) as u32;
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.numbers.insert_unique(hash, number, |number| {
            hasher.hash_one(ChannelName::from(&entries[*number as usize].channel))
        });
        self.changed.push(number);
    }

    fn remove(&mut self, number: u32) {
        let entry = self.entries.remove(number as usize);
        let hash = self.hasher.hash_one(ChannelName::from(&entry.channel));
        if let Ok(found) = self.numbers.find_entry(hash, |other| *other == number) {
            found.remove();
        }
    }
}

/// A subscription to begin or to end.
pub(in crate::engine) struct Change<'a> {
    pub(in crate::engine) channel: &'a Channel,
    pub(in crate::engine) id: u64,
    /// `true` if the subscription begins, `false` if it ends.
    pub(in crate::engine) is_wanted: bool,
}

/// The channels that the node is interested in.
#[derive(Default)]
pub(in crate::engine) struct Interest {
    channels: Mutex<Channels>,
    /// Number of connections so far.
    connection: AtomicU64,
    changed: Notify,
    /// Changes when the server has confirmed subscriptions.
    confirmed: watch::Sender<()>,
}

impl Interest {
    /// Sets whether the node is interested in a channel. Returns `true` if this has changed.
    pub(in crate::engine) fn set(&self, channel: Channel, is_wanted: bool) -> bool {
        let channels = &mut *self.channels.lock();
        if let Some(number) = channels.find((&channel).into()) {
            let entry = &mut channels.entries[number as usize];
            if mem::replace(&mut entry.is_wanted, is_wanted) == is_wanted {
                return false;
            }
            if !mem::replace(&mut entry.is_changed, true) {
                channels.changed.push(number);
            }
        } else if is_wanted {
            channels.insert(channel);
        } else {
            return false;
        }
        self.changed.notify_one();
        true
    }

    /// Waits until [`Interest::take`] may have changes.
    pub(in crate::engine) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Starts over for a new connection, which has no subscriptions yet, and returns its number. The channels that are still
    /// wanted get new numbers, which releases the memory of the others.
    pub(in crate::engine) fn begin(&self) -> u64 {
        let channels = &mut *self.channels.lock();
        let Channels { entries, subscriptions, .. } = mem::take(channels);
        channels.subscriptions = subscriptions;
        let wanted = entries.into_iter().filter(|(_, entry)| entry.is_wanted);
        wanted.for_each(|(_, entry)| channels.insert(entry.channel));
        self.connection.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns `true` if no connection has begun after the one with this number.
    pub(in crate::engine) fn is_current(&self, connection: u64) -> bool {
        self.connection.load(Ordering::Relaxed) == connection
    }

    /// Passes changes to `write` until it returns `false`, which rejects the change. Returns `true` if all changes are
    /// taken.
    pub(in crate::engine) fn take(&self, mut write: impl FnMut(Change<'_>) -> bool) -> bool {
        let channels = &mut *self.channels.lock();
        while let Some(&number) = channels.changed.last() {
            let entry = &mut channels.entries[number as usize];
            let (is_wanted, before) = (entry.is_wanted, entry.subscription);
            if is_wanted != (before != 0) {
                let begun = channels.subscriptions.wrapping_add(1).max(1);
                let subscription = if is_wanted { begun } else { before };
                let id = id_of(number, subscription);
                if !write(Change { channel: &entry.channel, id, is_wanted }) {
                    return false;
                }
                entry.subscription = subscription;
                if is_wanted {
                    channels.subscriptions = begun;
                }
            }
            entry.is_changed = false;
            channels.changed.pop();
            if !is_wanted {
                channels.remove(number);
            }
        }
        // After a connect, the list had room for all channels.
        channels.changed = Vec::new();
        true
    }

    /// The server has confirmed these subscriptions.
    pub(in crate::engine) fn confirm(&self, ids: &[u64]) {
        let channels = &mut *self.channels.lock();
        for id in ids {
            if let Some(entry) = channels.subscribed(*id) {
                entry.is_confirmed = true;
            }
        }
        self.confirmed.send_replace(());
    }

    /// Waits until the server has confirmed the interest in a channel. Returns at once without interest.
    pub(in crate::engine) async fn established(&self, channel: &Channel) {
        let mut confirmed = self.confirmed.subscribe();
        let is_missing = || {
            let channels = self.channels.lock();
            let entry =
                channels.find(channel.into()).and_then(|number| channels.entries.get(number as usize));
            entry.is_some_and(|entry| entry.is_wanted && !entry.is_confirmed)
        };
        while is_missing() {
            // The sender lives as long as `self`.
            let _ = confirmed.changed().await;
        }
    }

    /// The channel of this name, if it is wanted.
    pub(in crate::engine) fn channel(&self, name: ChannelName<'_>) -> Option<Channel> {
        let channels = self.channels.lock();
        let entry = &channels.entries[channels.find(name)? as usize];
        entry.is_wanted.then(|| entry.channel.clone())
    }

    /// The channel of a subscription, if it is wanted.
    pub(in crate::engine) fn channel_of(&self, id: u64) -> Option<Channel> {
        self.channels.lock().subscribed(id).filter(|entry| entry.is_wanted).map(|entry| entry.channel.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// All changes, as `+ID` and `-ID`.
    fn changes(interest: &Interest) -> String {
        let mut changes = String::new();
        assert!(interest.take(|Change { id, is_wanted, .. }| {
            changes += &format!("{}{id}", if is_wanted { '+' } else { '-' });
            true
        }));
        changes
    }

    #[test]
    fn interest_is_a_level() {
        let interest = Interest::default();
        let set = |is_wanted| interest.set(Channel::Nodes, is_wanted);
        let id = |subscription| id_of(0, subscription);
        (0..7).for_each(|i| assert!(set(i % 2 == 0)));
        assert!(!set(true), "nothing has changed");
        assert_eq!(changes(&interest), format!("+{}", id(1)));
        assert_eq!(interest.channel_of(id(1)), Some(Channel::Nodes));
        assert_eq!((0..8).map(|i| set(i % 2 == 0)).collect::<Vec<_>>()[..2], [false, true]);
        assert_eq!(interest.channel_of(id(1)), None);
        assert_eq!(changes(&interest), format!("-{}", id(1)));
        set(true);
        assert_eq!(changes(&interest), format!("+{}", id(2)));
        set(false);
        interest.begin();
        assert_eq!(changes(&interest), "");
        set(true);
        assert_eq!(changes(&interest), format!("+{}", id(3)));
        interest.begin();
        assert_eq!(changes(&interest), format!("+{}", id(4)));
    }

    #[test]
    fn a_late_message_of_an_ended_subscription_has_no_channel() {
        let interest = Interest::default();
        interest.set(Channel::Nodes, true);
        changes(&interest);
        interest.set(Channel::Nodes, false);
        changes(&interest);
        let node = Channel::Node(NodeId(7));
        interest.set(node.clone(), true);
        changes(&interest);
        let ids = [0, 3, id_of(0, 0), id_of(0, 1), id_of(0, 2), id_of(1, 2), u64::MAX];
        let found = ids.map(|id| interest.channel_of(id));
        assert_eq!(found, [None, None, None, None, Some(node), None, None]);
    }

    #[test]
    fn the_subscriptions_follow_the_interest_set_last() {
        let channels: Vec<Channel> = (0..20).map(|node| Channel::Node(NodeId(node))).collect();
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let interest = Interest::default();
            let mut wanted = [false; 20];
            // Channels that the server has subscribed, by id.
            let mut subscribed: HashMap<u64, Channel> = HashMap::new();
            for _ in 0..200 {
                match random.usize(..20) {
                    0 => {
                        interest.begin();
                        subscribed.clear();
                    }
                    1..5 => {
                        let mut room = 0;
                        while !interest.take(|Change { channel, id, is_wanted }| {
                            if room > 0 && is_wanted {
                                assert!(subscribed.insert(id, channel.clone()).is_none());
                            } else if room > 0 {
                                assert!(subscribed.remove(&id).is_some());
                            }
                            room -= 1;
                            room >= 0
                        }) {
                            room = random.i32(1..10);
                        }
                        let is_subscribed = |channel| subscribed.values().any(|other| other == channel);
                        assert_eq!(
                            channels.iter().map(is_subscribed).collect::<Vec<_>>(),
                            wanted,
                            "seed {seed}"
                        );
                        for (id, channel) in &subscribed {
                            assert_eq!(interest.channel_of(*id).as_ref(), Some(channel), "seed {seed}");
                            assert_eq!(
                                interest.channel(channel.into()).as_ref(),
                                Some(channel),
                                "seed {seed}"
                            );
                        }
                    }
                    _ => {
                        let at = random.usize(..20);
                        wanted[at] = random.bool();
                        interest.set(channels[at].clone(), wanted[at]);
                    }
                }
            }
        }
    }
}
