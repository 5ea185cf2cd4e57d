//! TLS of one connection: takes bytes, and writes plaintext and bytes into buffers of the caller.
//!
//! This is the only file that names rustls' connection. It uses the unbuffered one, because a connection without buffers takes 4
//! kB less. Its interface changes with rustls 0.24.

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{Error, HandshakeKind, ProtocolVersion, ServerConfig};
use std::sync::Arc;

/// Size of a record besides its content: a header of 5 bytes, an explicit nonce of 8, the type, and a tag of 16.
const RECORD_OVERHEAD_BYTES: usize = 32;
/// Maximum size of a record's content (RFC 8446, section 5.1).
pub(super) const RECORD_BYTES_MAX: usize = 1 << 14;
/// Size of a flight of a handshake without a certificate chain.
const FLIGHT_BYTES: usize = 512;

/// The result of input.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Number of input bytes that were consumed. The caller passes the rest again, with the bytes that follow.
    pub(super) consumed: usize,
    /// `true` if the peer has sent close_notify.
    pub(super) peer_finished: bool,
    /// Reason for closing. The TLS alert has already been written.
    pub(super) error: Option<Error>,
}

/// Results of a completed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) is_version_13: bool,
    pub(super) is_resumed: bool,
}

pub(super) struct Session(UnbufferedServerConnection);

impl Session {
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, Error> {
        UnbufferedServerConnection::new(config).map(Self)
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Returns `true` if another ClientHello was requested (HelloRetryRequest, RFC 8446, section 4.1.4), and no session was
    /// resumed since.
    pub(super) fn has_asked_again(&self) -> bool {
        self.0.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest)
    }

    /// The results of the handshake, once it is complete.
    pub(super) fn agreed(&self) -> Agreed {
        Agreed {
            is_version_13: self.0.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            is_resumed: self.0.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    /// Handles input. Appends plaintext to `plain`, and bytes for the peer to `out`.
    pub(super) fn receive(
        &mut self,
        input: &mut [u8],
        mut plain: impl FnMut(&[u8]),
        out: &mut Vec<u8>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.0.process_tls_records(&mut input[outcome.consumed..]);
            let mut waits = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                plain(record.payload);
                            }
                            Err(error) => outcome.error = Some(error),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => outcome.peer_finished = true,
                // Early data isn't offered, and new states come only with new versions of rustls.
                Ok(_) => waits = true,
                Err(error) => outcome.error = Some(error),
            }
            outcome.consumed += discard;
            if outcome.error.is_some() {
                self.write_alert(&mut input[outcome.consumed..], out);
                return outcome;
            }
            if waits {
                return outcome;
            }
        }
    }

    /// Encrypts `plain` to `out`. `unread` is the rest of the last input. Returns `true` if the connection can still send.
    pub(super) fn encrypt(&mut self, plain: &[u8], unread: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        let records = plain.len().div_ceil(RECORD_BYTES_MAX).max(1);
        let room = plain.len() + records * RECORD_OVERHEAD_BYTES;
        self.write(room, unread, out, |traffic, out| traffic.encrypt(plain, out))
    }

    /// Writes close_notify to `out`.
    pub(super) fn close(&mut self, unread: &mut Vec<u8>, out: &mut Vec<u8>) {
        self.write(RECORD_OVERHEAD_BYTES, unread, out, |traffic, out| traffic.queue_close_notify(out));
    }

    fn write(
        &mut self,
        mut room: usize,
        unread: &mut Vec<u8>,
        out: &mut Vec<u8>,
        write: impl Fn(&mut WriteTraffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> bool {
        let begin = out.len();
        loop {
            // rustls tracks which part of a message it has seen in `unread`.
            let UnbufferedStatus { discard, state } = self.0.process_tls_records(unread);
            match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let begin = out.len();
                    out.resize(begin + room, 0);
                    match write(&mut traffic, &mut out[begin..]) {
                        Ok(written) => {
                            out.truncate(begin + written);
                            unread.drain(..discard);
                            return true;
                        }
                        Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                            out.truncate(begin);
                            room = required_size;
                        }
                        Err(EncryptError::EncryptExhausted) => {
                            out.truncate(begin);
                            return false;
                        }
                    }
                }
                Ok(_) | Err(_) => {
                    out.truncate(begin);
                    return false;
                }
            }
            unread.drain(..discard);
        }
    }

    /// Writes an alert after an error. The input can't be handled again.
    fn write_alert(&mut self, mut input: &mut [u8], out: &mut Vec<u8>) {
        while self.0.wants_write() {
            let UnbufferedStatus { discard, state } = self.0.process_tls_records(input);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else { return };
            encode(&mut data, out);
            input = &mut std::mem::take(&mut input)[discard..];
        }
    }
}

type WriteTraffic<'a> = rustls::unbuffered::WriteTraffic<'a, rustls::server::ServerConnectionData>;

fn encode(data: &mut EncodeTlsData<'_, rustls::server::ServerConnectionData>, out: &mut Vec<u8>) {
    let begin = out.len();
    let mut room = FLIGHT_BYTES;
    loop {
        out.resize(begin + room, 0);
        match data.encode(&mut out[begin..]) {
            Ok(written) => return out.truncate(begin + written),
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
                room = required_size
            }
            Err(EncodeError::AlreadyEncoded) => return out.truncate(begin),
        }
    }
}
