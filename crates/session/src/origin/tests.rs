//! Origins and their patterns.

use super::*;

#[test]
fn sources_of_frames() {
    fn check(patterns: &[&str], expect: Option<&str>) {
        assert_eq!(Origins::parse(patterns).unwrap().ancestors().as_deref(), expect, "{patterns:?}");
    }
    check(&[], Some("'self'"));
    check(&["https://a.test", "*"], None);
    check(
        &["HTTPS://A.test", "https://*.b.test:443", "http://c.test:3000", "http://[::1]"],
        Some("'self' https://a.test https://*.b.test http://c.test:3000"),
    );
}

#[test]
fn a_page_without_tls_is_not_the_own_page_of_a_server_with_it() {
    let none = Origins::parse(&[] as &[&str]).unwrap();
    for (origin, is_secure, expect) in [
        ("https://a.test", true, true),
        ("http://a.test", true, false),
        ("HTTP://a.test:80", true, false),
        ("http://a.test", false, true),
        ("https://a.test", false, true),
    ] {
        assert_eq!(none.allow(Some(origin), "a.test", is_secure), expect, "{origin} {is_secure}");
    }
    let listed = Origins::parse(&["http://a.test"]).unwrap();
    assert!(listed.allow(Some("http://a.test"), "a.test", true));
    assert!(none.allow(None, "a.test", true));
}

#[test]
fn origins() {
    fn check(patterns: &[&str], origin: Option<&str>, host: &str, expect: bool) {
        let origins = Origins::parse(patterns).unwrap();
        assert_eq!(origins.allow(origin, host, false), expect, "{patterns:?} {origin:?} {host}");
    }
    check(&[], None, "a.test", true);
    check(&[], Some("http://a.test"), "a.test", true);
    check(&[], Some("http://a.test:8000"), "a.test:8000", true);
    check(&[], Some("https://a.test"), "a.test", true);
    check(&[], Some("https://a.test:443"), "a.test", true);
    check(&[], Some("http://a.test:8000"), "a.test:8001", false);
    check(&[], Some("http://[::1]:8000"), "[::1]:8000", true);
    check(&[], Some("http://evil.test"), "a.test", false);
    check(&[], Some("null"), "a.test", false);
    check(&["*"], Some("null"), "a.test", true);
    check(&["*"], Some("http://evil.test"), "a.test", true);
    let list = &["https://example.com", "https://*.example.com", "http://local.test:3000"];
    check(list, Some("https://example.com"), "a.test", true);
    check(list, Some("HTTPS://EXAMPLE.com:443"), "a.test", true);
    check(list, Some("https://www.example.com"), "a.test", true);
    check(list, Some("https://a.b.example.com"), "a.test", true);
    check(list, Some("https://evilexample.com"), "a.test", false);
    check(list, Some("https://.example.com"), "a.test", false);
    check(list, Some("https://example.com.evil.test"), "a.test", false);
    check(list, Some("http://example.com"), "a.test", false);
    check(list, Some("https://example.com:444"), "a.test", false);
    check(list, Some("http://local.test:3000"), "a.test", true);
    check(list, Some("http://local.test"), "a.test", false);
    // WS-2020-0443: a character that isn't valid in a host name must not end it.
    check(list, Some("https://example.com`.evil.test"), "a.test", false);
    check(list, Some("https://evil.test$.example.com"), "a.test", false);
    check(list, Some("https://user@example.com"), "a.test", false);
    check(list, Some("https://example.com/"), "a.test", false);
    // Origins without a host: each is allowed only by a pattern of exactly this form.
    for origin in ["null", "file://", "app://", "app://.", "capacitor://localhost"] {
        check(list, Some(origin), "a.test", false);
        check(&[], Some(origin), "", false);
        for other in ["null", "file://", "app://", "app://.", "capacitor://localhost"] {
            check(&[other], Some(origin), "a.test", other == origin);
        }
        assert_eq!(Origins::parse(&[origin]).unwrap().patterns[0].to_string(), origin);
    }
}

#[test]
fn answers() {
    fn check(patterns: &[&str], origin: Option<&str>, expect: Option<&str>) {
        assert_eq!(Origins::parse(patterns).unwrap().answer(origin), expect, "{patterns:?} {origin:?}");
    }
    check(&[], None, None);
    check(&["https://a.test"], Some("https://a.test"), Some("https://a.test"));
    check(&["*"], None, Some("*"));
    check(&["*"], Some("https://a.test"), Some("*"));
    check(&["*"], Some("null"), Some("*"));
    check(&["*", "https://a.test"], Some("https://a.test"), Some("https://a.test"));
    check(&["*", "https://a.test"], Some("https://b.test"), Some("*"));
}

#[test]
fn invalid_patterns_are_refused() {
    for bad in [
        "",
        "example.com",
        "https://",
        "https://*",
        "https://a.*.com",
        "*.example.com",
        "https://a:b",
        "null://",
        "app://*.",
        "file://:1",
        "Null",
    ] {
        assert!(Origins::parse(&[bad]).is_err(), "{bad:?}");
    }
}
