//! Reads the few fields of a certificate that the server shows or uses for its choice (X.509, RFC 5280): expiry and DNS names.
//!
//! The input comes from an operator's configuration, but no input causes a panic. A field that can't be read is `None`.

use std::time::Duration;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate.
const VERSION: u8 = 0xa0;
/// The extensions of a certificate.
const EXTENSIONS: u8 = 0xa3;
/// A DNS name among the alternative names.
const DNS_NAME: u8 = 0x82;
/// 2.5.29.17, the extension with the alternative names.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// The fields of a certificate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Start of the certificate's validity, since 1970.
    pub(super) not_before: Duration,
    /// End of the certificate's validity, since 1970.
    pub(super) not_after: Duration,
    /// DNS names of the certificate, in lower case.
    pub(super) names: Vec<String>,
}

/// Reads a certificate.
pub(super) fn facts(certificate: &[u8]) -> Option<Facts> {
    let mut certificate = Reader(Reader(certificate).expect(SEQUENCE)?);
    let mut body = Reader(certificate.expect(SEQUENCE)?);
    body.skip(VERSION);
    body.expect(INTEGER)?; // serial number
    body.expect(SEQUENCE)?; // algorithm of the signature
    body.expect(SEQUENCE)?; // issuer
    let mut validity = Reader(body.expect(SEQUENCE)?);
    let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
    let mut names = Vec::new();
    while let Some((tag, content)) = body.next() {
        if tag == EXTENSIONS {
            names = alternative_names(content).unwrap_or_default();
        }
    }
    Some(Facts { not_before, not_after, names })
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut extensions = Reader(Reader(extensions).expect(SEQUENCE)?);
    while let Some((SEQUENCE, extension)) = extensions.next() {
        let mut extension = Reader(extension);
        if extension.expect(OID)? != ALTERNATIVE_NAMES {
            continue;
        }
        // The flag `critical` may precede the value.
        let (_, value) = std::iter::from_fn(|| extension.next()).find(|(tag, _)| *tag == OCTET_STRING)?;
        let mut names = Reader(Reader(value).expect(SEQUENCE)?);
        let names = std::iter::from_fn(|| names.next()).filter(|(tag, _)| *tag == DNS_NAME);
        return Some(names.map(|(_, name)| String::from_utf8_lossy(name).to_ascii_lowercase()).collect());
    }
    None
}

/// A sequence of values: tag, length, content.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// Skips an optional value with this tag.
    fn skip(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }
}

/// `YYMMDDHHMMSSZ`, or with four digits of the year (RFC 5280, section 4.1.2.5).
fn time((tag, text): (u8, &[u8])) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year = year.parse::<i64>().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let field = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (field(0)?, field(2)?);
    let seconds = field(4)? * 3600 + field(6)? * 60 + field(8)?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 of the proleptic Gregorian calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (month * 153 + 2) / 5
        + day
        - 719_469;
    // A validity that begins before 1970 has begun.
    Some(Duration::from_secs(u64::try_from(days * 86_400 + seconds).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_unix() {
        let check = |tag, text: &str, expect: Option<u64>| {
            assert_eq!(time((tag, text.as_bytes())), expect.map(Duration::from_secs), "{text}");
        };
        check(UTC_TIME, "700101000000Z", Some(0));
        check(UTC_TIME, "000229120000Z", Some(951_825_600));
        check(UTC_TIME, "491231235959Z", Some(2_524_607_999));
        check(UTC_TIME, "500101000000Z", Some(0));
        check(GENERALIZED_TIME, "20380119031408Z", Some(2_147_483_648));
        check(GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799));
        check(UTC_TIME, "261301000000Z", None);
        check(UTC_TIME, "2612010000Z", None);
        check(UTC_TIME, "261201000000", None);
        check(UTC_TIME, "é61201000000Z", None);
        check(INTEGER, "261201000000Z", None);
    }

    #[test]
    fn a_certificate_is_read_and_its_pieces_never_panic() {
        let mut params =
            rcgen::CertificateParams::new(["Example.com".into(), "*.example.org".into()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 3, 1);
        params.not_after = rcgen::date_time_ymd(2051, 1, 2);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der();
        let expect = Facts {
            not_before: Duration::from_secs(1_583_020_800),
            not_after: Duration::from_secs(2_556_230_400),
            names: vec!["example.com".into(), "*.example.org".into()],
        };
        assert_eq!(facts(der), Some(expect));
        for end in 0..der.len() {
            facts(&der[..end]);
            let mut changed = der.to_vec();
            changed[end] ^= 0xff;
            facts(&changed);
        }
    }
}
