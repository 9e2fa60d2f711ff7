//! An object at rest: its encoded bytes, shared, with the little that selection needs parsed beside them.

use super::interface::Revision;
use crate::apimachinery::codec::json;
use crate::apimachinery::codec::json::parts::{self, Mask, Odd};
use crate::apimachinery::value::{Str, Value};
use bytes::Bytes;

/// A stored object. Immutable; shared by the cache, list answers and watch events.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Key below the resource's prefix: `<namespace>/<name>` or `<name>`.
    pub key: Box<str>,
    /// The revision of the write that made this state: the object's resourceVersion.
    pub revision: Revision,
    /// The JSON encoding, with `metadata.resourceVersion`, as clients read it in the storage version.
    pub json: Bytes,
    /// Offset and length, in `json`, of the `"resourceVersion":"…"` member and the comma after it, if there is one.
    pub version_span: (u32, u32),
    /// Offset and length, in `json`, of the value of `metadata.managedFields`, which is long and which only its owners read;
    /// nothing where there is none.
    pub managed_span: (u32, u32),
    /// Labels, sorted by key.
    pub labels: Box<[(Str, Str)]>,
    /// Selectable fields beside `metadata.name` and `metadata.namespace`, sorted by name; empty ones are left out.
    pub fields: Box<[(Str, Str)]>,
    /// It would be stored in other bytes today (another encryption key): an update that changes nothing is written.
    pub stale: bool,
}

/// An object about to be stored: encoded without a resourceVersion, which the commit decides.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The encoding; what is written to disk.
    pub json: Bytes,
    /// Where `"resourceVersion":"…"` goes: right behind the brace that opens `metadata`.
    pub version_at: u32,
    /// As of [`Entry::managed_span`], behind the version's place.
    pub managed_span: (u32, u32),
    /// Labels, sorted by key.
    pub labels: Box<[(Str, Str)]>,
    /// Selectable fields, sorted by name.
    pub fields: Box<[(Str, Str)]>,
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

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .binary_search_by(|(k, _)| k.as_str().cmp(key))
            .ok()
            .map(|i| self.labels[i].1.as_str())
    }

    /// The value of a selectable field, `metadata.name` and `metadata.namespace` included.
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            _ => self.fields.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str()),
        }
    }

    /// The bytes of memory it takes, with what is parsed beside it.
    pub fn footprint(&self) -> usize {
        /// Strings longer than this are elsewhere.
        const INLINE: usize = 24;
        let beside = |s: &Str| if s.len() > INLINE { s.len() } else { 0 };
        let pairs = self.labels.iter().chain(&self.fields);
        let pairs: usize = pairs
            .map(|(k, v)| size_of::<(Str, Str)>() + beside(k) + beside(v))
            .sum();
        // The counters of what is shared.
        size_of::<Self>() + 16 + self.key.len() + self.json.len() + pairs
    }

    /// The tree. Stored bytes always decode; a damaged store is refused when it is opened.
    pub fn decode(&self) -> Value {
        json::decode(&self.json).expect("stored bytes were encoded by this crate and checked on load")
    }

    /// What a mask names of the tree; maybe more.
    pub fn decode_parts(&self, mask: &Mask) -> Value {
        parts::read(&self.json, mask).unwrap_or_else(|Odd| self.decode())
    }

    /// The bytes without the resourceVersion: what [`Draft::json`] was.
    pub fn unversioned(&self) -> Vec<u8> {
        let (at, len) = (self.version_span.0 as usize, self.version_span.1 as usize);
        let mut out = Vec::with_capacity(self.json.len() - len);
        out.extend_from_slice(&self.json[..at]);
        out.extend_from_slice(&self.json[at + len..]);
        out
    }

    /// The same object as it stands in the event of its deletion: with the revision of the deletion.
    pub fn at_revision(&self, revision: Revision) -> Entry {
        let draft = Draft {
            json: self.unversioned().into(),
            version_at: self.version_span.0,
            managed_span: match self.managed_span {
                (_, 0) => (0, 0),
                (at, len) => (at - self.version_span.1, len),
            },
            labels: self.labels.clone(),
            fields: self.fields.clone(),
        };
        draft.into_entry(&self.key, revision)
    }
}

