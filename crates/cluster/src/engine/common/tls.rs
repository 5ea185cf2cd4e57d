//! TLS to the servers of an engine.

use super::Stream;
use crate::engine::Identity;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;
use stentor_json::without_byte_order_mark;
use tokio_rustls::TlsConnector;

/// Returns the TLS connector. `ca_file` has the certificates to trust; `None` for those of the system.
///
/// # Errors
/// A description of the faulty file.
pub(crate) fn tls(ca_file: Option<&Path>, identity: Option<&Identity>) -> Result<TlsConnector, String> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(file) = ca_file {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(in_file(file))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err("there are no certificates to trust: install ca-certificates, or name a CA file".into());
    }
    let failed = |error| format!("can't set up TLS: {error}");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(Identity { certificate_file, key_file }) => {
            let text = std::fs::read(key_file).map_err(in_file(key_file))?;
            let key = PrivateKeyDer::from_pem_slice(without_byte_order_mark(&text));
            let key = key.map_err(in_file(key_file))?;
            config.with_client_auth_cert(certificates(certificate_file)?, key).map_err(failed)?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The certificates of a PEM file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = std::fs::read(file).map_err(in_file(file))?;
    let certificates = CertificateDer::pem_slice_iter(without_byte_order_mark(&text));
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(in_file(file))?;
    match certificates.is_empty() {
        true => Err(in_file(file)("it has no certificate")),
        false => Ok(certificates),
    }
}

/// Returns a function that adds the name of the file to an error.
fn in_file<E: Display>(file: &Path) -> impl Fn(E) -> String {
    move |error| format!("{}: {error}", file.display())
}

/// Encrypts a connection to a host.
///
/// # Errors
/// The reason, for people.
pub(crate) async fn encrypt(
    connector: &TlsConnector,
    host: &str,
    stream: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, String> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| format!("TLS: `{host}` can't be the name in a certificate"))?;
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(explain(&error)),
    }
}

/// Explains why there is no TLS session, and names the setting to change.
fn explain(error: &io::Error) -> String {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let advice = match cause {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            "; set ca_file in [cluster] to the certificate of its authority"
        }
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            "; use a name in the URL that the certificate has"
        }
        _ => "",
    };
    format!("TLS: {error}{advice}")
}

/// Adds advice to an error about the node's own certificate. In TLS 1.3, the server checks it after the client's handshake is done.
pub(crate) fn explain_alert(error: String) -> String {
    if !error.contains("received fatal alert") {
        return error;
    }
    format!(
        "TLS: {error}; set certificate_file and key_file in [cluster] to a certificate that the server accepts"
    )
}
