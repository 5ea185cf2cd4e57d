//! Tests that the page keeps to its content security policy, and that the server has every file that the page
//! loads.

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

/// The page has no inline content, which the policy refuses, and no address of another server.
#[test]
fn the_page_has_no_inline_content_and_no_foreign_addresses() {
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
            // Removes the name of the SVG namespace, which is no address to load.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(refused), "{name}: {refused}");
        }
        assert!(text.len() < 32 * 1024, "{name} is small enough to be read");
    }
}

#[test]
fn everything_that_the_page_loads_is_served() {
    let files = files(None, None, &facts()).unwrap();
    let served = |path: &str| files.iter().any(|file| file.path == path);
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
    Facts {
        has_replay: true,
        admin: "http://127.0.0.1:8001".into(),
        needs_token: false,
        stops: Some(Stops::Api),
        worker: None,
    }
}

#[test]
fn all_documents_that_the_page_links_to_are_served() {
    let mut linked: Vec<_> =
        PAGE.split("href=\"/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    linked.sort_unstable();
    assert_eq!(linked, documents::DOCUMENTS.map(|(path, _)| format!("{path}.html")));
}

#[test]
fn the_page_has_the_properties_of_its_server() {
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
        let files = files(libraries, None, &facts()).map_err(|error| error.to_string())?;
        let facts = files.iter().find(|file| file.path == "/demo/facts.js").unwrap();
        Ok::<_, String>(String::from_utf8(facts.body.clone()).unwrap())
    };
    let none = "export const libraries = {\"socket.io\":null,\"sockjs\":null};\n";
    assert!(facts(None).unwrap().starts_with(none));
    let dir = tempfile::tempdir().unwrap();
    assert!(facts(Some(dir.path())).unwrap_err().starts_with("neither socket.io-client nor "));
    let file = dir.path().join("sockjs-client/dist/sockjs.min.js");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, "x").unwrap();
    assert!(facts(Some(dir.path())).unwrap().contains("{\"socket.io\":null,\"sockjs\":\"/demo/sockjs.js\"}"));
}
