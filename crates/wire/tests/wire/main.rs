//! Published attacks on parsers, each against the crate's public interface.

mod threats;
mod threats_socketio;
mod threats_sockjs;
