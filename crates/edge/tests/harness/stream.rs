//! A client's socket: simulated or real, with or without TLS.

use super::tls::TlsStream;
use super::{PATIENCE, simulated};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    Simulated(simulated::Stream),
}

impl Stream {
    /// Connects in the simulation of this thread, or over a real socket if there is no simulation.
    pub(crate) fn connect(addr: SocketAddr) -> io::Result<Self> {
        if let Some(stream) = simulated::Stream::connect(addr, None) {
            return stream.map(Self::Simulated);
        }
        let stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Connects in a simulation from this client address.
    pub(crate) fn connect_from(source: IpAddr, addr: SocketAddr) -> Self {
        Self::Simulated(simulated::Stream::connect(addr, Some(source)).unwrap().unwrap())
    }

    /// The real socket.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.stream.tcp(),
            Self::Simulated(_) => panic!("this needs a real socket"),
        }
    }

    pub(crate) fn into_tcp(self) -> TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(_) | Self::Simulated(_) => panic!("this needs a real socket without TLS"),
        }
    }

    fn simulated(&self) -> &simulated::Stream {
        match self {
            Self::Simulated(stream) => stream,
            Self::Tls(stream) => stream.stream.simulated(),
            Self::Tcp(_) => panic!("this needs a simulation"),
        }
    }

    /// As `read`, but leaves the bytes to be read again.
    pub(crate) fn peek(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.peek(bytes),
            Self::Tls(stream) => stream.stream.peek(bytes),
            Self::Simulated(stream) => stream.read(bytes, true),
        }
    }

    /// Sends in a simulation without waiting. Bytes that the server doesn't accept now are sent when it does.
    pub(crate) fn enqueue(&self, bytes: &[u8]) {
        self.simulated().enqueue(bytes);
    }

    /// Sends in a simulation until the server stops reading. Returns the number of sends. The rest of the last one is
    /// sent when the server reads again.
    pub(crate) fn send_until_stalled(&self, mut next: impl FnMut(usize) -> Vec<u8>) -> usize {
        let mut sent = 0;
        loop {
            self.enqueue(&next(sent));
            sent += 1;
            match self.simulated().wait_sent(Duration::from_secs(1)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return sent,
                Err(error) => panic!("the server closes the connection: {error}"),
            }
        }
    }

    /// `true` if the connection (of a simulation) is open.
    pub(crate) fn is_open(&self) -> bool {
        self.simulated().is_open()
    }

    pub(crate) fn finish_sending(&mut self) {
        match self {
            Self::Simulated(stream) => stream.finish_sending(),
            _ => self.tcp().shutdown(Shutdown::Write).unwrap(),
        }
    }

    /// Resets the connection, in a simulation. Unlike the end of the client's sending, this reaches a server that doesn't read.
    pub(crate) fn reset(&self) {
        self.simulated().reset();
    }

    /// Reads until the server closes or resets the connection.
    pub(crate) fn read_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        // A reset after the response also ends the stream.
        let _ = self.read_to_end(&mut all);
        all
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
            Self::Simulated(stream) => {
                stream.enqueue(bytes);
                stream.wait_sent(PATIENCE).map(|()| bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
