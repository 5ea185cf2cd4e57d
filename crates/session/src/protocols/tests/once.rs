//! Messages that are published later: the handler has run once when the client is answered.

use super::rig::{Rig, text};
use super::socket;
use crate::app::{Application, Context, Effect, Envelope, Message, RoomsApp, Sent, ToSession};
use crate::ports::{Broadcast, Broker, Busy, Denial, PermissionReply};
use crate::rule::Rooms;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_hub::{HistoryLimits, Key, Room, SessionId, Topic};

/// An engine that orders rooms with history.
#[derive(Debug, Default)]
struct Engine(Mutex<Vec<PermissionReply>>);

impl Broker for Engine {
    fn publish(&self, _: &Broadcast) -> Result<(), Busy> {
        Ok(())
    }

    fn orders_history(&self) -> bool {
        true
    }

    fn publish_with_history(
        &self,
        _: &Broadcast,
        publisher: Option<PermissionReply>,
        _: Option<u64>,
    ) -> Result<(), Busy> {
        self.0.lock().unwrap().extend(publisher);
        Ok(())
    }

    fn confirm_history(&self, _: &Room) {}

    fn confirm_feed(&self, _: &Key) -> u64 {
        0
    }

    fn set_interest(&self, _: &Topic, _: bool) {}
}

/// Counts the messages that it handles.
struct Counting(RoomsApp, Arc<AtomicUsize>);

impl Application for Counting {
    fn envelope(&self) -> Envelope {
        self.0.envelope()
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.message(ctx, session, message);
    }
}

#[test]
fn a_handler_whose_message_is_published_later_runs_once() {
    let limits = HistoryLimits { publications_max: 9, bytes_max: 1_000, age_max: Duration::from_secs(300) };
    let rooms = Rooms { publish: true, history: vec![("kept".into(), limits)], ..Rooms::default() };
    let (engine, handled) = (Arc::new(Engine::default()), Arc::new(AtomicUsize::new(0)));
    let app = Box::new(Counting(RoomsApp::new(rooms.clone()), handled.clone()));
    let broker = engine.clone();
    let mut rig = Rig::new(app, |options| {
        options.rooms = rooms;
        options.broker = Some(broker);
    });
    let (mut conn, _) = socket(&mut rig, "/ws");
    let refused = Denial { retry: true, ..Denial::new("unavailable", "the engine is away") };
    let error = r#"{"type":"error","id":2,"code":"unavailable","message":"the engine is away","retry":true}"#;
    let mut answer = |id: usize, outcome: Result<(), Denial>, expect: &str| {
        let publish = format!(r#"{{"type":"publish","room":"kept","data":1,"id":{id}}}"#);
        assert_eq!(rig.receive(&mut conn, text(&publish)), "", "the outcome isn't known yet");
        let publisher = engine.0.lock().unwrap().pop().unwrap();
        rig.ex.questions.decide(publisher.ticket().number, outcome);
        assert_eq!(rig.ex.questions.poll_decided(), Some(conn.id));
        rig.ex.resume_kept(conn.id);
        let effects = rig.ex.effects.take_others();
        let [Effect::Session(_, ToSession::Send(Sent::Text(sent)))] = &effects[..] else {
            panic!("no answer")
        };
        assert_eq!(sent, expect);
        assert_eq!(handled.load(Ordering::Relaxed), id);
        assert!(!rig.ex.questions.is_waiting(conn.id));
    };
    answer(1, Ok(()), r#"{"type":"ok","id":1}"#);
    answer(2, Err(refused), error);
}
