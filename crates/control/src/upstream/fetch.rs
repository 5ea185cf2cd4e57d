//! A single fetch: a conditional GET or a POST, limited in time and size.

use super::Upstream;
use super::answer;
use super::bodies::{Bodies, HeldBody};
use super::connections::Connection;
use super::document_processor::{DocumentProcessor, Received};
use super::explain::{self, READ_BYTES_MAX, Refused, is_explained, with_hint};
use super::failure::{Failure, chain};
use super::redirect::{REDIRECTS_MAX, path_and_query};
use crate::schedule::{FailureClass, FetchJob, Freshness, Outcome, Validators};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Method, Request, Response, StatusCode, Uri};
use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;
use stentor_hub::Key;
use tokio::time::{Instant, timeout_at};

/// The result of a fetch, for the scheduler, the operator and the metrics.
pub(crate) struct Fetched {
    pub(crate) outcome: Outcome,
    /// The label in metrics.
    pub(crate) label: &'static str,
    /// The failure for the operator, if the fetch failed or the key doesn't exist.
    pub(crate) failure: Option<Failure>,
    pub(crate) traffic: Traffic,
}

/// Counts of a fetch, also of one that has failed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traffic {
    /// Size of the body as received, in bytes.
    pub(crate) received_bytes: usize,
    /// Number of followed redirects, each with a further request.
    pub(crate) redirects: u32,
    /// Time that the fetch waited for memory.
    pub(crate) body_wait: Duration,
}

/// Details of a fetch, recorded also if the fetch fails.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) traffic: Traffic,
    /// `true` if `response` and `followed` must be recorded.
    pub(super) keeps_response: bool,
    /// The followed redirects in order: status and target.
    pub(super) followed: Vec<(StatusCode, Uri)>,
    pub(super) response: Option<(StatusCode, HeaderMap)>,
}

impl From<Failure> for Fetched {
    fn from(failure: Failure) -> Self {
        Self {
            outcome: Outcome::Failed {
                class: failure.class(),
                reason: failure.reason(),
                retry_after: failure.retry_after(),
                // A 429 pauses the upstream, because its limit applies to all requests (RFC 6585, section 4).
                pause: failure.class() == FailureClass::TooManyRequests,
            },
            label: failure.class().outcome(),
            failure: Some(failure),
            traffic: Traffic::default(),
        }
    }
}

impl Fetched {
    /// Returns `true` if the upstream refused the request's credentials.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(self.failure, Some(Failure::Status { status: 401, .. }))
    }
}

impl Upstream {
    /// Fetches the job's key. Takes at most the upstream's `timeout` plus the time to process the body.
    /// Records the response's headers if `trace` asks for them. The result contains no secrets, except in a
    /// document that repeats them.
    pub(super) async fn fetch_traced(
        &self,
        job: &FetchJob,
        processor: &DocumentProcessor,
        bodies: &Arc<Bodies>,
        trace: &mut Trace,
    ) -> Fetched {
        let fetched = self.try_fetch(job, processor, bodies, trace).await;
        let fetched = fetched.unwrap_or_else(|failure| failure.masked(&self.route.masks).into());
        Fetched { traffic: trace.traffic, ..fetched }
    }

