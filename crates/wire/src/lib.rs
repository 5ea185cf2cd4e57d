//! Bytes to typed events and back: HTTP/1.1 and WebSocket, client and server roles, no I/O.
