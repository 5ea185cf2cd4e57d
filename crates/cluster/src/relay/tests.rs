//! Handshakes and tunnels over pipes, on a virtual clock.

use super::HANDSHAKE_TIMEOUT;
use super::handshake::{Client, Handshake, HandshakeError};
use super::listener::{STRANGERS_MAX, Strangers};
use super::metrics::Refusal;
use super::tunnel::{self, CHUNK_BYTES, LINGER, OwnerLost, STALL_MAX};
use crate::NodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, advance, timeout};

const SECRET: &[u8] = b"known to all nodes";
const OWNER: NodeId = NodeId(1);
const RELAY: NodeId = NodeId(2);

fn client() -> Client {
    Client { address: "192.0.2.7:4711".parse().unwrap(), is_tls: false, is_gateway: false }
}

/// Runs both sides of a handshake with these secrets. The relay dials the node `meant`.
async fn shake(
    owner: Option<&[u8]>,
    relay: Option<&[u8]>,
    meant: NodeId,
) -> (Result<(NodeId, Option<Client>), HandshakeError>, Result<(), HandshakeError>) {
    let (mut a, mut b) = duplex(1024);
    let (owner, relay) = (Handshake::new(OWNER, owner), Handshake::new(RELAY, relay));
    tokio::join!(
        async {
            let accepted = owner.accept(&mut a, || true).await;
            drop(a);
            accepted
        },
        async {
            let dialed = relay.dial(&mut b, meant, client()).await;
            drop(b);
            dialed
        }
    )
}

#[tokio::test]
async fn nodes_with_one_secret_know_each_other() {
    for secret in [None, Some(SECRET)] {
        let (accepted, dialed) = shake(secret, secret, OWNER).await;
        assert_eq!(accepted.unwrap(), (RELAY, Some(client())));
        dialed.unwrap();
    }
    // The client's address is an IPv6 address, and the client uses TLS.
    let (mut a, mut b) = duplex(1024);
    let six = Client { address: "[2001:db8::1]:9".parse().unwrap(), is_tls: true, is_gateway: true };
    let (owner, relay) = (Handshake::new(OWNER, None), Handshake::new(RELAY, None));
    let (accepted, dialed) = tokio::join!(owner.accept(&mut a, || true), relay.dial(&mut b, OWNER, six));
    assert_eq!((accepted.unwrap().1, dialed.is_ok()), (Some(six), true));
}

#[tokio::test]
async fn a_node_says_whether_it_serves() {
    for serves in [false, true] {
        let (mut a, mut b) = duplex(1024);
        let (owner, relay) = (Handshake::new(OWNER, Some(SECRET)), Handshake::new(RELAY, Some(SECRET)));
        let (accepted, answer) = tokio::join!(owner.accept(&mut a, || serves), relay.probe(&mut b, OWNER));
        assert_eq!((accepted.unwrap(), answer.unwrap()), ((RELAY, None), serves));
    }
}

#[tokio::test]
async fn strangers_and_other_nodes_are_refused() {
    for (owner, relay) in
        [(Some(SECRET), Some(b"guessed".as_slice())), (Some(SECRET), None), (None, Some(SECRET))]
    {
        let (accepted, dialed) = shake(owner, relay, OWNER).await;
        assert!(matches!(accepted, Err(HandshakeError::NotAuthentic)), "{accepted:?}");
        assert!(dialed.is_err());
    }
    let (accepted, dialed) = shake(Some(SECRET), Some(SECRET), NodeId(3)).await;
    assert!(matches!(dialed, Err(HandshakeError::NotAuthentic)), "{dialed:?}");
    assert!(accepted.is_err(), "nothing was sent to it");
}

/// Runs a handshake through an attacker in the middle, who changes the introduction. Returns also the bytes that the attacker reads: the
/// challenge, the introduction and the acceptance.
async fn shake_through(
    change: impl FnOnce(&mut [u8; 75]),
) -> (
    Result<(NodeId, Option<Client>), HandshakeError>,
    Result<(), HandshakeError>,
    ([u8; 32], [u8; 75], [u8; 32]),
) {
    let (owner, relay) = (Handshake::new(OWNER, Some(SECRET)), Handshake::new(RELAY, Some(SECRET)));
    let (mut at_owner, mut near_owner) = duplex(1024);
    let (mut at_relay, mut near_relay) = duplex(1024);
    tokio::join!(
        async {
            let accepted = owner.accept(&mut at_owner, || true).await;
            drop(at_owner);
            accepted
        },
        relay.dial(&mut at_relay, OWNER, client()),
        async {
            let (mut challenge, mut introduction, mut acceptance) = ([0; 32], [0; 75], [0; 32]);
            near_owner.read_exact(&mut challenge).await.unwrap();
            near_relay.write_all(&challenge).await.unwrap();
            near_relay.read_exact(&mut introduction).await.unwrap();
            change(&mut introduction);
            near_owner.write_all(&introduction).await.unwrap();
            if near_owner.read_exact(&mut acceptance).await.is_ok() {
                near_relay.write_all(&acceptance).await.unwrap();
            }
            drop(near_relay);
            (challenge, introduction, acceptance)
        }
    )
}

