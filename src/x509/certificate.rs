//! [`Draft`]: an end-entity certificate (RFC 5280), encoded for its issuer to sign. Encoded by hand, so that
//! subject and names are copied unchanged from a request.

use super::AlternativeName;
use super::der::{BIT_STRING, BOOLEAN, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};
use time::OffsetDateTime;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The purposes of a key as the certificates API names them, and their bits in the extension KeyUsage.
const KEY_USAGES: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];
/// The same, with the last arc of their identifiers below id-kp (1.3.6.1.5.5.7.3).
const PURPOSES: [(&str, u8); 10] = [
    ("server auth", 1),
    ("client auth", 2),
    ("code signing", 3),
    ("email protection", 4),
    ("s/mime", 4),
    ("ipsec end system", 5),
    ("ipsec tunnel", 6),
    ("ipsec user", 7),
    ("timestamping", 8),
    ("ocsp signing", 9),
];
const KEY_PURPOSE: [u8; 7] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03];
const ANY_PURPOSE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
const OTHER_PURPOSES: [(&str, &[u8]); 2] = [
    (
        "microsoft sgc",
        &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x0a, 0x03, 0x03],
    ),
    ("netscape sgc", &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x04, 0x01]),
];

/// The content of a certificate. Fields in DER are copied unchanged.
pub(crate) struct Draft<'a> {
    /// Unique for each certificate of the issuer, big-endian.
    pub(crate) serial: [u8; 16],
    /// The issuer's signature algorithm, DER.
    pub(crate) algorithm: &'a [u8],
    /// The issuer's subject, DER.
    pub(crate) issuer: &'a [u8],
    /// The identifier of the issuer's key; empty if it has none.
    pub(crate) issuer_key: &'a [u8],
    /// Start of the validity, inclusive.
    pub(crate) not_before: OffsetDateTime,
    /// End of the validity, inclusive.
    pub(crate) not_after: OffsetDateTime,
    /// The distinguished name of the subject, DER.
    pub(crate) subject: &'a [u8],
    /// The subject's public key with its algorithm, DER.
    pub(crate) key: &'a [u8],
    /// The subject's other names.
    pub(crate) names: &'a [AlternativeName],
    /// The usages of the key, by their names in the certificates API.
    pub(crate) usages: &'a [&'a str],
}

/// An element of this tag.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|p| p.len()).sum();
    let mut out = vec![tag];
    match length {
        0..0x80 => out.push(length as u8),
        _ => {
            let bytes = length.to_be_bytes();
            let significant = &bytes[length.leading_zeros() as usize / 8..];
            out.push(0x80 | significant.len() as u8);
            out.extend_from_slice(significant);
        }
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

fn identifier(arcs: &[u8]) -> Vec<u8> {
    element(OBJECT_IDENTIFIER, &[arcs])
}

/// A non-negative integer.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    let significant = &bytes[zeros.min(bytes.len().saturating_sub(1))..];
    // A set top bit would make the integer negative; no bytes at all would be invalid DER.
    let pad: &[u8] = match significant.first() {
        Some(first) if first & 0x80 == 0 => &[],
        _ => &[0],
    };
    element(INTEGER, &[pad, significant])
}

/// A time: in two digits of the year up to 2049.
fn time(at: OffsetDateTime) -> Vec<u8> {
    let at = at.to_offset(time::UtcOffset::UTC);
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    );
    match at.year() {
        year @ 1950..2050 => element(UTC_TIME, &[format!("{:02}{rest}", year % 100).as_bytes()]),
        year => element(GENERALIZED_TIME, &[format!("{year:04}{rest}").as_bytes()]),
    }
}

fn extension(id: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    // All are below id-ce (2.5.29).
    let id = identifier(&[0x55, 0x1d, id]);
    // FALSE is the default and must be absent in DER.
    let flag = if critical {
        element(BOOLEAN, &[&[0xff]])
    } else {
        Vec::new()
    };
    element(SEQUENCE, &[&id, &flag, &element(OCTET_STRING, &[value])])
}

impl Draft<'_> {
    /// The part that is signed.
    pub(crate) fn to_be_signed(&self) -> Vec<u8> {
        // Version 3, counted from zero.
        let version = element(0xa0, &[&integer(&[2])]);
        let validity = element(SEQUENCE, &[&time(self.not_before), &time(self.not_after)]);
        let extensions = element(0xa3, &[&element(SEQUENCE, &[&self.extensions()])]);
        let parts: [&[u8]; 8] = [
            &version,
            &integer(&self.serial),
            self.algorithm,
            self.issuer,
            &validity,
            self.subject,
            self.key,
            &extensions,
        ];
        element(SEQUENCE, &parts)
    }

    /// The certificate, DER.
    pub(crate) fn signed(&self, to_be_signed: &[u8], signature: &[u8]) -> Vec<u8> {
        // The leading zero is the number of unused bits.
        let signature = element(BIT_STRING, &[&[0], signature]);
        element(SEQUENCE, &[to_be_signed, self.algorithm, &signature])
    }

    fn extensions(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let bits = KEY_USAGES.iter().filter(|(name, _)| self.usages.contains(name));
        // Bit 0 is the most significant one of the first byte.
        let bits = bits.fold(0u16, |bits, (_, bit)| bits | 0x8000 >> bit);
        if bits != 0 {
            let bytes = bits.to_be_bytes();
            let bytes = if bytes[1] == 0 { &bytes[..1] } else { &bytes[..] };
            let last = bytes[bytes.len() - 1];
            // DER drops trailing zero bits of a named bit list.
            let unused = [last.trailing_zeros() as u8];
            all.extend(extension(0x0f, true, &element(BIT_STRING, &[&unused, bytes])));
        }
        let purposes = self.purposes();
        if !purposes.is_empty() {
            all.extend(extension(0x25, false, &element(SEQUENCE, &[&purposes])));
        }
        // Basic constraints: not a CA.
        all.extend(extension(0x13, true, &element(SEQUENCE, &[])));
        if !self.issuer_key.is_empty() {
            let id = element(0x80, &[self.issuer_key]);
            all.extend(extension(0x23, false, &element(SEQUENCE, &[&id])));
        }
        let names: Vec<u8> = self.names.iter().flat_map(|n| element(n.tag, &[&n.value])).collect();
        if !names.is_empty() {
            // RFC 5280: alternative names are critical if they are the only identity.
            let subject_is_empty = self.subject == [SEQUENCE, 0];
            all.extend(extension(0x11, subject_is_empty, &element(SEQUENCE, &[&names])));
        }
        all
    }

    fn purposes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        if self.usages.contains(&"any") {
            all.extend(identifier(ANY_PURPOSE));
        }
        let mut arcs: Vec<u8> = PURPOSES
            .iter()
            .filter(|(name, _)| self.usages.contains(name))
            .map(|(_, arc)| *arc)
            .collect();
        // "email protection" and "s/mime" share an identifier and are neighbours in the table.
        arcs.dedup();
        for arc in arcs {
            all.extend(element(OBJECT_IDENTIFIER, &[&KEY_PURPOSE, &[arc]]));
        }
        for (_, id) in OTHER_PURPOSES.iter().filter(|(name, _)| self.usages.contains(name)) {
            all.extend(identifier(id));
        }
        all
    }
}
