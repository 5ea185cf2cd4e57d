//! Presence over `stentor.v1` and Socket.IO.

use crate::harness::{Io, Server, Way, Ws, joins, leaves, now, on_one_and_three, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stentor_edge::Options;
use stentor_hub::Topic;
use stentor_ports::{
    Access, Asking, Authentication, Authenticator, Authorizer, Credentials, Decision, Denial, Done, Identity,
    IdentityFilter, Principal, Question, Recheck, RecheckAction, SignatureWork,
};

fn with_presence(options: &mut Options) {
    options.rooms.presence.rooms = vec!["chat".to_owned()];
    options.rooms.rules = vec![joins("join"), leaves("leave")];
}

/// Connects a client. Returns it with its session id.
fn client(server: &Server) -> (Ws, String) {
    let (ws, id) = server.client_and_id();
    (ws, id.to_string())
}

/// The next message of this type.
fn next_of(ws: &mut Ws, kind: &str) -> Value {
    loop {
        let message = ws.next_json();
        if message["type"] == kind {
            return message;
        }
    }
}

/// An authenticator. Tokens are names of users, and their info has the same name. No client may see members while `secret` is
/// set.
#[derive(Debug, Default)]
struct Issuer {
    secret: AtomicBool,
}

#[derive(Debug)]
struct Rules(Arc<Issuer>);

impl Authorizer for Rules {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        match question.access {
            Access::Presence(Topic::Room(room))
                if room.name() == "chat" && self.0.secret.load(Ordering::Relaxed) =>
            {
                Decision::Deny(Denial::new("not_allowed", "secret"))
            }
            _ => Decision::Allow,
        }
    }
}

#[derive(Debug)]
struct Tokens(Arc<Issuer>);

impl Authenticator for Tokens {
    fn authenticate(
        &self,
        _: Asking<'_>,
        credentials: &Credentials<'_>,
        _: &mut SignatureWork,
    ) -> Authentication {
        let nobody = Identity::anonymous(Arc::new(Rules(self.0.clone())));
        let Some(token) = credentials.token else { return Authentication::Accepted(Arc::new(nobody)) };
        let principal = Principal { issuer: "i".into(), subject: token.into() };
        let info = if token == "huge" { format!("{:?}", "x".repeat(2_000)) } else { format!("{token:?}") };
        let identity = Identity { principal: Some(principal), info: Some(info.into()), ..nobody };
        Authentication::Accepted(Arc::new(identity))
    }
}

#[test]
fn users_are_shown_and_stay_for_the_grace() {
    on_one_and_three(|cores| {
        let issuer = Arc::new(Issuer::default());
        let server = Server::start(cores, |options| {
            with_presence(options);
            options.rooms.presence.grace = Duration::from_secs(1);
            options.authenticator = Some(Arc::new(Tokens(issuer.clone())));
        });
        let user = |name: &str| {
            let mut ws = server.ws(&format!("/ws?token={name}"));
            let session = ws.next_json()["session"].as_str().unwrap().to_owned();
            ws.join("chat");
            (ws, session)
        };
        let (ada, first) = user("ada");
        let (_huge, huge) = user("huge");
        let (mut ws, own) = client(&server);
        ws.join("chat");
        ws.ask(json!({"type": "subscribe", "room": "chat", "presence": true}));
        // Members on other cores appear with their next report.
        let mut answer = Value::Null;
        until("all to be shown", || {
            answer = ask(&mut ws, json!({"room": "chat"}));
            answer["members"].as_array().unwrap().len() == 3
        });
        let shown = |answer: &Value, session: &str| {
            let members = answer["members"].as_array().unwrap();
            let member = members.iter().find(|member| member["session"] == session).unwrap();
            [member["user"].clone(), member["info"].clone()]
        };
        assert_eq!(shown(&answer, &first), [json!("ada"), json!("ada")]);
        assert_eq!(shown(&answer, &huge), [json!("huge"), Value::Null], "it is too large");
        assert_eq!(shown(&answer, &own), [Value::Null, Value::Null]);
        drop(ada);
        server.until_metric("sessions", |sessions| sessions == 2);
        let (ada, second) = user("ada");
        let notice = next_of(&mut ws, "presence");
        assert_eq!((&notice["joined"], &notice["left"]), (&json!([]), &json!([])), "{notice}");
        let replaced = &notice["replaced"][0];
        assert_eq!((&replaced["session"], &replaced["replaces"]), (&json!(second), &json!(first)));
        let left_at = now();
        drop(ada);
        let notice = next_of(&mut ws, "presence");
        assert_eq!(notice["left"], json!([{"session": second, "user": "ada"}]));
        assert!(now() - left_at >= Duration::from_secs(1));
        // Members may not be listed any more.
        issuer.secret.store(true, Ordering::Relaxed);
        let recheck = Recheck { filter: IdentityFilter::default(), action: RecheckAction::Authorize };
        server.plane().recheck(recheck, Done::new(|_| {}));
        let refused = next_of(&mut ws, "error");
        assert_eq!((&refused["presence"], &refused["code"]), (&json!("chat"), &json!("not_allowed")));
        let mut other = Watcher::new(&server, "chat/other");
        let (mut ada, third) = user("ada");
        ada.ask(json!({"type": "subscribe", "room": "chat/other"}));
        while !other.members.contains(&third) {
            other.notice();
        }
        let seen = ws.fence();
        assert!(seen.iter().all(|seen| !format!("{seen:?}").contains("joined")), "{seen:?}");
    });
}

