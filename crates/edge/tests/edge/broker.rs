//! Messages of a node to the broker: each publication once, no publication of another node, and topics with subscribers.

use super::commands::nobody;
use crate::harness::{Io, Seen, Server, Way, Ws, answer, id_of, on_one_and_three, receive, says, until};
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use stentor_edge::Options;
use stentor_hub::{Data, Document, Epoch, HistoryLimits, Key, Position, Room, Rooms, Topic};
use stentor_ports::{
    Broadcast, Broker, Busy, ClientEvent, Command, CommandError, Concerned, Denial, Done, EventReply,
    EventSink, FeedUpdate, Order, PermissionReply, PublicId, Publish, ReplyToEvent, RoomUpdate, Target,
};

/// A broker that records messages and interest.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    published: Mutex<Vec<Broadcast>>,
    levels: Mutex<HashMap<Topic, bool>>,
    /// Messages to rooms with history, with the replies to their publishers.
    ordered: Mutex<Vec<(Broadcast, Option<PermissionReply>)>>,
    /// The idempotency keys of these messages that have one.
    keys: Mutex<Vec<Arc<str>>>,
    /// Topics that the node has asked to confirm, because a client waits.
    unconfirmed: Mutex<Vec<Topic>>,
    orders_history: AtomicBool,
    is_busy: AtomicBool,
}

impl Broker for Recorder {
    fn publish(&self, message: &Broadcast) -> Result<(), Busy> {
        self.check_space()?;
        self.published.lock().unwrap().push(message.clone());
        Ok(())
    }

    fn orders_history(&self) -> bool {
        self.orders_history.load(Ordering::SeqCst)
    }

    fn publish_with_history(
        &self,
        message: &Broadcast,
        reply: Option<PermissionReply>,
        source: Option<u64>,
        key: Option<Arc<str>>,
    ) -> Result<(), Busy> {
        self.check_space()?;
        self.keys.lock().unwrap().extend(key);
        assert!(reply.is_none() || source.is_some(), "a client that waits has an address");
        self.ordered.lock().unwrap().push((message.clone(), reply));
        Ok(())
    }

    fn confirm_history(&self, room: &Room) {
        self.unconfirmed.lock().unwrap().push(room.clone().into());
    }

    fn confirm_feed(&self, key: &Key) -> u64 {
        self.unconfirmed.lock().unwrap().push(key.clone().into());
        5
    }

    fn set_interest(&self, topic: &Topic, has_subscribers: bool) {
        self.levels.lock().unwrap().insert(topic.clone(), has_subscribers);
    }
}

impl Recorder {
    fn check_space(&self) -> Result<(), Busy> {
        if self.is_busy.load(Ordering::SeqCst) { Err(Busy) } else { Ok(()) }
    }

    /// Waits for the next message to a room with history.
    fn ordered(&self) -> (Broadcast, Option<PermissionReply>) {
        let mut taken = None;
        until("a message", || {
            taken = self.ordered.lock().unwrap().pop();
            taken.is_some()
        });
        taken.unwrap()
    }

    fn wait_subscribed(&self, room: &Room) {
        until("interest", || self.subscribed().contains(&room.clone().into()));
    }

    /// Waits until the node asks to confirm its state of a topic.
    fn wait_question(&self, topic: impl Into<Topic>) {
        let topic = topic.into();
        until("a question", || self.unconfirmed.lock().unwrap().pop().as_ref() == Some(&topic));
    }

    /// The published messages as `rooms-exceptions: data`, sorted.
    fn published(&self) -> Vec<String> {
        let published = self.published.lock().unwrap();
        let mut all: Vec<String> = published
            .iter()
            .map(|message| {
                let names = |rooms: Vec<&str>| rooms.join("+");
                let rooms = names(message.rooms.iter().map(Room::name).collect());
                let except = names(message.except_rooms.iter().map(Room::name).collect());
                let (Data::Json(json) | Data::Arguments { json, .. }) = &message.data else {
                    panic!("{message:?}")
                };
                format!("{rooms}-{except}: {}", std::str::from_utf8(json).unwrap())
            })
            .collect();
        all.sort();
        all
    }

    /// The topics that have subscribers.
    fn subscribed(&self) -> HashSet<Topic> {
        let levels = self.levels.lock().unwrap();
        levels.iter().filter(|(_, level)| **level).map(|(topic, _)| topic.clone()).collect()
    }
}

