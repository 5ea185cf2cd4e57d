//! A driver of either kind, so that both kinds can be in one pair.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use stentor_driver::{
    Capacity, ConnId, DetachedConnection, Driver, EpollDriver, Event, Frame, ListenOptions, ReceiveBuffer,
    Sending, TimerId, UringDriver, Waker,
};

pub(crate) enum Mixed {
    Epoll(Box<EpollDriver>),
    Uring(Box<UringDriver>),
}

macro_rules! either {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::Epoll(driver) => driver.$method($($argument),*),
            Self::Uring(driver) => driver.$method($($argument),*),
        }
    };
}

impl Driver for Mixed {
    fn now(&self) -> Instant {
        either!(self.now())
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        either!(self.listen(addr, options))
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<ConnId> {
        either!(self.connect(remote, source))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        either!(self.wait(timeout))
    }

    fn next_event(&mut self) -> Option<Event> {
        either!(self.next_event())
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        either!(self.recycle(buffer))
    }

    fn send(&mut self, conn: ConnId, frames: &mut Vec<Frame>) -> Sending {
        either!(self.send(conn, frames))
    }

    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Sending {
        either!(self.send_bytes(conn, bytes))
    }

    fn in_flight_bytes(&self, conn: ConnId) -> usize {
        either!(self.in_flight_bytes(conn))
    }

    fn owned_bytes(&self) -> usize {
        either!(self.owned_bytes())
    }

    fn pause(&mut self, conn: ConnId) {
        either!(self.pause(conn))
    }

    fn resume(&mut self, conn: ConnId) {
        either!(self.resume(conn))
    }

    fn finish(&mut self, conn: ConnId, linger: Duration) {
        either!(self.finish(conn, linger))
    }

    fn close(&mut self, conn: ConnId) {
        either!(self.close(conn))
    }

    fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection> {
        either!(self.detach(conn))
    }

    fn attach(&mut self, detached: DetachedConnection) -> io::Result<ConnId> {
        either!(self.attach(detached))
    }

    fn connections(&self) -> usize {
        either!(self.connections())
    }

    fn capacity(&self) -> Capacity {
        either!(self.capacity())
    }

    fn timer_set(&mut self, at: Instant, token: u64) -> TimerId {
        either!(self.timer_set(at, token))
    }

    fn timer_cancel(&mut self, timer: TimerId) {
        either!(self.timer_cancel(timer))
    }

    fn waker(&self) -> Waker {
        either!(self.waker())
    }

    fn stop_listening(&mut self) {
        either!(self.stop_listening())
    }
}
