//! A well-behaved HTTP/1.1 and WebSocket client, for canaries and for the admin API.

use crate::wire::{self, FIN};
use anyhow::{Context, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Maximum number of headers of a response.
const HEADERS_MAX: usize = 64;
/// Maximum size of an answer to a canary.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The headers of a response.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// Iterates over the values of all headers with this name.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let found = self.headers.iter().filter(move |(candidate, _)| candidate.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str, token: &str) -> bool {
        self.header(name).is_some_and(|value| value.to_ascii_lowercase().contains(token))
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Http {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Http {
    pub(crate) async fn connect(addr: SocketAddr) -> std::io::Result<Self> {
        Self::connect_from(Ipv4Addr::UNSPECIFIED, addr).await
    }

    async fn connect_from(own: Ipv4Addr, addr: SocketAddr) -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((own, 0)))?;
        let stream = socket.connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::new() })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends a request and reads the complete response.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> anyhow::Result<(Head, Bytes)> {
        self.send(request).await?;
        let head = self.head().await?;
        let body = self.body(&head).await?;
        Ok((head, body))
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        let n = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(n > 0, "the server closed the connection");
        Ok(())
    }

    async fn take(&mut self, length_bytes: usize) -> anyhow::Result<Bytes> {
        ensure!(
            length_bytes <= BODY_BYTES_MAX,
            "{length_bytes} bytes are more than anything a canary asked for"
        );
        while self.buffer.len() < length_bytes {
            self.fill().await?;
        }
        Ok(self.buffer.split_to(length_bytes).freeze())
    }

    /// Reads the headers of the next response.
    pub(crate) async fn head(&mut self) -> anyhow::Result<Head> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut response = httparse::Response::new(&mut headers);
            if let httparse::Status::Complete(length) = response.parse(&self.buffer)? {
                let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                let head = Head {
                    status: response.code.context("no status")?,
                    headers: response
                        .headers
                        .iter()
                        .map(|header| (header.name.to_owned(), text(header.value)))
                        .collect(),
                };
                self.buffer.advance(length);
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    /// Reads the complete body of a response.
    async fn body(&mut self, head: &Head) -> anyhow::Result<Bytes> {
        if matches!(head.status, 204 | 304) {
            return Ok(Bytes::new());
        }
        if head.has("transfer-encoding", "chunked") {
            let mut body = BytesMut::new();
            while let Some(chunk) = self.chunk().await? {
                ensure!(body.len() + chunk.len() <= BODY_BYTES_MAX, "an endless body");
                body.extend_from_slice(&chunk);
            }
            return Ok(body.freeze());
        }
        let length = head.header("content-length").context("no length")?.parse()?;
        self.take(length).await
    }

    /// Reads the next chunk of a chunked body; `None` after the last one.
    pub(crate) async fn chunk(&mut self) -> anyhow::Result<Option<Bytes>> {
        let end = loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                break end;
            }
            self.fill().await?;
        };
        let line = self.buffer.split_to(end);
        self.buffer.advance(2);
        let length = usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16)?;
        let chunk = self.take(length).await?;
        let after = self.take(2).await?;
        ensure!(&after[..] == b"\r\n", "a chunk doesn't end where it said");
        Ok((length > 0).then_some(chunk))
    }
}

/// A WebSocket.
#[derive(Debug)]
pub(crate) struct WebSocket(Http);

impl WebSocket {
    pub(crate) async fn open(addr: SocketAddr, target: &str) -> anyhow::Result<Self> {
        Self::open_from(Ipv4Addr::UNSPECIFIED, addr, target).await
    }

    /// Like [`Self::open`], from the client address `own`.
    pub(crate) async fn open_from(own: Ipv4Addr, addr: SocketAddr, target: &str) -> anyhow::Result<Self> {
        let mut http = Http::connect_from(own, addr).await?;
        http.send(&wire::upgrade(target)).await?;
        let head = http.head().await?;
        ensure!(head.status == 101, "the handshake was answered {}", head.status);
        Ok(Self(http))
    }

    pub(crate) async fn send(&mut self, text: &str) -> anyhow::Result<()> {
        Ok(self.0.send(&wire::text(text)).await?)
    }

    /// Returns the next message. Answers pings. A close frame is an error with the code and reason.
    pub(crate) async fn next(&mut self) -> anyhow::Result<String> {
        loop {
            let head = self.0.take(2).await?;
            let length = match head[1] {
                126 => usize::from(self.0.take(2).await?.get_u16()),
                127 => usize::try_from(self.0.take(8).await?.get_u64())?,
                short => usize::from(short),
            };
            let payload = self.0.take(length).await?;
            match (head[0] & 0x0f, head[0] & FIN) {
                (wire::TEXT | wire::BINARY, FIN) => return Ok(String::from_utf8_lossy(&payload).into_owned()),
                (wire::PING, FIN) => self.0.send(&wire::frame(FIN | wire::PONG, &payload)).await?,
                (wire::PONG, FIN) => {}
                (wire::CLOSE, FIN) if payload.len() >= 2 => {
                    let code = u16::from_be_bytes([payload[0], payload[1]]);
                    bail!("the server closed with {code} {:?}", String::from_utf8_lossy(&payload[2..]));
                }
                other => bail!("an unexpected frame: {other:?}"),
            }
        }
    }
}
