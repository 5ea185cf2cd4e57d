//! Broadcasts and changes of sockets, as instructions for all cores.

use super::{Applications, to_cores};
use crate::recovery::{Source, detach};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_link::{Broadcast, Change, Select};
use stentor_ports::{LinkApp, LinkBroadcast, LinkChange, LinkEntry, LinkSelect};

/// The instruction for a change of sockets.
pub(super) fn select_entry(app: usize, namespace: Arc<str>, select: Select) -> LinkEntry {
    let Select { change, flags, rooms, except, targets } = select;
    let change = match change {
        Change::Join => LinkChange::Join,
        Change::Leave => LinkChange::Leave,
        Change::Disconnect => LinkChange::Disconnect { closes: flags.closes },
    };
    let select = LinkSelect { change, is_local: flags.is_local, rooms, except, targets };
    LinkEntry::Select(LinkApp(app as u16), namespace, Arc::new(select))
}

impl Applications {
    /// The instruction for a broadcast, which is logged for clients that may have missed it.
    pub(super) fn broadcast(
        &mut self,
        app: usize,
        namespace: Arc<str>,
        (broadcast, source): (Broadcast, Source),
        (now, ttl): (Instant, Option<Duration>),
    ) -> LinkEntry {
        let logged = broadcast.offset.zip(ttl);
        let mut messages = to_cores(broadcast.messages);
        if logged.is_some() {
            detach(&mut messages);
        }
        let broadcast = Arc::new(LinkBroadcast {
            rooms: broadcast.rooms,
            except: broadcast.except,
            is_local: broadcast.is_local,
            is_volatile: broadcast.is_volatile,
            is_compressed: !broadcast.is_uncompressed,
            messages,
        });
        if let Some((offset, ttl)) = logged {
            self.recoveries[app].log(namespace.clone(), (offset, source), broadcast.clone(), (now, ttl));
        }
        LinkEntry::Broadcast(LinkApp(app as u16), namespace, broadcast)
    }
}