/// An event sink that takes all events and keeps the reply to the last one.
#[derive(Debug, Default)]
struct LastEvent(Mutex<Option<ReplyToEvent>>);

impl EventSink for LastEvent {
    fn takes(&self, _namespace: &str, _name: &str, _is_known: bool) -> bool {
        true
    }

    fn handle(&self, event: &ClientEvent<'_>) -> Result<(), Denial> {
        *self.0.lock().unwrap() = Some(event.later());
        Ok(())
    }
}

/// Starts a node with a recording broker and rooms with history.
fn node(cores: usize, set: impl FnOnce(&mut Options)) -> (Server, Arc<Recorder>) {
    node_with(cores, Recorder::default(), set)
}

/// Starts a node whose broker orders the rooms with history.
fn ordering_node(cores: usize, set: impl FnOnce(&mut Options)) -> (Server, Arc<Recorder>) {
    node_with(cores, Recorder { orders_history: true.into(), ..Recorder::default() }, set)
}

fn node_with(cores: usize, recorder: Recorder, set: impl FnOnce(&mut Options)) -> (Server, Arc<Recorder>) {
    let recorder = Arc::new(recorder);
    let broker = recorder.clone();
    let server = Server::start(cores, move |options| {
        options.broker = Some(broker);
        options.rooms.publish = true;
        let age_max = Duration::from_secs(60);
        let history = HistoryLimits { publications_max: 10, bytes_max: 10_000, age_max };
        options.rooms.history = vec![("h".into(), history)];
        options.rooms.rules = vec![says("say")];
        set(options);
    });
    (server, recorder)
}

fn room(name: &str) -> Room {
    Room::plain(name).unwrap()
}

/// Delivers the engine's message of a room with history.
fn order(server: &Server, room: &Room, offset: u64, data: &Data, except_sessions: Vec<PublicId>) {
    let position = Position { epoch: Epoch(7), offset };
    let (event, data, except_rooms) = (None, data.clone(), Vec::new());
    let update = RoomUpdate::Message { position, event, data, except_rooms, except_sessions };
    server.plane().update_room(room, update).unwrap();
}

/// Delivers the engine's report of the end of a room's history.
fn end_of_history(server: &Server, room: &Room, epoch: Epoch, offset: u64) {
    let (after, messages) = (Position { epoch, offset }, Vec::new());
    server.plane().update_room(room, RoomUpdate::History { after, messages }).unwrap();
}

fn broadcast(rooms: &[&str], data: &str) -> Broadcast {
    Broadcast {
        id: 0,
        rooms: Rooms::new("/", rooms.iter().copied()).unwrap(),
        except_rooms: Vec::new(),
        except_sessions: Vec::new(),
        event: None,
        data: Data::Json(data.to_owned().into()),
        volatile: false,
    }
}

/// Emits a message of the control plane.
fn emit(server: &Server, target: Target, data: &str) -> Result<Concerned, CommandError> {
    let data = Data::Json(data.to_owned().into());
    answer(|done| server.plane().command(target, Command::Emit { event: None, data, volatile: false, done }))
}

