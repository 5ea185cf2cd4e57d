//! The status page: `GET /` on the admin port. The page contains no data; its script reads the admin API,
//! with the token that the operator enters. Beside it, the port serves the documents to which findings refer.

use super::{Refusal, State, reason};
use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderName, Response, Uri, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::sync::Arc;

/// The status page's content security policy. The page may load only its own script and styles, and send
/// requests only to this port. No other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The content security policy of documents, which have a style of their own and load nothing.
const DOCUMENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; \
                               frame-ancestors 'none'";
/// The beginnings of documents' paths.
const DOCUMENT_FOLDERS: [&str; 2] = ["/docs/", "/clients/"];

/// The page's files, each with path, `Content-Type` and text.
const FILES: [(&str, &str, &str); 9] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/status.js", SCRIPT, include_str!("page/status.js")),
    ("/api.js", SCRIPT, include_str!("page/api.js")),
    ("/charts.js", SCRIPT, include_str!("page/charts.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/lists.js", SCRIPT, include_str!("page/lists.js")),
    ("/status.css", STYLE, include_str!("page/status.css")),
    // The chart library uPlot 1.6.32, under the MIT license beside it.
    ("/uplot.js", SCRIPT, include_str!("page/uplot/uPlot.iife.min.js")),
    ("/uplot.css", STYLE, include_str!("page/uplot/uPlot.min.css")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Returns `true` for the path of a file of the page, and of a document. They contain no secrets, and a browser
/// can't send a token with them.
pub(super) fn is_page(path: &str) -> bool {
    FILES.iter().any(|(file, ..)| *file == path)
        || DOCUMENT_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

pub(super) fn add_to(router: Router<Arc<State>>) -> Router<Arc<State>> {
    let router = DOCUMENT_FOLDERS
        .iter()
        .fold(router, |router, folder| router.route(&format!("{folder}{{*path}}"), get(document)));
    FILES.into_iter().fold(router, |router, (path, content_type, text)| {
        let headers: [(HeaderName, &str); 3] = [
            (header::CONTENT_TYPE, content_type),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::REFERRER_POLICY, "no-referrer"),
        ];
        router.route(path, get(async move || (headers, text).into_response()))
    })
}

/// Returns the page of a document.
async fn document(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response<Body> {
    let path = uri.path().trim_start_matches('/');
    match state.services.documents.and_then(|documents| documents(path)) {
        Some(text) => {
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CONTENT_SECURITY_POLICY, DOCUMENT_POLICY),
                (header::REFERRER_POLICY, "no-referrer"),
            ];
            (headers, text).into_response()
        }
        None => Refusal::new(reason::ROUTE, "there is no such document").into_response(),
    }
}
