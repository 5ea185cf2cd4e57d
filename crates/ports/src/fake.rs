//! A fake data plane, for tests of the control plane, the cluster and the application link; and a fake link, for tests of the data
//! plane.

use crate::{
    Answer, Answers, Broadcast, Busy, ClientConnection, Command, Commands, Concerned, Denial, Done, Drain,
    FeedUpdate, Feeds, Handover, Histogram, KeyInterest, Lifecycle, LinkApp, LinkBroadcast, LinkEntry,
    LinkInbox, LinkMessage, LinkRefused, LinkReport, LinkSelected, LinkSession, LinkSink, MemberList,
    MembersQuery, Metric, MetricSource, MovingSocket, NodeInbox, Order, PublicId, Publish, PushedFeeds,
    Readiness, Recheck, RoomList, RoomUpdate, RoomsQuery, SessionList, SessionsQuery, SocketName,
    SocketRequest, SubscriberCounts, Target, Ticket,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stentor_hub::{Key, PresenceMessage, Room};

/// A call that makes the data plane act: the method and its arguments.
#[expect(missing_docs, reason = "named after the methods")]
pub enum Call {
    Publish(Publish),
    PublishKept(Publish, Option<Arc<str>>, Done<Result<(), Denial>>),
    Command(Target, Command),
    Recheck(Recheck, Done<Concerned>),
    ListMembers(MembersQuery, Done<MemberList>),
    ListRooms(RoomsQuery, Done<RoomList>),
    ListSessions(SessionsQuery, Done<SessionList>),
    CountSubscribers(Vec<Key>, Done<SubscriberCounts>),
    CommandLink(LinkApp, Target, Command),
    ListLinkRooms(LinkApp, RoomsQuery, Done<RoomList>),
    Answer(Ticket, Answer),
    UpdateFeed(Key, FeedUpdate),
    Receive(Broadcast, Order),
    UpdateRoom(Room, RoomUpdate),
    UpdatePresence(Room, u64, PresenceMessage),
    LoseNode(u64),
    RequestSocket(SocketName, SocketRequest, Done<Option<MovingSocket>>),
    ExpectSocket(Ticket, MovingSocket, Done<bool>),
    DeliverSocket(Ticket, Option<MovingSocket>),
    Adopt(ClientConnection, Handover),
    CarryOut(u32, Vec<LinkEntry>),
    ReportsHaveSpace,
    PauseAccepting(bool, Done<()>),
    Drain(Drain),
}

type Closure<T> = Box<dyn Fn() -> T + Send + Sync>;

/// A data plane that passes calls to a closure, which records them, answers them, or returns [`Busy`] like a full inbox. The
/// other fields are closures as well, for queries of the data plane. By default, they report nothing.
#[expect(missing_docs, reason = "named after the methods")]
pub struct Node {
    call: Box<dyn Fn(Call) -> Result<(), Busy> + Send + Sync>,
    pub take_key_interest: Closure<Vec<KeyInterest>>,
    pub readiness: Closure<Readiness>,
    pub connections: Closure<usize>,
    pub metrics: Closure<Vec<Metric>>,
    pub histograms: Closure<Vec<Histogram>>,
}

impl Node {
    /// A data plane that passes its calls to `call`. Methods that return a result return that of `call`.
    pub fn new(call: impl Fn(Call) -> Result<(), Busy> + Send + Sync + 'static) -> Self {
        Self {
            call: Box::new(call),
            take_key_interest: Box::new(Vec::new),
            readiness: Box::new(Readiness::default),
            connections: Box::new(|| 0),
            metrics: Box::new(Vec::new),
            histograms: Box::new(Vec::new),
        }
    }

    /// Passes on a call of a method without a result. The closure answers through the [`Done`] in the call, if there is one.
    fn call(&self, call: Call) {
        let _ = (self.call)(call);
    }
}

impl Commands for Node {
    fn publish(&self, message: Publish) -> Result<(), Busy> {
        (self.call)(Call::Publish(message))
    }

    fn publish_kept(&self, message: Publish, key: Option<Arc<str>>, done: Done<Result<(), Denial>>) {
        self.call(Call::PublishKept(message, key, done));
    }

    fn command(&self, target: Target, command: Command) {
        self.call(Call::Command(target, command));
    }

    fn recheck(&self, recheck: Recheck, done: Done<Concerned>) {
        self.call(Call::Recheck(recheck, done));
    }

    fn list_members(&self, query: MembersQuery, done: Done<MemberList>) {
        self.call(Call::ListMembers(query, done));
    }

    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>) {
        self.call(Call::ListRooms(query, done));
    }

    fn list_sessions(&self, query: SessionsQuery, done: Done<SessionList>) {
        self.call(Call::ListSessions(query, done));
    }

    fn count_subscribers(&self, keys: Vec<Key>, done: Done<SubscriberCounts>) {
        self.call(Call::CountSubscribers(keys, done));
    }

    fn command_link(&self, app: LinkApp, target: Target, command: Command) {
        self.call(Call::CommandLink(app, target, command));
    }

    fn list_link_rooms(&self, app: LinkApp, query: RoomsQuery, done: Done<RoomList>) {
        self.call(Call::ListLinkRooms(app, query, done));
    }
}

