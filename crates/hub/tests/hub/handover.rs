//! Sessions that move to another node, together with their missed messages.

use crate::node::{Node, room};
use bytes::Bytes;
use std::collections::HashSet;
use std::time::Duration;
use stentor_hub::{
    Body, Data, Departure, Emit, MissedMessage, Policy, Publication, RecoveryLimits, ResumeError, SessionId,
    Topic,
};

const BYTES_MAX: usize = 1_000;

fn node(seed: u64) -> Node {
    Node::with(1, |options| {
        options.recovery = Some(RecoveryLimits { bytes_max: 100_000, age_max: Duration::from_secs(60) });
        options.send_buffer_bytes_max = 100;
        options.seed = [seed, seed];
    })
}

fn text(text: &str) -> Data {
    Data::Text(Bytes::from(text.to_owned()))
}

/// Publishes a message with the same id on each of these nodes.
fn publish(nodes: &mut [&mut Node], id: u64, content: &str) {
    for node in nodes {
        let how = Emit::default().identified(id);
        node.hubs[0].handle_publish(node.now, &room("chat"), None, text(content), how);
    }
}

fn send(node: &mut Node, session: SessionId, content: &str) {
    node.hubs[0].handle_send(node.now, &[session], &room("chat"), None, text(content), false);
}

fn member(node: &mut Node) -> SessionId {
    let session = node.open(0);
    node.subscribe(0, session, &Topic::from(room("chat")), Policy::Queue);
    session
}

/// Opens a session that waits for the messages it missed on another node.
fn expected(node: &mut Node) -> SessionId {
    let session = node.open(0);
    assert!(node.hubs[0].handle_suspend(session));
    node.subscribe(0, session, &Topic::from(room("chat")), Policy::Queue);
    session
}

/// Takes a session's deliveries: texts, and the ids that its client remembers.
fn take(node: &mut Node, session: SessionId) -> (Vec<String>, Vec<u64>) {
    let (mut texts, mut ids) = (Vec::new(), Vec::new());
    node.hubs[0].take(session, usize::MAX, usize::MAX, |publication, frame| {
        texts.push(frame.0.to_string());
        ids.push(publication.id());
    });
    node.hubs[0].handle_sent(session);
    (texts, ids)
}

fn message<F>((publication, is_direct): (std::sync::Arc<Publication<F>>, bool)) -> MissedMessage {
    let Body::Message { event, data, .. } = publication.body() else { panic!("no message") };
    MissedMessage { id: publication.id(), is_direct, event: event.clone(), data: data.clone() }
}

fn depart(node: &mut Node, session: SessionId, last: Option<u64>) -> (Vec<MissedMessage>, HashSet<u64>) {
    let Departure { missed, known } = node.hubs[0].handle_departure(session, last, BYTES_MAX).unwrap();
    node.hubs[0].handle_close(session);
    (missed.into_iter().map(message).collect(), known.into_iter().collect())
}

fn arrive(
    node: &mut Node,
    session: SessionId,
    last: Option<u64>,
    (missed, known): (Vec<MissedMessage>, HashSet<u64>),
) -> Result<(), ResumeError> {
    node.hubs[0].handle_arrival(node.now, session, &room("chat"), last, missed, &known)
}

#[test]
fn a_session_that_moves_gets_everything_once_and_in_order() {
    let (mut first, mut second) = (node(1), node(2));
    let session = member(&mut first);
    publish(&mut [&mut first], 1, "seen");
    assert_eq!(take(&mut first, session).0, ["seen"]);
    assert!(first.hubs[0].handle_suspend(session));
    publish(&mut [&mut first], 2, "missed");
    send(&mut first, session, "alone");
    let there = expected(&mut second);
    // Both nodes have these messages; the second node receives "seen" late.
    publish(&mut [&mut second], 1, "seen");
    publish(&mut [&mut first, &mut second], 3, "on both");
    send(&mut first, session, "alone on both");
    send(&mut second, there, "alone on both");
    let handed_over = depart(&mut first, session, Some(1));
    // The session leaves the first node before these messages reach it.
    publish(&mut [&mut second], 4, "after");
    send(&mut second, there, "alone after");
    assert_eq!(arrive(&mut second, there, Some(1), handed_over), Ok(()));
    publish(&mut [&mut second], 5, "live");
    let (texts, ids) = take(&mut second, there);
    let all = ["missed", "alone", "on both", "alone on both", "after", "alone after", "live"];
    assert_eq!(texts, all);
    assert!(second.hubs[0].counters().balanced());

    // After another disconnect, the client receives the rest, however many messages it received before.
    for received in 0..=all.len() {
        let last = if received == 0 { 1 } else { ids[received - 1] };
        assert!(second.hubs[0].handle_suspend(there));
        assert_eq!(second.hubs[0].handle_resume(there, Some(last)), Ok(()), "{received}");
        assert_eq!(take(&mut second, there).0, all[received..], "{received}");
    }
    assert!(second.hubs[0].handle_suspend(there));
    assert_eq!(
        second.hubs[0].handle_resume(there, None),
        Err(ResumeError::NotCovered),
        "it has received some"
    );
}

