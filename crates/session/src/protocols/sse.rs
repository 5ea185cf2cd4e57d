//! Server-Sent Events: feeds over one response that doesn't end (WHATWG HTML, 9.2).
//!
//! In a stream of one feed, the event that all clients share has the position as its id. In a stream of several feeds, ids
//! differ between clients, so the id is written right before the shared event. It names the event's own feed first, and
//! then the client's positions in the other feeds. A client that reconnects with `Last-Event-ID` receives the versions that
//! it missed: documents, or deltas with `delta=1`.
//!
//! `POST /sse` has the feeds and the client's positions in its body ([`body`]). Only scripts send this request. They keep a
//! position per feed, so their streams have the shared ids, whatever the number of feeds.
//!
//! ```text
//!  retry ──► events, comments as heartbeats ──► no feed exists: a long retry with the last event ──► the end
//!                                          └──► the node drains: another retry ──► a browser: the end
//!                                                                             └──► others: cut, no last chunk
//! ```
//!
//! `retry` is a line of the first event's block, and heartbeats are lines outside of blocks, because some clients deliver a
//! block without data. A stream whose client should reconnect ends without its last chunk, because some clients don't
//! reconnect after a clean end (r3labs/sse). Browsers always reconnect, but proxies in front of them (http-proxy, Vite)
//! forward only a clean end, so a browser's stream ends with the last chunk.
//!
//! While the node drains, a browser's `EventSource` receives a stream that only sets the reconnect delay, because it never
//! reconnects after a status other than 200 (WHATWG HTML, 9.2.3).
//!
//! A browser waits for exactly the time of `retry`, so all browsers would reconnect at the same time after a restart. Therefore
//! each stream receives a different time ([`jitter`]).
//!
//! A client sends no data after its request, so only TCP shows that the client has disconnected: by a reset, by the end of the
//! client's input, or because the kernel accepts no byte between two heartbeats.

mod body;

use super::client::TransportStatus;
use super::query::ConnectQuery;
use super::request::{
    BufferedRequest, RequestContext, RequestOutcome, ResponseOptions, Suspended, push_credentials,
    push_preflight, write_piece, write_stream_head,
};
use super::response::{Response, ResponseContext, ResponseState};
use crate::app::{Decided, NotSubscribed, Refused};
use crate::encode::{Encoding, unchunked};
use crate::executor::{
    Effect, Executor, Feeds, SEND_BYTES_MAX, SEND_FRAMES_MAX, SubscribeOptions, ToConnection,
};
use crate::identity::Service;
use crate::millis::{Millis, part_of};
use crate::model::{Body, Epoch, FeedState, Frame, Key, Position, SessionId, SubscribeError, Topic};
use crate::ports::Identity;
use crate::subscribe_options::{TOO_MANY_COLD_KEYS, TOO_MANY_TOPICS};
use std::sync::Arc;
use std::time::Duration;
use stentor_wire::http1::{self, BodyKind, Request};
use stentor_wire::sse::{self, Positions};

const TOO_MANY_FEEDS: &str = "more feeds than a session may have (limits.subscriptions_max)";

/// A feed of a stream, with the client's position in it.
type StreamFeed = (Key, Option<Position>);

fn position_of(id: Positions<'_>, key: &Key) -> Option<Position> {
    let seen = id.of(key.as_str())?;
    Some(Position { epoch: Epoch(seen.epoch), offset: seen.offset })
}

/// An SSE stream.
pub(crate) struct Events {
    /// `true` if each event is a chunk (HTTP/1.1).
    chunked: bool,
    is_browser: bool,
    state: ResponseState,
    /// Number of feeds that still exist.
    feeds_left: usize,
    /// The client's position in each feed if an id of the stream names several feeds. Empty if ids are shared.
    seen: Box<[StreamFeed]>,
    /// Reconnect delay of clients whose feeds all don't exist.
    retry_lost: Duration,
}

/// A time between 0.5 and 1.5 times `delay`, evenly distributed. The same number gives the same result.
fn jitter(delay: Duration, number: u64) -> Duration {
    delay / 2 + part_of(delay, number)
}

impl Response for Events {
    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn first_timeout(&self, ex: &Executor) -> Duration {
        ex.options().heartbeat.interval
    }

    /// Appends a comment as a heartbeat.
    fn handle_timeout(
        &mut self,
        ex: &Executor,
        status: TransportStatus,
        out: &mut Vec<u8>,
    ) -> Option<Millis> {
        status.idle_deadline(ex)?;
        if !status.in_flight {
            self.write(out, |out| sse::write_comment(out, ""));
        }
        Some(ex.millis().after(ex.options().heartbeat.interval))
    }