impl Answers for Node {
    fn answer(&self, ticket: Ticket, answer: Answer) -> Result<(), Busy> {
        (self.call)(Call::Answer(ticket, answer))
    }
}

impl Feeds for Node {
    fn take_key_interest(&self) -> Vec<KeyInterest> {
        (self.take_key_interest)()
    }

    fn update_feed(&self, key: &Key, update: FeedUpdate) -> Result<(), Busy> {
        (self.call)(Call::UpdateFeed(key.clone(), update))
    }

    fn pushed_feeds(&self) -> Option<&dyn PushedFeeds> {
        None
    }
}

impl NodeInbox for Node {
    fn receive(&self, message: Broadcast, order: Order) -> Result<(), Busy> {
        (self.call)(Call::Receive(message, order))
    }

    fn update_room(&self, room: &Room, update: RoomUpdate) -> Result<(), Busy> {
        (self.call)(Call::UpdateRoom(room.clone(), update))
    }

    fn update_presence(&self, room: &Room, node: u64, message: PresenceMessage) -> Result<(), Busy> {
        (self.call)(Call::UpdatePresence(room.clone(), node, message))
    }

    fn lose_node(&self, node: u64) -> Result<(), Busy> {
        (self.call)(Call::LoseNode(node))
    }

    fn may_have(&self, _: PublicId) -> bool {
        true
    }

    fn request_socket(&self, name: SocketName, request: SocketRequest, done: Done<Option<MovingSocket>>) {
        self.call(Call::RequestSocket(name, request, done));
    }

    fn expect_socket(&self, ticket: Ticket, socket: MovingSocket, done: Done<bool>) {
        self.call(Call::ExpectSocket(ticket, socket, done));
    }

    fn deliver_socket(&self, ticket: Ticket, socket: Option<MovingSocket>) -> Result<(), Busy> {
        (self.call)(Call::DeliverSocket(ticket, socket))
    }

    fn adopt(&self, connection: ClientConnection, handover: Handover) {
        self.call(Call::Adopt(connection, handover));
    }
}

impl LinkInbox for Node {
    fn carry_out(&self, link: u32, entries: &mut Vec<LinkEntry>) -> Result<(), Busy> {
        (self.call)(Call::CarryOut(link, entries.clone()))?;
        entries.clear();
        Ok(())
    }

    fn reports_have_space(&self) {
        self.call(Call::ReportsHaveSpace);
    }
}

impl Lifecycle for Node {
    fn readiness(&self) -> Readiness {
        (self.readiness)()
    }

    fn connections(&self) -> usize {
        (self.connections)()
    }

    fn pause_accepting(&self, is_paused: bool, done: Done<()>) {
        self.call(Call::PauseAccepting(is_paused, done));
    }

    fn drain(&self, drain: Drain) {
        self.call(Call::Drain(drain));
    }
}

impl MetricSource for Node {
    fn metrics(&self) -> Vec<Metric> {
        (self.metrics)()
    }

    fn histograms(&self) -> Vec<Histogram> {
        (self.histograms)()
    }
}

/// Names of rooms.
pub fn names(names: &[&str]) -> Vec<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

/// A broadcast of a text to the sockets of rooms.
pub fn broadcast(rooms: &[&str], except: &[&str], text: &str) -> Arc<LinkBroadcast> {
    Arc::new(LinkBroadcast {
        rooms: names(rooms),
        except: names(except),
        is_local: false,
        is_volatile: false,
        is_compressed: true,
        messages: std::iter::once(LinkMessage::Text(text.to_owned().into())).collect(),
    })
}

/// A call of a core to the application link.
#[expect(missing_docs, reason = "named after the methods")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkCall {
    Report(LinkSession, LinkReport),
    ReportSelected(LinkSelected),
    ReportRefused(LinkRefused),
    Space,
}

/// An application link that records the calls of the cores.
#[derive(Debug, Default)]
pub struct Link {
    calls: Mutex<Vec<LinkCall>>,
    is_full: AtomicBool,
    keeps_sockets: AtomicBool,
}

impl Link {
    /// Takes the calls since the last call of this function.
    pub fn take(&self) -> Vec<LinkCall> {
        std::mem::take(&mut *self.calls.lock())
    }

    /// While `true`, the link refuses reports, like a full inbox.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    /// While `true`, the link keeps sockets for other nodes.
    pub fn set_keeping(&self, keeps_sockets: bool) {
        self.keeps_sockets.store(keeps_sockets, Ordering::SeqCst);
    }

    fn record(&self, call: LinkCall) {
        self.calls.lock().push(call);
    }
}

impl LinkSink for Link {
    fn report(&self, session: LinkSession, report: LinkReport) -> Result<(), LinkReport> {
        if self.is_full.load(Ordering::SeqCst)
            && let LinkReport::Opened(..) | LinkReport::Messages(_) = report
        {
            return Err(report);
        }
        self.record(LinkCall::Report(session, report));
        Ok(())
    }

    fn report_selected(&self, selected: LinkSelected) {
        self.record(LinkCall::ReportSelected(selected));
    }

    fn report_refused(&self, refused: LinkRefused) {
        self.record(LinkCall::ReportRefused(refused));
    }

    fn space(&self) {
        self.record(LinkCall::Space);
    }

    fn keeps_sockets(&self) -> bool {
        self.keeps_sockets.load(Ordering::SeqCst)
    }
}
