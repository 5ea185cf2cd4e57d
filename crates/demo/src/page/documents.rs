//! The documents that the page links to, as pages.
//!
//! With the folder of `make docs`, they are the site, with a menu and a search. Without it, each document becomes
//! a plain page at the same path.

use super::{File, HTML};
use anyhow::{Context, ensure};
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use std::path::Path;

macro_rules! documents {
    ($($path:literal),+) => { [$(($path, include_str!(concat!("../../../../", $path, ".md")))),+] };
}
/// Paths without the extension, and the texts.
pub(super) const DOCUMENTS: [(&str, &str); 17] = documents!(
    "clients/js/README",
    "docs/admin-api",
    "docs/cluster",
    "docs/configuration",
    "docs/deploys",
    "docs/fallbacks",
    "docs/feeds",
    "docs/from-socketio",
    "docs/hooks",
    "docs/limits",
    "docs/live-in-five-minutes",
    "docs/metrics",
    "docs/operate",
    "docs/protocol",
    "docs/security",
    "docs/socketio",
    "docs/tls"
);

/// Returns each document as a plain page, with a link to the demo.
pub(super) fn plain() -> impl Iterator<Item = File> {
    DOCUMENTS.iter().map(|(path, text)| File {
        path: format!("/{path}.html"),
        content_type: HTML,
        body: page(path, text, "Demo").into(),
    })
}

/// Returns a document as a plain page for the admin port, with a link to the status page. `path` is that of the
/// page, such as `docs/operate.html`. `None` if there is no such document.
pub fn document(path: &str) -> Option<String> {
    let name = path.strip_suffix(".html")?;
    DOCUMENTS.iter().find(|(known, _)| *known == name).map(|(path, text)| page(path, text, "Status page"))
}

/// Returns the files of the site in `folder`, but for its first page, whose path is the demo's.
///
/// # Errors
/// The folder isn't that of `make docs`, or a file can't be read.
pub(super) fn site(folder: &Path) -> anyhow::Result<Vec<File>> {
    ensure!(
        folder.join("docs/feeds.html").is_file(),
        "{} isn't the documentation: `make docs` builds it",
        folder.display()
    );
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        let entries = std::fs::read_dir(&inner).with_context(|| format!("can't read {}", inner.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            if name == "index.html" {
                continue;
            }
            let content_type = match path.extension().and_then(|extension| extension.to_str()) {
                Some("html") => HTML,
                Some("css") => "text/css; charset=utf-8",
                Some("js") => super::SCRIPT,
                Some("svg") => "image/svg+xml",
                Some("png") => "image/png",
                Some("woff2") => "font/woff2",
                _ => "text/plain; charset=utf-8",
            };
            let body = std::fs::read(&path).with_context(|| format!("can't read {}", path.display()))?;
            files.push(File { path: format!("/{name}"), content_type, body });
        }
    }
    Ok(files)
}

/// Renders a document. Links to other documents lead to their pages; links to what the demo doesn't serve, and
/// images, become text. `home` is the name of the page at `/`.
fn page(path: &str, text: &str, home: &str) -> String {
    let events: Vec<_> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut rendered = Vec::with_capacity(events.len());
    let mut title = String::new();
    let mut is_dropped = false;
    for (at, event) in events.iter().enumerate() {
        rendered.push(match event.clone() {
            Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
                let heading = heading_text(&events[at + 1..]);
                let id = Some(CowStr::from(anchor(&heading)));
                if level == HeadingLevel::H1 && title.is_empty() {
                    title = heading;
                }
                Event::Start(Tag::Heading { level, id, classes, attrs })
            }
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => match link(path, &dest_url) {
                Some(to) => Event::Start(Tag::Link { link_type, dest_url: to.into(), title, id }),
                None => {
                    is_dropped = true;
                    continue;
                }
            },
            Event::End(TagEnd::Link) if is_dropped => {
                is_dropped = false;
                continue;
            }
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => continue,
            event => event,
        });
    }
    let mut body = String::new();
    html::push_html(&mut body, rendered.into_iter());
    format!(include_str!("document.html"), title = title, home = home, body = body)
}

/// Returns the text of the heading with which `events` begin.
fn heading_text(events: &[Event<'_>]) -> String {
    let inner = events.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    inner
        .filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(&**text),
            _ => None,
        })
        .collect()
}

/// Returns a heading's anchor, as GitHub makes it: lower case, spaces as hyphens, without punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Returns the address of a link's target, or `None` if the demo doesn't serve it.
fn link(from: &str, to: &str) -> Option<String> {
    if to.starts_with('#') || to.contains("://") {
        return Some(to.to_owned());
    }
    let (target, fragment) =
        to.split_once('#').map_or((to, None), |(target, fragment)| (target, Some(fragment)));
    let mut folders: Vec<&str> = from.split('/').collect();
    folders.pop();
    for part in target.strip_suffix(".md")?.split('/') {
        match part {
            ".." => _ = folders.pop()?,
            part => folders.push(part),
        }
    }
    let path = folders.join("/");
    let is_known = DOCUMENTS.iter().any(|(known, _)| *known == path);
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    is_known.then(|| format!("/{path}.html{fragment}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_that_are_served() {
        assert_eq!(link("docs/feeds", "your-api.md"), None);
        assert_eq!(link("docs/feeds", "metrics.md#process").as_deref(), Some("/docs/metrics.html#process"));
        assert_eq!(link("docs/feeds", "../clients/js/README.md").as_deref(), Some("/clients/js/README.html"));
        assert_eq!(link("clients/js/README", "../../docs/feeds.md").as_deref(), Some("/docs/feeds.html"));
        assert_eq!(link("docs/feeds", "../../feeds.md"), None);
        assert_eq!(link("docs/feeds", "#pushing-documents").as_deref(), Some("#pushing-documents"));
        let pages: Vec<_> = plain().map(|file| (file.path, String::from_utf8(file.body).unwrap())).collect();
        let mut links = 0;
        for (path, text) in &pages {
            assert!(text.contains("<h1 id=") && !text.contains("<title> ·"), "{path}");
            for (target, fragment) in text.split("href=\"").skip(1).filter_map(|rest| {
                let (href, _) = rest.split_once('"')?;
                let (target, fragment) = href.split_once('#').unwrap_or((href, ""));
                Some((if target.is_empty() { path } else { target }, fragment))
            }) {
                if target == "/" || target.contains(':') {
                    continue;
                }
                let (_, text) = pages.iter().find(|(path, _)| path == target).expect(target);
                assert!(
                    fragment.is_empty() || text.contains(&format!("id=\"{fragment}\"")),
                    "{path}: {target}#{fragment}"
                );
                links += 1;
            }
        }
        assert!(links > 100, "{links}");
    }

    #[test]
    fn the_site_is_served_but_for_its_first_page() {
        let folder = tempfile::tempdir().unwrap();
        let error = site(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("isn't the documentation: `make docs` builds it"), "{error}");
        std::fs::create_dir(folder.path().join("docs")).unwrap();
        for name in ["docs/feeds.html", "index.html", "search.js"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let mut files = site(folder.path()).unwrap();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let found: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.content_type)).collect();
        assert_eq!(found, [("/docs/feeds.html", HTML), ("/search.js", super::super::SCRIPT)]);
    }
}
