//! Users that an authenticating proxy names. `crates/session/src/proxy_users.rs` has the table of forged headers.

use super::{IdentityFilter, Issuer, Node, PAGE, RecheckAction, subscribe};
use crate::harness::{HOUR, Ws, pass, request};
use std::time::Duration;
use stentor_edge::{Options, Origins, ProxyUsers};
use stentor_ports::Networks;

const ANN: (&str, &str) = ("X-Forwarded-User", "ann");
const BOB: (&str, &str) = ("X-Forwarded-User", "bob");
const MINUTE: Duration = Duration::from_secs(60);

/// A proxy in this network names users.
fn named_by(network: &str) -> impl Fn(&mut Options) {
    let from = Networks::parse(&[network]).unwrap();
    move |options| {
        options.tokens.proxy = Some(ProxyUsers {
            user_header: "X-Forwarded-User".into(),
            groups_header: Some("X-Forwarded-Groups".into()),
            from: from.clone(),
            secret: None,
        });
        options.proxies.trusted = Networks::parse(&["127.0.0.0/8"]).unwrap();
    }
}

fn start(lets_anonymous_in: bool, set: impl FnOnce(&mut Options)) -> Node {
    let node = Node::start(1, Issuer { lets_anonymous_in, ..Issuer::default() }, set);
    node.document("public", "1");
    node
}

fn lines(headers: &[(&str, &str)]) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

/// The status of requests over HTTP, and of WebSockets or the code with which they are closed.
fn outcomes(node: &Node, headers: &[(&str, &str)], are_accepted: bool) -> [u16; 2] {
    let same = |mut all: Vec<u16>| {
        all.dedup();
        assert_eq!(all.len(), 1, "{headers:?}: {all:?}");
        all[0]
    };
    let requests =
        ["/feed/public", "/sse/public", "/ndjson", "/engine.io/?EIO=4&transport=polling"].map(|target| {
            let mut http = node.http();
            http.send(request("GET", target, &lines(headers)));
            http.next_bytes("HTTP/1.1 200".len())[9..].parse().unwrap()
        });
    let sockets = ["/ws", "/ws/public", "/primus/", "/sockjs/websocket"].map(|target| {
        match Ws::open(node.addr, target, headers, false) {
            Err(status) => status,
            Ok(_) if are_accepted => 101,
            Ok(mut ws) => ws.skip_to_close(),
        }
    });
    [same(requests.to_vec()), same(sockets.to_vec())]
}

#[test]
fn the_proxy_names_the_user_of_every_protocol() {
    let node = start(false, named_by("127.0.0.0/8"));
    for accepted in [
        &[ANN, PAGE][..],
        &[ANN, ("Sec-Fetch-Site", "same-origin")],
        // A token of the same user.
        &[PAGE, ANN, ("Authorization", "Bearer ann")],
    ] {
        assert_eq!(outcomes(&node, accepted, true), [200, 101], "{accepted:?}");
    }
    for (refused, expect) in [
        // Without a user.
        (&[PAGE][..], [401, 4408]),
        (&[PAGE, ("X-Forwarded-User", "")], [401, 4408]),
        // Programs send no origin, like pages of other sites in old browsers.
        (&[ANN], [401, 401]),
        (&[ANN, ("Sec-Fetch-Site", "cross-site")], [401, 401]),
        // Beside the proxy's own header.
        (&[PAGE, ANN, ANN], [401, 401]),
        (&[PAGE, ANN, ("X_Forwarded_User", "eve")], [401, 401]),
        (&[PAGE, ANN, ("X-Forwarded_Groups", "admin")], [401, 401]),
        // A token of another user, and one that isn't valid.
        (&[PAGE, ANN, ("Authorization", "Bearer bob")], [401, 4408]),
        (&[PAGE, ANN, ("Authorization", "Bearer bad")], [401, 4408]),
        (&[PAGE, ANN, ("Cookie", "session=bob")], [401, 4408]),
    ] {
        assert_eq!(outcomes(&node, refused, false), expect, "{refused:?}");
    }
}

