//! From a body as received to a document, or to the finding that it is the same as before.
//!
//! The work (inflating, checking, comparing) is done on tokio's blocking pool, as many at once as there are
//! processors, so that memory for inflated bodies is bounded by that number, not by the fetches in flight.

use super::answer::is_json;
use super::failure::Failure;
use crate::json::{self, Fingerprints};
use crate::schedule::{Validators, Version};
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use std::io::Read;
use std::sync::Arc;
use stentor_hub::Document;
use tokio::sync::Semaphore;

/// A plain body up to this size is dealt with on the spot: it costs less than handing it over.
const INLINE_BYTES_MAX: usize = 8 << 10;

/// A whole body, and what its head said about it.
pub(super) struct Received {
    pub(super) body: Vec<u8>,
    pub(super) gzipped: bool,
    pub(super) content_type: Option<String>,
    /// Whether it must be JSON, whatever it calls itself.
    pub(super) json_only: bool,
    /// Bytes of the document, at the most.
    pub(super) bytes_max: usize,
    pub(super) validators: Validators,
    pub(super) kept: Option<Arc<Version>>,
}

/// Digests bodies. Fingerprints of one digester are comparable.
#[derive(Clone)]
pub(crate) struct Digester {
    prints: Arc<Fingerprints>,
    permits: Arc<Semaphore>,
}

impl Default for Digester {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { prints: Arc::default(), permits: Arc::new(Semaphore::new(processors)) }
    }
}

impl Digester {
    /// The document in `received`; `None` if it has the same value as the kept one.
    pub(super) async fn digest(&self, received: Received) -> Result<Option<Version>, Failure> {
        if !received.gzipped && received.body.len() <= INLINE_BYTES_MAX {
            return digest(received, &self.prints);
        }
        let Ok(_permit) = self.permits.acquire().await else {
            return Err(Failure::Internal("the digester is closed"));
        };
        let prints = self.prints.clone();
        let work = tokio::task::spawn_blocking(move || digest(received, &prints));
        work.await.unwrap_or(Err(Failure::Internal("a document's digestion panicked")))
    }
}

fn digest(received: Received, prints: &Fingerprints) -> Result<Option<Version>, Failure> {
    let Received { body, gzipped, content_type, json_only, bytes_max, validators, kept } = received;
    let body = if gzipped { inflate(&body, bytes_max)? } else { body };
    let kept = kept.as_deref().map(|kept| (&kept.document, kept.fingerprint));
    let says_json = content_type.as_deref().is_some_and(is_json);
    if !json_only && !says_json {
        let content_type = content_type.as_deref().unwrap_or("application/octet-stream");
        if kept
            .is_some_and(|(kept, _)| !kept.json && kept.body == body && *kept.content_type == *content_type)
        {
            return Ok(None);
        }
        let document = Document { body: Bytes::from(body), json: false, content_type: content_type.into() };
        return Ok(Some(Version { document, validators, fingerprint: None }));
    }
    // The kept text is minified and was checked, so a body that equals it needs no look at all.
    let is_kept = |body: &[u8]| kept.is_some_and(|(kept, _)| kept.json && kept.body == body);
    if is_kept(&body) {
        return Ok(None);
    }
    let mut body = json::minify(body)?;
    if is_kept(&body) {
        return Ok(None);
    }
    let fingerprint = Some(prints.of(&body));
    if kept.is_some_and(|(kept, print)| kept.json && print == fingerprint) {
        return Ok(None);
    }
    body.shrink_to_fit();
    let content_type = content_type.filter(|_| says_json);
    let content_type = content_type.as_deref().unwrap_or("application/json").into();
    let document = Document { body: Bytes::from(body), json: true, content_type };
    Ok(Some(Version { document, validators, fingerprint }))
}

