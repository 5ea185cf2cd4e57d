//! Tests in tables of response headers.

use super::*;

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn max_age_is_read() {
    fn check(fields: &[(&'static str, &str)], expect: Freshness) {
        let ending = freshness(&headers(fields), None, true);
        assert_eq!(ending, expect, "{fields:?}");
        // Without `complete_on_max_age_zero`, only the result `Over` differs.
        let expect = if expect == Freshness::Over { Freshness::Unsaid } else { expect };
        assert_eq!(freshness(&headers(fields), None, false), expect, "{fields:?}");
    }
    let hold = |seconds| Freshness::For(Duration::from_secs(seconds));
    check(&[], Freshness::Unsaid);
    check(&[("cache-control", "no-cache, no-store")], Freshness::Unsaid);
    check(&[("cache-control", "max-age=5")], hold(5));
    check(&[("cache-control", "public, Max-Age=\"5\" , x")], hold(5));
    check(&[("cache-control", "public"), ("cache-control", "max-age=7")], hold(7));
    check(&[("cache-control", "s-maxage=3")], hold(3));
    check(&[("cache-control", "max-age=9, s-maxage=3")], hold(3));
    check(&[("cache-control", "max-age=9, s-maxage=0")], Freshness::Unsaid);
    check(&[("cache-control", "max-age=0, s-maxage=3")], hold(3));
    check(&[("cache-control", "max-age=5, max-age=9")], hold(5));
    check(&[("cache-control", "no-cache, max-age=5")], Freshness::Unsaid);
    check(&[("cache-control", "max-age=5, No-Store")], Freshness::Unsaid);
    check(&[("cache-control", "no-cache=\"set-cookie, max-age=7\", max-age=5")], hold(5));
    check(&[("cache-control", "no-store, max-age=0")], Freshness::Over);
    check(&[("cache-control", "max-age=0")], Freshness::Over);
    check(&[("cache-control", "max-age=-1")], Freshness::Over);
    check(&[("cache-control", "max-age=-99999999999999999999")], Freshness::Over);
    check(&[("cache-control", "max-age=99999999999999999999")], hold(u32::MAX.into()));
    check(&[("cache-control", "max-age=soon")], Freshness::Unsaid);
    check(&[("cache-control", "max-age=")], Freshness::Unsaid);
    check(&[("cache-control", "max-age=10"), ("age", "7")], hold(3));
    check(&[("cache-control", "max-age=10"), ("age", "10")], Freshness::Unsaid);
    check(&[("cache-control", "max-age=60"), ("age", "1099341")], Freshness::Unsaid);
    check(&[("cache-control", "max-age=10"), ("age", "-5")], hold(10));
    check(&[("cache-control", "max-age=10"), ("age", "old")], hold(10));
}

#[test]
fn encodings_are_recognized() {
    fn check(value: &str, expect: Option<Coding>) {
        assert_eq!(coding(&headers(&[("content-encoding", value)])).ok(), expect, "{value}");
    }
    check("gzip", Some(Coding::Gzip));
    check("X-GZIP", Some(Coding::Gzip));
    check("br", Some(Coding::Brotli));
    check("identity, BR", Some(Coding::Brotli));
    check("identity", Some(Coding::Identity));
    check("", Some(Coding::Identity));
    check("gzip, gzip", None);
    check("gzip, br", None);
    check("deflate", None);
    check("zstd", None);
    assert_eq!(coding(&HeaderMap::new()), Ok(Coding::Identity));
    let twice = headers(&[("content-encoding", "br"), ("content-encoding", "gzip")]);
    assert_eq!(coding(&twice), Err("gzip".into()));
}

#[test]
fn media_types_are_compared() {
    for json in ["application/json", "Application/JSON; charset=utf-8", "text/json", "application/geo+json"] {
        assert!(is_json(json), "{json}");
    }
    for other in ["text/html", "application/jsonp", "application/xml; x=+json", ""] {
        assert!(!is_json(other), "{other}");
    }
}

#[test]
fn validators_and_retries_are_bounded() {
    let long = "x".repeat(VALIDATOR_BYTES_MAX + 1);
    assert_eq!(validators(&headers(&[("etag", &long)])), Validators::default());
    let both = validators(&headers(&[("etag", "\"1\""), ("last-modified", "yesterday")]));
    assert_eq!(both.etag.as_deref(), Some(&b"\"1\""[..]));
    assert_eq!(both.last_modified.as_deref(), Some(&b"yesterday"[..]));
    assert_eq!(retry_after(&headers(&[("retry-after", "7")])), Some(Duration::from_secs(7)));
    assert_eq!(retry_after(&headers(&[("retry-after", "-7")])), Some(Duration::ZERO));
    let past = headers(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]);
    assert_eq!(retry_after(&past), Some(Duration::ZERO));
    let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
    let soon = retry_after(&headers(&[("retry-after", &soon)])).unwrap().as_secs();
    assert!((90..=100).contains(&soon), "{soon}");
    assert_eq!(retry_after(&headers(&[("retry-after", "soon")])), None);
}