    async fn try_fetch(
        &self,
        job: &FetchJob,
        processor: &DocumentProcessor,
        bodies: &Arc<Bodies>,
        trace: &mut Trace,
    ) -> Result<Fetched, Failure> {
        let deadline = Instant::now() + self.options.timeout;
        let Some(url) = self.url(&job.key) else {
            return found(
                "not_found",
                Outcome::NotFound { reason: "no URL can be built from this key".into() },
            );
        };
        let (url, mut connection, response) = self.follow(job, url, deadline, trace).await?;
        let (head, body) = response.into_parts();
        if trace.keeps_response {
            trace.response = Some((head.status, head.headers.clone()));
        }
        let kept = self.validators(job, &url).filter(|_| head.status == StatusCode::NOT_MODIFIED);
        let freshness = if self.options.ignore_cache_control {
            Freshness::Unsaid
        } else {
            let kept = kept.and_then(|kept| kept.lifetime);
            answer::freshness(&head.headers, kept, self.options.complete_on_max_age_zero)
        };
        if !matches!(head.status, StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION) {
            let refused = if is_explained(head.status) {
                let body = self.read_beginning(&mut connection, body, deadline).await;
                let coding = answer::coding(&head.headers).ok();
                let masked = |text: &str| self.route.masks.mask_cut(&self.without_cookies(text));
                Some(Refused::new(self.shown_target(&job.key, &url), coding, &body, masked))
            } else {
                drop(body);
                None
            };
            self.connections.give_back(connection).await;
            return without_document(
                &url,
                &head,
                kept,
                freshness,
                refused,
                self.redirects.is_some() && self.may_follow(head.status),
            );
        }
        let coding = answer::coding(&head.headers).map_err(Failure::Encoding)?;
        let held = bodies.begin();
        let body = self.read(&mut connection, body, deadline, trace, &held).await?;
        self.connections.give_back(connection).await;
        let received = Received {
            body,
            coding,
            content_type: answer::content_type(&head.headers).map(String::from),
            json_only: self.accepts_json_only(),
            bytes_max: self.options.document_bytes_max,
            kept: job.kept.as_ref().map(|kept| kept.document.clone()),
            differ: self.differ.clone(),
        };
        let validators = Validators { target: self.target(&url), ..answer::validators(&head.headers) };
        match processor.process(received).await? {
            Some(change) => found("changed", Outcome::Fresh { change, validators, freshness }),
            None => found("unchanged", Outcome::Same { validators: Some(validators), freshness }),
        }
    }

    /// Sends the request for a key to `url` and, if the upstream allows it, to the targets of redirects. Also
    /// returns the URL of the response.
    async fn follow(
        &self,
        job: &FetchJob,
        mut url: Uri,
        deadline: Instant,
        trace: &mut Trace,
    ) -> Result<(Uri, Connection, Response<Incoming>), Failure> {
        loop {
            let (connection, response) = self.send_request(job, &url, deadline).await?;
            let scope = self.redirects.as_ref().filter(|_| self.may_follow(response.status()));
            let target = scope.and_then(|scope| scope.target(&url, response.status(), response.headers()));
            let Some(target) = target else { return Ok((url, connection, response)) };
            if trace.traffic.redirects >= REDIRECTS_MAX {
                let target = format!("its own path; at most {REDIRECTS_MAX} redirects are followed");
                return Err(Failure::Redirect { status: response.status().as_u16(), target });
            }
            trace.traffic.redirects += 1;
            if trace.keeps_response {
                trace.followed.push((response.status(), target.clone()));
            }
            drop(response);
            self.connections.give_back(connection).await;
            url = target;
        }
    }

    /// Returns `true` if a redirect with this status repeats the request unchanged. Other statuses turn POST
    /// into GET (RFC 9110, section 15.4).
    fn may_follow(&self, status: StatusCode) -> bool {
        self.route.body.is_none() || matches!(status.as_u16(), 307 | 308)
    }

