//! Checks settings of an upstream that depend on each other, and settings with a syntax of their own.

use super::transport::server_name;
use crate::options::{Proxy, RequestMethod, UpstreamOptions};
use hyper::Uri;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use stentor_delta::{Ignored, PointerError};

impl UpstreamOptions {
    /// Returns the mistakes in these options, each with the field's name and a text for the operator.
    /// [`Route`](crate::Route) checks `url`, `key` and `prefix`. Reads no file.
    pub fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Some(host) = &self.host {
            wrong.extend(self.wrong_host(host).map(|text| ("host", text)));
        }
        if self.client_certificate_file.is_some() != self.client_key_file.is_some() {
            let field =
                if self.client_key_file.is_some() { "client_key_file" } else { "client_certificate_file" };
            wrong.push((field, "client_certificate_file and client_key_file need each other".into()));
        }
        let of_tls = [("ca_file", &self.ca_file), ("client_certificate_file", &self.client_certificate_file)];
        let unused = of_tls.into_iter().filter(|(_, file)| file.is_some() && self.url.starts_with("http://"));
        wrong.extend(unused.map(|(field, _)| (field, "it is for a url that begins with https://".into())));
        wrong.extend(self.wrong_method());
        wrong.extend(self.ignored().err().map(|error| ("ignore", error.to_string())));
        if self.cookies && self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("cookie")) {
            wrong.push(("cookies", "headers has the header Cookie already".into()));
        }
        if !self.basic_auth.is_empty()
            && self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
        {
            wrong.push(("basic_auth", "headers has the header Authorization already".into()));
        }
        wrong.extend(self.wrong_proxy().map(|text| ("proxy", text)));
        if let Some(path) = &self.socket {
            let text = if self.url.starts_with("https://") {
                Some("it is for a url that begins with http://".into())
            } else {
                wrong_socket(path)
            };
            wrong.extend(text.map(|text| ("socket", text)));
        }
        wrong
    }

    /// Returns the places of a document whose changes alone don't make a new version.
    pub(super) fn ignored(&self) -> Result<Ignored, PointerError> {
        Ignored::parse(&self.ignore)
    }

    fn wrong_proxy(&self) -> Option<String> {
        if let Some(text) = self.proxy.wrong() {
            return Some(text);
        }
        let other = match self {
            Self { proxy: Proxy::None, .. } => return None,
            Self { socket: Some(_), .. } => "there is no proxy on the way to a socket",
            Self { host: Some(_), url, .. } if url.starts_with("http://") => {
                "a proxy replaces the header Host of requests for http://, so it excludes host"
            }
            _ => return None,
        };
        Some(other.into())
    }

    fn wrong_method(&self) -> Option<(&'static str, String)> {
        match (self.method, self.body.is_empty()) {
            (RequestMethod::Get, false) => Some(("body", "it needs method = \"POST\"".into())),
            (RequestMethod::Post, true) => {
                Some(("method", "\"POST\" needs a body, such as body = '{}'".into()))
            }
            _ => None,
        }
    }

    fn wrong_host(&self, host: &str) -> Option<String> {
        let expected = || {
            format!(
                "expected a name or an address, such as \"api.example.com\" or \"api.example.com:8443\", found {host:?}"
            )
        };
        let parsed: Option<Uri> = host.parse().ok();
        let Some(uri) = parsed.filter(|uri| uri.scheme().is_none() && uri.path().is_empty()) else {
            return Some(expected());
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let has_port = authority != uri.host().unwrap_or_default();
        let is_valid =
            server_name(&uri).is_ok() && !authority.contains('@') && has_port == uri.port_u16().is_some();
        (!is_valid).then(expected)
    }
}

