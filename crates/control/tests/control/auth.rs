//! Tests of clients' tokens: fetched keys, failing or malicious issuers, permissions, revocations.

use crate::common::{Answer, Rig, bare, counted, http, ok, patiently, raw, script, with};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stentor_auth::{Actions, Algorithm, Key, Recipients, Rule, SigningKey};
use stentor_control::{Auth, AuthOptions, HookAuthenticator, HookKind, HookOptions, Hooks, IssuerOptions};
use stentor_hub::{Room, Topic};
use stentor_ports::{
    Access, Answers, Asking, Authentication, Authenticator, Busy, ClientFacts, Credentials, Decision,
    Identity, LazyRooms, Ledger, Principal, ProxyUser, Question, SignatureWork, Ticket,
};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

const SECRET: [u8; 32] = [7; 32];

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Makes a random private key (PEM).
fn private_key() -> String {
    let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let der = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()))
}

/// Makes a key pair of an issuer.
fn pair(id: &str) -> SigningKey {
    SigningKey::es256(Some(id), &private_key()).unwrap()
}

/// Makes an issuer's response with this key.
fn set(pair: &SigningKey) -> Answer {
    ok(&json!({"keys": [pair.public_jwk().unwrap()]}).to_string())
}

fn secret() -> SigningKey {
    SigningKey::secret(&Key::secret(None, &SECRET).unwrap(), Algorithm::Hs256).unwrap()
}

/// Makes a token of `issuer` for `subject`, valid for an hour.
fn token(key: &SigningKey, issuer: &str, subject: &str) -> String {
    token_with(key, issuer, subject, &json!({}))
}

/// Like [`token`], with further claims.
fn token_with(key: &SigningKey, issuer: &str, subject: &str, more: &Value) -> String {
    let mut claims =
        json!({"iss": issuer, "sub": subject, "aud": "stentor", "iat": now(), "exp": now() + 3600});
    claims.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    key.sign(claims.as_object().unwrap()).unwrap()
}

fn remote(name: &str, addr: SocketAddr) -> IssuerOptions {
    IssuerOptions {
        name: name.into(),
        audience: Some("stentor".into()),
        algorithms: vec![Algorithm::Es256],
        keys: Vec::new(),
        jwks_url: Some(format!("http://{addr}/keys")),
    }
}

fn local(name: &str) -> IssuerOptions {
    IssuerOptions {
        algorithms: vec![Algorithm::Hs256],
        keys: vec![Key::secret(None, &SECRET).unwrap()],
        jwks_url: None,
        ..remote(name, SocketAddr::from(([127, 0, 0, 1], 1)))
    }
}

fn rule(topics: &[&str], allow: &[&str], to: Recipients) -> Rule {
    Rule::new(topics, &[], &[], None, Actions::parse(allow).unwrap(), to).unwrap()
}

/// Records late answers about credentials: the user, or the code of the refusal.
#[derive(Default)]
struct Identified {
    all: Mutex<Vec<String>>,
    changed: Notify,
}

impl Answers for Identified {
    fn answer(&self, _: Ticket, answer: stentor_ports::Answer) -> Result<(), Busy> {
        let stentor_ports::Answer::Identity(answer) = answer else { panic!("{answer:?}") };
        let text = match answer {
            Ok(identity) => identity.principal.as_ref().unwrap().subject.to_string(),
            Err(denial) => denial.code.into_owned(),
        };
        self.all.lock().unwrap().push(text);
        self.changed.notify_one();
        Ok(())
    }
}

/// Token verification, and its late answers to the clients.
struct Clients {
    auth: Arc<Auth>,
    identified: Arc<Identified>,
    answers: Arc<dyn Answers>,
}

impl Deref for Clients {
    type Target = Arc<Auth>;

    fn deref(&self) -> &Arc<Auth> {
        &self.auth
    }
}

impl Clients {
    /// Waits for `count` late answers and takes them.
    async fn identified(&self, count: usize) -> Vec<String> {
        let take = || {
            let mut all = self.identified.all.lock().unwrap();
            (all.len() >= count).then(|| std::mem::take(&mut *all))
        };
        let look = async {
            loop {
                if let Some(all) = take() {
                    return all;
                }
                self.identified.changed.notified().await;
            }
        };
        patiently("answers", look).await
    }
}

