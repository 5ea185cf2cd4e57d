//! Ids of sessions that are known before the sessions open.

use crate::harness::{Io, Server, Way, Ws, id_of, on_one_and_three, request, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use stentor_edge::{Options, Recovery};
use stentor_ports::{
    Access, Asking, Authentication, Authenticator, Authorizer, Credentials, Decision, Denial, Identity,
    IdentityReply, Notice, NoticeSink, PermissionReply, PublicId, Question, ReservedSession, SignatureWork,
};
use stentor_wire::engineio::Version;

/// An authenticator that receives the ids of sessions. It accepts all clients, the token `later` later, and refuses the token `bad`.
/// Its authorizer decides later about feeds that begin with `later`.
#[derive(Clone, Debug, Default)]
struct Names(Arc<State>);

#[derive(Debug, Default)]
struct State {
    reserved: Mutex<Vec<PublicId>>,
    begun: Mutex<Vec<PublicId>>,
    /// Sessions and their rooms in questions to the authorizer.
    rooms: Mutex<Vec<(PublicId, Vec<Box<str>>)>>,
    identities: Mutex<Vec<(IdentityReply, Arc<Identity>)>>,
    permissions: Mutex<Vec<PermissionReply>>,
}

impl Names {
    fn identity(&self, reserved: Option<&Arc<ReservedSession>>) -> Arc<Identity> {
        let identity = Identity::anonymous(Arc::new(self.clone()));
        Arc::new(Identity { reserved: reserved.cloned(), ..identity })
    }
}

impl Authenticator for Names {
    fn authenticate(
        &self,
        asking: Asking<'_>,
        credentials: &Credentials<'_>,
        _: &mut SignatureWork,
    ) -> Authentication {
        self.0.reserved.lock().unwrap().extend(credentials.session.map(|session| session.id));
        let identity = self.identity(credentials.session);
        match credentials.token {
            Some("bad") => Authentication::Refused(Denial::new("not_allowed", "bad")),
            Some("later") => {
                self.0.identities.lock().unwrap().push((asking.later(), identity));
                Authentication::Pending
            }
            _ => Authentication::Accepted(identity),
        }
    }

    fn reserves_sessions(&self) -> bool {
        true
    }
}

impl Authorizer for Names {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        let Some(session) = question.session else { return Decision::Allow };
        let rooms_max = if matches!(question.access, Access::Publish(_)) { 2 } else { 0 };
        self.0.rooms.lock().unwrap().push((session, question.rooms.take(rooms_max).names));
        match question.access {
            Access::Subscribe(topic) if format!("{topic:?}").contains("later") => {
                self.0.permissions.lock().unwrap().push(question.later());
                Decision::Pending
            }
            _ => Decision::Allow,
        }
    }
}

impl NoticeSink for Names {
    fn notify(&self, notice: &Notice<'_>) {
        if let Notice::Connected { session, .. } = notice {
            self.0.begun.lock().unwrap().push(*session);
        }
    }
}

fn start(cores: usize, set: impl FnOnce(&mut Options)) -> (Server, Names) {
    let names = Names::default();
    let [authenticator, notices] = [names.clone(), names.clone()].map(Arc::new);
    let server = Server::start(cores, |options| {
        options.authenticator = Some(authenticator);
        options.notices = Some(notices);
        options.rooms.namespaces = vec!["/chat".into()];
        options.rooms.publish = true;
        set(options);
    });
    (server, names)
}

/// Answers all questions whose answers come later, until a session has begun.
fn until_begun(names: &Names) -> PublicId {
    until("a session", || {
        for (reply, identity) in std::mem::take(&mut *names.0.identities.lock().unwrap()) {
            reply.send(Ok(identity)).unwrap();
        }
        for reply in std::mem::take(&mut *names.0.permissions.lock().unwrap()) {
            reply.send(Ok(())).unwrap();
        }
        !names.0.begun.lock().unwrap().is_empty()
    });
    names.0.begun.lock().unwrap().pop().unwrap()
}

/// The reserved ids of the clients that have asked to connect.
fn take_reserved(names: &Names) -> Vec<PublicId> {
    std::mem::take(&mut *names.0.reserved.lock().unwrap())
}

#[test]
fn a_session_has_the_id_that_was_reserved_for_it() {
    on_one_and_three(|cores| {
        let (server, names) = start(cores, |_| {});
        server.document("later", "1");
        server.document("now", "1");
        let mut used = BTreeSet::new();
        let mut check = |target: &str| {
            let session = until_begun(&names);
            assert_eq!(take_reserved(&names), [session], "{target}");
            assert!(used.insert(session), "{target}: the id was used before");
        };
        for token in ["token=now", "token=later"] {
            for target in [
                "/ws?",
                "/sockjs/000/socket/websocket?",
                "/primus/?_primuscb=P&",
                "/engine.io/?EIO=4&transport=websocket&",
                "/socket.io/?EIO=3&transport=websocket&",
            ] {
                let target = format!("{target}{token}");
                let _socket = Ws::begin_open(server.addr, &target);
                check(&target);
            }
            for (method, target) in [
                ("GET", "/sse/now?"),
                ("GET", "/sse/later?"),
                ("GET", "/ndjson?"),
                ("POST", "/sockjs/000/TOKEN/xhr?"),
                ("GET", "/engine.io/?EIO=4&transport=polling&"),
                ("GET", "/socket.io/?EIO=3&transport=polling&"),
            ] {
                let target = target.replace("TOKEN", token) + token;
                let mut http = server.http();
                let headers = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
                http.send(request(method, &target, headers));
                check(&target);
            }
        }
    });
}