#[test]
fn each_publication_leaves_once() {
    on_one_and_three(|cores| {
        let (server, recorder) = node(cores, |_| {});
        let mut clients = server.ws_on_each_core("/ws");
        let mut expect = Vec::new();
        for (n, ws) in clients.iter_mut().enumerate() {
            ws.next_json();
            ws.join("many");
            ws.ask(json!({"type": "publish", "room": format!("r{n}"), "data": n}));
            expect.push(format!("r{n}-: {n}"));
        }
        let mut io = Io::socket(&server, Way::Polling);
        io.connect("", Value::Null);
        io.ask("say", &["said".into()]);
        expect.push(r#"said-: "said""#.into());
        server.publish("api", "1");
        expect.push("api-: 1".into());
        let target = Target::of("/").unwrap().room("a").unwrap().room("b").unwrap().except_room("c").unwrap();
        assert_eq!(emit(&server, target, "2").unwrap().sessions, 0);
        expect.push("a+b-c: 2".into());
        expect.sort();
        until("everything to leave", || recorder.published().len() >= expect.len());
        assert_eq!(recorder.published(), expect);

        // A publication of another node reaches every member, and isn't sent out again.
        server.plane().receive(broadcast(&["other", "many"], "3"), Order::Rooms).unwrap();
        for ws in &mut clients {
            ws.expect_json(json!({"type": "message", "room": "other", "data": 3}));
        }
        let mut except = broadcast(&["many"], "4");
        except.except_rooms = vec![room("many")];
        server.plane().receive(except, Order::Rooms).unwrap();
        server.plane().receive(broadcast(&["many"], "5"), Order::Rooms).unwrap();
        for ws in &mut clients {
            ws.expect_json(json!({"type": "message", "room": "many", "data": 5}));
        }
        assert_eq!(recorder.published(), expect);
    });
}

/// Another node excludes a session from a message by its public id.
#[test]
fn a_session_can_be_left_out_by_another_node() {
    on_one_and_three(|cores| {
        let (server, recorder) = node(cores, |_| {});
        let (other, other_recorder) = node(1, |_| {});
        let (mut named, id) = server.client_and_id();
        named.join("r");
        let mut member = server.member("r");
        let mut message = broadcast(&["r"], "1");
        message.except_sessions = vec![id];
        server.plane().receive(message, Order::Rooms).unwrap();
        member.expect_json(json!({"type": "message", "room": "r", "data": 1}));
        server.publish("r", "2");
        named.expect_json(json!({"type": "message", "room": "r", "data": 2}));
        // Both nodes pass the id on. This node has decoded it, which doesn't prove that no other node has the session.
        for (node, recorder) in [(&other, &other_recorder), (&server, &recorder)] {
            let target = Target::of("/").unwrap().room("r").unwrap().except_session(id);
            emit(node, target, "3").unwrap();
            assert_eq!(recorder.published.lock().unwrap().last().unwrap().except_sessions, [id]);
        }
        member.expect_json(json!({"type": "message", "room": "r", "data": 2}));
        member.expect_json(json!({"type": "message", "room": "r", "data": 3}));
        server.publish("r", "4");
        named.expect_json(json!({"type": "message", "room": "r", "data": 4}));
    });
}

/// Random joins, leaves and disconnects, compared with a model of the subscriptions.
#[test]
fn interest_is_a_level_per_node() {
    let seed = std::env::var("STENTOR_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    for cores in [1, 2, 3] {
        let mut random = Rng::with_seed(seed);
        let (server, recorder) = node(cores, |_| {});
        let names = ["a", "b", "h1", "h2"];
        let topics = |n: usize| match n {
            0..4 => (json!({"room": names[n]}), Topic::Room(room(names[n]))),
            _ => (json!({"feed": format!("f{n}")}), Topic::Feed(Key::parse(&format!("f{n}")).unwrap())),
        };
        let mut clients: Vec<(Ws, HashSet<Topic>)> = Vec::new();
        for step in 0..300 {
            match random.usize(..10) {
                0 if clients.len() < 8 => clients.push((server.client(), HashSet::new())),
                1 if !clients.is_empty() => {
                    let gone = random.usize(..clients.len());
                    drop(clients.swap_remove(gone));
                }
                _ if clients.is_empty() => {}
                _ => {
                    let client = random.usize(..clients.len());
                    let (ws, subscribed) = &mut clients[client];
                    let (mut message, topic) = topics(random.usize(..6));
                    let joins = random.bool();
                    message["type"] = if joins { "subscribe" } else { "unsubscribe" }.into();
                    ws.ask(message);
                    if joins {
                        subscribed.insert(topic);
                    } else {
                        subscribed.remove(&topic);
                    }
                }
            }
            // The model is compared only when all is quiet, because changes may undo each other in between.
            if step % 10 == 9 {
                let model: HashSet<Topic> =
                    clients.iter().flat_map(|(_, subscribed)| subscribed).cloned().collect();
                until(&format!("the levels {model:?} (STENTOR_SEED={seed}, {cores} cores)"), || {
                    recorder.subscribed() == model
                });
            }
        }
        drop(clients);
        until("nobody to be subscribed", || recorder.subscribed().is_empty());
        until("topics to be dropped", || server.metric("topics") == 0);
    }
}

#[test]
fn a_busy_broker_loses_nothing() {
    const MESSAGES: usize = 200;
    on_one_and_three(|cores| {
        let (server, recorder) = node(cores, |_| {});
        let mut listener = server.member("r");
        recorder.is_busy.store(true, Ordering::SeqCst);
        let mut publishers = server.clients(4);
        for (n, ws) in publishers.iter_mut().enumerate() {
            ws.send_json(json!({"type": "publish", "room": "r", "data": [n, 0], "id": 0}));
        }
        // Members on this node receive the publications. Each publisher waits after its first message.
        let data = |ws: &mut Ws| {
            let message = ws.next_json();
            let number = |at: usize| message["data"][at].as_u64().unwrap() as usize;
            (number(0), number(1))
        };
        let mut first: Vec<_> = (0..4).map(|_| data(&mut listener)).collect();
        first.sort_unstable();
        assert_eq!(first, [(0, 0), (1, 0), (2, 0), (3, 0)]);
        server.until_metric("connections_paused", |paused| paused == 4);
        assert_eq!(server.metric("broker_waiting_messages"), 4);
        assert!(server.metric("memory_bytes{broker}") > 0);
        for ws in &mut publishers {
            ws.expect_json(json!({"type": "ok", "id": 0}));
        }
        for (n, ws) in publishers.iter_mut().enumerate() {
            for i in 1..MESSAGES {
                ws.send_json(json!({"type": "publish", "room": "r", "data": [n, i], "id": i}));
            }
        }
        // Messages of the control plane wait too. Messages of other nodes are delivered.
        let api = Publish { room: room("r"), event: None, data: Data::Json("1".into()) };
        assert_eq!(server.plane().publish(api.clone()), Err(Busy));
        let target = || Target::of("/").unwrap().room("r").unwrap();
        assert_eq!(emit(&server, target(), "1"), Err(CommandError::Busy));
        server.plane().receive(broadcast(&["r"], "[9,9]"), Order::Rooms).unwrap();
        assert_eq!(data(&mut listener), (9, 9));
        assert_eq!(recorder.published(), [""; 0]);

        let spaces = server.spaces();
        recorder.is_busy.store(false, Ordering::SeqCst);
        server.wait_space(spaces);
        until("the control plane to be served again", || server.plane().publish(api.clone()).is_ok());
        until("everything to leave", || recorder.published().len() == 4 * MESSAGES + 1);
        // The messages are in the order of each publisher, for the broker and for the member on this node.
        let mut next = [0; 4];
        for message in &*recorder.published.lock().unwrap() {
            let Data::Json(json) = &message.data else { panic!("{message:?}") };
            if let Ok([n, i]) = serde_json::from_slice::<[usize; 2]>(json) {
                assert_eq!(i, std::mem::replace(&mut next[n], i + 1));
            }
        }
        assert_eq!(next, [MESSAGES; 4]);
        (0..4 * (MESSAGES - 1) + 1).for_each(|_| drop(listener.next_json()));
        for name in ["broker_waiting_messages", "memory_bytes{broker}", "connections_paused"] {
            server.until_metric(name, |value| value == 0);
        }
    });
}

/// In a room with history that the engine orders, a message is delivered when the engine returns it, and its publisher waits for
/// the engine's answer.
#[test]
fn the_engine_orders_rooms_with_history() {
    on_one_and_three(|cores| {
        let (server, recorder) = ordering_node(cores, |_| {});
        let h = room("h");
        let mut clients = server.ws_on_each_core("/ws");
        let mut ids = Vec::new();
        for ws in &mut clients {
            ids.push(id_of(&ws.next_json()["session"]));
            ws.send_json(json!({"type": "subscribe", "room": "h", "id": "in"}));
        }
        recorder.wait_subscribed(&h);
        end_of_history(&server, &h, Epoch::NONE, 0);
        for ws in &mut clients {
            ws.expect_json(json!({"type": "ok", "id": "in"}));
        }
        let decide = |reply: Option<PermissionReply>, answer: Result<(), Denial>| {
            reply.unwrap().send(answer).unwrap();
        };
        // One client sends three messages. The second one isn't handled before the engine has stored the first.
        for id in 1..=3 {
            clients[0].send_json(json!({"type": "publish", "room": "h", "data": id, "id": id}));
        }
        let (message, reply) = recorder.ordered();
        assert_eq!((message.rooms, message.data), (h.clone().into(), Data::Json("1".into())));
        decide(reply, Ok(()));
        clients[0].expect_json(json!({"type": "ok", "id": 1}));
        let refused = Denial { retry: true, ..Denial::new("unavailable", "the engine is away") };
        decide(recorder.ordered().1, Err(refused));
        let expect = json!({"type": "error", "id": 2, "code": "unavailable", "message": "the engine is away", "retry": true});
        clients[0].expect_json(expect);
        // While the engine is busy, the message waits, and so does its publisher.
        let (message, reply) = recorder.ordered();
        decide(reply, Ok(()));
        clients[0].expect_json(json!({"type": "ok", "id": 3}));
        recorder.is_busy.store(true, Ordering::SeqCst);
        clients[1].send_json(json!({"type": "publish", "room": "h", "data": 4, "id": 4}));
        server.until_metric("broker_waiting_messages", |waiting| waiting == 1);
        recorder.is_busy.store(false, Ordering::SeqCst);
        decide(recorder.ordered().1, Ok(()));
        clients[1].expect_json(json!({"type": "ok", "id": 4}));
        // The engine knows idempotency keys, so a message with a key goes to it each time, wherever it was first.
        assert!(recorder.keys.lock().unwrap().is_empty());
        for id in [7, 8] {
            let first = "nSp4eVh0Zr_L3kW9tQ2b";
            clients[1].send_json(json!({"type": "publish", "room": "h", "data": 7, "id": id, "idempotency_key": "k", "first_session": first}));
            decide(recorder.ordered().1, Ok(()));
            clients[1].expect_json(json!({"type": "ok", "id": id}));
        }
        assert_eq!(*recorder.keys.lock().unwrap(), [Arc::from(":k"), Arc::from(":k")]);
        // No publisher waits for a message of the control plane.
        server.publish("h", "5");
        assert!(recorder.ordered().1.is_none());
        // A message with exceptions lists them.
        let left_out = ids[1];
        let target = Target::of("/").unwrap().room("h").unwrap().except_room("quiet").unwrap();
        let (event, data) = (None, Data::Json("6".into()));
        server.plane().command(
            target.except_session(left_out),
            Command::Emit { event, data, volatile: false, done: Done::new(|_| ()) },
        );
        let (whisper, reply) = recorder.ordered();
        let quiet = vec![room("quiet")];
        assert_eq!((whisper.except_rooms, whisper.except_sessions), (quiet, vec![left_out]));
        assert!(reply.is_none());
        // No message has been delivered yet. Messages that the engine returns are delivered in its order, once, and not to
        // excluded sessions.
        let ordered = |offset, data: &Data| order(&server, &h, offset, data, Vec::new());
        ordered(1, &message.data);
        ordered(1, &message.data);
        ordered(2, &Data::Json("1".into()));
        for ws in &mut clients {
            for (offset, data) in [(1, 3), (2, 1)] {
                let message = ws.next_json();
                assert_eq!([&message["offset"], &message["data"]], [&json!(offset), &json!(data)]);
            }
        }
        assert_eq!(recorder.published(), [""; 0]);
        server.until_metric("decisions_pending", |pending| pending == 0);
        // A client that comes from another node has one message more than this node, so this node asks the engine.
        let mut ahead = server.client();
        ahead.ask(json!({"type": "subscribe", "room": "h", "epoch": 7, "offset": 3}));
        recorder.wait_question(h.clone());
        for offset in [3, 4] {
            ordered(offset, &Data::Json(offset.to_string().into()));
        }
        server.plane().update_room(&h, RoomUpdate::Confirmed).unwrap();
        assert_eq!(ahead.next_json()["data"], 4);
        order(&server, &h, 5, &Data::Json("5".into()), vec![left_out]);
        ordered(6, &Data::Json("6".into()));
        let next = |ws: &mut Ws| ws.next_json()["data"].clone();
        assert_eq!([3, 4, 5, 6].map(|_| next(&mut clients[0])), [3, 4, 5, 6].map(|n| json!(n)));
        assert_eq!([3, 4, 6].map(|_| next(&mut clients[1])), [3, 4, 6].map(|n| json!(n)));
        // A client that resumes receives all messages after its position, also the one that excluded another session.
        let mut again = server.client();
        again.ask(json!({"type": "subscribe", "room": "h", "epoch": 7, "offset": 4}));
        assert_eq!([5, 6].map(|_| next(&mut again)), [5, 6].map(|n| json!(n)));
    });
}

/// Clients subscribe to a room whose history hasn't been read, and publish at once. All messages after the `ok` arrive.
#[test]
fn the_answer_to_a_subscription_is_a_position_in_the_rooms_history() {
    on_one_and_three(|cores| {
        let (server, recorder) = ordering_node(cores, |_| {});
        let h = room("h");
        let mut clients = server.clients(4);
        for (head, rejoins) in [(5, true), (20, false)] {
            for ws in &mut clients {
                ws.send_json(json!({"type": "subscribe", "room": "h", "id": "in"}));
                ws.send_json(json!({"type": "publish", "room": "h", "data": 1, "id": "out"}));
            }
            recorder.wait_subscribed(&h);
            server.until_metric("decisions_pending", |pending| pending == 4);
            assert_eq!(recorder.ordered.lock().unwrap().len(), 0, "published before the position is known");
            end_of_history(&server, &h, Epoch(7), head);
            for ws in &mut clients {
                ws.expect_json(json!({"type": "ok", "id": "in"}));
            }
            until("messages", || recorder.ordered.lock().unwrap().len() == 4);
            let messages = std::mem::take(&mut *recorder.ordered.lock().unwrap());
            for (offset, (message, reply)) in (head + 1..).zip(messages) {
                order(&server, &h, offset, &message.data, Vec::new());
                reply.unwrap().send(Ok(())).unwrap();
            }
            for ws in &mut clients {
                let seen: Vec<Value> = (0..5).map(|_| ws.next_json()).collect();
                let offsets: Vec<u64> =
                    seen.iter().filter_map(|message| message["offset"].as_u64()).collect();
                assert_eq!(offsets, (head + 1..=head + 4).collect::<Vec<_>>(), "{seen:?}");
            }
            // The room's history is known, so no client waits.
            drop(server.member("h"));
            if rejoins {
                clients.iter_mut().for_each(|ws| ws.ask(json!({"type": "unsubscribe", "room": "h"})));
                until("the end of interest", || recorder.subscribed().is_empty());
            }
        }
        // No state is kept for a client that disconnects while it waits.
        let mut gone = server.client();
        gone.send_json(json!({"type": "subscribe", "room": "h2"}));
        until("interest", || recorder.subscribed().len() == 2);
        drop(gone);
        until("the end of interest", || recorder.subscribed().len() == 1);
        server.until_metric("decisions_pending", |pending| pending == 0);
    });
}

/// The backend makes sessions join, by a command or by its reply to an event.
#[test]
fn the_answer_to_a_join_is_a_position_in_the_rooms_history() {
    on_one_and_three(|cores| {
        let events = Arc::new(LastEvent::default());
        let (server, recorder) = ordering_node(cores, |options| options.events = Some(events.clone()));
        let rooms = ["h1", "h2"].map(room);
        let mut clients: Vec<_> = (0..3).map(|_| server.client_and_id()).collect();
        let target = clients.iter().fold(Target::of("/").unwrap(), |target, (_, id)| target.session(*id));
        let (sender, answer) = mpsc::channel();
        let done = Done::new(move |answer| sender.send(answer).unwrap());
        let both = Rooms::new("/", ["h1", "h2"]).unwrap();
        server.plane().command(target, Command::Join { rooms: both, done });
        for room in &rooms {
            recorder.wait_subscribed(room);
            assert!(answer.try_recv().is_err(), "answered before the positions are known");
            end_of_history(&server, room, Epoch(7), 5);
        }
        assert_eq!(receive(&answer).unwrap().sessions, 3);
        let (ws, _) = &mut clients[0];
        ws.send_json(json!({"type": "event", "event": "e", "id": 1}));
        let mut question = None;
        until("an event", || {
            question = events.0.lock().unwrap().take();
            question.is_some()
        });
        let third = room("h3");
        let reply = EventReply { join: vec![rooms[0].clone(), third.clone()], ..EventReply::default() };
        question.unwrap().send(Ok(reply)).unwrap();
        recorder.wait_subscribed(&third);
        // The join hasn't been answered yet, because an answer would precede this message.
        order(&server, &rooms[0], 6, &Data::Json("1".into()), Vec::new());
        assert_eq!(ws.next_json()["offset"], 6);
        end_of_history(&server, &third, Epoch(7), 5);
        ws.expect_json(json!({"type": "ok", "id": 1}));
        server.until_metric("decisions_pending", |pending| pending == 0);
    });
}

/// The engine is disconnected for longer than a client waits.
#[test]
fn a_client_that_joins_without_a_position_is_notified_of_possible_gaps() {
    on_one_and_three(|cores| {
        let (server, recorder) = ordering_node(cores, |_| {});
        let h = room("h");
        let mut clients: Vec<Ws> = (0..3).map(|_| server.member("h")).collect();
        server.until_metric("decisions_unanswered", |unanswered| unanswered == 3);
        assert!(recorder.subscribed().contains(&h.clone().into()));
        end_of_history(&server, &h, Epoch(7), 5);
        recorder.wait_question(h.clone());
        server.plane().update_room(&h, RoomUpdate::Confirmed).unwrap();
        for ws in &mut clients {
            assert_eq!(ws.next_json()["code"], "history_expired");
        }
    });
}

/// A core handles the messages of a new epoch before its notices.
#[test]
fn the_notice_of_a_new_epoch_comes_before_its_messages() {
    for ends in [false, true] {
        on_one_and_three(|cores| {
            let (server, _) = ordering_node(cores, |_| {});
            let h = room("h");
            let mut ws = server.client();
            ws.ask(json!({"type": "subscribe", "room": "h", "epoch": 7, "offset": 5}));
            end_of_history(&server, &h, Epoch(7), 5);
            // The end of the history and the message arrive in one turn of the core.
            end_of_history(&server, &h, Epoch(8), 0);
            let (position, data) = (Position { epoch: Epoch(8), offset: 1 }, Data::Json("1".into()));
            let (event, except_rooms, except_sessions) = (None, Vec::new(), Vec::new());
            let update = RoomUpdate::Message { position, event, data, except_rooms, except_sessions };
            server.plane().update_room(&h, update).unwrap();
            if ends {
                // A session that ends is sent its pending messages before the core handles notices.
                let end = Command::Disconnect { close: false, done: Done::new(|_| {}) };
                server.plane().command(nobody().room("h").unwrap(), end);
                match ws.next() {
                    Seen::Text(text) => assert!(text.contains("history_expired"), "{text}"),
                    other => assert!(matches!(other, Seen::Closed(..)), "{other:?}"),
                }
            } else {
                assert_eq!(ws.next_json()["code"], "history_expired");
                assert_eq!(ws.next_json()["offset"], 1);
            }
        });
    }
}

/// A client on any core that names a version of another epoch waits for a read of the engine that began after its
/// request.
#[test]
fn clients_of_a_feed_wait_until_the_engine_confirms_their_version() {
    on_one_and_three(|cores| {
        let (server, recorder) = ordering_node(cores, |_| {});
        let mut clients = server.ws_on_each_core("/ws");
        for ws in &mut clients {
            ws.next_json();
            ws.ask(json!({"type": "subscribe", "feed": "k"}));
        }
        let version = |epoch, offset| FeedUpdate::At {
            position: Position { epoch: Epoch(epoch), offset },
            document: Document {
                body: offset.to_string().into(),
                json: true,
                content_type: "application/json".into(),
            }
            .into(),
            patches: Vec::new(),
        };
        server.update("k", version(7, 1));
        for ws in &mut clients {
            assert_eq!(ws.next_json()["data"], 1);
        }
        let feed = Key::parse("k").unwrap();
        // Some of the clients are on cores other than the feed's home core.
        let mut moved = server.clients(4);
        for ws in &mut moved {
            ws.ask(json!({"type": "subscribe", "feed": "k", "epoch": 8, "offset": 2}));
            recorder.wait_question(feed.clone());
        }
        // A read that began before the clients' requests confirms nothing.
        server.update("k", FeedUpdate::Confirmed(5));
        server.update("k", version(8, 3));
        server.update("k", FeedUpdate::Confirmed(6));
        for ws in clients.iter_mut().chain(&mut moved) {
            assert_eq!(ws.next_json()["data"], 3);
        }
        let mut old = server.client();
        old.ask(json!({"type": "subscribe", "feed": "k", "epoch": 7, "offset": 1}));
        recorder.wait_question(feed.clone());
        server.update("k", FeedUpdate::Confirmed(6));
        assert_eq!(old.next_json()["data"], 3);
    });
}
