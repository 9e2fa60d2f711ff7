//! Parses stored values into entries. Their checksums have been verified, so only `metadata.labels` is
//! parsed; the whole object is decoded only for resources with selectable fields.

use super::ResourceConfig;
use crate::apimachinery::codec::json;
use crate::apimachinery::codec::json::projection::Cursor;
use crate::apimachinery::value::Str;
use crate::storage::version_place::VersionPlace;
use crate::storage::{Draft, Entry, Revision};
use bytes::Bytes;
use std::ops::Range;

/// Builds the entry of a stored value.
pub(super) fn entry(key: &str, revision: u64, value: &Bytes, config: &ResourceConfig) -> Entry {
    let found = Metadata::find(value).unwrap_or_default();
    // Invalid JSON is not an error here: the bytes passed their checksum, so they are what was written.
    let labels = found.labels.and_then(|at| json::decode(&value[at]).ok());
    let labels = labels.as_ref().and_then(|l| l.as_object());
    let labels = labels.into_iter().flat_map(|m| m.iter());
    let fields = config
        .fields
        .as_ref()
        .and_then(|extract| json::decode(value).ok().map(|tree| extract(&tree)));
    let mut fields: Vec<(Str, Str)> = fields.unwrap_or_default();
    // As for new objects: a missing and an empty field select the same, and empty ones need not be stored.
    fields.retain(|(_, value)| !value.is_empty());
    fields.sort();
    let mut draft = Draft {
        json: value.clone(),
        version_at: found.version_at as u32,
        managed_span: (found.managed.start as u32, found.managed.len() as u32),
        compressed: None,
        labels: labels
            .map(|(k, v)| (k.into(), v.as_str().unwrap_or("").into()))
            .collect(),
        fields: fields.into(),
        incomplete: false,
    };
    if config.compressed {
        draft.compress();
    }
    draft.into_entry(key, Revision(revision))
}

/// Where the parts of `metadata` are.
#[derive(Default)]
struct Metadata {
    version_at: usize,
    managed: Range<usize>,
    labels: Option<Range<usize>>,
}

impl Metadata {
    fn find(json: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::at(json, 0);
        cursor.enter().ok()?;
        while cursor.key().ok()?? != b"metadata" {
            cursor.skip().ok()?;
        }
        cursor.enter().ok()?;
        let (mut found, mut place) = (Self::default(), VersionPlace::default());
        while let Some(key) = cursor.key().ok()? {
            let from = cursor.offset();
            cursor.skip().ok()?;
            // The key is enclosed in quotes and followed by a colon.
            place.pass(key, from - key.len() - 3);
            match key {
                b"managedFields" => found.managed = from..cursor.offset(),
                b"labels" => found.labels = Some(from..cursor.offset()),
                _ => {}
            }
        }
        // The cursor is behind the closing brace.
        place.end(cursor.offset() - 1);
        found.version_at = place.found();
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::value::Value;
    use std::sync::Arc;

    #[test]
    fn loaded_entry_equals_the_stored_one() {
        let object = crate::json!({
            "data": {"metadata": "{\"labels\":1}", "q\"\\": [1, {"a": []}, "]"]},
            "kind": "ConfigMap",
            "metadata": {"annotations": {"labels": "no"}, "labels": {"b": "2", "a": "\u{e9}\""}, "name": "n",
                "managedFields": [{"manager": "]"}]},
            "type": "Opaque",
        });
        let of = |v: &Value| vec![(Str::from("type"), Str::from(v.str_at(&["type"])))];
        let stored = Draft::new(&object, of(&object));
        let config = ResourceConfig {
            prefix: "/configmaps/".to_owned(),
            fields: Some(Arc::new(of)),
            compressed: false,
        };
        let loaded = entry("ns/n", 7, &stored.json, &config);
        let entry = stored.into_entry("ns/n", Revision(7));
        assert_eq!(loaded.json(), entry.json());
        assert_eq!(loaded.version_span, entry.version_span);
        assert!(entry.managed_span.1 > 0);
        assert_eq!(loaded.managed_span, entry.managed_span);
        assert_eq!((loaded.labels, loaded.fields), (entry.labels, entry.fields));
    }

    #[test]
    fn bare_metadata_loads() {
        let stored = Draft::new(&crate::json!({"metadata":{}}), vec![]);
        let config = ResourceConfig {
            prefix: "/configmaps/".to_owned(),
            fields: None,
            compressed: false,
        };
        let loaded = entry("n", 3, &stored.json, &config);
        assert_eq!(&loaded.json()[..], br#"{"metadata":{"resourceVersion":"3"}}"#);
        assert!(loaded.labels.is_empty());
    }
}
