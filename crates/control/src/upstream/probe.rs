//! Fetches a key once outside the schedule and describes the fetch, for `stentor check --fetch` and `stentor
//! fetch`.

use super::fetch::{Fetched, Trace};
use super::{Bodies, DocumentProcessor, Rotating, Upstreams};
use crate::error::Error;
use crate::options::FeedsOptions;
use crate::route::Routes;
use crate::schedule::{FetchJob, Freshness, Outcome};
use hyper::header::HOST;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Key, KeyError};
use stentor_ports::Ledger;
use tokio::time::Instant;

/// Request headers whose values are shown. The fetcher sets them, so they contain no secrets.
const SHOWN_HEADERS: [&str; 5] = ["accept", "accept-encoding", "content-type", "host", "user-agent"];

/// A fetch of a key, described for the operator.
pub struct Probe {
    /// Lines about the request, the response and the next fetch, without secrets.
    pub text: String,
    /// `true` if the fetch returned a document.
    pub has_document: bool,
    /// The status of the response. `None` without a response.
    pub status: Option<u16>,
    /// The URL and the result in one line, without secrets.
    pub summary: String,
}

/// Reason why a key isn't fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error(transparent)]
    InvalidKey(KeyError),
    #[error("no feed with a URL is configured for {0}")]
    NoFeed(Key),
}

/// Fetches single keys outside the schedule.
pub(crate) struct Prober {
    options: FeedsOptions,
    upstreams: Upstreams,
    routes: Routes,
    bodies: Arc<Bodies>,
}

impl Prober {
    pub(crate) fn new(options: FeedsOptions, upstreams: Upstreams, bodies: Arc<Bodies>) -> Self {
        Self { routes: Routes::new(&options.upstreams), options, upstreams, bodies }
    }

    /// Returns a prober with new options.
    pub(crate) fn configured(&self, options: FeedsOptions, upstreams: Upstreams) -> Self {
        Self::new(options, upstreams, self.bodies.clone())
    }

    /// Parses a key. Refuses a key that no upstream serves.
    pub(crate) fn key(&self, text: &str) -> Result<Key, ProbeError> {
        let key = self.options.key_rule().parse(text).map_err(ProbeError::InvalidKey)?;
        if self.routes.find(&key).is_some() { Ok(key) } else { Err(ProbeError::NoFeed(key)) }
    }

    /// Returns the URL of a key, with `***` in place of secrets. `None` if no upstream serves the key.
    pub(crate) fn shown_url(&self, key: &Key) -> Option<String> {
        let index = self.routes.find(key)?;
        Some(self.upstreams.at(index).current().shown_url(key))
    }

    /// Fetches a key once. Returns `None` if no upstream serves the key.
    pub(crate) async fn probe(&self, key: &Key) -> Option<Probe> {
        let Self { options, upstreams, routes, bodies } = self;
        let index = routes.find(key)?;
        Some(probe_upstream(options, index, upstreams.at(index), key, bodies).await)
    }
}

/// Fetches a key once, as a server with these options would.
///
/// # Errors
/// The options are invalid, or no upstream serves the key.
pub async fn probe(options: &FeedsOptions, key: &str) -> Result<Probe, Error> {
    let bodies = Bodies::new(options.fetches_bytes_max, Arc::new(Ledger::new(usize::MAX)));
    let prober = Prober::new(options.clone(), Upstreams::new(options)?, bodies);
    let wrong = |error: ProbeError| Error::setting("KEY", error.to_string());
    let key = prober.key(key).map_err(wrong)?;
    prober.probe(&key).await.ok_or_else(|| wrong(ProbeError::NoFeed(key)))
}

