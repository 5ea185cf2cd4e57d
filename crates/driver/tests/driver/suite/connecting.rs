//! Listening, accepting and connecting.

use super::pair::{Pair, Seen};
use std::io;
use std::net::SocketAddr;
use stentor_driver::{Frame, ListenOptions, Sending};

pub(crate) fn port_0_picks_one(mut pair: Pair) {
    let first = pair.server.listen("127.0.0.1:0");
    let second = pair.server.listen("127.0.0.1:0");
    assert!(first.port() != 0 && second.port() != 0 && first != second);
    assert_eq!(first.ip().to_string(), "127.0.0.1");
    let (_, near) = pair.connect(first);
    let (far, other_near) = pair.connect(second);
    assert_ne!(near, other_near);
    assert_eq!(pair.server.driver.connections(), 2);
    assert!(far.index() < 1000);
}

pub(crate) fn a_connection_knows_its_listener(mut pair: Pair) {
    let addrs = [(); 3].map(|()| pair.server.listen("127.0.0.1:0"));
    for nth in [1, 0, 2, 1] {
        let (conn, _) = pair.connect(addrs[nth]);
        assert_eq!(pair.server.listeners[&conn], nth as u8);
    }
}

pub(crate) fn an_address_is_taken_once(mut pair: Pair) {
    let options = ListenOptions { reuse_port: false, ..ListenOptions::default() };
    let addr = pair.server.driver.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let error = pair.other.driver.listen(addr, &options).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

pub(crate) fn the_source_address_is_chosen_and_seen(mut pair: Pair) {
    let addr = pair.server.listen("127.0.0.1:0");
    let near = pair.client.driver.connect(addr, Some("127.0.7.9".parse().unwrap())).unwrap();
    pair.until(|pair| pair.client.saw(&Seen::Connected(near)) && !pair.server.accepted().is_empty());
    let (_, peer) = pair.server.accepted()[0];
    assert_eq!(peer.ip().to_string(), "127.0.7.9");
    assert_ne!(peer.port(), 0);
}

pub(crate) fn ipv6_works(mut pair: Pair) {
    let Ok(addr) = pair.server.driver.listen("[::1]:0".parse().unwrap(), &ListenOptions::default()) else {
        return; // this machine has no IPv6
    };
    let (far, near) = pair.connect(addr);
    assert!(pair.server.accepted()[0].1.is_ipv6());
    pair.client.send(near, [Frame::from_static(b"six")]);
    pair.until(|pair| pair.server.bytes(far) == b"six");
}

pub(crate) fn an_ipv4_peer_is_one_everywhere(mut pair: Pair) {
    let Ok(addr) = pair.server.driver.listen("[::]:0".parse().unwrap(), &ListenOptions::default()) else {
        return; // this machine has no IPv6
    };
    pair.connect(SocketAddr::new("127.0.0.1".parse().unwrap(), addr.port()));
    assert_eq!(pair.server.accepted()[0].1.ip().to_string(), "127.0.0.1");
}

pub(crate) fn a_refused_connection_is_closed(mut pair: Pair) {
    let addr = pair.server.listen("127.0.0.1:0");
    pair.server.driver.stop_listening();
    let Ok(near) = pair.client.driver.connect(addr, None) else { return };
    pair.until(|pair| pair.client.closed(near).is_some());
    assert_eq!(pair.client.closed(near), Some(Some(io::ErrorKind::ConnectionRefused)));
    assert!(!pair.client.saw(&Seen::Connected(near)));
    assert_eq!(pair.client.driver.connections(), 0);
}

pub(crate) fn connections_outlive_the_listener(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.server.driver.stop_listening();
    pair.client.send(near, [Frame::from_static(b"still here")]);
    pair.until(|pair| pair.server.bytes(far) == b"still here");
    // The driver can listen again.
    let addr = pair.server.listen("127.0.0.1:0");
    pair.connect(addr);
}

pub(crate) fn a_pause_leaves_connections_in_the_queue(mut pair: Pair) {
    let (far, near) = pair.connected();
    let addr = pair.server.listen("127.0.0.1:0");
    let accepted = pair.server.accepted().len();
    pair.server.driver.pause_accepting(true);
    let waiting = pair.client.driver.connect(addr, None).unwrap();
    pair.client.send(near, [Frame::from_static(b"still here")]);
    pair.until(|pair| pair.client.saw(&Seen::Connected(waiting)) && pair.server.bytes(far) == b"still here");
    assert_eq!(pair.server.accepted().len(), accepted);
    pair.server.driver.pause_accepting(false);
    pair.until(|pair| pair.server.accepted().len() == accepted + 1);
}

pub(crate) fn a_send_may_precede_the_connection(mut pair: Pair) {
    let addr = pair.server.listen("127.0.0.1:0");
    let near = pair.client.driver.connect(addr, None).unwrap();
    assert_eq!(pair.client.send(near, [Frame::from_static(b"early")]), Sending::InFlight);
    assert_eq!(pair.client.driver.in_flight_bytes(near), 5);
    pair.until(|pair| pair.client.saw(&Seen::Sent(near)) && !pair.server.accepted().is_empty());
    let far = pair.server.accepted()[0].0;
    pair.until(|pair| pair.server.bytes(far) == b"early");
    assert_eq!(pair.client.log, [Seen::Connected(near), Seen::Sent(near)]);
}

pub(crate) fn a_connection_begun_can_be_ended(mut pair: Pair) {
    let addr = pair.server.listen("127.0.0.1:0");
    let near = pair.client.driver.connect(addr, None).unwrap();
    pair.client.close(near);
    let near = pair.client.driver.connect(addr, None).unwrap();
    pair.client.finish(near, std::time::Duration::from_secs(1000));
    pair.until(|pair| pair.client.closed(near) == Some(None));
    assert_eq!(pair.client.driver.connections(), 0);
}

pub(crate) fn many_connect_at_once(mut pair: Pair) {
    let (far, near) = pair.connect_many(300);
    assert_eq!((pair.server.driver.connections(), pair.client.driver.connections()), (300, 300));
    for conn in near {
        pair.client.close(conn);
    }
    assert_eq!(pair.client.driver.connections(), 0);
    pair.until(|pair| far.iter().all(|far| pair.server.count(&Seen::PeerFinished(*far)) == 1));
}

pub(crate) fn drivers_share_a_port(mut pair: Pair) {
    let addr = pair.server.listen("127.0.0.1:0");
    assert_eq!(pair.other.driver.listen(addr, &ListenOptions::default()).unwrap(), addr);
    for _ in 0..100 {
        pair.client.driver.connect(addr, None).unwrap();
    }
    pair.until(|pair| pair.server.accepted().len() + pair.other.accepted().len() == 100);
    assert!(!pair.server.accepted().is_empty() && !pair.other.accepted().is_empty());
}
