//! fastwebsockets as a peer: echo and chat (each message to all clients, including the sender), by the documented
//! interface, on hyper and one thread of tokio.

use std::convert::Infallible;

use bytes::Bytes;
use fastwebsockets::upgrade::{UpgradeFut, upgrade};
use fastwebsockets::{FragmentCollector, FragmentCollectorRead, Frame, OpCode, Payload, WebSocketError};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Mutex;
use tokio::sync::broadcast::Sender;

#[path = "../../peer.rs"]
mod peer;

use peer::Options;

const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// Maximum number of messages that a client may be behind before it is disconnected.
const BEHIND_MAX: usize = 4096;

/// A message for all clients.
#[derive(Clone)]
struct Shared {
    opcode: OpCode,
    payload: Bytes,
}

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
        let service = service_fn(move |request| answer(request, chat, all.clone()));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move { connection.with_upgrades().await.ok() });
    }
}

async fn answer(
    mut request: Request<Incoming>,
    chat: bool,
    all: Sender<Shared>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let Ok((response, upgraded)) = upgrade(&mut request) else {
        let mut refused = Response::new(Empty::new());
        *refused.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(refused);
    };
    // As in the library's example. An error of one client is ignored.
    tokio::spawn(tokio::task::unconstrained(async move {
        match chat {
            false => echo(upgraded).await.ok(),
            true => share(upgraded, all).await.ok(),
        }
    }));
    Ok(response)
}

async fn echo(upgraded: UpgradeFut) -> Result<(), WebSocketError> {
    let mut socket = upgraded.await?;
    socket.set_max_message_size(PAYLOAD_BYTES_MAX);
    let mut socket = FragmentCollector::new(socket);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            _ => {}
        }
    }
}

async fn share(upgraded: UpgradeFut, all: Sender<Shared>) -> Result<(), WebSocketError> {
    let (mut reader, writer) = upgraded.await?.split(tokio::io::split);
    reader.set_max_message_size(PAYLOAD_BYTES_MAX);
    let mut reader = FragmentCollectorRead::new(reader);
    // Answers to pings and closes are written by the same writer as shared messages.
    let writer = Mutex::new(writer);
    let mut shared = all.subscribe();
    let reading = async {
        loop {
            let mut reply = async |frame| writer.lock().await.write_frame(frame).await;
            let frame = reader.read_frame(&mut reply).await?;
            match frame.opcode {
                OpCode::Close => return Ok(()),
                OpCode::Text | OpCode::Binary => {
                    let payload = match frame.payload {
                        Payload::Bytes(bytes) => bytes.freeze(),
                        other => Bytes::copy_from_slice(&other),
                    };
                    // Sending without receivers isn't an error.
                    all.send(Shared { opcode: frame.opcode, payload }).ok();
                }
                _ => {}
            }
        }
    };
    let writing = async {
        while let Ok(message) = shared.recv().await {
            let frame = Frame::new(true, message.opcode, None, Payload::Borrowed(&message.payload));
            writer.lock().await.write_frame(frame).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = reading => ended,
        ended = writing => ended,
    }
}
