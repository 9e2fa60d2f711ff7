//! [`Entry`], a stored object: its encoded bytes, shared, and the parsed labels and fields that selectors
//! need. [`Draft`] is an object to be written, before the commit assigns its resourceVersion.

use super::cached_encodings::CachedEncodings;
use super::encoding_cache::Cacheable;
use super::extracted_fields::ExtractedFields;
use super::large;
use super::revision::Revision;
use super::stored_json::{CompressedDraft, StoredJson};
use super::version_place::VersionPlace;
use crate::api::json::{Shape, encode_as, members};
use crate::apimachinery::codec::json as codec;
use crate::apimachinery::codec::json::projection::{self, Mask, UnexpectedEncoding};
use crate::apimachinery::value::{Str, Value};
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// A stored object. Immutable; shared by the cache, list responses and watch events.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Key below the resource's prefix: `<namespace>/<name>` or `<name>`.
    pub key: Box<str>,
    /// The revision of the write that produced this state: the object's resourceVersion.
    pub revision: Revision,
    /// The JSON encoding in the storage version, including `metadata.resourceVersion`.
    pub(crate) json: StoredJson,
    /// Offset and length, in `json`, of the `"resourceVersion":"…"` member and the comma that goes with it:
    /// the one after it, or before it if it is the last member.
    pub version_span: (u32, u32),
    /// Offset and length, in `json`, of the value of `metadata.managedFields`; length 0 if absent. The value
    /// is large and rarely read, so readers can skip it.
    pub managed_span: (u32, u32),
    /// Labels, sorted by key.
    pub labels: Box<[(Str, Str)]>,
    /// Selectable fields other than `metadata.name` and `metadata.namespace`, sorted by name; empty values
    /// are omitted.
    pub fields: Box<[(Str, Str)]>,
    /// True if writing the object now would store other bytes (another encryption key, a default that the
    /// stored object lacks upstream): even an update without changes must then be written.
    pub stale: bool,
    /// The shape of the encoding, if a reader has found it.
    pub shape: KnownShape,
    /// Selectable fields that are not stored with the object.
    pub(crate) extracted: ExtractedFields,
    /// Cached alternative encodings and versions.
    pub encodings: CachedEncodings,
}

/// Marks an entry whose bytes can be served unchanged, and as what: a number chosen by the reader (a hash of
/// version and schema), or 0.
#[derive(Debug, Default)]
pub struct KnownShape(AtomicU64);

impl KnownShape {
    /// True if the entry is marked with this shape.
    pub fn is(&self, shape: u64) -> bool {
        // Relaxed: the mark is a hint; the bytes it describes are immutable.
        shape != 0 && self.0.load(Ordering::Relaxed) == shape
    }

    /// Remembers a shape instead of the former one.
    pub fn set(&self, shape: u64) {
        self.0.store(shape, Ordering::Relaxed);
    }
}

impl Clone for KnownShape {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// An object to be stored, encoded without a resourceVersion, which the commit assigns.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The encoding, as written to disk.
    pub json: Bytes,
    /// Offset at which `"resourceVersion":"…"` is inserted; see `VersionPlace`.
    pub version_at: u32,
    /// As [`Entry::managed_span`].
    pub managed_span: (u32, u32),
    /// `json` in the form in which the entry keeps it in memory, if that is compressed.
    pub(crate) compressed: Option<CompressedDraft>,
    /// Labels, sorted by key.
    pub labels: Box<[(Str, Str)]>,
    /// Selectable fields, sorted by name.
    pub fields: Box<[(Str, Str)]>,
    /// Becomes [`Entry::stale`]. Not written to disk: after a restart, the object counts as complete.
    pub incomplete: bool,
}

