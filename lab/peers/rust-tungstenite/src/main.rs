//! tungstenite as a peer: echo and chat (each message to everybody, sender included), by the documented interface, on one
//! thread of tokio.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

const BACKLOG: u32 = 4096;
const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// The value that its documentation names for many connections.
const READ_BYTES: usize = 4 << 10;
/// A client that is more messages behind is disconnected.
const BEHIND_MAX: usize = 4096;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Echo,
    Chat,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut mode, mut port) = (Mode::Echo, 0);
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().unwrap_or_default();
        match (name.as_str(), value.as_str()) {
            ("--mode", "echo") => mode = Mode::Echo,
            ("--mode", "chat") => mode = Mode::Chat,
            ("--port", _) => port = value.parse()?,
            _ => return Err(format!("there is no option {name} {value}").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(mode, port))
}

async fn serve(mode: Mode, port: u16) -> Result<(), Box<dyn std::error::Error>> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let listener = socket.listen(BACKLOG)?;
    println!("ready http://{}", listener.local_addr()?);
    let all = Sender::new(BEHIND_MAX);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let all = all.clone();
        // A client that breaks off is no concern of ours.
        tokio::spawn(async move { client(stream, mode, all).await.ok() });
    }
}

async fn client(stream: TcpStream, mode: Mode, all: Sender<Message>) -> Result<(), Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(PAYLOAD_BYTES_MAX))
        .max_frame_size(Some(PAYLOAD_BYTES_MAX));
    let mut socket = tokio_tungstenite::accept_async_with_config(stream, Some(config)).await?;
    if mode == Mode::Echo {
        while let Some(message) = socket.next().await.transpose()? {
            if message.is_text() || message.is_binary() {
                socket.send(message).await?;
            }
        }
        return Ok(());
    }
    let mut shared = all.subscribe();
    loop {
        tokio::select! {
            message = socket.next() => match message.transpose()? {
                Some(message) if message.is_text() || message.is_binary() => {
                    // Sending without receivers is no failure.
                    all.send(message).ok();
                }
                Some(_) => {}
                None => return Ok(()),
            },
            message = shared.recv() => match message {
                Ok(message) => forward(&mut socket, message, &mut shared).await?,
                Err(RecvError::Lagged(_) | RecvError::Closed) => return Ok(()),
            },
        }
    }
}

/// Writes `message` and what else is there.
async fn forward(
    socket: &mut WebSocketStream<TcpStream>,
    message: Message,
    shared: &mut Receiver<Message>,
) -> Result<(), Error> {
    socket.feed(message).await?;
    loop {
        match shared.try_recv() {
            Ok(message) => socket.feed(message).await?,
            Err(TryRecvError::Empty) => return socket.flush().await,
            Err(TryRecvError::Lagged(_) | TryRecvError::Closed) => return Err(Error::ConnectionClosed),
        }
    }
}
