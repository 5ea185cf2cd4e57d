//! `/feed/KEY`: a document over HTTP, at once or after its next change.
//!
//! The home core of the key answers the request. It already has the document, so no other core subscribes for one request.

use super::client::TransportStatus;
use super::request::{RequestContext, RequestOutcome, ResponseOptions, cors, status_of, text, write_head};
use super::response::{Response, ResponseContext, ResponseState};
use crate::app::{Decided, NotSubscribed, Refused};
use crate::encode::Encoding;
use crate::executor::Executor;
use crate::identity::Service;
use crate::millis::Millis;
use crate::model::{Body, Epoch, FeedState, Frame, Key, Policy, Position, SessionId, Topic};
use crate::options::Tokens;
use crate::ports::{Denial, Identity};
use crate::subscribe_options::TOO_MANY_TOPICS;
use std::sync::Arc;
use stentor_wire::http1;

/// A document is content of its upstream, not of this server. With this header, a browser that opens the document gives it a
/// separate origin and runs no script in it (CSP 3, section 6.3.2).
const SANDBOX: (&str, &str) = ("Content-Security-Policy", "sandbox");

const EXPIRED: (&str, &str) =
    ("WWW-Authenticate", "Bearer error=\"invalid_token\", error_description=\"token_expired\"");

/// A header that repeats the entity tag, for clients behind proxies that remove or change tags: Envoy's compressor removes
/// strong tags.
const VERSION: &str = "Stentor-Version";

/// A request that waits for a document.
pub(crate) struct Awaited {
    head_only: bool,
    state: ResponseState,
    /// `true` if shared caches must not store the document, because it is only for this client.
    is_private: bool,
    /// Request headers besides `Origin` that the answer depends on.
    varies: Option<String>,
    if_none_match: Option<String>,
    /// The value of `Access-Control-Allow-Origin` for the response.
    origin: Option<String>,
    /// The entity tags of the client's version (`?wait=`). The request waits for another version. `None` without `?wait=`.
    known: Option<String>,
    /// The client's version, if it is the newest one.
    unchanged: Option<Position>,
}

/// The entity tag of a version.
fn etag(position: Position) -> String {
    format!("\"{}-{}\"", position.epoch.0, position.offset)
}

/// The version that an entity tag names, with or without quotes. Proxies that compress append `-gzip`, `;gzip` or the like to
/// tags (Apache), or make them weak (nginx).
fn parse_tag(tag: &str) -> Option<Position> {
    let (epoch, rest) = tag.trim_start_matches("W/").trim_matches('"').split_once('-')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (offset, coding) = rest.split_at(digits);
    let is_coding = coding.is_empty()
        || coding.starts_with(['-', ';']) && coding.ends_with(|c: char| c.is_ascii_alphabetic());
    if !is_coding {
        return None;
    }
    Some(Position { epoch: Epoch(epoch.parse().ok()?), offset: offset.parse().ok()? })
}

/// Returns `true` if an `If-None-Match` or `?wait=` names a version (RFC 9110, 13.1.2, weak comparison).
fn names(list: &str, position: Position) -> bool {
    list.split(',').map(str::trim).any(|one| one == "*" || parse_tag(one) == Some(position))
}

impl Response for Awaited {
    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }

    fn held_bytes(&self) -> usize {
        let texts = [&self.if_none_match, &self.origin, &self.known];
        size_of::<Self>() + texts.into_iter().flatten().map(String::capacity).sum::<usize>()
    }

    /// A page that aborts a poll finishes sending. Programs such as `nc -N` finish sending too, but after a request that
    /// doesn't wait, and they read the response.
    fn ends_with_input(&self) -> bool {
        self.known.is_some() && !self.is_whole()
    }

    fn handle_timeout(
        &mut self,
        ex: &Executor,
        status: TransportStatus,
        out: &mut Vec<u8>,
    ) -> Option<Millis> {
        if !status.in_flight {
            if let Some(position) = self.unchanged {
                self.state.is_whole = true;
                let options = self.options(ex);
                self.answer_unchanged(options, position, out);
            } else if ex.is_draining() {
                self.fail(ex, 503, "the server is shutting down", out);
            } else {
                self.fail(ex, 504, "no document arrived in time (limits.request_timeout)", out);
            }
        }
        status.idle_deadline(ex)
    }

    fn take_frames(&mut self, cx: &mut ResponseContext<'_>, frames: &mut Vec<Frame>) {
        if let Some(session) = cx.session {
            let failed = self.send(session, cx.ex, frames);
            cx.ex.metrics().request_errors.add(u64::from(failed));
        }
    }

    fn fail(&mut self, ex: &Executor, status: u16, why: &str, out: &mut Vec<u8>) {
        ex.metrics().request_errors.add(1);
        self.state.is_whole = true;
        let options = self.options(ex);
        self.write_error(options, status, why, out);
    }
}

