//! Bytes waiting for one of the driver's connections, and the way in which they are sent.
//!
//! Invariant: the outbox holds bytes only while the connection isn't up or a send is in flight, or if they are sent in
//! pieces.

use std::io;

use stentor_driver::{ConnId, Driver, EpollDriver, Sending};

use super::tls::Tls;

/// Maximum length of a piece in piecewise sending.
const PIECE_BYTES_MAX: usize = 3;

/// A connection of the driver.
pub(super) struct Line {
    pub(super) conn: ConnId,
    /// `true` if the kernel has connected it.
    pub(super) up: bool,
    pub(super) in_flight: bool,
    /// `true` if output is sent piece by piece.
    in_pieces: bool,
    outbox: Vec<u8>,
    tls: Option<Tls>,
}

impl Line {
    pub(super) fn new(conn: ConnId, in_pieces: bool, tls: Option<Tls>) -> Self {
        Self { conn, up: false, in_flight: false, in_pieces, outbox: Vec::new(), tls }
    }

    pub(super) fn write(&mut self, driver: &mut EpollDriver, bytes: &[u8]) {
        match &mut self.tls {
            None => self.write_sealed(driver, bytes),
            Some(tls) => {
                let sealed = tls.seal(bytes);
                self.write_sealed(driver, &sealed);
            }
        }
    }

    pub(super) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Appends the decrypted data to `plain`, and answers the messages of TLS itself.
    pub(super) fn open(
        &mut self,
        driver: &mut EpollDriver,
        sealed: &[u8],
        plain: &mut Vec<u8>,
    ) -> io::Result<()> {
        let opened = self.tls.as_mut().map_or(Ok(()), |tls| tls.open(sealed, plain));
        self.write(driver, &[]);
        opened
    }

    fn write_sealed(&mut self, driver: &mut EpollDriver, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.in_flight || !self.up || self.in_pieces {
            self.outbox.extend_from_slice(bytes);
        } else {
            self.in_flight = driver.send_bytes(self.conn, bytes) == Sending::InFlight;
        }
    }

    pub(super) fn flush(&mut self, driver: &mut EpollDriver) {
        if self.up && !self.in_flight && !self.in_pieces && !self.outbox.is_empty() {
            let outbox = std::mem::take(&mut self.outbox);
            self.in_flight = driver.send_bytes(self.conn, &outbox) == Sending::InFlight;
        }
    }

    /// Sends the next piece of one to three bytes. Because of TCP_NODELAY, it is a segment.
    pub(super) fn drip(&mut self, driver: &mut EpollDriver) {
        if self.up && !self.in_flight && !self.outbox.is_empty() {
            let end = (1 + self.outbox.len() % PIECE_BYTES_MAX).min(self.outbox.len());
            self.in_flight = driver.send_bytes(self.conn, &self.outbox[..end]) == Sending::InFlight;
            self.outbox.drain(..end);
        }
    }
}
