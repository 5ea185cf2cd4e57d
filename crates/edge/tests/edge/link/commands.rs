//! Commands of the backend for the sockets of an application.

use super::{APP, Stage, names, send, unit};
use crate::harness::{Io, PATIENCE, Way, answer, receive, until};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use stentor_hub::{Data, Rooms};
use stentor_ports::fake::LinkCall;
use stentor_ports::{
    Command, Concerned, Done, LinkAcceptance, LinkChange, LinkEntry, LinkParser, LinkReport, LinkSession,
    LinkSocket, RoomsQuery, SESSIONS_LISTED_MAX, SessionApp, SessionList, SessionsQuery, Target,
};
use stentor_wire::engineio::Version;

impl Stage {
    fn command<T: Send + 'static>(&self, target: Target, command: impl FnOnce(Done<T>) -> Command) -> T {
        answer(|done| self.server.plane().command_link(APP, target, command(done))).unwrap()
    }

    /// The sessions that the link is notified of, and the change.
    fn selected(&self, count: usize) -> (Vec<LinkSession>, LinkChange) {
        let (mut sessions, mut change) = (Vec::new(), None);
        while sessions.len() < count {
            let selected = self.call("changed sockets", |call| match call {
                LinkCall::ReportSelected(selected) => Some(selected.clone()),
                _ => None,
            });
            assert_eq!((selected.link, &*selected.namespace), (0, "/"));
            sessions.extend(selected.sessions);
            change = Some(selected.select.change);
        }
        sessions.sort_unstable();
        (sessions, change.unwrap())
    }
}

fn all() -> Target {
    Target::of("/").unwrap().everybody()
}

fn room(name: &str) -> Target {
    Target::of("/").unwrap().room(name).unwrap()
}

fn emit(done: Done<Concerned>) -> Command {
    Command::Emit { event: Some("e".into()), data: Data::Json("[1]".into()), volatile: false, done }
}

#[test]
fn commands_act_on_the_sockets_of_an_application() {
    for cores in [1, 3] {
        let stage = Stage::new(cores);
        let (mut a, first) = stage.socket(Way::Polling, "a", &["r", "x"]);
        let (mut b, second) = stage.socket(Way::Socket, "b", &["r"]);
        assert_eq!(stage.command(room("r").except_room("x").unwrap(), emit), Concerned::sessions(1));
        b.expect("42[\"e\",[1]]");
        assert_eq!(stage.command(room("a"), emit), Concerned::sessions(1), "an id is a room");
        a.expect("42[\"e\",[1]]");
        assert_eq!(stage.command(Target::of("/other").unwrap().everybody(), emit), Concerned::default());
        assert_eq!(stage.command(Target::of("/").unwrap(), emit), Concerned::default());

        let join = |done| Command::Join { rooms: Rooms::new("/", ["new"]).unwrap(), done };
        assert_eq!(stage.command(all(), join), Concerned::sessions(2));
        let mut both = vec![first, second];
        both.sort_unstable();
        assert_eq!(stage.selected(2), (both, LinkChange::Join));
        let leave = |done| Command::Leave { rooms: Rooms::new("/", ["new"]).unwrap(), done };
        assert_eq!(stage.command(room("x"), leave), Concerned::sessions(1));
        assert_eq!(stage.selected(1), (vec![first], LinkChange::Leave));

        let list: SessionList = stage.command(all(), |done| Command::Sessions { limit: 10, done });
        let mut found: Vec<_> = list.sessions.into_iter().map(|info| (info.id, info.rooms)).collect();
        found.sort();
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(found, [("a".into(), of(&["a", "r", "x"])), ("b".into(), of(&["b", "new", "r"]))]);
        let list: SessionList = stage.command(all(), |done| Command::Sessions { limit: 1, done });
        assert_eq!((list.count, list.sessions.len()), (2, 1));
        let query = |search: &str| SessionsQuery {
            search: search.into(),
            limit: SESSIONS_LISTED_MAX,
            ..SessionsQuery::default()
        };
        let node = |search| answer(|done| stage.server.plane().list_sessions(query(search), done)).unwrap();
        let mut found: Vec<_> = node("").sessions;
        found.sort_by(|one, other| one.id.cmp(&other.id));
        let shown = found.into_iter().map(|info| (info.id, info.details.namespace, info.details.app));
        let in_app = |id: &str| (id.to_owned(), Some("/".into()), Some(SessionApp::Number(APP)));
        assert_eq!(shown.collect::<Vec<_>>(), [in_app("a"), in_app("b")]);
        let found = node("b").sessions.remove(0);
        assert_eq!((found.id, found.rooms), ("b".into(), of(&["b", "new", "r"])));
        let rooms = |prefix: &str, after: &str, limit| {
            let (prefix, after) = (prefix.into(), after.into());
            let query = RoomsQuery { namespace: "/".into(), prefix, after, limit };
            let list = answer(|done| stage.server.plane().list_link_rooms(APP, query, done)).unwrap();
            (list.rooms, list.truncated)
        };
        let named =
            |rooms: &[(&str, usize)]| rooms.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        assert_eq!(rooms("", "b", 2), (named(&[("new", 1), ("r", 2)]), true));
        assert_eq!(rooms("r", "", 5), (named(&[("r", 2)]), false));

        let close = |done| Command::Disconnect { close: true, done };
        assert_eq!(stage.command(room("r"), close), Concerned::sessions(2));
        assert_eq!(stage.selected(2).1, LinkChange::Disconnect { closes: true });
        assert_eq!(stage.command(all(), emit), Concerned::default(), "the workers end the sockets");
    }
}

