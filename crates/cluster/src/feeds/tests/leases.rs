//! Nodes with many feeds: the number of their requests for leases.

use super::*;

const KEYS: usize = 2_000;

/// Runs all steps for which no time must pass. A node that fetches a feed gets a document.
fn run_until_idle(cluster: &mut Cluster) {
    loop {
        for index in 0..cluster.nodes.len() {
            while let Some(output) = cluster.nodes[index].feeds.poll_output() {
                match output {
                    Output::Request(ticket, request) => cluster.requests.push_back((index, ticket, request)),
                    Output::Publish(channel, payload) => cluster.bus.publish(&channel, &payload),
                    Output::Control(KeyInterest { key, wanted: true, .. }) => {
                        let update = FeedUpdate::Changed(document(1).into());
                        cluster.nodes[index].feeds.handle_update(cluster.now, &key, update);
                    }
                    _ => {}
                }
            }
        }
        assert!(cluster.requests.len() <= REQUESTS_MAX * cluster.nodes.len());
        let Some((index, ticket, request)) = cluster.requests.pop_front() else { return };
        cluster.answer_one(index, ticket, request);
        while let Some((id, event)) = cluster.bus.poll_delivery() {
            let (Some(node), Event::Message { channel, position, payload }) =
                (cluster.nodes.iter_mut().find(|node| node.id == id), event)
            else {
                continue;
            };
            let (sender, frame) = node.frames.decode(&channel, &payload).expect("a frame");
            if sender != id {
                node.handle(cluster.now, sender, channel, position, frame);
            }
        }
    }
}

fn run_for(cluster: &mut Cluster, time: Duration) {
    let end = cluster.now + time;
    while cluster.now < end {
        cluster.now += Duration::from_millis(250);
        for node in &mut cluster.nodes {
            node.feeds.handle_timeout(cluster.now);
        }
        run_until_idle(cluster);
    }
}

#[test]
fn followers_do_not_ask_for_leases_while_their_holder_is_alive() {
    let mut cluster = Cluster::new(2, 1);
    for index in 0..2 {
        for n in 0..KEYS {
            let key = Key::parse(&format!("many/{n}")).expect("a key");
            let node = &mut cluster.nodes[index];
            cluster.bus.set_interest(node.id, Channel::from(key.clone()), true);
            node.feeds.handle_wanted(cluster.now, KeyInterest { key, wanted: true, requesters: Vec::new() });
        }
        run_until_idle(&mut cluster);
    }
    let stats = |cluster: &Cluster| (cluster.nodes[0].feeds.stats(), cluster.nodes[1].feeds.stats());
    let before = stats(&cluster);
    assert_eq!((before.0.leases, before.1.followed), (KEYS, KEYS));
    run_for(&mut cluster, Duration::from_secs(40));
    let after = stats(&cluster);
    assert_eq!(after.1.requests, before.1.requests, "of a follower");
    let renewals = 40 / RENEW_INTERVAL.as_secs() * KEYS as u64;
    assert!((renewals - KEYS as u64..=renewals).contains(&(after.0.requests - before.0.requests)));
    // Every `CHECK_INTERVAL`, a follower checks that a node holds the leases.
    run_for(&mut cluster, CHECK_INTERVAL);
    let asked = stats(&cluster).1.requests - after.1.requests;
    assert!((KEYS as u64..=2 * KEYS as u64).contains(&asked), "{asked}");
    // The holder is killed.
    cluster.kill(0);
    run_for(&mut cluster, LEASE_TTL + ACQUIRE_INTERVAL.mul_f64(1.3));
    assert_eq!(cluster.nodes[1].feeds.stats().leases, KEYS);
}

#[test]
fn subscribers_learn_that_the_holder_is_silent() {
    let mut cluster = Cluster::following(3, 2);
    let is_stale = |cluster: &Cluster| cluster.nodes[1].view.state == Some(FeedState::Stale);
    let until_stale = |cluster: &mut Cluster| {
        while !is_stale(cluster) {
            cluster.run_for(Duration::from_millis(100));
            assert_ne!(cluster.holders(), [1], "it is known before the next holder");
        }
    };
    // The holder was only cut off, and reports again before its lease has ended.
    cluster.run_for(RENEW_INTERVAL);
    cluster.disconnect(0);
    until_stale(&mut cluster);
    cluster.connect(0);
    cluster.run_for(ACQUIRE_INTERVAL.mul_f64(1.3));
    assert!(!is_stale(&cluster) && cluster.holders().len() == 1);
    if cluster.holders() == [0] {
        cluster.kill(0);
        until_stale(&mut cluster);
    }
    cluster.upstream = 2;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL);
    assert!(!is_stale(&cluster));
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![1], Some(2)));
}

#[test]
fn a_node_that_leaves_while_it_acquires_a_lease_gives_it_away() {
    for is_connected_again in [false, true] {
        let mut cluster = Cluster::new(2, 2);
        cluster.want(0, true);
        while !matches!(cluster.requests.front(), Some((0, _, Request::AcquireLease { .. }))) {
            cluster.answer();
        }
        cluster.want(1, true);
        cluster.nodes[0].feeds.handle_leaving(cluster.now);
        if is_connected_again {
            cluster.connect(0);
        }
        cluster.collect(0);
        assert!(cluster.nodes[0].feeds.is_releasing(), "the engine may grant the lease");
        while cluster.nodes[0].feeds.is_releasing() {
            assert!(!cluster.requests.is_empty());
            cluster.answer();
        }
        // The node exits.
        cluster.disconnect(0);
        cluster.run_for(Duration::from_millis(400));
        assert_eq!((cluster.holders(), cluster.newest(1)), (vec![1], Some(1)));
    }
}

#[test]
fn a_node_that_leaves_gives_its_leases_away_first() {
    let mut cluster = Cluster::following(3, 3);
    assert_eq!(cluster.holders(), [0]);
    let leave = |cluster: &mut Cluster, index: usize| {
        // The node leaves while it stores a version.
        cluster.upstream += 1;
        cluster.fetch(index);
        cluster.nodes[index].feeds.handle_leaving(cluster.now);
        cluster.collect(index);
        assert!(cluster.nodes[index].feeds.is_releasing());
        cluster.run_until_idle();
        assert!(!cluster.nodes[index].feeds.is_releasing());
        assert_eq!(cluster.holders(), [0; 0]);
    };
    // Subscribers of a leaving node stay while it drains, and receive versions from the next holder.
    for _ in 0..2 {
        let holder = cluster.holders()[0];
        leave(&mut cluster, holder);
        cluster.run_for(Duration::from_millis(400));
        assert_ne!(cluster.holders(), [holder]);
        assert_eq!(cluster.holders().len(), 1);
        cluster.check_newest(cluster.upstream);
    }
    // When all nodes leave, one of them takes the lease back.
    let last = cluster.holders()[0];
    cluster.run_for(CHECK_INTERVAL);
    assert_eq!(cluster.holders(), [last]);
    leave(&mut cluster, last);
    cluster.run_for(Duration::from_millis(800));
    assert_eq!(cluster.holders(), [0; 0]);
    cluster.run_for(Duration::from_millis(400));
    assert_eq!(cluster.holders().len(), 1);
    cluster.check_newest(cluster.upstream);
    assert_eq!(cluster.nodes.iter().map(|node| epochs(&node.view.shown)).max(), Some(1));
}
