//! tungstenite as a peer: echo and chat (each message to all clients, including the sender), by the documented
//! interface, on one thread of tokio.

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

#[path = "../../peer.rs"]
mod peer;

use peer::Options;

const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// The size that the library's documentation recommends for many connections.
const READ_BYTES: usize = 4 << 10;
/// Maximum number of messages that a client may be behind before it is disconnected.
const BEHIND_MAX: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    peer::run(serve)
}

async fn serve(Options { chat, port, .. }: Options) -> Result<(), Box<dyn std::error::Error>> {
    let listener = peer::listen(port)?;
    let all = Sender::new(BEHIND_MAX);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let all = all.clone();
        // An error of one client is ignored.
        tokio::spawn(async move { client(stream, chat, all).await.ok() });
    }
}

async fn client(stream: TcpStream, chat: bool, all: Sender<Message>) -> Result<(), Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(PAYLOAD_BYTES_MAX))
        .max_frame_size(Some(PAYLOAD_BYTES_MAX));
    let mut socket = tokio_tungstenite::accept_async_with_config(stream, Some(config)).await?;
    if !chat {
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
                    // Sending without receivers isn't an error.
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

/// Writes `message`, and all further messages that wait.
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
