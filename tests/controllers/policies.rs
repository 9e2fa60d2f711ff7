//! Type checking of ValidatingAdmissionPolicies.

use super::gateway;
use super::support::{Gateway, wait_for};

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
"#;

const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sizes}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}
    - {apiGroups: [shop.example.com], apiVersions: [v1], operations: [CREATE], resources: [gadgets]}
  validations:
  - expression: "object.metadata.name == params.data['name']"
  - expression: "object.spec.replicas > 1"
    messageExpression: "'no ' + params.nothing"
"#;

fn status(g: &Gateway, path: &str) -> String {
    let path = format!("jsonpath={{.status{path}}}");
    g.kubectl(&["get", "validatingadmissionpolicy", "sizes", "-o", &path])
}

#[test]
fn ill_typed_expressions_get_warnings() {
    let (_dir, g) = gateway();
    g.kubectl_in(&["apply", "-f", "-"], Some(DEFINITION));
    g.until_established("gadgets.shop.example.com");
    g.kubectl_in(&["apply", "-f", "-"], Some(POLICY));
    wait_for("the policy is checked", || status(&g, ".observedGeneration") == "1");
    assert_eq!(
        status(&g, ".typeChecking.expressionWarnings[*].fieldRef"),
        "spec.validations[1].expression spec.validations[1].messageExpression"
    );
    assert_eq!(
        status(&g, ".typeChecking.expressionWarnings[0].warning"),
        "shop.example.com/v1, Kind=Gadget: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n"
    );
    let message = status(&g, ".typeChecking.expressionWarnings[1].warning");
    assert!(
        message.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:15: undefined field 'nothing'"),
        "{message}"
    );

    let fixed = r#"{"spec":{"validations":[{"expression":"has(object.metadata.uid)"}]}}"#;
    g.kubectl(&[
        "patch",
        "validatingadmissionpolicy",
        "sizes",
        "--type=merge",
        "-p",
        fixed,
    ]);
    wait_for("the change is checked", || status(&g, ".observedGeneration") == "2");
    assert_eq!(status(&g, ".typeChecking.expressionWarnings"), "");
    let managers = g.kubectl(&[
        "get",
        "validatingadmissionpolicy",
        "sizes",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields[?(@.subresource=='status')].manager}",
    ]);
    assert_eq!(managers, "validatingadmissionpolicy-status");
}
