//! A new process takes the listening sockets over from the one that runs, so that no connection is refused.
//!
//! ```text
//!  new process                                 running process
//!     │ ── connects to server.takeover_socket ───▶ │ same user? (SO_PEERCRED)
//!     │ ── REQUEST ──────────────────────────────▶ │
//!     │ ◀── a byte with each socket (SCM_RIGHTS) ─ │
//!     │ ◀── END ────────────────────────────────── │
//!     │ starts, and accepts clients                │ still accepts clients, even if it drains
//!     │ ── CONFIRMED ────────────────────────────▶ │ stops accepting (waits until all cores have)
//!     │ ◀── CONFIRMED ──────────────────────────── │ keeps its listening sockets
//!     │ listens at server.takeover_socket, ready   │
//!     │ ── READY ────────────────────────────────▶ │ closes them, drains, and exits
//! ```
//!
//! Until it is ready, the new process may fail in any way: the running one goes on. If it had stopped accepting, it accepts again,
//! and listens at server.takeover_socket again. The sockets are shared, so that connections in their queues are accepted by
//! whichever process is left.

use anyhow::{Context, bail, ensure};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The version is part of it: another one is refused.
const REQUEST: &[u8] = b"stentor takeover 2\n";
const CLIENTS: u8 = b'c';
const ADMIN: u8 = b'a';
const END: u8 = b'.';
const CONFIRMED: u8 = b'!';
const READY: u8 = b'r';

/// Time for each message, but for the new process's last two.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that the new process has to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// 256 cores with 64 listeners.
const SOCKETS_MAX: usize = 256 * 64 + 1;

/// The sockets of the process that runs.
pub(crate) struct Inheritance {
    stream: UnixStream,
    clients: Vec<OwnedFd>,
    admin: Option<OwnedFd>,
}

/// Asks the process that listens at `path` for its sockets. `None`: there is none.
pub(crate) fn request_sockets(path: &Path) -> anyhow::Result<Option<Inheritance>> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => {
            return Err(error).with_context(|| format!("server.takeover_socket {}", path.display()));
        }
    };
    check_peer(&stream)?;
    set_timeouts(&stream, MESSAGE_TIMEOUT)?;
    stream.write_all(REQUEST)?;
    let (mut clients, mut admin) = (Vec::new(), None);
    loop {
        match receive(&stream).context("the running server refuses to hand its sockets over")? {
            (CLIENTS, Some(socket)) if clients.len() < SOCKETS_MAX => clients.push(socket),
            (ADMIN, Some(socket)) => admin = Some(socket),
            (END, None) => return Ok(Some(Inheritance { stream, clients, admin })),
            _ => bail!("the process at server.takeover_socket isn't a server of this version"),
        }
    }
}

impl Inheritance {
    /// Uses the sockets whose addresses the configuration has. The others are closed.
    pub(crate) fn install(
        &mut self,
        edge: &mut stentor_edge::Options,
        control: &mut stentor_control::Options,
    ) -> io::Result<()> {
        let listeners = edge.all_listeners();
        edge.sockets = vec![Vec::new(); listeners.len()];
        for socket in self.clients.drain(..) {
            let socket = TcpListener::from(socket);
            let address = socket.local_addr()?;
            if let Some(nth) = listeners.iter().position(|listener| listener.address == address) {
                edge.sockets[nth].push(Arc::new(socket.into()));
            }
        }
        let admin = self.admin.take().map(TcpListener::from);
        if let Some(socket) = admin
            && socket.local_addr()? == control.admin.listen
        {
            control.admin_socket = Some(Arc::new(socket.into()));
        }
        Ok(())
    }

    /// This process accepts clients: the other one, which listened at `path`, accepts no more. Announce next that this process is
    /// ready.
    ///
    /// # Errors
    /// The other process goes on, because this one took too long.
    pub(crate) fn confirm(mut self, path: &Path) -> anyhow::Result<Confirmed> {
        let mut confirmed = || {
            self.stream.write_all(&[CONFIRMED])?;
            self.stream.read_exact(&mut [0])
        };
        match confirmed() {
            Ok(()) => Ok(Confirmed(self.stream)),
            // It has ended meanwhile.
            Err(_) if UnixStream::connect(path).is_err() => Ok(Confirmed(self.stream)),
            Err(error) => Err(error)
                .context("the running server has not confirmed the takeover, so it still serves; try again"),
        }
    }
}

/// A takeover that the other process has confirmed.
pub(crate) struct Confirmed(UnixStream);

impl Confirmed {
    /// This process is ready: the other one drains. An error: it has ended.
    pub(crate) fn announce_ready(mut self) {
        let _ = self.0.write_all(&[READY]);
    }
}

/// A process that hands its sockets over.
pub(crate) trait Running {
    /// The listening sockets that are still open, for clients and for the admin port.
    fn sockets(&self) -> (Vec<Arc<OwnedFd>>, Option<OwnedFd>);