impl Entry {
    /// The object's name: the last segment of the key.
    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or(&self.key)
    }

    /// The object's namespace, empty for cluster-scoped ones.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(ns, _)| ns)
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .binary_search_by(|(k, _)| k.as_str().cmp(key))
            .ok()
            .map(|i| self.labels[i].1.as_str())
    }

    /// Returns the value of a selectable field, including `metadata.name` and `metadata.namespace`.
    pub fn field(&self, name: &str) -> Option<&str> {
        // These two are not stored in `fields`, since the key has them.
        match name {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            _ => self.fields.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str()),
        }
    }

    /// Approximate memory footprint in bytes, including labels and fields.
    pub fn footprint(&self) -> usize {
        /// Longest string that [`Str`] stores inline, without a heap allocation.
        const INLINE: usize = 24;
        let heap_bytes = |s: &Str| if s.len() > INLINE { s.len() } else { 0 };
        let pairs = self.labels.iter().chain(&self.fields);
        let pairs: usize = pairs
            .map(|(k, v)| size_of::<(Str, Str)>() + heap_bytes(k) + heap_bytes(v))
            .sum();
        // 16: the reference counts of the `Arc` around the entry.
        size_of::<Self>() + 16 + self.key.len() + self.json.resident() + pairs
    }

    /// The JSON encoding in the storage version, including `metadata.resourceVersion`. Constant time, except
    /// for resources whose objects are [kept compressed](StoredJson).
    pub fn json(&self) -> Cow<'_, Bytes> {
        self.json.bytes()
    }

    /// Decodes the object. Stored bytes always decode: a damaged store is refused when it is opened.
    pub fn decode(&self) -> Value {
        codec::decode(&self.json()).expect("stored bytes were encoded by this crate and checked on load")
    }

    /// Decodes the parts that `mask` selects; may return more.
    pub fn decode_parts(&self, mask: &Mask) -> Value {
        projection::read(&self.json(), mask).unwrap_or_else(|UnexpectedEncoding| self.decode())
    }

    /// Returns the encoding without the resourceVersion, as it was in [`Draft::json`].
    pub fn unversioned(&self) -> Vec<u8> {
        let (at, len) = (self.version_span.0 as usize, self.version_span.1 as usize);
        let json = self.json();
        let mut out = Vec::with_capacity(json.len() - len);
        out.extend_from_slice(&json[..at]);
        out.extend_from_slice(&json[at + len..]);
        out
    }

    /// Returns the object at another revision; deletion events carry the revision of the deletion.
    pub fn at_revision(&self, revision: Revision) -> Entry {
        let draft = Draft {
            json: self.unversioned().into(),
            version_at: self.version_span.0,
            managed_span: match self.managed_span {
                // Behind the removed member, the offset moves with it.
                (at, len) if at > self.version_span.0 => (at - self.version_span.1, len),
                before => before,
            },
            // The compressed form has no resourceVersion, so it is shared and not compressed again.
            compressed: self.json.compressed_draft().cloned(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            incomplete: self.stale,
        };
        Entry {
            // Only the resourceVersion differs, so what is known of the encoding holds.
            shape: self.shape.clone(),
            ..draft.into_entry(&self.key, revision)
        }
    }
}

impl Cacheable for Entry {
    fn cached_size(&self) -> usize {
        self.footprint()
    }
}