impl Awaited {
    /// Takes the session's deliveries, and sends the response if one of them completes the request. Returns `true` if the
    /// response is an error.
    fn send(&mut self, session: SessionId, ex: &mut Executor, frames: &mut Vec<Frame>) -> bool {
        let mut failed = false;
        let options = self.options(ex);
        while !self.state.is_whole && ex.has_pending(session) {
            let mut taken = 0;
            ex.take(session, 0, 1, |publication, frame| {
                taken += 1;
                match publication.body() {
                    Body::Snapshot { position, document, .. } => {
                        if self.known.as_deref().is_some_and(|known| names(known, *position)) {
                            self.unchanged = Some(*position);
                            return;
                        }
                        self.state.is_whole = true;
                        let tag = etag(*position);
                        let extra = self.headers(Some(&tag), self.revalidated());
                        let unchanged = self.is_condition_false(*position);
                        let status = if unchanged { 304 } else { 200 };
                        let mut head = Vec::with_capacity(256);
                        let len = document.body.len();
                        write_head(&mut head, options, status, &document.content_type, &extra, len);
                        frames.push(Frame::owned(head));
                        if !self.head_only && !unchanged && len > 0 {
                            frames.push(frame.clone());
                        }
                    }
                    Body::State { state, reason, .. } => {
                        // If the client has the newest document, only the end of the feed completes the request.
                        let status = match state {
                            FeedState::NotFound => 404,
                            FeedState::Complete if self.unchanged.is_none() => 404,
                            FeedState::Stale if self.unchanged.is_none() => 502,
                            FeedState::Complete | FeedState::Stale | FeedState::Live => return,
                        };
                        self.state.is_whole = true;
                        failed = true;
                        let mut out = Vec::with_capacity(256);
                        self.write_error(options, status, reason, &mut out);
                        frames.push(Frame::owned(out));
                    }
                    Body::Message { .. } | Body::Delta { .. } | Body::Presence { .. } => {}
                }
            });
            if taken == 0 {
                break;
            }
        }
        failed
    }

    /// Returns `true` if the request's condition (`If-None-Match`) excludes this version.
    fn is_condition_false(&self, position: Position) -> bool {
        self.if_none_match.as_deref().is_some_and(|list| names(list, position))
    }

    /// `Cache-Control` of a document: caches must revalidate it for each request.
    fn revalidated(&self) -> &'static str {
        if self.is_private { "private, no-cache" } else { "no-cache" }
    }

    fn headers<'h>(&'h self, tag: Option<&'h str>, cache_control: &'h str) -> Vec<(&'h str, &'h str)> {
        let mut headers = cors(self.origin.as_deref());
        headers.extend(self.varies.as_deref().map(|names| ("Vary", names)));
        headers.extend([SANDBOX, ("Cache-Control", cache_control)]);
        headers.extend(tag.into_iter().flat_map(|tag| [("ETag", tag), (VERSION, tag)]));
        headers
    }

    /// Appends an error.
    fn write_error(&self, options: ResponseOptions, status: u16, reason: &str, out: &mut Vec<u8>) {
        let mut extra = self.headers(None, "no-store");
        // 401 has only one cause for a waiting request: its token has expired.
        extra.extend((status == 401).then_some(EXPIRED));
        text(out, options, status, &extra, reason);
    }

    /// Appends the response for an unchanged document. The status is 304 only if the request's condition names the version
    /// (RFC 9110, 15.4.5): Varnish, which removes conditions, turned other 304 responses into errors.
    fn answer_unchanged(&self, options: ResponseOptions, position: Position, out: &mut Vec<u8>) {
        let tag = etag(position);
        let (status, cache_control) =
            if self.is_condition_false(position) { (304, self.revalidated()) } else { (204, "no-store") };
        text(out, options, status, &self.headers(Some(&tag), cache_control), "");
    }

    /// Options of the response, after which the connection stays open or ends.
    fn options(&mut self, ex: &Executor) -> ResponseOptions {
        self.state.keep_alive &= ex.keeps_connection(false);
        ResponseOptions { keep_alive: self.state.keep_alive, head_only: self.head_only, date: ex.date() }
    }
}

