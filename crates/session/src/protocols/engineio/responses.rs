//! Responses that several requests have in common.

use super::described::report_refused;
use super::{Client, Poll};
use crate::ports::Denial;
use crate::protocols::clients::ClientTable;
use crate::protocols::request::{RequestContext, RequestOutcome, challenge, cors, status_of};
use crate::protocols::response::ResponseState;
use stentor_wire::engineio::{Request as Query, RequestError};

pub(super) type Outcome = RequestOutcome;
pub(super) type Clients = ClientTable<Client>;

pub(super) fn refuse(cx: &mut RequestContext<'_>, error: RequestError, message: Option<&str>) -> Outcome {
    cx.count_error();
    report_refused(cx, error, message);
    let mut body = Vec::with_capacity(64);
    error.write_body(&mut body, message);
    cx.answer(error.status(), "application/json", &cors_of(cx), &body)
}

/// Refuses a client with the error body that Engine.IO's own servers send.
pub(super) fn refuse_denied(cx: &mut RequestContext<'_>, denial: &Denial) -> Outcome {
    cx.count_error();
    report_refused(cx, RequestError::Forbidden, Some(&denial.message));
    let mut body = Vec::with_capacity(64);
    RequestError::Forbidden.write_body(&mut body, Some(&denial.message));
    let challenge = challenge(denial);
    let mut extra = cors_of(cx);
    extra.extend(challenge.as_ref().map(|(name, value)| (*name, &**value)));
    cx.answer(status_of(denial), "application/json", &extra, &body)
}

pub(super) fn new_poll(cx: &RequestContext<'_>, client: &Client, query: &Query<'_>) -> Poll {
    Poll {
        client: client.state.id,
        version: client.version,
        state: ResponseState::new(cx.options.keep_alive),
        origin: match cx.cors_of_app() {
            Some(_) => cx.request.header_str("origin"),
            None => cx.allow_origin(),
        }
        .map(Into::into),
        jsonp: query.jsonp,
        base64: query.base64,
        is_client_1: cx.ex.options().engine.polling_1,
        cors: cx.engine.filter(|_| cx.cors_of_app().is_some()).cloned(),
        headers: client.headers().cloned(),
    }
}

/// The headers with which a page of another origin may read the response, and send cookies if its origin is listed.
pub(super) fn cors_of<'r>(cx: &RequestContext<'r>) -> Vec<(&'r str, &'r str)> {
    let mut extra = match cx.cors_of_app() {
        Some(of_app) => of_app.headers(cx.request.header_str("origin")),
        None => cors(cx.allow_origin()),
    };
    extra.push(("Cache-Control", "no-store"));
    extra
}