fn auth(options: &AuthOptions) -> Clients {
    let auth = Auth::new(options, &Arc::new(Ledger::new(usize::MAX))).unwrap();
    let identified = Arc::<Identified>::default();
    Clients { auth, answers: identified.clone(), identified }
}

fn issuers(issuers: Vec<IssuerOptions>) -> Clients {
    auth(&AuthOptions { issuers, ..AuthOptions::default() })
}

fn ask(auth: &Clients, token: Option<&str>) -> Authentication {
    ask_within(auth, token, &mut SignatureWork::new(Duration::MAX))
}

fn ask_within(auth: &Clients, token: Option<&str>, work: &mut SignatureWork) -> Authentication {
    let asking = Asking::new(Ticket::for_test(1), &auth.answers);
    auth.authenticate(
        asking,
        &Credentials { user: None, token, client: ClientFacts::default(), session: None },
        work,
    )
}

/// Verifies a token. Returns the user, the code of the refusal, or `pending`.
fn outcome(auth: &Clients, token: &str) -> String {
    match ask(auth, Some(token)) {
        Authentication::Accepted(identity) => identity.principal.as_ref().unwrap().subject.to_string(),
        Authentication::Refused(denial) => denial.code.into_owned(),
        Authentication::Pending => "pending".into(),
        Authentication::Postponed => "postponed".into(),
    }
}

fn identity(auth: &Clients, token: Option<&str>) -> Arc<Identity> {
    match ask(auth, token) {
        Authentication::Accepted(identity) => identity,
        other => panic!("{other:?}"),
    }
}

fn may(identity: &Identity, access: Access<'_>) -> bool {
    let answers: Arc<dyn Answers> = Arc::<Identified>::default();
    let asking = Asking::new(Ticket::for_test(1), &answers);
    let question = Question {
        asking,
        session: None,
        rooms: LazyRooms::NONE,
        source: 0,
        identity: Some(identity),
        access,
    };
    match identity.authorizer.authorize(&question) {
        Decision::Allow => true,
        Decision::Deny(denial) => {
            assert_eq!(denial.code, "not_allowed");
            false
        }
        Decision::Pending => panic!("rules need no time"),
    }
}

impl Rig {
    async fn revoke(&self, body: &Value) -> (u16, String) {
        self.post("/api/v1/revocations", &body.to_string()).await
    }
}

/// Starts a control plane while a client waits for its issuer's keys, and asserts the client's late answer.
async fn started(auth: &Clients, token: &str, expect: &str) -> Rig {
    assert_eq!(outcome(auth, token), "pending");
    let rig = Rig::auth(auth);
    assert_eq!(auth.identified(1).await, [expect]);
    rig
}

#[tokio::test]
async fn keys_are_fetched_once_for_many_clients() {
    let key = pair("a");
    let answer = set(&key);
    let (addr, fetches) = counted(move |_, request| {
        assert_eq!(request.uri().path(), "/keys");
        std::future::ready(answer.clone())
    })
    .await;
    let auth = issuers(vec![remote("i", addr)]);
    // Clients wait until the issuer's keys are fetched.
    for subject in ["1", "2"] {
        assert_eq!(outcome(&auth, &token(&key, "i", subject)), "pending");
    }
    let rig = Rig::auth(&auth);
    assert_eq!(auth.identified(2).await, ["1", "2"]);
    assert_eq!(outcome(&auth, &token(&key, "i", "3")), "3");
    // Tokens with 3,000 unknown key ids cause no further fetch for a while.
    let other = private_key();
    for n in 0..3000 {
        let key = SigningKey::es256(Some(&format!("forged-{n}")), &other).unwrap();
        assert_eq!(outcome(&auth, &token(&key, "i", "1")), "unavailable");
    }
    assert_eq!(outcome(&auth, &token(&key, "i", "4")), "4");
    assert_eq!(fetches.load(Ordering::SeqCst), 1);
    rig.expect_metrics(&[
        ("stentor_auth_refusals_total{reason=\"unavailable\"}", 3000.0),
        ("stentor_auth_key_fetches_total{issuer=\"i\",outcome=\"ok\"}", 1.0),
        ("stentor_auth_waiting_tokens", 0.0),
    ])
    .await;
}

