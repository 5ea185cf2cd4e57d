//! socketioxide as a peer: echo (the event `message` and its argument to the sender) and chat (to all clients,
//! including the sender), by the documented interface, on axum and one thread of tokio.

use axum::serve::ListenerExt;
use socketioxide::extract::{Data, SocketRef};
use socketioxide::{SocketIo, TransportType};
use tokio::signal::unix::{SignalKind, signal};

#[path = "../../peer.rs"]
mod peer;

use peer::Options;

/// Maximum number of packets that wait for one client. Further packets are lost (the default is 128).
const BUFFERED_PACKETS_MAX: usize = 4096;
const PAYLOAD_BYTES_MAX: u64 = 16 * 1024 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    peer::run(serve)
}

async fn serve(Options { chat, port, protocol }: Options) -> Result<(), Box<dyn std::error::Error>> {
    let builder = SocketIo::builder().max_payload(PAYLOAD_BYTES_MAX).max_buffer_size(BUFFERED_PACKETS_MAX);
    let builder = match protocol.as_str() {
        "socketio" => builder.transports([TransportType::Websocket]),
        "socketio-polling" => builder.transports([TransportType::Polling]),
        _ => builder,
    };
    let (layer, io) = builder.build_layer();
    io.ns("/", async move |socket: SocketRef| {
        if chat {
            socket.on("message", async |io: SocketIo, Data(text): Data<String>| {
                io.emit("message", &text).await.ok();
            });
        } else {
            socket.on("message", async |socket: SocketRef, Data(text): Data<String>| {
                socket.emit("message", &text).ok();
            });
        }
    });

    let listener = peer::listen(port)?;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let app = axum::Router::new().layer(layer);
    let mut ended = signal(SignalKind::terminate())?;
    tokio::select! {
        served = async { axum::serve(listener, app).await } => Ok(served?),
        _ = ended.recv() => Ok(()),
    }
}
