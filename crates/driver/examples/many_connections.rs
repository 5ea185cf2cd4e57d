//! The number of connections that one process can hold with too few file descriptors: a server and its clients, a
//! thread each, on io_uring with direct descriptors. Each client sends a byte and receives a kilobyte.
//!
//!     many_connections [CONNECTIONS [DIRECT_FROM]]

#![allow(clippy::print_stdout, clippy::unwrap_used)] // A measuring program.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use stentor_driver::{
    ConnId, Driver, Event, Frame, ListenOptions, Meter, Options, Sending, UringDriver, UringOptions,
};

/// Connections from one source address: beyond half of its ports the kernel searches long for a free one.
const PER_SOURCE: usize = 10_000;
/// Connections begun and not yet established.
const BEGUN_MAX: usize = 1000;
const BROADCASTS: usize = 5;

fn driver() -> UringDriver {
    let direct_from = std::env::args().nth(2).map(|number| number.parse().unwrap());
    UringDriver::with(&Options::default(), &UringOptions { direct_from, ..UringOptions::default() }).unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn status(field: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_owned()
}

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn serve(count: usize, addr: mpsc::Sender<SocketAddr>) {
    let mut driver = driver();
    addr.send(driver.listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap()).unwrap();
    let (mut conns, mut received): (Vec<ConnId>, usize) = (Vec::new(), 0);
    let (mut sent, mut broadcasts, mut ended) = (0, 0, 0);
    let mut begun = (Instant::now(), cpu());
    let meter = Meter::default();
    let mut frames = Vec::new();
    while ended < count {
        driver.wait(None).unwrap();
        while let Some(event) = driver.next_event() {
            match event {
                Event::Accepted { conn, .. } => conns.push(conn),
                Event::Received { data, .. } => {
                    received += data.len();
                    driver.recycle(data);
                    if received == count {
                        println!(
                            "server received all: {} descriptors, {} resident",
                            descriptors(),
                            status("VmRSS:")
                        );
                        driver.timer_set(driver.now() + Duration::from_secs(2), 0);
                        begun = (Instant::now(), cpu());
                    }
                }
                Event::Timer(_) => {
                    if broadcasts == 0 {
                        println!("server idle for 2 s: {:?} CPU", cpu() - begun.1);
                    }
                    begun = (Instant::now(), cpu());
                    broadcasts += 1;
                    sent = 0;
                    let frame = Frame::shared(&[&[b'x'; 1000]], &meter);
                    for conn in &conns {
                        frames.push(frame.clone());
                        sent += usize::from(driver.send(*conn, &mut frames) == Sending::Done);
                    }
                }
                Event::Sent(_) => {
                    sent += 1;
                    if sent == count {
                        let spent = cpu() - begun.1;
                        println!(
                            "broadcast in {:?}: {:?} CPU per send",
                            begun.0.elapsed(),
                            spent / count as u32
                        );
                        if broadcasts < BROADCASTS {
                            driver.timer_set(driver.now() + Duration::from_millis(500), 0);
                        } else {
                            begun = (Instant::now(), cpu());
                            conns.drain(..).for_each(|conn| driver.finish(conn, Duration::from_secs(10)));
                        }
                    }
                }
                Event::Closed { conn, error } => {
                    if let Some(error) = error {
                        println!("{conn:?} {error} after {:?}", begun.0.elapsed());
                    }
                    ended += 1;
                }
                Event::PeerFinished(_) | Event::Connected(_) | Event::Woken => {}
                Event::AcceptFailed(error) => println!("{error}"),
            }
        }
    }
    println!("ended in {:?}: {:?} CPU each", begun.0.elapsed(), (cpu() - begun.1) / count as u32);
}

fn main() {
    let count: usize = std::env::args().nth(1).map_or(100_000, |count| count.parse().unwrap());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    println!("{count} connections, {limit:?} descriptors allowed");
    let (sender, receiver) = mpsc::channel();
    let server = std::thread::spawn(move || serve(count, sender));
    let addr = receiver.recv().unwrap();
    let mut driver = driver();
    let (mut begun, mut connected, mut closed, mut received) = (0, 0, 0, 0_usize);
    let started = Instant::now();
    while closed < count {
        while begun < count && begun - connected < BEGUN_MAX {
            let source = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1 + (begun / PER_SOURCE) as u8));
            driver.connect(addr, Some(source)).unwrap();
            begun += 1;
        }
        driver.wait(None).unwrap();
        while let Some(event) = driver.next_event() {
            match event {
                Event::Connected(conn) => {
                    connected += 1;
                    let _ = driver.send_bytes(conn, b"!");
                    if connected == count {
                        println!(
                            "connected after {:?}, {:?} CPU each",
                            started.elapsed(),
                            cpu() / count as u32
                        );
                    }
                }
                Event::Received { data, .. } => {
                    received += data.len();
                    driver.recycle(data);
                }
                Event::PeerFinished(conn) => {
                    driver.close(conn);
                    closed += 1;
                }
                Event::Closed { error, .. } => panic!("{error:?}"),
                _ => {}
            }
        }
    }
    drop(driver); // what is closed leaves with the next turn, and there is none
    server.join().unwrap();
    println!("clients received {received} bytes of {}", count * 1000 * BROADCASTS);
    assert_eq!(received, count * 1000 * BROADCASTS);
}
