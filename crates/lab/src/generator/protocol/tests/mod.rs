mod brokers;
mod deflate;
mod envelopes;
mod feeds;
mod frames;
mod handshakes;
mod hixie;
mod legacy_protocols;