    /// Sends the request and waits for the response's headers.
    async fn send_request(
        &self,
        job: &FetchJob,
        url: &Uri,
        deadline: Instant,
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        let send = async |kept: Option<Connection>| {
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect(url, deadline).await?,
            };
            let response = self.within(deadline, connection.send(self.request(job, url))).await?;
            Ok::<_, Failure>(response.map(|response| (connection, response)))
        };
        let header_bytes_max = self.options.response_header_bytes_max;
        let to_failure = |error: hyper::Error| match error.is_parse_too_large() {
            true => Failure::HeadersTooLarge(header_bytes_max),
            false => Failure::Broken(with_hint(chain(&error))),
        };
        let (connection, response) = match send(self.connections.take().await).await? {
            // The server may close an idle connection at the moment when it is used again. An idempotent
            // request may then be repeated (RFC 9112, 9.3.1). POST requests are repeated too, because
            // docs/feeds.md requires that they are safe.
            Err(error) if is_stale_connection(&error) => send(None).await?.map_err(to_failure),
            answer => answer.map_err(to_failure),
        }?;
        if header_bytes(response.headers()) > header_bytes_max {
            return Err(Failure::HeadersTooLarge(header_bytes_max));
        }
        if let Some(cookies) = &self.cookies {
            cookies.store(response.headers(), url.path(), SystemTime::now());
        }
        Ok((connection, response))
    }

    /// Opens a connection within `connect_timeout`, and before the deadline.
    async fn connect(&self, url: &Uri, deadline: Instant) -> Result<Connection, Failure> {
        let connect_timeout = self.options.connect_timeout;
        let late = Instant::now() + connect_timeout;
        match timeout_at(late.min(deadline), self.connections.connect(url)).await {
            // An error at this time may be that of the connector's own timer, so it is reported as the
            // timeout.
            Ok(connected) if connected.is_ok() || Instant::now() < late => connected,
            _ if late <= deadline => {
                Err(Failure::Connect(format!("no connection after {connect_timeout:?} (connect_timeout)")))
            }
            _ => Err(Failure::Timeout(self.options.timeout)),
        }
    }

    /// Makes the request for a key.
    pub(super) fn request(&self, job: &FetchJob, url: &Uri) -> Request<Full<Bytes>> {
        let body = self.filled_body(&job.key);
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::new(Full::from(body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.headers_mut() = self.headers.clone();
        if let Some(auth) = self.connections.transport.http_proxy(url) {
            *request.uri_mut() = url.clone();
            request.headers_mut().extend(auth.map(|auth| (header::PROXY_AUTHORIZATION, auth.clone())));
        } else {
            *request.uri_mut() = url.path_and_query().cloned().map(Uri::from).unwrap_or_default();
        }
        let host = self.host.clone().or_else(|| host(url));
        request.headers_mut().extend(host.map(|host| (header::HOST, host)));
        let cookies = self.cookies.as_ref().and_then(|cookies| cookies.header(url.path(), SystemTime::now()));
        request.headers_mut().extend(cookies.map(|cookies| (header::COOKIE, cookies)));
        if let Some(validators) = self.validators(job, url) {
            for (name, value) in [
                (header::IF_NONE_MATCH, &validators.etag),
                (header::IF_MODIFIED_SINCE, &validators.last_modified),
            ] {
                let value = value.as_ref().and_then(|value| HeaderValue::from_bytes(value).ok());
                if let Some(value) = value {
                    request.headers_mut().insert(name, value);
                }
            }
        }
        request
    }

    /// Returns the body of the request for a key. `None` with GET.
    pub(super) fn filled_body(&self, key: &Key) -> Option<Vec<u8>> {
        let values = self.route.pattern.values(key).unwrap_or_default();
        self.route.body.as_ref().map(|body| body.fill(&values))
    }

    /// Returns the validators for a request to `url`. `None` for POST (RFC 9110, section 13.1.2), and if the
    /// kept validators belong to another URL, reached by a redirect.
    fn validators<'j>(&self, job: &'j FetchJob, url: &Uri) -> Option<&'j Validators> {
        let validators = &job.kept.as_ref()?.validators;
        (self.route.body.is_none() && validators.target == self.target(url)).then_some(validators)
    }

    /// Returns the path and query of the URL to which validators belong. `None` if redirects aren't followed.
    fn target(&self, url: &Uri) -> Option<Arc<str>> {
        self.redirects.as_ref().map(|_| path_and_query(url).into())
    }

    /// Reads the body, up to the limit of a document.
    async fn read(
        &self,
        connection: &mut Connection,
        mut body: Incoming,
        mut deadline: Instant,
        trace: &mut Trace,
        held: &HeldBody,
    ) -> Result<Vec<u8>, Failure> {
        let bytes_max = self.options.document_bytes_max;
        // A body with a too large declared length is refused at once. Received bytes are counted in any case.
        if body.size_hint().lower() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
            return Err(Failure::TooLarge(bytes_max));
        }
        // With a declared length, the buffer is allocated once instead of growing.
        let declared = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        // Time spent waiting for memory doesn't count towards the upstream's timeout.
        let waited = held.add(declared.unwrap_or_default()).await;
        trace.traffic.body_wait += waited;
        deadline += waited;
        let mut bytes = Vec::with_capacity(declared.unwrap_or_default());
        while let Some(frame) = self.within(deadline, connection.drive(body.frame())).await? {
            let frame = frame.map_err(|error| Failure::Broken(with_hint(chain(&error))))?;
            let Ok(data) = frame.into_data() else { continue };
            trace.traffic.received_bytes += data.len();
            if bytes.len() + data.len() > bytes_max {
                return Err(Failure::TooLarge(bytes_max));
            }
            let undeclared =
                (bytes.len() + data.len()).saturating_sub(bytes.len().max(declared.unwrap_or_default()));
            let waited = held.add(undeclared).await;
            trace.traffic.body_wait += waited;
            deadline += waited;
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }

    /// Reads the start of a body that isn't a document. Returns the bytes that arrive in time.
    async fn read_beginning(
        &self,
        connection: &mut Connection,
        mut body: Incoming,
        deadline: Instant,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < READ_BYTES_MAX
            && let Ok(Some(Ok(frame))) = self.within(deadline, connection.drive(body.frame())).await
        {
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&data[..data.len().min(READ_BYTES_MAX - bytes.len())]);
            }
        }
        bytes
    }

    /// Waits for `work`, for at most `read_timeout` and not beyond the deadline.
    async fn within<T>(&self, deadline: Instant, work: impl Future<Output = T>) -> Result<T, Failure> {
        let read_timeout = self.options.read_timeout();
        let silence = Instant::now() + read_timeout;
        timeout_at(silence.min(deadline), work).await.map_err(|_| {
            if silence < deadline {
                Failure::Silence(read_timeout)
            } else {
                Failure::Timeout(self.options.timeout)
            }
        })
    }
}