/// The answer to a request for the members of a room.
fn ask(ws: &mut Ws, mut question: Value) -> Value {
    question["type"] = "presence".into();
    question["id"] = "q".into();
    ws.send_json(question);
    loop {
        let message = ws.next_json();
        if message["id"] == "q" {
            return message;
        }
    }
}

fn sessions(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("{list}"));
    list.iter().map(|member| member["session"].as_str().unwrap().to_owned()).collect()
}

/// A client that watches a room, and its replica of the members.
struct Watcher {
    ws: Ws,
    members: BTreeSet<String>,
    version: u64,
    count: u64,
}

impl Watcher {
    fn new(server: &Server, room: &str) -> Self {
        let (mut ws, _) = client(server);
        ws.send_json(json!({"type": "subscribe", "room": room, "presence": true}));
        let answer = ask(&mut ws, json!({"room": room}));
        Self {
            ws,
            members: sessions(&answer["members"]),
            version: answer["version"].as_u64().unwrap_or_else(|| panic!("{answer}")),
            count: answer["count"].as_u64().unwrap(),
        }
    }

    fn notice(&mut self) -> Value {
        let notice = next_of(&mut self.ws, "presence");
        let version = notice["version"].as_u64().unwrap();
        if version > self.version {
            assert_eq!(version, self.version + 1, "{notice}");
            self.version = version;
            for session in sessions(&notice["joined"]) {
                assert!(self.members.insert(session), "{notice}");
            }
            for session in sessions(&notice["left"]) {
                assert!(self.members.remove(&session), "{notice}");
            }
            self.count = notice["count"].as_u64().unwrap();
        }
        notice
    }

    fn until(&mut self, members: &[&str]) {
        let expected: BTreeSet<String> = members.iter().map(|member| (*member).to_owned()).collect();
        while self.members != expected {
            self.notice();
        }
        assert_eq!(self.count, members.len() as u64);
    }
}

