//! Pairs of Unix sockets, one of which belongs to a driver. Unlike with TCP, closing one end hangs up the
//! other end at once.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use stentor_driver::{ConnId, DetachedConnection, Driver, EpollDriver, Event, Options, UringDriver};

/// More than a receive buffer holds, and less than the sockets' buffers hold.
const BYTES: usize = 150_000;

/// Runs turns until the connection has ended, or this many bytes have been received from it. Returns their
/// number, and the last event.
fn receive(driver: &mut impl Driver, conn: ConnId, bytes_max: usize) -> (usize, Option<Event>) {
    let begun = Instant::now();
    let mut received = 0;
    while begun.elapsed() < Duration::from_secs(10) {
        driver.wait(Some(Duration::from_millis(10))).unwrap();
        while let Some(event) = driver.next_event() {
            match event {
                Event::Received { data, .. } => {
                    received += data.len();
                    driver.recycle(data);
                    if received >= bytes_max {
                        driver.pause(conn);
                        return (received, None);
                    }
                }
                event => return (received, Some(event)),
            }
        }
    }
    (received, None)
}

/// `paused_after` is the number of bytes that are read before the other end is closed.
fn bytes_sent_before_the_end_can_be_read(driver: &mut impl Driver, paused_after: usize) {
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let conn = driver.attach(DetachedConnection::from(OwnedFd::from(near))).unwrap();
    if paused_after == 0 {
        driver.pause(conn);
    }
    far.write_all(&vec![b'x'; BYTES]).unwrap();
    let mut read = 0;
    if paused_after > 0 {
        drop(far);
        (read, _) = receive(driver, conn, paused_after);
    } else {
        driver.wait(Some(Duration::ZERO)).unwrap();
        drop(far);
    }
    // The connection is paused. Only its end is reported.
    let mut events = Vec::new();
    for _ in 0..3 {
        driver.wait(Some(Duration::from_millis(1))).unwrap();
        events.extend(std::iter::from_fn(|| driver.next_event()));
    }
    assert!(matches!(events[..], [Event::EndPending(other)] if other == conn), "{events:?}");
    driver.resume(conn);
    let (rest, end) = receive(driver, conn, usize::MAX);
    assert_eq!(read + rest, BYTES);
    assert!(matches!(end, Some(Event::PeerFinished(other)) if other == conn), "{end:?}");
    driver.finish(conn, Duration::from_secs(60));
    let (_, end) = receive(driver, conn, usize::MAX);
    assert!(matches!(end, Some(Event::Closed { error: None, .. })), "{end:?}");
    assert_eq!(driver.connections(), 0);
}

#[test]
fn epoll() {
    for paused_after in [0, 1] {
        let mut driver = EpollDriver::new(&Options::default()).unwrap();
        bytes_sent_before_the_end_can_be_read(&mut driver, paused_after);
    }
}

#[test]
fn io_uring() {
    for paused_after in [0, 1] {
        let mut driver = UringDriver::new(&Options::default()).unwrap();
        bytes_sent_before_the_end_can_be_read(&mut driver, paused_after);
    }
}
