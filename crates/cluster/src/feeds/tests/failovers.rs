//! An engine that fails over to a replica that lagged.

use super::pushes::History;
use super::*;

/// Three nodes. The first one fetches, the last one has no subscribers. The replica has version 1, the first two nodes
/// have version 2.
fn lagging() -> Cluster {
    let mut cluster = Cluster::following(3, 2);
    cluster.bus.replicate();
    cluster.upstream = 2;
    cluster.run_until_idle();
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![0], Some(2)));
    cluster
}

#[test]
fn a_node_that_takes_over_begins_a_new_epoch() {
    let mut cluster = lagging();
    // The holder dies with the primary, and a node without version 2 takes over.
    cluster.kill(0);
    cluster.bus.fail_over();
    cluster.disconnect(1);
    cluster.want(2, true);
    cluster.upstream = 3;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    assert_eq!((cluster.holders(), cluster.newest(2)), (vec![2], Some(3)));
    cluster.connect(1);
    cluster.run_for(Duration::from_secs(1));
    // Version 3 has the same offset as version 2. Node 1 doesn't confuse them.
    assert_eq!(cluster.newest(1), Some(3));
    assert_eq!(epochs(&cluster.nodes[1].view.shown), 2);
    cluster.upstream = 4;
    cluster.run_until_idle();
    cluster.check_newest(4);
    assert_eq!(cluster.nodes[1].view.shown.last(), cluster.nodes[2].view.shown.last());
}

/// If the engine returns to its former primary, another node may store other versions at the positions that would follow.
#[test]
fn a_holder_that_lives_on_begins_a_new_epoch() {
    let mut cluster = lagging();
    cluster.bus.fail_over();
    (0..3).for_each(|index| cluster.connect(index));
    cluster.upstream = 3;
    cluster.run_for(ACQUIRE_INTERVAL);
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![0], Some(3)));
    assert_eq!(epochs(&cluster.nodes[1].view.shown), 2);
}

/// The holder is cut off while the other server is the primary. When its own server is the primary again, both still
/// have the lease.
#[test]
fn a_holder_that_has_seen_nothing_of_another_epoch_loses_its_lease() {
    let mut cluster = Cluster::following(3, 3);
    cluster.change_primary_for(&[1, 2]);
    cluster.upstream = 2;
    cluster.run_for(ACQUIRE_INTERVAL);
    assert_eq!((cluster.newest(0), cluster.newest(1), cluster.newest(2)), (Some(1), Some(2), Some(2)));
    cluster.change_primary_for(&[0, 1, 2]);
    let shown = cluster.nodes[0].view.shown.len();
    cluster.run_for(Duration::from_millis(200));
    cluster.check_newest(2);
    cluster.upstream = 3;
    cluster.run_until_idle();
    cluster.check_newest(3);
    assert!(cluster.holders().len() == 1 && cluster.nodes[0].view.shown.len() > shown);
    let known = [0, 1, 2].map(|index| epochs(&cluster.nodes[index].view.shown));
    assert_eq!(known, [2, 3, 3]);
}

/// The holder is cut off while the other server is the primary, and stores a version when its own server is the primary again. Versions that
/// other nodes stored meanwhile are older.
#[test]
fn a_holder_that_was_cut_off_stores_under_a_greater_term() {
    let mut cluster = Cluster::following(3, 3);
    cluster.change_primary_for(&[1, 2]);
    cluster.upstream = 2;
    cluster.run_for(ACQUIRE_INTERVAL);
    cluster.change_primary_for(&[0]);
    cluster.upstream = 3;
    cluster.run_until_idle();
    assert_eq!((cluster.newest(0), cluster.newest(1)), (Some(3), Some(2)));
    cluster.change_primary_for(&[0, 1, 2]);
    cluster.run_for(ACQUIRE_INTERVAL);
    cluster.check_newest(3);
}

/// A node receives the answer to its acquisition only when it is connected again. Meanwhile, the other server was the primary.
#[test]
fn a_lease_that_was_granted_before_a_failover_is_acquired_again() {
    let mut cluster = Cluster::new(3, 1);
    cluster.want(0, true);
    cluster.answer();
    let (index, ticket, request) = cluster.requests.pop_front().expect("a request");
    assert!(index == 0 && matches!(request, Request::AcquireLease { .. }), "{request:?}");
    let granted = cluster.bus.handle_request(cluster.now, request);
    (1..3).for_each(|index| cluster.want(index, true));
    cluster.change_primary_for(&[1, 2]);
    cluster.upstream = 2;
    cluster.run_for(ACQUIRE_INTERVAL);
    cluster.change_primary_for(&[0]);
    cluster.nodes[0].feeds.handle_reply(cluster.now, ticket, granted, |_| true);
    cluster.collect(0);
    cluster.upstream = 3;
    cluster.run_until_idle();
    assert_eq!((cluster.newest(0), cluster.newest(1)), (Some(3), Some(2)));
    cluster.change_primary_for(&[0, 1, 2]);
    cluster.run_for(ACQUIRE_INTERVAL);
    cluster.check_newest(3);
}