#[test]
fn members_are_listed_and_watchers_notified() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_presence);
        let mut clients: Vec<(Ws, String)> = (0..4).map(|_| client(&server)).collect();
        let ids: Vec<String> = clients.iter().map(|(_, id)| id.clone()).collect();
        for (ws, _) in &mut clients[..2] {
            ws.join("chat");
        }
        let mut watcher = Watcher::new(&server, "chat");
        // The watcher is a member as well.
        assert!(ask(&mut watcher.ws, json!({"room": "chat"}))["version"].is_u64());
        while watcher.members.len() < 3 {
            watcher.notice();
        }
        let own = watcher.members.iter().find(|id| !ids.contains(id)).unwrap().clone();
        clients[2].0.ask(json!({"type": "subscribe", "room": "chat"}));
        watcher.until(&[&ids[0], &ids[1], &ids[2], &own]);
        clients[0].0.ask(json!({"type": "unsubscribe", "room": "chat"}));
        watcher.until(&[&ids[1], &ids[2], &own]);
        // An anonymous session leaves when its connection ends.
        drop(clients.remove(1));
        watcher.until(&[&ids[2], &own]);
        // Other clients request pages. No notice follows.
        let (ws, _) = &mut clients[0];
        let first = ask(ws, json!({"room": "chat", "limit": 1}));
        assert_eq!((&first["count"], first["version"].is_null()), (&json!(2), true), "{first}");
        let next = &first["next"];
        assert_eq!(next, &first["members"][0]["session"]);
        let second = ask(ws, json!({"room": "chat", "limit": 5, "after": next}));
        assert!(second["next"].is_null());
        let listed = &sessions(&first["members"]) | &sessions(&second["members"]);
        assert_eq!(listed, watcher.members);
        let since = first["members"][0]["since"].as_u64().unwrap();
        assert!(since > 1_700_000_000_000, "milliseconds since 1970: {since}");
        let count = ask(ws, json!({"room": "chat", "members": false}));
        assert_eq!(count, json!({"type": "presence", "id": "q", "room": "chat", "count": 2, "members": []}));
        // Sessions that have left, or have unsubscribed from presence, receive no notices.
        watcher.ws.ask(json!({"type": "subscribe", "room": "chat", "presence": false}));
        let mut other = Watcher::new(&server, "chat");
        ws.join("chat");
        while !other.members.contains(&ids[0]) {
            other.notice();
        }
        let seen = watcher.ws.fence();
        assert!(seen.iter().all(|seen| !format!("{seen:?}").contains("joined")), "{seen:?}");
    });
}

#[test]
fn many_lists_take_many_turns() {
    let server = Server::start(1, |options| {
        with_presence(options);
        options.limits.send_buffer_bytes_max = 64 << 20;
    });
    let _members: Vec<Ws> = (0..40).map(|_| server.member("chat")).collect();
    let (mut ws, _) = client(&server);
    server.stop_core(0, true);
    for n in 0..500 {
        ws.send_json(json!({"type": "presence", "room": "chat", "id": n}));
    }
    server.stop_core(0, false);
    for n in 0..500 {
        let list = next_of(&mut ws, "presence");
        assert_eq!((&list["id"], list["members"].as_array().unwrap().len()), (&json!(n), 40));
    }
    server.until_metric("command_yields", |yields| yields > 0);
}

#[test]
fn rooms_without_presence_are_counted() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_presence);
        let mut clients: Vec<Ws> = (0..5).map(|_| server.member("other")).collect();
        let ws = &mut clients[0];
        let answer = ask(ws, json!({"room": "other"}));
        assert_eq!(answer, json!({"type": "presence", "id": "q", "room": "other", "count": 5}));
        let answer = ask(ws, json!({"room": "nobody"}));
        assert_eq!(answer["count"], 0);
        ws.send_json(json!({"type": "subscribe", "room": "new", "presence": true}));
        let refused = next_of(ws, "error");
        assert_eq!(refused["code"], "no_presence");
        assert_eq!(ask(ws, json!({"room": "new"}))["count"], 0, "it isn't a member either");
        for bad in [json!({"feed": "a"}), json!({}), json!({"room": "chat", "after": "x"})] {
            assert_eq!(ask(ws, bad.clone())["code"], "bad_request", "{bad}");
        }
    });
}

/// An authorizer that allows joining rooms, but not listing members.
#[derive(Debug)]
struct NoPresence;

impl Authorizer for NoPresence {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        match question.access {
            Access::Presence(Topic::Room(room)) if room.name() == "chat/later" => Decision::Pending,
            Access::Presence(_) => Decision::Deny(Denial::new("not_allowed", "who is here is secret")),
            _ => Decision::Allow,
        }
    }
}

