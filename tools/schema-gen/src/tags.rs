//! Protobuf field numbers and the order of fields in Go's structs, from k8s-pb's `#[prost(…)]` attributes and
//! the corrections. The order is that of the messages: `go-to-protobuf` writes their fields as the structs
//! declare them, whatever their numbers, and prost keeps that order.

use crate::corrections::Corrections;
use crate::source;
use std::collections::BTreeMap;
use std::path::Path;

/// Field numbers by message and field. Lookups ignore case and all characters except letters and digits,
/// because the crate spells names differently.
pub struct Tags {
    messages: BTreeMap<String, BTreeMap<String, Declared>>,
}

/// A field of a message.
#[derive(Clone, Copy)]
struct Declared {
    tag: u8,
    /// Its place among the fields of the message.
    place: u16,
}

/// The place of fields that only the corrections know, before their number is added: behind all others.
const ADDED: u16 = 1000;

/// A field's number, and those of the embedded messages that contain it, outermost first.
pub struct Wire {
    pub tag: u8,
    pub through: Vec<u8>,
    /// Its place in Go's struct: that of each embedded struct around it, and its own.
    pub place: Vec<u16>,
}

/// A name without case and punctuation.
pub fn key(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_ascii_lowercase()
}

impl Tags {
    /// Reads every message under `root`, the crate's `src`.
    pub fn read(root: &Path, corrections: &Corrections) -> Self {
        let mut messages: BTreeMap<String, BTreeMap<String, Declared>> = BTreeMap::new();
        for (module, text) in source::modules(root) {
            read_module(&module, &text, &mut messages);
        }
        for (field, tag) in &corrections.tags {
            let (message, field) = field.rsplit_once('.').expect("message.field");
            let place = ADDED + u16::from(*tag);
            let fields = messages.entry(key(message)).or_default();
            fields.insert(key(field), Declared { tag: *tag, place });
        }
        Self { messages }
    }

    /// The number of a field of a definition (without `io.k8s.`), if it is part of a message.
    pub fn find(&self, definition: &str, field: &str, corrections: &Corrections) -> Option<Wire> {
        let message = self.messages.get(&key(definition));
        if let Some(found) = message.and_then(|m| m.get(&key(field))) {
            return Some(Wire {
                tag: found.tag,
                through: Vec::new(),
                place: vec![found.place],
            });
        }
        let embedded = corrections.inline.iter().filter(|(d, _)| d == definition);
        embedded
            .flat_map(|(_, (tag, message))| self.find(message, field, corrections).map(|w| (*tag, w)))
            .next()
            .map(|(tag, mut wire)| {
                let outer = message.and_then(|m| m.values().find(|d| d.tag == tag));
                wire.place.insert(0, outer.map_or(0, |d| d.place));
                wire.through.insert(0, tag);
                wire
            })
    }
}

fn read_module(module: &str, text: &str, messages: &mut BTreeMap<String, BTreeMap<String, Declared>>) {
    let (mut message, mut tag) = (String::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("pub struct ") {
            message = key(&format!("{module}{}", name.trim_end_matches([' ', '{', '}'])));
            messages.entry(message.clone()).or_default();
        } else if line.starts_with("#[prost(") {
            tag = line
                .split_once("tag = \"")
                .and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
        } else if let (Some(number), Some(field)) = (tag, line.strip_prefix("pub ")) {
            let name = field.split(':').next().unwrap_or_default().trim_start_matches("r#");
            let fields = messages.entry(message.clone()).or_default();
            let place = u16::try_from(fields.len()).expect("few fields");
            fields.insert(key(name), Declared { tag: number, place });
            tag = None;
        }
    }
}
