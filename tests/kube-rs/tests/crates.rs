//! Compares the schema table and the codecs with the crates that describe the same kinds: k8s-openapi decodes
//! and encodes our JSON, k8s-pb our protobuf. Every kind of the table is in both lists, or in the list of
//! kinds that a crate lacks.

#[path = "../../../crates/kube-schema/tests/support/generator.rs"]
mod generator;
#[path = "crates/kinds.rs"]
mod kinds;

use generator::{Exclude, Generator};
use proptest::prelude::*;
use std::collections::BTreeSet;
use torana_apimachinery::codec::json;
use torana_apimachinery::value::Value;
use torana_kube_schema::decode::normalize;
use torana_kube_schema::protobuf::{decode_message, encode_message};
use torana_kube_schema::{Field, TypeDef, types};

/// Definitions that k8s-openapi lacks: discovery documents, request options, metadata-only objects and what
/// is stored but not served, which the release's OpenAPI document does not describe.
const NOT_TYPED: [&str; 10] = [
    "io.k8s.api.apidiscovery.v2.APIGroupDiscovery",
    "io.k8s.api.apidiscovery.v2.APIGroupDiscoveryList",
    "io.k8s.api.core.v1.RangeAllocation",
    "io.k8s.apimachinery.pkg.apis.meta.v1.CreateOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.GetOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata",
    "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.PatchOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.UpdateOptions",
];

/// k8s-openapi models a watch event as an enum of its types, not as a struct with fields.
const NO_OBJECT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Kinds added in 1.36: k8s-pb is at 1.35.
const NEWER_KINDS: [&str; 12] = [
    "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicy",
    "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyBinding",
    "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyBindingList",
    "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyList",
    "io.k8s.api.resource.v1alpha3.ResourcePoolStatusRequest",
    "io.k8s.api.resource.v1alpha3.ResourcePoolStatusRequestList",
    "io.k8s.api.resource.v1beta2.DeviceTaintRule",
    "io.k8s.api.resource.v1beta2.DeviceTaintRuleList",
    "io.k8s.api.scheduling.v1alpha2.PodGroup",
    "io.k8s.api.scheduling.v1alpha2.PodGroupList",
    "io.k8s.api.scheduling.v1alpha2.Workload",
    "io.k8s.api.scheduling.v1alpha2.WorkloadList",
];

/// Fields added in 1.36 to messages that k8s-pb has. Names omit `io.k8s.`.
const NEWER_FIELDS: [(&str, &[&str]); 15] = [
    (
        "api.certificates.v1beta1.PodCertificateRequestSpec",
        &["stubPKCS10Request"],
    ),
    ("api.core.v1.PodSpec", &["schedulingGroup"]),
    ("api.core.v1.PodStatus", &["nodeAllocatableResourceClaimStatuses"]),
    ("api.core.v1.ResourceHealth", &["message"]),
    ("api.core.v1.VolumeMountStatus", &["volumeStatus"]),
    ("api.resource.v1.Device", &["nodeAllocatableResourceMappings"]),
    (
        "api.resource.v1.DeviceAttribute",
        &["bools", "ints", "strings", "versions"],
    ),
    ("api.resource.v1beta1.BasicDevice", &["nodeAllocatableResourceMappings"]),
    (
        "api.resource.v1beta1.DeviceAttribute",
        &["bools", "ints", "strings", "versions"],
    ),
    ("api.resource.v1beta2.Device", &["nodeAllocatableResourceMappings"]),
    (
        "api.resource.v1beta2.DeviceAttribute",
        &["bools", "ints", "strings", "versions"],
    ),
    ("api.storage.v1.CSIDriverSpec", &["preventPodSchedulingIfMissing"]),
    ("api.storage.v1beta1.CSIDriverSpec", &["preventPodSchedulingIfMissing"]),
    ("apimachinery.pkg.apis.meta.v1.ListMeta", &["shardInfo"]),
    ("apimachinery.pkg.apis.meta.v1.ListOptions", &["shardSelector"]),
];

/// A kind of a crate: its definition, and its round trip.
pub struct Kind {
    def: &'static TypeDef,
    /// Decodes the bytes into the crate's type and encodes it again.
    again: fn(&[u8]) -> Result<Vec<u8>, String>,
}

impl Kind {
    fn new(module: &str, name: &str, again: fn(&[u8]) -> Result<Vec<u8>, String>) -> Self {
        // The crates spell modules with underscores, and k8s-pb spells some kinds in another case.
        let path = format!(
            "{}.{name}",
            module.replace(' ', "").replace("::", ".").replace('_', "-")
        );
        let (_, path) = path.split_once('.').expect("a crate and the path in it");
        let wanted = format!("io.k8s.{path}").to_lowercase();
        let def = types().iter().find(|t| t.name.to_lowercase() == wanted);
        Self {
            def: def.unwrap_or_else(|| panic!("the table has no {path}")),
            again,
        }
    }
}

