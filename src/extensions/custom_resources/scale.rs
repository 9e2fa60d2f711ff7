//! The scale subresource of custom resources (upstream's `ScaleREST` in
//! `k8s.io/apiextensions-apiserver/pkg/registry/customresource/etcd.go`).
//!
//! Entry point: [`ScalePaths::of_version`], then [`Scale`] to serve it and [`ScaleStrategy`] to validate the
//! fields in every write.

mod handler;
mod validation;

pub(crate) use validation::ScaleStrategy;

use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::patch::{go_print, go_type};
use crate::apimachinery::value::{Map, Str, Value};
use crate::registry::scale::managers::ReplicasPaths;
use crate::registry::scale::scale_of;
use crate::registry::{Schema, Store, Subresource, SubresourceBehaviour, Verbs};
use handler::ScaleHandler;
use std::sync::Arc;

/// The paths of the Scale fields in the objects of one version of a definition.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    wanted: Path,
    observed: Path,
    selector: Option<Path>,
    managers: ReplicasPaths,
}

/// A path of field names; unlike a [`JsonPath`](crate::apimachinery::jsonpath::JsonPath), it can be written
/// to.
#[derive(Clone, Debug)]
struct Path {
    /// As the definition has it, with a leading dot.
    text: Str,
    names: Vec<Str>,
}

/// Why an object has no Scale, or its number of replicas cannot be set. Messages as upstream words them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WrongType {
    /// A value has another type than the Scale needs.
    #[error("{path} accessor error: {shown} is of the type {found}, expected {expected}")]
    Read {
        path: String,
        shown: String,
        found: &'static str,
        expected: &'static str,
    },
    /// The parent of the value to set is not an object.
    #[error("value cannot be set because {0} is not a map[string]interface{{}}")]
    Parent(String),
}

impl Path {
    fn parse(text: &str) -> Self {
        Self {
            text: text.into(),
            names: names(text).into_iter().map(Str::new).collect(),
        }
    }

    /// The value; `None` if it, or an object around it, is missing.
    fn get<'v>(&self, object: &'v Value) -> Result<Option<&'v Value>, WrongType> {
        let mut at = object;
        for (i, name) in self.names.iter().enumerate() {
            match at {
                // For objects around the value null counts as absent; for the value itself, it is a wrong type.
                Value::Null => return Ok(None),
                Value::Object(m) => match m.get(name) {
                    Some(v) => at = v,
                    None => return Ok(None),
                },
                // Only objects can be descended into; the message names the path up to here.
                v => return Err(accessor(&self.names[..=i], v, "map[string]interface{}")),
            }
        }
        Ok(Some(at))
    }

    fn integer(&self, object: &Value) -> Result<Option<i64>, WrongType> {
        match self.get(object)? {
            None => Ok(None),
            Some(Value::Int(n)) => Ok(Some(*n)),
            Some(v) => Err(accessor(&self.names, v, "int64")),
        }
    }

    fn string<'v>(&self, object: &'v Value) -> Result<&'v str, WrongType> {
        match self.get(object)? {
            None => Ok(""),
            Some(Value::String(s)) => Ok(s),
            Some(v) => Err(accessor(&self.names, v, "string")),
        }
    }

    /// Sets the value and creates missing parents.
    fn set(&self, object: &mut Value, value: i64) -> Result<(), WrongType> {
        let mut at = object;
        for (i, name) in self.names.iter().enumerate() {
            let Value::Object(m) = at else {
                return Err(WrongType::Parent(dotted(&self.names[..i])));
            };
            let last = i + 1 == self.names.len();
            // A member that is null is not replaced; the next round reports it as having the wrong type.
            if !last && !m.contains_key(name) {
                m.insert(name.clone(), Value::object());
            }
            at = m.entry(name);
        }
        *at = Value::Int(value);
        Ok(())
    }
}

fn names(path: &str) -> Vec<&str> {
    // Validation requires the dot; stored definitions may predate that.
    path.strip_prefix('.').unwrap_or(path).split('.').collect()
}

fn dotted(names: &[Str]) -> String {
    names.iter().flat_map(|name| [".", name]).collect()
}

fn accessor(names: &[Str], v: &Value, expected: &'static str) -> WrongType {
    WrongType::Read {
        path: dotted(names),
        shown: go_print(v),
        found: go_type(v),
        expected,
    }
}

impl ScalePaths {
    /// The paths of a version of a definition, given the definition's `spec`; `None` if the version has no
    /// scale subresource.
    pub(crate) fn of_version(spec: &Value, version: &str) -> Option<Self> {
        let versions = spec.get("versions").items();
        let of = versions.iter().find(|v| v.str_at(&["name"]) == version)?;
        Self::of(spec.str_at(&["group"]), of, versions)
    }

    /// As [`of_version`](Self::of_version), for documents: it knows no other version, whose managers would be
    /// read.
    pub(crate) fn published(group: &str, version: &Value) -> Option<Self> {
        Self::of(group, version, std::slice::from_ref(version))
    }