#[test]
fn a_socket_has_the_id_of_the_last_question_about_its_client() {
    on_one_and_three(|cores| {
        let (server, names) = start(cores, |_| {});
        for way in [Way::Socket, Way::Polling] {
            let with_token = || Io::open(server.addr, "/socket.io/", Version::V4, way, "&token=now");
            let mut io = with_token();
            let reserved = take_reserved(&names);
            let main = id_of(&io.connect("", Value::Null)["sid"]);
            assert_eq!(reserved, [main], "a handshake with a token asks for the main namespace");
            let chat = id_of(&io.connect("/chat", Value::Null)["sid"]);
            assert_eq!(take_reserved(&names), [chat]);
            io.send("41");
            let again = id_of(&io.connect("", Value::Null)["sid"]);
            assert!(
                ![main, chat].contains(&again) && take_reserved(&names).is_empty(),
                "no question, a new id"
            );
            let mut io = with_token();
            let unused = take_reserved(&names);
            let main = id_of(&io.connect("", json!({"token": "now"}))["sid"]);
            assert_eq!(take_reserved(&names), [main], "a token in the CONNECT is another question");
            assert_ne!(unused, [main]);
            let mut io = Io::socket(&server, way);
            assert_eq!(take_reserved(&names), [], "without a token, the CONNECT asks");
            let main = id_of(&io.connect("", Value::Null)["sid"]);
            assert_eq!(take_reserved(&names), [main]);
        }
    });
}

#[test]
fn a_recovered_session_keeps_its_id() {
    let (server, names) = start(1, |options| options.engine.recovery = Some(Recovery::default()));
    let mut io = Io::socket(&server, Way::Socket);
    let first = io.connect("", Value::Null);
    io.cut();
    let mut io = Io::socket(&server, Way::Socket);
    take_reserved(&names);
    let again = io.connect("", json!({"pid": first["pid"], "token": "now"}));
    assert_eq!(again["sid"], first["sid"]);
    assert_ne!(take_reserved(&names), [id_of(&first["sid"])]);
    drop(io);
}

#[test]
fn the_id_of_a_refused_client_is_not_used_again() {
    let (server, names) = start(1, |_| {});
    let mut ids = BTreeSet::new();
    for n in 0..20 {
        assert_eq!(Ws::open(server.addr, "/ws?token=bad", &[], false).err(), Some(403));
        let refused = take_reserved(&names);
        let mut ws = server.ws("/ws");
        let opened = take_reserved(&names);
        assert_eq!(opened, [id_of(&ws.next_json()["session"])]);
        ids.extend(refused.into_iter().chain(opened));
        assert_eq!(ids.len(), 2 * (n + 1));
        server.until_metric("sessions", |sessions| sessions == 1);
        drop(ws);
        server.until_metric("sessions", |sessions| sessions == 0);
    }
}

#[test]
fn sessions_whose_beginning_was_reported_are_charged_for_it() {
    let charged = |is_reported: bool| {
        let (server, names) = start(1, |options| options.notices = options.notices.take_if(|_| is_reported));
        let mut ws = server.ws("/ws");
        ws.next_json();
        ws.fence();
        assert_eq!(names.0.begun.lock().unwrap().len(), usize::from(is_reported));
        let open = server.metric("memory_bytes{sessions}");
        drop(ws);
        server.until_metric("sessions", |sessions| sessions == 0);
        (open, server.metric("memory_bytes{sessions}"))
    };
    let [(reported, reported_closed), (other, other_closed)] = [true, false].map(charged);
    assert!(reported > other, "{reported} > {other}");
    assert_eq!(reported_closed, other_closed);
}

#[test]
fn the_authorizer_receives_as_many_rooms_as_it_takes() {
    let (server, names) = start(1, |_| {});
    let mut ws = server.ws("/ws");
    let id = id_of(&ws.next_json()["session"]);
    for room in ["a", "b", "c"] {
        ws.join(room);
    }
    ws.ask(json!({"type": "publish", "room": "a", "data": 1}));
    let expect = [&[][..], &[], &[], &["a".into(), "b".into()]];
    let asked = std::mem::take(&mut *names.0.rooms.lock().unwrap());
    assert_eq!(asked, expect.map(|rooms: &[Box<str>]| (id, rooms.to_vec())));
}
