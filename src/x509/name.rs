//! [`Name`]: the identity attributes of a distinguished name (user, groups and UID of a certificate's
//! subject).

use super::Malformed;
use super::der::{Element, OBJECT_IDENTIFIER, Reader, SEQUENCE, SET};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2, Kubernetes' attribute for the user's UID.
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const GRAPHIC_STRING: u8 = 0x19;
const VISIBLE_STRING: u8 = 0x1a;
const GENERAL_STRING: u8 = 0x1b;
const UNIVERSAL_STRING: u8 = 0x1c;
const BMP_STRING: u8 = 0x1e;

/// The attributes of a name that determine an identity, all of them decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    common_names: Vec<String>,
    organizations: Vec<String>,
    uids: Vec<String>,
}

impl Name {
    /// Parses a DER-encoded `Name`.
    ///
    /// # Errors
    /// Fails if the encoding is not strict DER, if any string violates its type, or if a common name,
    /// organization or UID is not text or contains a NUL (other parsers may truncate there).
    pub fn parse(der: &[u8]) -> Result<Self, Malformed> {
        let mut outside = Reader::new(der);
        let mut sets = outside.expect(SEQUENCE)?.inside();
        outside.end()?;
        let mut name = Self::default();
        while !sets.is_empty() {
            let mut set = sets.expect(SET)?.inside();
            while !set.is_empty() {
                let mut attribute = set.expect(SEQUENCE)?.inside();
                let (kind, value) = (attribute.identifier()?, attribute.any()?);
                attribute.end()?;
                let text = text(&value)?;
                let of_kind = match kind {
                    COMMON_NAME => &mut name.common_names,
                    ORGANIZATION => &mut name.organizations,
                    UID => &mut name.uids,
                    // Decoded above although it is not needed: a value that violates its type rejects the
                    // name as a whole.
                    _ => continue,
                };
                let text = text.ok_or(Malformed("x509: an attribute of the subject is not a string"))?;
                if text.contains('\0') {
                    return Err(Malformed("x509: an attribute of the subject holds a NUL"));
                }
                of_kind.push(text);
            }
        }
        Ok(name)
    }

    /// The effective common name: the last one, as in Go. Empty if there is none.
    pub fn common_name(&self) -> &str {
        self.common_names.last().map_or("", String::as_str)
    }

    /// All common names in order.
    pub fn common_names(&self) -> &[String] {
        &self.common_names
    }

    /// All organizations in order.
    pub fn organizations(&self) -> &[String] {
        &self.organizations
    }

    /// All UIDs in order.
    pub fn uids(&self) -> &[String] {
        &self.uids
    }
}

/// Decodes a string value; `None` if the value is not of a string type.
fn text(value: &Element<'_>) -> Result<Option<String>, Malformed> {
    let bytes = value.body;
    let ascii = |allowed: fn(u8) -> bool| {
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|_| bytes.iter().all(|b| allowed(*b)));
        text.map(str::to_owned)
    };
    let text = match value.tag {
        UTF8_STRING => std::str::from_utf8(bytes).ok().map(str::to_owned),
        NUMERIC_STRING => ascii(|b| b.is_ascii_digit() || b == b' '),
        PRINTABLE_STRING => ascii(is_printable),
        IA5_STRING => ascii(|b| b.is_ascii()),
        // Restricted to printable ASCII: escape sequences could switch the character set of graphic and
        // general strings.
        VISIBLE_STRING | GRAPHIC_STRING | GENERAL_STRING => ascii(|b| matches!(b, b' '..=b'~')),
        // T.61 strings are read as Latin-1, as other implementations do in practice.
        TELETEX_STRING => Some(bytes.iter().map(|b| char::from(*b)).collect()),
        BMP_STRING => wide::<2>(bytes),
        UNIVERSAL_STRING => wide::<4>(bytes),
        // A constructed string is split into pieces, which DER forbids.
        tag if tag & 0x20 != 0 || tag & 0xc0 != 0 => return Err(Malformed("x509: invalid attribute value")),
        OBJECT_IDENTIFIER => {
            Reader::new(value.whole).identifier()?;
            return Ok(None);
        }
        _ => return Ok(None),
    };
    text.map(Some)
        .ok_or(Malformed("x509: a string of the subject is not what its type allows"))
}

/// Decodes big-endian characters of `N` bytes. Surrogate halves are rejected.
fn wide<const N: usize>(bytes: &[u8]) -> Option<String> {
    let (chunks, rest) = bytes.as_chunks::<N>();
    let char = |chunk: &[u8; N]| char::from_u32(chunk.iter().fold(0, |n, b| n << 8 | u32::from(*b)));
    rest.is_empty().then(|| chunks.iter().map(char).collect()).flatten()
}

