//! The demo's page: HTML with its style, and the modules that it loads from here; nothing from elsewhere.
//!
//! Its own policy, in a `meta` element, allows scripts of this server and exactly the one style in it, by hash; a test
//! compares, and prints the new hash when the style was changed. There is no build: each module is
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
mod tests;
