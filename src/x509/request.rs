//! [`CertificateRequest`]: certificate signing requests (PKCS #10), with their signature verified.

use super::der::{BOOLEAN, OCTET_STRING, Reader, SEQUENCE, SET};
use super::{Malformed, Name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashSet;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// The PKCS #9 extension request attribute, and Microsoft's older one, which OpenSSL treats alike.
const EXTENSION_REQUESTS: [&[u8]; 2] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e],
    &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x01, 0x0e],
];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// A request whose signature has been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The subject the certificate is requested for.
    pub subject: Name,
    /// The same, DER.
    pub subject_der: Vec<u8>,
    /// The public key with its algorithm, DER.
    pub key_der: Vec<u8>,
    /// The requested alternative names that are mail or IP addresses, DNS names or URIs.
    pub names: Vec<AlternativeName>,
}

/// A subject alternative name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlternativeName {
    /// The kind, as DER tags it.
    pub tag: u8,
    /// The content, DER.
    pub value: Vec<u8>,
}

impl AlternativeName {
    /// The tag of mail addresses.
    pub const EMAIL: u8 = 0x81;
    /// The tag of DNS names.
    pub const DNS: u8 = 0x82;
    /// The tag of URIs.
    pub const URI: u8 = 0x86;
    /// The tag of IP addresses.
    pub const IP: u8 = 0x87;
}

impl CertificateRequest {
    /// Parses the content of `spec.request`: a single PEM block without headers, surrounded by nothing but white
    /// space. Verifies the request's own signature, which proves possession of the private key.
    ///
    /// # Errors
    /// [`Malformed`], with upstream's message where it has one.
    pub fn from_pem(text: &[u8]) -> Result<Self, Malformed> {
        let der = only_block(text).ok_or(Malformed("PEM block type must be CERTIFICATE REQUEST"))?;
        Self::from_der(&der)
    }

    fn from_der(der: &[u8]) -> Result<Self, Malformed> {
        let mut outside = Reader::new(der);
        let mut request = outside.expect(SEQUENCE)?.inside();
        outside.end()?;
        let info = request.expect(SEQUENCE)?;
        let algorithm = request.expect(SEQUENCE)?;
        let signature = request.whole_bytes()?;
        request.end()?;

        let mut fields = info.inside();
        // The version, of which only the encoding is checked.
        fields.integer()?;
        let subject_der = fields.expect(SEQUENCE)?.whole;
        let subject = Name::parse(subject_der)?;
        let whole_key = fields.expect(SEQUENCE)?;
        let mut key = whole_key.inside();
        let attributes = fields.expect(0xa0)?;
        fields.end()?;
        let (key_algorithm, public_key) = (key.expect(SEQUENCE)?, key.whole_bytes()?);
        key.end()?;
        let names = extensions(attributes.inside())?;

        let signed = Signed {
            message: info.whole,
            algorithm: algorithm.body,
            signature,
        };
        signed.verify(key_algorithm.body, public_key)?;
        Ok(Self {
            subject,
            subject_der: subject_der.to_vec(),
            key_der: whole_key.whole.to_vec(),
            names,
        })
    }
}

/// Decodes the only PEM block of a text. Go's `pem.Decode` skips data it cannot use before, inside and after a block,
/// and other parsers skip other data. To rule out different interpretations, nothing is skipped here: no headers, no
/// second block, no text but white space. Lines may have any length and trailing spaces.
fn only_block(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.trim_ascii().lines().map(str::trim_ascii_end);
    let (first, last) = (lines.next()?, lines.next_back()?);
    if first != BEGIN || last != END {
        return None;
    }
    // PEM boundaries and headers contain characters outside the base64 alphabet, so a stray one fails to decode.
    STANDARD.decode(lines.collect::<String>()).ok()
}

/// A signature with its algorithm and the signed message.
pub(super) struct Signed<'a> {
    pub message: &'a [u8],
    pub algorithm: &'a [u8],
    pub signature: &'a [u8],
}

impl Signed<'_> {
    pub fn verify(&self, key_algorithm: &[u8], public_key: &[u8]) -> Result<(), Malformed> {
        let mut known = webpki::ALL_VERIFICATION_ALGS.iter().filter(|a| {
            a.public_key_alg_id().as_ref() == key_algorithm && a.signature_alg_id().as_ref() == self.algorithm
        });
        let algorithm = known
            .next()
            .ok_or(Malformed("x509: cannot verify signature: algorithm unimplemented"))?;
        let verified = algorithm.verify_signature(public_key, self.message, self.signature);
        verified.map_err(|_| Malformed("x509: the request's signature is not one of its key"))
    }
}