/// Answers a request for a document, at once or when the document arrives.
pub(crate) fn handle_request(cx: &mut RequestContext<'_>, key: Key) -> RequestOutcome {
    let wait = http1::query_pairs(cx.request.query()).find(|(name, _)| name == "wait");
    let options = cx.ex.options();
    let awaited = Awaited {
        head_only: cx.options.head_only,
        state: ResponseState::new(cx.options.keep_alive),
        is_private: cx.has_token() || options.authorizer.is_some(),
        varies: cx.ex.questions.identities.is_on().then(|| {
            let Tokens { cookie, proxy, .. } = &options.tokens;
            let mut names = "Authorization".to_owned();
            names += if cookie.is_some() { ", Cookie" } else { "" };
            names += if cookie.is_some() || proxy.is_some() { ", Sec-Fetch-Site" } else { "" };
            if let Some(proxy) = proxy {
                let headers = std::iter::once(&proxy.user_header).chain(&proxy.groups_header);
                headers.for_each(|header| names.extend([", ", header]));
            }
            names
        }),
        if_none_match: cx.request.header_str("if-none-match").map(str::to_owned),
        origin: cx.allow_origin().map(str::to_owned),
        known: wait.map(|(_, tag)| tag.into_owned()),
        unchanged: None,
    };
    identify(cx, key, awaited, None)
}

/// Verifies the client's identity. `decided` is the decision for which the request waited.
fn identify(
    cx: &mut RequestContext<'_>,
    key: Key,
    awaited: Awaited,
    decided: Option<Decided>,
) -> RequestOutcome {
    match cx.identify("http", decided) {
        Ok(identity) => subscribe(cx, key, awaited, identity, None),
        Err(Refused::Pending) => cx.wait_for_one(move |cx, _, decided| identify(cx, key, awaited, decided)),
        Err(Refused::Denied(denial)) => refuse_denied(cx, &denial),
    }
}

fn refuse_denied(cx: &mut RequestContext<'_>, denial: &Denial) -> RequestOutcome {
    cx.refuse_denied(denial, &[SANDBOX, ("Cache-Control", "no-store")])
}

/// Subscribes to the document. `decided` is the decision for which the request waited.
fn subscribe(
    cx: &mut RequestContext<'_>,
    key: Key,
    mut awaited: Awaited,
    identity: Option<Arc<Identity>>,
    decided: Option<Decided>,
) -> RequestOutcome {
    if let (Some(_), Some(identity)) = (&decided, &identity)
        && let Err(denial) = cx.ex.check_identity(identity)
    {
        return refuse_denied(cx, &denial);
    }
    let (owner, source) = (cx.owner(Service::default()), cx.client.source());
    let session = cx.ex.open_session(Encoding::DOCUMENT, owner, source, identity.clone());
    let topic = Topic::Feed(key.clone());
    let Err(error) = cx.ex.subscribe(cx.conn, session, &topic, Policy::Latest, None, decided) else {
        *cx.session = Some(session);
        return RequestOutcome::Waiting(Box::new(awaited));
    };
    cx.ex.close_until_decided(session);
    let (status, why) = match error {
        NotSubscribed::Pending => {
            return cx.wait_for_one(move |cx, _, decided| subscribe(cx, key, awaited, identity, decided));
        }
        NotSubscribed::Limit(_) => (503, TOO_MANY_TOPICS.into()),
        NotSubscribed::Denied(denial) => (status_of(&denial), denial.message),
    };
    cx.count_error();
    let options = awaited.options(cx.ex);
    awaited.write_error(options, status, &why, cx.out);
    cx.answered()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags() {
        let position = Position { epoch: Epoch(1), offset: 2 };
        let same = [
            "\"1-2\"",
            "1-2",
            "*",
            "\"0-1\", W/\"1-2\"",
            "\"1-2-gzip\"",
            "\"1-2-br\"",
            "W/\"1-2-zstd\"",
            "\"1-2;gzip\"",
            "\"1-2--gzip\"",
        ];
        for list in same {
            assert!(names(list, position), "{list}");
        }
        for list in ["", "\"1-20\"", "1-20", "\"1-2-3\"", "\"1-2gzip\"", "\"2-2-gzip\"", "1", "a-b", "1-"] {
            assert!(!names(list, position), "{list}");
        }
    }
}