#[tokio::test]
async fn a_recorded_handshake_is_refused_on_another_connection() {
    let (owner, relay) = (Handshake::new(OWNER, Some(SECRET)), Handshake::new(RELAY, Some(SECRET)));
    let (accepted, dialed, (challenge, introduction, acceptance)) = shake_through(|_| {}).await;
    assert!(accepted.is_ok() && dialed.is_ok());
    // Replays the relay's introduction to the owner, also with the owner's new challenge in its first 32 bytes.
    for is_echoed in [false, true] {
        let (mut a, mut b) = duplex(1024);
        let (accepted, ()) = tokio::join!(owner.accept(&mut a, || true), async {
            let mut introduction = introduction;
            if is_echoed {
                b.read_exact(&mut introduction[..32]).await.unwrap();
            }
            b.write_all(&introduction).await.unwrap();
        });
        assert!(matches!(accepted, Err(HandshakeError::NotAuthentic)), "{is_echoed}: {accepted:?}");
    }
    // Replays the owner's challenge and acceptance to the relay.
    let (mut a, mut b) = duplex(1024);
    let (dialed, ()) = tokio::join!(relay.dial(&mut b, OWNER, client()), async {
        a.write_all(&[challenge, acceptance].concat()).await.unwrap();
    });
    assert!(matches!(dialed, Err(HandshakeError::NotAuthentic)), "{dialed:?}");
}