impl Draft {
    /// Encodes an object for storage, omitting `metadata.resourceVersion`. `fields` are its selectable
    /// fields.
    pub fn new(object: &Value, mut fields: Vec<(Str, Str)>) -> Self {
        // Typical objects have a kilobyte or two; growing from nothing copies several times.
        let mut out = Vec::with_capacity(1024);
        let mut place = VersionPlace::default();
        let mut managed_span = (0, 0);
        out.push(b'{');
        let mut labels: Vec<(Str, Str)> = Vec::new();
        let shape = Shape::of(object);
        let all = object.as_object().map(|all| members(shape, all));
        for (i, (key, value, shape)) in all.into_iter().flatten().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            codec::encode_str(key, &mut out);
            out.push(b':');
            let Some(meta) = value.as_object().filter(|_| key == "metadata") else {
                encode_as(shape, value, &mut out);
                continue;
            };
            out.push(b'{');
            let start = out.len();
            // Omitted even if the caller left one in: the commit assigns it.
            for (k, v, shape) in members(shape, meta).filter(|(k, ..)| *k != "resourceVersion") {
                if out.len() > start {
                    out.push(b',');
                }
                place.pass(k.as_bytes(), out.len());
                codec::encode_str(k, &mut out);
                out.push(b':');
                let at = out.len();
                encode_as(shape, v, &mut out);
                if k == "managedFields" {
                    managed_span = (at as u32, (out.len() - at) as u32);
                } else if k == "labels" {
                    let pairs = v.as_object().into_iter().flat_map(|m| m.iter());
                    labels = pairs
                        .map(|(k, v)| (k.into(), v.as_str().unwrap_or("").into()))
                        .collect();
                }
            }
            place.end(out.len());
            out.push(b'}');
        }
        out.push(b'}');
        debug_assert!(place.found() > 0, "every stored object has metadata");
        // An absent field selects like an empty one, so empty values need not be stored.
        fields.retain(|(_, value)| !value.is_empty());
        // As the loader sorts them, so that a loaded entry equals the written one.
        fields.sort();
        Self {
            json: out.into(),
            version_at: place.found() as u32,
            managed_span,
            compressed: None,
            labels: labels.into(),
            fields: fields.into(),
            incomplete: false,
        }
    }

    /// Keeps the entry's encoding compressed in memory, if it is large enough to gain. Takes some 4 µs per
    /// kilobyte.
    pub(crate) fn compress(&mut self) {
        self.compressed = CompressedDraft::new(&self.json);
    }

    /// Inserts the resourceVersion that the commit assigned.
    pub fn into_entry(self, key: &str, revision: Revision) -> Entry {
        let at = self.version_at as usize;
        // `wrapping_sub` turns offset 0 into one that is out of range.
        let member = match (self.json.get(at), self.json.get(at.wrapping_sub(1))) {
            // `metadata` is empty.
            (Some(b'}'), Some(b'{')) => format!("\"resourceVersion\":\"{}\"", revision.0),
            (Some(b'}'), _) => format!(",\"resourceVersion\":\"{}\"", revision.0),
            _ => format!("\"resourceVersion\":\"{}\",", revision.0),
        };
        let member = member.as_bytes();
        Entry {
            key: key.into(),
            revision,
            json: match self.compressed {
                Some(draft) => StoredJson::compressed(draft, at, member),
                None => large::join(&[&self.json[..at], member, &self.json[at..]]).into(),
            },
            version_span: (self.version_at, member.len() as u32),
            managed_span: match self.managed_span {
                (_, 0) => (0, 0),
                // In sorted metadata (of custom resources, and objects of earlier releases) they come first.
                (at, len) if at < self.version_at => (at, len),
                (at, len) => (at + member.len() as u32, len),
            },
            labels: self.labels,
            fields: self.fields,
            stale: self.incomplete,
            shape: KnownShape::default(),
            extracted: ExtractedFields::default(),
            encodings: CachedEncodings::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_and_entry_convert_both_ways() {
        let v = crate::json!({"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"7","labels":{"b":"1"}},"data":{"x":"y"}});
        let d = Draft::new(&v, vec![]);
        let plain = d.json.clone();
        let e = d.into_entry("ns/a", Revision(42));
        assert_eq!(e.decode().str_at(&["metadata", "resourceVersion"]), "42");
        assert_eq!((e.name(), e.namespace(), e.label("b")), ("a", "ns", Some("1")));
        assert_eq!(e.unversioned(), plain);
        assert!(!e.stale);
        let incomplete = Draft {
            incomplete: true,
            ..Draft::new(&v, vec![])
        };
        assert!(
            incomplete
                .into_entry("ns/a", Revision(42))
                .at_revision(Revision(43))
                .stale
        );
        assert_eq!(e.managed_span, (0, 0));
        let managed = |e: &Entry| {
            let (at, len) = (e.managed_span.0 as usize, e.managed_span.1 as usize);
            String::from_utf8_lossy(&e.json()[at..at + len]).into_owned()
        };
        let v = crate::json!({"metadata":{"labels":{"b":"1"},"managedFields":[{"manager":"m"}],"name":"a"}});
        let owned = Draft::new(&v, vec![]).into_entry("a", Revision(9));
        assert_eq!(managed(&owned), r#"[{"manager":"m"}]"#);
        assert_eq!(managed(&owned.at_revision(Revision(10))), managed(&owned));
        assert_eq!(
            e.at_revision(Revision(43))
                .decode()
                .str_at(&["metadata", "resourceVersion"]),
            "43"
        );
        let mut large = v.clone();
        large.set(&["spec"], "x".repeat(10_000));
        let (plain, mut draft) = (Draft::new(&large, vec![]), Draft::new(&large, vec![]));
        draft.compress();
        let (plain, compressed) = (plain.into_entry("a", Revision(9)), draft.into_entry("a", Revision(9)));
        assert!(compressed.json.is_compressed() && compressed.footprint() < plain.footprint() / 10);
        for (plain, compressed) in [
            (&plain, &compressed),
            (&plain.at_revision(Revision(10)), &compressed.at_revision(Revision(10))),
        ] {
            assert!(compressed.json.is_compressed());
            assert_eq!(plain.json(), compressed.json());
            assert_eq!(plain.json.len(), compressed.json.len());
            assert_eq!(plain.unversioned(), compressed.unversioned());
            assert_eq!(managed(plain), managed(compressed));
            assert_eq!(plain.decode(), compressed.decode());
        }
        let bare = Draft::new(&crate::json!({"metadata":{}}), vec![]).into_entry("a", Revision(1));
        assert_eq!(&bare.json()[..], br#"{"metadata":{"resourceVersion":"1"}}"#);
    }
}