/// Inflates, but no further than `bytes_max` (a gzip bomb has 1000 times its length in it).
fn inflate(gzipped: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(gzipped).take(limit).read_to_end(&mut body).map_err(Failure::Gzip)?;
    if body.len() > bytes_max {
        return Err(Failure::TooLarge(bytes_max));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn received(body: &[u8], kept: Option<Version>) -> Received {
        Received {
            body: body.to_vec(),
            gzipped: false,
            content_type: Some("application/json".into()),
            json_only: true,
            bytes_max: 1000,
            validators: Validators::default(),
            kept: kept.map(Arc::new),
        }
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn only_another_value_is_another_version() {
        let prints = Fingerprints::default();
        let first = digest(received(b"{ \"a\": 1, \"b\": [ 2 ] }\n", None), &prints).unwrap().unwrap();
        assert_eq!(&first.document.body[..], b"{\"a\":1,\"b\":[2]}");
        assert!(first.document.json);
        let check = |body: &[u8], changed: bool| {
            let version = digest(received(body, Some(first.clone())), &prints).unwrap();
            assert_eq!(version.is_some(), changed, "{}", String::from_utf8_lossy(body));
        };
        check(b"{\"a\":1,\"b\":[2]}", false);
        check(b"{\n\"a\":1,\n\"b\":[2]}", false);
        check(b"{\"b\":[2.0],\"a\":1}", false);
        check(b"{\"a\":0,\"b\":[2],\"a\":1e0}", false);
        check(b"{\"a\":1,\"b\":[2,2]}", true);
        check(b"{\"a\":\"1\",\"b\":[2]}", true);
    }

    #[test]
    fn what_promises_json_must_be_json() {
        let prints = Fingerprints::default();
        let check =
            |content_type: Option<&str>, json_only, body: &[u8], expect: Result<(bool, &str), &str>| {
                let content_type = content_type.map(String::from);
                let version = digest(Received { content_type, json_only, ..received(body, None) }, &prints);
                let found = version.map(|version| version.unwrap().document);
                match (&found, expect) {
                    (Ok(document), Ok((json, content_type))) => {
                        assert_eq!((document.json, &*document.content_type), (json, content_type));
                    }
                    (Err(failure), Err(label)) => assert_eq!(failure.label(), label),
                    _ => panic!("{:?}, expected {expect:?}", found.is_ok()),
                }
            };
        check(Some("application/geo+json"), false, b"{}", Ok((true, "application/geo+json")));
        check(Some("text/html"), true, b"{}", Ok((true, "application/json")));
        check(None, true, b"{}", Ok((true, "application/json")));
        check(None, false, b"{}", Ok((false, "application/octet-stream")));
        check(Some("text/csv"), false, b"a;b \n", Ok((false, "text/csv")));
        check(Some("application/json"), false, b"<html>", Err("failed_corrupt"));
        check(Some("text/html"), true, b"<html>", Err("failed_corrupt"));
        check(Some("text/html"), true, b"", Err("failed_corrupt"));
        let deep = "[".repeat(900);
        check(Some("application/json"), true, deep.as_bytes(), Err("failed_corrupt"));
    }

    #[test]
    fn other_content_is_compared_by_bytes_and_type() {
        let prints = Fingerprints::default();
        let text = |content_type: &str, kept| Received {
            content_type: Some(content_type.into()),
            json_only: false,
            ..received(b"1", kept)
        };
        let first = digest(text("text/plain", None), &prints).unwrap().unwrap();
        assert!(digest(text("text/plain", Some(first.clone())), &prints).unwrap().is_none());
        assert!(digest(text("text/csv", Some(first.clone())), &prints).unwrap().is_some());
        assert!(digest(text("application/json", Some(first)), &prints).unwrap().is_some());
    }

    #[test]
    fn gzip_is_inflated_within_bounds() {
        let prints = Fingerprints::default();
        let check = |body: Vec<u8>, expect: Result<usize, &str>| {
            let version = digest(Received { gzipped: true, ..received(&body, None) }, &prints);
            let found = version.map(|version| version.unwrap().document.body.len());
            assert_eq!(found.as_ref().map_err(Failure::label), expect.as_ref().map_err(|label| *label));
        };
        let string = |len: usize| format!("\"{}\"", "x".repeat(len - 2));
        check(gzip(string(1000).as_bytes()), Ok(1000));
        check(gzip(string(1001).as_bytes()), Err("failed_too_large"));
        check(gzip(&vec![b' '; 50 << 20]), Err("failed_too_large"));
        check([gzip(b"[1,"), gzip(b"2]")].concat(), Ok(5));
        let whole = gzip(string(100).as_bytes());
        for end in 0..whole.len() {
            check(whole[..end].to_vec(), Err("failed_encoding"));
        }
        check(b"{\"not\":\"gzip\"}".to_vec(), Err("failed_encoding"));
        check([gzip(b"1"), b"trailing garbage".to_vec()].concat(), Err("failed_encoding"));
    }
}
