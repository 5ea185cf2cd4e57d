//! Proxies between Stentor and an upstream (`proxy`): a configured proxy, or the proxies in environment
//! variables.

use crate::options::Proxy;
use hyper::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

impl Proxy {
    /// Returns the proxy for requests to `url`. `None` if they go directly to the host.
    pub(super) fn of(&self, url: &Uri) -> Option<Intercept> {
        let matcher = match self {
            Self::None => return None,
            Self::Url(url) => Matcher::builder().all(url.as_str()).build(),
            Self::Environment { http, https, no } => {
                Matcher::builder().http(http.as_str()).https(https.as_str()).no(no.as_str()).build()
            }
        };
        matcher.intercept(url)
    }

    /// Returns the proxies' passwords, plain and encoded, which messages must not show.
    pub(super) fn secrets(&self) -> Vec<String> {
        let Self::Environment { http, https, .. } = self else { return Vec::new() };
        let mut secrets = Vec::new();
        for url in [http, https] {
            let user = url.rsplit_once('@').map(|(before, _)| before.rsplit('/').next().unwrap_or_default());
            secrets
                .extend(user.and_then(|user| user.split_once(':')).map(|(_, password)| password.to_owned()));
            let proxy = Matcher::builder().all(url.as_str()).build().intercept(&Uri::from_static("http://a"));
            let auth = proxy.as_ref().and_then(Intercept::basic_auth).and_then(|auth| auth.to_str().ok());
            secrets.extend(auth.and_then(|auth| auth.split_once(' ')).map(|(_, encoded)| encoded.to_owned()));
        }
        secrets
    }

    /// Returns the mistake, for the operator. The text never contains a value of the environment, which may
    /// include a password.
    pub(super) fn wrong(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Url(url) if url.contains('@') => Some(
                "credentials belong in the environment: set proxy = \"environment\", and HTTPS_PROXY or HTTP_PROXY".into(),
            ),
            Self::Url(url) => (!url.starts_with("http://") || !is_proxy(url)).then(|| {
                format!("expected \"environment\" or a URL such as \"http://proxy.example.com:3128\", found {url:?}")
            }),
            Self::Environment { http, https, .. } => {
                let mut variables = [("HTTP_PROXY", http), ("HTTPS_PROXY", https)].into_iter();
                let wrong = variables.find(|(_, url)| !url.is_empty() && !is_proxy(url));
                wrong.map(|(name, _)| {
                    format!("the environment variable {name} is no URL such as http://proxy.example.com:3128")
                })
            }
        }
    }
}

/// Returns `true` for the URL of a proxy that uses plain HTTP. The scheme may be missing.
fn is_proxy(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else { return false };
    let is_alone = matches!(url.path(), "" | "/") && url.query().is_none();
    let Some(authority) = url.authority() else { return false };
    let address = authority.as_str().rsplit('@').next().unwrap_or_default();
    let has_valid_port = address == authority.host() || authority.port_u16().is_some();
    matches!(url.scheme_str(), None | Some("http"))
        && is_alone
        && !authority.host().is_empty()
        && has_valid_port
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(http: &str, https: &str, no: &str) -> Proxy {
        Proxy::Environment { http: http.into(), https: https.into(), no: no.into() }
    }

    #[test]
    fn the_environment_names_proxies_by_scheme_and_exceptions() {
        let proxies =
            environment("http://one:1", "user:pass@two:2", "internal.test, 10.0.0.0/8,.local.test,localhost");
        let check = |proxy: &Proxy, url: &str, expect: &str| {
            let by = proxy.of(&url.parse().unwrap());
            let shown = by.map(|by| {
                format!("{} {}", by.uri(), by.basic_auth().map_or("", |auth| auth.to_str().unwrap()))
            });
            assert_eq!(shown.unwrap_or_default(), expect, "{url}");
        };
        let (one, two) = ("http://one:1/ ", "http://two:2/ Basic dXNlcjpwYXNz");
        for url in ["http://api.test/k", "http://notinternal.test/", "http://11.0.0.1/", "http://[::1]/"] {
            check(&proxies, url, one);
        }
        check(&proxies, "https://api.test/k", two);
        for host in ["internal.test", "a.internal.test", "a.local.test", "10.1.2.3", "localhost"] {
            check(&proxies, &format!("http://{host}:8080/"), "");
            check(&proxies, &format!("https://{host}/"), "");
        }
        check(&environment("http://one:1", "", ""), "https://api.test/", "");
        check(&environment("http://one:1", "", "*"), "http://api.test/", "");
        let alone = Proxy::Url("http://one:1".into());
        check(&alone, "http://localhost/", one);
        check(&alone, "https://10.0.0.1/", one);
        check(&Proxy::None, "http://api.test/", "");
    }

    #[test]
    fn invalid_proxies_are_refused() {
        let is_right = |proxy: Proxy| proxy.wrong().is_none();
        for url in ["http://proxy", "http://proxy:3128", "http://10.0.0.1:3128/", "http://[::1]:3128"] {
            assert!(is_right(Proxy::Url(url.into())) && is_right(environment(url, url, "")), "{url}");
        }
        for url in ["proxy:3128", "http://user:pass@proxy:3128", "user@proxy"] {
            assert!(!is_right(Proxy::Url(url.into())) && is_right(environment(url, "", "")), "{url}");
        }
        for url in [
            "https://proxy:3128",
            "socks5://proxy:1080",
            "http://proxy/path",
            "http://proxy?a",
            "http://proxy:x",
            "http://",
            "http://proxy:70000",
            "a b",
        ] {
            assert!(!is_right(Proxy::Url(url.into())), "{url}");
            assert!(!is_right(environment(url, "", "")) && !is_right(environment("", url, "")), "{url}");
        }
        assert!(is_right(environment("", "", "")));
        let secrets = environment("user:hunter2@proxy", "http://u:p@proxy", "").secrets();
        assert_eq!(secrets, ["hunter2", "dXNlcjpodW50ZXIy", "p", "dTpw"]);
        let secret = environment("", "socks5://user:hunter2@proxy", "").wrong().unwrap();
        assert_eq!(
            secret,
            "the environment variable HTTPS_PROXY is no URL such as http://proxy.example.com:3128"
        );
        assert!(!Proxy::Url("http://u:hunter2@proxy".into()).wrong().unwrap().contains("hunter2"));
    }
}
