//! How many publications a second one client gets through the admin port over NDJSON, into a data plane that only
//! counts: `cargo run --release -p stentor-control --example publish_rate [SECONDS] [BYTES]`. For the figure per
//! core, pin it: `taskset -c 0 …` puts client and server on the same one.

#![allow(clippy::print_stdout)] // its purpose

#[macro_use]
#[path = "../../edge/tests/harness/ignore.rs"]
mod ignore;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stentor_control::{AdminOptions, Control, Options, Signals};
use stentor_edge::{Busy, CommandInbox, DataPlane, Publish};

#[derive(Default)]
struct Counting(AtomicU64);

impl CommandInbox for Counting {
    ignore!(receive, update_room, decide, update_feed, command, list_rooms);

    fn publish(&self, _: Publish) -> Result<(), Busy> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl DataPlane for Counting {
    ignore!(take_wanted, metrics, readiness, pause_accepting, drain);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let bytes = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let plane = Arc::new(Counting::default());
    let admin = AdminOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..AdminOptions::default() };
    let options = Options { admin, ..Options::default() };
    let control = Control::start(runtime.handle(), options, plane.clone(), Signals::new())?;

    let line = format!("{{\"room\":\"scores\",\"event\":\"goal\",\"data\":\"{}\"}}\n", "x".repeat(bytes));
    let chunk = line.repeat(64 * 1024 / line.len() + 1);
    let mut stream = TcpStream::connect(control.admin_addr())?;
    stream.write_all(
        b"POST /api/v1/publish HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
          content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        stream.write_all(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes())?;
    }
    stream.write_all(b"0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let took = begun.elapsed();
    let count = plane.0.load(Ordering::Relaxed);
    let rate = count as f64 / took.as_secs_f64();
    println!("{count} messages of {} bytes in {took:.1?}: {rate:.0} a second", line.len());
    println!("{}", answer.lines().last().unwrap_or_default());
    runtime.block_on(control.shutdown());
    Ok(())
}