#[tokio::test]
async fn a_changed_introduction_is_refused_at_every_byte() {
    for at in 0..75 {
        let (accepted, dialed, _) = shake_through(|introduction| introduction[at] ^= 1).await;
        assert!(matches!(accepted, Err(HandshakeError::NotAuthentic)), "byte {at}: {accepted:?}");
        assert!(dialed.is_err(), "byte {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_strangers_are_bounded_and_gone_soon() {
    const ALL: usize = 400;
    let mut strangers = Strangers::default();
    let start = Instant::now();
    let mut silent = JoinSet::new();
    for n in 0..ALL {
        let mut place = strangers.admit().await;
        silent.spawn(async move { (n, place.run(std::future::pending::<Result<(), Refusal>>()).await) });
    }
    // Each node evicts the oldest silent connection, and frees its own place for the next node.
    for _ in 0..ALL {
        assert_eq!(strangers.admit().await.run(std::future::ready(Ok("a node"))).await, Ok("a node"));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let mut refused = silent.join_all().await;
    refused.sort_unstable_by_key(|(n, _)| *n);
    let evicted = ALL + 1 - STRANGERS_MAX;
    let (first, last) = refused.split_at(evicted);
    assert!(first.iter().all(|(_, refusal)| *refusal == Err(Refusal::TooMany)), "{first:?}");
    assert!(last.iter().all(|(_, refusal)| *refusal == Err(Refusal::TimedOut)), "{last:?}");
    assert_eq!(start.elapsed().as_secs(), HANDSHAKE_TIMEOUT.as_secs());
}

/// A tunnel with small pipes.
struct Rig {
    client: DuplexStream,
    owner: DuplexStream,
    buffered: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    alive: watch::Sender<()>,
    ended: JoinHandle<Result<(), OwnerLost>>,
}

const PIPE_BYTES: usize = 1_000;

fn rig(input: &[u8]) -> Rig {
    let (client, near_client) = duplex(PIPE_BYTES);
    let (owner, near_owner) = duplex(PIPE_BYTES);
    let (alive, gone) = watch::channel(());
    let (buffered, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, max) = (buffered.clone(), most.clone());
    let input = input.to_vec();
    let ended = tokio::spawn(async move {
        tunnel::run(near_client, near_owner, input, gone, |bytes| {
            now.store(bytes, Ordering::Relaxed);
            max.fetch_max(bytes, Ordering::Relaxed);
        })
        .await
    });
    Rig { client, owner, buffered, most, alive, ended }
}

async fn read(stream: &mut DuplexStream, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    stream.read_exact(&mut read).await.unwrap();
    read
}

#[tokio::test(start_paused = true)]
async fn bytes_pass_both_ways_and_both_ends_are_passed_on() {
    let mut rig = rig(b"GET / ");
    rig.client.write_all(b"HTTP/1.1").await.unwrap();
    assert_eq!(read(&mut rig.owner, 14).await, b"GET / HTTP/1.1");
    // A stream may be silent for long.
    advance(Duration::from_secs(3_600)).await;
    rig.owner.write_all(b"answer").await.unwrap();
    assert_eq!(read(&mut rig.client, 6).await, b"answer");
    assert_eq!(rig.buffered.load(Ordering::Relaxed), 0);
    rig.owner.shutdown().await.unwrap();
    assert_eq!(rig.client.read(&mut [0]).await.unwrap(), 0);
    rig.client.shutdown().await.unwrap();
    assert_eq!(rig.owner.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(rig.ended.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_side_that_does_not_read_holds_up_the_other() {
    let mut rig = rig(b"");
    let sent: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    let all = sent.clone();
    let (mut read_half, mut write_half) = tokio::io::split(rig.owner);
    let writer = tokio::spawn(async move { write_half.write_all(&all).await.map(|()| write_half) });
    advance(Duration::from_secs(1)).await;
    assert!(!writer.is_finished(), "the owner is held up");
    let buffered = rig.buffered.load(Ordering::Relaxed);
    assert!((1..=CHUNK_BYTES).contains(&buffered), "{buffered}");
    // The other direction is open.
    rig.client.write_all(b"still here").await.unwrap();
    let mut heard = [0; 10];
    read_half.read_exact(&mut heard).await.unwrap();
    // The client reads slowly. Each read shows that it is alive.
    let mut received = Vec::new();
    while received.len() < sent.len() {
        advance(STALL_MAX / 2).await;
        let mut chunk = [0; 10_000];
        let bytes = rig.client.read(&mut chunk).await.unwrap();
        received.extend_from_slice(&chunk[..bytes]);
    }
    assert!(received == sent);
    assert!(rig.most.load(Ordering::Relaxed) <= CHUNK_BYTES);
    drop(writer.await.unwrap().unwrap());
    drop(read_half);
    drop(rig.client);
    assert_eq!(rig.ended.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_side_that_takes_nothing_is_given_up() {
    let mut rig = rig(b"");
    let start = Instant::now();
    rig.owner.write_all(&[0; PIPE_BYTES]).await.unwrap();
    rig.owner.write_all(&[0; PIPE_BYTES]).await.unwrap();
    assert_eq!(rig.ended.await.unwrap(), Ok(()), "the client has gone");
    assert!((STALL_MAX..STALL_MAX + LINGER).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(rig.owner.read(&mut [0]).await.unwrap(), 0, "and the owner is told");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_takes_nothing_is_lost() {
    let rig = rig(&[0; 3 * PIPE_BYTES]);
    assert_eq!(timeout(STALL_MAX * 2, rig.ended).await.unwrap().unwrap(), Err(OwnerLost));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_owner_is_lost_is_answered() {
    async fn lost(input: &[u8], answers: &[&str]) -> (String, Result<(), OwnerLost>) {
        let mut rig = rig(input);
        read(&mut rig.owner, input.len()).await;
        for answer in answers {
            rig.owner.write_all(answer.as_bytes()).await.unwrap();
            read(&mut rig.client, answer.len()).await;
            rig.client.write_all(b"next").await.unwrap();
            read(&mut rig.owner, 4).await;
        }
        drop(rig.owner);
        let mut last = String::new();
        rig.client.read_to_string(&mut last).await.unwrap();
        drop(rig.client);
        (last.lines().next().unwrap_or_default().to_owned(), rig.ended.await.unwrap())
    }
    let bad_gateway = ("HTTP/1.1 502 Bad Gateway".to_owned(), Err(OwnerLost));
    assert_eq!(lost(b"GET /", &[]).await, bad_gateway);
    assert_eq!(lost(b"POST /", &["HTTP/1.1 100 Continue\r\n\r\n"]).await, bad_gateway);
    // The client receives no response 502 once a final response has begun: the 502 would become a part of it.
    for answers in [
        &["HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nthe first bytes"][..],
        &["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"],
        &["HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"],
        &["HTTP/1.1 101 Switching Protocols\r\n\r\n", "frame"],
    ] {
        assert_eq!(lost(b"GET /", answers).await, (String::new(), Ok(())), "{answers:?}");
    }
    // The answer was on its way when the owner closed.
    let mut rig = rig(b"GET /");
    rig.owner.write_all(b"HTTP/1.1 200 OK").await.unwrap();
    drop(rig.owner);
    let mut answer = String::new();
    rig.client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "HTTP/1.1 200 OK");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_close_is_waited_for_a_while() {
    let mut rig = rig(b"");
    rig.owner.write_all(b"the last answer").await.unwrap();
    rig.owner.shutdown().await.unwrap();
    let start = Instant::now();
    assert_eq!(read(&mut rig.client, 15).await, b"the last answer");
    assert_eq!(rig.ended.await.unwrap(), Ok(()));
    assert_eq!(start.elapsed().as_secs(), LINGER.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_ends_with_its_owner_and_with_its_client() {
    let rig_of_owner = rig(b"");
    drop(rig_of_owner.alive);
    assert_eq!(rig_of_owner.ended.await.unwrap(), Err(OwnerLost), "it has left the cluster");
    let mut gone = rig(b"x");
    drop(gone.client);
    assert_eq!(read(&mut gone.owner, 1).await, b"x");
    assert_eq!(gone.owner.read(&mut [0]).await.unwrap(), 0);
    drop(gone.owner);
    assert_eq!(gone.ended.await.unwrap(), Ok(()));
}
