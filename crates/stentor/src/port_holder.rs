//! Finds the process that listens at an address that is in use. The kernel shows sockets in `/proc/net`, and the sockets of a process of the
//! same user in `/proc/PID/fd` (proc(5)).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Returns the name and the number of the process that listens at `addr`. `None` if the kernel doesn't tell, as for a process of another user.
pub(crate) fn holder(addr: SocketAddr) -> Option<(String, u32)> {
    let sockets: Vec<String> = ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(Path::new("/proc/net").join(table)).ok())
        .flat_map(|table| {
            let inodes = listeners(&table, addr).into_iter();
            inodes.map(|inode| format!("socket:[{inode}]")).collect::<Vec<_>>()
        })
        .collect();
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut processes = processes
        .filter_map(|process| Some((process.file_name().to_str()?.parse::<u32>().ok()?, process.path())));
    let (pid, process) = processes.find(|(_, process)| {
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(Result::ok);
        descriptors
            .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
            .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    })?;
    let name = fs::read_to_string(process.join("comm")).ok()?;
    Some((name.trim_end().to_owned(), pid))
}

/// Returns the inodes of the sockets in a table of the kernel that listen at `addr`, or at all addresses.
fn listeners(table: &str, addr: SocketAddr) -> Vec<&str> {
    table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (local, state, inode) = (address(fields.get(1)?)?, *fields.get(3)?, *fields.get(9)?);
            let is_same =
                local.ip() == addr.ip() || local.ip().is_unspecified() || addr.ip().is_unspecified();
            (state == LISTENING && local.port() == addr.port() && is_same).then_some(inode)
        })
        .collect()
}

/// Reads an address of the kernel's tables: words of four bytes in the machine's order, as hexadecimal numbers.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| {
        let word = ip.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listeners_of_an_address_are_found() {
        const IPV4: &str =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0
   1: 0200007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0
   2: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0
   3: 0100007F:1F40 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0
   4: broken";
        const IPV6: &str = "   0: 00000000000000000000000001000000:1F40 0:0 0A 0:0 0:0 0 0 0 21
   1: 0000000000000000FFFF00000100007F:1F42 0:0 0A 0:0 0:0 0 0 0 22";
        fn check(table: &str, addr: &str, expect: &[&str]) {
            assert_eq!(listeners(table, addr.parse().unwrap()), expect, "{addr}");
        }
        check(IPV4, "127.0.0.1:8000", &["11"]);
        check(IPV4, "0.0.0.0:8000", &["11", "12"]);
        check(IPV4, "127.0.0.1:8001", &["13"]);
        check(IPV4, "127.0.0.1:8002", &[]);
        check(IPV6, "[::1]:8000", &["21"]);
        check(IPV6, "127.0.0.1:8002", &["22"]);
    }

    #[test]
    fn the_process_that_listens_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        let found = holder(listener.local_addr().unwrap());
        assert_eq!(found, Some((name.trim_end().to_owned(), std::process::id())));
        let addr = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(holder(addr), None);
    }
}
