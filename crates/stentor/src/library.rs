//! `/stentor.js`: the JavaScript client for pages that load it by a script tag, compiled in.
//!
//! It is made from `clients/js` (see its build.mjs) and checked in, so that building the server needs no Node; a test of
//! `tests/clients` proves that it is what a fresh build makes.

use stentor_edge::StaticRoute;

const LIBRARY: &[u8] = include_bytes!("../../../clients/js/dist/stentor.js");

/// The route that every server has.
pub(crate) fn route() -> StaticRoute {
    StaticRoute {
        path: "/stentor.js".into(),
        content_type: "text/javascript; charset=utf-8".into(),
        body: LIBRARY.into(),
    }
}
