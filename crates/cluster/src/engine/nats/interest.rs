//! What the node wants to receive: the set of channels, of which all is subscribed to on each connection.
//!
//! No subject is kept: it is made when a channel is subscribed to. A message is found by its subscription's id, which has the
//! channel's number in its lower half, and in its upper half how many subscriptions there were before. So what still arrives of a
//! subscription that has ended is no message of the channel that has its number now.

use super::names::Names;
use crate::engine::Channel;
use crate::engine::redis::ChannelName;
use hashbrown::HashTable;
use slab::Slab;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Entry {
    channel: Channel,
    /// The upper half of the subscription's id on the connection that there is. Zero: none, which leaves ids below 2^32 to the connection.
    subscription: u32,
    is_wanted: bool,
    /// Whether it is in [`Channels::changed`].
    is_changed: bool,
}

#[derive(Default)]
struct Channels {
    entries: Slab<Entry>,
    /// The numbers of the entries, by the hashes of their channels.
    numbers: HashTable<u32>,
    hasher: RandomState,
    /// Where interest and subscription may differ.
    changed: Vec<u32>,
    subscriptions: u32,
}

fn id_of(number: u32, subscription: u32) -> u64 {
    (u64::from(subscription) << 32) | u64::from(number)
}

impl Channels {
    fn hash(&self, channel: &Channel) -> u64 {
        self.hasher.hash_one(ChannelName::from(channel))
    }

    fn find(&self, channel: &Channel) -> Option<u32> {
        let is_it = |number: &u32| {
            let entry = self.entries.get(*number as usize);
            entry.is_some_and(|entry| ChannelName::from(&entry.channel) == channel.into())
        };
        self.numbers.find(self.hash(channel), is_it).copied()
    }

    /// Adds a channel that is wanted.
    fn insert(&mut self, channel: Channel) {
        let hash = self.hash(&channel);
        let entry = Entry { channel, subscription: 0, is_wanted: true, is_changed: true };
        let number = self.entries.insert(entry) as u32;
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.numbers.insert_unique(hash, number, |number| {
            hasher.hash_one(ChannelName::from(&entries[*number as usize].channel))
        });
        self.changed.push(number);
    }

    fn remove(&mut self, number: u32) {
        let entry = self.entries.remove(number as usize);
        let hash = self.hash(&entry.channel);
        if let Ok(found) = self.numbers.find_entry(hash, |other| *other == number) {
            found.remove();
        }
    }
}

/// The channels that the node is interested in.
#[derive(Default)]
pub(super) struct Interest(Mutex<Channels>);

