//! The HTTP API behind the feed `cold`: slow, with documents under `cold/probe` and nothing else.

use crate::server::FETCH_TIME;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts the upstream, which serves until the process ends. Returns its address.
pub(crate) fn start() -> anyhow::Result<SocketAddr> {
    serve_on_thread(serve)
}

/// Serves each connection on a separate thread until the process ends. Returns the address.
pub(crate) fn serve_on_thread<Serving>(
    serve: impl Fn(TcpStream) -> Serving + Send + 'static,
) -> anyhow::Result<SocketAddr>
where
    Serving: Future<Output = ()> + Send + 'static,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    });
    Ok(addr)
}

/// Handles one connection's requests in order. The client is Stentor's own, which doesn't pipeline.
async fn serve(mut stream: TcpStream) {
    let mut request = Vec::new();
    loop {
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read_buf(&mut request).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        tokio::time::sleep(FETCH_TIME).await;
        let answer: &[u8] = if request.starts_with(b"GET /cold/probe") {
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}"
        } else {
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        };
        request.clear();
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}
