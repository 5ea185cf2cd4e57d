//! Takeover: a new process takes the listening sockets over from the running process, so that no connection
//! is refused.
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
//! If the new process fails before it is ready, the running process continues. If the running process has
//! already stopped accepting, it accepts again, and listens at server.takeover_socket again. Both processes
//! share the sockets, so the remaining process accepts the connections in their queues.

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

/// The request. It contains the protocol's version. Another version is refused.
const REQUEST: &[u8] = b"stentor takeover 2\n";
const CLIENTS: u8 = b'c';
const ADMIN: u8 = b'a';
const END: u8 = b'.';
const CONFIRMED: u8 = b'!';
const READY: u8 = b'r';

/// Timeout for each message, except the last two of the new process.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for each of the last two messages of the new process, which starts before it sends the first of
/// them.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of sockets: those of 256 cores with 64 listeners each, and the admin port.
const SOCKETS_MAX: usize = 256 * 64 + 1;

/// The sockets that this process has received from the running process.
pub(crate) struct Inheritance {
    stream: UnixStream,
    clients: Vec<OwnedFd>,
    admin: Option<OwnedFd>,
}

/// Requests the sockets of the process that listens at `path`. Returns `None` if no process listens there.
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
    /// Installs the sockets whose addresses are configured in the options. Closes the other sockets.
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

    /// Confirms that this process accepts clients. The other process, which listened at `path`, then stops
    /// accepting. The caller must announce next that this process is ready.
    ///
    /// # Errors
    /// The other process hasn't answered in time, so it continues to serve.
    pub(crate) fn confirm(mut self, path: &Path) -> anyhow::Result<Confirmed> {
        let mut confirmed = || {
            self.stream.write_all(&[CONFIRMED])?;
            self.stream.read_exact(&mut [0])
        };
        match confirmed() {
            Ok(()) => Ok(Confirmed(self.stream)),
            // The other process has ended in between.
            Err(_) if UnixStream::connect(path).is_err() => Ok(Confirmed(self.stream)),
            Err(error) => Err(error)
                .context("the running server has not confirmed the takeover, so it still serves; try again"),
        }
    }
}

/// A takeover that the other process has confirmed, too.
pub(crate) struct Confirmed(UnixStream);

impl Confirmed {
    /// Announces that this process is ready, so that the other process drains. Ignores errors, which mean
    /// that the other process has ended.
    pub(crate) fn announce_ready(mut self) {
        let _ = self.0.write_all(&[READY]);
    }
}

/// A process that hands over its sockets.
pub(crate) trait Running {
    /// Returns the open listening sockets for clients, and that of the admin port.
    fn sockets(&self) -> (Vec<Arc<OwnedFd>>, Option<OwnedFd>);

    /// Pauses or resumes accepting connections. Returns when all cores have done so.
    fn pause_accepting(&self, is_paused: bool);

    /// Closes the listening sockets and drains.
    fn leave(&self);
}

/// The listener at `server.takeover_socket`, where a new process requests the sockets.
pub(crate) struct TakeoverListener {
    listener: UnixListener,
    path: PathBuf,
}

/// A takeover socket that isn't at its path yet. Dropping this value removes its temporary file.
pub(crate) struct Unpublished {
    temporary: PathBuf,
    path: PathBuf,
}

impl Unpublished {
    /// Moves the socket to its path, so that new processes find it. Replaces an existing socket there, which
    /// belongs to a process that has ended or has confirmed the takeover.
    pub(crate) fn publish(self) -> anyhow::Result<()> {
        fs::rename(&self.temporary, &self.path)
            .with_context(|| format!("server.takeover_socket {}", self.path.display()))?;
        tracing::info!(path = %self.path.display(), "a new process can take over");
        Ok(())
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        // The temporary file doesn't exist if the socket has been published.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl TakeoverListener {
    /// Listens at a temporary path next to `path`, so that everything that can fail is done before a takeover
    /// is confirmed.
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

    /// Hands the sockets of this process over to new processes, until one of them becomes ready.
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
                    // Pauses after a failure, because the next attempt may fail at once too (for example
                    // `accept`).
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Opens and publishes a new takeover socket, because the other process may have put its own socket at
    /// the path before it failed.
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

/// Confirms to the other process that this process no longer accepts clients. Waits until the other process
/// is ready.
fn wait_until_ready(mut stream: UnixStream) -> anyhow::Result<()> {
    let mut ready = [0];
    stream.write_all(&[CONFIRMED]).and_then(|()| stream.read_exact(&mut ready)).context("it has ended")?;
    ensure!(ready == [READY], "it has sent garbage");
    Ok(())
}

/// Checks that the other process has the same user. The socket's mode isn't enough, because it is set after
/// the socket has begun to listen.
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

/// Receives a byte, and the socket that was sent with it, if any. The kernel closes further sockets.
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
