//! Tests of the rules of RFC 6265, in tables.

use super::*;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_500_000_000)
}

fn set(jar: &CookieJar, cookie: &str, path: &str) {
    let mut headers = HeaderMap::new();
    headers.insert(SET_COOKIE, HeaderValue::from_str(cookie).unwrap());
    jar.store(&headers, path, now());
}

fn sent_at(jar: &CookieJar, path: &str, now: SystemTime) -> String {
    jar.header(path, now).map(|header| header.to_str().unwrap().to_owned()).unwrap_or_default()
}

fn sent(jar: &CookieJar, path: &str) -> String {
    sent_at(jar, path, now())
}

#[test]
fn a_cookie_is_sent_where_it_belongs() {
    fn check(cookie: &str, path: &str, expect: &str) {
        let jar = CookieJar::new("API.example.com", false);
        set(&jar, cookie, "/v1/k");
        assert_eq!(sent(&jar, path), expect, "{cookie:?} to {path}");
    }
    check("a=b", "/v1/k", "a=b");
    check(" a = b ;HttpOnly", "/v1/k", "a=b");
    check("a=\"b c\"", "/v1/k", "a=\"b c\"");
    check("a=b=c", "/v1/k", "a=b=c");
    check("a=", "/v1/k", "a=");
    for ignored in ["a", "=b", "", ";a=b"] {
        check(ignored, "/v1/k", "");
    }
    // Paths.
    check("a=b", "/v1/other", "a=b");
    check("a=b", "/v1", "a=b");
    check("a=b", "/v11", "");
    check("a=b", "/", "");
    check("a=b; Path=/", "/", "a=b");
    check("a=b; path=/v1/k", "/v1/k/x", "a=b");
    check("a=b; path=/v1/k", "/v1/kx", "");
    check("a=b; path=/v1/", "/v1/k", "a=b");
    check("a=b; path=/v1/", "/v1", "");
    check("a=b; path=/other", "/v1/k", "");
    check("a=b; path=x", "/v1/k", "a=b");
    check("a=b; path", "/v1/k", "a=b");
    // Domains.
    check("a=b; Domain=api.example.com", "/v1/k", "a=b");
    check("a=b; Domain=.Example.com", "/v1/k", "a=b");
    check("a=b; Domain=", "/v1/k", "a=b");
    for domain in ["other.example.com", "x.api.example.com", "pi.example.com", "evil.test"] {
        check(&format!("a=b; Domain={domain}"), "/v1/k", "");
    }
    check("a=b; Secure", "/v1/k", "");
    // Lifetimes.
    check("a=b; Max-Age=1", "/v1/k", "a=b");
    check("a=b; Max-Age=99999999999999999999", "/v1/k", "a=b");
    check("a=b; Max-Age=0", "/v1/k", "");
    check("a=b; Max-Age=-1", "/v1/k", "");
    check("a=b; Max-Age=x", "/v1/k", "a=b");
    check("a=b; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "/v1/k", "");
    check("a=b; Expires=never", "/v1/k", "a=b");
    check("a=b; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=5", "/v1/k", "a=b");
    check("a=b; Max-Age=0; Expires=Fri, 01 Jan 2100 00:00:00 GMT", "/v1/k", "");
}

#[test]
fn a_secure_cookie_goes_over_tls_and_an_address_has_no_domain() {
    let jar = CookieJar::new("10.0.0.1", true);
    set(&jar, "a=b; Secure", "/");
    set(&jar, "c=d; Domain=0.0.1", "/");
    set(&jar, "e=f; Domain=10.0.0.1", "/");
    assert_eq!(sent(&jar, "/"), "a=b; e=f");
    assert!(jar.header("/", now()).unwrap().is_sensitive());
}

#[test]
fn cookies_are_replaced_ordered_and_expire() {
    let jar = CookieJar::new("h", false);
    for cookie in ["a=1; Path=/", "b=2; Path=/v1; Max-Age=10", "c=3; Path=/", "a=4; Path=/v1"] {
        set(&jar, cookie, "/v1/k");
    }
    assert_eq!(sent(&jar, "/v1/k"), "b=2; a=4; a=1; c=3");
    set(&jar, "a=5; Path=/", "/v1/k");
    assert_eq!(sent(&jar, "/v1/k"), "b=2; a=4; a=5; c=3");
    set(&jar, "c=; Path=/; Max-Age=0", "/v1/k");
    assert_eq!(sent_at(&jar, "/v1/k", now() + Duration::from_secs(9)), "b=2; a=4; a=5");
    assert_eq!(sent_at(&jar, "/v1/k", now() + Duration::from_secs(10)), "a=4; a=5");
}

#[test]
fn the_number_and_the_size_of_cookies_are_limited() {
    let jar = CookieJar::new("h", false);
    for n in 0..COOKIES_MAX {
        set(&jar, &format!("c{n}={n}; Path=/{n}"), "/");
    }
    // The first cookie is sent once more, so the second one is the least recently used and is removed.
    assert_eq!(sent(&jar, "/0"), "c0=0");
    set(&jar, "more=1; Path=/more", "/");
    let kept: Vec<_> =
        (0..COOKIES_MAX).map(|n| sent(&jar, &format!("/{n}"))).filter(|sent| sent.is_empty()).collect();
    assert_eq!((kept.len(), sent(&jar, "/0").as_str(), sent(&jar, "/1").as_str()), (1, "c0=0", ""));
    assert_eq!(sent(&jar, "/more"), "more=1");

    for (bytes, expect) in [(COOKIE_BYTES_MAX - 2, true), (COOKIE_BYTES_MAX - 1, false)] {
        let jar = CookieJar::new("h", false);
        set(&jar, &format!("a={}", "x".repeat(bytes)), "/");
        assert_eq!(!sent(&jar, "/").is_empty(), expect, "{bytes}");
    }
}

#[test]
fn dates_are_read_in_each_form() {
    let expect = UNIX_EPOCH + Duration::from_secs(1_445_412_480);
    for text in [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 21-Oct-2015 07:28:00 GMT",
        "Wednesday, 21-Oct-15 07:28:00 GMT",
        "Wed Oct 21 07:28:00 2015",
        "21 october 2015 7:28:0",
    ] {
        assert_eq!(date(text), Some(expect), "{text}");
    }
    assert_eq!(date("Mon, 01 Jan 1601 00:00:00 GMT"), Some(UNIX_EPOCH));
    for text in [
        "",
        "21 Oct 2015",
        "07:28:00",
        "32 Oct 2015 07:28:00",
        "21 Oct 2015 25:00:00",
        "21 Oct 1600 07:28:00",
        "21 Oct 2015 a:b:ccc",
    ] {
        assert_eq!(date(text), None, "{text}");
    }
}

#[test]
fn values_of_cookies_are_masked() {
    let jar = CookieJar::new("h", false);
    set(&jar, "a=secret", "/");
    set(&jar, "b=secret-and-more", "/");
    set(&jar, "c=1", "/");
    assert_eq!(jar.mask("1 secret secret-and-more"), "1 *** ***");
}
