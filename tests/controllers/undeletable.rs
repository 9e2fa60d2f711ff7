//! A namespace whose content cannot be deleted: kubectl shows why, in upstream's words.

use super::support::{Gateway, wait_for};
use super::{exists, gateway};

const KEPT: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: keep}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [DELETE]}
  validations:
  - {expression: "oldObject.metadata.name != 'kept'", message: it stays}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: keep}
spec: {policyName: keep, validationActions: [Deny]}
---
apiVersion: v1
kind: Namespace
metadata: {name: stuck}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: stuck}
---
apiVersion: v1
kind: Secret
metadata: {name: held, namespace: stuck, finalizers: [example.com/hold]}
"#;

fn condition(g: &Gateway, kind: &str) -> String {
    let of = format!("{{.status.conditions[?(@.type=='{kind}')]");
    let path = format!("jsonpath={of}.status}} {of}.reason}} {of}.message}}");
    g.kubectl(&["get", "namespace", "stuck", "-o", &path])
}

#[test]
fn conditions_report_a_refused_deletion_and_a_finalizer() {
    let (_dir, g) = gateway();
    g.kubectl_in(&["apply", "-f", "-"], Some(KEPT));
    wait_for("the policy is in force", || {
        !g.kubectl_try(&["delete", "configmap", "kept", "-n", "stuck", "--dry-run=server"])
    });
    g.kubectl(&["delete", "namespace", "stuck", "--wait=false"]);
    // Admission of a deletecollection has no object name upstream: its errors contain "Unknown".
    let expected = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False ResourcesDiscovered All resources successfully discovered",
        ),
        (
            "NamespaceDeletionContentFailure",
            "True ContentDeletionFailed Failed to delete all resource types, 1 remaining: configmaps \"Unknown\" is forbidden: \
             ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: it stays",
        ),
        (
            "NamespaceContentRemaining",
            "True SomeResourcesRemain Some resources are remaining: secrets. has 1 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True SomeFinalizersRemain Some content in the namespace has finalizers remaining: example.com/hold in 1 resource \
             instances",
        ),
    ];
    for (kind, text) in expected {
        wait_for(kind, || condition(&g, kind) == text);
    }

    // Everything is deleted once the obstacles are removed, because the loop retries.
    g.kubectl(&["delete", "validatingadmissionpolicybinding", "keep"]);
    let merge = r#"{"metadata":{"finalizers":null}}"#;
    g.kubectl(&["patch", "secret", "held", "-n", "stuck", "--type=merge", "-p", merge]);
    g.kubectl(&["wait", "--for=delete", "namespace/stuck", "--timeout=60s"]);
    assert!(!exists(&g, &["namespace", "stuck"]));
}
