//! `/feed/KEY`: a document over HTTP, at once or when it has changed.

use super::request::{RequestContext, RequestOutcome, ResponseOptions, cors, status_of, text, write_head};
use crate::app::{NotSubscribed, Refused};
use crate::encode::Format;
use crate::executor::Executor;
use crate::identity::Owner;
use crate::model::{Body, FeedState, Frame, Key, Policy, Position, SessionId, Topic};
use crate::subscribe_options::TOO_MANY_TOPICS;
use stentor_wire::http1;

/// A document is content of its upstream, not of this server. With this header, a browser that opens it gives it a
/// separate origin and runs no script in it (CSP 3, section 6.3.2).
const SANDBOX: (&str, &str) = ("Content-Security-Policy", "sandbox");

const EXPIRED: (&str, &str) =
    ("WWW-Authenticate", "Bearer error=\"invalid_token\", error_description=\"token_expired\"");

/// A request that waits for a document.
pub(crate) struct Awaited {
    head_only: bool,
    pub(crate) keep_alive: bool,
    if_none_match: Option<String>,
    /// The `Origin` to answer with.
    origin: Option<String>,
    /// The client has the version with one of these tags and waits for another (`?wait=`).
    known: Option<String>,
    /// The client's version, once it is known to be the newest.
    unchanged: Option<Position>,
    /// The answer has been handed to the driver.
    pub(crate) answered: bool,
}

/// The entity tag of a version.
fn etag(position: Position) -> String {
    format!("\"{}-{}\"", position.epoch.0, position.offset)
}

/// Whether an `If-None-Match` names a tag (RFC 9110, 13.1.2, weak comparison).
fn names(if_none_match: &str, tag: &str) -> bool {
    if_none_match.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

/// Whether `?wait=` names a tag, with or without its quotes.
fn is_known(wait: &str, tag: &str) -> bool {
    names(wait, tag) || wait == tag.trim_matches('"')
}

impl Awaited {
    /// Bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        let texts = [&self.if_none_match, &self.origin, &self.known];
        size_of::<Self>() + texts.into_iter().flatten().map(String::capacity).sum::<usize>()
    }

    /// Whether the client has the newest version.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.unchanged.is_some()
    }

    /// Answers with the pending deliveries of the session, if one is an answer. Returns whether it is an error.
    pub(crate) fn answer(
        &mut self,
        session: SessionId,
        ex: &mut Executor,
        frames: &mut Vec<Frame>,
        draining: bool,
    ) -> bool {
        let mut failed = false;
        while !self.answered && ex.has_pending(session) {
            let mut taken = 0;
            ex.take(session, 0, 1, |publication, frame| {
                taken += 1;
                match publication.body() {
                    Body::Snapshot { position, document, .. } => {
                        let tag = etag(*position);
                        if self.known.as_deref().is_some_and(|known| is_known(known, &tag)) {
                            self.unchanged = Some(*position);
                            return;
                        }
                        self.answered = true;
                        let mut extra = cors(self.origin.as_deref());
                        extra.extend([SANDBOX, ("ETag", &*tag), ("Cache-Control", "no-cache")]);
                        let unchanged = self.if_none_match.as_deref().is_some_and(|list| names(list, &tag));
                        let status = if unchanged { 304 } else { 200 };
                        let mut head = Vec::with_capacity(256);
                        let len = document.body.len();
                        let options = self.options(draining);
                        write_head(&mut head, options, status, &document.content_type, &extra, len);
                        frames.push(Frame::owned(head));
                        if !self.head_only && !unchanged && len > 0 {
                            frames.push(frame.clone());
                        }
                    }
                    Body::State { state, reason, .. } => {
                        // While the client has the newest document, only the end of the feed completes the request.
                        let status = match state {
                            FeedState::NotFound => 404,
                            FeedState::Complete if self.unchanged.is_none() => 404,
                            FeedState::Stale if self.unchanged.is_none() => 502,
                            FeedState::Complete | FeedState::Stale | FeedState::Live => return,
                        };
                        self.answered = true;
                        failed = true;
                        let mut out = Vec::with_capacity(256);
                        self.fail(status, reason, draining, &mut out);
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

    /// Appends an answer without a document: an error, or that it is unchanged.
    pub(crate) fn fail(&self, status: u16, reason: &str, draining: bool, out: &mut Vec<u8>) {
        let mut extra = cors(self.origin.as_deref());
        extra.push(SANDBOX);
        // The only reason for which a request that waits isn't authenticated any more.
        extra.extend((status == 401).then_some(EXPIRED));
        let tag = self.unchanged.map(etag).filter(|_| status == 304);
        match &tag {
            Some(tag) => extra.extend([("ETag", &**tag), ("Cache-Control", "no-cache")]),
            None => extra.push(("Cache-Control", "no-store")),
        }
        text(out, self.options(draining), status, &extra, reason);
    }

    fn options(&self, draining: bool) -> ResponseOptions {
        ResponseOptions { keep_alive: self.keep_alive && !draining, head_only: self.head_only }
    }
}

/// Answers a request for a document, at once or when it is there.
pub(crate) fn handle_request(cx: &mut RequestContext<'_>, key: Key) -> RequestOutcome<Box<Awaited>> {
    let wait = http1::query_pairs(cx.request.query()).find(|(name, _)| name == "wait");
    let awaited = Awaited {
        head_only: cx.options.head_only,
        keep_alive: cx.options.keep_alive,
        if_none_match: cx.request.header_str("if-none-match").map(str::to_owned),
        origin: cx.allow_origin().map(str::to_owned),
        known: wait.map(|(_, tag)| tag.into_owned()),
        unchanged: None,
        answered: false,
    };
    let identity = match cx.identify("http") {
        Ok(identity) => identity,
        Err(Refused::Pending) => return RequestOutcome::Admission(None),
        Err(Refused::Denied(denial)) => {
            let extra = [cors(cx.allow_origin()), vec![SANDBOX, ("Cache-Control", "no-store")]].concat();
            return cx.refuse_denied(&denial, &extra);
        }
    };
    let session = cx.ex.open_session(Format::Body, Owner::Connection(cx.conn.index()), cx.source);
    cx.ex.set_identity(session, identity);
    if let Err(error) = cx.ex.subscribe(session, &Topic::Feed(key), Policy::Latest, None) {
        cx.ex.close_session(session);
        let (status, why) = match error {
            NotSubscribed::Pending => return RequestOutcome::Admission(None),
            NotSubscribed::Limit(_) => (503, TOO_MANY_TOPICS.into()),
            NotSubscribed::Denied(denial) => (status_of(&denial), denial.message),
        };
        cx.count_error();
        awaited.fail(status, &why, cx.ex.draining, cx.out);
        return cx.answered();
    }
    *cx.session = Some(session);
    RequestOutcome::Waiting(Box::new(awaited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags() {
        assert!(
            names("\"1-2\"", "\"1-2\"") && names("\"0-1\", W/\"1-2\"", "\"1-2\"") && names("*", "\"1-2\"")
        );
        assert!(!names("\"1-20\"", "\"1-2\""));
        assert!(is_known("1-2", "\"1-2\"") && is_known("\"1-2\"", "\"1-2\"") && !is_known("1-20", "\"1-2\""));
    }
}