/// The PrintableString alphabet of ASN.1, plus `*` and `&`, which Go accepts because existing certificates
/// contain them.
fn is_printable(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{attribute, name, tlv};
    use super::*;

    fn organization(tag: u8, bytes: &[u8]) -> Result<Vec<String>, Malformed> {
        let der = name(&[attribute(ORGANIZATION, tag, bytes)]);
        Name::parse(&der).map(|n| n.organizations)
    }

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_be_bytes).collect()
    }

    fn utf32(text: &str) -> Vec<u8> {
        text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect()
    }

    #[test]
    fn every_string_type_is_decoded() {
        let masters = "system:masters";
        for tag in [
            UTF8_STRING,
            PRINTABLE_STRING,
            TELETEX_STRING,
            IA5_STRING,
            GRAPHIC_STRING,
            VISIBLE_STRING,
            GENERAL_STRING,
        ] {
            assert_eq!(
                organization(tag, masters.as_bytes()),
                Ok(vec![masters.to_owned()]),
                "{tag:#x}"
            );
        }
        assert_eq!(organization(BMP_STRING, &utf16(masters)), Ok(vec![masters.to_owned()]));
        assert_eq!(
            organization(UNIVERSAL_STRING, &utf32(masters)),
            Ok(vec![masters.to_owned()])
        );
        assert_eq!(organization(NUMERIC_STRING, b"4 2"), Ok(vec!["4 2".to_owned()]));
        assert_eq!(organization(TELETEX_STRING, &[0xe9]), Ok(vec!["é".to_owned()]));
        assert_eq!(organization(UTF8_STRING, b""), Ok(vec![String::new()]));
    }

    #[test]
    fn undecodable_values_are_rejected() {
        let masters = b"system:masters";
        for (tag, bytes) in [
            (UTF8_STRING, &b"\xff"[..]),
            (NUMERIC_STRING, masters),
            (PRINTABLE_STRING, b"a_b"),
            (IA5_STRING, b"\x80"),
            (VISIBLE_STRING, b"a\n"),
            (GENERAL_STRING, b"\x1b(J"),
            (BMP_STRING, masters[..13].as_ref()),
            (BMP_STRING, b"\xd8\x00"),
            (UNIVERSAL_STRING, b"\0\0\0s\0\0\0"),
            (UNIVERSAL_STRING, b"\x00\x11\x00\x00"),
            (0x04, masters),
            (0x15, masters),
            (0x01, b"\xff"),
            (0x80, masters),
            (0x2c, b"\x0c\x00"),
            (0x30, b""),
        ] {
            assert!(organization(tag, bytes).is_err(), "{tag:#x} {bytes:?}");
        }
        // Go strips a NUL terminator from a BMPString and C truncates at one, so NULs are rejected.
        let ended = utf16("system:masters\0");
        assert!(organization(BMP_STRING, &ended).is_err());
        assert!(organization(UTF8_STRING, b"system:masters\0x").is_err());
    }

    #[test]
    fn attributes_of_all_sets_are_collected() {
        let unit: &[u8] = &[0x55, 0x04, 0x0b];
        let pair = [
            attribute(COMMON_NAME, UTF8_STRING, b"first"),
            attribute(ORGANIZATION, UTF8_STRING, b"a"),
        ]
        .concat();
        let der = name(&[
            pair,
            attribute(unit, 0x03, b"\0\x01"),
            attribute(ORGANIZATION, TELETEX_STRING, b"b"),
            attribute(COMMON_NAME, PRINTABLE_STRING, b"last"),
            attribute(UID, UTF8_STRING, b"u"),
        ]);
        let read = Name::parse(&der).unwrap();
        assert_eq!((read.common_name(), read.common_names().len()), ("last", 2));
        assert_eq!(
            (read.organizations(), read.uids()),
            (&["a".to_owned(), "b".to_owned()][..], &["u".to_owned()][..])
        );
    }

    #[test]
    fn extra_data_around_a_name_is_rejected() {
        let good = name(&[attribute(ORGANIZATION, UTF8_STRING, b"a")]);
        assert!(Name::parse(&good).is_ok());
        assert!(
            Name::parse(&[&good[..], b"\x05\x00"].concat()).is_err(),
            "data after the name"
        );
        let twice = tlv(
            SEQUENCE,
            &[
                tlv(OBJECT_IDENTIFIER, ORGANIZATION),
                tlv(UTF8_STRING, b"a"),
                tlv(UTF8_STRING, b"b"),
            ]
            .concat(),
        );
        assert!(Name::parse(&name(&[twice])).is_err(), "an attribute with two values");
        let spelled = attribute(&[0x55, 0x80, 0x04, 0x0a], UTF8_STRING, b"system:masters");
        assert!(
            Name::parse(&name(&[spelled])).is_err(),
            "an identifier with a padded arc"
        );
    }
}
