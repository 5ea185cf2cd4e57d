//! Certificate files, and the choice of the certificate for a name.

use super::*;
use rcgen::{CertificateParams, KeyPair};
use std::fs;

/// Writes a certificate and its key. Returns the paths of the files.
fn write(folder: &Path, name: &str, names: &[&str], until: i32) -> CertificateFiles {
    let mut params =
        CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    let files = CertificateFiles {
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
    };
    fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}

#[test]
fn the_certificate_is_chosen_by_name_and_the_first_is_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        write(folder.path(), "a", &["a.example", "both.example"], 2099),
        write(folder.path(), "b", &["*.b.example", "both.example", "c.b.example"], 2099),
        write(folder.path(), "c", &["c.b.example", "*.a.example"], 2099),
    ];
    let (certificates, warnings) = Certificates::load(&files).unwrap();
    assert_eq!(warnings, [""; 0]);
    let check = |name: Option<&str>, expect: usize| {
        let expect = certified_key(&files[expect]).unwrap().0;
        assert_eq!(certificates.find(name).cert, expect.cert, "{name:?}");
    };
    check(None, 0);
    check(Some("a.example"), 0);
    check(Some("A.Example"), 0);
    check(Some("both.example"), 0);
    check(Some("x.b.example"), 1);
    check(Some("c.b.example"), 1);
    check(Some("x.y.b.example"), 0);
    check(Some("x.a.example"), 2);
    check(Some("elsewhere.example"), 0);
    check(Some("b.example"), 0);
    check(Some(""), 0);
}

/// Some editors write a byte order mark.
#[test]
fn files_may_begin_with_a_byte_order_mark() {
    let folder = tempfile::tempdir().unwrap();
    let files = write(folder.path(), "a", &["a"], 2099);
    let before = certified_key(&files).unwrap().0;
    for file in [&files.certificate, &files.key] {
        fs::write(file, ["\u{feff}".as_bytes(), &fs::read(file).unwrap()].concat()).unwrap();
    }
    assert_eq!(certified_key(&files).unwrap().0.cert, before.cert);
}

#[test]
fn a_wrong_file_is_named_with_the_reason_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (write(folder.path(), "a", &["a"], 2099), write(folder.path(), "b", &["b"], 2099));
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let (handle, _) =
        TlsHandle::load(&TlsOptions { certificates: vec![a.clone()], ..TlsOptions::default() }).unwrap();
    let check = |certificate: &Path, key: &Path, wrong: &Path, reason: &str| {
        let certificates =
            vec![b.clone(), CertificateFiles { certificate: certificate.into(), key: key.into() }];
        let error = handle.replace(&TlsOptions { certificates, ..TlsOptions::default() }).unwrap_err();
        assert_eq!((error.file.as_path(), error.reason.as_str()), (wrong, reason));
        assert_eq!(handle.expiries()[0].0, a.certificate);
    };
    let missing = folder.path().join("missing");
    check(&missing, &a.key, &missing, "can't be read: No such file or directory (os error 2)");
    check(&a.certificate, &missing, &missing, "can't be read: No such file or directory (os error 2)");
    check(&a.key, &a.key, &a.key, "has no PEM certificate");
    let broken = file("broken", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
    check(&broken, &a.key, &broken, "has a broken PEM certificate");
    let nonsense = file("nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    check(&nonsense, &a.key, &nonsense, "has a certificate that can't be read");
    let no_key = "has no PEM private key (one with a password must be decrypted first)";
    check(&a.certificate, &a.certificate, &a.certificate, no_key);
    let other = format!("is not the key of the certificate in {}", a.certificate.display());
    check(&a.certificate, &b.key, &b.key, &other);
    let large = file("large", &"x".repeat((1 << 20) + 1));
    check(&large, &a.key, &large, "is larger than 1048576 bytes");
    let short = file("short", "secret\n");
    let options = TlsOptions { certificates: vec![b], ticket_secret_file: Some(short.clone()) };
    assert_eq!(handle.replace(&options).unwrap_err().file, short);
    assert_eq!(handle.expiries()[0].0, a.certificate);
    let long = file("long", &"s".repeat(32));
    handle.replace(&TlsOptions { ticket_secret_file: Some(long), ..options }).unwrap();
    assert_ne!(handle.expiries()[0].0, a.certificate);
}

#[test]
fn an_expired_certificate_is_warned_about() {
    let folder = tempfile::tempdir().unwrap();
    let files = write(folder.path(), "old", &["a"], 2001);
    let path = files.certificate.display().to_string();
    let (handle, warnings) =
        TlsHandle::load(&TlsOptions { certificates: vec![files.clone()], ..TlsOptions::default() }).unwrap();
    assert_eq!(warnings, [format!("{path}: the certificate has expired")]);
    assert_eq!(handle.expiries(), [(files.certificate, Duration::from_secs(978_307_200))]);
    let none = TlsHandle::load(&TlsOptions::default()).unwrap_err();
    assert_eq!(none.reason, "TLS needs a certificate");
}

#[test]
fn long_rsa_keys_sign_slowly() {
    // Lengths of public keys with 2,048, 3,072, 4,096 and 8,192 bits, of P-384 and P-256, as OpenSSL writes them.
    let rsa = [294, 422, 550, 1062].map(|bytes| signing_time_of(SignatureAlgorithm::RSA, bytes));
    let ecdsa = [120, 91].map(|bytes| signing_time_of(SignatureAlgorithm::ECDSA, bytes));
    assert_eq!(rsa.map(|time| time.as_micros()), [600, 2_000, 4_500, 36_000]);
    assert_eq!(ecdsa.map(|time| time.as_micros()), [1_000, 50]);
}
