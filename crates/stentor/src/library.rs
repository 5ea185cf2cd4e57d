//! `/stentor.js`: the JavaScript client for pages that load it with a script tag, compiled in.
//!
//! The library's files are generated from `clients/js` (see build.mjs there) and checked in, so that building
//! the server needs no Node. A test in `tests/clients` checks that the files equal a fresh build.

use crate::cli::ScriptTagArgs;
use std::process::ExitCode;
use stentor_edge::PublicFile;

const LIBRARY: &[u8] = include_bytes!("../../../clients/js/dist/stentor.js");
const BROTLI: &[u8] = include_bytes!("../../../clients/js/dist/stentor.js.br");
const GZIP: &[u8] = include_bytes!("../../../clients/js/dist/stentor.js.gz");
/// The library's hash in the form that pages use: `sha384-` and Base64 (Subresource Integrity, section 3.2).
const INTEGRITY: &str = include_str!("../../../clients/js/dist/stentor.js.integrity").trim_ascii_end();
/// Number of characters of the hash in an address.
const ADDRESS_HASH_CHARS: usize = 16;

/// Returns the beginning of the library's hash, for entity tags and addresses.
fn hash() -> String {
    let hash = INTEGRITY.strip_prefix("sha384-").unwrap_or(INTEGRITY);
    let to_address = |char| match char {
        '+' => '-',
        '/' => '_',
        char => char,
    };
    hash.chars().take(ADDRESS_HASH_CHARS).map(to_address).collect()
}

/// Returns the path that only this build of the library has.
fn versioned_path() -> String {
    format!("/stentor-{}.js", hash())
}

/// Returns the library's files that every server has. Browsers may keep the first one, without a hash in its
/// path, for five minutes, also after an update.
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