fn found(label: &'static str, outcome: Outcome) -> Result<Fetched, Failure> {
    Ok(Fetched { outcome, label, failure: None, traffic: Traffic::default() })
}

/// Returns the result of a response without a document.
fn without_document(
    url: &Uri,
    head: &Parts,
    kept: Option<&Validators>,
    freshness: Freshness,
    refused: Option<Refused>,
    follows_redirects: bool,
) -> Result<Fetched, Failure> {
    match (head.status, kept) {
        (StatusCode::NOT_MODIFIED, Some(kept)) => {
            let validators = answer::updated(kept, &head.headers);
            found("not_modified", Outcome::Same { validators, freshness })
        }
        (StatusCode::NOT_FOUND, _) => Ok(Fetched {
            outcome: Outcome::NotFound { reason: "the upstream has no such key (404)".into() },
            label: "not_found",
            failure: Some(Failure::Status { status: head.status.as_u16(), retry_after: None, refused }),
            traffic: Traffic::default(),
        }),
        (StatusCode::GONE, _) => {
            found("gone", Outcome::Gone { reason: "the upstream said that it has ended (410)".into() })
        }
        (status, _) if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
            let target = explain::redirect(&head.headers, url, follows_redirects);
            Err(Failure::Redirect { status: status.as_u16(), target })
        }
        (status, _) => {
            let retry_after = answer::retry_after(&head.headers);
            Err(Failure::Status { status: status.as_u16(), retry_after, refused })
        }
    }
}

/// Returns the size of the headers in bytes, including a colon, a space and a line end for each.
fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// Returns the value of `Host`: without the port if it is the scheme's default (RFC 9110, 7.2).
fn host(url: &Uri) -> Option<HeaderValue> {
    let authority = url.authority()?;
    let own_port = if url.scheme_str() == Some("https") { 443 } else { 80 };
    let has_own_port = authority.port_u16() == Some(own_port);
    HeaderValue::from_str(if has_own_port { authority.host() } else { authority.as_str() }).ok()
}

/// Returns `true` if the request failed because the server had closed the connection.
fn is_stale_connection(error: &hyper::Error) -> bool {
    let reset = || {
        let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        io.is_some_and(|io| {
            matches!(io.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
        })
    };
    error.is_incomplete_message() || error.is_canceled() || error.is_closed() || reset()
}

#[cfg(test)]
mod tests;
