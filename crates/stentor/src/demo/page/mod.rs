//! The demo's page: HTML with its style, and the modules that it loads from here; nothing from elsewhere.
//!
//! Its own policy, in a `meta` element, allows scripts of this server and exactly the one style in it, by hash; a test
//! compares, and says the new hash when the style was changed. What a build would put together stays apart: each module is
//! served as it is written. Two of the transports need other client libraries: `--libraries` says where they are. The page
//! shows why a transport is disabled.

use anyhow::{Context, bail};
use std::path::Path;
use stentor_edge::StaticRoute;

const PAGE: &str = include_str!("page.html");
const MODULES: [(&str, &str); 5] = [
    ("centre.js", include_str!("centre.js")),
    ("dom.js", include_str!("dom.js")),
    ("main.js", include_str!("main.js")),
    ("meter.js", include_str!("meter.js")),
    ("replay.js", include_str!("replay.js")),
];
/// What a transport needs, and where it is in a folder of npm packages.
const LIBRARIES: [(&str, &str); 2] =
    [("socket.io", "socket.io-client/dist/socket.io.min.js"), ("sockjs", "sockjs-client/dist/sockjs.min.js")];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What the demo serves beside the application's routes. `libraries` is a folder of npm packages.
///
/// # Errors
/// There is a folder, and none of the libraries in it.
pub(super) fn routes(libraries: Option<&Path>, has_replay: bool) -> anyhow::Result<Vec<StaticRoute>> {
    let script = |name: &str, body: &[u8]| StaticRoute {
        path: format!("/demo/{name}"),
        content_type: SCRIPT.into(),
        body: body.into(),
    };
    let page = StaticRoute {
        path: "/".into(),
        content_type: "text/html; charset=utf-8".into(),
        body: PAGE.as_bytes().into(),
    };
    let mut routes = vec![page];
    routes.extend(MODULES.iter().map(|(name, text)| script(name, text.as_bytes())));
    let mut found = serde_json::Map::new();
    for (transport, path) in LIBRARIES {
        let body = libraries.and_then(|folder| std::fs::read(folder.join(path)).ok());
        let route = body.map(|body| script(&format!("{transport}.js"), &body));
        found.insert(transport.into(), route.as_ref().map(|route| route.path.clone()).into());
        routes.extend(route);
    }
    if let Some(folder) = libraries
        && found.values().all(serde_json::Value::is_null)
    {
        bail!("neither socket.io-client nor sockjs-client is in {}", folder.display());
    }
    let facts = serde_json::to_string(&found).context("the names of libraries")?;
    let facts = format!("export const libraries = {facts};\nexport const replay = {has_replay};\n");
    routes.push(script("facts.js", facts.as_bytes()));
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use sha2::{Digest, Sha256};

    fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
        assert_eq!(text.matches(begin).count(), 1, "one {begin}");
        text.split(begin).nth(1).and_then(|rest| rest.split(end).next()).unwrap()
    }

    #[test]
    fn the_policy_allows_this_style_and_our_scripts() {
        let policy = between(PAGE, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
        let hash = Sha256::digest(between(PAGE, "<style>", "</style>"));
        let hash = base64::engine::general_purpose::STANDARD.encode(hash);
        let expect = format!("style-src 'sha256-{hash}';");
        assert!(policy.contains(&expect), "the style was changed; the page's policy must say {expect}");
        assert!(policy.contains("script-src 'self';"), "{policy}");
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }

    /// What the policy refuses, and what would need the network.
    #[test]
    fn nothing_inline_and_nothing_from_elsewhere() {
        for (name, text) in MODULES.into_iter().chain([("page.html", PAGE)]) {
            for refused in [
                " style=",
                " onclick=",
                " onload=",
                "<script>",
                "javascript:",
                "innerHTML",
                "eval(",
                "http://",
                "https://",
                "@import",
            ] {
                // The one name of a namespace that looks like an address.
                let text = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(refused), "{name}: {refused}");
            }
            assert!(text.len() < 32 * 1024, "{name} is small enough to be read");
        }
    }

    #[test]
    fn all_that_the_page_loads_is_served() {
        let routes = routes(None, false).unwrap();
        let served = |path: &str| routes.iter().any(|route| route.path == path);
        let imports = MODULES.iter().flat_map(|(_, text)| text.lines()).filter_map(|line| {
            line.strip_prefix("import ")?
                .split("'./")
                .nth(1)?
                .strip_suffix("';")
                .map(|name| format!("/demo/{name}"))
        });
        let mut count = 0;
        for path in imports.chain(["/demo/main.js".into()]) {
            assert!(served(&path), "{path}");
            count += 1;
        }
        assert!(count > MODULES.len(), "only {count} imports were found: the modules are not read right");
    }

    #[test]
    fn libraries_of_others() {
        let facts = |libraries: Option<&Path>| {
            let routes = routes(libraries, true).map_err(|error| error.to_string())?;
            let facts = routes.iter().find(|route| route.path == "/demo/facts.js").unwrap();
            Ok::<_, String>(String::from_utf8(facts.body.to_vec()).unwrap())
        };
        let none =
            "export const libraries = {\"socket.io\":null,\"sockjs\":null};\nexport const replay = true;\n";
        assert_eq!(facts(None).unwrap(), none);
        let dir = tempfile::tempdir().unwrap();
        assert!(facts(Some(dir.path())).unwrap_err().starts_with("neither socket.io-client nor "));
        let file = dir.path().join("sockjs-client/dist/sockjs.min.js");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "x").unwrap();
        assert!(
            facts(Some(dir.path())).unwrap().contains("{\"socket.io\":null,\"sockjs\":\"/demo/sockjs.js\"}")
        );
    }
}
