//! Property: table rows and partial metadata rendered from stored bytes equal those rendered from decoded
//! trees, for every kind, over generated objects.

use super::*;
use crate::api::json::{self, Shape};
use crate::api::{FreeForm, Ty, TypeDef};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::value::Map;
use crate::endpoints::respond::partial;
use crate::endpoints::respond::stored::{self, Rows};
use crate::endpoints::respond::table::{self, Include};
use crate::storage::{Draft, Revision};

/// Values that cells treat specially, and some that need JSON escapes.
const WORDS: &[&str] = &[
    "a",
    "b",
    "True",
    "False",
    "Ready",
    "Available",
    "Always",
    "Running",
    "Completed",
    "PodScheduled",
    "SchedulingGated",
    "PodInitializing",
    "NodeLost",
    "Succeeded",
    "Complete",
    "Failed",
    "Suspended",
    "Dangling",
    "Healthy",
    "Approved",
    "Denied",
    "Established",
    "ClusterIP",
    "LoadBalancer",
    "ExternalName",
    "InternalIP",
    "ExternalIP",
    "User",
    "Group",
    "ServiceAccount",
    "ReadWriteOnce",
    "ReadOnlyMany",
    "Resource",
    "Pods",
    "Object",
    "External",
    "ContainerResource",
    "In",
    "Exists",
    "apps/v1",
    "",
    "a\"<b>\\\u{e9}\u{2028}",
    "a text that is longer than what fits inline",
];

/// Map keys that cells read.
const KEYS: &[&str] = &[
    "a",
    "k\"}",
    "node-role.kubernetes.io/x",
    "kubernetes.io/role",
    "storage",
    "limits.cpu",
    "cpu",
    "deprecated.daemonset.template.generation",
    "deprecated.deployment.rollback.to",
    "autoscaling.alpha.kubernetes.io/metrics",
    "volume.beta.kubernetes.io/storage-class",
    "storageclass.kubernetes.io/is-default-class",
    "ingressclass.kubernetes.io/is-default-class",
];

/// The generator xorshift64*.
struct Random {
    state: u64,
    /// Remaining number of values to generate.
    left: usize,
}

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }

    /// A random object of a type: most fields that cells read, and some others.
    fn object(&mut self, def: &'static TypeDef, reads: Option<&Mask>) -> Value {
        let mut m = Map::new();
        for f in def.fields {
            let read = match reads {
                Some(Mask::Members(_)) => reads
                    .and_then(|mask| mask.member(f.name.as_bytes()))
                    .map(|(_, mask)| mask),
                other => other,
            };
            let often = if read.is_some() { 9 } else { 3 };
            if self.left > 0 && self.below(10) < often {
                self.left -= 1;
                let v = self.value(f.ty, read);
                m.insert(f.name, v);
            }
        }
        Value::Object(m)
    }

    fn value(&mut self, ty: Ty, reads: Option<&Mask>) -> Value {
        match ty {
            Ty::String => self.word().into(),
            Ty::Int32 | Ty::Int64 | Ty::Float => (self.below(5) as i64).into(),
            Ty::Bool => (self.below(2) == 0).into(),
            Ty::Bytes => "YQ==".into(),
            // Old enough that the rendered age cannot change during the test.
            Ty::Time => "2001-02-03T04:05:06Z".into(),
            Ty::MicroTime => "2001-02-03T04:05:06.000000Z".into(),
            Ty::Quantity => ["1", "100m", "2Gi"][self.below(3)].into(),
            Ty::IntOrString => [Value::from(3i64), "10%".into()][self.below(2)].clone(),
            Ty::Any(FreeForm::FieldsV1) => json!({"f:spec": {"k:{\"name\":\"x\"}": {".": {}}}}),
            Ty::Any(_) | Ty::SchemaOr(_) => json!({"a": {"b": [1, "}", {}]}}),
            Ty::Struct(of) => self.object(of.get(), reads),
            Ty::List(of) => Value::Array((0..self.below(3)).map(|_| self.value(*of, reads)).collect()),
            Ty::Map(of) => {
                let one = |r: &mut Self| (KEYS[r.below(KEYS.len())], r.value(*of, reads));
                Value::Object((0..self.below(4)).map(|_| one(self)).collect())
            }
        }
    }
}

fn kinds() -> Vec<Arc<Resource>> {
    let rows = running_rows();
    let groups = rows.groups.iter().chain([&rows.apiregistration]);
    let stored = |r: &&(Arc<Resource>, _)| !matches!(r.0.backing, Backing::CreateOnly(_));
    groups
        .flat_map(|g| g.resources.iter().filter(stored).map(|(r, _)| r.clone()))
        .collect()
}

