//! `PUT /api/v1/feeds/KEY` and `DELETE /api/v1/feeds/KEY`: a backend pushes documents into a feed.
//!
//! The body is the document, optionally compressed with gzip or Brotli. A document with a JSON `Content-Type`
//! must be JSON. The response is `{"changed":true}`, or `false` if the document has the same value as the
//! last one. `DELETE` ends the feed: its subscribers receive `not_found`. With `?sequence=N`, both are
//! refused if a request with a higher number arrived before. docs/feeds.md, "Pushing", describes the
//! operations for users.

use super::body::{discard, read_whole};
use super::{Refusal, State, json, reason};
use crate::percent;
use crate::pushed_documents::{Push, PushError};
use crate::schedule::FailureClass;
use crate::upstream::{Failure, coding};
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use serde::Serialize;
use std::sync::Arc;
use stentor_hub::{Key, KeyError};

/// The path of the operations up to the key.
const FEEDS: &str = "/api/v1/feeds/";

#[derive(Serialize)]
struct Answer {
    changed: bool,
}

/// Handles `PUT` and `DELETE`.
pub(super) async fn push(
    Shared(state): Shared<Arc<State>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    mut body: Body,
) -> Response<Body> {
    let done = match method {
        Method::DELETE => delete(&state, &uri).await,
        _ => put(&state, &uri, &headers, &mut body).await,
    };
    match done {
        Ok(changed) => json(StatusCode::OK, &Answer { changed }),
        Err(refusal) => {
            refusal.count(&state.metrics.push_refusals, reason::push_refusals());
            discard(body, &refusal).await;
            refusal.into_response()
        }
    }
}

async fn put(state: &State, uri: &Uri, headers: &HeaderMap, body: &mut Body) -> Result<bool, Refusal> {
    let key = key(uri, |text| state.pushed_documents.parse_key(text))?;
    let sequence = sequence(uri)?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let Some(content_type) = content_type.filter(|value| (1..=CONTENT_TYPE_BYTES_MAX).contains(&value.len()))
    else {
        let message = "a Content-Type is required";
        return Err(Refusal::new(reason::NO_CONTENT_TYPE, message));
    };
    let coding = coding(headers).map_err(|found| {
        let message = format!("Content-Encoding {found:?} is not supported; use gzip, br or none");
        Refusal::new(reason::CONTENT_ENCODING, message)
    })?;
    let bytes_max = state.pushed_documents.document_bytes_max();
    // Without a declared length, reserves space for the largest document. The HTTP library enforces a
    // declared length.
    let length = hyper::body::Body::size_hint(body).exact().and_then(|length| usize::try_from(length).ok());
    let length = length.unwrap_or(bytes_max);
    let room = state.pushed_documents.room_for(length.min(bytes_max)).await.map_err(refusal)?;
    let (body, _charge) = read_whole(state, body, bytes_max, too_long).await?.into_parts();
    let push = Push { content_type: content_type.to_owned(), coding, body, room, sequence };
    let changed = state.pushed_documents.put(&key, push).await.map_err(refusal)?;
    if changed {
        state.metrics.pushes.inc();
    }
    Ok(changed)
}

async fn delete(state: &State, uri: &Uri) -> Result<bool, Refusal> {
    let key = key(uri, |text| state.pushed_documents.parse_key(text))?;
    state.pushed_documents.delete(&key, sequence(uri)?).await.map_err(refusal)?;
    Ok(true)
}

fn too_long(bytes_max: usize) -> Refusal {
    let message =
        format!("the document has more than {bytes_max} bytes (feeds_limits.pushed_document_bytes_max)");
    Refusal::new(reason::DOCUMENT_TOO_LONG, message)
}

/// Returns the number in `?sequence=N`. `None` without a query.
fn sequence(uri: &Uri) -> Result<Option<u64>, Refusal> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(None) };
    let number = query.strip_prefix("sequence=").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    match number.and_then(|digits| digits.parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => {
            let message = format!("the only query parameter is sequence=N, with N from 0 to {}", u64::MAX);
            Err(Refusal::new(reason::QUERY, message))
        }
    }
}

/// Maximum length of a media type in bytes.
const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// Returns the key in a path, percent-decoded once. Refuses an encoded slash or backslash.
fn key(uri: &Uri, parse: impl Fn(&str) -> Result<Key, KeyError>) -> Result<Key, Refusal> {
    let bad = |message: String| Refusal::new(reason::KEY, message);
    let text = uri.path().strip_prefix(FEEDS).unwrap_or_default();
    let is_sound = |_: &String| !["%2F", "%2f", "%5C", "%5c"].iter().any(|slash| text.contains(slash));
    let decoded = percent::decoded(text).filter(is_sound);
    let decoded = decoded.ok_or_else(|| bad("the key has an invalid percent escape".into()))?;
    parse(&decoded).map_err(|error| bad(error.to_string()))
}

fn refusal(error: PushError) -> Refusal {
    let reason = match &error {
        PushError::Fetched(_) => reason::FETCHED,
        PushError::TooManyKeys => reason::TOO_MANY_KEYS,
        PushError::NoRoom => reason::NO_SPACE,
        PushError::Document(failure) if failure.class() == FailureClass::Internal => reason::INTERNAL,
        PushError::Document(Failure::TooLarge(bytes_max)) => return too_long(*bytes_max),
        PushError::Document(_) => reason::DOCUMENT,
        PushError::Sequence { .. } => reason::SEQUENCE,
        PushError::Busy => reason::BUSY,
        PushError::Unknown => reason::NOT_FOUND,
        PushError::Unavailable | PushError::OutcomeUnknown => reason::UNAVAILABLE,
        PushError::Stopped => reason::STOPPED,
    };
    Refusal::new(reason, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::KeyCharset;

    #[test]
    fn sequences() {
        fn check(query: &str, expect: Result<Option<u64>, ()>) {
            let uri: Uri = format!("{}k{query}", FEEDS).parse().unwrap();
            assert_eq!(sequence(&uri).map_err(|_| ()), expect, "{query}");
        }
        check("", Ok(None));
        check("?", Ok(None));
        check("?sequence=0", Ok(Some(0)));
        check("?sequence=18446744073709551615", Ok(Some(u64::MAX)));
        for wrong in ["18446744073709551616", "", "-1", "+1", "1&x=2", "one"] {
            check(&format!("?sequence={wrong}"), Err(()));
        }
        check("?sequense=1", Err(()));
    }

    #[test]
    fn keys_are_decoded_once() {
        fn check(path: &str, ascii: Option<&str>, utf8: Option<&str>) {
            let uri: Uri = format!("{}{path}", FEEDS).parse().unwrap();
            for (charset, expect) in [(KeyCharset::Ascii, ascii), (KeyCharset::Utf8, utf8)] {
                let found = key(&uri, |text| Key::parse_as(text, charset));
                assert_eq!(found.ok().as_ref().map(Key::as_str), expect, "{path}");
            }
        }
        let both = |path: &str, expect| check(path, expect, expect);
        both("scores/8", Some("scores/8"));
        both("a%2Db?sequence=1", Some("a-b"));
        for wrong in
            ["a%2Fb", "a%5Cb", "a%5cb", "a%252Db", "a%", "a%2", "a%ff", "a%+1", "%2e%2e/b", "", "a//b"]
        {
            both(wrong, None);
        }
        check("a%c3%a9", None, Some("a\u{e9}"));
        check("50%25", None, Some("50%"));
        check("%2E%2E%3Bx/a", None, None);
        check("a%3Fb%20c%23d", None, Some("a?b c#d"));
    }
}
