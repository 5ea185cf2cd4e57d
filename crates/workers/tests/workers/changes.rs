//! Changes of other workers' sockets: one worker's can't fill the link of another.

use crate::nodes::Engine;
use crate::recovery::{
    RECOVERY, ROOT, add, broadcast, declare, leave_unnoticed, opened, pass, restore, restored,
};
use crate::rig::{Rig, Worker, json, text};
use std::sync::Arc;
use std::time::Duration;
use stentor_link::{
    ApplicationOptions, Change, LinkOptions, NodeEntry, Select, SelectFlags, ServerEntry, WorkerEntry, Writer,
};
use stentor_ports::fake::names;
use stentor_ports::{LinkEntry, LinkSelected, LinkSession, LinkSocket};
use stentor_workers::AppOptions;
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);
/// Changes that a worker makes. The entries for another worker have twice the bytes that may be unacknowledged.
const CHANGES: usize = 20;

/// Options of an application whose workers may leave 100,000 bytes unacknowledged.
fn options() -> AppOptions {
    let link = LinkOptions { unacknowledged_bytes_max: 100_000, ..LinkOptions::default() };
    let application = ApplicationOptions { link, ..ApplicationOptions::default() };
    AppOptions { application, ..AppOptions::default() }
}

/// A service with two workers, of which the second one has the session 2, and the link of each.
async fn started() -> (Rig, (Worker, u32), (Worker, u32)) {
    start_two(Rig::with(options())).await
}

async fn start_two(mut rig: Rig) -> (Rig, (Worker, u32), (Worker, u32)) {
    let (mut a, mut b) = (rig.start("a").await, rig.start("b").await);
    for (session, worker) in [(1, &mut a.0), (2, &mut b.0)] {
        rig.open(session);
        assert!(matches!(worker.entry().await, ServerEntry::Open { .. }));
        assert!(matches!(rig.core().await.1, LinkEntry::Accept(..)));
        worker.write_handled(&[declare()]).await;
    }
    (rig, a, b)
}

/// Joins all sockets to rooms, each with a name of 10,000 bytes.
fn join(rooms: usize) -> Select {
    Select {
        change: Change::Join,
        flags: SelectFlags::default(),
        rooms: Vec::new(),
        except: Vec::new(),
        targets: vec!["x".repeat(10_000).into(); rooms],
    }
}

fn change() -> WorkerEntry {
    WorkerEntry::Select { namespace: ROOT, select: join(1) }
}

/// A worker joins all sockets to a room with a name of 10,000 bytes, many times.
async fn flood(worker: &mut Worker) {
    worker.write(&vec![change(); CHANGES]).await;
}

/// A question of this length to another worker.
fn question(link: u32, len: usize) -> WorkerEntry {
    let messages = std::iter::once(text(&"x".repeat(len))).collect();
    WorkerEntry::Relay { namespace: ROOT, link, body: json("{}"), messages }
}

/// The changes that the cores receive.
async fn selects(rig: &mut Rig) -> Vec<LinkEntry> {
    let mut found = Vec::new();
    while let Ok((_, entry)) = timeout(SECOND, rig.core()).await {
        assert!(matches!(entry, LinkEntry::Select(..)));
        found.push(entry);
    }
    found
}