    fn take_frames(&mut self, cx: &mut ResponseContext<'_>, frames: &mut Vec<Frame>) {
        if let Some(session) = cx.session {
            self.stream(session, cx.ex, frames);
        }
    }

    /// Only a browser's stream ends with the last chunk, because some clients don't reconnect after it.
    fn send_away(&mut self, after: Option<Duration>, out: &mut Vec<u8>) {
        if let Some(after) = after {
            self.write(out, |out| sse::write_retry(out, after));
        }
        if self.is_browser {
            self.state.finish(self.chunked, out);
        }
        self.state.is_whole = true;
    }
}

impl Events {
    fn write(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let mut piece = Vec::with_capacity(64);
        write(&mut piece);
        write_piece(out, self.chunked, &piece);
    }

    /// Moves pending deliveries of the session into `frames`, up to the size of one send.
    fn stream(&mut self, session: SessionId, ex: &mut Executor, frames: &mut Vec<Frame>) {
        if self.state.is_whole {
            return;
        }
        let bytes_max = SEND_BYTES_MAX;
        ex.take(session, bytes_max, SEND_FRAMES_MAX, |publication, encoded| {
            match publication.body() {
                Body::Snapshot { key, position, .. } | Body::Delta { key, position, .. }
                    if !self.seen.is_empty() =>
                {
                    self.saw(key, *position);
                    let mut id = Vec::with_capacity(128);
                    self.write(&mut id, |out| self.write_id(out, key));
                    frames.push(Frame::owned(id));
                }
                Body::State { state: FeedState::NotFound, .. } => {
                    self.feeds_left = self.feeds_left.saturating_sub(1);
                    if self.feeds_left == 0 {
                        let mut retry = Vec::with_capacity(32);
                        self.write(&mut retry, |out| sse::write_retry(out, self.retry_lost));
                        frames.push(Frame::owned(retry));
                    }
                }
                _ => {}
            }
            if self.chunked {
                frames.push(encoded.clone());
            } else {
                frames.push(Frame::owned(unchunked(&encoded.bytes()).to_vec()));
            }
        });
        if self.feeds_left == 0 {
            let mut end = Vec::with_capacity(8);
            self.state.finish(self.chunked, &mut end);
            if !end.is_empty() {
                frames.push(Frame::owned(end));
            }
        }
    }

    /// Writes the line with the id of the next event, which is of `key`.
    fn write_id(&self, out: &mut Vec<u8>, key: &Key) {
        let (own, others): (Vec<_>, Vec<_>) = self.seen.iter().partition(|(other, _)| other == key);
        let positions = own.into_iter().chain(others).filter_map(|(key, seen)| {
            let Position { epoch, offset } = (*seen)?;
            Some(sse::Position { key: key.as_str().into(), epoch: epoch.0, offset })
        });
        sse::write_position_id(out, positions);
    }

    fn saw(&mut self, key: &Key, position: Position) {
        if let Some((_, seen)) = self.seen.iter_mut().find(|(other, _)| other == key) {
            *seen = Some(position);
        }
    }
}

/// Returns `true` if a browser sent a request, according to its headers.
fn is_browser(request: &Request<'_>) -> bool {
    request.header_str("user-agent").is_some_and(|name| name.starts_with("Mozilla/"))
}

/// Returns `true` if a page's `EventSource` sent a request. (Libraries that read streams with `fetch` retry after an error
/// status.)
fn is_event_source(request: &Request<'_>) -> bool {
    is_browser(request) && request.header_str("accept") == Some(sse::CONTENT_TYPE)
}

/// Returns `true` if a request is for a stream, `false` for a preflight request or a page's question whether it may connect.
pub(crate) fn opens(request: &Request<'_>) -> bool {
    match request.method() {
        "GET" => true,
        method => method == "POST" && request.body() != BodyKind::Empty,
    }
}

/// The headers of every response, with which pages of allowed origins may read it.
fn cors_of<'r>(cx: &RequestContext<'r>) -> Vec<(&'r str, &'r str)> {
    let origin = cx.allow_origin();
    let mut extra = vec![("Access-Control-Allow-Origin", origin.unwrap_or("*")), ("Vary", "Origin")];
    push_credentials(&mut extra, origin);
    extra
}

/// Answers a request for a stream of events. The stream's session becomes the session of the connection.
pub(crate) fn handle_request(cx: &mut RequestContext<'_>, key: Option<Key>) -> RequestOutcome {
    let request = cx.request;
    let mut extra = cors_of(cx);
    match request.method() {
        "GET" | "HEAD" => {}
        "OPTIONS" => {
            push_preflight(&mut extra, request, "GET, POST");
            return cx.answer(204, sse::CONTENT_TYPE, &extra, b"");
        }
        // A page asks whether its origin may connect.
        "POST" if !opens(request) => return cx.answer(204, sse::CONTENT_TYPE, &extra, b""),
        "POST" => {
            let body = cx.body();
            return cx.unavailable_while_draining(&extra).unwrap_or(body);
        }
        _ => {
            extra.push(("Allow", "GET, HEAD, POST"));
            return cx.refuse(405, &extra, "only GET, HEAD and POST are answered here");
        }
    }
    open(cx, key, Vec::new(), &extra)
}

