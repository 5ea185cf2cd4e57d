//! Opens and accepts sockets, and sets their options once, before they are used.

use crate::ListenOptions;
use crate::buffer::Buffers;
use crate::connection::State;
use crate::kernel::Receipt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, socket_error};
use rustix::net::{RecvFlags, SocketFlags, acceptfrom_with, recv};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

fn open(remote_or_local: SocketAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(remote_or_local), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// Returns a listening socket, new or [`ListenOptions::socket`], and its address. Accepted sockets inherit
/// TCP_NODELAY and TCP_NOTSENT_LOWAT.
///
/// # Errors
/// The address is in use, is not of this machine, or is not permitted; or the given socket doesn't listen.
pub fn listening_socket(addr: SocketAddr, options: &ListenOptions) -> io::Result<(Arc<OwnedFd>, SocketAddr)> {
    if let Some(given) = &options.socket {
        let socket = SockRef::from(given);
        if !socket.is_listener()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket doesn't listen"));
        }
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_notsent_lowat(options.notsent_lowat_bytes)?;
        return Ok((given.clone(), tcp_address(&socket)?));
    }
    let socket = open(addr)?;
    socket.set_tcp_notsent_lowat(options.notsent_lowat_bytes)?;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    let bound = tcp_address(&socket)?;
    Ok((Arc::new(socket.into()), bound))
}

fn tcp_address(socket: &Socket) -> io::Result<SocketAddr> {
    Ok(socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?)
}

/// Maximum number of sockets that are taken from a service manager.
const ACTIVATED_MAX: i32 = 256;

/// Returns the sockets that systemd passes (sd_listen_fds(3)), with their names. Call it once, before the
/// process opens files.
pub fn activated_sockets() -> Vec<(String, OwnedFd)> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<i32>().ok();
    let (Some(pid), Some(count)) = (number("LISTEN_PID"), number("LISTEN_FDS")) else { return Vec::new() };
    if u32::try_from(pid) != Ok(std::process::id()) {
        return Vec::new();
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    (3..3 + count.clamp(0, ACTIVATED_MAX))
        .filter_map(|fd| Some((names.next().unwrap_or("").to_owned(), take(fd)?)))
        .collect()
}

/// Takes an inherited file descriptor, if it is open.
#[allow(unsafe_code)] // The protocol passes numbers.
fn take(fd: i32) -> Option<OwnedFd> {
    // SAFETY: fcntl with F_SETFD touches no memory. It fails for a number that isn't open.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: the descriptor is open, and by the protocol of LISTEN_FDS no other code in this process owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Checks that no other process listens at `addr`, which [`ListenOptions::reuse_port`] would silently share
/// with it.
///
/// # Errors
/// The same as for `listen`: in use, not of this machine, not permitted.
pub fn check_unused(addr: SocketAddr) -> io::Result<()> {
    let socket = open(addr)?;
    socket.set_reuse_address(true)?; // remains of closed connections are no listener
    socket.bind(&addr.into())
}

/// Opens a socket and begins to connect it to `remote`.
pub(crate) fn connect(remote: SocketAddr, source: Option<IpAddr>) -> io::Result<OwnedFd> {
    let socket = open(remote)?;
    if let Some(source) = source {
        set_bind_address_no_port(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&remote.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Sets IP_BIND_ADDRESS_NO_PORT (Linux 4.2): the port is chosen at connect, when only the pair of addresses
/// must be unique and not the local one alone. It works for IPv6 as well.
#[allow(unsafe_code)] // Neither rustix 1.1 nor socket2 0.6 has this option.
fn set_bind_address_no_port(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the pointer and the length are those of `on`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the number of bytes that the peer hasn't acknowledged yet (SIOCOUTQ, tcp(7)); 0 if the kernel
/// doesn't report it.
#[allow(unsafe_code)] // rustix 1.1 and socket2 0.6 don't have this request.
pub(crate) fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one c_int, to a location that outlives the call. (SIOCOUTQ is TIOCOUTQ.)
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Returns `true` if a listener may have a connection to accept.
pub(crate) fn has_connection(listener: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&listener, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())) != Ok(0)
}

/// Accepts the next connection of a listener. Returns it with its peer's address (an IPv4 address as such,
/// even on an IPv6 listener); `None` if there is none.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    loop {
        match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((fd, peer)) => {
                let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) else { continue };
                let peer = match peer {
                    SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
                        SocketAddr::new(peer.ip().to_canonical(), v6.port())
                    }
                    other => other,
                };
                return Ok(Some((fd, peer)));
            }
            Err(Errno::AGAIN) => return Ok(None),
            // Errors of the single connection that would have been accepted: accept(2), "Error handling".
            Err(
                Errno::INTR
                | Errno::CONNABORTED
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::PERM
                | Errno::TIMEDOUT,
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads once from a connection that may have data, and records whether it may have more.
#[inline(always)] // A call would pass the result through memory, for every read.
pub(crate) fn receive(socket: BorrowedFd<'_>, state: &mut State, buffers: &mut Buffers) -> Receipt {
    let mut storage = buffers.take();
    let receipt = loop {
        match recv(socket, &mut *storage, RecvFlags::empty()) {
            Ok((0, _)) => break Receipt::End,
            Ok((read, _)) => {
                state.readable = read == storage.len() || state.ending;
                return Receipt::Bytes(Buffers::lend(storage, read));
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break Receipt::Nothing,
            Err(error) => break Receipt::Failed(error),
        }
    };
    buffers.put(storage);
    state.readable = false;
    receipt
}

/// Makes closing a socket send a reset.
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

/// Returns the pending error of the socket.
pub(crate) fn error(socket: BorrowedFd<'_>) -> Option<Errno> {
    socket_error(socket).unwrap_or_else(Err).err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::fd::AsFd;

    #[test]
    fn accepted_sockets_inherit_the_options_of_the_listener() {
        let (listener, addr) =
            listening_socket("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let client = TcpStream::connect(addr).unwrap();
        let (fd, peer) = loop {
            if let Some(accepted) = accept(listener.as_fd()).unwrap() {
                break accepted;
            }
        };
        assert!(!has_connection(listener.as_fd()));
        assert_eq!(peer, client.local_addr().unwrap());
        let socket = SockRef::from(&fd);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), ListenOptions::default().notsent_lowat_bytes);
    }

    #[test]
    fn a_peer_that_does_not_read_does_not_acknowledge() {
        let (listener, addr) =
            listening_socket("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let mut client = TcpStream::connect(addr).unwrap();
        assert_eq!(unacknowledged_bytes(client.as_fd()), 0);
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 65536]).is_ok() {}
        assert!(unacknowledged_bytes(client.as_fd()) > 0);
        drop(listener);
    }
}