#[test]
fn a_client_without_the_permission_receives_the_number_of_members() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| {
            with_presence(options);
            options.authorizer = Some(Arc::new(NoPresence));
            options.limits.decision_timeout = Duration::from_millis(1);
        });
        let mut ws = server.client();
        for (question, code) in [
            (json!({"room": "chat"}), "not_allowed"),
            (json!({"room": "chat", "members": false}), "not_allowed"),
            (json!({"room": "chat/later"}), "unavailable"),
        ] {
            assert_eq!(ask(&mut ws, question.clone())["code"], code, "{question}");
        }
        ws.send_json(json!({"type": "subscribe", "room": "chat", "presence": true}));
        assert_eq!(next_of(&mut ws, "error")["code"], "not_allowed");
        ws.join("chat");
        assert_eq!(ask(&mut ws, json!({"room": "chat"}))["code"], "not_allowed");
        assert_eq!(ask(&mut ws, json!({"room": "chat", "members": false}))["count"], 1);
        let mut io = Io::socket(&server, Way::Socket);
        io.connect("", Value::Null);
        let answer = io.ask("stentor:presence", &[json!("chat")])[0].take();
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("not_allowed")));
    });
}

#[test]
fn socketio_clients_ask_by_an_event_and_are_notified_by_it() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_presence);
        let mut io = Io::socket(&server, Way::Socket);
        let id = io.connect("", Value::Null)["sid"].as_str().unwrap().to_owned();
        let subscribe = [json!("chat"), json!({"subscribe": true})];
        let refused = io.ask("stentor:presence", &subscribe)[0].take();
        assert_eq!(refused["code"], "not_allowed", "{refused}");
        assert_eq!(io.ask("join", &[json!("chat")])[0], json!({"ok": true}));
        let answer = io.ask("stentor:presence", &subscribe)[0].take();
        assert_eq!(answer["ok"], true);
        let mut members = sessions(&answer["members"]);
        let (mut ws, session) = client(&server);
        ws.join("chat");
        while members != [id.clone(), session.clone()].into() {
            let event = io.event();
            assert_eq!((&event[0], &event[1]["room"]), (&json!("stentor:presence"), &json!("chat")));
            members.extend(sessions(&event[1]["joined"]));
        }
        drop(ws);
        let event = io.event();
        assert_eq!(event[1]["left"], json!([{"session": session}]), "{event}");
        assert_eq!(event[1]["count"], 1);
        assert_eq!(io.ask("stentor:presence", &[json!(7)])[0]["code"], "bad_request");
    });
}

#[test]
fn a_client_that_joins_and_leaves_a_thousand_rooms_delays_no_others() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_presence);
        let mut watcher = Watcher::new(&server, "chat/7");
        let mut ws = server.client();
        let begun = now();
        for _ in 0..10 {
            for verb in ["subscribe", "unsubscribe"] {
                for n in 0..900 {
                    ws.send_json(json!({"type": verb, "room": format!("chat/{n}"), "id": n}));
                }
            }
            ws.fence();
        }
        drop(ws);
        let (mut last, id) = client(&server);
        last.join("chat/7");
        let mut notices = 0;
        while !watcher.members.contains(&id) || watcher.members.len() != 2 {
            watcher.notice();
            notices += 1;
        }
        let elapsed = now() - begun;
        assert!(notices <= 2 + elapsed.as_millis() / 100, "{notices} in {elapsed:?}");
        assert_eq!(ask(&mut last, json!({"room": "chat/7"}))["count"], 2);
        server.until_metric("presence_members", |members| members == 2);
    });
}

#[test]
fn notices_of_many_members_are_truncated() {
    let server = Server::start(2, with_presence);
    let mut watcher = Watcher::new(&server, "chat");
    let mut clients = server.clients(400);
    for ws in &mut clients {
        ws.send_json(json!({"type": "subscribe", "room": "chat"}));
    }
    let mut more = 0;
    loop {
        let notice = next_of(&mut watcher.ws, "presence");
        assert!(notice["joined"].as_array().unwrap().len() <= 100);
        more += notice["more"].as_u64().unwrap_or(0);
        if notice["count"] == 401 {
            break;
        }
    }
    // The pages together have all members.
    let mut all = BTreeSet::new();
    let mut after = Value::Null;
    loop {
        let page = ask(&mut watcher.ws, json!({"room": "chat", "after": after}));
        assert!(page["version"].is_u64());
        all.append(&mut sessions(&page["members"]));
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    assert_eq!(all.len(), 401);
    server.until_metric("presence_changes_truncated", |truncated| truncated == more);
    // Memory is charged while the members are in the room.
    let full = server.metric("memory_bytes{presence}");
    assert!(full > 401 * 100, "{full}");
    drop(clients);
    drop(watcher);
    server.until_metric("presence_members", |members| members == 0);
}
