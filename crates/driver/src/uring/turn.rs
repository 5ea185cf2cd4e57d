//! One turn: records the kernel's completions in the connections and the queue. It returns no events.

use super::UringDriver;
use super::connection::Connection;
use super::ring::Target;
use super::token::Token;
use crate::alarm::earlier;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

impl UringDriver {
    /// Whether this turn has anything to hand out.
    pub(super) fn has_work(&mut self) -> bool {
        !self.queue.is_empty()
            || self.woken
            || self.timers.has_due()
            || self.lingers.has_due()
            || self.listeners.are_ready()
            || self.rings.has_completions()
    }

    /// Enters the kernel once and records its completions.
    pub(super) fn gather(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.listeners.poll(self.rings.main());
        if !self.waker_polled
            && let Some(eventfd) = self.sleeper.eventfd()
        {
            self.rings.main().poll(Token::Waker, Target::Descriptor(eventfd.as_raw_fd()), PollFlags::IN);
            self.waker_polled = true;
        }
        if !std::mem::replace(&mut self.alarm_polled, true) {
            let target = Target::Descriptor(self.alarm.as_fd().as_raw_fd());
            self.rings.main().poll(Token::Alarm, target, PollFlags::IN);
        }
        let sleeps = timeout != Some(Duration::ZERO) && self.sleeper.may_sleep();
        let timeout = if sleeps { timeout } else { Some(Duration::ZERO) };
        let result = self.rings.enter(self.options.events_per_turn, timeout);
        self.woken |= self.sleeper.end_sleep();
        self.now = Instant::now();
        result?;
        self.record(self.options.events_per_turn);
        self.alarm.advance(self.now);
        self.listeners.advance(self.now);
        self.timers.advance(self.now);
        self.lingers.advance(self.now);
        Ok(())
    }

    /// Has the direct connections in the queue read before they are stepped: else what has arrived in time would
    /// be handed out a turn later, after the timer that denies it.
    pub(super) fn read_ahead(&mut self) -> io::Result<()> {
        if !self.rings.have_direct() {
            return Ok(());
        }
        for nth in 0..self.queue.len() {
            let conn = self.queue[nth];
            while self.connections.get(conn.into()).is_some_and(Connection::may_read_ahead) {
                self.begin_receive(conn);
                if self.connections.get(conn.into()).is_some_and(|connection| connection.receive.is_none()) {
                    // As many as may be are under way.
                    self.rings.enter_direct(usize::MAX)?;
                    self.record(usize::MAX);
                }
            }
        }
        self.rings.enter_direct(usize::MAX)?;
        self.record(usize::MAX);
        Ok(())
    }

    /// Records at most `max` completions. Returns no events.
    pub(super) fn record(&mut self, max: usize) {
        let mut completions = std::mem::take(&mut self.completions);
        self.rings.completions(&mut completions, max);
        for completion in completions.drain(..) {
            match Token::from_bits(completion.token) {
                Token::Ignored | Token::Installed(_) => {}
                Token::Waker => self.waker_polled = completion.more, // see `end_sleep`
                Token::Alarm => self.alarm_polled = completion.more, // see the clock
                Token::Listener(name) => self.listeners.record(name, completion.more),
                Token::Send(flight) => {
                    if let Some(conn) = self.flights.complete(flight, completion.result()) {
                        self.enqueue(conn);
                    }
                }
                Token::Receive(receive) => {
                    let Some((conn, full)) = self.receives.complete(receive, completion.result()) else {
                        continue;
                    };
                    if let Some(connection) = self.connections.get_mut(conn.into()) {
                        connection.readable |= full || connection.ending && completion.result > 0;
                    }
                    self.enqueue(conn);
                }
                Token::Freed(name) => self.rings.freed(name),
                Token::Poll(name) => {
                    let Some(conn) = name.find(&self.connections) else { continue };
                    let Some(connection) = self.connections.get_mut(conn.into()) else { continue };
                    connection.polled = completion.more;
                    match completion.result() {
                        Ok(flags) => connection.record(PollFlags::from_bits_retain(flags as u16)),
                        Err(Errno::CANCELED) => {}
                        Err(_) => connection.fail(),
                    }
                    if !std::mem::replace(&mut connection.queued, true) {
                        self.queue.push_back(conn);
                    }
                }
                Token::Room(name) => {
                    let Some(conn) = name.find(&self.connections) else { continue };
                    let Some(connection) = self.connections.get_mut(conn.into()) else { continue };
                    connection.awaits_room = false;
                    connection.writable = true;
                    connection.suspect = completion.result().map_or(true, |flags| {
                        PollFlags::from_bits_retain(flags as u16).intersects(PollFlags::ERR | PollFlags::HUP)
                    });
                    self.enqueue(conn);
                }
            }
        }
        self.completions = completions;
    }

    /// Hands the kernel what has gathered, and notes what became of it.
    pub(super) fn flush(&mut self) {
        // Should it fail, the next wait says so.
        let _ = self.rings.submit();
        self.record(usize::MAX);
    }

    /// Makes room in the submission queue, so that a broadcast to very many leaves in batches whose memory is
    /// released batch by batch.
    pub(super) fn make_room(&mut self) {
        if self.rings.are_nearly_full() {
            self.flush();
        }
    }

    /// How long the kernel may sleep, unless the alarm rings.
    pub(super) fn sleep(&mut self, until: Option<Instant>) -> io::Result<Option<Duration>> {
        if self.has_work() {
            return Ok(Some(Duration::ZERO));
        }
        let first = earlier(self.timers.next_wake(), self.lingers.next_wake());
        if let Some(first) = earlier(first, self.listeners.next_wake()) {
            self.alarm.set(first)?;
        }
        Ok(until.map(|until| until.saturating_duration_since(Instant::now())))
    }
}
