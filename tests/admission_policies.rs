//! Admission policies, as an unmodified kubectl meets them: one that refuses, one that changes, and ones that
//! are wrong.

mod support;

use support::Gateway;

/// Limits the replicas of Deployments to the parameter of their namespace.
const LIMIT: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limit}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  variables:
  - {name: most, expression: "int(params.data.replicas)"}
  validations:
  - expression: object.spec.replicas <= variables.most
    messageExpression: "'%s may have %d replicas, not %d'.format([object.metadata.name, variables.most, object.spec.replicas])"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limit}
spec:
  policyName: limit
  validationActions: [Deny]
  paramRef: {name: limit, parameterNotFoundAction: Deny}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limit}
data: {replicas: "3"}
"#;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web}]}
"#;

/// ConfigMaps get a label, unless they have it.
const LABEL: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  matchConditions:
  - {name: unlabelled, expression: "!has(object.metadata.labels) || !('team' in object.metadata.labels)"}
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "Object{metadata: Object.metadata{labels: Object.metadata.labels{team: 'shop'}}}"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label}
"#;

/// Both have wrong expressions.
const WRONG: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: wrong}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  matchConditions:
  - {name: m, expression: "request.nothere == ''"}
  variables:
  - {name: v, expression: "object.x["}
  validations:
  - {expression: "1 + 1"}
  - {expression: "object.metadata.name.startsWith(1)"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: wrong}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  reinvocationPolicy: Never
  mutations:
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: 1"}}
  - {patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{operation: 'add'}]"}}
"#;

#[test]
fn policies_are_validated_and_deny_or_mutate_requests() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());

    let why = g.kubectl_fails(&["apply", "--dry-run=server", "-f", "-"], Some(WRONG));
    for part in [
        "spec.matchConditions[0].expression: Invalid value: \"request.nothere == ''\": compilation failed: ERROR: <input>:1:8: undefined \
         field 'nothere'\n | request.nothere == ''\n | .......^",
        "spec.variables[0].expression: Invalid value: \"object.x[\": compilation failed: ERROR: <input>:1:10: Syntax error: mismatched \
         input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', '?', ",
        "spec.validations[0].expression: Invalid value: \"1 + 1\": must evaluate to bool",
        "spec.validations[1].expression: Invalid value: \"object.metadata.name.startsWith(1)\": compilation failed: ERROR: <input>:1:32: \
         found no matching overload for 'startsWith' applied to 'dyn.(int)'",
        "spec.mutations[0].applyConfiguration.expression: Invalid value: \"Object{metadata: 1\": compilation failed: ERROR: <input>:1:19: \
         Syntax error: mismatched input '<EOF>' expecting {'}', ','}",
        "<input>:1:21: expected type of field 'operation' is '' but provided type is 'string'",
    ] {
        assert!(why.contains(part), "{part}\nis not in\n{why}");
    }

    g.kubectl_in(&["apply", "-f", "-"], Some(LIMIT));
    let why = g.kubectl_fails(&["create", "-f", "-"], Some(DEPLOYMENT));
    let denied =
        "ValidatingAdmissionPolicy 'limit' with binding 'limit' denied request: web may have 3 replicas, not 5";
    let invalid = format!("The deployments \"web\" is invalid: : {denied}");
    assert!(why.contains(&invalid), "{why}");
    g.kubectl_in(
        &["create", "-f", "-"],
        Some(&DEPLOYMENT.replace("replicas: 5", "replicas: 3")),
    );

    g.kubectl_in(&["apply", "-f", "-"], Some(LABEL));
    let team = |name: &str, labels: &str| {
        let object = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n");
        let create = [
            "create",
            "--dry-run=server",
            "-o",
            "jsonpath={.metadata.labels}",
            "-f",
            "-",
        ];
        g.kubectl_in(&create, Some(&object))
    };
    assert_eq!(team("a", "tier: front"), r#"{"team":"shop","tier":"front"}"#);
    assert_eq!(team("b", "team: other"), r#"{"team":"other"}"#);
}
