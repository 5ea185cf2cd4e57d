//! A driver on top of a driver. It encrypts data that the core sends on TLS connections, and delivers plaintext to the core.
//!
//! For the core, such a connection is like any other: the core sends frames and receives [`Event::Received`] with plaintext, and
//! the contract of [`Driver`] holds. A connection speaks TLS from [`TlsLayer::begin`] on. The core receives none of its events
//! before the handshake is complete. Data that the core sends until then is dropped, because it can't be encrypted.
//! [`super::connections`] handles the connections.

use super::connection::Connection;
use super::connections::{Tls, TlsSettings};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use stentor_driver::{
    Capacity, ConnId, DetachedConnection, Driver, Event, Frame, ListenOptions, ReceiveBuffer, Sending,
    TimerId, Waker,
};

/// A driver whose connections may speak TLS. Without certificates, each call costs one branch.
pub(crate) struct TlsLayer<D> {
    driver: D,
    tls: Option<Box<Tls>>,
}

impl<D: Driver> TlsLayer<D> {
    pub(crate) fn new(driver: D, settings: Option<TlsSettings>) -> Self {
        Self { driver, tls: settings.map(|settings| Box::new(Tls::new(settings))) }
    }

    /// Begins TLS on a connection on which nothing has been sent. `received` is its first ciphertext.
    pub(crate) fn begin(&mut self, conn: ConnId, received: Vec<u8>) {
        match &mut self.tls {
            Some(tls) => tls.begin(&mut self.driver, conn, received),
            None => self.driver.close(conn),
        }
    }
}

impl<D: Driver> TlsLayer<D> {
    /// Detaches a connection like [`Driver::detach`], for code that needs the plaintext outside of this process's drivers.
    pub(crate) fn detach_plain(&mut self, conn: ConnId) -> Option<DetachedConnection> {
        match &mut self.tls {
            Some(tls) if tls.get(conn).is_some() => tls.detach_plain(&mut self.driver, conn),
            _ => self.driver.detach(conn),
        }
    }

    /// The open connections that left through [`Self::detach_plain`].
    pub(crate) fn relayed(&self) -> Vec<ConnId> {
        self.tls.iter().flat_map(|tls| tls.pumps.values().copied()).collect()
    }

    /// Ends a relayed connection. Returns `false` if data for its client is in flight, unless `is_last` is set.
    pub(crate) fn end_relayed(&mut self, conn: ConnId, is_last: bool) -> bool {
        self.tls.as_mut().is_none_or(|tls| tls.end_relayed(&mut self.driver, conn, is_last))
    }
}

impl<D: Driver> Driver for TlsLayer<D> {
    fn now(&self) -> Instant {
        self.driver.now()
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        self.driver.listen(addr, options)
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<ConnId> {
        self.driver.connect(remote, source)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let is_busy = self.tls.as_mut().is_some_and(|tls| tls.begin_turn());
        self.driver.wait(if is_busy { Some(Duration::ZERO) } else { timeout })
    }

    #[inline]
    fn next_event(&mut self) -> Option<Event> {
        match &mut self.tls {
            None => self.driver.next_event(),
            Some(tls) => tls.next_event(&mut self.driver),
        }
    }

    #[inline]
    fn recycle(&mut self, buffer: ReceiveBuffer) {
        let buffer = match &mut self.tls {
            None => Some(buffer),
            Some(tls) => tls.recycle(buffer),
        };
        if let Some(buffer) = buffer {
            self.driver.recycle(buffer);
        }
    }

    #[inline]
    fn send(&mut self, conn: ConnId, frames: &mut Vec<Frame>) -> Sending {
        if let Some(tls) = &mut self.tls
            && let Some(connection) = tls.take(conn)
        {
            return tls.send(&mut self.driver, connection, frames);
        }
        self.driver.send(conn, frames)
    }

    #[inline]
    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Sending {
        if let Some(tls) = &mut self.tls
            && let Some(connection) = tls.take(conn)
        {
            return tls.send_bytes(&mut self.driver, connection, bytes);
        }
        self.driver.send_bytes(conn, bytes)
    }

    fn in_flight_bytes(&self, conn: ConnId) -> usize {
        let waiting = self.tls.as_ref().and_then(|tls| tls.get(conn)).map_or(0, Connection::waiting_bytes);
        self.driver.in_flight_bytes(conn) + waiting
    }

    fn owned_bytes(&self) -> usize {
        self.driver.owned_bytes()
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.tls.as_mut().and_then(|tls| tls.get_mut(conn)) {
            connection.is_paused = true;
        }
        self.driver.pause(conn);
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(connection) = self.tls.as_mut().and_then(|tls| tls.get_mut(conn)) {
            connection.is_paused = false;
            if connection.is_waiting {
                return;
            }
        }
        self.driver.resume(conn);
    }

    fn finish(&mut self, conn: ConnId, linger: Duration) {
        if let Some(tls) = &mut self.tls
            && let Some(connection) = tls.take(conn)
        {
            return tls.finish(&mut self.driver, connection, linger);
        }
        self.driver.finish(conn, linger);
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(tls) = &mut self.tls
            && let Some(mut connection) = tls.take(conn)
        {
            tls.remove(&mut self.driver, &mut connection);
        }
        self.driver.close(conn);
    }

    fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection> {
        match &mut self.tls {
            Some(tls) if tls.get(conn).is_some() => tls.detach(&mut self.driver, conn),
            _ => self.driver.detach(conn),
        }
    }

    fn attach(&mut self, mut detached: DetachedConnection) -> io::Result<ConnId> {
        let state = detached.state.take();
        let conn = self.driver.attach(detached)?;
        if let (Some(tls), Some(state)) = (&mut self.tls, state)
            && let Ok(mut connection) = state.downcast::<Connection>()
        {
            connection.id = conn;
            tls.insert(connection);
        }
        Ok(conn)
    }

    fn connections(&self) -> usize {
        self.driver.connections()
    }

    fn capacity(&self) -> Capacity {
        self.driver.capacity()
    }

    fn timer_set(&mut self, at: Instant, token: u64) -> TimerId {
        self.driver.timer_set(at, token)
    }

    fn timer_cancel(&mut self, timer: TimerId) {
        self.driver.timer_cancel(timer);
    }

    fn waker(&self) -> Waker {
        self.driver.waker()
    }

    fn stop_listening(&mut self) {
        self.driver.stop_listening();
    }

    fn pause_accepting(&mut self, is_paused: bool) {
        self.driver.pause_accepting(is_paused);
    }
}
