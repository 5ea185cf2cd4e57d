//! The application link: its options for the data plane, and its side of the admin port.

use crate::config::options::LinkOptions;
use std::sync::Arc;
use stentor_control::{Connect, LinkView, Links, WorkerAccepted, WorkerRefused, WorkerRequest};
use stentor_edge::{LinkRoutes, Options};
use stentor_ports::{Ledger, LinkApp, LinkInbox};
use stentor_workers::{AppOptions, ForwardOptions, LinkInfo, LinkRequest, RecoveryOptions, Token, Workers};

/// The status of a request that asks for no WebSocket.
const UPGRADE_REQUIRED: u16 = 426;

/// The service of the link, as the admin port calls it.
#[derive(Debug)]
struct AdminLinks(Arc<Workers>);

/// Makes the service and the routes of its clients. Returns `None` without `[[links]]`.
pub(crate) fn prepare(
    links: Vec<LinkOptions>,
    edge: &Options,
    ledger: &Arc<Ledger>,
) -> Option<(Arc<Workers>, LinkRoutes)> {
    if links.is_empty() {
        return None;
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
    Some((workers, routes))
}

/// The side of the admin port.
pub(crate) fn of_admin(workers: &Arc<Workers>) -> Arc<dyn Links> {
    Arc::new(AdminLinks(workers.clone()))
}

/// Starts the service, which gives the cores instructions by `inbox`. Must be called within the control plane's runtime.
pub(crate) fn start(workers: &Workers, inbox: Arc<dyn LinkInbox>) {
    let service = tokio::spawn(workers.service(inbox));
    tokio::spawn(async move {
        // Without it, the sessions of workers would hang without an error: a supervisor restarts the process.
        if let Err(error) = service.await
            && error.is_panic()
        {
            tracing::error!(%error, "the application link has failed; the process ends");
            std::process::exit(1);
        }
    });
}

impl Links for AdminLinks {
    fn accept(&self, request: &WorkerRequest<'_>) -> Result<WorkerAccepted, WorkerRefused> {
        let headers: Vec<_> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let WorkerRequest { query, has_admin_token, needs_token, peer, .. } = *request;
        let request = LinkRequest { query, headers: &headers, has_admin_token, needs_token, peer };
        let mut accepted = self.0.accept(request).map_err(|refused| WorkerRefused {
            needs_upgrade: refused.status == UPGRADE_REQUIRED,
            message: refused.message,
        })?;
        let headers = std::mem::take(&mut accepted.headers);
        let workers = self.0.clone();
        let connect: Connect =
            Box::new(move |io| Box::pin(async move { workers.connect(accepted, io).await }));
        Ok(WorkerAccepted { headers, connect })
    }

    fn find(&self, app: &str) -> Option<LinkApp> {
        self.0.find(app)
    }

    fn list(&self) -> Vec<LinkView> {
        let view = |info: LinkInfo| LinkView {
            app: info.app.to_string(),
            link: info.link,
            worker: info.worker.to_string(),
            instance: info.instance.to_string(),
            state: info.state.name(),
            on_crash: info.on_crash,
            sessions: info.sessions,
            unacknowledged_bytes: info.unacknowledged_bytes,
        };
        self.0.links().into_iter().map(view).collect()
    }
}
