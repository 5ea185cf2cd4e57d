//! The socket of a client: a real one, or one of a simulation.

use super::tls::{self, TlsStream};
use super::{PATIENCE, simulated};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    Simulated(simulated::Stream),
}

impl Stream {
    /// Connects to the simulation of this thread, or else to `addr`.
    pub(crate) fn connect(addr: SocketAddr) -> io::Result<Self> {
        if let Some(stream) = simulated::Stream::connect() {
            return Ok(Self::Simulated(stream));
        }
        let stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        if tls::is_everywhere() {
            let config = Arc::new(tls::client(rustls::DEFAULT_VERSIONS));
            return Ok(Self::Tls(Box::new(TlsStream::open(stream, config, "localhost")?)));
        }
        Ok(Self::Tcp(stream))
    }

    /// The real one.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => &stream.tcp,
            Self::Simulated(_) => panic!("this needs a real socket"),
        }
    }

    pub(crate) fn into_tcp(self) -> TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(_) | Self::Simulated(_) => panic!("this needs a real socket without TLS"),
        }
    }

    /// As `read`, but leaves what it reads.
    pub(crate) fn peek(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.peek(bytes),
            Self::Tls(stream) => stream.tcp.peek(bytes),
            Self::Simulated(stream) => stream.read(bytes, true),
        }
    }
}

impl From<TlsStream> for Stream {
    fn from(stream: TlsStream) -> Self {
        Self::Tls(Box::new(stream))
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
            Self::Simulated(stream) => stream.read(bytes, false),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Simulated(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
