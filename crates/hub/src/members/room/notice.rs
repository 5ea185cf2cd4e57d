//! Notices of changes to a room's watchers.

use super::watch::Pending;
use super::{RoomPresence, Unreported};
use crate::presence::{NOTICE_BYTES_MAX, NOTICE_CHANGES_MAX, PresenceNotice, PresenceStats};
use crate::topic::Room;

impl RoomPresence {
    /// Returns the due notice; `None` if all changes have been undone.
    pub(in crate::members) fn notice(
        &mut self,
        room: &Room,
        stats: &mut PresenceStats,
    ) -> Option<PresenceNotice> {
        let watch = self.watch.as_mut()?;
        let Pending { changes, mut gone, .. } = *watch.pending.take()?;
        let fresh = self.entries.report();
        let total = gone.len() + fresh.len();
        let count = self.entries.len() + watch.unknown();
        if total == 0 && count == watch.last_count {
            stats.coalesced += changes as u64;
            return None;
        }
        self.version += 1;
        watch.last_count = count;
        let mut notice = PresenceNotice {
            room: room.clone(),
            version: self.version,
            joined: Vec::new(),
            replaced: Vec::new(),
            left: Vec::new(),
            more: 0,
            count,
        };
        let mut bytes = 0;
        let mut listed = 0;
        for (id, Unreported { replaces }) in fresh {
            let replaced = replaces.filter(|before| gone.contains(*before));
            let Some(record) = self.entries.get(id).and_then(|entry| entry.member.as_ref()) else {
                notice.more += 1;
                continue;
            };
            if listed >= NOTICE_CHANGES_MAX || bytes + record.bytes() > NOTICE_BYTES_MAX {
                notice.more += 1;
                continue;
            }
            listed += 1;
            bytes += record.bytes();
            match replaced {
                Some(before) => {
                    gone.remove(before);
                    notice.replaced.push((record.clone(), before));
                }
                None => notice.joined.push(record.clone()),
            }
        }
        for record in gone.records.into_values().map(|record| record.member) {
            if listed < NOTICE_CHANGES_MAX && bytes + record.bytes() <= NOTICE_BYTES_MAX {
                listed += 1;
                bytes += record.bytes();
                notice.left.push(record);
            } else {
                notice.more += 1;
            }
        }
        notice.more += gone.unlisted.len();
        stats.notices += 1;
        stats.truncated += notice.more as u64;
        stats.coalesced += changes.saturating_sub(1) as u64;
        Some(notice)
    }
}