/// The cores carry out all changes of a link that they receive. Returns their number.
async fn carry_out(rig: &mut Rig, link: u32) -> usize {
    let mut count = 0;
    while let Ok((_, entry)) = timeout(SECOND, rig.core()).await {
        let LinkEntry::Select(app, namespace, select) = entry else { panic!("{entry:?}") };
        let sessions = vec![LinkSession::from_bits(2)];
        rig.sink.report_selected(LinkSelected { app, link, namespace, select, sessions });
        count += 1;
    }
    count
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_changes_many_sockets_waits_for_the_others() {
    let (mut rig, (mut a, a_link), (mut b, b_link)) = started().await;
    flood(&mut a).await;
    let mut carried_out = carry_out(&mut rig, a_link).await;
    assert!((5..10).contains(&carried_out), "{carried_out}");
    assert_eq!((rig.sessions_of(b_link), rig.metric("link_waiting_changes", &["chat"])), (Some(1), 1));
    let mut received = 0;
    while received < CHANGES {
        while received < carried_out {
            assert!(matches!(b.entry().await, ServerEntry::Members { .. }));
            received += 1;
        }
        b.write(&[WorkerEntry::Nop {}]).await;
        carried_out += carry_out(&mut rig, a_link).await;
    }
    assert_eq!(rig.metric("link_waiting_changes", &["chat"]), 0);
    // The worker's link is read again.
    a.write_handled(&[]).await;
    let sessions = [a_link, b_link].map(|link| rig.sessions_of(link));
    assert_eq!((received, sessions), (CHANGES, [Some(1), Some(1)]));
}

#[tokio::test(start_paused = true)]
async fn few_changes_are_carried_out_at_once() {
    let (mut rig, (mut a, _), _b) = started().await;
    a.write_handled(&[]).await;
    let held = rig.held_bytes();
    flood(&mut a).await;
    let mut count = 0;
    while count < CHANGES {
        let unfinished = selects(&mut rig).await;
        // A quarter of the bound is for what unfinished changes may cause.
        assert!((1..=3).contains(&unfinished.len()), "{}", unfinished.len());
        count += unfinished.len();
        drop(unfinished);
        rig.sink.space();
    }
    a.write_handled(&[]).await;
    assert_eq!(rig.held_bytes(), held);
}

#[tokio::test(start_paused = true)]
async fn changes_go_on_whatever_a_third_worker_asks() {
    let (mut rig, (mut a, a_link), (mut b, b_link)) = started().await;
    let (mut c, _) = rig.start("c").await;
    c.write_handled(&[declare()]).await;
    let ask = vec![question(b_link, 12_000); 10];
    c.write_handled(&ask).await;
    assert_eq!(rig.metric("link_relays_dropped", &[]), 4);
    flood(&mut a).await;
    let mut carried_out = carry_out(&mut rig, a_link).await;
    for read in 1.. {
        b.entry().await;
        b.write(&[WorkerEntry::Nop {}]).await;
        carried_out += carry_out(&mut rig, a_link).await;
        if carried_out == CHANGES {
            break;
        }
        assert!(read < 10 * CHANGES, "{carried_out}");
        c.write_handled(&ask).await;
    }
    assert_eq!(rig.sessions_of(b_link), Some(1));
}

#[tokio::test(start_paused = true)]
async fn questions_leave_room_for_what_unfinished_changes_cause() {
    let (mut rig, (mut a, _), (mut b, b_link)) = started().await;
    flood(&mut a).await;
    let unfinished = selects(&mut rig).await;
    b.write_handled(&[]).await;
    let (mut c, _) = rig.start("c").await;
    c.write_handled(&[declare()]).await;
    for (len, dropped) in [(60_000, 1), (49_000, 1)] {
        c.write_handled(&[question(b_link, len)]).await;
        assert_eq!(rig.metric("link_relays_dropped", &[]), dropped);
    }
    drop(unfinished);
}

#[tokio::test(start_paused = true)]
async fn a_dead_worker_whose_change_waits_is_noticed() {
    let (mut rig, (mut a, a_link), (mut b, b_link)) = started().await;
    b.write_handled(&[question(a_link, 66_000)]).await;
    b.write(&[change(), change()]).await;
    pass(1).await;
    assert_eq!(rig.metric("link_waiting_changes", &["chat"]), 1);
    drop(b);
    // The worker that it waits for is alive.
    pass(15_000).await;
    assert_eq!((rig.sessions_of(a_link).is_some(), rig.sessions_of(b_link)), (true, None));
    assert_eq!(rig.metric("link_waiting_changes", &["chat"]), 0);
    assert!(matches!(a.entry().await, ServerEntry::Relayed { .. }));
    let selects = rig.core_entries().into_iter().filter(|(_, entry)| matches!(entry, LinkEntry::Select(..)));
    assert_eq!(selects.count(), 1);
}

/// Workers at this node don't wait for the changes of others.
#[tokio::test(start_paused = true)]
async fn changes_of_other_nodes_leave_room_for_those_of_this_node() {
    let engine = Arc::<Engine>::default();
    let (mut rig, (mut a, a_link), _b) = start_two(engine.node(1)).await;
    for _ in 0..3 {
        let mut writer = Writer::default();
        writer.entry(&NodeEntry::Select { namespace: "/".into(), select: join(90) });
        engine.sink(1).receive(2, "chat", &writer.finish(0, 0).to_bytes());
    }
    let unfinished = selects(&mut rig).await;
    assert_eq!(unfinished.len(), 3);
    a.write(&[change()]).await;
    assert!(matches!(rig.core().await, (link, LinkEntry::Select(..)) if link == a_link));
}

/// Two workers, of which the first one has room for one change until the cores have carried it out.
async fn start_full(rig: &Rig) -> [Worker; 2] {
    let (mut full, link) = rig.start_with("b", RECOVERY).await;
    let (mut other, _) = rig.start_with("c", RECOVERY).await;
    full.write_handled(&[declare()]).await;
    other.write_handled(&[declare(), question(link, 66_000)]).await;
    [full, other]
}

/// The answer to a worker that asks for the socket of a new session's client.
async fn restore_by(rig: &Rig, worker: &mut Worker) -> String {
    rig.open(2);
    let handle = opened(worker).await;
    worker.write(&[restore(handle, "pid", "seen")]).await;
    restored(worker).await
}

#[tokio::test(start_paused = true)]
async fn the_acknowledgement_of_a_frame_that_has_waited_counts() {
    let mut rig = Rig::with(options());
    let (mut a, a_link) = rig.start_with("a", RECOVERY).await;
    leave_unnoticed(&mut rig, &mut a, None).await;
    let [mut b, _c] = start_full(&rig).await;
    // It acknowledges CLOSED, and reports nothing.
    a.write(&[change(), change()]).await;
    pass(1).await;
    assert_eq!(rig.metric("link_waiting_changes", &["chat"]), 1);
    assert!(matches!(b.entry().await, ServerEntry::Relayed { .. }));
    b.write_handled(&[]).await;
    assert_eq!(rig.metric("link_waiting_changes", &["chat"]), 0);
    drop(a);
    pass(300).await;
    assert_eq!(rig.sessions_of(a_link), None);
    assert_eq!(restore_by(&rig, &mut b).await, "null");
}

#[tokio::test(start_paused = true)]
async fn a_message_with_effects_that_wait_is_not_acknowledged() {
    let rooms = names(&["id"]);
    let rig = Rig::with(options());
    let (mut a, a_link) = rig.start_with("a", RECOVERY).await;
    rig.open(1);
    let handle = opened(&mut a).await;
    let state = WorkerEntry::State { handle, namespace: ROOT, data: json("1") };
    let seen = broadcast("seen", Vec::new(), Vec::new());
    a.write_handled(&[declare(), add(handle, "id", "pid", &rooms), state, seen]).await;
    rig.say(1, r#"2["join"]"#);
    while !matches!(a.entry().await, ServerEntry::Message { .. }) {}
    let [_b, mut c] = start_full(&rig).await;
    let join = WorkerEntry::Join { handle, namespace: ROOT, rooms: names(&["r"]) };
    a.write(&[change(), change(), join]).await;
    pass(1).await;
    assert_eq!(rig.metric("link_waiting_changes", &["chat"]), 1);
    rig.close_with(1, vec![LinkSocket { namespace: "/".into(), id: "id".into(), rooms }]);
    while !matches!(a.entry().await, ServerEntry::Closed { .. }) {}
    drop(a);
    pass(1_000).await;
    assert_eq!(rig.sessions_of(a_link), None);
    // The worker without room doesn't respond.
    c.write_handled(&[]).await;
    assert_eq!(restore_by(&rig, &mut c).await, "null");
}
