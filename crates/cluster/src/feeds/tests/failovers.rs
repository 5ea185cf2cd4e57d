//! An engine that fails over to a replica that lagged.

use super::*;

/// Three nodes; the first one fetches, the last one has no subscribers. The replica has version 1, the first two nodes have version 2.
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
    // Version 3 has the offset that version 2 had, and isn't taken for it.
    assert_eq!(cluster.newest(1), Some(3));
    assert_eq!(epochs(&cluster.nodes[1].view.shown), 2);
    cluster.upstream = 4;
    cluster.run_until_idle();
    cluster.check_newest(4);
    assert_eq!(cluster.nodes[1].view.shown.last(), cluster.nodes[2].view.shown.last());
}

/// Nobody else can have stored anything.
#[test]
fn a_holder_that_lives_on_continues_the_epoch() {
    let mut cluster = lagging();
    cluster.bus.fail_over();
    (0..3).for_each(|index| cluster.connect(index));
    cluster.upstream = 3;
    cluster.run_for(ACQUIRE_INTERVAL);
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![0], Some(3)));
    assert_eq!(epochs(&cluster.nodes[1].view.shown), 1);
}

/// Whether the version was published before the failover is unknown: the next one is no other one at its position.
#[test]
fn a_version_whose_outcome_is_unknown_after_a_failover_ends_the_epoch() {
    let mut cluster = lagging();
    cluster.bus.replicate();
    cluster.upstream = 3;
    cluster.fetch(0);
    // It is stored and published. The answer is lost.
    let (index, ticket, request) = cluster.requests.pop_front().expect("a request");
    let frames = cluster.nodes[index].frames.clone();
    let request =
        request.encode(|key, entry| frames.encode(&Channel::from(key.clone()), &Frame::from(entry)));
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
fn what_a_second_replica_has_is_not_newer() {
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
fn what_a_second_replica_has_is_not_newer_under_the_same_holder() {
    let mut cluster = lagging();
    cluster.want(2, true);
    cluster.run_until_idle();
    cluster.bus.fail_over();
    (0..3).for_each(|index| cluster.connect(index));
    cluster.upstream = 3;
    cluster.fetch(0);
    while let Some((index, ticket, request)) = cluster.requests.pop_front() {
        if let FeedRequest::Store(_) = request {
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
    assert_eq!(now.map(|last| last.map(|(at, _)| at.epoch)), shown.map(|last| last.map(|(at, _)| at.epoch)));
    cluster.upstream = 4;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    cluster.check_newest(4);
}
