//! The proxy of a `[[feeds]]`: `"http://…"`, or `"environment"` for environment variables of the process.

use super::setting::{Raw, Setting};
use std::collections::HashMap;
use stentor_control::Proxy;

const ENVIRONMENT: &str = "environment";

/// Fills in the values of the variables. A variable with a lower-case name is used if the upper-case one
/// isn't set.
pub(super) fn fill(proxy: &mut Proxy, variables: &HashMap<String, String>) {
    let value = |name: &str| {
        let value = variables.get(name).filter(|value| !value.is_empty());
        value.or_else(|| variables.get(&name.to_ascii_lowercase())).cloned().unwrap_or_default()
    };
    if let Proxy::Environment { http, https, no } = proxy {
        (*http, *https, *no) = (value("HTTP_PROXY"), value("HTTPS_PROXY"), value("NO_PROXY"));
    }
}

impl Setting for Proxy {
    const UNIT: &'static str = "URL or `environment`";

    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let text = raw.text().ok_or_else(|| {
            raw.mismatch(r#""environment" or a URL such as "http://proxy.example.com:3128""#)
        })?;
        Ok(match text {
            "" => Self::None,
            ENVIRONMENT => Self::Environment { http: String::new(), https: String::new(), no: String::new() },
            url => Self::Url(url.to_owned()),
        })
    }

    fn show(&self) -> String {
        match self {
            Self::None => "\"\"".into(),
            Self::Url(url) => format!("{url:?}"),
            Self::Environment { .. } => format!("{ENVIRONMENT:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_proxies_in_either_case() {
        fn check(variables: &[(&str, &str)], expect: [&str; 3]) {
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let mut proxy = Proxy::read(Raw::Text(ENVIRONMENT)).unwrap();
            fill(&mut proxy, &variables);
            let [http, https, no] = expect.map(String::from);
            assert_eq!(proxy, Proxy::Environment { http, https, no });
        }
        check(&[], ["", "", ""]);
        check(&[("HTTP_PROXY", "a"), ("HTTPS_PROXY", "b"), ("NO_PROXY", "c")], ["a", "b", "c"]);
        check(&[("http_proxy", "a"), ("https_proxy", "b"), ("no_proxy", "c")], ["a", "b", "c"]);
        check(
            &[("HTTP_PROXY", "a"), ("http_proxy", "x"), ("HTTPS_PROXY", ""), ("https_proxy", "b")],
            ["a", "b", ""],
        );
    }
}