fn names(kinds: &[Kind], others: &[&'static str]) -> BTreeSet<&'static str> {
    let names: BTreeSet<_> = kinds.iter().map(|k| k.def.name).chain(others.iter().copied()).collect();
    assert_eq!(names.len(), kinds.len() + others.len(), "a kind is listed twice");
    names
}

#[test]
fn every_kind_of_the_table_is_checked_or_listed_as_missing() {
    let all: BTreeSet<&str> = types().iter().filter(|t| !t.gvks.is_empty()).map(|t| t.name).collect();
    let mut not_typed = NOT_TYPED.to_vec();
    not_typed.push(NO_OBJECT);
    assert_eq!(names(&kinds::typed(), &not_typed), all);
    assert_eq!(names(&kinds::messages(), &NEWER_KINDS), all);
}

#[test]
fn fields_listed_as_newer_are_those_of_the_table() {
    for (name, fields) in NEWER_FIELDS {
        // The table has only served definitions; the crate also has messages that are no longer served.
        if let Some(def) = torana_kube_schema::by_name(&format!("io.k8s.{name}")) {
            assert!(fields.iter().all(|f| def.field(f).is_some()), "{name}");
        }
    }
}

/// `apiVersion` and `kind`: protobuf has them in the envelope, and not at all in list items.
fn in_envelope(_: &TypeDef, f: &Field) -> bool {
    f.tag == 0
}

fn unknown_to_pb(def: &TypeDef, f: &Field) -> bool {
    let newer = NEWER_FIELDS
        .iter()
        .find(|(name, _)| def.name.strip_prefix("io.k8s.") == Some(name));
    in_envelope(def, f) || newer.is_some_and(|(_, fields)| fields.contains(&f.name))
}

fn normal(def: &'static TypeDef, mut v: Value) -> Value {
    let findings = normalize(def, &mut v).unwrap_or_else(|e| panic!("{}: {e}", def.name));
    assert!(findings.is_empty(), "{}: {findings:?}", def.name);
    v
}

fn is_empty(v: &Value) -> bool {
    match v {
        Value::Object(m) => m.iter().all(|(_, v)| v.is_null() || is_empty(v)),
        v => v.is_empty_value(),
    }
}

/// The first difference between two trees.
fn difference(ours: &Value, theirs: &Value, path: &str) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&str> = a.iter().chain(b.iter()).map(|(k, _)| k).collect();
            keys.into_iter().find_map(|k| match (a.get(k), b.get(k)) {
                (Some(a), Some(b)) => difference(a, b, &format!("{path}.{k}")),
                (None, Some(b)) if is_empty(b) => None,
                (a, b) => Some(format!("{path}.{k}: ours {a:?}, theirs {b:?}")),
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs
                .map(|(i, (a, b))| difference(a, b, &format!("{path}[{i}]")))
                .find_map(|d| d)
        }
        // The crate decodes a field that Go writes as null (or, above, omits) when unset as an empty value of
        // its type.
        (Value::Null, empty) if is_empty(empty) => None,
        // The crate writes whole floats with a fraction; in JSON both are the same number.
        (Value::Int(a), Value::Float(b)) if *a as f64 == *b => None,
        (a, b) => (a != b).then(|| format!("{path}: ours {a:?}, theirs {b:?}")),
    }
}

fn through_json(kind: &Kind, object: &Value) -> Value {
    let again = (kind.again)(json::to_string(object).as_bytes());
    let again = again.unwrap_or_else(|e| panic!("{} is not read: {e}", kind.def.name));
    json::decode(&again).expect("what the crate writes is JSON")
}

fn through_messages(kind: &Kind, object: &Value) -> Value {
    let name = kind.def.name;
    let mut bytes = Vec::new();
    encode_message(kind.def, object, &mut bytes);
    let again = (kind.again)(&bytes).unwrap_or_else(|e| panic!("{name} is not read: {e}"));
    decode_message(kind.def, &again).unwrap_or_else(|e| panic!("k8s-pb's encoding of {name} is not decoded: {e}"))
}

fn check(
    kinds: &[Kind],
    make: impl Fn(Exclude) -> Generator,
    without: Exclude,
    through: fn(&Kind, &Value) -> Value,
) -> Vec<String> {
    let differ = |kind: &Kind| {
        let ours = normal(kind.def, make(without).object(kind.def));
        let theirs = normal(kind.def, through(kind, &ours));
        difference(&ours, &theirs, kind.def.name)
    };
    kinds.iter().filter_map(differ).collect()
}

/// With every field filled no convention about unset fields matters, so both encode the same without
/// normalising.
#[test]
fn json_with_all_fields_equals_k8s_openapi() {
    let differ = |kind: &Kind| {
        let ours = Generator::full(1, |_, _| false).object(kind.def);
        assert_eq!(normal(kind.def, ours.clone()), ours, "{}", kind.def.name);
        difference(&ours, &through_json(kind, &ours), kind.def.name)
    };
    let found: Vec<String> = kinds::typed().iter().filter_map(differ).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn messages_with_all_fields_equal_k8s_pb() {
    let found = check(
        &kinds::messages(),
        |w| Generator::full(1, w),
        unknown_to_pb,
        through_messages,
    );
    assert!(found.is_empty(), "{found:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// Unset always-written fields differ: where the crate's type is not an `Option` it writes an empty
    /// value.
    #[test]
    fn json_equals_k8s_openapi(seed: u64) {
        let found = check(&kinds::typed(), |w| Generator::some(seed, w).strict(), |_, _| false, through_json);
        prop_assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn messages_equal_k8s_pb(seed: u64) {
        let found = check(&kinds::messages(), |w| Generator::some(seed, w), unknown_to_pb, through_messages);
        prop_assert!(found.is_empty(), "{found:#?}");
    }
}
