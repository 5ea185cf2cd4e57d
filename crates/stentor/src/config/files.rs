//! Checks the files of certificates and keys that the configuration names. Runs after [`super::rules`], and reports the mistakes of each
//! file, also if other files or values have mistakes.
//!
//! Public keys of issuers are checked with the issuer ([`super::auth`]). Files with secrets are read by [`super::secrets`].

use super::{Config, Sources, options_of};
use std::path::Path;
use stentor_control::{check_client_certificate, check_trusted_certificates};
use stentor_edge::{CertificateFiles, TlsHandle, TlsOptions};

/// Records the mistakes.
pub(super) fn check(sources: &mut Sources) {
    server_certificates(sources);
    feeds(sources);
    hooks(sources);
    auth(sources);
    cluster(sources);
}

/// A section as it is named in `locations`, and as it is shown.
struct Place<'a> {
    id: &'a str,
    shown: &'a str,
}

impl Place<'_> {
    /// Records a mistake in the file of a key.
    fn problem(&self, sources: &mut Sources, key: &'static str, text: &str) {
        let location = sources.location(self.id, key);
        let remedy = match text.contains("os error") {
            true => "; name a file that the server's user can read",
            false => "",
        };
        sources.problem(location, format!("{key} in {}: {text}{remedy}", self.shown));
    }

    /// Checks a file with certificates to trust. An empty path names no file.
    fn trusted(&self, sources: &mut Sources, path: &str) {
        if !path.is_empty()
            && let Err(text) = check_trusted_certificates(Some(Path::new(path)))
        {
            self.problem(sources, "ca_file", &text);
        }
    }

    /// Checks a client certificate. Empty paths name no files.
    fn identity(&self, sources: &mut Sources, keys: [&'static str; 2], paths: [&str; 2]) {
        if paths.iter().any(|path| path.is_empty()) {
            return;
        }
        for (is_key, text) in check_client_certificate(Path::new(paths[0]), Path::new(paths[1])) {
            self.problem(sources, keys[usize::from(is_key)], &text);
        }
    }
}

/// Checks the certificates of the clients' ports and of the admin port.
fn server_certificates(sources: &mut Sources) {
    let options = sources.config.options();
    let admin = ("admin_tls".to_owned(), "[admin_tls]", options.admin_certificate.clone());
    let clients = options.tls.certificates.iter().enumerate();
    let clients = clients.map(|(n, files)| (format!("tls[{n}]"), "[[tls]]", files.clone()));
    for (id, shown, files) in clients.chain([admin]) {
        certificate(sources, &Place { id: &id, shown }, files);
    }
    let secret = TlsOptions { certificates: Vec::new(), ticket_secret_file: options.tls.ticket_secret_file };
    for error in TlsHandle::mistakes(&secret) {
        let place = Place { id: "server", shown: "[server]" };
        place.problem(sources, "tls_ticket_secret_file", &error.to_string());
    }
}

fn certificate(sources: &mut Sources, place: &Place<'_>, files: CertificateFiles) {
    // A missing key has already been reported.
    if files.certificate.as_os_str().is_empty() || files.key.as_os_str().is_empty() {
        return;
    }
    let is_key = |file: &Path| file == files.key && file != files.certificate;
    let options = TlsOptions { certificates: vec![files.clone()], ticket_secret_file: None };
    let mistakes = TlsHandle::mistakes(&options);
    for error in &mistakes {
        let key = if is_key(&error.file) { "key" } else { "certificate" };
        place.problem(sources, key, &error.to_string());
    }
    if let (true, Ok((_, warnings))) = (mistakes.is_empty(), TlsHandle::load(&options)) {
        let location = sources.location(place.id, "certificate");
        warnings.into_iter().for_each(|text| sources.warn(location.clone(), text));
    }
}

fn feeds(sources: &mut Sources) {
    let feeds = sources.config.feeds.clone();
    let common = sources.config.feeds_limits.ca_file.clone();
    Place { id: "feeds_limits", shown: "[feeds_limits]" }.trusted(sources, &common);
    for (n, feed) in feeds.iter().enumerate().filter(|(_, feed)| !feed.push) {
        let id = format!("feeds[{n}]");
        let place = Place { id: &id, shown: "[[feeds]]" };
        place.trusted(sources, &feed.ca_file);
        let keys = ["client_certificate_file", "client_key_file"];
        place.identity(sources, keys, [&feed.client_certificate_file, &feed.client_key_file]);
        if feed.ca_file.is_empty() && common.is_empty() && feed.url.starts_with("https://") {
            system(sources, &place, "url");
        }
    }
}

