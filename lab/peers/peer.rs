//! The command line and the listener of the peers in Rust, which run on one thread of tokio.

use std::error::Error;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

const BACKLOG: u32 = 4096;

/// The options of `run`.
#[derive(Default)]
pub struct Options {
    /// `true` if a message goes to all clients, including its sender. Otherwise, it goes to its sender only.
    pub chat: bool,
    pub port: u16,
    /// Protocol of the clients; empty unless the peer speaks several.
    #[allow(dead_code, reason = "most peers speak one protocol")]
    pub protocol: String,
}

/// Runs `serve` with the options of the command line.
pub fn run<Serving: Future<Output = Result<(), Box<dyn Error>>>>(
    serve: impl FnOnce(Options) -> Serving,
) -> Result<(), Box<dyn Error>> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().unwrap_or_default();
        match (name.as_str(), value.as_str()) {
            ("--mode", "echo" | "chat") => options.chat = value == "chat",
            ("--port", _) => options.port = value.parse()?,
            ("--protocol", _) => options.protocol = value,
            _ => return Err(format!("there is no option {name} {value}").into()),
        }
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(options))
}

/// Listens on loopback, and prints the address.
pub fn listen(port: u16) -> Result<TcpListener, Box<dyn Error>> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let listener = socket.listen(BACKLOG)?;
    println!("ready http://{}", listener.local_addr()?);
    Ok(listener)
}
