//! The list of the contract's checks, and a node that sends requests to an engine.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stentor_cluster::NodeId;
use stentor_cluster::engine::{Channel, Engine, EngineError, Event, EventReceiver, Limits, Reply, Request};
use stentor_hub::{HistoryLimits, Key, Position, Room};

/// An engine's server, to which nodes connect.
pub(crate) trait Fixture {
    /// Whether appended messages of several nodes arrive in the order of their offsets.
    const DELIVERS_IN_ORDER: bool = true;

    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver);

    /// Restarts the server without its data.
    async fn forget(&self);

    /// Called before each check by fixtures whose checks share servers.
    fn begin(&self, _check: &str) {}
}

/// Runs each check of the contract as a test. With `one by one`, runs all checks in one function, so that they can
/// share servers. `$fixture` is an expression of an `Option`; `None` skips the test. An attribute in front of it
/// replaces `tokio::test`.
macro_rules! contract {
    (#[$test:meta] $fixture:expr => $($module:ident :: $check:ident),+ $(,)?) => {
        $(#[$test]
        async fn $check() {
            if let Some(fixture) = $fixture {
                $crate::$module::$check(&fixture).await;
            }
        })+
    };
    ($fixture:ident one by one => $($module:ident :: $check:ident),+ $(,)?) => {
        $($fixture.begin(stringify!($check));
        $crate::$module::$check($fixture).await;)+
    };
    ($fixture:expr => $($module:ident :: $check:ident),+ $(,)?) => {
        $crate::contract! { #[tokio::test] $fixture => $($module::$check),+ }
    };
    ($($fixture:tt)+) => {
        $crate::contract! { $($fixture)+ =>
            messages::messages_of_a_node_arrive_in_order_also_at_itself,
            messages::a_publishers_messages_arrive_in_order_over_rooms,
            messages::interest_is_a_level,
            messages::payloads_of_any_size_up_to_the_maximum,
            messages::names_are_arbitrary,
            messages::a_slow_node_sees_a_lost_connection,
            rooms::offsets_are_consecutive_from_one,
            rooms::appended_messages_arrive_with_their_positions,
            rooms::history_is_read_from_a_position,
            rooms::history_is_trimmed_by_each_limit,
            rooms::messages_expire_without_a_further_one,
            rooms::an_idempotency_key_has_one_effect,
            rooms::a_server_without_its_data_begins_another_epoch,
            rooms::an_epoch_ends_once,
            rooms::messages_missing_in_a_history_arrive_live,
            rooms::appends_of_several_nodes_have_one_order,
            rooms::a_large_message_is_kept_and_arrives,
            feeds::one_node_holds_a_lease,
            feeds::terms_grow,
            feeds::a_lease_expires_unless_it_is_renewed,
            feeds::a_version_needs_the_lease,
            feeds::a_log_has_a_base_and_its_changes,
            feeds::an_entry_may_have_the_position_of_the_one_before,
            feeds::a_log_can_be_read_while_it_begins_anew,
            feeds::a_log_is_bounded,
            registry::records_expire,
            registry::a_claim_has_one_owner,
            registry::calls_come_from_any_thread,
        }
    };
}
pub(crate) use contract;

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) events: EventReceiver,
}

impl Node {
    pub(crate) async fn connect(fixture: &impl Fixture) -> Self {
        Self::with(fixture, Limits { request_timeout: Duration::from_secs(10), ..Limits::default() }).await
    }

    pub(crate) async fn with(fixture: &impl Fixture, limits: Limits) -> Self {
        let id = NodeId::draw();
        let (engine, events) = fixture.connect(id, limits).await;
        let mut node = Self { id, engine, events };
        assert_eq!(node.event().await, Event::Connected);
        node
    }

    pub(crate) async fn event(&mut self) -> Event {
        tokio::time::timeout(Duration::from_secs(60), self.events.next()).await.expect("no event").unwrap()
    }

    pub(crate) async fn message(&mut self) -> (Channel, Option<Position>, Bytes) {
        match self.event().await {
            Event::Message { channel, position, payload } => (channel, position, payload),
            event => panic!("{event:?}"),
        }
    }

    pub(crate) async fn try_request(&self, request: Request) -> Result<Reply, EngineError> {
        self.engine.request(request).await
    }

    pub(crate) async fn request(&self, request: Request) -> Reply {
        self.try_request(request).await.unwrap()
    }

    /// Establishes interest in a room: the node receives all messages that are published afterwards.
    pub(crate) async fn join(&self, room: &Room) {
        self.engine.set_interest(room.clone().into(), true);
        self.history(room, START, 0).await;
    }

    pub(crate) async fn follow(&self, key: &Key) {
        self.engine.set_interest(key.clone().into(), true);
        self.request(Request::LoadFeed { key: key.clone() }).await;
    }

    pub(crate) fn publish(&self, channel: impl Into<Channel>, payload: &[u8]) {
        self.engine.publish(channel.into(), Bytes::copy_from_slice(payload)).unwrap();
    }

    pub(crate) async fn append(&self, room: &Room, payload: &'static str) -> Position {
        self.append_with(room, payload, None, KEEP).await
    }

    pub(crate) async fn append_with(
        &self,
        room: &Room,
        payload: &'static str,
        idempotency_key: Option<&str>,
        limits: HistoryLimits,
    ) -> Position {
        let (payload, idempotency_key) = (payload.into(), idempotency_key.map(Into::into));
        let append = Request::Append { room: room.clone(), payload, idempotency_key, limits };
        let Reply::Position(position) = self.request(append).await else { panic!() };
        position
    }

    /// Returns the newest position, the messages, and whether some are missing.
    pub(crate) async fn history(
        &self,
        room: &Room,
        since: Position,
        messages_max: usize,
    ) -> (Option<Position>, Vec<Bytes>, bool) {
        self.history_of(room, since, messages_max, KEEP.age_max).await
    }

    pub(crate) async fn history_of(
        &self,
        room: &Room,
        since: Position,
        messages_max: usize,
        age_max: Duration,
    ) -> (Option<Position>, Vec<Bytes>, bool) {
        let request = Request::History { room: room.clone(), since, messages_max, age_max };
        let Reply::History(history) = self.request(request).await else { panic!() };
        for pair in history.messages.windows(2) {
            assert_eq!(pair[0].0.offset + 1, pair[1].0.offset);
        }
        let messages = history.messages.into_iter().map(|(_, payload)| payload).collect();
        (history.head, messages, history.truncated)
    }

    pub(crate) async fn head(&self, room: &Room) -> Option<Position> {
        let Reply::Heads(heads) = self.request(Request::Heads { rooms: vec![room.clone()] }).await else {
            panic!()
        };
        heads[0]
    }
}

/// A position of no epoch, so no room has it.
pub(crate) const START: Position = Position { epoch: stentor_hub::Epoch(0), offset: 0 };
pub(crate) const KEEP: HistoryLimits =
    HistoryLimits { publications_max: 100, bytes_max: 1 << 20, age_max: Duration::from_secs(60) };

pub(crate) fn room(name: &str) -> Room {
    Room::plain(name).unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

pub(crate) async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
