//! The Redis between the nodes of a server: one for each run, on the generator's core. It isn't counted as the server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::proxy::{free_address, start_at};
use crate::Error;
use crate::measure::Server;

/// A running Redis. Dropping it ends it.
pub(super) struct Engine {
    server: Server,
}

impl Engine {
    pub(super) fn start(core: usize) -> Result<Self, Error> {
        let address = free_address()?;
        let port = address.port();
        let is_up = format!("redis-cli -p {port} ping >/dev/null 2>&1");
        let run = format!("redis-server --bind 127.0.0.1 --port {port} --save '' --appendonly no");
        let server = start_at(address, "redis-server", &std::env::temp_dir(), &is_up, &run, core)?;
        Ok(Self { server })
    }

    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The configuration of a node of Stentor's.
    pub(super) fn config(&self) -> String {
        format!("[cluster]\nengine = \"redis://{}\"\nsecret = \"only-for-measurements\"\n", self.address())
    }

    /// Bytes that came and left so far.
    pub(super) fn bytes(&self) -> Result<u64, Error> {
        let mut info = String::new();
        TcpStream::connect(self.address())
            .and_then(|mut stream| {
                stream.write_all(b"INFO stats\r\nQUIT\r\n")?;
                stream.read_to_string(&mut info)
            })
            .map_err(Error::io("the statistics of Redis"))?;
        let fields =
            info.lines().filter_map(|line| line.strip_prefix("total_net_")?.split_once("put_bytes:"));
        Ok(fields.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum())
    }
}
