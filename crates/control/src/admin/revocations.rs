//! Revocations of tokens: `POST` and `GET /api/v1/revocations`.
//!
//! The body of a request selects the tokens of a user, the token with an id, all tokens of an issuer, or one
//! session. Unknown fields are refused: a misspelled `subject` would apply to every user.

use super::commands::{bad, object, refuse, session_id};
use super::publish::ask;
use super::{Refusal, State, json, reason};
use crate::auth::{Auth, NAME_BYTES_MAX};
use crate::unix_time::unix_seconds;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Response, StatusCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stentor_auth::Revocation;
use stentor_ports::{Concerned, IdentityFilter, Recheck, RecheckAction};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    issuer: Option<String>,
    subject: Option<String>,
    token_id: Option<String>,
    session: Option<String>,
    issued_before: Option<u64>,
    #[serde(default)]
    action: Action,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    #[default]
    Disconnect,
    Refresh,
}

#[derive(Serialize)]
struct Revoked {
    sessions: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<String>,
}

#[derive(Serialize)]
struct List {
    revocations: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_before: Option<u64>,
    kept_until: u64,
}

fn auth(state: &State) -> Result<&Auth, Refusal> {
    state.auth.as_deref().ok_or_else(|| Refusal::new(reason::NO_AUTH, "the server has no [auth]"))
}

/// Handles `GET`.
pub(super) async fn list(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let listed = |(revocation, kept_until): (Revocation, u64)| Listed {
        issuer: revocation.issuer().map(Into::into),
        subject: revocation.subject().map(Into::into),
        token_id: revocation.token_id().map(Into::into),
        issued_before: revocation.time(),
        kept_until,
    };
    match auth(&state) {
        Ok(auth) => {
            let revocations = auth.revocations().into_iter().map(listed).collect();
            json(StatusCode::OK, &List { revocations })
        }
        Err(refusal) => refuse(&state, refusal),
    }
}

/// Handles `POST`.
pub(super) async fn revoke(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let done = async {
        let (request, _held) = object(&state, &headers, body, "a revocation").await?;
        let recheck = carry_out(auth(&state)?, request)?;
        let give = |done| state.data_plane.commands.recheck(recheck.clone(), done);
        let Concerned { sessions, missing_nodes, .. } = ask(&state, give).await?;
        Ok(json(StatusCode::OK, &Revoked { sessions, missing_nodes }))
    };
    done.await.unwrap_or_else(|refusal| refuse(&state, refusal))
}

/// Adds the revocation to the list. Returns the check of sessions that the data plane must carry out.
fn carry_out(auth: &Auth, request: Request) -> Result<Recheck, Refusal> {
    let Request { issuer, subject, token_id, session, issued_before, action } = request;
    for (field, value) in [("issuer", &issuer), ("subject", &subject), ("token_id", &token_id)] {
        if value.as_ref().is_some_and(|value| !(1..=NAME_BYTES_MAX).contains(&value.len())) {
            return Err(bad(format!("\"{field}\" has 1 to {NAME_BYTES_MAX} bytes")));
        }
    }
    let [issuer, subject, token_id] = [issuer, subject, token_id].map(|value| value.map(Arc::<str>::from));
    let names = [subject.is_some(), token_id.is_some(), session.is_some()];
    let given = names.into_iter().filter(|given| *given).count();
    if given > 1 {
        return Err(bad("\"subject\", \"token_id\" and \"session\" exclude each other".into()));
    }
    if given == 0 && issued_before.is_none() {
        return Err(bad("\"subject\", \"token_id\", \"session\" or \"issued_before\" is missing".into()));
    }
    if issued_before.is_some() && (token_id.is_some() || session.is_some()) {
        return Err(bad("\"issued_before\" has no meaning with \"token_id\" or \"session\"".into()));
    }
    if session.is_some() && issuer.is_some() {
        return Err(bad("\"issuer\" has no meaning with \"session\"".into()));
    }
    let names_token = subject.is_some() || token_id.is_some();
    let issuer = match issuer {
        None if names_token => Some(auth.only_issuer().ok_or_else(|| {
            bad("\"issuer\" is missing: the server has several issuers, and each has users and tokens of its own".into())
        })?),
        issuer => issuer,
    };
    // Revokes tokens up to and including the current second, so that a token that was issued just before is
    // revoked too.
    let issued_before = issued_before.or_else(|| subject.as_ref().map(|_| unix_seconds() + 1));
    if action == Action::Disconnect && session.is_none() {
        let revocation = match (&issuer, &subject, &token_id) {
            (Some(issuer), Some(subject), _) => {
                Revocation::user(issuer, subject, issued_before.unwrap_or_default())
            }
            (Some(issuer), _, Some(id)) => Revocation::token(issuer, id),
            _ => Revocation::issued_before(issuer.as_deref(), issued_before.unwrap_or_default()),
        };
        auth.revoke(revocation).map_err(|error| {
            Refusal::new(reason::TOO_MANY_REVOCATIONS, format!("{error}; raise revocations_max in [auth]"))
        })?;
    }
    let session = session.as_deref().map(session_id).transpose()?;
    let filter = IdentityFilter { issuer, subject, token_id, issued_before, session };
    let action = match action {
        Action::Disconnect => RecheckAction::Disconnect,
        Action::Refresh => RecheckAction::Renew,
    };
    Ok(Recheck { filter, action })
}
