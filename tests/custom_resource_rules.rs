//! CEL rules of a definition, as an unmodified kubectl meets them.

mod support;

use support::Gateway;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: disks.rules.example.com}
spec:
  group: rules.example.com
  scope: Namespaced
  names: {plural: disks, kind: Disk}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size:
                type: integer
                x-kubernetes-validations:
                - {rule: self >= oldSelf, message: a disk cannot shrink}
          status:
            type: object
            properties:
              used: {type: integer, x-kubernetes-validations: [{rule: self >= 0, message: must not be negative}]}
"#;

const DISK: &str = "apiVersion: rules.example.com/v1\nkind: Disk\nmetadata: {name: d}\nspec: {size: 2}\n";

#[test]
fn transition_rules_reject_a_smaller_disk() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let broken = DEFINITION.replace("self >= oldSelf", "self.size >= oldSelf");
    let why = g.kubectl_fails(&["create", "--dry-run=server", "-f", "-"], Some(&broken));
    assert!(
        why.contains("compilation failed: ERROR: <input>:1:5: type 'int' does not support field selection"),
        "{why}"
    );
    g.kubectl_in(&["create", "-f", "-"], Some(DEFINITION));
    g.until_established("disks.rules.example.com");
    g.kubectl_in(&["create", "-f", "-"], Some(DISK));
    let smaller = r#"{"spec":{"size":1}}"#;
    let patch = ["patch", "disk", "d", "--type=merge", "--dry-run=server", "-p", smaller];
    let why = g.kubectl_fails(&patch, None);
    assert!(
        why.contains("spec.size: Invalid value: 1: a disk cannot shrink"),
        "{why}"
    );
    g.kubectl(&["patch", "disk", "d", "--type=merge", "-p", r#"{"spec":{"size":3}}"#]);
    let used = r#"{"status":{"used":-1}}"#;
    let patch = ["patch", "disk", "d", "--subresource=status", "--type=merge", "-p", used];
    let why = g.kubectl_fails(&patch, None);
    assert!(
        why.contains("status.used: Invalid value: -1: must not be negative"),
        "{why}"
    );
}
