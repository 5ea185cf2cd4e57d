//! `/stentor.js`: the JavaScript client for pages that load it with a script tag, compiled in.
//!
//! All of its files are generated from `clients/js` (see its build.mjs) and checked in, so that building the server needs no
//! Node. A test in `tests/clients` checks that they equal a fresh build.

use crate::cli::ScriptTagArgs;
use std::process::ExitCode;
use stentor_edge::PublicFile;

const LIBRARY: &[u8] = include_bytes!("../../../clients/js/dist/stentor.js");
const BROTLI: &[u8] = include_bytes!("../../../clients/js/dist/stentor.js.br");
const GZIP: &[u8] = include_bytes!("../../../clients/js/dist/stentor.js.gz");
/// The hash of the library as pages name it: `sha384-` and Base64 (Subresource Integrity, section 3.2).
const INTEGRITY: &str = include_str!("../../../clients/js/dist/stentor.js.integrity").trim_ascii_end();
/// Characters of the hash in an address.
const ADDRESS_HASH_CHARS: usize = 16;

/// The beginning of the library's hash, for entity tags and addresses.
fn hash() -> String {
    let hash = INTEGRITY.strip_prefix("sha384-").unwrap_or(INTEGRITY);
    let to_address = |char| match char {
        '+' => '-',
        '/' => '_',
        char => char,
    };
    hash.chars().take(ADDRESS_HASH_CHARS).map(to_address).collect()
}

/// The path of exactly this library.
fn versioned_path() -> String {
    format!("/stentor-{}.js", hash())
}

/// Returns the files that every server has. A page of an older build may have the first one for five minutes.
pub(crate) fn files() -> [PublicFile; 2] {
    let file = |path: String, cache_control: &str| PublicFile {
        path,
        content_type: "text/javascript; charset=utf-8".into(),
        cache_control: cache_control.into(),
        tag: hash(),
        body: LIBRARY.into(),
        brotli: BROTLI.into(),
        gzip: GZIP.into(),
    };
    [
        file("/stentor.js".into(), "public, max-age=300"),
        file(versioned_path(), "public, max-age=31536000, immutable"),
    ]
}

/// Prints the element with which pages load exactly this library.
#[allow(clippy::print_stdout, reason = "the element is the requested output")]
pub(crate) fn print_tag(args: &ScriptTagArgs) -> ExitCode {
    let base = args.url.as_deref().unwrap_or_default().trim_end_matches('/');
    let path = versioned_path();
    println!(r#"<script src="{base}{path}" integrity="{INTEGRITY}" crossorigin="anonymous"></script>"#);
    ExitCode::SUCCESS
}
