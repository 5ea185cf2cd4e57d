//! Tests of reloads during which a file changes between its check and its use, and of rechecks of sessions.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy only recognizes functions with the test attribute.

use super::*;
use crate::config::Sources;
use stentor_control::{Control, Signals};
use stentor_ports::{DataPlane, Ledger};

#[tokio::test]
async fn a_failure_in_the_last_part_changes_no_part() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let [certificate, key] = ["pem", "key"].map(|kind| folder.path().join(format!("{name}.{kind}")));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (certificate, key)
    };
    let ca_file = write("ca").0;
    let config = |(certificate, key): &(std::path::PathBuf, std::path::PathBuf)| {
        let text = format!(
            "[[tls]]\ncertificate = {certificate:?}\nkey = {key:?}\n\
             [auth]\nca_file = {ca_file:?}\n\
             [[auth.issuers]]\nissuer = \"a\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks_url = \"https://127.0.0.1:1/\"\n\
             [[permissions]]\ntopics = [\"**\"]\nallow = [\"subscribe\"]\n",
        );
        Sources::default().text("stentor.toml", &text).load().unwrap().0
    };
    let (before, after) = (write("before"), write("after"));
    let (running, next) = (config(&before), config(&after));
    let mut options = machine::options(&running);
    options.control.admin.listen = ([127, 0, 0, 1], 0).into();
    let tls = TlsHandle::load(&options.tls).unwrap().0;
    let auth = Auth::new(&running.auth_options().unwrap(), &Arc::new(Ledger::new(1 << 20))).unwrap();
    let plane = stentor_edge::idle(stentor_edge::Options::default(), Signals::new());
    let runtime = tokio::runtime::Handle::current();
    let control =
        Control::start(&runtime, options.control, DataPlane::new(plane.clone()), Signals::new()).unwrap();
    let parts = Parts {
        plane,
        control: control.handle(),
        admin_addr: control.admin_addr(),
        auth: Some(auth),
        tls: Some(tls.clone()),
        admin_tls: None,
    };
    let log = crate::logging::LevelHandle::for_test();
    let reloader = Reloader::new(running, Box::new(|| Err(Problems(Vec::new()))), log);

    let prepared = Reloader::prepare(&parts, next.clone()).unwrap();
    std::fs::remove_file(&ca_file).unwrap();
    let error = reloader.commit(&parts, prepared, &Changes::default()).await.unwrap_err().to_string();
    assert!(error.contains("ca.pem"), "{error}");
    assert_eq!(tls.expiries()[0].0, before.0);
    assert_ne!(reloader.running(), next);
}

#[test]
fn sessions_are_checked_again_if_permissions_have_changed() {
    let config = |auth: &str, more: &str| {
        let issuer = "[[auth.issuers]]\nissuer = \"a\"\naudience = \"a\"\nalgorithms = [\"HS256\"]\n\
                      keys = [{ secret = \"0123456789abcdef0123456789abcdef\" }]\n";
        let text = format!("[auth]\n{auth}\n{issuer}\n{more}\n");
        Sources::default().text("stentor.toml", &text).load().unwrap().0
    };
    let check = |auth: &str, more: &str, expect: bool| {
        let changes = config(auth, more).apply(&config("", ""));
        assert_eq!(changes.concern_permissions(), expect, "{auth} {more}: {changes:?}");
    };
    check("", "", false);
    check("", "[server]\nlog_level = \"debug\"\n[limits]\nturn_bytes_max = \"1MiB\"", false);
    check("anonymous = \"allow\"", "", true);
    check("", "[[permissions]]\ntopics = [\"**\"]\nallow = [\"subscribe\"]", true);
    check("", "[rooms]\npublish = true", true);
}
