//! Table rows and metadata built directly from stored bytes: reads the fields the columns need, skips the
//! rest, and copies what is sent unchanged.
//!
//! Start at [`Rows`] and [`write_partial`]. The results equal those of [`table`] and [`mod@partial`], which
//! define the representations and serve as the fallback.

use super::partial;
use super::table::{self, Include};
use crate::api::json::{self, Shape};
use crate::apimachinery::codec::json::projection::{self, Cursor, Mask, UnexpectedEncoding};
use crate::apimachinery::value::{Map, Value};
use crate::registry::Resource;
use crate::storage::Entry;
use bytes::Bytes;
use std::collections::VecDeque;

/// Builds the rows of a table from stored objects.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// The kind of the objects.
    pub resource: &'a Resource,
    /// The `meta.k8s.io` version.
    pub version: &'static str,
    /// The part of the object each row embeds.
    pub include: Include,
}

impl Rows<'_> {
    /// The row as a tree.
    pub(crate) fn tree(self, entry: &Entry) -> Value {
        let object = match (self.include, table::reads(self.resource)) {
            (Include::Object, _) => entry.decode(),
            (Include::None, reads) => entry.decode_parts(&reads),
            (Include::Metadata, reads) => {
                let mut reads = reads.into_owned();
                reads.add("metadata");
                entry.decode_parts(&reads)
            }
        };
        table::row(self.resource, &object, self.version, self.include)
    }

    /// Appends the encoded row.
    pub(crate) fn write(self, entry: &Entry, out: &mut Vec<u8>) {
        let mut pieces = VecDeque::new();
        self.write_sharing(entry, out, &mut pieces, usize::MAX);
        debug_assert!(pieces.is_empty(), "only objects of `usize::MAX` bytes are shared");
    }

    /// Appends the encoded row. An embedded object of at least `shared` bytes is not copied: its stored
    /// bytes, and what follows them, are queued in `pieces`, to be sent after `out`.
    pub(crate) fn write_sharing(self, entry: &Entry, out: &mut Vec<u8>, pieces: &mut VecDeque<Bytes>, shared: usize) {
        let stored = entry.json();
        // Bytes in a layout that the cursor does not expect are decoded as a tree.
        let Ok((object, metadata)) = survey(entry, &stored, &table::reads(self.resource)) else {
            return json::encode_as(Shape::table_row(), &self.tree(entry), out);
        };
        out.extend_from_slice(b"{\"cells\":[");
        for (i, cell) in table::cells(self.resource, &object).iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            json::encode(cell, out);
        }
        out.push(b']');
        let conditions = table::conditions(self.resource, &object);
        if !conditions.is_null() {
            out.extend_from_slice(b",\"conditions\":");
            json::encode_as(Shape::table_conditions(), &conditions, out);
        }
        out.extend_from_slice(b",\"object\":");
        match self.include {
            Include::None => out.extend_from_slice(b"null"),
            Include::Metadata => splice_partial(self.resource, entry, &stored[..], &metadata, self.version, out),
            Include::Object if stored.len() >= shared => {
                pieces.push_back(stored.into_owned());
                pieces.push_back(Bytes::from_static(b"}"));
                return;
            }
            Include::Object => out.extend_from_slice(&stored),
        }
        out.push(b'}');
    }

    /// A table with a single row and the given column definitions, as a tree.
    pub(crate) fn table(self, entry: &Entry, columns: Value) -> Value {
        table::around(self.version, list_metadata(entry), columns, vec![self.tree(entry)])
    }

    /// Appends an encoded table with a single row. Watches pass the column definitions only with the first
    /// event.
    pub(crate) fn write_table(self, entry: &Entry, columns: Value, out: &mut Vec<u8>) {
        out.append(&mut table::head(self.version, list_metadata(entry), columns));
        self.write(entry, out);
        out.extend_from_slice(table::END);
    }
}

/// The metadata of a table with a single row.
fn list_metadata(entry: &Entry) -> Map {
    let mut metadata = Map::new();
    // Empty if the bytes contain no `resourceVersion`.
    if entry.version_span.1 > 0 {
        metadata.insert("resourceVersion", entry.revision.0.to_string());
    }
    metadata
}

/// Appends the PartialObjectMetadata of an object in JSON; `version` is that of `meta.k8s.io`.
pub(crate) fn write_partial(resource: &Resource, entry: &Entry, version: &str, out: &mut Vec<u8>) {
    let stored = entry.json();
    match survey(entry, &stored, &Mask::default()) {
        Ok((_, metadata)) => splice_partial(resource, entry, &stored[..], &metadata, version, out),
        Err(UnexpectedEncoding) => json::encode(&partial::of_entry(resource, entry, version), out),
    }
}

fn splice_partial(
    resource: &Resource,
    entry: &Entry,
    stored: &[u8],
    metadata: &Metadata,
    version: &str,
    out: &mut Vec<u8>,
) {
    let fields = resource.strategy.rules().wire_annotations;
    // The metadata of custom resources is stored sorted, and served in the order of the struct.
    if resource.unstructured || !fields.is_empty() && metadata.annotated(stored, fields) {
        return json::encode(&partial::of_entry(resource, entry, version), out);
    }
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    out.extend_from_slice(&stored[metadata.start..metadata.end]);
    out.push(b'}');
}

