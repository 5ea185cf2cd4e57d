//! Users join many rooms with presence until the memory budget is used up, and leave. The heap memory stays near the
//! charged memory, and is freed afterwards. There is one test, so that no other test runs in this process, because
//! memory is measured per process.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // Tests may panic, and say what they found.

mod harness;

use cap::Cap;
use harness::{HOUR, Server, Ws, pass};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::{
    Asking, Authentication, Authenticator, Authorizer, Credentials, Decision, Identity, Principal, Question,
    SignatureWork,
};

/// The server's allocator, counted.
#[global_allocator]
static ALLOCATOR: Cap<mimalloc::MiMalloc> = Cap::new(mimalloc::MiMalloc, usize::MAX);

const BUDGET: usize = 16 << 20;
const ROOMS: usize = 1_000;
/// Number of rooms that a client joins before it waits for the answers.
const ROOMS_AT_ONCE: usize = 20;
/// Limit for a member and its room in presence, without texts, in bytes.
const MEMBER_BYTES_MAX: usize = 300;
const GRACE: Duration = Duration::from_secs(5);

/// An authenticator and authorizer. A token is the name of a user. Users may do anything.
#[derive(Debug)]
struct Tokens;

impl Authorizer for Tokens {
    fn authorize(&self, _: &Question<'_>) -> Decision {
        Decision::Allow
    }
}

impl Authenticator for Tokens {
    fn authenticate(
        &self,
        _: Asking<'_>,
        credentials: &Credentials<'_>,
        _: &mut SignatureWork,
    ) -> Authentication {
        let anonymous = Identity::anonymous(Arc::new(Self));
        let subject = credentials.token.unwrap().into();
        let principal = Some(Principal { issuer: "issuer".into(), subject });
        let info = Some(r#"{"name":"Ada Lovelace"}"#.into());
        Authentication::Accepted(Arc::new(Identity { principal, info, ..anonymous }))
    }
}

/// Connects users that each join [`ROOMS`] rooms of their own, until the server refuses a connection because memory is
/// short.
fn join_until_refused(server: &Server) -> Vec<Ws> {
    let mut clients = Vec::new();
    loop {
        let user = clients.len();
        let target = format!("/ws?token=user-{user}");
        let Ok(mut ws) = Ws::open_if_accepted(server.addr, &target, false) else { return clients };
        ws.next_json();
        // The client's queue of received messages stays small, because it is part of the measured memory.
        for first in (0..ROOMS).step_by(ROOMS_AT_ONCE) {
            for n in first..first + ROOMS_AT_ONCE {
                ws.send_json(json!({"type": "subscribe", "room": format!("chat/{user}/{n}")}));
            }
            for _ in 0..ROOMS_AT_ONCE {
                ws.next_json();
            }
        }
        clients.push(ws);
    }
}

#[test]
fn rooms_with_presence_take_the_charged_memory_and_free_it() {
    let server = Server::start(1, |options| {
        options.limits.memory_bytes_max = BUDGET;
        options.heartbeat.interval = HOUR;
        options.limits.idle_timeout = HOUR;
        options.rooms.presence.rooms = vec!["chat".to_owned()];
        options.rooms.presence.grace = GRACE;
        options.authenticator = Some(Arc::new(Tokens));
    });
    // The first client makes the memory of threads, allocator and buffers grow.
    drop(server.ws("/ws?token=warm"));
    server.until_metric("sessions", |sessions| sessions == 0);
    pass(2 * GRACE);
    let before = ALLOCATOR.allocated();
    let check = |when: &str, least: usize, most: usize| {
        let taken = ALLOCATOR.allocated().saturating_sub(before);
        let charged = server.metric("memory_bytes") as usize;
        eprintln!("{when}: {taken} bytes, {charged} charged");
        assert!((least..most).contains(&taken), "{when}: {taken} bytes");
        assert!((least..most).contains(&charged), "{when}: {charged} bytes charged");
    };
    let near_budget = (BUDGET * 7 / 8, BUDGET * 9 / 8);
    for _ in 0..3 {
        let clients = join_until_refused(&server);
        let memberships = clients.len() * ROOMS;
        let each = server.metric("memory_bytes{presence}") as usize / memberships;
        eprintln!("{memberships} members of as many rooms, {each} bytes of presence for each");
        check("joined", near_budget.0, near_budget.1);
        assert!((MEMBER_BYTES_MAX / 2..=MEMBER_BYTES_MAX).contains(&each), "{each} bytes for each");
        drop(clients);
        server.until_metric("sessions", |sessions| sessions == 0);
        check("gone", 0, near_budget.1);
        pass(2 * GRACE);
        check("after the grace", 0, 256 << 10);
    }
}
