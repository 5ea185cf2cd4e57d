//! The Redis between the nodes of a server. Each run starts one, on the generator's core. Its CPU isn't counted as the server's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use super::proxy::{free_address, start_at};
use crate::Error;
use crate::measure::Server;

/// Starts a Redis. Dropping the returned value ends it.
pub(super) fn start(core: usize, folder: &Path) -> Result<Server, Error> {
    let address = free_address()?;
    let port = address.port();
    let is_up = format!("redis-cli -p {port} ping >/dev/null 2>&1");
    let run = format!("redis-server --bind 127.0.0.1 --port {port} --save '' --appendonly no");
    start_at(address, "redis-server", folder, &is_up, &run, core)
}

/// Number of bytes that Redis has received and sent so far.
pub(super) fn bytes(redis: &Server) -> Result<u64, Error> {
    let mut info = String::new();
    TcpStream::connect(redis.address())
        .and_then(|mut stream| {
            stream.write_all(b"INFO stats\r\nQUIT\r\n")?;
            stream.read_to_string(&mut info)
        })
        .map_err(Error::io("the statistics of Redis"))?;
    let fields = info.lines().filter_map(|line| line.strip_prefix("total_net_")?.split_once("put_bytes:"));
    Ok(fields.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum())
}
