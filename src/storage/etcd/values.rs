//! Encoding of stored values, as kube-apiserver v1.36 reads and writes them: built-in kinds in protobuf with
//! its envelope; custom resources, CustomResourceDefinitions and APIServices in JSON. [`decode`] accepts
//! protobuf, JSON and YAML for any kind.

use crate::api::decode::normalize;
use crate::api::protobuf;
use crate::apimachinery::codec::{json, protobuf as wire, yaml};
use crate::apimachinery::value::Value;
use crate::storage::backend::SelectableFields;
use crate::storage::{Draft, Entry, Revision, Undecodable};
use bytes::Bytes;

/// `--storage-media-type`: the encoding of built-in kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MediaType {
    /// `application/vnd.kubernetes.protobuf`
    #[default]
    Protobuf,
    /// `application/json`
    Json,
    /// `application/yaml`: written as JSON, which is valid YAML.
    Yaml,
}

/// Groups that upstream always encodes in JSON.
const JSON_GROUPS: [&str; 2] = ["apiextensions.k8s.io/", "apiregistration.k8s.io/"];

/// True if built-in kinds of this apiVersion are written in protobuf.
fn is_protobuf(version: &str, media: MediaType) -> bool {
    media == MediaType::Protobuf && !version.is_empty() && !JSON_GROUPS.iter().any(|g| version.starts_with(g))
}

/// True if the bytes have the encoding in which the object would be written now.
pub(crate) fn is_written_so(bytes: &[u8], object: &Value, media: MediaType) -> bool {
    let (version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    let protobuf = is_protobuf(version, media) && protobuf::definition(version, kind).is_some();
    // The encoding is recognised by the envelope's magic; JSON never begins with it.
    bytes.starts_with(&wire::MAGIC) == protobuf
}

/// Encodes an object given as JSON for storage.
pub(crate) fn encode(object: &Bytes, media: MediaType) -> Bytes {
    if media != MediaType::Protobuf {
        return object.clone();
    }
    // What cannot be parsed is stored as it is rather than lost.
    let Ok(tree) = json::decode(object) else {
        return object.clone();
    };
    if !is_protobuf(tree.str_at(&["apiVersion"]), media) {
        return object.clone();
    }
    protobuf::encode(&tree).map_or_else(|| object.clone(), Bytes::from)
}

/// Decodes a stored value.
///
/// # Errors
/// [`Undecodable`].
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, Undecodable> {
    let mut tree = if bytes.starts_with(&wire::MAGIC) {
        let unknown = wire::open(bytes)?;
        let (version, kind) = (&*unknown.api_version, &*unknown.kind);
        let def = protobuf::definition(version, kind).ok_or_else(|| Undecodable::UnknownKind {
            version: version.to_owned(),
            kind: kind.to_owned(),
        })?;
        protobuf::decode(def, version, kind, unknown.raw)?
    // JSON first: it is valid YAML, but its own parser is much faster.
    } else if bytes.trim_ascii_start().first() == Some(&b'{') {
        json::decode(bytes)?
    } else {
        yaml::decode(bytes)?
    };
    // A scalar, which any short garbage is in YAML, is not an object.
    if tree.at(&["metadata"]).as_object().is_none() {
        return Err(Undecodable::NoMetadata);
    }
    let (version, kind) = (tree.str_at(&["apiVersion"]), tree.str_at(&["kind"]));
    // Only built-in kinds have a definition; custom resources are taken as they are.
    let def = Some(version).filter(|v| !v.is_empty());
    if let Some(def) = def.and_then(|version| protobuf::definition(version, kind)) {
        // Taken before normalising, which borrows the tree.
        let claims = kind == "StatefulSet";
        normalize(def, &mut tree)?;
        if claims {
            name_claims(&mut tree);
        }
    }
    Ok(tree)
}

/// Restores apiVersion and kind of volume claim templates. The protobuf message has no place for them;
/// upstream's defaulting sets them on every read.
fn name_claims(set: &mut Value) {
    let templates = set
        .at_mut(&["spec", "volumeClaimTemplates"])
        .and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        if template.get("kind").is_null() {
            template.set(&["apiVersion"], "v1");
            template.set(&["kind"], "PersistentVolumeClaim");
        }
    }
}

/// Builds the entry of a stored object. `key` is relative to the resource's prefix.
pub(crate) fn entry(
    key: &str,
    revision: Revision,
    object: &Value,
    fields: Option<&SelectableFields>,
    compressed: bool,
) -> Entry {
    let fields = fields.map_or_else(Vec::new, |extract| extract(object));
    let mut draft = Draft::new(object, fields);
    if compressed {
        draft.compress();
    }
    draft.into_entry(key, revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(object: &Value) -> (Bytes, Entry) {
        let draft = Draft::new(object, vec![]);
        let bytes = encode(&draft.json, MediaType::Protobuf);
        let tree = decode(&bytes).expect("it decodes");
        assert!(is_written_so(&bytes, &tree, MediaType::Protobuf));
        let entry = entry("ns/n", Revision(7), &tree, None, false);
        assert_eq!(entry.unversioned(), draft.json, "the round trip preserves the object");
        (bytes, entry)
    }

    #[test]
    fn built_in_kinds_round_trip_as_protobuf() {
        let (bytes, entry) = stored(&crate::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "n", "namespace": "ns", "labels": {"x": "y"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        }));
        assert!(bytes.starts_with(b"k8s\0"));
        assert_eq!((entry.label("x"), entry.revision), (Some("y"), Revision(7)));
    }

    #[test]
    fn definitions_and_custom_resources_are_stored_as_json() {
        for object in [
            crate::json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "n"},
                "spec": {"groupPriorityMinimum": 0, "versionPriority": 0}, "status": {}}),
            crate::json!({"apiVersion": "example.com/v1", "kind": "ConfigMap", "metadata": {"name": "n"}}),
        ] {
            assert!(stored(&object).0.starts_with(b"{"));
        }
    }

    #[test]
    fn json_and_yaml_are_decoded() {
        for text in [
            "{ \"kind\":\"A\",\n\"metadata\": {\"name\": \"x\"}}\n",
            "kind: A\nmetadata:\n  name: x\n",
        ] {
            let e = entry(
                "n",
                Revision(3),
                &decode(text.as_bytes()).expect("it decodes"),
                None,
                false,
            );
            assert_eq!(
                &e.json()[..],
                br#"{"kind":"A","metadata":{"name":"x","resourceVersion":"3"}}"#
            );
        }
        for odd in [
            &b"k8s:enc:aescbc:v1:a:xyz"[..],
            b"k8s\0",
            b"",
            b"{}",
            b"{\"metadata\":1}",
        ] {
            assert!(decode(odd).is_err());
        }
    }
}
