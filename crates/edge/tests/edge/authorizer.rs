//! Permissions: what clients are told that may not subscribe or publish, over several protocols.

use crate::harness::{Io, Server, Way, on_one_and_three};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_edge::{Access, Authorizer, Decision, Denial, Options, PublicId, Question, Rule, Template};
use stentor_hub::Topic;

/// Topics whose names begin with `secret` are for nobody, with `later` it isn't known yet; `listen` may only be
/// subscribed to.
#[derive(Debug, Default)]
struct ByName(Mutex<Vec<PublicId>>);

impl Authorizer for ByName {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        self.0.lock().unwrap().extend(question.session);
        let name = match question.access {
            Access::Subscribe(Topic::Feed(key)) => key.as_str(),
            Access::Subscribe(Topic::Room(room)) | Access::Publish(room) => room.name(),
            Access::Connect { namespace } => namespace.trim_start_matches('/'),
            other => panic!("nobody asks for {other:?} yet"),
        };
        match (name, question.access) {
            ("listen", Access::Publish(_)) => {
                Decision::Deny(Denial::new("only_listen", "only \"listening\""))
            }
            _ if name.starts_with("secret") => Decision::Deny(Denial::new("not_allowed", "this is secret")),
            _ if name.starts_with("later") => Decision::Pending,
            _ => Decision::Allow,
        }
    }
}

fn guarded(authorizer: &Arc<ByName>) -> impl FnOnce(&mut Options) {
    let authorizer = authorizer.clone();
    move |options| {
        options.authorizer = Some(authorizer);
        options.rooms.publish = true;
        // Nobody answers later.
        options.limits.decision_timeout = Duration::from_millis(1);
        let rule = |event: &str| Rule { event: event.into(), ack: true, ..Rule::default() };
        let first = || vec![Template::parse("{}").unwrap()];
        options.rooms.rules =
            vec![Rule { join: first(), ..rule("join") }, Rule { broadcast: first(), ..rule("say") }];
    }
}

#[test]
fn a_plain_client_is_told_what_it_may_not_do() {
    on_one_and_three(|cores| {
        let authorizer = Arc::default();
        let server = Server::start(cores, guarded(&authorizer));
        let mut ws = server.ws("/ws");
        let id = ws.next_json()["session"].as_str().unwrap().to_owned();
        ws.ask(json!({"type": "subscribe", "room": "listen"}));
        let mut refused = |message: Value, code: &str, text: &str, retry: bool| {
            ws.send_json(message);
            ws.expect_json(json!({"type": "error", "code": code, "message": text, "retry": retry}));
        };
        refused(json!({"type": "subscribe", "room": "secret"}), "not_allowed", "this is secret", false);
        refused(json!({"type": "subscribe", "feed": "secret/1"}), "not_allowed", "this is secret", false);
        refused(
            json!({"type": "publish", "room": "secret", "data": 1}),
            "not_allowed",
            "this is secret",
            false,
        );
        refused(
            json!({"type": "publish", "room": "listen", "data": 1}),
            "only_listen",
            "only \"listening\"",
            false,
        );
        let later = "it isn't known yet whether this is allowed; try again later";
        refused(json!({"type": "subscribe", "room": "later"}), "unavailable", later, true);
        // A backend may publish to what clients may not, and nothing was subscribed to.
        server.publish("secret", "1");
        server.publish("listen", "2");
        ws.expect_json(json!({"type": "message", "room": "listen", "data": 2}));
        assert!(authorizer.0.lock().unwrap().iter().all(|asked| asked.to_string() == id));
    });
}

#[test]
fn a_socketio_client_is_told_what_a_rule_may_not_do() {
    on_one_and_three(|cores| {
        let authorizer = Arc::default();
        let server = Server::start(cores, guarded(&authorizer));
        let mut io = Io::socket(&server, Way::Polling);
        let id = io.connect("", Value::Null)["sid"].as_str().unwrap().to_owned();
        let failed = |code: &str, message: &str| json!([{"ok": false, "code": code, "message": message}]);
        assert_eq!(io.ask("join", &["listen".into()]), json!([{"ok": true}]));
        assert_eq!(io.ask("join", &["secret".into()]), failed("not_allowed", "this is secret"));
        assert_eq!(io.ask("say", &["secret".into()]), failed("not_allowed", "this is secret"));
        assert_eq!(io.ask("say", &["listen".into()]), failed("only_listen", "only \"listening\""));
        assert_eq!(io.ask("subscribe", &["secret/1".into()]), failed("not_allowed", "this is secret"));
        assert_eq!(io.ask("subscribe", &["scores/1".into()]), json!([{"ok": true}]));
        assert!(authorizer.0.lock().unwrap().iter().all(|asked| asked.to_string() == id));
    });
}

#[test]
fn every_route_to_a_feed_asks() {
    on_one_and_three(|cores| {
        let authorizer = Arc::default();
        let server = Server::start(cores, guarded(&authorizer));
        for target in ["/ws/secret/1", "/ws?feed=secret/1", "/sockjs/websocket?feed=secret/1"] {
            let mut ws = server.ws(target);
            assert_eq!(ws.skip_to_close(), 4406, "{target}");
        }
        // A permission that isn't known yet is asked for again when the client is back.
        assert_eq!(server.ws("/ws/later/1").skip_to_close(), 4502);
        for (target, status) in
            [("/feed/secret/1", 403), ("/feed/later/1", 503), ("/sse/secret/1", 403), ("/sse/later/1", 503)]
        {
            assert_eq!(server.http().get(target).status, status, "{target}");
        }
        let frame = |mut http: crate::harness::Http| {
            http.send(crate::harness::io::post("/sockjs/feed/secret/1/0/x/xhr", "text/plain", b""));
            http.response().text().to_owned()
        };
        assert_eq!(frame(server.http()), "o\n");
        assert_eq!(frame(server.http()), "c[4406,\"the client may not subscribe to this\"]\n");
        assert_eq!(server.disconnects("not_allowed"), 4);
    });
}

#[test]
fn a_client_may_be_refused_at_connect() {
    on_one_and_three(|cores| {
        let authorizer = Arc::default();
        let server = Server::start(cores, guarded(&authorizer));
        let mut io = Io::socket(&server, Way::Socket);
        io.send("40/secret,");
        io.expect(r#"44/secret,{"message":"this is secret","data":{"code":"not_allowed","retry":false}}"#);
        assert!(io.connect("", Value::Null)["sid"].is_string());
    });
}
