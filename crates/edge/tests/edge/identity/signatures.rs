//! Signatures count as work of a core's turn, with one bound for all connections.

use crate::harness::{Http, Server, advance, pass, request};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stentor_ports::{
    Asking, Authentication, Authenticator, Authorizer, Credentials, Decision, Denial, Identity, Question,
    SignatureWork,
};

/// Time that the tests' signatures take. A turn has 2 ms for all of them.
const SIGNATURE: Duration = Duration::from_millis(1);

/// An authenticator. `known` is in its cache, tokens that begin with `bad` are refused, and all others are accepted.
#[derive(Debug, Default)]
struct Verifier {
    canary: Arc<Canary>,
}

impl Authenticator for Verifier {
    fn authenticate(
        &self,
        _: Asking<'_>,
        credentials: &Credentials<'_>,
        work: &mut SignatureWork,
    ) -> Authentication {
        let token = credentials.token.unwrap();
        if token != "known" {
            if !work.take(SIGNATURE) {
                return Authentication::Postponed;
            }
            self.canary.signatures.fetch_add(1, Ordering::Relaxed);
        }
        if token.starts_with("bad") {
            return Authentication::Refused(Denial::new("token_invalid", "the signature is wrong"));
        }
        Authentication::Accepted(Arc::new(Identity::anonymous(self.canary.clone())))
    }
}

/// An authorizer that allows all actions and records the number of signatures before the last question.
#[derive(Debug, Default)]
struct Canary {
    signatures: AtomicU64,
    before_question: AtomicU64,
}

impl Authorizer for Canary {
    fn authorize(&self, _: &Question<'_>) -> Decision {
        self.before_question.store(self.signatures.load(Ordering::Relaxed), Ordering::Relaxed);
        Decision::Allow
    }
}

#[test]
fn a_turn_verifies_few_tokens_whatever_the_number_of_connections() {
    const CONNECTIONS: usize = 100;
    let verifier = Verifier::default();
    let canary = verifier.canary.clone();
    let server = Server::start(1, |options| options.authenticator = Some(Arc::new(verifier)));
    let mut ws = server.ws("/ws?token=known");
    assert_eq!(ws.next_json()["type"], "welcome");
    // All requests, each with a wrong token, have arrived before the core continues.
    let mut all: Vec<Http> = (0..CONNECTIONS).map(|_| server.http()).collect();
    server.stop_core(0, true);
    for (n, http) in all.iter_mut().enumerate() {
        http.send(request("GET", &format!("/sse?feed=a&token=bad{n}"), ""));
    }
    ws.send_json(json!({"type": "subscribe", "room": "canary"}));
    // All data is in the server's sockets.
    pass(Duration::from_secs(1));
    server.stop_core(0, false);
    let mut before = 0;
    while before < CONNECTIONS as u64 {
        advance();
        let now = canary.signatures.load(Ordering::Relaxed);
        assert!(now - before <= 2, "{} signatures in a turn", now - before);
        before = now;
    }
    assert_eq!(ws.next_json()["type"], "ok");
    let before = canary.before_question.load(Ordering::Relaxed);
    assert!(before <= 4, "{before} signatures before a message of another client");
    for http in &mut all {
        assert_eq!(http.response().status, 401);
    }
    assert_eq!(canary.signatures.load(Ordering::Relaxed), CONNECTIONS as u64, "each token is verified once");
    drop(all);
    server.until_metric("decisions_pending", |pending| pending == 0);
    server.until_metric("memory_bytes{decisions}", |bytes| bytes == 0);
}