async fn probe_upstream(
    options: &FeedsOptions,
    index: usize,
    rotating: &Rotating,
    key: &Key,
    bodies: &Arc<Bodies>,
) -> Probe {
    let key = key.clone();
    let upstream = rotating.current();
    let job = FetchJob { key, upstream: index, kept: None };
    let mut text = format!("feed: {}\n", upstream.name);
    let url_text = upstream.shown_url(&job.key);
    // Writing to a string can't fail.
    if let Some(url) = upstream.url(&job.key) {
        _ = writeln!(text, "URL: {}", upstream.shown_url(&job.key));
        if let Some(body) = upstream.filled_body(&job.key) {
            _ = writeln!(
                text,
                "method: POST\nrequest body: {}",
                upstream.shown(&String::from_utf8_lossy(&body))
            );
        }
        _ = writeln!(text, "request headers:");
        for (name, value) in upstream.request(&job, &url).headers() {
            let is_secret = value.is_sensitive() || *name == HOST && upstream.route.url.has_secret_origin();
            let is_shown = SHOWN_HEADERS.contains(&name.as_str()) && !is_secret;
            let value = if is_shown { String::from_utf8_lossy(value.as_bytes()) } else { "***".into() };
            _ = writeln!(text, "  {name}: {value}");
        }
    }
    let mut trace = Trace { keeps_response: true, ..Trace::default() };
    let begun = Instant::now();
    let fetched = rotating.fetch_traced(&job, &DocumentProcessor::default(), bodies, &mut trace).await;
    let took = Duration::from_millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
    // The upstream after the fetch, because a secret may have been renewed after a 401.
    let upstream = rotating.current();
    let masks = &upstream.route.masks;
    for (status, target) in &trace.followed {
        _ = writeln!(text, "redirect: {status} to {}", upstream.shown(&target.to_string()));
    }
    let mut status_code = None;
    if let Some((status, headers)) = trace.response {
        status_code = Some(status.as_u16());
        _ = writeln!(text, "status: {status}\nresponse headers:");
        for (name, value) in &headers {
            // Cookies aren't shown, because they may be credentials.
            let value = match name.as_str() {
                "set-cookie" => "***".into(),
                _ => upstream.shown(&String::from_utf8_lossy(value.as_bytes())),
            };
            _ = writeln!(text, "  {name}: {value}");
        }
    }
    _ = writeln!(text, "time: {took:?}");
    let result = masks.mask(&result(&fetched));
    _ = writeln!(text, "{result}");
    _ = writeln!(text, "next fetch: {}", next(options, index, &fetched.outcome));
    let has_document = matches!(fetched.outcome, Outcome::Fresh { .. });
    Probe { text, has_document, status: status_code, summary: format!("{url_text}: {result}") }
}

fn result(fetched: &Fetched) -> String {
    let failure = fetched.failure.as_ref().map(ToString::to_string).unwrap_or_default();
    match &fetched.outcome {
        Outcome::Fresh { change, .. } => {
            let (received, document) = (fetched.traffic.received_bytes, &change.document);
            format!(
                "document: {}, {} bytes, of {received} received",
                document.content_type,
                document.body.len()
            )
        }
        Outcome::Same { .. } => "document: unchanged".into(),
        Outcome::Gone { reason } => format!("complete: {reason}"),
        Outcome::NotFound { reason } if failure.is_empty() => format!("not found: {reason}"),
        Outcome::NotFound { .. } => format!("not found: {failure}"),
        Outcome::Failed { class, .. } => format!("failure: {}: {failure}", class.name()),
    }
}

/// Describes the time of the next fetch, and its reason.
fn next(options: &FeedsOptions, upstream: usize, outcome: &Outcome) -> String {
    let freshness = match outcome {
        Outcome::Fresh { freshness, .. } | Outcome::Same { freshness, .. } => freshness,
        Outcome::Gone { .. } => return "never, because of 410".into(),
        Outcome::NotFound { .. } => return next_of_missing(options, upstream),
        Outcome::Failed { retry_after: Some(time), pause, .. } => {
            let bounded = options.bounded_retry_after(*time, *pause);
            let what = if *pause { "all keys of this feed" } else { "this key" };
            return match (bounded < *time, *pause) {
                (false, _) => format!("after {time:?} (Retry-After, for {what})"),
                (true, true) => {
                    format!("after {bounded:?} (retry_after_max; Retry-After says {time:?}, for {what})")
                }
                (true, false) => format!(
                    "after {bounded:?} (the maximum for this status; Retry-After says {time:?}, for {what})"
                ),
            };
        }
        Outcome::Failed { .. } => {
            let FeedsOptions { backoff_initial, backoff_max, .. } = options;
            return format!(
                "after at most {backoff_initial:?} (backoff_initial), doubled by each further failure up to {backoff_max:?} (backoff_max)"
            );
        }
    };
    match freshness {
        Freshness::Unsaid => format!("after {:?} (poll_interval)", options.upstreams[upstream].poll_interval),
        Freshness::Over => "never, because of max-age=0 (complete_on)".into(),
        Freshness::For(age) => match options.bounded_max_age(upstream, *age) {
            time if time < *age => format!("after {time:?} (max_age_max; Cache-Control says {age:?})"),
            time if time > *age => format!("after {time:?} (max_age_min; Cache-Control says {age:?})"),
            time => format!("after {time:?} (Cache-Control)"),
        },
    }
}

/// Describes the time of the next fetch after a 404. It depends on whether the key had a document before.
fn next_of_missing(options: &FeedsOptions, upstream: usize) -> String {
    let FeedsOptions { not_found_after, not_found_retry_interval: retry, .. } = options;
    let without = format!("after {retry:?}, if a client asks for the key (not_found_retry_interval)");
    if not_found_after.is_zero() {
        return without;
    }
    let interval = options.upstreams[upstream].poll_interval;
    format!(
        "{without}; if it has a document: after {interval:?} (poll_interval), and the document stays until it was missing for \
         {not_found_after:?} (not_found_after)"
    )
}
