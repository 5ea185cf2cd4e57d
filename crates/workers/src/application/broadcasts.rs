//! Broadcasts and changes of sockets, as instructions for all cores.

use super::{Applications, to_cores};
use crate::recovery::{Source, detach};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_link::{Broadcast, Change, Select};
use stentor_ports::{LinkApp, LinkBroadcast, LinkChange, LinkEntry, LinkSelect};

impl Applications {
    /// The instruction for a change of sockets. `link`: the link of its worker, 0 for one of another node, for which this node's workers
    /// don't wait.
    pub(super) fn select(&mut self, app: usize, link: u32, namespace: Arc<str>, select: Select) -> LinkEntry {
        let Select { change, flags, rooms, except, targets } = select;
        let change = match change {
            Change::Join => LinkChange::Join,
            Change::Leave => LinkChange::Leave,
            Change::Disconnect => LinkChange::Disconnect { closes: flags.closes },
        };
        let select = Arc::new(LinkSelect { change, is_local: flags.is_local, rooms, except, targets });
        if link != 0 && !select.is_local {
            self.count_change(app, link, &select);
        }
        LinkEntry::Select(LinkApp(app as u16), namespace, select)
    }

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
