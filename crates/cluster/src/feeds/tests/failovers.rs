//! An engine that fails over to a replica that lagged.

use super::*;

/// Three nodes; the first one fetches, the last one has no subscribers. The replica has version 1, the first two nodes have version 2.
fn lagging() -> Cluster {
    let mut cluster = Cluster::new(3, 1);
    (0..2).for_each(|index| cluster.want(index, true));
    cluster.run_until_idle();
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
    let dead = std::mem::replace(&mut cluster.nodes[0], Node::new(9));
    cluster.bus.disconnect(dead.id);
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
    let epochs = cluster.nodes[1].view.shown.iter().map(|(position, _)| position.epoch.0);
    assert_eq!(epochs.collect::<BTreeSet<_>>().len(), 2);
    cluster.upstream = 4;
    cluster.run_until_idle();
    assert_eq!((cluster.newest(1), cluster.newest(2)), (Some(4), Some(4)));
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
    let shown = &cluster.nodes[1].view.shown;
    assert!(shown.windows(2).all(|pair| pair[0].0.epoch == pair[1].0.epoch), "{shown:?}");
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
    let lost = Answer::Failed(EngineError::Unavailable("away".into()));
    cluster.nodes[index].feeds.handle_reply(cluster.now, ticket, lost);
    cluster.collect(index);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!((cluster.newest(0), cluster.newest(1)), (Some(4), Some(4)));
}

/// The replica still has version 1 of the first epoch, and the nodes have version 3 of the second one.
#[test]
fn what_a_second_replica_has_is_not_newer() {
    let mut cluster = lagging();
    let dead = std::mem::replace(&mut cluster.nodes[0], Node::new(9));
    cluster.bus.disconnect(dead.id);
    cluster.bus.fail_over();
    cluster.connect(1);
    cluster.want(2, true);
    cluster.upstream = 3;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    assert_eq!((cluster.newest(1), cluster.newest(2)), (Some(3), Some(3)));
    cluster.bus.fail_over();
    (1..3).for_each(|index| cluster.connect(index));
    cluster.run_for(Duration::from_secs(1));
    assert_eq!((cluster.newest(1), cluster.newest(2)), (Some(3), Some(3)));
    cluster.upstream = 4;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    for index in 1..3 {
        check_order(&cluster.nodes[index].view.shown);
        assert_eq!(cluster.newest(index), Some(4));
    }
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
            let lost = Answer::Failed(EngineError::Unavailable("away".into()));
            cluster.nodes[index].feeds.handle_reply(cluster.now, ticket, lost);
            cluster.collect(index);
            break;
        }
        cluster.answer_one(index, ticket, request);
        cluster.collect(index);
    }
    cluster.run_for(Duration::from_secs(1));
    let epoch_of =
        |cluster: &Cluster, index: usize| cluster.nodes[index].view.shown.last().map(|(at, _)| at.epoch);
    assert_eq!((cluster.holders(), cluster.newest(1), cluster.newest(2)), (vec![0], Some(3), Some(3)));
    let second = epoch_of(&cluster, 1);
    assert_ne!(second, cluster.nodes[1].view.shown.first().map(|(at, _)| at.epoch), "a new epoch");
    cluster.bus.fail_over();
    (0..3).for_each(|index| cluster.connect(index));
    cluster.run_for(Duration::from_secs(1));
    for index in 1..3 {
        assert_eq!((cluster.newest(index), epoch_of(&cluster, index)), (Some(3), second));
    }
    cluster.upstream = 4;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    for index in 1..3 {
        check_order(&cluster.nodes[index].view.shown);
        assert_eq!(cluster.newest(index), Some(4));
    }
}