/// Checks the system's certificates, which verify the server at the URL of a key.
fn system(sources: &mut Sources, place: &Place<'_>, key: &'static str) {
    if let Err(text) = check_trusted_certificates(None) {
        place.problem(sources, key, &text);
    }
}

fn hooks(sources: &mut Sources) {
    let hooks: Vec<_> = sources.config.hooks.iter().map(|hook| options_of(hook).hook).collect();
    for (n, hook) in hooks.iter().enumerate() {
        let id = format!("hooks[{n}]");
        let place = Place { id: &id, shown: "[[hooks]]" };
        match &hook.ca_file {
            Some(file) => place.trusted(sources, &file.display().to_string()),
            None if hook.url.starts_with("https://") => system(sources, &place, "url"),
            None => {}
        }
    }
}

fn auth(sources: &mut Sources) {
    let ca_file = sources.config.auth.ca_file.clone();
    Place { id: "auth", shown: "[auth]" }.trusted(sources, &ca_file);
    let issuers = sources.config.issuers.clone();
    for (n, issuer) in issuers.iter().enumerate() {
        if ca_file.is_empty() && issuer.jwks_url.starts_with("https://") {
            let id = format!("auth.issuers[{n}]");
            system(sources, &Place { id: &id, shown: "[[auth.issuers]]" }, "jwks_url");
        }
    }
}

fn cluster(sources: &mut Sources) {
    let cluster = sources.config.cluster.clone();
    let place = Place { id: "cluster", shown: "[cluster]" };
    place.trusted(sources, &cluster.ca_file);
    let keys = ["certificate_file", "key_file"];
    place.identity(sources, keys, [&cluster.certificate_file, &cluster.key_file]);
    let credentials = &cluster.credentials_file;
    if !credentials.is_empty()
        && let Err(error) = std::fs::read(credentials)
    {
        place.problem(sources, "credentials_file", &format!("{credentials}: {error}"));
    }
}

impl Config {
    /// Returns the files of certificates and keys, each with its section and key.
    pub(crate) fn files(&self) -> Vec<(String, &'static str, String)> {
        let mut all = Vec::new();
        for (n, files) in self.tls.iter().enumerate() {
            let paths = [("certificate", &files.certificate), ("key", &files.key)];
            all.extend(paths.map(|(key, path)| (format!("tls[{n}]"), key, path)));
        }
        let Self { server, admin_tls, auth, cluster, feeds_limits, .. } = self;
        let once = [
            ("server", "tls_ticket_secret_file", &server.tls_ticket_secret_file),
            ("admin_tls", "certificate", &admin_tls.certificate),
            ("admin_tls", "key", &admin_tls.key),
            ("auth", "ca_file", &auth.ca_file),
            ("cluster", "ca_file", &cluster.ca_file),
            ("cluster", "certificate_file", &cluster.certificate_file),
            ("cluster", "key_file", &cluster.key_file),
            ("cluster", "credentials_file", &cluster.credentials_file),
            ("feeds_limits", "ca_file", &feeds_limits.ca_file),
        ];
        all.extend(once.map(|(section, key, path)| (section.to_owned(), key, path)));
        for (n, feed) in self.feeds.iter().enumerate() {
            let paths = [
                ("ca_file", &feed.ca_file),
                ("client_certificate_file", &feed.client_certificate_file),
                ("client_key_file", &feed.client_key_file),
            ];
            all.extend(paths.map(|(key, path)| (format!("feeds[{n}]"), key, path)));
        }
        let hooks = self.hooks.iter().enumerate();
        all.extend(hooks.map(|(n, hook)| (format!("hooks[{n}]"), "ca_file", &hook.ca_file)));
        let named = all.into_iter().filter(|(_, _, path)| !path.is_empty());
        named.map(|(section, key, path)| (section, key, path.clone())).collect()
    }
}
