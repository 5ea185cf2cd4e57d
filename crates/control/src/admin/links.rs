//! Workers of applications: their connections, and the list of them.

use super::commands::refuse;
use super::publish::ask;
use super::{Peer, Refusal, State, guard, json, reason};
use crate::links::{WorkerAccepted, WorkerRequest};
use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use serde::Serialize;
use std::sync::Arc;
use stentor_ports::{LinkInfo, LinkList};

/// Adds the path of links. It isn't among the operations, because a WebSocket isn't one.
pub(super) fn add_to(router: Router<Arc<State>>) -> Router<Arc<State>> {
    router.route(guard::LINK_PATH, get(connect))
}

/// Handles `GET /link/v1`. The connection leaves the admin port, and takes none of its places.
async fn connect(Shared(state): Shared<Arc<State>>, mut request: Request<Body>) -> Response<Body> {
    let Some(links) = &state.services.links else {
        return Refusal::new(reason::NO_LINKS, "there is no [[links]] in the configuration").into_response();
    };
    let options = state.options.load();
    let needs_token = options.token.is_some();
    let upgrade = hyper::upgrade::on(&mut request);
    let accepted = links.accept(&WorkerRequest {
        query: request.uri().query().unwrap_or_default(),
        headers: request.headers(),
        has_admin_token: needs_token && guard::is_authorized(&options, &request),
        needs_token,
        peer: request.extensions().get::<Peer>().map(|peer| peer.0.ip()),
    });
    let WorkerAccepted { headers, connect } = match accepted {
        Ok(accepted) => accepted,
        Err(refused) => {
            let reason = if refused.needs_upgrade { reason::NO_UPGRADE } else { reason::HANDSHAKE };
            let mut response = Refusal::new(reason, refused.message).into_response();
            if refused.needs_upgrade {
                let headers = response.headers_mut();
                headers.insert("upgrade", "websocket".parse().expect("the value is valid"));
            }
            return response;
        }
    };
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => connect(upgraded).await,
            Err(error) => tracing::debug!(%error, "the connection of a worker failed"),
        }
    });
    let mut response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::empty()).unwrap_or_default()
}

/// A link, as it is listed.
#[derive(Serialize)]
struct Link<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    app: &'a str,
    link: u32,
    worker: &'a str,
    instance: &'a str,
    state: &'static str,
    on_crash: &'a str,
    sessions: usize,
    unacknowledged_bytes: usize,
}

impl<'a> From<&'a LinkInfo> for Link<'a> {
    fn from(info: &'a LinkInfo) -> Self {
        Self {
            node: info.node.as_deref(),
            app: &info.app,
            link: info.link,
            worker: &info.worker,
            instance: &info.instance,
            state: info.state.name(),
            on_crash: &info.on_crash,
            sessions: info.sessions,
            unacknowledged_bytes: info.unacknowledged_bytes,
        }
    }
}

#[derive(Serialize)]
struct Links<'a> {
    links: Vec<Link<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<String>,
}

/// Handles `GET /api/v1/links`.
pub(super) async fn list(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let listed = async {
        let mut list = match &state.services.links {
            Some(links) => ask(&state, |done| links.list(done)).await?,
            None => LinkList::default(),
        };
        list.links.sort_by(|a, b| (&a.app, &a.node, a.link).cmp(&(&b.app, &b.node, b.link)));
        let links = list.links.iter().map(Link::from).collect();
        Ok(json(StatusCode::OK, &Links { links, missing_nodes: list.missing_nodes }))
    };
    listed.await.unwrap_or_else(|refusal: Refusal| refuse(&state, refusal))
}