/// Parses the requested extensions completely: no duplicates, well-formed subject alternative names, which it returns.
fn extensions(mut attributes: Reader<'_>) -> Result<Vec<AlternativeName>, Malformed> {
    let mut names = Vec::new();
    let mut seen = HashSet::new();
    while !attributes.is_empty() {
        let mut attribute = attributes.expect(SEQUENCE)?.inside();
        let kind = attribute.identifier()?;
        let mut values = attribute.expect(SET)?.inside();
        attribute.end()?;
        // Other attributes, such as a challenge password, do not affect the certificate.
        if !EXTENSION_REQUESTS.contains(&kind) {
            continue;
        }
        let mut all = values.expect(SEQUENCE)?.inside();
        values.end()?;
        while !all.is_empty() {
            let mut extension = all.expect(SEQUENCE)?.inside();
            let kind = extension.identifier()?;
            if extension.peek() == Some(BOOLEAN) && !matches!(extension.any()?.body, [0 | 0xff]) {
                return Err(Malformed("asn1: syntax error: invalid boolean"));
            }
            let value = extension.expect(OCTET_STRING)?.body;
            extension.end()?;
            if !seen.insert(kind) {
                return Err(Malformed(
                    "x509: certificate request contains duplicate requested extensions",
                ));
            }
            if kind == ALTERNATIVE_NAMES {
                names = alternative_names(value)?;
            }
        }
    }
    Ok(names)
}