/// A hook that handles only events isn't asked about clients that wait for their issuer's keys.
#[tokio::test]
async fn clients_that_wait_for_keys_are_answered_without_hooks_about_them() {
    let key = pair("a");
    let answer = set(&key);
    let (addr, _) = counted(move |_, _| std::future::ready(answer.clone())).await;
    let auth = issuers(vec![remote("i", addr)]);
    let events = HookOptions {
        name: "events".into(),
        url: "http://127.0.0.1:1/".into(),
        on: vec![HookKind::Event],
        ..HookOptions::default()
    };
    let hooks = Hooks::new("node", &[events], &Arc::new(Ledger::new(usize::MAX))).unwrap();
    let asking = Asking::new(Ticket::for_test(1), &auth.answers);
    let token = token(&key, "i", "1");
    let credentials =
        Credentials { user: None, token: Some(&token), client: ClientFacts::default(), session: None };
    let authenticator = HookAuthenticator::new(Some(auth.auth.clone()), hooks);
    let outcome = authenticator.authenticate(asking, &credentials, &mut SignatureWork::new(Duration::MAX));
    assert!(matches!(outcome, Authentication::Pending), "{outcome:?}");
    let _rig = Rig::auth(&auth);
    assert_eq!(auth.identified(1).await, ["1"]);
}

