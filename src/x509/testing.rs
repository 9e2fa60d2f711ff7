//! Builds DER by hand, for requests that no library would produce.

use super::der::{BIT_STRING, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, SET};
use super::pem;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::CertificateDer;

/// OID of the organization attribute.
pub(crate) const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// OID of the common name attribute.
pub(crate) const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// OID of the PKCS #9 extension request attribute.
pub(crate) const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];

const EC_P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
const ECDSA_SHA256: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// Encodes an element of up to 64 KiB.
pub(crate) fn tlv(tag: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len()).unwrap().to_be_bytes();
    let header = match body.len() {
        0..=0x7f => vec![tag, low],
        0x80..=0xff => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [&header, body].concat()
}

/// Encodes an attribute of a name.
pub(crate) fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    tlv(SEQUENCE, &[tlv(OBJECT_IDENTIFIER, kind), tlv(tag, value)].concat())
}

/// Encodes a name from sets of attributes.
pub(crate) fn name(sets: &[Vec<u8>]) -> Vec<u8> {
    tlv(
        SEQUENCE,
        &sets.iter().flat_map(|set| tlv(SET, set)).collect::<Vec<u8>>(),
    )
}

/// Encodes an extension request attribute.
pub(crate) fn extension_request(extensions: &[(&[u8], &[u8])]) -> Vec<u8> {
    let each =
        |(kind, value): &(&[u8], &[u8])| tlv(SEQUENCE, &[tlv(OBJECT_IDENTIFIER, kind), tlv(0x04, value)].concat());
    let all = tlv(SEQUENCE, &extensions.iter().flat_map(each).collect::<Vec<u8>>());
    tlv(
        SEQUENCE,
        &[tlv(OBJECT_IDENTIFIER, EXTENSION_REQUEST), tlv(SET, &all)].concat(),
    )
}

/// A new P-256 key, and its encoded public key.
fn p256() -> (EcdsaKeyPair, Vec<u8>) {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
    let point = [&[0], key.public_key().as_ref()].concat();
    let spki = tlv(SEQUENCE, &[EC_P256.to_vec(), tlv(BIT_STRING, &point)].concat());
    (key, spki)
}

/// Encodes signed content with its signature.
fn signed(key: &EcdsaKeyPair, content: Vec<u8>) -> Vec<u8> {
    let signature = key.sign(&aws_lc_rs::rand::SystemRandom::new(), &content).unwrap();
    let signature = tlv(BIT_STRING, &[&[0], signature.as_ref()].concat());
    tlv(SEQUENCE, &[content, ECDSA_SHA256.to_vec(), signature].concat())
}

/// Encodes a request signed with a new P-256 key.
pub(crate) fn request(subject: &[u8], attributes: &[u8]) -> Vec<u8> {
    let (key, spki) = p256();
    let info = [tlv(INTEGER, &[0]), subject.to_vec(), spki, tlv(0xa0, attributes)].concat();
    signed(&key, tlv(SEQUENCE, &info))
}

/// A CA and a certificate that it issued, both of version 1.
pub(crate) struct IssuedVersionOne {
    pub(crate) ca: CertificateDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    /// The certificate's key in PKCS #8.
    pub(crate) key: Vec<u8>,
}

/// Issues a certificate from 2020 until a time in the form `YYMMDDhhmmssZ`.
pub(crate) fn version_one(common_name: &str, until: &str) -> IssuedVersionOne {
    let ((ca_key, ca_spki), (key, spki)) = (p256(), p256());
    let named = |cn: &str| name(&[attribute(COMMON_NAME, 0x0c, cn.as_bytes())]);
    let validity = [tlv(0x17, b"200101000000Z"), tlv(0x17, until.as_bytes())].concat();
    let issue = |subject: &str, spki: &[u8]| {
        let content = [
            tlv(INTEGER, &[1]),
            ECDSA_SHA256.to_vec(),
            named("ca"),
            tlv(SEQUENCE, &validity),
            named(subject),
            spki.to_vec(),
        ];
        CertificateDer::from(signed(&ca_key, tlv(SEQUENCE, &content.concat())))
    };
    IssuedVersionOne {
        ca: issue("ca", &ca_spki),
        certificate: issue(common_name, &spki),
        key: key.to_pkcs8v1().unwrap().as_ref().to_vec(),
    }
}

/// Encodes a signed request in PEM whose subject has a single attribute.
pub(crate) fn csr(kind: &[u8], tag: u8, value: &[u8]) -> String {
    pem::encode(
        "CERTIFICATE REQUEST",
        &request(&name(&[attribute(kind, tag, value)]), &[]),
    )
}
