//! Encrypts and sends data of the core.

use super::Tls;
use crate::tls::connection::{Backlog, Connection, Stage};
use stentor_driver::{Driver, Frame, Sending};

/// Maximum size of plaintext that is encrypted at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Capacity that the scratch buffers keep after an unusually large send.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

impl Tls {
    /// Encrypts and sends frames of the core until a send is in flight. Returns `false` if the connection can no longer send.
    pub(super) fn encrypt_backlog<D: Driver>(&mut self, driver: &mut D, connection: &mut Connection) -> bool {
        while !connection.driver_sends
            && let Some(backlog) = &mut connection.backlog
        {
            self.gathered.clear();
            let is_read = backlog.take(PIECE_BYTES, &mut self.gathered);
            if backlog.bytes == 0 {
                connection.backlog = None;
            }
            let gathered = std::mem::take(&mut self.gathered);
            let is_sent = is_read && self.encrypt(driver, connection, &gathered);
            self.gathered = gathered;
            if !is_sent {
                return false;
            }
        }
        true
    }

    /// Encrypts and sends plaintext. No send may be in flight. Returns `false` if the connection can no longer send.
    fn encrypt<D: Driver>(&mut self, driver: &mut D, connection: &mut Connection, plain: &[u8]) -> bool {
        let Stage::Open(session) = &mut connection.stage else { return false };
        self.out.clear();
        if !session.encrypt(plain, &mut connection.unread, &mut self.out) {
            return false;
        }
        connection.driver_sends = driver.send_bytes(connection.id, &self.out) == Sending::InFlight;
        if self.out.capacity() > SCRATCH_BYTES_MAX {
            self.out = Vec::new();
        }
        true
    }

    /// Sends frames of the core, as [`Driver::send`].
    pub(in crate::tls) fn send<D: Driver>(
        &mut self,
        driver: &mut D,
        mut connection: Box<Connection>,
        frames: &mut Vec<Frame>,
    ) -> Sending {
        assert!(!connection.core_sends, "a send is in flight on this connection");
        if !connection.is_open() {
            frames.clear();
            self.put(connection);
            return Sending::Done;
        }
        let is_able = match &frames[..] {
            // The usual case.
            [frame] if !connection.driver_sends && frame.len() <= PIECE_BYTES && !frame.is_file() => {
                let is_able = frame.is_empty() || self.encrypt(driver, &mut connection, &frame.bytes());
                frames.clear();
                is_able
            }
            _ => {
                connection.backlog = Some(Box::new(Backlog::of(frames))).filter(|backlog| backlog.bytes > 0);
                self.encrypt_backlog(driver, &mut connection)
            }
        };
        self.finish_send(driver, connection, is_able)
    }

    /// Sends bytes like [`Driver::send_bytes`].
    pub(in crate::tls) fn send_bytes<D: Driver>(
        &mut self,
        driver: &mut D,
        mut connection: Box<Connection>,
        bytes: &[u8],
    ) -> Sending {
        assert!(!connection.core_sends, "a send is in flight on this connection");
        let is_able = if !connection.is_open() || bytes.is_empty() {
            true
        } else if connection.driver_sends || bytes.len() > PIECE_BYTES {
            connection.backlog = Some(Box::new(Backlog::of(&mut vec![Frame::owned(bytes.to_vec())])));
            self.encrypt_backlog(driver, &mut connection)
        } else {
            self.encrypt(driver, &mut connection, bytes)
        };
        self.finish_send(driver, connection, is_able)
    }

    fn finish_send<D: Driver>(
        &mut self,
        driver: &mut D,
        mut connection: Box<Connection>,
        is_able: bool,
    ) -> Sending {
        if !is_able {
            // The event `Closed` follows.
            self.end(driver, connection, &[]);
            return Sending::InFlight;
        }
        connection.core_sends =
            connection.backlog.is_some() || connection.driver_sends && connection.is_open();
        let sending = if connection.core_sends { Sending::InFlight } else { Sending::Done };
        self.put(connection);
        sending
    }
}
