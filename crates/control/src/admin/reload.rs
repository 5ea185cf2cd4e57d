//! `POST /api/v1/reload`.

use super::{Refusal, State, reason};
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Response, header};
use axum::response::IntoResponse;
use std::sync::Arc;

pub(super) async fn reload(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let report = match &state.services.reload {
        Some(reload) => reload.clone().reload().await,
        None => Ok(r#"{"applied":[],"restart_needed":[],"warnings":[]}"#.to_owned()),
    };
    match report {
        Ok(report) => ([(header::CONTENT_TYPE, "application/json")], report + "\n").into_response(),
        Err(mistakes) => {
            let refusal = Refusal::new(reason::CONFIGURATION, mistakes);
            refusal.count(&state.metrics.admin_refusals, reason::refusals());
            refusal.into_response()
        }
    }
}
