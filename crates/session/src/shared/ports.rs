//! The ports of a node: each call becomes a command in the inboxes of the cores that it concerns.

use super::{ControlCommand, Demand, Shared, SharedCore, SocketCommand};
use crate::identity::Sid;
use crate::metrics::{collect, histograms};
use crate::options::Options;
use crate::ports::{
    Answer, Answers, Broadcast, Busy, ClientConnection, Command, CommandError, Commands, Concerned, Denial,
    Done, FeedUpdate, Feeds, Handover, Histogram, KeyInterest, LinkApp, MemberList, MembersQuery, Metric,
    MetricKind, MetricSource, MovingSocket, NodeInbox, Order, PublicId, Publish, PushedFeeds, Recheck,
    RoomList, RoomUpdate, RoomsQuery, SessionList, SessionsQuery, SocketName, SocketRequest,
    SubscriberCounts, Target, Ticket, expiries, plain_metrics,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stentor_hub::{CoreId, Key, PresenceMessage, Room, Topic, core_of};

impl Shared {
    /// Changes the options that may change while the node runs, on all cores, and then answers `done`. The other options
    /// stay; the `section!`s of the configuration list them. Wait for the answer before the next call.
    pub fn configure(&self, options: Options, done: Done<()>) {
        self.ledger.set_bytes_max(options.limits.memory_bytes_max);
        let options = Arc::new(self.initial.reloaded(options));
        self.limits.configure(&options);
        let barrier = self.barrier(move |_| done.answer(Ok(())));
        for inbox in self.inboxes() {
            inbox.put_always(ControlCommand::Options(options.clone(), barrier.clone()));
        }
    }
}

impl Commands for Shared {
    fn publish(&self, message: Publish) -> Result<(), Busy> {
        if self.is_out_of_memory() || self.is_broker_behind() {
            return Err(Busy);
        }
        let core = core_of(self.seed, self.cores, &Topic::Room(message.room.clone()));
        self.inbox(core).put(ControlCommand::Publish(message)).map_err(|_| Busy)
    }

    fn publish_kept(&self, message: Publish, _: Option<Arc<str>>, done: Done<Result<(), Denial>>) {
        done.answer(self.publish(message).map(Ok).map_err(|Busy| CommandError::Busy));
    }

    fn command(&self, target: Target, command: Command) {
        self.submit(target, command);
    }

    fn recheck(&self, recheck: Recheck, done: Done<Concerned>) {
        self.submit_recheck(recheck, done);
    }

    fn list_members(&self, query: MembersQuery, done: Done<MemberList>) {
        self.submit_members(query, false, done);
    }

    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>) {
        self.submit_list(query, done);
    }

    fn list_sessions(&self, query: SessionsQuery, done: Done<SessionList>) {
        self.submit_sessions(query, done);
    }

    fn count_subscribers(&self, keys: Vec<Key>, done: Done<SubscriberCounts>) {
        self.submit_subscribers(keys, done);
    }

    fn command_link(&self, app: LinkApp, target: Target, command: Command) {
        self.submit_link(app, &target, command);
    }

    fn list_link_rooms(&self, app: LinkApp, query: RoomsQuery, done: Done<RoomList>) {
        self.submit_link_rooms(app, query, done);
    }
}

impl Answers for Shared {
    fn answer(&self, Ticket { core, number }: Ticket, answer: Answer) -> Result<(), Busy> {
        let Some(SharedCore { inbox, .. }) = self.each.get(core) else { return Ok(()) };
        let command = match answer {
            Answer::Permission(answer) => ControlCommand::Decide(number, answer),
            Answer::Identity(answer) => ControlCommand::Identify(number, Box::new(answer)),
            Answer::Event(reply) => ControlCommand::Reply(number, Box::new(reply)),
        };
        inbox.put(command).map_err(|_| Busy)
    }
}

impl Feeds for Shared {
    fn take_key_interest(&self) -> Vec<KeyInterest> {
        // Cores wait for this lock, so hold it only briefly.
        let demands = std::mem::take(&mut *self.wanted.lock());
        let wanted = |(key, Demand { wanted, requesters })| KeyInterest { key, wanted, requesters };
        demands.into_iter().map(wanted).collect()
    }

    fn update_feed(&self, key: &Key, update: FeedUpdate) -> Result<(), Busy> {
        let core = match &update {
            FeedUpdate::Refuse(requester) => requester.core,
            _ => core_of(self.seed, self.cores, &Topic::Feed(key.clone())),
        };
        self.inbox(core).put(ControlCommand::Feed(key.clone(), update)).map_err(|_| Busy)
    }

    fn pushed_feeds(&self) -> Option<&dyn PushedFeeds> {
        None
    }
}

impl NodeInbox for Shared {
    fn receive(&self, message: Broadcast, order: Order) -> Result<(), Busy> {
        if self.is_out_of_memory() {
            return Err(Busy);
        }
        let room = match order {
            // The same core takes this node's own publications to the room, so that all of them keep their order.
            Order::Rooms => message.rooms.first().clone(),
            Order::Namespace => {
                // This can't fail, because the namespace is that of a room.
                let Ok(room) = Room::all_members(message.rooms.first().namespace()) else { return Ok(()) };
                room
            }
        };
        let core = core_of(self.seed, self.cores, &Topic::Room(room));
        self.inbox(core).put(ControlCommand::Receive(message)).map_err(|_| Busy)
    }