/// Names must be printable ASCII, because parsers may truncate at control characters; IP addresses must be 4 or 16
/// bytes long.
fn alternative_names(der: &[u8]) -> Result<Vec<AlternativeName>, Malformed> {
    let mut outside = Reader::new(der);
    let mut names = outside.expect(SEQUENCE)?.inside();
    outside.end()?;
    let mut known = Vec::new();
    while !names.is_empty() {
        let name = names.any()?;
        let is_text = || name.body.iter().all(|b| matches!(b, b' '..=b'~'));
        match name.tag {
            AlternativeName::EMAIL if !is_text() => return Err(Malformed("x509: SAN rfc822Name is malformed")),
            AlternativeName::DNS if !is_text() => return Err(Malformed("x509: SAN dNSName is malformed")),
            AlternativeName::URI if !is_text() => {
                return Err(Malformed("x509: SAN uniformResourceIdentifier is malformed"));
            }
            AlternativeName::IP if !matches!(name.body.len(), 4 | 16) => {
                return Err(Malformed("x509: cannot parse IP address of invalid length"));
            }
            AlternativeName::EMAIL | AlternativeName::DNS | AlternativeName::URI | AlternativeName::IP => {
                known.push(AlternativeName {
                    tag: name.tag,
                    value: name.body.to_vec(),
                });
            }
            0x88 | 0xa0 | 0xa3 | 0xa4 | 0xa5 => {}
            _ => return Err(Malformed("x509: invalid subject alternative name")),
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, COMMON_NAME, EXTENSION_REQUEST, ORGANIZATION, attribute, name, tlv};
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn read(text: &str) -> Result<CertificateRequest, Malformed> {
        CertificateRequest::from_pem(text.as_bytes())
    }

    fn subject() -> Vec<u8> {
        name(&[attribute(COMMON_NAME, 0x0c, b"jane")])
    }

    fn asking_for(extensions: &[(&[u8], &[u8])]) -> Result<CertificateRequest, Malformed> {
        CertificateRequest::from_der(&testing::request(&subject(), &testing::extension_request(extensions)))
    }

    #[test]
    fn common_requests_are_accepted() {
        let algorithms = [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ED25519,
            &rcgen::PKCS_RSA_SHA256,
        ];
        for algorithm in algorithms {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
            params.distinguished_name.push(DnType::CommonName, "system:node:n");
            params.subject_alt_names = vec![
                SanType::DnsName("n.example.com".try_into().unwrap()),
                SanType::IpAddress("fd00::1".parse().unwrap()),
                SanType::URI("https://n.example.com/".try_into().unwrap()),
                SanType::Rfc822Name("n@example.com".try_into().unwrap()),
            ];
            let key = KeyPair::generate_for(algorithm).unwrap();
            let pem = params.serialize_request(&key).unwrap().pem().unwrap();
            let request = read(&pem).unwrap();
            assert_eq!(request.subject.common_name(), "system:node:n");
            assert_eq!(request.subject.organizations(), ["system:nodes"]);
            assert!(
                read(&pem.replace('\n', "\r\n")).is_ok(),
                "CRLF line endings are accepted"
            );
        }
    }

    #[test]
    fn invalid_signatures_are_rejected() {
        let mut der = testing::request(&subject(), &[]);
        assert!(CertificateRequest::from_der(&der).is_ok());
        let at = der.windows(4).position(|w| w == b"jane").unwrap();
        der[at] = b'J';
        assert_eq!(
            CertificateRequest::from_der(&der),
            Err(Malformed("x509: the request's signature is not one of its key"))
        );
    }

    #[test]
    fn extra_data_around_the_request_is_rejected() {
        let good = testing::csr(ORGANIZATION, 0x0c, b"demo");
        let masters = testing::csr(ORGANIZATION, 0x0c, b"system:masters");
        assert!(read(&good).is_ok());
        assert!(
            read(&format!("\n{good}\n")).is_ok(),
            "surrounding white space is accepted"
        );
        for bad in [
            format!("{good}{masters}"),
            format!("{masters}junk"),
            format!("junk\n{good}"),
            good.replace("REQUEST-----\nMI", "REQUEST-----\nProc-Type: 4,ENCRYPTED\n\nMI"),
            good.replacen("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST", 2),
            good.replacen("-----END CERTIFICATE REQUEST", "-----END CERTIFICATE", 1),
        ] {
            let refused = read(&bad).unwrap_err();
            assert_eq!(refused.0, "PEM block type must be CERTIFICATE REQUEST", "{bad}");
        }
        let der = testing::request(&subject(), &[]);
        let followed = [&der[..], b"\x05\x00"].concat();
        assert!(
            CertificateRequest::from_der(&followed).is_err(),
            "data after the request"
        );
    }

    #[test]
    fn extensions_are_parsed_completely() {
        let usage: &[u8] = &[0x55, 0x1d, 0x0f];
        let names = |names: &[Vec<u8>]| tlv(SEQUENCE, &names.concat());
        let good = names(&[
            tlv(0x82, b"a.example.com"),
            tlv(0x87, &[10, 0, 0, 1]),
            tlv(0x81, b"a@example.com"),
            tlv(0x86, b"https://a"),
        ]);
        assert!(asking_for(&[(ALTERNATIVE_NAMES, &good), (usage, b"\x03\x02\x05\xa0")]).is_ok());
        assert_eq!(
            asking_for(&[(ALTERNATIVE_NAMES, &good), (ALTERNATIVE_NAMES, &good)]),
            Err(Malformed(
                "x509: certificate request contains duplicate requested extensions"
            ))
        );
        for bad in [
            names(&[tlv(0x87, &[10, 0, 0])]),
            names(&[tlv(0x82, b"a\0.evil")]),
            names(&[tlv(0x81, b"a\x80")]),
            names(&[tlv(0x86, b"https://\n")]),
            names(&[tlv(0x0c, b"a")]),
            [good.clone(), vec![5, 0]].concat(),
        ] {
            assert!(asking_for(&[(ALTERNATIVE_NAMES, &bad)]).is_err(), "{bad:?}");
        }
        let twice = [
            testing::extension_request(&[(ALTERNATIVE_NAMES, &good)]),
            testing::extension_request(&[(ALTERNATIVE_NAMES, &good)]),
        ];
        let der = testing::request(&subject(), &twice.concat());
        assert!(
            CertificateRequest::from_der(&der).is_err(),
            "two attributes requesting the same extension"
        );
        let second_value = tlv(
            SEQUENCE,
            &[
                tlv(super::super::der::OBJECT_IDENTIFIER, EXTENSION_REQUEST),
                tlv(SET, &[tlv(SEQUENCE, &[]), tlv(SEQUENCE, &[])].concat()),
            ]
            .concat(),
        );
        let der = testing::request(&subject(), &second_value);
        assert!(
            CertificateRequest::from_der(&der).is_err(),
            "a second attribute value, which Go ignores"
        );
    }
}