/// For each way in which an issuer can fail, its clients are refused as `unavailable`. Clients of another
/// issuer aren't affected.
#[tokio::test]
async fn a_failing_issuer_affects_only_its_clients() {
    async fn check(addr: SocketAddr, outcome: &str) {
        let auth = issuers(vec![remote("broken", addr), local("sound")]);
        assert_eq!(self::outcome(&auth, &token(&secret(), "sound", "2")), "2");
        let rig = started(&auth, &token(&pair("a"), "broken", "1"), "unavailable").await;
        let line = format!("stentor_auth_key_fetches_total{{issuer=\"broken\",outcome=\"{outcome}\"}}");
        assert!(rig.metric(&line).await.is_some_and(|count| count >= 1.0), "{outcome}");
        assert_eq!(self::outcome(&auth, &token(&secret(), "sound", "3")), "3");
    }
    // A port that is bound and doesn't listen refuses connections. Another test could take one that was free.
    let refusing = tokio::net::TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let endless = raw(async |_, mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n{\"keys\":[").await;
        while stream.write_all(&[b' '; 65536]).await.is_ok() {}
        None
    });
    let hanging = raw(async |_, mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").await;
        std::future::pending::<()>().await;
        None
    });
    let elsewhere = with(bare(302), "location", "http://127.0.0.1:1/keys");
    let page = ok("<!doctype html><title>Sign in</title>");
    tokio::join!(
        check(refusing.local_addr().unwrap(), "connect"),
        check(endless.await, "too_large"),
        check(hanging.await, "timeout"),
        check(script(vec![elsewhere]).await, "status"),
        check(script(vec![bare(500)]).await, "status"),
        check(script(vec![page]).await, "invalid"),
        check(script(vec![ok(r#"{"keys":[]}"#)]).await, "invalid"),
    );
}

#[tokio::test]
async fn known_keys_stay_in_use_while_fetches_fail() {
    let (old, new) = (pair("old"), pair("new"));
    let options = AuthOptions {
        issuers: vec![remote("i", script(vec![set(&old), bare(503), set(&new)]).await)],
        jwks_refresh_interval: Duration::from_millis(1),
        ..AuthOptions::default()
    };
    let auth = auth(&options);
    let of_old = token(&old, "i", "1");
    let rig = started(&auth, &of_old, "1").await;
    // The second fetch fails.
    let failures = "stentor_auth_key_fetches_total{issuer=\"i\",outcome=\"status\"}";
    while rig.metric(failures).await.is_none() {}
    assert_eq!(outcome(&auth, &of_old), "1");
    assert_eq!(rig.metric("stentor_auth_tokens_cached_total").await, Some(1.0));
    assert_eq!(outcome(&auth, &token(&old, "i", "2")), "2");
    // Removing and adding the issuer by reloads repeats the fetch. Tokens of the old key are then refused,
    // although they were verified before.
    auth.replace(&AuthOptions { issuers: Vec::new(), ..options.clone() }).unwrap();
    assert_eq!(outcome(&auth, &of_old), "token_invalid");
    auth.replace(&options).unwrap();
    assert_eq!(outcome(&auth, &of_old), "pending");
    assert_eq!(auth.identified(1).await, ["token_invalid"]);
    assert_eq!(outcome(&auth, &token(&new, "i", "3")), "3");
    assert_eq!(auth.generation(), 2);
}

/// A reload that leaves an issuer unchanged doesn't repeat the fetch of its keys. If the issuer changes,
/// clients that wait for its keys are answered at once.
#[tokio::test]
async fn clients_that_wait_for_keys_are_answered_after_a_reload() {
    let key = pair("a");
    let released = Arc::new(tokio::sync::Notify::new());
    let (release, answer) = (released.clone(), set(&key));
    let (addr, fetches) = counted(move |_, _| {
        let (release, answer) = (release.clone(), answer.clone());
        async move {
            release.notified().await;
            answer
        }
    })
    .await;
    let silent = http(async |_, _| std::future::pending().await).await;
    let options = |addr| AuthOptions { issuers: vec![remote("i", addr)], ..AuthOptions::default() };
    let auth = auth(&options(addr));
    let _rig = Rig::auth(&auth);
    let token = token(&key, "i", "1");
    assert_eq!(outcome(&auth, &token), "pending");
    while fetches.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        auth.replace(&options(addr)).unwrap();
        // Lets the task that fetches keys run.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    released.notify_one();
    assert_eq!(auth.identified(1).await, ["1"]);
    assert_eq!(fetches.load(Ordering::SeqCst), 1);
    // The issuer's address never returns keys. A reload then changes the address, and the next reload removes
    // the issuer.
    auth.replace(&options(silent)).unwrap();
    for (next, expected) in [(options(addr), "unavailable"), (AuthOptions::default(), "token_invalid")] {
        let unknown = self::token(&pair("b"), "i", "2");
        assert_eq!(outcome(&auth, &unknown), "pending");
        auth.replace(&next).unwrap();
        assert_eq!(auth.identified(1).await, [expected]);
    }
}

/// If an issuer replaces a key without an id, a token of the new key causes a fetch, at most every 30 s.
#[tokio::test]
async fn keys_without_an_id_are_replaced() {
    let [old, new] = [(); 2].map(|()| SigningKey::es256(None, &private_key()).unwrap());
    let auth = issuers(vec![remote("i", script(vec![set(&old), set(&new)]).await)]);
    let _rig = started(&auth, &token(&old, "i", "1"), "1").await;
    // Less than 30 s after the last fetch, a token of an unknown key is refused without another fetch, since
    // it may be forged.
    assert_eq!(outcome(&auth, &token(&new, "i", "2")), "token_invalid");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert_eq!(outcome(&auth, &token(&new, "i", "3")), "pending");
    assert_eq!(auth.identified(1).await, ["3"]);
    assert_eq!(outcome(&auth, &token(&old, "i", "1")), "token_invalid");
}

/// A token that is being verified while its issuer is removed isn't cached afterwards.
#[test]
fn a_reload_drops_tokens_that_are_being_verified() {
    let with = AuthOptions { issuers: vec![local("i")], ..AuthOptions::default() };
    let without = AuthOptions::default();
    let auth = auth(&without);
    for n in 0..1000 {
        auth.replace(&with).unwrap();
        let token = token(&secret(), "i", &n.to_string());
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| {
                begun.store(true, Ordering::SeqCst);
                outcome(&auth, &token)
            });
            while !begun.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            (0..n % 50 * 20).for_each(|_| std::hint::spin_loop());
            auth.replace(&without).unwrap();
            asks.join().unwrap();
        });
        assert_eq!(outcome(&auth, &token), "token_invalid", "{n}");
    }
}

/// When an issuer withdraws a key, tokens of this key are refused, even if they were verified before.
#[tokio::test]
async fn tokens_of_withdrawn_keys_are_refused() {
    let (old, new) = (pair("old"), pair("new"));
    let auth = auth(&AuthOptions {
        issuers: vec![remote("i", script(vec![set(&old), set(&new)]).await)],
        jwks_refresh_interval: Duration::from_millis(1),
        ..AuthOptions::default()
    });
    let of_old = token(&old, "i", "1");
    let rig = started(&auth, &of_old, "1").await;
    let fetches = "stentor_auth_key_fetches_total{issuer=\"i\",outcome=\"ok\"}";
    while rig.metric(fetches).await < Some(3.0) {}
    assert_ne!(outcome(&auth, &of_old), "1");
}

