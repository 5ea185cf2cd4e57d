//! Calibration: the CPU of a bare echo, which compares this machine with the one of the committed figures.
//!
//! One thread holds both ends of some loopback connections: it sends a message on each, waits for them with epoll, sends each back,
//! and receives the echoes. So the number of messages per wait is always the same, and no thread is woken. Only the thread's CPU
//! clock counts, so other programs lengthen a calibration without changing it much.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::Error;
use crate::bench::median;

/// Number of connections.
const CONNECTIONS: usize = 64;
/// Size of a message.
const BYTES: usize = 64;
/// Duration of a slice. The result is the median of all slices, so that a disturbed one doesn't count.
const SLICE: Duration = Duration::from_millis(100);

/// The CPU of an echo, in microseconds, of a loop that lasts at least as long as `lasts`.
pub fn bare_echo(lasts: Duration) -> Result<f64, Error> {
    let mut connections =
        Connections::open().map_err(Error::io("opening connections for the calibration"))?;
    let begin = Instant::now();
    let mut slices_us = Vec::new();
    // The first slice warms up.
    connections.slice()?;
    while slices_us.is_empty() || begin.elapsed() < lasts {
        slices_us.push(connections.slice()?);
    }
    Ok(median(&slices_us).unwrap_or_default())
}

struct Connections {
    clients: Vec<TcpStream>,
    servers: Vec<TcpStream>,
    poll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Connections {
    fn open() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for number in 0..CONNECTIONS {
            let client = TcpStream::connect(listener.local_addr()?)?;
            let server = listener.accept()?.0;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            epoll::add(&poll, &server, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
            clients.push(client);
            servers.push(server);
        }
        Ok(Self { clients, servers, poll, events: Vec::with_capacity(CONNECTIONS) })
    }

    /// Echoes for the time of a slice. Returns the CPU of an echo, in microseconds.
    fn slice(&mut self) -> Result<f64, Error> {
        let begin = Instant::now();
        let before = thread_cpu()?;
        let mut echoes = 0;
        while begin.elapsed() < SLICE {
            self.round().map_err(Error::io("an echo of the calibration"))?;
            echoes += CONNECTIONS;
        }
        Ok(thread_cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / echoes as f64)
    }

    fn round(&mut self) -> std::io::Result<()> {
        let mut message = [b'x'; BYTES];
        for client in &mut self.clients {
            client.write_all(&message)?;
        }
        let mut answered = 0;
        while answered < CONNECTIONS {
            self.events.clear();
            epoll::wait(&self.poll, spare_capacity(&mut self.events), None)?;
            for event in &self.events {
                let server = &mut self.servers[event.data.u64() as usize];
                server.read_exact(&mut message)?;
                server.write_all(&message)?;
            }
            answered += self.events.len();
        }
        self.clients.iter_mut().try_for_each(|client| client.read_exact(&mut message))
    }
}

fn thread_cpu() -> Result<Duration, Error> {
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    now.map(Into::into).map_err(|error| Error::io("the CPU clock of a thread")(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_takes_a_few_microseconds_of_the_threads_own_cpu() {
        let us = bare_echo(Duration::ZERO).unwrap();
        assert!((0.2..500.0).contains(&us), "{us} µs");
    }
}