    /// Stops accepting connections, or accepts them again. Returns when all cores have done so.
    fn pause_accepting(&self, is_paused: bool);

    /// Closes the listening sockets and drains.
    fn leave(&self);
}

/// Where a new process asks for the sockets.
pub(crate) struct TakeoverListener {
    listener: UnixListener,
    path: PathBuf,
}

/// A socket that isn't at its path yet. It is removed if the process ends before.
pub(crate) struct Unpublished {
    temporary: PathBuf,
    path: PathBuf,
}

impl Unpublished {
    /// From now on, new processes find it. What is at its path belongs to a process that has ended or confirmed.
    pub(crate) fn publish(self) -> anyhow::Result<()> {
        fs::rename(&self.temporary, &self.path)
            .with_context(|| format!("server.takeover_socket {}", self.path.display()))?;
        tracing::info!(path = %self.path.display(), "a new process can take over");
        Ok(())
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        // Not there after it was published.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl TakeoverListener {
    /// Listens beside `path`, so that all that can fail has been done before a takeover is confirmed.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, Unpublished)> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}", std::process::id()));
        let unpublished = Unpublished { temporary: temporary.into(), path: path.to_owned() };
        let open = |path: &Path| {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        let listener = open(&unpublished.temporary)
            .with_context(|| format!("server.takeover_socket {}", path.display()))?;
        Ok((Self { listener, path: path.to_owned() }, unpublished))
    }

    /// Hands the sockets of this process over to the first one that gets ready.
    pub(crate) fn serve(mut self, running: &impl Running) {
        loop {
            let handed_over = self.listener.accept().map_err(anyhow::Error::from).and_then(|(stream, _)| {
                tracing::info!("another process asks for the listening sockets");
                let confirmed = hand_over(stream, running)?;
                running.pause_accepting(true);
                wait_until_ready(confirmed).inspect_err(|_| {
                    running.pause_accepting(false);
                    self.publish_again();
                })
            });
            match handed_over {
                Ok(()) => {
                    tracing::info!(path = %self.path.display(), "another process has taken over");
                    return running.leave();
                }
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "the takeover has failed; this process goes on"
                    );
                    // As for failures of accept, which persist.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Listens anew, because the other process may have put its own socket at the path before it failed.
    fn publish_again(&mut self) {
        let opened = Self::open(&self.path).and_then(|(listener, unpublished)| {
            self.listener = listener.listener;
            unpublished.publish()
        });
        if let Err(error) = opened {
            tracing::error!(error = format!("{error:#}"), "no new process can take over");
        }
    }
}

/// Sends the sockets. Returns when the other process has confirmed that it accepts clients.
fn hand_over(mut stream: UnixStream, running: &impl Running) -> anyhow::Result<UnixStream> {
    check_peer(&stream)?;
    set_timeouts(&stream, MESSAGE_TIMEOUT)?;
    let mut request = [0; REQUEST.len()];
    stream.read_exact(&mut request).context("no request")?;
    ensure!(request == REQUEST, "it isn't a server of this version");
    let (clients, admin) = running.sockets();
    for socket in &clients {
        send(&stream, CLIENTS, Some(socket.as_fd()))?;
    }
    if let Some(admin) = &admin {
        send(&stream, ADMIN, Some(admin.as_fd()))?;
    }
    send(&stream, END, None)?;
    drop((clients, admin));
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    let mut confirmed = [0];
    stream.read_exact(&mut confirmed).context("it has not started")?;
    ensure!(confirmed == [CONFIRMED], "it has sent garbage");
    Ok(stream)
}

/// Tells the other process that this one accepts no more clients, and waits until it is ready.
fn wait_until_ready(mut stream: UnixStream) -> anyhow::Result<()> {
    let mut ready = [0];
    stream.write_all(&[CONFIRMED]).and_then(|()| stream.read_exact(&mut ready)).context("it has ended")?;
    ensure!(ready == [READY], "it has sent garbage");
    Ok(())
}

/// Whether the other process has the same user. The mode of the socket isn't enough: it is set after the socket listens.
fn check_peer(stream: &UnixStream) -> anyhow::Result<()> {
    let peer = socket_peercred(stream)?;
    ensure!(peer.uid == geteuid(), "the process {} at server.takeover_socket has another user", peer.pid);
    Ok(())
}

fn set_timeouts(stream: &UnixStream, timeout: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

fn send(stream: &UnixStream, kind: u8, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = socket.as_slice();
    if !rights.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(rights));
    }
    sendmsg(stream, &[IoSlice::new(&[kind])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A byte, and the socket that came with it. The kernel closes what doesn't fit.
fn receive(stream: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut kind = [0];
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut kind)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let sockets = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok((kind[0], sockets.flatten().next()))
}