/// An event that requests acknowledgements, which are passed to `answers`.
fn call(
    answers: &mpsc::Sender<String>,
    timeout: Duration,
) -> impl FnOnce(Done<Concerned>) -> Command + use<> {
    let answers = answers.clone();
    let answered = Arc::new(move |data| {
        let Data::Arguments { json, attachments } = data else { panic!("{data:?}") };
        let json = String::from_utf8(json.to_vec()).unwrap();
        let _ = answers.send(format!("{json} and {} attachments", attachments.len()));
    });
    let data = Data::Arguments { json: "1,\"two\"".into(), attachments: [].into() };
    move |done| Command::Call { event: "q".into(), data, timeout, answered, done }
}

/// The number of the next event.
fn number(io: &mut Io) -> u32 {
    let text = io.next_text();
    let (number, event) = text.strip_prefix("42").unwrap().split_once('[').unwrap();
    assert_eq!(event, r#""q",1,"two"]"#);
    number.parse().unwrap()
}

#[test]
fn clients_of_workers_acknowledge_events_of_the_backend() {
    for cores in [1, 3] {
        let stage = Stage::new(cores);
        let (mut a, first) = stage.socket(Way::Socket, "a", &["r"]);
        let (mut b, _) = stage.socket(Way::Socket, "b", &["r"]);
        let (sender, answers) = mpsc::channel();
        assert_eq!(stage.command(room("r"), call(&sender, PATIENCE)), Concerned::sessions(2));
        let (number_a, number_b) = (number(&mut a), number(&mut b));
        // Workers begin below 2^30.
        assert!((1 << 30..1 << 31).contains(&number_a), "{number_a}");
        b.send(&format!("43{number_b}[\"b\"]"));
        assert_eq!(receive(&answers), "\"b\" and 0 attachments");
        // These are the worker's: its own number, another namespace, an answer that is malformed, and one that comes again.
        a.send("435[]");
        a.send(&format!("43/other,{number_a}[]"));
        a.send(&format!("43{number_a}[}}"));
        a.send(&format!("461-{number_a}[{{\"_placeholder\":true,\"num\":0}}]"));
        a.send_binary(b"x");
        a.send(&format!("43{number_a}[\"again\"]"));
        for expect in ["5[]".to_owned(), format!("/other,{number_a}[]"), format!("{number_a}[}}")] {
            stage.expect(first, LinkReport::Messages(unit(&[&format!("3{expect}")])));
        }
        let again = format!("3{number_a}[\"again\"]");
        stage.expect(first, LinkReport::Messages(unit(&[&again])));
        assert_eq!(receive(&answers), "{\"_placeholder\":true,\"num\":0} and 1 attachments");
        // After the timeout, an acknowledgement goes to the worker.
        let (sender_of_late, answers_of_late) = mpsc::channel();
        assert_eq!(stage.command(room("a"), call(&sender_of_late, Duration::ZERO)), Concerned::sessions(1));
        drop(sender_of_late);
        let late = number(&mut a);
        let is_over = || answers_of_late.try_recv() == Err(mpsc::TryRecvError::Disconnected);
        until("the end of the call", is_over);
        a.send(&format!("43{late}[]"));
        stage.expect(first, LinkReport::Messages(unit(&[&format!("3{late}[]")])));
        assert!(answers.try_recv().is_err());
        assert_eq!(stage.command(room("none"), call(&sender, PATIENCE)), Concerned::default());
    }
}

#[test]
fn the_timeline_of_a_socket_has_the_upgrade_of_its_client() {
    let stage = Stage::new(1);
    let (mut io, _) = stage.socket(Way::Polling, "a", &[]);
    let events = || {
        let mut list: SessionList = stage.command(all(), |done| Command::Sessions { limit: 1, done });
        let timeline = list.sessions.remove(0).details.timeline;
        timeline.into_iter().map(|event| format!("{} {}", event.name, event.reason)).collect::<Vec<_>>()
    };
    assert_eq!(events(), [""; 0]);
    io.upgrade();
    until("the upgrade", || !events().is_empty());
    assert_eq!(events(), ["upgraded websocket"]);
}

#[test]
fn a_list_of_sessions_pauses_after_sockets_with_many_rooms() {
    const CLIENTS: usize = 3;
    const SOCKETS: usize = 5;
    let stage = Stage::new(1);
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        let (mut io, session) = stage.socket(Way::Socket, &n.to_string(), &[]);
        for namespace in 0..SOCKETS {
            let rooms = (0..1_000).map(|room| format!("{room:04}").into()).collect();
            let socket = LinkSocket { namespace: format!("/{namespace}").into(), id: "a".into(), rooms };
            stage.entries([LinkEntry::Add { session, socket: Box::new(socket) }]);
        }
        // The cores have added the sockets, which takes several turns.
        stage.entries([send(session, &["end"])]);
        io.expect("4end");
        clients.push(io);
    }
    let check = |limit, expect| {
        let query = SessionsQuery { limit, ..SessionsQuery::default() };
        let before = stage.server.metric("command_yields");
        let list = answer(|done| stage.server.plane().list_sessions(query, done)).unwrap();
        assert_eq!(list.count, CLIENTS * (SOCKETS + 1));
        // Each socket is listed with 256 rooms, of 1 KiB. Each room takes 8 of the 8,192 steps of a turn.
        let longest = list.sessions.iter().map(|info| info.rooms.len()).max();
        assert!(matches!(longest, Some(1 | 256)), "{longest:?}");
        stage.server.until_metric("command_yields", |yields| yields == before + expect);
    };
    check(SESSIONS_LISTED_MAX, CLIENTS as u64 - 1);
    // A client that isn't listed takes 1 step.
    check(1, 1);
}

#[test]
fn events_of_the_backend_do_not_reach_clients_of_a_custom_parser() {
    let stage = Stage::new(1);
    let acceptance = LinkAcceptance { parser: LinkParser::Opaque, ..LinkAcceptance::default() };
    let (mut io, session) = stage.open_for(super::WORKER, Version::V4, Way::Socket, acceptance);
    let socket = LinkSocket { namespace: "/".into(), id: "a".into(), rooms: names(&["a"]) };
    stage.entries([LinkEntry::Add { session, socket: Box::new(socket) }]);
    assert_eq!(stage.command(all(), emit), Concerned::default());
    let call = call(&mpsc::channel().0, Duration::from_secs(1));
    assert_eq!(stage.command(all(), call), Concerned::default());
    stage.entries([send(session, &["own"])]);
    io.expect("4own");
}