#[test]
fn the_user_is_never_that_of_a_token() {
    let node = start(false, named_by("127.0.0.0/8"));
    let mut by_proxy = Ws::open(node.addr, "/ws", &[ANN, PAGE], false).unwrap();
    let with_token = [ANN, PAGE, ("Authorization", "Bearer ann")];
    let mut by_both = Ws::open(node.addr, "/ws", &with_token, false).unwrap();
    let by_token = node.user("ann");
    for ws in [&mut by_proxy, &mut by_both] {
        assert_eq!(ws.next_json()["type"], "welcome");
        assert_eq!(subscribe(ws, "user:ann"), "ok");
        ws.send_json(serde_json::json!({"type": "auth", "token": "ann.9999999999"}));
        assert_eq!(ws.next_json()["code"], "not_allowed");
    }
    let of = |issuer: &str| IdentityFilter {
        issuer: Some(issuer.into()),
        subject: Some("ann".into()),
        ..IdentityFilter::default()
    };
    assert_eq!(node.recheck(of("proxy"), RecheckAction::Disconnect).sessions, 2);
    assert_eq!(node.recheck(of("https://id.example.com"), RecheckAction::Disconnect).sessions, 1);
    drop(by_token);
}

#[test]
fn pages_of_other_sites_do_not_act_for_the_user() {
    let node = start(true, |options| {
        named_by("127.0.0.0/8")(options);
        options.origins = Origins::parse(&["*"]).unwrap();
    });
    let own = format!("http://{}", node.addr);
    for (origin, expect) in [("https://evil.test", "not_allowed"), ("null", "not_allowed"), (&*own, "ok")] {
        let mut ws = Ws::open(node.addr, "/ws", &[ANN, ("Origin", origin)], false).unwrap();
        assert_eq!(ws.next_json()["type"], "welcome", "{origin}");
        assert_eq!(subscribe(&mut ws, "user:ann"), expect, "{origin}");
    }
}

#[test]
fn only_the_other_end_of_the_socket_counts() {
    // Not from the proxy, whatever address a header states.
    for network in ["192.0.2.0/24", "10.0.0.0/8"] {
        let node = start(true, named_by(network));
        for header in
            [ANN, ("X-Forwarded-User", ""), ("X_Forwarded_User", "ann"), ("X-Forwarded-Groups", "admin")]
        {
            let headers = [header, PAGE, ("X-Forwarded-For", "192.0.2.1")];
            assert_eq!(outcomes(&node, &headers, false), [401, 401], "{network} {header:?}");
        }
        // The server's health is no secret.
        assert_eq!(node.get("/healthz", &[ANN]).status, 200);
    }
    // Nor does an address that the PROXY protocol states, but that of its sender does.
    for (network, status) in [("192.0.2.0/24", 401), ("127.0.0.0/8", 200)] {
        let node = start(true, |options| {
            named_by(network)(options);
            options.proxy_protocol = true;
        });
        let mut http = node.http();
        http.send("PROXY TCP4 192.0.2.1 127.0.0.1 1 80\r\n");
        http.send(request("GET", "/feed/public", &lines(&[ANN, PAGE])));
        assert_eq!(http.response().status, status, "{network}");
    }
}

#[test]
fn a_session_keeps_the_user_of_its_first_request_until_its_lifetime_ends() {
    let node = start(true, |options| {
        named_by("127.0.0.0/8")(options);
        options.heartbeat.interval = HOUR;
    });
    let open = |headers: &[(&str, &str)]| {
        let opened = node.get("/engine.io/?EIO=4&transport=polling", headers);
        let sid = opened.text().split('"').nth(3).unwrap().to_owned();
        format!("/engine.io/?EIO=4&transport=polling&sid={sid}")
    };
    let post = |target: &str, headers: &[(&str, &str)]| {
        let head = request("POST", target, &(lines(headers) + "Content-Length: 2\r\n"));
        node.ask(head + "4a").status
    };
    let session = open(&[ANN, PAGE]);
    for (headers, expect) in [
        (&[ANN, PAGE][..], 200),
        (&[PAGE], 200),
        (&[BOB, PAGE], 403),
        (&[ANN, ANN, PAGE], 401),
        (&[ANN, PAGE, ("Authorization", "Bearer ann.9999999999")], 200),
        (&[ANN, PAGE, ("Authorization", "Bearer bob")], 401),
        (&[PAGE, ("Authorization", "Bearer ann")], 403),
    ] {
        assert_eq!(post(&session, headers), expect, "{headers:?}");
    }
    // An anonymous session stays one.
    let anonymous = open(&[PAGE]);
    assert_eq!((post(&anonymous, &[PAGE]), post(&anonymous, &[ANN, PAGE])), (200, 403));
    drop(session);
    let mut ws = Ws::open(node.addr, "/ws", &[ANN, PAGE], false).unwrap();
    assert_eq!(ws.next_json()["type"], "welcome");
    pass(15 * MINUTE);
    assert_eq!(ws.skip_to_close(), 4505);
}