/// CVE-2026-49998: two issuers use the same key id. A token is verified only with its own issuer's key.
#[tokio::test]
async fn a_key_belongs_to_its_issuer() {
    let (key, other) = (pair("same"), pair("same"));
    let [addr, other_addr] = [script(vec![set(&key)]).await, script(vec![set(&other)]).await];
    let auth = issuers(vec![remote("i", addr), remote("j", other_addr)]);
    assert_eq!(outcome(&auth, &token(&key, "i", "1")), "pending");
    assert_eq!(outcome(&auth, &token(&other, "j", "2")), "pending");
    let rig = Rig::auth(&auth);
    let mut both = auth.identified(2).await;
    both.sort();
    assert_eq!(both, ["1", "2"]);
    // Each token is signed by one issuer and names the other.
    assert_eq!(outcome(&auth, &token(&other, "i", "1")), "token_invalid");
    assert_eq!(outcome(&auth, &token(&key, "j", "2")), "token_invalid");
    // The token names an issuer that isn't configured, and the URL of its keys (`jku`).
    let jku = json!({"jku": "http://127.0.0.1:1/", "aud": "stentor"});
    assert_eq!(outcome(&auth, &token_with(&key, "http://127.0.0.1:1/", "1", &jku)), "token_invalid");
    rig.expect_metrics(&[
        ("stentor_auth_refusals_total{reason=\"signature\"}", 2.0),
        ("stentor_auth_refusals_total{reason=\"issuer\"}", 1.0),
    ])
    .await;
}

