//! socketioxide as a peer: echo (the event `message` and its argument to the sender) and chat (to everybody, sender
//! included), by the documented interface, on axum and one thread of tokio.

use std::net::SocketAddr;

use axum::serve::ListenerExt;
use socketioxide::extract::{Data, SocketRef};
use socketioxide::{SocketIo, TransportType};
use tokio::net::TcpSocket;
use tokio::signal::unix::{SignalKind, signal};

const BACKLOG: u32 = 4096;
/// Packets that wait for one client; what is emitted beyond is lost (the default is 128).
const BUFFERED_PACKETS_MAX: usize = 4096;
const PAYLOAD_BYTES_MAX: u64 = 16 * 1024 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut mode, mut port, mut protocol) = ("echo".to_owned(), 0, String::new());
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().unwrap_or_default();
        match name.as_str() {
            "--mode" => mode = value,
            "--port" => port = value.parse()?,
            "--protocol" => protocol = value,
            _ => return Err(format!("there is no option {name}").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(mode == "chat", port, &protocol))
}

async fn serve(chat: bool, port: u16, protocol: &str) -> Result<(), Box<dyn std::error::Error>> {
    let builder = SocketIo::builder().max_payload(PAYLOAD_BYTES_MAX).max_buffer_size(BUFFERED_PACKETS_MAX);
    let builder = match protocol {
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

    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let listener = socket.listen(BACKLOG)?;
    println!("ready http://{}", listener.local_addr()?);
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
