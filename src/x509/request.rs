//! [`CertificateRequest`]: certificate signing requests (PKCS #10), with their signature verified. Nothing is
//! skipped or tolerated in the input; what a subject may be is decided by the callers.

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
    pub(crate) subject_der: Vec<u8>,
    /// The public key with its algorithm, DER.
    pub(crate) key_der: Vec<u8>,
    /// The requested alternative names that are mail or IP addresses, DNS names or URIs.
    pub(crate) names: Vec<AlternativeName>,
}

/// A subject alternative name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AlternativeName {
    /// The kind, as DER tags it.
    pub(crate) tag: u8,
    /// The content, DER.
    pub(crate) value: Vec<u8>,
}

impl AlternativeName {
    /// The tag of mail addresses.
    pub(crate) const EMAIL: u8 = 0x81;
    /// The tag of DNS names.
    pub(crate) const DNS: u8 = 0x82;
    /// The tag of URIs.
    pub(crate) const URI: u8 = 0x86;
    /// The tag of IP addresses.
    pub(crate) const IP: u8 = 0x87;
}

impl CertificateRequest {
    /// Parses the content of `spec.request`: a single PEM block without headers, surrounded by nothing but
    /// white space. Verifies the request's own signature, which proves possession of the private key.
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
        // Last, because it is the expensive part; nothing of the request is used before.
        signed.verify(key_algorithm.body, public_key)?;
        Ok(Self {
            subject,
            subject_der: subject_der.to_vec(),
            key_der: whole_key.whole.to_vec(),
            names,
        })
    }
}

/// Decodes the only PEM block of a text. Go's `pem.Decode` skips data it cannot use before, inside and after
/// a block, and other parsers skip other data. To rule out different interpretations, nothing is skipped
/// here: no headers, no second block, no text but white space. Lines may have any length and trailing spaces.
fn only_block(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.trim_ascii().lines().map(str::trim_ascii_end);
    // A request of one line has no last line and is refused.
    let (first, last) = (lines.next()?, lines.next_back()?);
    if first != BEGIN || last != END {
        return None;
    }
    // PEM boundaries and headers contain characters outside the base64 alphabet, so a stray one fails to
    // decode.
    STANDARD.decode(lines.collect::<String>()).ok()
}

/// A signature with its algorithm and the signed message.
pub(super) struct Signed<'a> {
    pub(crate) message: &'a [u8],
    pub(crate) algorithm: &'a [u8],
    pub(crate) signature: &'a [u8],
}

impl Signed<'_> {
    pub(crate) fn verify(&self, key_algorithm: &[u8], public_key: &[u8]) -> Result<(), Malformed> {
        let mut known = webpki::ALL_VERIFICATION_ALGS.iter().filter(|a| {
            // Both identifiers must match, parameters included: the key's alone would allow a signature
            // algorithm of another type.
            a.public_key_alg_id().as_ref() == key_algorithm && a.signature_alg_id().as_ref() == self.algorithm
        });
        let algorithm = known
            .next()
            .ok_or(Malformed("x509: cannot verify signature: algorithm unimplemented"))?;
        let verified = algorithm.verify_signature(public_key, self.message, self.signature);
        verified.map_err(|_| Malformed("x509: the request's signature is not one of its key"))
    }
}

/// Parses the requested extensions completely: no duplicates, well-formed subject alternative names, which it
/// returns.
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
            // Across attributes, too: two extension requests could carry one name each, and parsers differ on
            // which counts.
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

/// Names must be printable ASCII, because parsers may truncate at control characters; IP addresses must be 4
/// or 16 bytes long.
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
            // Registered id, otherName, x400Address, directoryName, ediPartyName: upstream's parser skips
            // them, so they are neither checked nor copied into a certificate.
            0x88 | 0xa0 | 0xa3 | 0xa4 | 0xa5 => {}
            _ => return Err(Malformed("x509: invalid subject alternative name")),
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests;
