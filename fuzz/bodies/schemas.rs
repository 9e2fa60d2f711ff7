//! Bodies for what definitions of custom resources say about strings: patterns and formats.

use std::net::{Ipv4Addr, Ipv6Addr};
use torana::apimachinery::regexp::translate;
use torana::testing::schema::StructuralSchema;

/// A pattern and a text, in two lines. A pattern of Go's syntax that is accepted compiles unless it is too
/// large, and matches the same text each time; another one is refused with a message.
pub(crate) fn pattern(data: &[u8]) {
    let Ok(input) = std::str::from_utf8(data) else { return };
    let (pattern, text) = input.split_once('\n').unwrap_or((input, input));
    let translated = match translate(pattern) {
        Ok(translated) => translated,
        Err(e) => return assert!(e.to_string().starts_with("error parsing regexp: "), "{e}"),
    };
    match translated.compile(1 << 20) {
        Ok(compiled) => assert_eq!(compiled.is_match(text), compiled.is_match(text)),
        Err(regex::Error::CompiledTooBig(_)) => {}
        Err(e) => panic!("{pattern:?} is accepted and does not compile: {e}"),
    }
}

/// A string against every format: it is valid or refused, the same each time. A string that the
/// standard library parses as an address is a valid one.
pub(crate) fn format(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for name in FORMATS {
        let schema = torana::json!({"type": "object", "properties": {"s": {"type": "string", "format": (*name)}}});
        let schema = StructuralSchema::compile(&schema).expect("a schema");
        let object = torana::json!({"s": (text)});
        let errors = || {
            schema
                .validate(&object, None)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let first = errors();
        assert_eq!(first, errors());
        assert!(first.iter().all(|e| e.contains("must be of type")), "{first:?}");
        let is_address = match *name {
            "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
            "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
            _ => false,
        };
        assert!(!is_address || first.is_empty(), "{name} of {text:?}");
    }
}

const FORMATS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "date",
    "duration",
    "date-time",
    "k8s-short-name",
    "k8s-long-name",
];
