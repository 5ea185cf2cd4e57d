//! What a reload does if a file changes between its check and its use.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

use super::*;
use crate::config::Sources;
use crate::lifecycle::tests::Fake;
use stentor_control::{Control, Signals};
use stentor_edge::Ledger;

#[tokio::test]
async fn nothing_has_changed_if_a_part_fails_at_last() {
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
    let plane = Arc::new(Fake::default());
    let runtime = tokio::runtime::Handle::current();
    let control = Control::start(&runtime, options.control, plane.clone(), Signals::new()).unwrap();
    let parts = Parts { plane, control: control.handle(), auth: Some(auth), tls: Some(tls.clone()) };
    let log = crate::logging::LevelHandle::for_test();
    let reloader = Reloader::new(running, Box::new(|| Err(Problems(Vec::new()))), log);

    let prepared = Reloader::prepare(&parts, next.clone()).unwrap();
    std::fs::remove_file(&ca_file).unwrap();
    let error = reloader.commit(&parts, prepared).await.unwrap_err().to_string();
    assert!(error.contains("ca.pem"), "{error}");
    assert_eq!(tls.expiries()[0].0, before.0);
    assert_ne!(reloader.running(), next);
}
