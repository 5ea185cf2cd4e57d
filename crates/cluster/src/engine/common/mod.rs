//! Parts that the engines on Redis and NATS share: interest, bounded queues, addresses, TLS, and the state of connections.
//!
//! This module names no engine. An engine has its own protocol, its own commands, and its own state on the server.

mod address;
mod connection;
mod interest;
mod outgoing;
mod permits;
mod tls;

pub(crate) use address::{Endpoint, Login, percent_decoded};
pub(crate) use connection::{
    Backoff, CONNECT_TIMEOUT, Outages, Probe, Stream, check_version, connect, within_connect_timeout,
};
pub(super) use interest::{Change, ChannelName, Interest};
pub(crate) use outgoing::{Outgoing, Taken};
pub(crate) use permits::{Permit, Permits};
pub(super) use tls::{encrypt, explain_alert, tls};

/// CRC-16/XMODEM, of slots in Redis Cluster and of NATS's seeds.
pub(super) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}
