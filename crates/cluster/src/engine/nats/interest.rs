//! What the node wants to receive: the set of channels, of which all is subscribed to on each connection.

use crate::engine::Channel;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of subscriptions below are the connection's own.
const SID_MIN: u64 = 16;

struct Entry {
    channel: Channel,
    is_wanted: bool,
    /// The subscription on the connection that there is. Zero: none.
    sid: u64,
    /// Whether it is in [`Channels::changed`].
    is_changed: bool,
}

#[derive(Default)]
struct Channels {
    entries: HashMap<Arc<str>, Entry>,
    /// Where interest and subscription may differ.
    changed: Vec<Arc<str>>,
    sids: u64,
}

/// Channels by subject.
#[derive(Default)]
pub(super) struct Interest(Mutex<Channels>);

impl Interest {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, subject: String, channel: Channel, is_wanted: bool) {
        let Channels { entries, changed, .. } = &mut *self.channels();
        if let Some(entry) = entries.get_mut(&*subject) {
            entry.is_wanted = is_wanted;
            if !entry.is_changed {
                entry.is_changed = true;
                changed.push(subject.into());
            }
        } else if is_wanted {
            let subject: Arc<str> = subject.into();
            entries.insert(subject.clone(), Entry { channel, is_wanted, sid: 0, is_changed: true });
            changed.push(subject);
        }
    }

    /// A connection is opened: nothing is subscribed to on it.
    pub(super) fn begin(&self) {
        let channels = &mut *self.channels();
        channels.entries.retain(|_, entry| {
            entry.sid = 0;
            entry.is_changed = entry.is_wanted;
            entry.is_wanted
        });
        channels.changed = channels.entries.keys().cloned().collect();
    }

    /// Appends commands for what has changed, until `to` has about `bytes_max` bytes. Returns whether that was all.
    pub(super) fn take(&self, to: &mut Vec<u8>, bytes_max: usize) -> bool {
        let Channels { entries, changed, sids } = &mut *self.channels();
        let mut line = String::new();
        while to.len() < bytes_max {
            let Some(subject) = changed.pop() else { return true };
            let Some(entry) = entries.get_mut(&subject) else { continue };
            entry.is_changed = false;
            line.clear();
            // Writing to a string can't fail.
            let _ = match (entry.is_wanted, entry.sid) {
                (true, 0) => {
                    *sids += 1;
                    entry.sid = SID_MIN + *sids;
                    write!(line, "SUB {subject} {}\r\n", entry.sid)
                }
                (false, 0) => Ok(()),
                (false, sid) => write!(line, "UNSUB {sid}\r\n"),
                (true, _) => Ok(()),
            };
            if !entry.is_wanted {
                entries.remove(&subject);
            }
            to.extend_from_slice(line.as_bytes());
        }
        changed.is_empty()
    }

    /// The channel that a subject is of, if it is wanted.
    pub(super) fn channel(&self, subject: &str) -> Option<Channel> {
        let channels = self.channels();
        let entry = channels.entries.get(subject).filter(|entry| entry.is_wanted)?;
        Some(entry.channel.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(interest: &Interest) -> String {
        let mut commands = Vec::new();
        assert!(interest.take(&mut commands, usize::MAX));
        String::from_utf8(commands).unwrap()
    }

    #[test]
    fn interest_is_a_level() {
        let interest = Interest::default();
        let set = |is_wanted| interest.set("s".into(), Channel::Nodes, is_wanted);
        (0..7).for_each(|i| set(i % 2 == 0));
        assert_eq!(commands(&interest), "SUB s 17\r\n");
        assert_eq!(interest.channel("s"), Some(Channel::Nodes));
        (0..8).for_each(|i| set(i % 2 == 0));
        assert_eq!(interest.channel("s"), None);
        assert_eq!(commands(&interest), "UNSUB 17\r\n");
        set(true);
        assert_eq!(commands(&interest), "SUB s 18\r\n");
        set(false);
        interest.begin();
        assert_eq!(commands(&interest), "");
        set(true);
        assert_eq!(commands(&interest), "SUB s 19\r\n");
        interest.begin();
        assert_eq!(commands(&interest), "SUB s 20\r\n");
    }
}
