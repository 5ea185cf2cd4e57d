//! The demo's page: HTML with its style, and the modules that it loads from here; nothing from elsewhere.
//!
//! Its own policy, in a `meta` element, allows scripts of this server and exactly the one style in it, by hash; a test
//! compares, and says the new hash when the style was changed. What a build would put together stays apart: each module is
//! served as it is written. Two of the transports need other client libraries: `--libraries` says where they are. The page
//! shows why a transport is disabled. The documents that the page links to are served as text, under their names in the
//! repository.

use super::ROOM;
use crate::simulation::SECONDS_PER_TICK;
use anyhow::{Context, bail};
use std::path::Path;
use stentor_edge::StaticRoute;

const PAGE: &str = include_str!("page.html");
const MODULES: [(&str, &str); 7] = [
    ("centre.js", include_str!("centre.js")),
    ("dom.js", include_str!("dom.js")),
    ("main.js", include_str!("main.js")),
    ("meter.js", include_str!("meter.js")),
    ("replay.js", include_str!("replay.js")),
    ("room.js", include_str!("room.js")),
    ("snippets.js", include_str!("snippets.js")),
];
macro_rules! documents {
    ($($path:literal),+) => { [$(($path, include_str!(concat!("../../../../../", $path)))),+] };
}
const DOCUMENTS: [(&str, &str); 12] = documents!(
    "clients/js/README.md",
    "docs/admin-api.md",
    "docs/configuration.md",
    "docs/fallbacks.md",
    "docs/feeds.md",
    "docs/from-socketio.md",
    "docs/live-in-five-minutes.md",
    "docs/metrics.md",
    "docs/operate.md",
    "docs/protocol.md",
    "docs/security.md",
    "docs/socketio.md"
);
/// What a transport needs, and where it is in a folder of npm packages.
const LIBRARIES: [(&str, &str); 2] =
    [("socket.io", "socket.io-client/dist/socket.io.min.js"), ("sockjs", "sockjs-client/dist/sockjs.min.js")];
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// What the page shows about the server.
pub(super) struct Facts {
    pub(super) has_replay: bool,
    /// The base of the admin API, such as `http://127.0.0.1:8001`.
    pub(super) admin: String,
    pub(super) needs_token: bool,
}

/// What the demo serves beside the application's routes. `libraries` is a folder of npm packages.
///
/// # Errors
/// There is a folder, and none of the libraries in it.
pub(super) fn routes(libraries: Option<&Path>, facts: &Facts) -> anyhow::Result<Vec<StaticRoute>> {
    let file = |path: String, content_type: &str, body: &[u8]| StaticRoute {
        path,
        content_type: content_type.into(),
        body: body.into(),
    };
    let script = |name: &str, body: &[u8]| file(format!("/demo/{name}"), SCRIPT, body);
    let mut routes = vec![file("/".into(), "text/html; charset=utf-8", PAGE.as_bytes())];
    routes.extend(MODULES.iter().map(|(name, text)| script(name, text.as_bytes())));
    routes.extend(DOCUMENTS.iter().map(|(path, text)| file(format!("/{path}"), TEXT, text.as_bytes())));
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
    routes.push(script("facts.js", facts_module(found, facts)?.as_bytes()));
    Ok(routes)
}

/// The module that has what the page can't know when it is compiled.
fn facts_module(
    libraries: serde_json::Map<String, serde_json::Value>,
    facts: &Facts,
) -> anyhow::Result<String> {
    let exports: [(&str, serde_json::Value); 6] = [
        ("libraries", libraries.into()),
        ("replay", facts.has_replay.into()),
        ("clockSpeed", SECONDS_PER_TICK.into()),
        ("admin", facts.admin.as_str().into()),
        ("needsToken", facts.needs_token.into()),
        ("roomConfig", ROOM.into()),
    ];
    let mut module = String::new();
    for (name, value) in exports {
        let value = serde_json::to_string(&value).with_context(|| format!("the page's {name}"))?;
        module += &format!("export const {name} = {value};\n");
    }
    Ok(module)
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
    fn everything_that_the_page_loads_is_served() {
        let routes = routes(None, &facts()).unwrap();
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

    fn facts() -> Facts {
        Facts { has_replay: true, admin: "http://127.0.0.1:8001".into(), needs_token: false }
    }

    #[test]
    fn all_documents_that_the_page_links_to_are_served() {
        let mut linked: Vec<_> =
            PAGE.split("href=\"/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        linked.sort_unstable();
        assert_eq!(linked, DOCUMENTS.map(|(path, _)| path));
    }

    #[test]
    fn the_page_knows_the_server() {
        let text = facts_module(serde_json::Map::new(), &facts()).unwrap();
        assert!(
            text.starts_with(
                "export const libraries = {};\nexport const replay = true;\nexport const clockSpeed = 6;\n\
                 export const admin = \"http://127.0.0.1:8001\";\nexport const needsToken = false;\n\
                 export const roomConfig = \"[rooms]\\npublish = true"
            ),
            "{text}"
        );
    }

    #[test]
    fn third_party_libraries_are_listed() {
        let facts = |libraries: Option<&Path>| {
            let routes = routes(libraries, &facts()).map_err(|error| error.to_string())?;
            let facts = routes.iter().find(|route| route.path == "/demo/facts.js").unwrap();
            Ok::<_, String>(String::from_utf8(facts.body.to_vec()).unwrap())
        };
        let none = "export const libraries = {\"socket.io\":null,\"sockjs\":null};\n";
        assert!(facts(None).unwrap().starts_with(none));
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
