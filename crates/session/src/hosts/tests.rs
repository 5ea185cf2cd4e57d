//! Host names.

use super::*;

#[test]
fn names_are_compared_whole() {
    fn check(hosts: &[&str], authority: &str, expect: bool) {
        assert_eq!(Hosts::parse(hosts).unwrap().allow(authority), expect, "{hosts:?} {authority}");
    }
    check(&[], "evil.test", true);
    check(&[], "", true);
    let hosts = &["Example.com", "b.test:8443", "[::1]", "192.0.2.1"];
    check(hosts, "example.COM", true);
    check(hosts, "example.com:8000", true);
    check(hosts, "www.example.com", false);
    check(hosts, "example.com.evil.test", false);
    check(hosts, "b.test:8443", true);
    check(hosts, "b.test", false);
    check(hosts, "b.test:443", false);
    check(hosts, "[::1]:8000", true);
    check(hosts, "192.0.2.1", true);
    check(hosts, "example.com:x", false);
    check(hosts, "", false);
}

#[test]
fn invalid_hosts_are_refused() {
    for text in ["", "http://a.test", "a.test/", "a b", ":80", "a:99999", "[zz]", "*"] {
        assert_eq!(Hosts::parse(&[text]), Err(HostError(text.into())), "{text}");
    }
}