impl Draft {
    /// Encodes a tree for storage; a `metadata.resourceVersion` in it is left out. `fields` are the selectable fields.
    pub fn new(object: &Value, mut fields: Vec<(Str, Str)>) -> Self {
        let mut out = Vec::with_capacity(1024);
        let mut version_at = 0;
        let mut managed_span = (0, 0);
        out.push(b'{');
        let mut labels: Vec<(Str, Str)> = Vec::new();
        for (i, (key, value)) in object.as_object().into_iter().flat_map(|m| m.iter()).enumerate() {
            if i > 0 {
                out.push(b',');
            }
            json::encode_str(key, &mut out);
            out.push(b':');
            let Some(meta) = value.as_object().filter(|_| key == "metadata") else {
                json::encode(value, &mut out);
                continue;
            };
            out.push(b'{');
            version_at = out.len() as u32;
            let mut first = true;
            for (k, v) in meta.iter().filter(|(k, _)| *k != "resourceVersion") {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                json::encode_str(k, &mut out);
                out.push(b':');
                let at = out.len();
                json::encode(v, &mut out);
                if k == "managedFields" {
                    managed_span = (at as u32, (out.len() - at) as u32);
                } else if k == "labels" {
                    let pairs = v.as_object().into_iter().flat_map(|m| m.iter());
                    labels = pairs
                        .map(|(k, v)| (k.into(), v.as_str().unwrap_or("").into()))
                        .collect();
                }
            }
            out.push(b'}');
        }
        out.push(b'}');
        debug_assert!(version_at > 0, "every stored object has metadata");
        // An absent field reads as the empty one.
        fields.retain(|(_, value)| !value.is_empty());
        fields.sort();
        Self {
            json: out.into(),
            version_at,
            managed_span,
            labels: labels.into(),
            fields: fields.into(),
        }
    }

    /// The stored object, once the revision is known.
    pub fn into_entry(self, key: &str, revision: Revision) -> Entry {
        let at = self.version_at as usize;
        let member = match self.json.get(at) {
            Some(b'}') => format!("\"resourceVersion\":\"{}\"", revision.0),
            _ => format!("\"resourceVersion\":\"{}\",", revision.0),
        };
        let mut json = Vec::with_capacity(self.json.len() + member.len());
        json.extend_from_slice(&self.json[..at]);
        json.extend_from_slice(member.as_bytes());
        json.extend_from_slice(&self.json[at..]);
        Entry {
            key: key.into(),
            revision,
            json: json.into(),
            version_span: (self.version_at, member.len() as u32),
            managed_span: match self.managed_span {
                (_, 0) => (0, 0),
                (at, len) => (at + member.len() as u32, len),
            },
            labels: self.labels,
            fields: self.fields,
            stale: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_becomes_an_entry_with_its_revision_and_back() {
        let v = crate::json!({"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"7","labels":{"b":"1"}},"data":{"x":"y"}});
        let d = Draft::new(&v, vec![]);
        let plain = d.json.clone();
        let e = d.into_entry("ns/a", Revision(42));
        assert_eq!(e.decode().str_at(&["metadata", "resourceVersion"]), "42");
        assert_eq!((e.name(), e.namespace(), e.label("b")), ("a", "ns", Some("1")));
        assert_eq!(e.unversioned(), plain);
        assert_eq!(e.managed_span, (0, 0));
        let managed = |e: &Entry| {
            let (at, len) = (e.managed_span.0 as usize, e.managed_span.1 as usize);
            String::from_utf8_lossy(&e.json[at..at + len]).into_owned()
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
        let bare = Draft::new(&crate::json!({"metadata":{}}), vec![]).into_entry("a", Revision(1));
        assert_eq!(&bare.json[..], br#"{"metadata":{"resourceVersion":"1"}}"#);
    }
}