/// Answers a request whose body names feeds.
pub(crate) fn handle_body(
    cx: &mut RequestContext<'_>,
    key: Option<Key>,
    buffered: &BufferedRequest,
) -> RequestOutcome {
    let extra = cors_of(cx);
    let options = cx.ex.options();
    match body::feeds(&buffered.body, &options.keys, options.limits.subscriptions_max) {
        Ok(feeds) => open(cx, key, feeds, &extra),
        Err(error) => cx.refuse(400, &extra, &error),
    }
}

/// Opens a stream of the feeds in the URL and in the body.
fn open(
    cx: &mut RequestContext<'_>,
    key: Option<Key>,
    mut feeds: Vec<StreamFeed>,
    extra: &[(&str, &str)],
) -> RequestOutcome {
    let request = cx.request;
    let parsed = ConnectQuery::parse(request.query(), &cx.ex.options().keys).and_then(|mut query| {
        let feeds = query.feeds(key, false)?;
        Ok((feeds, query.last_event_id))
    });
    let (Feeds { keys, options: subscription }, since) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return cx.refuse(400, extra, &error),
    };
    // The id that the browser sends is newer than the id that the page wrote into the URL.
    let newer = request.header_str("last-event-id").filter(|id| !id.is_empty());
    let since = newer.or(since.as_deref());
    let since = Positions::parse(since.unwrap_or_default());
    feeds.extend(keys.into_iter().map(|key| {
        let position = position_of(since, &key);
        (key, position)
    }));
    feeds.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    feeds.dedup_by(|(one, _), (other, _)| one == other);
    if feeds.is_empty() {
        return cx.refuse(400, extra, "name a feed: /sse/KEY, /sse?feed=KEY, or in the body of POST /sse");
    }
    if let Some(outcome) = turn_away(cx, extra) {
        return outcome;
    }
    let opening =
        Opening { waits: vec![false; feeds.len()], feeds, subscription, identity: None, generation: 0 };
    opening.identify(cx, None)
}

/// Answers a request while the node drains.
fn turn_away(cx: &mut RequestContext<'_>, extra: &[(&str, &str)]) -> Option<RequestOutcome> {
    if cx.ex.is_draining() && is_event_source(cx.request) && cx.request.method() == "GET" {
        return Some(send_back(cx, extra));
    }
    cx.unavailable_while_draining(extra)
}

/// A request for a stream, and how far it has been decided.
struct Opening {
    /// The feeds, sorted by their keys.
    feeds: Vec<StreamFeed>,
    subscription: SubscribeOptions,
    identity: Option<Arc<Identity>>,
    /// For each feed, `true` if the request waits for the permission to subscribe.
    waits: Vec<bool>,
    /// The generation of the rules by which the other feeds were permitted.
    generation: u64,
}

impl Opening {
    /// Verifies the client's identity. `decided` is the decision for which the request waited.
    fn identify(mut self, cx: &mut RequestContext<'_>, decided: Option<Decided>) -> RequestOutcome {
        match cx.identify("sse", decided) {
            Ok(identity) => {
                self.identity = identity;
                self.subscribe(cx, None)
            }
            Err(Refused::Pending) => cx.wait_for_one(move |cx, _, decided| self.identify(cx, decided)),
            Err(Refused::Denied(denial)) => {
                let extra = cors_of(cx);
                cx.refuse_denied(&denial, &extra)
            }
        }
    }

    /// Continues after the decisions on feeds.
    fn resume(self, cx: &mut RequestContext<'_>, decided: Vec<Decided>) -> RequestOutcome {
        let extra = cors_of(cx);
        if let Some(identity) = &self.identity
            && let Err(denial) = cx.ex.check_identity(identity)
        {
            return cx.refuse_denied(&denial, &extra);
        }
        turn_away(cx, &extra).unwrap_or_else(|| self.subscribe(cx, Some(decided)))
    }