/// The version may have been published before the failover, so the next version must not take its position.
#[test]
fn a_version_whose_outcome_is_unknown_after_a_failover_ends_the_epoch() {
    let mut cluster = lagging();
    cluster.bus.replicate();
    cluster.upstream = 3;
    cluster.fetch(0);
    // The engine stores and publishes the version. Its answer is lost.
    let (index, ticket, request) = cluster.requests.pop_front().expect("a request");
    assert!(cluster.bus.handle_request(cluster.now, request).is_ok());
    cluster.deliver();
    assert_eq!(cluster.newest(1), Some(3));
    cluster.bus.fail_over();
    cluster.upstream = 4;
    cluster.fetch(0);
    cluster.lose_answer(index, ticket);
    cluster.run_for(Duration::from_secs(1));
    cluster.check_newest(4);
}

/// The replica still has version 1 of the first epoch, and the nodes have version 3 of the second one.
#[test]
fn versions_of_a_second_replica_are_not_newer() {
    let mut cluster = lagging();
    cluster.kill(0);
    cluster.bus.fail_over();
    cluster.connect(1);
    cluster.want(2, true);
    cluster.upstream = 3;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    cluster.check_newest(3);
    cluster.bus.fail_over();
    (1..3).for_each(|index| cluster.connect(index));
    cluster.run_for(Duration::from_secs(1));
    cluster.check_newest(3);
    cluster.upstream = 4;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    cluster.check_newest(4);
}

/// The holder lives on, but reads the log after the first failover: the replica still has version 1 of the first epoch, under a lease that
/// the holder had all the while.
#[test]
fn versions_of_a_second_replica_are_not_newer_under_the_same_holder() {
    let mut cluster = lagging();
    cluster.want(2, true);
    cluster.run_until_idle();
    cluster.bus.fail_over();
    (0..3).for_each(|index| cluster.connect(index));
    cluster.upstream = 3;
    cluster.fetch(0);
    while let Some((index, ticket, request)) = cluster.requests.pop_front() {
        if let Request::StoreVersion { .. } = request {
            cluster.lose_answer(index, ticket);
            break;
        }
        cluster.answer_one(index, ticket, request);
        cluster.collect(index);
    }
    cluster.run_for(Duration::from_secs(1));
    cluster.check_newest(3);
    assert_eq!((cluster.holders(), epochs(&cluster.nodes[1].view.shown)), (vec![0], 2));
    let shown = [1, 2].map(|index| cluster.nodes[index].view.shown.last().copied());
    cluster.bus.fail_over();
    (0..3).for_each(|index| cluster.connect(index));
    cluster.run_for(Duration::from_secs(1));
    cluster.check_newest(3);
    let now = [1, 2].map(|index| cluster.nodes[index].view.shown.last().copied());
    assert!(now[0] == now[1] && now != shown, "the same version, in an epoch of its own: {now:?}");
    assert_eq!(epochs(&cluster.nodes[1].view.shown), 3);
    cluster.upstream = 4;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    cluster.check_newest(4);
}

/// Sentinel makes A the primary, then B, then A again, and so on. A isn't demoted, and keeps its data. Feeds continue
/// in a further epoch. No node returns to an epoch that it has seen replaced, and no fetched feed goes back.
#[test]
fn a_primary_that_returns_begins_another_epoch() {
    primaries_return(0..500);
}

/// A holder that was cut off for a while stores a version within the same lease.
#[test]
fn a_primary_that_returns_within_a_lease_begins_another_epoch() {
    primaries_return(1_509..1_510);
}

fn primaries_return(seeds: std::ops::Range<u64>) {
    simulate(seeds, 80, |run| {
        let mut cluster = Cluster::following(3, 3);
        (0..3).for_each(|index| cluster.want_key(index, &pushed(), true));
        let mut history = History::default();
        for step in run.steps.clone() {
            cluster.random = run.random(step);
            let index = cluster.random.usize(..3);
            match cluster.random.u32(..24) {
                0 => {
                    run.note(step, "the other server has everything");
                    cluster.bus.replicate();
                }
                1 | 2 => {
                    run.note(step, "the other server becomes the primary");
                    cluster.change_primary();
                    history.is_lossy = true;
                }
                3 => {
                    run.note(step, format!("node {index} is connected"));
                    cluster.connect(index);
                }
                4 => {
                    run.note(step, format!("node {index} loses its connection"));
                    cluster.disconnect(index);
                }
                5 => {
                    let is_wanted = !cluster.nodes[index].view.wanted;
                    run.note(step, format!("node {index} has subscribers: {is_wanted}"));
                    cluster.want(index, is_wanted);
                }
                6..=8 => {
                    cluster.upstream += 1;
                    run.note(step, format!("the upstream has version {}", cluster.upstream));
                }
                9..=11 => {
                    run.note(step, format!("a document is pushed to node {index}"));
                    history.push(&mut cluster, index);
                }
                12..=15 => {
                    run.note(step, "the engine answers all");
                    cluster.run_until_idle();
                }
                16..=20 => {
                    run.note(step, format!("the engine answers {:?}", cluster.requests.front()));
                    cluster.answer();
                }
                _ => {
                    let ms = cluster.random.u64(..1500);
                    run.note(step, format!("{ms} ms pass"));
                    cluster.pass(Duration::from_millis(ms));
                }
            }
            history.note(&mut cluster);
            for node in &cluster.nodes {
                check_order(&node.view.shown);
                check_positions(&node.pushed.shown);
            }
        }
        (0..3).for_each(|index| cluster.connect(index));
        cluster.run_for(Duration::from_secs(15));
        cluster.upstream += 1;
        cluster.run_for(Duration::from_secs(1));
        history.note(&mut cluster);
        cluster.check_newest(cluster.upstream);
        history.check(&cluster, run.seed);
        assert!(cluster.holders().len() <= 1);
    });
}
