//! The minimal client: it receives, counts bytes and answers. Compared with it, the generator shows its own cost, as the bare
//! servers (`lab/peers/bare`) show the cost of other servers: almost all of theirs is the kernel's.
//!
//! Deliberately absent: audit, times, fragments (unexpected frames end the run), backpressure.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use stentor_wire::ws::{Opcode, encode};

use super::{FanoutPlan, LoadSpec, Outcome, Span, Spec};
use crate::Error;
use crate::measure::CpuClock;
use crate::payload;

/// Maximum number of events per wait, and of bytes per receive.
const EVENTS: usize = 128;
const RECEIVE_BYTES: usize = 64 << 10;

/// A client frame (RFC 6455 section 5.2), masked with zero like the generator's frames.
fn frame(bytes: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(&mut frame, Opcode::Text, &payload::blank(bytes), false, Some([0; 4]));
    frame
}

/// Runs the task of a generator, and fills in the part of the outcome that it measures.
pub(super) fn run(task: &Spec) -> Result<Outcome, Error> {
    let (bytes, warm_up, measure, period) = match task.load {
        LoadSpec::EchoClosed { bytes, warm_up, measure } => (bytes, warm_up, measure, None),
        LoadSpec::Fanout(FanoutPlan { bytes, rate_hz, warm_up, count, .. }) => {
            let period = Duration::from_secs_f64(1.0 / rate_hz);
            (bytes, period * warm_up as u32, period * count as u32, Some(period))
        }
        _ => return Err(Error::Usage("a bare client only echoes and publishes".into())),
    };
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io("epoll"))?;
    let mut streams = Vec::with_capacity(task.connections);
    for nth in 0..task.connections {
        let stream = open(task.target()).map_err(Error::io("connecting"))?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(nth as u64), flags).map_err(io("epoll"))?;
        streams.push(stream);
    }
    let frame = frame(bytes);
    // Server frames have no mask.
    let each = frame.len() as u64 - 4;
    let mut received = vec![0u64; streams.len()];
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    let send = |stream: &mut TcpStream| stream.write_all(&frame).map_err(Error::io("sending"));
    if period.is_none() {
        streams.iter_mut().try_for_each(send)?;
    }
    let begin = Instant::now();
    let (from, until) = (begin + warm_up, begin + warm_up + measure);
    let mut next = begin;
    let mut messages = 0;
    let mut first = None;
    loop {
        let now = Instant::now();
        if now >= from && first.is_none() {
            first = Some((now, messages, clock()?));
        }
        if let (true, Some((at, before, cpu))) = (now >= until, first) {
            let own_cpu = clock()?.saturating_sub(cpu);
            let load = Span { own_cpu, wall: now.duration_since(at), ..Span::default() };
            return Ok(Outcome { messages: messages - before, load, ..Outcome::default() });
        }
        let mut due = until;
        if let Some(period) = period {
            if now >= next {
                send(&mut streams[0])?;
                next += period;
            }
            due = next.min(until);
        }
        let wait = due.saturating_duration_since(now);
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        events.clear();
        epoll::wait(&poll, spare_capacity(&mut events), Some(&wait)).map_err(io("epoll"))?;
        for event in &events {
            let nth = event.data.u64() as usize;
            loop {
                let count = match streams[nth].read(&mut buffer) {
                    Ok(0) => return Err(Error::Generator("the server closed a connection".into())),
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(Error::io("receiving")(error)),
                };
                let whole = received[nth] / each;
                received[nth] += count as u64;
                let came = received[nth] / each - whole;
                messages += came;
                if period.is_none() {
                    for _ in 0..came {
                        send(&mut streams[nth])?;
                    }
                }
                // Fewer bytes than requested: the queue was empty, and the next edge reports new data.
                if count < RECEIVE_BYTES {
                    break;
                }
            }
        }
    }
}

fn clock() -> Result<Duration, Error> {
    CpuClock::own().read().map_err(Error::io("the CPU clock"))
}

fn io(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |error| Error::io(what)(error.into())
}

/// Connects and performs the handshake (RFC 6455 section 4.1) with the key of the example in section 1.2.
fn open(target: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(target)?;
    stream.set_nodelay(true)?;
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {target}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    if !answer.starts_with(b"HTTP/1.1 101") {
        return Err(std::io::Error::other("the server didn't switch to WebSocket"));
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}