impl Interest {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, channel: Channel, is_wanted: bool) {
        let channels = &mut *self.channels();
        let Some(number) = channels.find(&channel) else {
            if is_wanted {
                channels.insert(channel);
            }
            return;
        };
        let entry = &mut channels.entries[number as usize];
        entry.is_wanted = is_wanted;
        if !entry.is_changed {
            entry.is_changed = true;
            channels.changed.push(number);
        }
    }

    /// A connection is opened: nothing is subscribed to on it.
    pub(super) fn begin(&self) {
        let channels = &mut *self.channels();
        let Channels { entries, subscriptions, .. } = std::mem::take(channels);
        channels.subscriptions = subscriptions;
        entries
            .into_iter()
            .filter(|(_, entry)| entry.is_wanted)
            .for_each(|(_, entry)| channels.insert(entry.channel));
    }

    /// Appends commands for what has changed, until `to` has about `bytes_max` bytes. Returns whether that was all.
    pub(super) fn take(&self, names: &Names, to: &mut Vec<u8>, bytes_max: usize) -> bool {
        let channels = &mut *self.channels();
        while to.len() < bytes_max {
            let Some(number) = channels.changed.pop() else {
                // It has had room for all channels, after a connect.
                channels.changed = Vec::new();
                return true;
            };
            let entry = &mut channels.entries[number as usize];
            entry.is_changed = false;
            // Writing to a vector can't fail.
            let _ = match (entry.is_wanted, entry.subscription) {
                (true, 0) => {
                    channels.subscriptions = channels.subscriptions.wrapping_add(1).max(1);
                    entry.subscription = channels.subscriptions;
                    let (subject, id) = (names.channel(&entry.channel), id_of(number, entry.subscription));
                    write!(to, "SUB {subject} {id}\r\n")
                }
                (false, subscription @ 1..) => write!(to, "UNSUB {}\r\n", id_of(number, subscription)),
                (true, _) | (false, 0) => Ok(()),
            };
            if !entry.is_wanted {
                channels.remove(number);
            }
        }
        channels.changed.is_empty()
    }

    /// The channel of a subscription, if it is wanted.
    pub(super) fn channel(&self, id: u64) -> Option<Channel> {
        let channels = self.channels();
        let entry = channels.entries.get(id as u32 as usize)?;
        let is_it = entry.is_wanted && id >> 32 == u64::from(entry.subscription);
        is_it.then(|| entry.channel.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn commands(interest: &Interest) -> String {
        let (names, mut commands) = (Names::new("p").unwrap(), Vec::new());
        assert!(interest.take(&names, &mut commands, usize::MAX));
        String::from_utf8(commands).unwrap()
    }

    #[test]
    fn interest_is_a_level() {
        let interest = Interest::default();
        let set = |is_wanted| interest.set(Channel::Nodes, is_wanted);
        let id = |subscription| id_of(0, subscription);
        (0..7).for_each(|i| set(i % 2 == 0));
        assert_eq!(commands(&interest), format!("SUB p.nodes {}\r\n", id(1)));
        assert_eq!(interest.channel(id(1)), Some(Channel::Nodes));
        (0..8).for_each(|i| set(i % 2 == 0));
        assert_eq!(interest.channel(id(1)), None);
        assert_eq!(commands(&interest), format!("UNSUB {}\r\n", id(1)));
        set(true);
        assert_eq!(commands(&interest), format!("SUB p.nodes {}\r\n", id(2)));
        set(false);
        interest.begin();
        assert_eq!(commands(&interest), "");
        set(true);
        assert_eq!(commands(&interest), format!("SUB p.nodes {}\r\n", id(3)));
        interest.begin();
        assert_eq!(commands(&interest), format!("SUB p.nodes {}\r\n", id(4)));
    }

    #[test]
    fn what_still_arrives_of_an_ended_subscription_is_of_no_channel() {
        let interest = Interest::default();
        interest.set(Channel::Nodes, true);
        commands(&interest);
        interest.set(Channel::Nodes, false);
        commands(&interest);
        let node = Channel::Node(NodeId(7));
        interest.set(node.clone(), true);
        commands(&interest);
        let ids = [0, 3, id_of(0, 0), id_of(0, 1), id_of(0, 2), id_of(1, 2), u64::MAX];
        let found = ids.map(|id| interest.channel(id));
        assert_eq!(found, [None, None, None, None, Some(node), None, None]);
    }

    #[test]
    fn what_is_subscribed_to_is_what_is_wanted_last() {
        let channels: Vec<Channel> = (0..20).map(|node| Channel::Node(NodeId(node))).collect();
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let interest = Interest::default();
            let mut wanted = [false; 20];
            // By the server: the subject of each id.
            let mut subscriptions = std::collections::HashMap::new();
            for _ in 0..200 {
                match random.usize(..20) {
                    0 => {
                        interest.begin();
                        subscriptions.clear();
                    }
                    1..5 => {
                        let (names, mut lines) = (Names::new("p").unwrap(), Vec::new());
                        let mut bytes_max = 0;
                        while !interest.take(&names, &mut lines, bytes_max) {
                            bytes_max = lines.len() + random.usize(1..100);
                        }
                        for line in str::from_utf8(&lines).unwrap().lines() {
                            match *line.split(' ').collect::<Vec<_>>() {
                                ["SUB", subject, id] => {
                                    let id: u64 = id.parse().unwrap();
                                    assert!(subscriptions.insert(id, subject.to_owned()).is_none());
                                }
                                ["UNSUB", id] => {
                                    assert!(subscriptions.remove(&id.parse::<u64>().unwrap()).is_some())
                                }
                                _ => panic!("{line}"),
                            }
                        }
                        let mut subjects: Vec<&String> = subscriptions.values().collect();
                        subjects.sort_unstable();
                        let mut expected: Vec<String> = (channels.iter().zip(wanted))
                            .filter(|(_, is_wanted)| *is_wanted)
                            .map(|(channel, _)| names.channel(channel))
                            .collect();
                        expected.sort_unstable();
                        assert_eq!(subjects, expected.iter().collect::<Vec<_>>(), "seed {seed}");
                        for (id, subject) in &subscriptions {
                            let channel = interest.channel(*id).unwrap();
                            assert_eq!(names.channel(&channel), *subject, "seed {seed}");
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