#[tokio::test]
async fn rules_and_tokens_determine_the_allowed_actions() {
    let options = AuthOptions {
        issuers: vec![local("i")],
        permissions: vec![
            rule(&["user:{sub}"], &["subscribe", "presence"], Recipients::Users),
            rule(&["public/**"], &["subscribe"], Recipients::Anyone),
        ],
        ..AuthOptions::default()
    };
    let auth = auth(&options);
    assert_eq!(outcome(&auth, "nonsense"), "token_invalid");
    assert!(matches!(ask(&auth, None), Authentication::Refused(denial) if denial.code == "token_missing"));
    let grants = json!({"stentor": {"allow": [{"rooms": ["match:7"], "allow": ["publish"]}], "join": ["lobby"],
                                    "info": {"name": "Ada"}}, "jti": "t"});
    let ada = identity(&auth, Some(&token_with(&secret(), "i", "42", &grants)));
    assert_eq!((ada.token_id.as_deref(), ada.info.as_deref()), (Some("t"), Some(r#"{"name":"Ada"}"#)));
    assert_eq!(ada.join, [Room::plain("lobby").unwrap()]);
    let topic = |name: &str| Topic::Room(Room::plain(name).unwrap());
    let [own, other] = [topic("user:42"), topic("user:43")];
    let [own_room, granted] = ["user:42", "match:7"].map(|name| Room::plain(name).unwrap());
    for (access, expect) in [
        (Access::Subscribe(&own), true),
        (Access::Presence(&own), true),
        (Access::History(&own), false),
        (Access::Subscribe(&other), false),
        (Access::Publish(&granted), true),
        (Access::Publish(&own_room), false),
        (Access::Connect { namespace: "/" }, true),
        (Access::Connect { namespace: "/chat" }, false),
    ] {
        assert_eq!(may(&ada, access), expect, "{access:?}");
    }
    // New rules apply to connected clients.
    let permissions = vec![rule(&["user:*"], &["history"], Recipients::Users)];
    auth.replace(&AuthOptions { permissions, allow_anonymous: true, ..options }).unwrap();
    for (access, expect) in
        [(Access::History(&own), true), (Access::Subscribe(&own), false), (Access::Publish(&granted), true)]
    {
        assert_eq!(may(&ada, access), expect, "{access:?} by the new rules");
    }
    let nobody = identity(&auth, None);
    assert!(nobody.principal.is_none() && !may(&nobody, Access::History(&own)));
}

#[test]
fn a_signature_is_verified_when_the_turn_has_time_for_it_and_only_once() {
    let auth = auth(&AuthOptions { issuers: vec![local("i")], ..AuthOptions::default() });
    let ask = |token: &str, time| match ask_within(&auth, Some(token), &mut SignatureWork::new(time)) {
        Authentication::Postponed => "postponed".to_owned(),
        Authentication::Refused(denial) => denial.code.into_owned(),
        other => format!("{other:?}").split('(').next().unwrap().to_owned(),
    };
    let good = token(&secret(), "i", "42");
    let (message, _) = good.rsplit_once('.').unwrap();
    let bad = format!("{message}.{}", "A".repeat(43));
    for token in [&good, &bad] {
        assert_eq!(ask(token, Duration::ZERO), "postponed");
    }
    // With any time left, a signature is verified. Verified tokens, and tokens that fail before the
    // signature, need no time.
    assert_eq!(ask(&bad, Duration::from_nanos(1)), "token_invalid");
    assert_eq!(ask(&good, Duration::from_nanos(1)), "Accepted");
    assert_eq!(ask(&good, Duration::ZERO), "Accepted");
    for other in [token(&pair("k"), "i", "42"), token(&secret(), "other", "42"), "a.b.c".into()] {
        assert_eq!(ask(&other, Duration::ZERO), "token_invalid");
    }
}

#[tokio::test]
async fn tokens_are_revoked() {
    let auth = issuers(vec![local("i")]);
    let rig = Rig::auth(&auth);
    let of = |subject: &str, id: &str| token_with(&secret(), "i", subject, &json!({"jti": id}));
    let (first, second, other) = (of("42", "a"), of("42", "b"), of("43", "c"));
    let connected = identity(&auth, Some(&first));
    assert_eq!(rig.revoke(&json!({"token_id": "a"})).await, (200, "{\"sessions\":3}\n".into()));
    assert!(auth.is_revoked(&connected));
    assert_eq!(outcome(&auth, &first), "token_revoked");
    assert_eq!(outcome(&auth, &second), "42");
    assert_eq!(rig.revoke(&json!({"subject": "42"})).await.0, 200);
    assert_eq!((outcome(&auth, &second), outcome(&auth, &other)), ("token_revoked".into(), "43".into()));
    // The action `refresh` only asks clients for a new token, so the old token stays valid.
    assert_eq!(rig.revoke(&json!({"subject": "43", "action": "refresh"})).await.0, 200);
    assert_eq!(outcome(&auth, &other), "43");
    assert_eq!(rig.revoke(&json!({"issued_before": now() + 1})).await.0, 200);
    assert_eq!(outcome(&auth, &other), "token_revoked");
    let (status, list) = rig.admin("/api/v1/revocations").await;
    let list: Value = serde_json::from_str(&list).unwrap();
    let (listed, until) = (list["revocations"].as_array().unwrap(), now() + 24 * 3600 + 30);
    assert_eq!((status, listed.len()), (200, 3));
    assert!(
        listed.iter().all(|entry| (until - 60..=until + 1).contains(&entry["kept_until"].as_u64().unwrap()))
    );
    let commands = std::mem::take(&mut *rig.plane.commands.lock().unwrap());
    let actions: Vec<_> = commands.iter().map(|text| text.split("action: ").nth(1).unwrap()).collect();
    assert_eq!(actions, ["Disconnect }", "Disconnect }", "Renew }", "Disconnect }"]);
    for (body, expect) in [
        (json!({}), "is missing"),
        (json!({"subjct": "42"}), "unknown field"),
        (json!({"subject": "42", "token_id": "a"}), "exclude each other"),
        (json!({"subject": ""}), "1 to 256 bytes"),
        (json!({"session": "x"}), "is no session id"),
        (json!({"token_id": "a", "issued_before": 7}), "no meaning"),
        (json!([]), "must be a JSON object"),
    ] {
        let (status, text) = rig.revoke(&body).await;
        assert!(status == 400 && text.contains(expect), "{body}: {status} {text}");
    }
    assert!(rig.plane.commands.lock().unwrap().is_empty());
    assert_eq!(rig.metric("stentor_auth_revocations").await, Some(3.0));
}

/// Revocations expire and release their memory even if no client requests the list.
#[tokio::test]
async fn revocations_expire_and_are_charged() {
    let none = Duration::ZERO;
    let options = AuthOptions {
        issuers: vec![local("i")],
        token_lifetime_max: none,
        leeway: none,
        ..AuthOptions::default()
    };
    let ledger = Arc::new(Ledger::new(10_000));
    let auth = Auth::new(&options, &ledger).unwrap();
    let rig = Rig::auth(&auth);
    let is_empty = || ledger.has_room(10_000);
    assert!(is_empty());
    for token in ["a", "b"] {
        assert_eq!(rig.revoke(&json!({"token_id": token})).await.0, 200);
    }
    assert!(rig.metric("stentor_auth_revocations").await > Some(0.0) && !ledger.has_room(9_900));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    rig.until_metric("stentor_auth_revocations", |entries| entries == 0.0).await;
    assert!(is_empty());
}

/// The identity of a client whose user an authenticating proxy names, or the code of the refusal.
fn named_by_proxy(auth: &Clients, user: &ProxyUser, token: Option<&str>) -> Result<Arc<Identity>, String> {
    let asking = Asking::new(Ticket::for_test(1), &auth.answers);
    let credentials = Credentials { user: Some(user), token, client: ClientFacts::default(), session: None };
    match auth.authenticate(asking, &credentials, &mut SignatureWork::new(Duration::MAX)) {
        Authentication::Accepted(identity) => Ok(identity),
        Authentication::Refused(denial) => Err(denial.code.into_owned()),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn users_that_an_authenticating_proxy_names() {
    let lifetime = Duration::from_secs(900);
    let options = AuthOptions {
        issuers: vec![local("i")],
        permissions: vec![rule(&["group/{groups}"], &["subscribe"], Recipients::Users)],
        proxy_lifetime: Some(lifetime),
        ..AuthOptions::default()
    };
    let auth = auth(&options);
    let user = |subject: &str, age: u64| ProxyUser {
        subject: subject.into(),
        groups: vec!["a".into(), "b".into()],
        issued_at: now() - age,
    };
    let ann = user("ann", 0);
    let identity = named_by_proxy(&auth, &ann, None).unwrap();
    let principal = Principal { issuer: "proxy".into(), subject: "ann".into() };
    assert_eq!(
        (&identity.principal, &identity.token_principal),
        (&Some(principal.clone()), &Some(principal))
    );
    assert_eq!((identity.issued_at, identity.expires_at), (Some(ann.issued_at), Some(ann.issued_at + 900)));
    for (topic, expect) in [("group/a", true), ("group/b", true), ("group/c", false), ("group/a,b", false)] {
        let topic = Topic::Room(Room::plain(topic).unwrap());
        assert_eq!(may(&identity, Access::Subscribe(&topic)), expect, "{topic:?}");
    }
    let [of_ann, of_bob] = ["ann", "bob"].map(|subject| token(&secret(), "i", subject));
    for (token, expect) in [
        (None, Ok("proxy")),
        (Some(&*of_ann), Ok("proxy")),
        (Some(&*of_bob), Err("token_invalid")),
        // A verified token is in the cache.
        (Some(&*of_bob), Err("token_invalid")),
        (Some("bad"), Err("token_invalid")),
    ] {
        let seen = named_by_proxy(&auth, &ann, token);
        let seen = seen.map(|identity| identity.principal.as_ref().unwrap().issuer.to_string());
        assert_eq!(seen.as_deref().map_err(|code| &**code), expect, "{token:?}");
    }
    assert_eq!(named_by_proxy(&auth, &user("ann", 901), None).unwrap_err(), "token_expired");
    assert_eq!(named_by_proxy(&auth, &user("ann", 901), Some(&of_ann)).unwrap_err(), "token_expired");
    // The token's user has the same name, and is another user.
    let rig = Rig::auth(&auth);
    let (status, text) = rig.revoke(&json!({"subject": "ann"})).await;
    assert!(status == 400 && text.contains("several issuers"), "{text}");
    assert_eq!(rig.revoke(&json!({"subject": "ann", "issuer": "i"})).await.0, 200);
    named_by_proxy(&auth, &ann, None).unwrap();
    assert_eq!(named_by_proxy(&auth, &ann, Some(&of_ann)).unwrap_err(), "token_revoked");
    assert_eq!(rig.revoke(&json!({"subject": "ann", "issuer": "proxy"})).await.0, 200);
    assert_eq!(named_by_proxy(&auth, &ann, None).unwrap_err(), "token_revoked");
    assert!(auth.is_revoked(&identity));
    named_by_proxy(&auth, &user("bob", 0), None).unwrap();
}

#[tokio::test]
async fn a_token_beside_a_named_user_may_wait_for_its_key() {
    let key = pair("k");
    let (ann, bob) = (token(&key, "i", "ann"), token(&key, "i", "bob"));
    let user = ProxyUser { subject: "ann".into(), groups: Vec::new(), issued_at: now() };
    let answer = set(&key);
    let (addr, _) = counted(move |_, _| std::future::ready(answer.clone())).await;
    let options = AuthOptions {
        issuers: vec![remote("i", addr)],
        proxy_lifetime: Some(Duration::from_secs(900)),
        ..AuthOptions::default()
    };
    let auth = auth(&options);
    for token in [&ann, &bob] {
        assert_eq!(named_by_proxy(&auth, &user, Some(token)).unwrap_err(), "Pending");
    }
    let _rig = Rig::auth(&auth);
    let mut seen = auth.identified(2).await;
    seen.sort();
    assert_eq!(seen, ["ann", "token_invalid"]);
}

/// Checks revocations for three clients: a hook has replaced the token's user, a hook has set a user without
/// a token, and an anonymous client.
#[tokio::test]
async fn revocations_concern_tokens_and_the_users_that_hooks_name() {
    let named = |identity: &Identity| Identity {
        principal: Some(Principal { issuer: "hook:h".into(), subject: "ada".into() }),
        issued_at: Some(1000),
        ..identity.clone()
    };
    // For each client (identified at 1000 s): `true` if its identity is revoked and its session matches.
    for (body, expect) in [
        (json!({"subject": "42"}), [true, false, false]),
        (json!({"subject": "43"}), [false, false, false]),
        (json!({"token_id": "t"}), [true, false, false]),
        (json!({"issued_before": 1001}), [true, false, false]),
        (json!({"issued_before": 1001, "issuer": "i"}), [true, false, false]),
        (json!({"issued_before": 1000}), [false, false, false]),
        (json!({"subject": "ada", "issuer": "hook:h"}), [true, true, false]),
        (json!({"subject": "ada", "issuer": "hook:h", "issued_before": 1000}), [false, false, false]),
        (json!({"issued_before": 1001, "issuer": "hook:h"}), [true, true, false]),
    ] {
        let auth = issuers(vec![local("i")]);
        let rig = Rig::auth(&auth);
        let by_token = identity(&auth, Some(&token_with(&secret(), "i", "42", &json!({"jti": "t"}))));
        let nobody = Identity::anonymous(by_token.authorizer.clone());
        let clients = [named(&by_token), named(&nobody), nobody];
        assert_eq!(rig.revoke(&body).await.0, 200);
        assert_eq!(clients.each_ref().map(|client| auth.is_revoked(client)), expect, "{body}");
        let recheck = rig.plane.rechecks.lock().unwrap().pop().unwrap();
        assert_eq!(clients.each_ref().map(|client| recheck.filter.matches(client)), expect, "{body}");
    }
}

#[tokio::test]
async fn the_list_of_revocations_is_bounded_and_separates_issuers() {
    let options =
        AuthOptions { issuers: vec![local("i"), local("j")], revocations_max: 1, ..AuthOptions::default() };
    let rig = Rig::auth(&auth(&options));
    let (status, text) = rig.revoke(&json!({"subject": "42"})).await;
    assert!(status == 400 && text.contains("several issuers"), "{text}");
    assert_eq!(rig.revoke(&json!({"subject": "42", "issuer": "i"})).await.0, 200);
    let (status, text) = rig.revoke(&json!({"subject": "43", "issuer": "i"})).await;
    assert!(status == 507 && text.contains("too_many_revocations"), "{text}");
    let without = Rig::feeds(Vec::new());
    assert_eq!(without.admin("/api/v1/revocations").await.0, 409);
}

#[tokio::test]
async fn options_are_checked() {
    let url = |text: &str| {
        let issuer = IssuerOptions { jwks_url: Some(text.into()), ..local("i") };
        AuthOptions { issuers: vec![issuer], ..AuthOptions::default() }
            .check()
            .map_err(|error| error.to_string())
    };
    assert!(url("http://id.test/keys").unwrap_err().contains("http:// only with 127.0.0.1"));
    url("http://127.0.0.1:1/keys").unwrap();
    let missing = AuthOptions {
        ca_file: Some("/nonexistent.pem".into()),
        issuers: vec![IssuerOptions { jwks_url: Some("https://id.test/keys".into()), ..local("i") }],
        ..AuthOptions::default()
    };
    assert!(missing.check().unwrap_err().to_string().starts_with("auth.ca_file: "));
}