    fn of(group: &str, version: &Value, known: &[Value]) -> Option<Self> {
        fn scale(version: &Value) -> Option<&Map> {
            version.at(&["subresources", "scale"]).as_object()
        }
        let own = scale(version)?;
        let named = |v: &Value| format!("{group}/{}", v.str_at(&["name"]));
        let replicas = |v: &Value| scale(v).map(|m| m.str("specReplicasPath").to_owned());
        // Other versions are needed to move ownership of the replicas between their paths.
        let all: Vec<(String, Option<String>)> = known.iter().map(|v| (named(v), replicas(v))).collect();
        let all = all
            .iter()
            .map(|(name, path)| (name.as_str(), path.as_deref().map(names)));
        let path = |key| Path::parse(own.str(key));
        Some(Self {
            wanted: path("specReplicasPath"),
            observed: path("statusReplicasPath"),
            selector: Some(own.str("labelSelectorPath"))
                .filter(|p| !p.is_empty())
                .map(Path::parse),
            managers: ReplicasPaths::new(&named(version), all),
        })
    }

    /// The Scale of an object, and whether the object has the number of wanted replicas.
    ///
    /// # Errors
    /// If a field has the wrong type.
    fn scale(&self, object: &Value) -> Result<(Value, bool), WrongType> {
        let wanted = self.wanted.integer(object)?;
        let observed = self.observed.integer(object)?.unwrap_or(0);
        let selector = self.selector.as_ref().map_or(Ok(""), |path| path.string(object))?;
        // Go converts to `int32` by dropping the upper half; validation rejects such numbers.
        let narrow = |n: i64| i64::from(n as i32);
        let scale = scale_of(object, narrow(wanted.unwrap_or(0)), narrow(observed), selector);
        Ok((scale, wanted.is_some()))
    }
}

/// The scale subresource of a kind. Its requests are refused until [`bind`](Self::bind) is called.
pub(crate) struct Scale(Arc<ScaleHandler>);

impl Scale {
    /// The subresource with these paths; `schema` is that of `autoscaling/v1` Scale.
    pub(crate) fn new(paths: ScalePaths, schema: Arc<dyn Schema>) -> Self {
        Self(Arc::new(ScaleHandler::new(paths, schema)))
    }

    /// The entry for the resource.
    pub(crate) fn subresource(&self) -> Subresource {
        Subresource {
            name: "scale".into(),
            kind: GroupVersionKind::new("autoscaling", "v1", "Scale"),
            verbs: Verbs::GET_PATCH_UPDATE,
            behaviour: SubresourceBehaviour::Custom(self.0.clone()),
            printable: true,
        }
    }

    /// Sets the store of the objects, whose resource must not contain this subresource: it would own itself.
    pub(crate) fn bind(&self, parent: &Store) {
        self.0.bind(parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    pub(super) fn spec() -> Value {
        json!({"group": "g", "versions": [
            {"name": "v1", "subresources": {"scale": {"specReplicasPath": ".spec.deep.size", "statusReplicasPath": ".status.n",
                                                      "labelSelectorPath": ".status.selector"}}},
            {"name": "v2", "subresources": {"status": {}}}]})
    }

    pub(super) fn paths() -> ScalePaths {
        ScalePaths::of_version(&spec(), "v1").expect("v1 has a scale subresource")
    }

    #[test]
    fn a_scale_shows_the_declared_paths() {
        assert!(ScalePaths::of_version(&spec(), "v2").is_none());
        let object = json!({
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"deep": {"size": 3}}, "status": {"n": 1, "selector": "a=b"}});
        let (scale, found) = paths().scale(&object).expect("a scale");
        assert!(found);
        assert_eq!(
            scale,
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
                   "metadata": {"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                   "spec": {"replicas": 3}, "status": {"replicas": 1, "selector": "a=b"}})
        );
        for without in [json!({"spec": {}}), json!({"spec": {"deep": null}})] {
            let (_, found) = paths().scale(&without).expect("a scale");
            assert!(!found);
        }
        for (object, want) in [
            (
                json!({"spec": {"deep": {"size": "x"}}}),
                ".spec.deep.size accessor error: x is of the type string, expected int64",
            ),
            (
                json!({"spec": {"deep": {"size": null}}}),
                ".spec.deep.size accessor error: <nil> is of the type <nil>, expected int64",
            ),
            (
                json!({"spec": {"deep": [1]}}),
                ".spec.deep.size accessor error: [1] is of the type []interface {}, expected map[string]interface{}",
            ),
            (
                json!({"status": {"selector": 1}}),
                ".status.selector accessor error: 1 is of the type int64, expected string",
            ),
        ] {
            assert_eq!(paths().scale(&object).expect_err("a wrong type").to_string(), want);
        }
    }

    #[test]
    fn setting_creates_parents_and_keeps_other_values() {
        let path = Path::parse(".spec.deep.size");
        let mut object = json!({"spec": {"x": 1}});
        path.set(&mut object, 5).expect("settable");
        assert_eq!(object, json!({"spec": {"x": 1, "deep": {"size": 5}}}));
        let mut other = json!({"spec": {"deep": null}});
        assert_eq!(
            path.set(&mut other, 5).expect_err("null is not a map").to_string(),
            "value cannot be set because .spec.deep is not a map[string]interface{}"
        );
    }
}