#[test]
fn rows_from_bytes_equal_rows_from_trees() {
    for resource in kinds() {
        let def = resource.schema.definition().unwrap();
        let reads = table::reads(&resource);
        for seed in 1..=60u64 {
            let mut r = Random {
                state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                left: 400,
            };
            let mut object = r.object(def, Some(&reads));
            object.set(&["kind"], resource.kind.as_str());
            object.set(&["apiVersion"], resource.gvk().api_version());
            if resource.schema.normalize(&mut object).is_err() {
                // The random word is not valid for the field's type, a duration for instance.
                continue;
            }
            if object.get("metadata").as_object().is_none() {
                object.set(&["metadata"], Value::object());
            }
            // Every stored object has these, by which the order of its metadata is recognised.
            for (key, value) in [("name", "a"), ("creationTimestamp", "2001-02-03T04:05:06Z")] {
                if object.str_at(&["metadata", key]).is_empty() {
                    object.set(&["metadata", key], value);
                }
            }
            let entry = Draft::new(&object, vec![]).into_entry("ns/a", Revision(7));
            let tree = entry.decode();
            let show_as = |shape, v: &Value| {
                let mut out = Vec::new();
                json::encode_as(shape, v, &mut out);
                String::from_utf8(out).unwrap()
            };
            let show = |v: &Value| show_as(Shape::Document, v);
            let show_row = |v: &Value| show_as(Shape::table_row(), v);
            for include in [Include::None, Include::Metadata, Include::Object] {
                let rows = Rows {
                    resource: &resource,
                    version: "v1",
                    include,
                };
                let want = table::row(&resource, &tree, "v1", include);
                let mut got = Vec::new();
                rows.write(&entry, &mut got);
                let of = || format!("{} {include:?} of {}", resource.kind, show(&tree));
                assert_eq!(String::from_utf8(got).unwrap(), show_row(&want), "{}", of());
                assert_eq!(rows.tree(&entry), want, "{}", of());
                let want = table::of_event(&resource, &tree, "v1", include, table::columns(&resource));
                let mut got = Vec::new();
                rows.write_table(&entry, table::columns(&resource), &mut got);
                assert_eq!(String::from_utf8(got).unwrap(), show(&want), "{}", of());
                assert_eq!(
                    show(&rows.table(&entry, table::columns(&resource))),
                    show(&want),
                    "{}",
                    of()
                );
            }
            let want = partial::of(&resource, &tree, "v1");
            let mut got = Vec::new();
            stored::write_partial(&resource, &entry, "v1", &mut got);
            assert_eq!(String::from_utf8(got).unwrap(), show(&want));
            assert_eq!(show(&partial::of_entry(&resource, &entry, "v1")), show(&want));
        }
    }
}

#[test]
fn tables_read_only_parts_of_an_object() {
    for resource in kinds() {
        let converted = matches!(resource.backing, Backing::Converted { .. });
        let reads = table::reads(&resource);
        assert_eq!(*reads == Mask::Whole, converted, "{}", resource.kind);
        for part in ["metadata", "spec", "status", "data"] {
            let whole = reads
                .member(part.as_bytes())
                .is_some_and(|(_, mask)| *mask == Mask::Whole);
            assert!(!whole, "{} reads all of {part}", resource.kind);
        }
    }
}

#[test]
fn columns_have_descriptions() {
    let rows = running_rows();
    let column = |resource: &str, name: &str| {
        let mut all = rows.groups.iter().flat_map(|g| &g.resources);
        let (row, _) = all.find(|(r, _)| r.gvr.resource == resource).unwrap();
        let columns = row.columns.as_ref().unwrap().columns.clone();
        columns.iter().find(|c| c.name == name).unwrap().clone()
    };
    for (resource, name) in [
        ("endpoints", "Endpoints"),
        ("endpointslices", "AddressType"),
        ("rolebindings", "Role"),
        ("priorityclasses", "PreemptionPolicy"),
        ("flowschemas", "MatchingPrecedence"),
        ("prioritylevelconfigurations", "HandSize"),
    ] {
        assert!(!column(resource, name).description.is_empty(), "{resource} {name}");
    }
    assert_eq!(column("volumeattachments", "Attacher").format, "name");
}

#[tokio::test]
async fn only_api_services_repeat_the_column_headers() {
    let r = running();
    let groups = r.plane.groups.iter().chain([&r.plane.apiregistration]);
    let rows = groups.flat_map(|g| &g.resources).map(|(row, _)| row);
    let always = rows.filter(|row| row.columns.as_ref().is_some_and(|c| c.always_headed));
    let always: Vec<String> = always.map(|row| row.gvr.resource.to_string()).collect();
    assert_eq!(always, ["apiservices"]);
}
