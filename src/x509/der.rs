//! A strict DER reader. Encodings other than the canonical one are errors, so that two parsers cannot read
//! the same bytes differently. Entry point: [`Reader`].

use super::Malformed;

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// A tag-length-value element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    /// Class, constructed bit and number in one byte.
    pub tag: u8,
    pub body: &'a [u8],
    /// The encoded element, including tag and length.
    pub whole: &'a [u8],
}

/// Reads consecutive elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Element<'a> {
    /// A reader over the element's content.
    pub(crate) fn inside(&self) -> Reader<'a> {
        Reader(self.body)
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Returns the next element, with any tag.
    pub(crate) fn any(&mut self) -> Result<Element<'a>, Malformed> {
        let bytes = self.0;
        let [tag, first, rest @ ..] = bytes else {
            return Err(Malformed("asn1: syntax error: data truncated"));
        };
        // None of the structures read here has multi-byte tags.
        if tag & 0x1f == 0x1f {
            return Err(Malformed("asn1: syntax error: unsupported tag"));
        }
        let (length, header) = match first {
            0..=0x7f => (usize::from(*first), 2),
            // Four bytes of length are more than any request needs.
            0x81..=0x84 => {
                let count = usize::from(first & 0x7f);
                let digits = rest
                    .get(..count)
                    .ok_or(Malformed("asn1: syntax error: data truncated"))?;
                // Up to 32 bits; the addition below is checked for platforms where that is all of a `usize`.
                let length = digits.iter().fold(0usize, |n, d| n << 8 | usize::from(*d));
                // Two spellings of one length let a signature cover bytes that another parser reads
                // differently.
                if digits[0] == 0 || length < 0x80 {
                    return Err(Malformed("asn1: structure error: non-minimal length"));
                }
                (length, 2 + count)
            }
            _ => return Err(Malformed("asn1: syntax error: unsupported length")),
        };
        let end = header
            .checked_add(length)
            .filter(|end| *end <= bytes.len())
            .ok_or(Malformed("asn1: syntax error: data truncated"))?;
        self.0 = &bytes[end..];
        Ok(Element {
            tag: *tag,
            body: &bytes[header..end],
            whole: &bytes[..end],
        })
    }

    /// Returns the next element, which must have the given tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<Element<'a>, Malformed> {
        let element = self.any()?;
        match element.tag == tag {
            true => Ok(element),
            false => Err(Malformed("asn1: structure error: tags don't match")),
        }
    }

    /// Fails if any data is left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(Malformed("asn1: syntax error: trailing data")),
        }
    }

    /// Returns the bytes of an object identifier. Padded arcs are rejected, so identifiers are equal exactly
    /// if their bytes are.
    pub(crate) fn identifier(&mut self) -> Result<&'a [u8], Malformed> {
        let body = self.expect(OBJECT_IDENTIFIER)?.body;
        let starts = |at: usize| at == 0 || body[at - 1] & 0x80 == 0;
        // 0x80 at the start of an arc is a leading zero digit.
        let padded = (0..body.len()).any(|at| starts(at) && body[at] == 0x80);
        match body.last() {
            Some(last) if last & 0x80 == 0 && !padded => Ok(body),
            _ => Err(Malformed("asn1: syntax error: malformed object identifier")),
        }
    }

    /// Skips an integer after checking that its encoding is minimal. No caller needs the value.
    pub(crate) fn integer(&mut self) -> Result<(), Malformed> {
        match self.expect(INTEGER)?.body {
            [] => Err(Malformed("asn1: structure error: empty integer")),
            [0, next, ..] if next & 0x80 == 0 => Err(Malformed("asn1: structure error: integer not minimally-encoded")),
            [0xff, next, ..] if next & 0x80 != 0 => {
                Err(Malformed("asn1: structure error: integer not minimally-encoded"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes of a bit string, which must have no unused bits.
    pub(crate) fn whole_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        match self.expect(BIT_STRING)?.body {
            [0, bytes @ ..] => Ok(bytes),
            _ => Err(Malformed("asn1: syntax error: bit string of broken bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_minimal_lengths_are_rejected() {
        let read = |bytes: &[u8]| Reader::new(bytes).any().map(|e| e.body.len());
        assert_eq!(read(&[0x04, 0x00]), Ok(0));
        assert_eq!(read(&[0x04, 0x01, 0xff]), Ok(1));
        let long = [&[0x04, 0x81, 0x80][..], &[0; 0x80]].concat();
        assert_eq!(read(&long), Ok(0x80));
        for bad in [
            &[][..],
            &[0x04],
            &[0x04, 0x01],
            &[0x04, 0x80, 0x00, 0x00],
            &[0x04, 0x81, 0x01, 0xff],
            &[0x04, 0x82, 0x00, 0x80],
            &[0x04, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x04, 0x85, 0, 0, 0, 0, 1, 0],
            &[0x1f, 0x01, 0x00],
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn padded_identifiers_are_rejected() {
        let read = |body: &[u8]| {
            let bytes = [&[OBJECT_IDENTIFIER, u8::try_from(body.len()).unwrap()], body].concat();
            Reader::new(&bytes).identifier().map(<[u8]>::to_vec)
        };
        assert_eq!(read(&[0x55, 0x04, 0x0a]), Ok(vec![0x55, 0x04, 0x0a]));
        assert!(read(&[0x2a, 0x86, 0x48]).is_ok());
        for bad in [
            &[][..],
            &[0x55, 0x80, 0x04, 0x0a],
            &[0x80, 0x55, 0x04, 0x0a],
            &[0x55, 0x84],
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
