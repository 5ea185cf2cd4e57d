//! Connections that leave the data plane for another node ([`crate::ports::Relay`]) while their TLS stays here.
//!
//! A connection leaves as a file descriptor, without its keys. So it leaves as one end of a socket pair, whose other end is a
//! connection of the driver. Data that arrives there is encrypted for the client, and data of the client is written there. The
//! sockets provide flow control: while one side can't be written to, the other isn't read from. If the other node can't be
//! reached, the end of the pair returns and is served as a plain connection.

use super::connection::Connection;
use super::connections::Tls;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use stentor_driver::{ConnId, DetachedConnection, Driver, Event, Sending};

/// Time that either side has to end after the other one has ended.
const LINGER: Duration = Duration::from_secs(5);

impl Tls {
    /// Returns the far end of the socket pair of a connection whose TLS stays here. The core forgets the connection. `None` if
    /// the system refuses a pair.
    pub(super) fn detach_plain<D: Driver>(
        &mut self,
        driver: &mut D,
        conn: ConnId,
    ) -> Option<DetachedConnection> {
        if !self.is_idle(conn) {
            return None;
        }
        let (near, far) = UnixStream::pair().ok()?;
        near.set_nonblocking(true).and_then(|()| far.set_nonblocking(true)).ok()?;
        // A simulated driver takes no file descriptor.
        let near = driver.attach(DetachedConnection::from(OwnedFd::from(near))).ok()?;
        self.get_mut(conn)?.pump = Some(near);
        self.pumps.insert(near, conn);
        Some(DetachedConnection::from(OwnedFd::from(far)))
    }

    /// Handles an event of a socket pair. Other events are returned.
    pub(super) fn pump<D: Driver>(&mut self, driver: &mut D, event: Event) -> Option<Event> {
        let (Event::Received { conn: near, .. }
        | Event::Sent(near)
        | Event::PeerFinished(near)
        | Event::EndPending(near)
        | Event::Closed { conn: near, .. }) = event
        else {
            return Some(event);
        };
        let Some(&conn) = self.pumps.get(&near) else { return Some(event) };
        match event {
            Event::Received { data, .. } => {
                if let Some(connection) = self.take(conn)
                    && self.send_bytes(driver, connection, &data) == Sending::InFlight
                {
                    driver.pause(near);
                }
                driver.recycle(data);
            }
            Event::Sent(_) => driver.resume(conn),
            Event::EndPending(_) => {}
            // A side isn't read from while bytes are in flight to the other one, so the client has received all of them.
            _ => {
                if let Some(connection) = self.take(conn) {
                    self.finish(driver, connection, LINGER);
                }
            }
        }
        None
    }

    /// Writes plaintext of a client to the near end of its pair.
    pub(super) fn pump_plain<D: Driver>(&mut self, driver: &mut D, conn: ConnId, near: ConnId, plain: &[u8]) {
        if driver.send_bytes(near, plain) == Sending::InFlight {
            driver.pause(conn);
        }
    }

    /// Ends a connection that has left the core. Returns `false` if data for its client is in flight, unless `is_last` is set.
    pub(super) fn end_relayed<D: Driver>(&mut self, driver: &mut D, conn: ConnId, is_last: bool) -> bool {
        let waits = |connection: &Connection| connection.driver_sends && !is_last;
        if self.get(conn).is_some_and(waits) {
            return false;
        }
        if let Some(connection) = self.take(conn) {
            self.finish(driver, connection, LINGER);
        }
        true
    }

    /// Ends the socket pair of a connection that ends.
    pub(super) fn end_pump<D: Driver>(&mut self, driver: &mut D, connection: &mut Connection) {
        if let Some(near) = connection.pump.take() {
            self.pumps.remove(&near);
            driver.finish(near, LINGER);
        }
    }
}
