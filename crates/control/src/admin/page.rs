//! The status page: `GET /` on the admin port. The page contains no data; its script reads the admin API,
//! with the token that the operator enters.

use super::State;
use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::sync::Arc;

/// The status page's content security policy. The page may load only its own script and styles, and send
/// requests only to this port. No other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page's files, each with path, `Content-Type` and text.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/status.js", "text/javascript; charset=utf-8", include_str!("page/status.js")),
    ("/status.css", "text/css; charset=utf-8", include_str!("page/status.css")),
];

/// Returns `true` for the path of a file of the page. The files contain no secrets, and a browser can't send
/// a token with them.
pub(super) fn is_page(path: &str) -> bool {
    FILES.iter().any(|(file, ..)| *file == path)
}

pub(super) fn add_to(router: Router<Arc<State>>) -> Router<Arc<State>> {
    FILES.into_iter().fold(router, |router, (path, content_type, text)| {
        let headers: [(HeaderName, &str); 3] = [
            (header::CONTENT_TYPE, content_type),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::REFERRER_POLICY, "no-referrer"),
        ];
        router.route(path, get(async move || (headers, text).into_response()))
    })
}