/// Makes up to 11 messages to one session, from only three texts, so that equal messages are frequent.
fn texts(random: &mut fastrand::Rng) -> Vec<String> {
    (0..random.usize(..12)).map(|_| ["a", "b", "c"][random.usize(..3)].to_owned()).collect()
}

#[test]
fn equal_messages_to_one_session_are_counted() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut first, mut second) = (node(1), node(2));
        let session = member(&mut first);
        publish(&mut [&mut first], 1, "seen");
        take(&mut first, session);
        assert!(first.hubs[0].handle_suspend(session));
        let there = expected(&mut second);
        let (on_first, on_second) = (texts(&mut random), texts(&mut random));
        on_first.iter().for_each(|text| send(&mut first, session, text));
        on_second.iter().for_each(|text| send(&mut second, there, text));
        // A message to the room with the same text is a different message.
        publish(&mut [&mut second], 2, "a");
        let handed_over = depart(&mut first, session, Some(1));
        assert_eq!(arrive(&mut second, there, Some(1), handed_over), Ok(()));

        let mut had = on_first.clone();
        let is_new = |text: &&String| match had.iter().position(|other| other == *text) {
            Some(at) => {
                had.swap_remove(at);
                false
            }
            None => true,
        };
        let mut all = on_first.clone();
        all.extend(on_second.iter().filter(is_new).cloned());
        all.push("a".into());
        assert_eq!(take(&mut second, there).0, all, "seed {seed}: {on_first:?}, {on_second:?}");
    }
}

#[test]
fn a_client_that_has_received_nothing_moves_too() {
    let (mut first, mut second) = (node(1), node(2));
    let session = member(&mut first);
    assert!(first.hubs[0].handle_suspend(session));
    publish(&mut [&mut first], 1, "missed");
    let there = expected(&mut second);
    let handed_over = depart(&mut first, session, None);
    assert_eq!(arrive(&mut second, there, None, handed_over), Ok(()));
    assert!(second.hubs[0].handle_suspend(there));
    assert_eq!(second.hubs[0].handle_resume(there, None), Ok(()));
    assert_eq!(take(&mut second, there).0, ["missed"]);
}

#[test]
fn two_sessions_that_received_the_same_message_keep_their_own_order() {
    let (mut first, mut second) = (node(1), node(2));
    let sessions = [member(&mut first), member(&mut first)];
    publish(&mut [&mut first], 1, "seen");
    let mut moved = Vec::new();
    for session in sessions {
        take(&mut first, session);
        assert!(first.hubs[0].handle_suspend(session));
        let there = expected(&mut second);
        let handed_over = depart(&mut first, session, Some(1));
        assert_eq!(arrive(&mut second, there, Some(1), handed_over), Ok(()));
        publish(&mut [&mut second], 10 + moved.len() as u64, "live");
        moved.push(there);
    }
    assert!(second.hubs[0].handle_suspend(moved[0]));
    assert_eq!(second.hubs[0].handle_resume(moved[0], Some(1)), Ok(()));
    assert_eq!(take(&mut second, moved[0]).1, [10, 11]);
}

#[test]
fn sessions_that_missed_too_much_do_not_move() {
    let (mut first, mut second) = (node(1), node(2));
    let session = member(&mut first);
    publish(&mut [&mut first], 1, "seen");
    let depart_error = |first: &mut Node, last| first.hubs[0].handle_departure(session, last, 10).err();
    assert_eq!(depart_error(&mut first, Some(1)), Some(ResumeError::NotSuspended));
    assert!(first.hubs[0].handle_suspend(session));
    assert_eq!(depart_error(&mut first, Some(9)), Some(ResumeError::NotCovered));
    assert_eq!(depart_error(&mut first, Some(1)), None);
    publish(&mut [&mut first], 2, "more than ten bytes");
    assert_eq!(depart_error(&mut first, Some(1)), Some(ResumeError::TooMuch));
    let there = expected(&mut second);
    let long = |id| MissedMessage { id, is_direct: false, event: None, data: text(&"x".repeat(80)) };
    let much = (vec![long(1), long(2)], HashSet::new());
    assert_eq!(arrive(&mut second, there, None, much), Err(ResumeError::TooMuch));
    assert_eq!(second.hubs[0].subscriptions_of(there), [(room("chat").into(), Policy::Queue.into())]);
}
