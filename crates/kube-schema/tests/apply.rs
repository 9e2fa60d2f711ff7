//! Properties of server-side apply that hold for every built-in kind, over generated configurations.

#[path = "support/generator.rs"]
mod generator;

use generator::Generator;
use proptest::prelude::*;
use torana_apimachinery::apply::{self, ApplyRequest, FieldSet, Writer, typed, update_managed_fields};
use torana_apimachinery::status::Status;
use torana_apimachinery::value::Value;
use torana_kube_schema::apply_schema::ApplyType;
use torana_kube_schema::decode::normalize;
use torana_kube_schema::{Field, TypeDef, types};

const MANAGED: [&str; 2] = ["metadata", "managedFields"];

/// Kinds with managed fields.
fn kinds() -> impl Iterator<Item = &'static TypeDef> {
    let has_metadata = |t: &&TypeDef| {
        let metadata = t.field("metadata").and_then(|f| f.ty.struct_def());
        metadata.is_some_and(|m| m.name.ends_with(".ObjectMeta"))
    };
    types().iter().filter(|t| matches!(t.gvks, [_])).filter(has_metadata)
}

/// Metadata fields to leave out: identity and server-written fields are never owned by a manager.
fn without(def: &TypeDef, f: &Field) -> bool {
    const OWNED: [&str; 5] = ["annotations", "finalizers", "generateName", "labels", "ownerReferences"];
    def.name.ends_with(".ObjectMeta") && !OWNED.contains(&f.name)
}

/// Removes nulls and empty objects. An empty struct is owned as a whole even when the server fills it in,
/// which would break the properties below.
fn solid(v: Value) -> Value {
    match v {
        Value::Object(m) => {
            let members = m.into_iter().map(|(k, v)| (k, solid(v)));
            let kept = members.filter(|(_, v)| !v.is_null() && v.as_object().is_none_or(|m| !m.is_empty()));
            Value::Object(kept.collect())
        }
        Value::Array(a) => Value::Array(a.into_iter().map(solid).collect()),
        v => v,
    }
}

/// A generated, normalised configuration of a kind, or `None` if apply refuses it.
fn config(def: &'static TypeDef, seed: u64) -> Option<Value> {
    let mut config = Generator::some(seed, without).single_item_lists().object(def);
    normalize(def, &mut config).expect("it has the right types");
    let mut config = solid(config);
    config.set(&["metadata", "name"], "n");
    applied(def, None, &config, "probe", false).is_ok().then_some(config)
}

fn writer(manager: &str) -> Writer<'_> {
    Writer {
        manager,
        subresource: "",
        api_version: "v1",
        now: "2026-01-01T00:00:00Z",
    }
}

/// Applies the configuration and normalises the result, as the server does before it stores the object.
fn applied(
    def: &'static TypeDef,
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    force: bool,
) -> Result<Value, Status> {
    let reset = FieldSet::new();
    let request = ApplyRequest {
        writer: writer(manager),
        force,
        reset: &reset,
    };
    let mut object = apply::apply(ApplyType::Root(def), live, config, &request)?.object;
    normalize(def, &mut object).unwrap_or_else(|e| panic!("{}: {e}", def.name));
    Ok(object)
}

fn managers(v: &Value) -> Vec<&str> {
    v.at(&MANAGED).items().iter().map(|e| e.str_at(&["manager"])).collect()
}

fn bare(v: &Value) -> Value {
    let mut v = v.clone();
    v.unset(&MANAGED);
    v
}

/// A configuration that only identifies the object.
fn nothing(config: &Value) -> Value {
    torana_apimachinery::json!({"apiVersion": (config.get("apiVersion").clone()), "kind": (config.get("kind").clone()), "metadata": {"name": "n"}})
}

/// The field set of an object after normalisation.
fn fields(def: &'static TypeDef, v: &Value) -> FieldSet {
    let mut v = bare(v);
    normalize(def, &mut v).expect("it has the right types");
    typed::to_field_set(&v, ApplyType::Root(def))
}