    /// Opens the stream's session. `decided` are the decisions for which the request waited.
    fn subscribe(mut self, cx: &mut RequestContext<'_>, decided: Option<Vec<Decided>>) -> RequestOutcome {
        let (request, extra) = (cx.request, cors_of(cx));
        let mut head = Vec::with_capacity(512);
        let mut options = cx.options;
        let chunked = write_events_head(&mut head, request, &mut options, &extra);
        if options.head_only {
            cx.options = options;
            cx.out.append(&mut head);
            return cx.answered();
        }
        // A script that sends a body keeps a position per feed, so it needs only the shared ids.
        let has_shared_ids = self.feeds.len() == 1 || request.method() == "POST";
        let encoding = if has_shared_ids { Encoding::EVENTS_OF_ONE } else { Encoding::EVENTS_OF_SEVERAL };
        let (owner, source) = (cx.owner(Service::default()), cx.client.source());
        let session = cx.ex.open_session(encoding, owner, source, self.identity.clone());
        let generation = cx.ex.questions.identities.generation();
        let is_current = std::mem::replace(&mut self.generation, generation) == generation;
        let mut decided = decided.map(Vec::into_iter);
        for ((key, seen), waits) in self.feeds.iter().zip(&mut self.waits) {
            let topic = Topic::Feed(key.clone());
            let decided = decided
                .as_mut()
                .and_then(|decided| if *waits { decided.next() } else { Some(Decided::granted(is_current)) });
            let subscribed = cx.ex.subscribe(cx.conn, session, &topic, self.subscription, *seen, decided);
            *waits = matches!(subscribed, Err(NotSubscribed::Pending));
            let (status, why) = match subscribed {
                Ok(()) | Err(NotSubscribed::Pending) => continue,
                Err(NotSubscribed::Denied(denial)) => {
                    cx.ex.close_unlisted(session);
                    cx.options = options;
                    return cx.refuse_denied(&denial, &extra);
                }
                Err(NotSubscribed::Limit(SubscribeError::TooManySubscriptions)) => (400, TOO_MANY_FEEDS),
                Err(NotSubscribed::Limit(SubscribeError::TooManyTopics)) => (503, TOO_MANY_TOPICS),
                Err(NotSubscribed::Limit(SubscribeError::TooManyColdKeys)) => (429, TOO_MANY_COLD_KEYS),
            };
            cx.ex.close_unlisted(session);
            cx.options = options;
            return cx.refuse(status, &extra, why);
        }
        if self.waits.contains(&true) {
            cx.ex.close_until_decided(session);
            let suspended = Suspended::until_decided(move |cx, _, decided| self.resume(cx, decided));
            return RequestOutcome::Suspended(suspended.ending_with_input());
        }
        *cx.session = Some(session);
        let settings = cx.ex.options().sse;
        let events = Events {
            chunked,
            is_browser: is_browser(request),
            state: ResponseState::new(options.keep_alive),
            feeds_left: self.feeds.len(),
            seen: if has_shared_ids { Box::default() } else { self.feeds.into() },
            retry_lost: settings.retry_lost,
        };
        cx.out.append(&mut head);
        // Session ids aren't reused soon, so each stream gets a different delay.
        let retry = jitter(settings.retry, session.to_bits());
        events.write(cx.out, |out| sse::write_retry(out, retry));
        cx.ex.push(Effect::Connection(cx.conn, ToConnection::Flush));
        RequestOutcome::Waiting(Box::new(events))
    }
}

/// Writes the headers of a stream. Returns `true` if its events are chunks.
fn write_events_head(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    options: &mut ResponseOptions,
    extra: &[(&str, &str)],
) -> bool {
    // These headers keep proxies from buffering events: express and webpack-dev-server buffer data to compress it, and nginx
    // buffers data before it forwards them.
    let own = [("Cache-Control", "no-store, no-transform"), ("X-Accel-Buffering", "no")];
    let headers = [&own, extra].concat();
    write_stream_head(out, request, options, 200, sse::CONTENT_TYPE, &headers)
}

/// Answers with a stream that only sets the reconnect delay, and ends.
fn send_back(cx: &mut RequestContext<'_>, extra: &[(&str, &str)]) -> RequestOutcome {
    let mut options = ResponseOptions::last(cx.ex);
    let chunked = write_events_head(cx.out, cx.request, &mut options, extra);
    let mut retry = Vec::with_capacity(32);
    sse::write_retry(&mut retry, cx.ex.return_delay(cx.conn.index() as u64));
    write_piece(cx.out, chunked, &retry);
    if chunked {
        http1::write_last_chunk(cx.out);
    }
    RequestOutcome::LAST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnect_delays_are_evenly_distributed() {
        let mut delays: Vec<u64> =
            (0..10_000).map(|n| jitter(Duration::from_secs(3), n << 32 | n).as_millis() as u64).collect();
        delays.sort_unstable();
        assert!(delays[0] >= 1500 && delays[9_999] < 4500, "{delays:?}");
        // Each tenth of the range contains about a tenth of the delays.
        for tenth in 0..10 {
            let from = 1500 + 300 * tenth;
            let count = delays.iter().filter(|ms| (from..from + 300).contains(*ms)).count();
            assert!((850..1150).contains(&count), "{count} from {from} ms");
        }
    }
}
