//! `/stentor.js`: the JavaScript client for pages that load it with a script tag, compiled in.
//!
//! It is generated from `clients/js` (see its build.mjs) and checked in, so that building the server needs no
//! Node. A test in `tests/clients` checks that it equals a fresh build.

use stentor_edge::StaticRoute;

const LIBRARY: &[u8] = include_bytes!("../../../clients/js/dist/stentor.js");

/// Returns the route that every server has.
pub(crate) fn route() -> StaticRoute {
    StaticRoute {
        path: "/stentor.js".into(),
        content_type: "text/javascript; charset=utf-8".into(),
        body: LIBRARY.into(),
    }
}
