//! Percent-encoding with the rules of Go's `net/url`. The `percent-encoding` crate does the work; it passes a
//! malformed escape through where Go rejects it, so the decoders here check first.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::borrow::Cow;

// The unreserved characters of RFC 3986: the set that Go never escapes.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The characters that Go escapes in a query component.
const QUERY: &AsciiSet = &UNRESERVED;
/// The characters that Go escapes in a path.
const PATH: &AsciiSet = &UNRESERVED
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');
/// Characters that a header name cannot contain, and `%` itself.
const HEADER_NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The first malformed escape, as Go's `EscapeError` quotes it: up to three bytes from the `%`.
pub(crate) fn malformed_escape(s: &str) -> Option<&str> {
    let escapes = s.match_indices('%').map(|(at, _)| &s[at..]);
    escapes
        .filter(|rest| {
            let digits = rest.as_bytes().get(1..3);
            !digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
        })
        .map(|rest| rest.get(..3).unwrap_or(rest))
        .next()
}

/// Decodes a path; `None` if an escape is malformed. Strings are bytes in Go, so the result need not be
/// UTF-8.
pub(crate) fn decode(s: &str) -> Option<Cow<'_, [u8]>> {
    if !s.as_bytes().contains(&b'%') {
        return Some(Cow::Borrowed(s.as_bytes()));
    }
    malformed_escape(s).is_none().then(|| percent_decode_str(s).into())
}

/// Decodes a query component, where `+` is a space; `None` if an escape is malformed.
pub(crate) fn decode_query(s: &str) -> Option<Cow<'_, [u8]>> {
    if !s.as_bytes().contains(&b'+') {
        return decode(s);
    }
    // An escaped plus sign is still `%2B` here.
    Some(Cow::Owned(decode(&s.replace('+', " "))?.into_owned()))
}

/// Decodes well-formed escapes and keeps the rest, such as a password with a bare `%`.
pub(crate) fn decode_lossy(s: &str) -> Cow<'_, str> {
    percent_decode_str(s).decode_utf8_lossy()
}

/// Encodes a decoded path, with upper-case digits. Borrows if nothing needs an escape.
pub(crate) fn encode_path(decoded: &[u8]) -> Cow<'_, str> {
    percent_encode(decoded, PATH).into()
}

/// Whether [`encode_path`] would return this string unchanged.
pub(crate) fn is_encoded_path(path: &str) -> bool {
    // The first chunk is the longest prefix that needs no escape, or one escape.
    let first = percent_encode(path.as_bytes(), PATH).next();
    first.is_none_or(|chunk| chunk.len() == path.len() && !chunk.starts_with('%'))
}

/// Appends an encoded query component, with `+` for a space.
pub(crate) fn encode_query(decoded: &[u8], out: &mut String) {
    for chunk in percent_encode(decoded, QUERY) {
        // Only a space yields this chunk: the `%` of a literal `%20` is escaped itself.
        out.push_str(if chunk == "%20" { "+" } else { chunk });
    }
}

/// Encodes text as part of a header name. `http` lower-cases the digits like the rest of the name.
pub(crate) fn encode_header_name(text: &str) -> Cow<'_, str> {
    percent_encode(text.as_bytes(), HEADER_NAME).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_malformed_escape_is_rejected_and_named() {
        for (text, escape) in [
            ("/a%zz/%41", Some("%zz")),
            ("/%41%4", Some("%4")),
            ("%", Some("%")),
            ("%+1x", Some("%+1")),
            ("%é", Some("%é")),
            ("/%41%2f", None),
        ] {
            assert_eq!(malformed_escape(text), escape);
            assert_eq!(decode(text).is_none(), escape.is_some());
            assert_eq!(decode_query(&format!("+{text}")).is_none(), escape.is_some());
        }
        assert_eq!(decode_lossy("50%+%41"), "50%+A");
    }

    #[test]
    fn a_plus_sign_is_a_space_only_in_a_query() {
        assert_eq!(decode("a+b%2B").unwrap(), &b"a+b+"[..]);
        assert_eq!(decode_query("a+b%2B%20").unwrap(), &b"a b+ "[..]);
        let mut out = String::new();
        encode_query(b"a b+%20~\xff", &mut out);
        assert_eq!(out, "a+b%2B%2520~%FF");
    }

    #[test]
    fn an_encoded_path_is_recognized() {
        for (path, yes) in [
            ("/a$&+,:;=@b", true),
            ("", true),
            ("%20", false),
            ("*", false),
            ("/a(", false),
        ] {
            assert_eq!(is_encoded_path(path), yes, "{path}");
        }
    }

    proptest! {
        #[test]
        fn encoding_is_undone_by_decoding(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let path = encode_path(&bytes);
            prop_assert_eq!(&*decode(&path).unwrap(), &bytes[..]);
            let mut query = String::new();
            encode_query(&bytes, &mut query);
            prop_assert_eq!(&*decode_query(&query).unwrap(), &bytes[..]);
            if let Ok(text) = std::str::from_utf8(&bytes) {
                prop_assert_eq!(is_encoded_path(text), encode_path(text.as_bytes()) == text);
                let name = encode_header_name(text).to_ascii_lowercase();
                let lower: Vec<u8> = bytes.iter().map(u8::to_ascii_lowercase).collect();
                prop_assert_eq!(&*decode(&name).unwrap(), &lower[..]);
            }
        }
    }
}
