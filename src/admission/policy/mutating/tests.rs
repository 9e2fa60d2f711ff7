//! Mutating policies over a fixed cluster.

use super::*;
use crate::admission::policy::mutation_errors;
use crate::admission::policy::stored::StoredPolicy as _;
use crate::admission::testing::{cluster, pod, request, update};
use crate::admission::{Admission, Chain, Operation};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::authz::AlwaysAllow;
use crate::json;
use crate::telemetry::match_conditions::MatchConditionMetrics;
use async_trait::async_trait;
use prometheus::Registry;

/// Policies `p0`, `p1`, … for everything, each with a binding of the same name.
struct World {
    surroundings: Surroundings<MutatingPolicyMetrics>,
    snapshot: Snapshot<MutatingPolicy>,
    registry: Registry,
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// The `spec` of a policy with these mutations.
fn mutations(all: &[Value]) -> Value {
    json!({"mutations": (all.to_vec())})
}

fn with(mut spec: Value, key: &str, value: impl Into<Value>) -> Value {
    spec.set(&[key], value);
    spec
}

impl World {
    fn new(specs: &[Value]) -> Self {
        let named = |i: usize, mut spec: Value| {
            let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]);
            spec.set(&["matchConstraints", "resourceRules"], rules);
            json!({"metadata": {"name": (format!("p{i}"))}, "spec": spec})
        };
        let policies: Vec<_> = specs
            .iter()
            .enumerate()
            .map(|(i, spec)| Arc::new(MutatingPolicy::parse(&named(i, spec.clone()))))
            .collect();
        let binding = |i: usize| {
            let name = format!("p{i}");
            let binding = json!({"metadata": {"name": (name.as_str())}, "spec": {"policyName": (name.as_str())}});
            Arc::new(Binding::parse(&binding))
        };
        let bindings: Vec<_> = (0..specs.len()).map(binding).collect();
        let registry = Registry::new();
        let namespace = json!({"metadata": {"name": "ns"}});
        Self {
            surroundings: Surroundings {
                cluster: cluster(&[("", "namespaces", vec![namespace])]),
                authorizer: Arc::new(AlwaysAllow),
                metrics: MutatingPolicyMetrics::new(&registry),
                conditions: MatchConditionMetrics::new(&registry),
            },
            snapshot: Snapshot::new(policies.iter(), bindings.iter()),
            registry,
        }
    }

    async fn mutate(&self, attributes: &Attributes, object: &Value) -> Result<Value> {
        let mut object = object.clone();
        dispatch(&self.surroundings, &self.snapshot, attributes, &mut object).await?;
        Ok(object)
    }

    fn metrics(&self) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap()
    }
}

fn config_map(data: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}});
    object.set(&["data"], data);
    object
}

fn create() -> Attributes {
    Attributes {
        kind: GroupVersionKind::new("", "v1", "ConfigMap"),
        ..request(Operation::Create, "", "configmaps", "c")
    }
}

async fn mutate(mutation: Value, object: Value) -> Result<Value> {
    World::new(&[mutations(&[mutation])]).mutate(&create(), &object).await
}

#[tokio::test]
async fn configurations_are_merged_by_the_schema_of_the_kind() {
    let sidecar = "Object{metadata: Object.metadata{labels: {'seen': object.metadata.name}}, spec: Object.spec{containers: \
                   [Object.spec.containers{name: 'b', image: 'new'}, Object.spec.containers{name: 'c', image: 'c'}]}}";
    let world = World::new(&[mutations(&[apply(sidecar)])]);
    let write = Attributes {
        kind: GroupVersionKind::new("", "v1", "Pod"),
        ..request(Operation::Create, "", "pods", "p")
    };
    let object = pod(json!({"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b", "tty": true}]}));
    let mutated = world.mutate(&write, &object).await.unwrap();
    assert_eq!(mutated.str_at(&["metadata", "labels", "seen"]), "p");
    let containers = mutated.at(&["spec", "containers"]).items();
    let images: Vec<_> = containers.iter().map(|c| c.str_at(&["image"])).collect();
    assert_eq!(images, ["a", "new", "c"]);
    assert_eq!(containers[1].get("tty").as_bool(), Some(true));
}

