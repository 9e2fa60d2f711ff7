//! A document of the expected kind in another version. Upstream decodes it as that version before it compares the
//! versions, so what strict decoding finds comes first.

use super::known::INTERNAL_VERSION;
use super::{BodyType, Document, explained, foreign, parse, read_type_meta};
use crate::api;
use crate::apimachinery::codec::strict_errors::StrictErrors;
use crate::apimachinery::field::quote;
use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::value::{Map, Value};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The result of strictly decoding a document of another version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OtherVersion {
    pub given: GroupVersionKind,
    pub unknown: Vec<String>,
    pub duplicates: Vec<String>,
}

/// Reads a document that was refused; `None` if it is not of another version of the expected kind, or does not fit it.
pub(crate) fn other_version(bytes: &[u8], body_type: BodyType, expected: &GroupVersionKind) -> Option<OtherVersion> {
    // Messages have no unknown fields.
    if body_type == BodyType::Protobuf {
        return None;
    }
    let Document {
        mut value, duplicates, ..
    } = parse(bytes, body_type).ok()?;
    let (kind, version) = read_type_meta(&value).ok()?;
    let given = version?.with_kind(kind.unwrap_or(&expected.kind));
    let is_same_kind = given.kind == expected.kind && given.group_version() != expected.group_version();
    if !is_same_kind || foreign(&given, expected, |def| explained(def, bytes, body_type)).is_some() {
        return None;
    }
    let unknown = match (&*given.version, api::by_gvk(&given.group, &given.version, &given.kind)) {
        (INTERNAL_VERSION, _) => unknown_to_internal(&value),
        (_, Some(def)) => api::decode::normalize(def, &mut value).ok()?,
        // The schemas of versions that are no longer served are not kept.
        _ => Vec::new(),
    };
    Some(OtherVersion {
        given,
        unknown,
        duplicates,
    })
}

/// The unknown fields of a document that upstream decodes into its internal type of the kind. That type
/// knows only the members of its embedded structs, because its other fields have no names in JSON.
pub(crate) fn unknown_to_internal(document: &Value) -> Vec<String> {
    let metadata = api::by_name(OBJECT_META);
    let is_embedded =
        |key: &str| matches!(key, "apiVersion" | "kind") || metadata.is_some_and(|def| def.field(key).is_some());
    let mut findings = StrictErrors::default();
    for key in document.as_object().into_iter().flat_map(Map::keys) {
        if !is_embedded(key) {
            findings.add(|| format!("unknown field {}", quote(key)));
        }
    }
    findings.into_texts()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_those_of_the_documents_own_version() {
        let expected = GroupVersionKind::new("autoscaling", "v2", "HorizontalPodAutoscaler");
        let read = |body: &str| other_version(body.as_bytes(), BodyType::Json, &expected);
        let v1 = read(
            r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","spec":{"metrics":[],"x":1},"spec":{"x":1}}"#,
        );
        let v1 = v1.expect("of another version");
        assert_eq!(v1.given.api_version(), "autoscaling/v1");
        assert_eq!(v1.unknown, [r#"unknown field "spec.x""#]);
        assert_eq!(v1.duplicates, [r#"duplicate field "spec""#]);
        // The internal type has the fields of metadata, but no `metadata`.
        let internal =
            read(r#"{"apiVersion":"autoscaling/__internal","metadata":{"name":"a"},"name":"n","spec":{"x":1}}"#);
        let internal = internal.expect("of another version").unknown;
        assert_eq!(internal, [r#"unknown field "metadata""#, r#"unknown field "spec""#]);
        for other in [
            r#"{"apiVersion":"autoscaling/v2","x":1}"#,
            r#"{"apiVersion":"autoscaling/v1","spec":5}"#,
            r#"{"kind":"X","apiVersion":"autoscaling/__internal"}"#,
            r#"{"kind":"Scale","apiVersion":"autoscaling/v1"}"#,
            "{",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