    fn update_room(&self, room: &Room, update: RoomUpdate) -> Result<(), Busy> {
        let core = core_of(self.seed, self.cores, &Topic::Room(room.clone()));
        self.inbox(core).put(ControlCommand::Room(room.clone(), update)).map_err(|_| Busy)
    }

    fn update_presence(&self, room: &Room, node: u64, message: PresenceMessage) -> Result<(), Busy> {
        if !self.has_presence() {
            return Ok(());
        }
        let core = core_of(self.seed, self.cores, &Topic::Presence(room.clone()));
        self.inbox(core).put(ControlCommand::Presence(room.clone(), node, message)).map_err(|_| Busy)
    }

    fn lose_node(&self, node: u64) -> Result<(), Busy> {
        if !self.has_presence() {
            return Ok(());
        }
        self.put_together((0..self.cores).map(|core| (core, ControlCommand::LostNode(node))).collect())
    }

    fn may_have(&self, id: PublicId) -> bool {
        let is_ours = |sid: Sid| self.initial.node_tag.is_none_or(|tag| tag == sid.node());
        self.session_of(id).is_some() || Sid::parse(&id.to_string()).is_some_and(is_ours)
    }

    fn request_socket(&self, name: SocketName, request: SocketRequest, done: Done<Option<MovingSocket>>) {
        let Some(core) = self.core_of_socket(name.pid.0) else { return done.answer(Ok(None)) };
        let command = SocketCommand::Request(name, request, done);
        // If the inbox is full, the command is dropped, which answers it.
        let _ = match request {
            SocketRequest::Look | SocketRequest::Describe => self.put_socket(core, command),
            // Messages that still wait for the broker would reach the other node after the socket, and be sent to the
            // client again.
            SocketRequest::Take if self.is_broker_behind() => Err(Busy),
            // After the barrier, the socket's core knows all messages that this node has received before.
            SocketRequest::Take => self.after_barrier(move |shared| {
                let _ = shared.put_socket(core, command);
            }),
        };
    }

    fn expect_socket(&self, ticket: Ticket, socket: MovingSocket, done: Done<bool>) {
        // If the inbox is full, the command is dropped, and dropping `done` answers the caller.
        let _ = self.put_socket(ticket.core, SocketCommand::Expect(ticket.number, socket, done));
    }

    fn deliver_socket(&self, ticket: Ticket, socket: Option<MovingSocket>) -> Result<(), Busy> {
        let Ticket { core, number } = ticket;
        let command = SocketCommand::Deliver(number, socket);
        // After the barrier, the log of the socket's core has all messages that this node received before the socket.
        self.after_barrier(move |shared| {
            let _ = shared.put_socket(core, command);
        })
    }

    fn adopt(&self, connection: ClientConnection, handover: Handover) {
        let load = |core: &CoreId| self.each[*core].load.load(Ordering::Relaxed);
        if let Some(core) = (0..self.cores).min_by_key(load) {
            // If the inbox is full, the connection is closed, and the client reconnects.
            let _ = self.inbox(core).put(ControlCommand::Adopt(Box::new(connection), handover));
        }
    }
}

impl MetricSource for Shared {
    fn metrics(&self) -> Vec<Metric> {
        let mut all = collect(&self.each_metrics());
        all.push(Metric::by(
            "class",
            MetricKind::Gauge,
            "memory_bytes",
            "Memory held for clients, by class. Memory that several clients share counts once.",
            self.ledger.by_class().map(|(class, bytes)| (class, bytes as u64)),
        ));
        let waiting = self.inboxes().map(|inbox| inbox.waiting.load(Ordering::Relaxed)).sum::<usize>();
        let waiting_bytes = self.inboxes().map(|inbox| inbox.charge.bytes()).sum::<usize>();
        all.extend(plain_metrics! {
            /// The budget for memory held for clients (limits.memory_bytes_max).
            Gauge "memory_bytes_max" = self.ledger.bytes_max();
        });
        all.push(expiries((self.expiries)()));
        all.extend(plain_metrics! {
            /// Connections that are passed through to the nodes that have their clients' sessions.
            Gauge "relayed_connections" = self.relayed.load(Ordering::Relaxed);
        });
        all.push(self.limits.metric());
        all.extend(plain_metrics! {
            /// 1 from the shutdown signal on, otherwise 0.
            Gauge "draining" = u8::from(self.drains() > 0);
            /// Messages from the control plane queued for a core.
            Gauge "inbox_messages" = waiting;
            /// Size of the messages from the control plane queued for a core.
            Gauge "inbox_bytes" = waiting_bytes;
        });
        all
    }

    fn histograms(&self) -> Vec<Histogram> {
        histograms(&self.each_metrics())
    }
}
