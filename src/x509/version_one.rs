//! [`VersionOne`]: X.509 certificates of version 1, as `openssl x509 -req` makes them without extensions. The
//! TLS library and its verifier support version 3 only.

use super::Malformed;
use super::der::{Reader, SEQUENCE};
use super::request::Signed;

/// A certificate of version 1, parsed but not verified. It has no extensions, so it can be used for any
/// purpose but is never a CA.
pub(crate) struct VersionOne<'a> {
    signed: Signed<'a>,
    /// The content of the issuer's name.
    issuer: &'a [u8],
    /// The encoded public key with its algorithm.
    pub(crate) key: &'a [u8],
}

impl<'a> VersionOne<'a> {
    /// Parses a certificate.
    ///
    /// # Errors
    /// [`Malformed`], also for certificates of other versions.
    pub(crate) fn parse(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut outside = Reader::new(der);
        let mut certificate = outside.expect(SEQUENCE)?.inside();
        outside.end()?;
        let content = certificate.expect(SEQUENCE)?;
        let algorithm = certificate.expect(SEQUENCE)?;
        let signature = certificate.whole_bytes()?;
        certificate.end()?;

        let mut fields = content.inside();
        // The serial number comes first: version 1 is stated by leaving it out.
        fields.integer()?;
        // Only the inner identifier is signed; accepting a different outer one would let an attacker choose
        // the algorithm.
        if fields.expect(SEQUENCE)?.body != algorithm.body {
            return Err(Malformed(
                "x509: inner and outer signature algorithm identifiers don't match",
            ));
        }
        let issuer = fields.expect(SEQUENCE)?.body;
        let (_validity, _subject) = (fields.expect(SEQUENCE)?, fields.expect(SEQUENCE)?);
        let key = fields.expect(SEQUENCE)?.whole;
        fields.end()?;
        Ok(Self {
            signed: Signed {
                message: content.whole,
                algorithm: algorithm.body,
                signature,
            },
            issuer,
            key,
        })
    }

    /// Whether the CA with this subject and public key issued the certificate. Both are contents without
    /// their tags, as in trust anchors.
    pub(crate) fn is_issued_by(&self, subject: &[u8], key: &[u8]) -> bool {
        let mut key = Reader::new(key);
        let (Ok(algorithm), Ok(public)) = (key.expect(SEQUENCE), key.whole_bytes()) else {
            return false;
        };
        subject == self.issuer && self.signed.verify(algorithm.body, public).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::testing::version_one;

    const UNTIL: &str = "490101000000Z";

    #[test]
    fn only_certificates_of_version_1_are_parsed() {
        let certificate = version_one("ann", UNTIL).certificate;
        assert!(VersionOne::parse(&certificate).is_ok());
        let third = rcgen::generate_simple_self_signed(["ann".to_owned()]).unwrap();
        assert!(VersionOne::parse(third.cert.der()).is_err());
        let trailing = [&certificate[..], &[0]].concat();
        assert!(VersionOne::parse(&trailing).is_err());
    }

    #[test]
    fn the_issuer_and_its_key_must_both_match() {
        let (ours, theirs) = (version_one("ann", UNTIL), version_one("ann", UNTIL));
        let parsed = VersionOne::parse(&ours.certificate).unwrap();
        let anchor = webpki::anchor_from_trusted_cert(&ours.ca).unwrap();
        let wrong = webpki::anchor_from_trusted_cert(&theirs.ca).unwrap();
        assert!(parsed.is_issued_by(&anchor.subject, &anchor.subject_public_key_info));
        assert!(!parsed.is_issued_by(&anchor.subject, &wrong.subject_public_key_info));
        assert!(!parsed.is_issued_by(b"", &anchor.subject_public_key_info));
    }
}