fn wrong_socket(path: &Path) -> Option<String> {
    if !path.is_absolute() {
        return Some(format!("expected an absolute path, such as \"/run/api.sock\", found {path:?}"));
    }
    SocketAddr::from_pathname(path)
        .is_err()
        .then(|| format!("a path of a socket has at most 107 bytes, not as many as {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        fn check(url: &str, change: fn(&mut UpstreamOptions), expect: &[(&str, &str)]) {
            let mut options = UpstreamOptions { url: url.into(), ..UpstreamOptions::default() };
            change(&mut options);
            let wrong = options.check();
            let wrong: Vec<_> = wrong.iter().map(|(field, text)| (*field, text.as_str())).collect();
            assert_eq!(wrong, expect, "{options:?}");
        }
        check("https://h", |_| {}, &[]);
        let hosts: [fn(&mut UpstreamOptions); 4] = [
            |o| o.host = Some("api.example.com".into()),
            |o| o.host = Some("API_1.example:8443".into()),
            |o| o.host = Some("192.0.2.1".into()),
            |o| o.host = Some("[2001:db8::1]:443".into()),
        ];
        for host in hosts {
            check("http://h", host, &[]);
            check("https://h", host, &[]);
        }
        for host in [
            "a:b", "a:", "a:70000", "u@a", "u:p@a", "a/b", "/a", "http://a", "a b", "a\r\nb", "a?b", "{id}",
            "é", "", "*",
        ] {
            let options =
                UpstreamOptions { host: Some(host.into()), url: "https://h".into(), ..Default::default() };
            let wrong = options.check();
            assert_eq!(wrong.len(), 1, "{host:?}");
            assert!(wrong[0].0 == "host" && wrong[0].1.ends_with(&format!("found {host:?}")), "{wrong:?}");
        }
        let alone = "client_certificate_file and client_key_file need each other";
        check(
            "https://h",
            |o| o.client_certificate_file = Some("c".into()),
            &[("client_certificate_file", alone)],
        );
        check("https://h", |o| o.client_key_file = Some("k".into()), &[("client_key_file", alone)]);
        let files: fn(&mut UpstreamOptions) = |o| {
            o.ca_file = Some("a".into());
            o.client_certificate_file = Some("c".into());
            o.client_key_file = Some("k".into());
        };
        check("https://h", files, &[]);
        let unused = "it is for a url that begins with https://";
        check("http://h", files, &[("ca_file", unused), ("client_certificate_file", unused)]);
        check("http://h", |o| o.socket = Some("/run/api.sock".into()), &[]);
        let cookies: fn(&mut UpstreamOptions) = |o| {
            o.cookies = true;
            o.headers = vec![("Cookie".into(), "a=b".into())];
        };
        check("http://h", cookies, &[("cookies", "headers has the header Cookie already")]);
        let proxied: fn(&mut UpstreamOptions) = |o| {
            o.proxy = Proxy::Url("http://proxy".into());
            o.host = Some("a".into());
        };
        let replaced = "a proxy replaces the header Host of requests for http://, so it excludes host";
        check("http://h", proxied, &[("proxy", replaced)]);
        check("https://h", proxied, &[]);
        let both: fn(&mut UpstreamOptions) = |o| {
            o.proxy = Proxy::Environment { http: String::new(), https: String::new(), no: String::new() };
            o.socket = Some("/run/api.sock".into());
        };
        check("http://h", both, &[("proxy", "there is no proxy on the way to a socket")]);
        let secure = "it is for a url that begins with http://";
        check("https://h", |o| o.socket = Some("/run/api.sock".into()), &[("socket", secure)]);
        let relative = "expected an absolute path, such as \"/run/api.sock\", found \"api.sock\"";
        check("http://h", |o| o.socket = Some("api.sock".into()), &[("socket", relative)]);
        check("http://h", |o| o.socket = Some(format!("/{}", "a".repeat(106)).into()), &[]);
        let long =
            format!("a path of a socket has at most 107 bytes, not as many as \"/{}\"", "a".repeat(107));
        check("http://h", |o| o.socket = Some(format!("/{}", "a".repeat(107)).into()), &[("socket", &long)]);
    }
}