#[tokio::test]
async fn misfit_configurations_are_refused_as_upstream() {
    for (expression, why) in [
        (
            "Object{metadata: Object.metadata{finalizers: ['a']}, data: Object.wrong{}}",
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.data\", which matches field name path \
             from root Object type",
        ),
        (
            "Object{nothere: 'x'}",
            "error applying patch: failed to convert patch object to typed object: .nothere: field not declared in schema",
        ),
        (
            "Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: 'u', apiVersion: 'v1', \
             kind: 'k', name: 'n'}], managedFields: []}}",
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: \
             .metadata.managedFields, .metadata.ownerReferences[0]",
        ),
        (
            "Object{data: {'k': object.nothere}}",
            "expression 'Object{data: {'k': object.nothere}}' resulted in error: no such key: nothere",
        ),
    ] {
        let refused = mutate(apply(expression), config_map(json!({}))).await.unwrap_err();
        let message = format!("policy 'p0' with binding 'p0' denied request: {why}");
        assert_eq!(refused.message, message);
        assert_eq!((refused.code, refused.reason), (403, "Invalid"));
        assert_eq!(refused.details.unwrap().causes[0].message, message);
        let ignoring = with(mutations(&[apply(expression)]), "failurePolicy", "Ignore");
        let object = config_map(json!({"k": "v"}));
        let same = World::new(&[ignoring]).mutate(&create(), &object).await;
        assert_eq!(same.unwrap(), object, "{expression}");
    }
}

#[tokio::test]
async fn patches_are_applied_unless_a_test_fails() {
    let add = "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a/b'), value: 'x'}]";
    let object = mutate(patch(add), config_map(json!({}))).await.unwrap();
    assert_eq!(object.str_at(&["data", "a/b"]), "x");
    let tested = "[JSONPatch{op: 'test', path: '/data/k', value: 'no'}, JSONPatch{op: 'remove', path: '/data/k'}]";
    let object = config_map(json!({"k": "v"}));
    assert_eq!(mutate(patch(tested), object.clone()).await.unwrap(), object);
    let missing = mutate(patch("[JSONPatch{op: 'remove', path: '/data/x'}]"), object.clone()).await;
    assert_eq!(
        missing.unwrap_err().message,
        "policy 'p0' with binding 'p0' denied request: JSON Patch: error in remove for path: '/data/x': Unable to remove \
         nonexistent key: x: missing value"
    );
    let unknown = mutate(
        patch("[JSONPatch{op: 'add', path: '/spec', value: Object.spec{a: 1}}]"),
        object.clone(),
    );
    let mismatch = unknown.await.unwrap_err();
    assert_eq!((mismatch.code, mismatch.reason), (500, "InternalError"));
    assert!(
        mismatch
            .message
            .contains("strict decoding error: unknown field \"spec\"")
    );
}

#[tokio::test]
async fn each_mutation_sees_the_changes_of_earlier_ones() {
    let world = World::new(&[
        with(
            mutations(&[
                apply("Object{data: {'n': string(variables.count)}}"),
                apply("Object{data: {'m': object.data.n + string(variables.count)}}"),
            ]),
            "variables",
            json!([{"name": "count", "expression": "size(object.data)"}]),
        ),
        with(
            mutations(&[apply("Object{data: {'excluded': 'no'}}")]),
            "matchConditions",
            json!([{"name": "c", "expression": "!has(object.data.m)"}]),
        ),
    ]);
    let object = world.mutate(&create(), &config_map(json!({"k": "v"}))).await.unwrap();
    assert_eq!(*object.get("data"), json!({"k": "v", "m": "12", "n": "1"}));
    let metrics = world.metrics();
    let counted = "apiserver_mutating_admission_policy_check_total{error_type=\"no_error\",policy=\"p0\",policy_binding=\"p0\"} 2";
    assert!(metrics.contains(counted), "{metrics}");
}