/// The layout of `metadata` in the stored bytes.
struct Metadata {
    /// Offset of the opening brace.
    start: usize,
    /// Offset behind the closing brace.
    end: usize,
    /// Offset of the value of `annotations`.
    annotations: Option<usize>,
}

impl Metadata {
    /// Locates the members of the metadata at the cursor, and decodes those selected by the mask. Moves the
    /// cursor past it.
    fn find(
        cursor: &mut Cursor<'_>,
        entry: &Entry,
        stored: &[u8],
        mask: &Mask,
    ) -> Result<(Self, Value), UnexpectedEncoding> {
        let start = cursor.offset();
        cursor.enter()?;
        let (managed_at, managed_len) = (entry.managed_span.0 as usize, entry.managed_span.1 as usize);
        let (mut annotations, mut members) = (None, Vec::new());
        while let Some(key) = cursor.key()? {
            let value_at = cursor.offset();
            if key == b"annotations" {
                annotations = Some(value_at);
            }
            match mask.member(key) {
                Some((name, mask)) => members.push((name.clone(), cursor.read(mask)?)),
                // Managed fields are often the largest part of an object; their span is known, so they are not
                // scanned.
                None if value_at == managed_at => cursor.go(value_at + managed_len),
                None => cursor.skip()?,
            }
        }
        let found = Self {
            start,
            end: cursor.offset(),
            annotations,
        };
        let members = match mask {
            Mask::Members(_) => Value::Object(Map::from_pairs(members)),
            // The mask selects all of the metadata, so it is read as a whole.
            mask => Cursor::at(stored, start).read(mask)?,
        };
        Ok((found, members))
    }

    /// True if any of these annotations is set.
    fn annotated(&self, json: &[u8], names: &[&str]) -> bool {
        let Some(at) = self.annotations else { return false };
        let mut cursor = Cursor::at(json, at);
        let mut any = || {
            cursor.enter()?;
            while let Some(key) = cursor.key()? {
                if names.iter().any(|n| n.as_bytes() == key) {
                    return Ok(true);
                }
                cursor.skip()?;
            }
            Ok::<_, UnexpectedEncoding>(false)
        };
        // On unexpected bytes, assume that one is set: the caller then uses the tree.
        any().unwrap_or(true)
    }
}

/// Decodes the parts of an object selected by the mask, and locates its metadata. Stops once everything has
/// been found.
fn survey(entry: &Entry, stored: &[u8], mask: &Mask) -> Result<(Value, Metadata), UnexpectedEncoding> {
    let none = Mask::default();
    let Mask::Members(wanted) = mask else {
        let (_, metadata) = survey(entry, stored, &none)?;
        return Ok((projection::read(stored, mask)?, metadata));
    };
    // One more for `metadata`, which is always located.
    let mut missing = wanted.len() + usize::from(mask.member(b"metadata").is_none());
    let (mut members, mut metadata) = (Vec::with_capacity(wanted.len()), None);
    let mut cursor = Cursor::at(stored, 0);
    cursor.enter()?;
    while missing > 0 {
        // A wanted member may be absent, such as the status of a new object.
        let Some(key) = cursor.key()? else { break };
        let wanted = mask.member(key);
        if key == b"metadata" {
            let (found, value) = Metadata::find(&mut cursor, entry, stored, wanted.map_or(&none, |(_, mask)| mask))?;
            metadata = Some(found);
            members.extend(wanted.map(|(name, _)| (name.clone(), value)));
        } else if let Some((name, mask)) = wanted {
            members.push((name.clone(), cursor.read(mask)?));
        } else {
            cursor.skip()?;
            continue;
        }
        missing -= 1;
    }
    Ok((
        Value::Object(Map::from_pairs(members)),
        metadata.ok_or(UnexpectedEncoding)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::storage::{Draft, Revision};

    #[test]
    fn survey_finds_masked_parts_and_metadata() {
        let object = json!({"kind": "A", "metadata": {"managedFields": [{"manager": "m"}], "name": "a", "uid": "u"},
            "spec": {"a": 1, "b": 2}, "status": {"c": "\"}"}});
        let entry = Draft::new(&object, vec![]).into_entry("a", Revision(7));
        let (found, metadata) = survey(&entry, &entry.json(), &Mask::of(&["metadata.name", "spec.b"])).unwrap();
        assert_eq!(found, json!({"metadata": {"name": "a"}, "spec": {"b": 2}}));
        let want = r#"{"managedFields":[{"manager":"m"}],"name":"a","resourceVersion":"7","uid":"u"}"#;
        assert_eq!(&entry.json()[metadata.start..metadata.end], want.as_bytes());
    }

    #[test]
    fn resource_version_is_at_its_place() {
        let entry = |metadata| {
            let object = json!({"apiVersion": "example.com/v1", "kind": "A", "metadata": metadata});
            Draft::new(&object, vec![]).into_entry("a", Revision(7))
        };
        for metadata in [
            json!({}),
            json!({"name": "a"}),
            json!({"uid": "u"}),
            json!({"managedFields": [{"manager": "m"}], "name": "a", "resourceVersioN": "", "uid": "u"}),
        ] {
            let entry = entry(metadata);
            assert_eq!(entry.json()[..], json::to_vec(&entry.decode()));
        }
    }
}
