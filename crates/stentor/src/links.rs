//! The application link: its options for the data plane, and its side of the admin port.

use crate::config::options::LinkOptions;
use crate::own_thread::OwnThread;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use stentor_control::{Connect, Links, WorkerAccepted, WorkerRefused, WorkerRequest};
use stentor_edge::{LinkRoutes, Options};
use stentor_ports::{Done, Ledger, LinkApp, LinkInbox, LinkInfo, LinkList};
use stentor_workers::{Accepted, AppOptions, ForwardOptions, LinkRequest, RecoveryOptions, Token, Workers};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::server::TlsStream;

/// The status of a request that asks for no WebSocket.
const UPGRADE_REQUIRED: u16 = 426;

/// The service of the link, as the admin port calls it.
#[derive(Debug)]
struct AdminLinks {
    workers: Arc<Workers>,
    /// The runtime of the service.
    runtime: Handle,
}

/// Makes the service, its thread, and the routes of its clients. Returns `None` without `[[links]]`.
pub(crate) fn prepare(
    links: Vec<LinkOptions>,
    edge: &Options,
    ledger: &Arc<Ledger>,
) -> anyhow::Result<Option<(Arc<Workers>, OwnThread, LinkRoutes)>> {
    if links.is_empty() {
        return Ok(None);
    }
    let limits = &edge.limits;
    let hidden_headers: Vec<Box<str>> =
        edge.tokens.proxy.iter().flat_map(|proxy| proxy.headers()).map(Box::from).collect();
    let app = |link: LinkOptions| {
        let mut application = link.application;
        let message_bytes_max = limits.message_bytes_max;
        let http = link.http.then_some(ForwardOptions {
            connections_max: link.http_connections_max,
            grace: application.grace,
            idle_timeout: limits.idle_timeout,
            hidden_headers: hidden_headers.clone(),
        });
        // A worker that is within its window may be given one more message.
        let bytes_max = application.link.window_bytes + 2 * message_bytes_max;
        application.link.unacknowledged_bytes_max = application.link.unacknowledged_bytes_max.max(bytes_max);
        AppOptions {
            name: link.app,
            path: link.path,
            message_bytes_max,
            queue_bytes_max: link.queue_bytes_max,
            http,
            token: Some(link.token).filter(|token| !token.is_empty()).map(Token::new),
            application,
            // More would fill the client's queue, which ends the client.
            recovery: RecoveryOptions { missed_bytes_max: limits.send_buffer_bytes_max / 2, ..link.recovery },
        }
    };
    let workers = Workers::new(links.into_iter().map(app).collect(), ledger.clone());
    let routes = LinkRoutes { sink: workers.sink(), apps: workers.engines(), http: workers.http() };
    Ok(Some((workers, OwnThread::start("links")?, routes)))
}

/// The side of the admin port.
pub(crate) fn of_admin(workers: &Arc<Workers>, thread: &OwnThread) -> Arc<dyn Links> {
    Arc::new(AdminLinks { workers: workers.clone(), runtime: thread.runtime().clone() })
}

/// Starts the service on its thread. It gives the cores instructions by `inbox`. Must be called within the control plane's runtime.
pub(crate) fn start(workers: &Arc<Workers>, thread: OwnThread, inbox: Arc<dyn LinkInbox>) {
    let workers = workers.clone();
    let service = thread.spawn(async move { workers.service(inbox).await });
    tokio::spawn(async move {
        // Without the service, the sessions of workers would hang without an error. So the process ends, and a supervisor
        // restarts it.
        if let Err(error) = service.await
            && error.is_panic()
        {
            tracing::error!(%error, "the application link has failed; the process ends");
            std::process::exit(1);
        }
        drop(thread);
    });
}

/// Gives a worker's connection to the service. The socket moves to the service's thread; otherwise each of its events would wake a thread of
/// the control plane, which would wake that thread.
async fn connect(
    workers: Arc<Workers>,
    runtime: Handle,
    accepted: Accepted,
    upgraded: Upgraded,
) -> io::Result<()> {
    let upgraded = match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) => {
            let mut socket = parts.io.into_inner();
            move_to(&runtime, &mut socket)?;
            workers.connect(accepted, socket, &parts.read_buf).await;
            return Ok(());
        }
        Err(upgraded) => upgraded,
    };
    match upgraded.downcast::<TokioIo<TlsStream<TcpStream>>>() {
        Ok(parts) => {
            let mut stream = parts.io.into_inner();
            move_to(&runtime, stream.get_mut().0)?;
            workers.connect(accepted, stream, &parts.read_buf).await;
        }
        // The admin port has no other streams.
        Err(upgraded) => workers.connect(accepted, TokioIo::new(upgraded), &[]).await,
    }
    Ok(())
}

/// Makes another runtime wait for the events of a socket. A runtime registers a descriptor only once, so the socket gets a new one.
fn move_to(runtime: &Handle, socket: &mut TcpStream) -> io::Result<()> {
    let descriptor = socket.as_fd().try_clone_to_owned()?;
    let _within = runtime.enter();
    *socket = TcpStream::from_std(descriptor.into())?;
    Ok(())
}

impl Links for AdminLinks {
    fn accept(&self, request: &WorkerRequest<'_>) -> Result<WorkerAccepted, WorkerRefused> {
        let headers: Vec<_> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let WorkerRequest { query, has_admin_token, needs_token, peer, .. } = *request;
        let request = LinkRequest { query, headers: &headers, has_admin_token, needs_token, peer };
        let mut accepted = self.workers.accept(request).map_err(|refused| WorkerRefused {
            needs_upgrade: refused.status == UPGRADE_REQUIRED,
            message: refused.message,
        })?;
        let headers = std::mem::take(&mut accepted.headers);
        let (workers, runtime) = (self.workers.clone(), self.runtime.clone());
        let connect: Connect = Box::new(move |upgraded| {
            Box::pin(async move {
                if let Err(error) = connect(workers, runtime, accepted, upgraded).await {
                    tracing::debug!(%error, "the connection of a worker failed");
                }
            })
        });
        Ok(WorkerAccepted { headers, connect })
    }

    fn find(&self, app: &str) -> Option<LinkApp> {
        self.workers.find(app)
    }

    fn name(&self, app: LinkApp) -> Option<String> {
        self.workers.name(app).map(str::to_owned)
    }

    fn links(&self) -> Vec<LinkInfo> {
        self.workers.links()
    }

    fn list(&self, done: Done<LinkList>) {
        self.workers.list(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    #[test]
    fn a_socket_that_has_moved_needs_its_former_runtime_no_more() {
        let runtime = || Builder::new_current_thread().enable_io().build().unwrap();
        let (former, next) = (runtime(), runtime());
        let (mut socket, mut peer) = former.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            (listener.accept().await.unwrap().0, peer)
        });
        former.block_on(peer.write_all(b"before")).unwrap();
        for socket in [&mut socket, &mut peer] {
            move_to(next.handle(), socket).unwrap();
        }
        former.shutdown_background();
        next.block_on(async {
            peer.write_all(b"after").await.unwrap();
            let mut received = [0; 11];
            socket.read_exact(&mut received).await.unwrap();
            assert_eq!(&received, b"beforeafter");
            drop(socket);
            assert_eq!(
                peer.read(&mut received).await.unwrap(),
                0,
                "no other descriptor keeps the socket open"
            );
        });
    }
}