#[async_trait]
impl Admission for World {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        dispatch(&self.surroundings, &self.snapshot, attributes, object).await
    }
}

#[tokio::test]
async fn if_needed_policies_run_again_after_a_mutation() {
    let marks = |of: &str| {
        let marked = format!("Object{{data: {{'marks': object.data.marks + '{of}'}}}}");
        mutations(&[apply(&marked)])
    };
    let again = |of: &str| with(marks(of), "reinvocationPolicy", "IfNeeded");
    for (specs, expected) in [
        (vec![marks("a"), marks("b")], "ab"),
        (vec![again("a"), marks("b")], "aba"),
        (vec![again("a"), again("b")], "abab"),
    ] {
        let world = World::new(&specs);
        let mut object = config_map(json!({"marks": ""}));
        let chain = Chain::new(vec![Arc::new(world)]);
        chain.mutate(&create(), &mut object).await.unwrap();
        assert_eq!(object.str_at(&["data", "marks"]), expected);
    }
}

/// Each mutation doubles the object.
#[tokio::test]
async fn mutations_cannot_make_an_object_larger_than_a_client_could() {
    let double = patch(
        "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': object.metadata.annotations.a + \
         object.metadata.annotations.a}}]",
    );
    let mut object = config_map(json!({}));
    object.set(&["metadata", "annotations", "a"], "x".repeat(1000));
    let world = World::new(&[mutations(&vec![double; 40])]);
    let refused = world.mutate(&create(), &object).await.unwrap_err();
    assert!(matches!(refused.code, 403 | 413), "{refused:?}");
    // A value that shares its parts is cheap in memory, but not once written out as JSON.
    let shares = "[[object, object, object, object]].map(a, [a, a, a, a, a, a, a, a]).map(b, [b, b, b, b, b, b, b, b]).map(c, [c, \
                  c, c, c, c, c, c, c]).map(d, [d, d, d, d, d, d, d, d]).map(e, [JSONPatch{op: 'add', path: '/data', value: [e, \
                  e]}])[0]";
    let refused = mutate(patch(shares), object).await.unwrap_err();
    assert!(
        refused.message.contains("the value is too large"),
        "{}",
        refused.message
    );
}

#[tokio::test]
async fn cost_is_linear_in_the_number_of_mutations() {
    let world = World::new(&[mutations(&vec![apply("Object{data: {'k': object.data.k + 'x'}}"); 500])]);
    let object = world.mutate(&create(), &config_map(json!({"k": ""}))).await.unwrap();
    assert_eq!(object.str_at(&["data", "k"]).len(), 500);
}

#[tokio::test]
async fn writes_without_an_object_are_not_mutated() {
    let world = World::new(&[mutations(&[apply("Object{nothere: 1}")])]);
    let write = update("", "configmaps", config_map(json!({})));
    assert_eq!(world.mutate(&write, &Value::Null).await.unwrap(), Value::Null);
}

#[test]
fn compile_errors_name_the_field() {
    let spec = mutations(&[
        apply("1"),
        patch("[]"),
        patch("[JSONPatch{op: 'add', path: '/a', value: object}]"),
    ]);
    let spec = with(spec, "variables", json!([{"name": "a", "expression": "Object{}"}]));
    let errors = mutation_errors(&json!({"metadata": {"name": "p"}, "spec": spec}));
    assert_eq!(errors.len(), 3, "{errors:?}");
    // Only mutations can construct objects.
    assert_eq!(errors[0].0, "variables[0].expression");
    let error = |i: usize| (errors[i].0.as_str(), errors[i].2.as_str());
    assert_eq!(
        error(1),
        (
            "mutations[0].applyConfiguration.expression",
            "must evaluate to Object but got int"
        )
    );
    assert_eq!(
        error(2),
        (
            "mutations[1].jsonPatch.expression",
            "must evaluate to list(JSONPatch) but got list(dyn)"
        )
    );
}