/// Calls `f` with a usable configuration of each kind; fails if too few kinds have one.
fn each(seed: u64, mut f: impl FnMut(&'static TypeDef, Value)) {
    let mut usable = 0;
    for def in kinds() {
        if let Some(config) = config(def, seed) {
            usable += 1;
            f(def, config);
        }
    }
    assert!(usable * 2 > kinds().count(), "{usable}");
}

#[test]
fn embedded_documents_may_be_of_any_type_and_are_owned_as_a_whole() {
    let def = torana_kube_schema::by_gvk("resource.k8s.io", "v1", "DeviceClass").expect("a built-in kind");
    let config = |parameters: Value| {
        torana_apimachinery::json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "n"},
            "spec": {"config": [{"opaque": {"driver": "d.io", "parameters": (parameters)}}], "extendedResourceName": "a.b/c"}})
    };
    for parameters in [
        torana_apimachinery::json!("x"),
        torana_apimachinery::json!([1]),
        torana_apimachinery::json!({"a": {"b": 1}}),
    ] {
        let first = applied(def, None, &config(parameters), "a", false).expect("any type is applied");
        let other = applied(def, Some(&first), &config(Value::from(true)), "a", false);
        assert!(other.is_ok(), "{other:?}");
    }
    let revision = torana_kube_schema::by_gvk("apps", "v1", "ControllerRevision").expect("a built-in kind");
    let config = |data: Value| {
        torana_apimachinery::json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "n"},
            "revision": 1, "data": (data)})
    };
    let first = applied(
        revision,
        None,
        &config(torana_apimachinery::json!({"a": {"b": 1}})),
        "a",
        false,
    );
    let first = first.expect("nothing conflicts");
    let owned = first.at(&MANAGED).items()[0].at(&["fieldsV1", "f:data"]);
    assert_eq!(owned, &torana_apimachinery::json!({}), "{first:?}");
    let text = applied(revision, Some(&first), &config(Value::from("x")), "b", true).expect("force");
    assert_eq!(text.get("data"), &Value::from("x"));
    assert_eq!(text.at(&MANAGED).items().len(), 2);
    assert!(
        text.at(&MANAGED)
            .items()
            .iter()
            .all(|e| e.str_at(&["manager"]) != "a" || e.at(&["fieldsV1", "f:data"]).is_null())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn applying_again_changes_nothing(seed: u64) {
        each(seed, |def, config| {
            let once = applied(def, None, &config, "a", false).expect("it was applied before");
            let twice = applied(def, Some(&once), &config, "a", false);
            assert_eq!(twice, Ok(once), "{}", def.name);
        });
    }

    #[test]
    fn fields_of_two_appliers_stay_until_both_release_them(seed: u64) {
        each(seed, |def, config| {
            let a = applied(def, None, &config, "a", false).expect("it was applied before");
            // An atomic list or map that the server completes differs from the applied one, so applying it
            // needs force.
            let both = applied(def, Some(&a), &config, "b", true).expect("force");
            assert_eq!(bare(&both), bare(&a), "{}", def.name);
            if managers(&both) != ["a", "b"] {
                return;
            }
            let without_a = applied(def, Some(&both), &nothing(&config), "a", false).expect("nothing conflicts");
            assert_eq!(managers(&without_a), ["b"], "{}", def.name);
            let wanted = typed::to_field_set(&config, ApplyType::Root(def));
            let left = fields(def, &without_a);
            assert!(wanted.difference(&left).is_empty(), "{}: {:?}", def.name, wanted.difference(&left));
            let without_both = applied(def, Some(&without_a), &nothing(&config), "b", false).expect("nothing conflicts");
            let empty = applied(def, None, &nothing(&config), "c", false).expect("nothing conflicts");
            assert_eq!(bare(&without_both), bare(&empty), "{}", def.name);
        });
    }

    #[test]
    fn taking_fields_of_an_updater_requires_force(seed: u64, other: u64) {
        each(seed, |def, config| {
            let mut live = config.clone();
            normalize(def, &mut live).expect("it has the right types");
            update_managed_fields(ApplyType::Root(def), None, &mut live, &writer("u"), &FieldSet::new());
            let Some(config) = self::config(def, other) else { return };
            let forced = applied(def, Some(&live), &config, "a", true).expect("force");
            let wanted = typed::to_field_set(&config, ApplyType::Root(def));
            let got = fields(def, &forced);
            assert!(wanted.difference(&got).is_empty(), "{}: {:?}", def.name, wanted.difference(&got));
            match applied(def, Some(&live), &config, "a", false) {
                Ok(object) => assert_eq!(bare(&object), bare(&forced), "{}", def.name),
                Err(status) => {
                    assert_eq!(status.code, 409, "{}", def.name);
                    assert!(status.message.contains("conflict"), "{}", status.message);
                }
            }
            let again = applied(def, Some(&forced), &config, "a", false);
            assert_eq!(again, Ok(forced), "{}: applying fields that are already owned needs no force", def.name);
        });
    }
}

#[test]
fn mismatched_configurations_are_refused_with_upstreams_message() {
    let role_binding = kinds()
        .find(|t| t.name.ends_with(".rbac.v1.RoleBinding"))
        .expect("it is in the table");
    let why = |config: Value| {
        let refused = applied(role_binding, None, &config, "m", false).expect_err("it does not fit");
        refused
            .message
            .split_once("): ")
            .map(|(_, why)| why.to_owned())
            .unwrap_or_default()
    };
    let with = |metadata: Value, subjects: Value| {
        let mut config =
            torana_apimachinery::json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"});
        config.set(&["metadata"], metadata);
        config.set(&["subjects"], subjects);
        config
    };
    let named = || torana_apimachinery::json!({"name": "n"});
    // Elements of a list that is owned as a whole are checked too.
    let subjects = torana_apimachinery::json!([{"kind": "User", "names": "u"}]);
    assert_eq!(
        why(with(named(), subjects)),
        ".subjects[0].names: field not declared in schema"
    );
    let subjects = torana_apimachinery::json!([80]);
    assert_eq!(why(with(named(), subjects)), ".subjects[0]: expected map, got &{80}");
    for (generation, what) in [
        (Value::from("x"), "string"),
        (Value::from(true), "bool"),
        (torana_apimachinery::json!([1]), "[]interface {}"),
    ] {
        let metadata = torana_apimachinery::json!({"name": "n", "generation": (generation)});
        let why = why(with(metadata, Value::Null));
        assert_eq!(
            why,
            format!(".metadata.generation: expected numeric (int or float), got {what}")
        );
    }
}
