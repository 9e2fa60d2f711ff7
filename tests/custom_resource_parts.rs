//! Parts of definitions besides the schema, as an unmodified kubectl uses them: columns, selectable fields,
//! the scale subresource, OpenAPI.

mod support;

use support::Gateway;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.parts.example.com}
spec:
  group: parts.example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.deep.size, statusReplicasPath: .status.size, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.deep.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Ports, type: string, jsonPath: .spec.ports, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    selectableFields:
    - {jsonPath: .spec.colour}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            default: {}
            properties:
              colour: {type: string, default: green, description: What it looks like.}
              deep: {type: object, properties: {size: {type: integer}}}
              ports: {type: array, items: {x-kubernetes-int-or-string: true}}
          status:
            type: object
            properties:
              size: {type: integer}
              selector: {type: string}
              conditions:
                type: array
                items: {type: object, properties: {type: {type: string}, status: {type: string}}}
"#;

fn gadget(name: &str, spec: &str) -> String {
    format!("apiVersion: parts.example.com/v1\nkind: Gadget\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

fn defined() -> (tempfile::TempDir, Gateway) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    g.kubectl_in(&["apply", "-f", "-"], Some(DEFINITION));
    g.until_established("gadgets.parts.example.com");
    for (name, spec) in [
        ("a", "{colour: red, deep: {size: 2}, ports: [80, http]}"),
        ("b", "{deep: {size: 1}}"),
    ] {
        g.kubectl_in(&["apply", "--server-side", "-f", "-"], Some(&gadget(name, spec)));
    }
    let ready = r#"{"status":{"size":1,"selector":"app=a","conditions":[{"type":"Other","status":"x"},{"type":"Ready","status":"True"}]}}"#;
    g.kubectl(&[
        "patch",
        "gadget",
        "a",
        "--subresource=status",
        "--type=merge",
        "-p",
        ready,
    ]);
    (dir, g)
}

fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn columns_are_printed_and_fields_selected() {
    let (_dir, g) = defined();
    let table = g.kubectl(&["get", "gadgets"]);
    let rows = words(&table);
    assert_eq!(rows[0], ["NAME", "SIZE", "READY", "AGE"], "{table}");
    assert_eq!(rows[1][..3], ["a", "2", "True"], "{table}");
    assert_eq!(rows[2][..2], ["b", "1"], "{table}");
    let wide = g.kubectl(&["get", "gadgets", "-o", "wide"]);
    assert!(wide.contains(r#"[80,"http"]"#), "{wide}");

    let selected = |selector: &str| g.kubectl(&["get", "gadgets", "-o", "name", "--field-selector", selector]);
    assert_eq!(selected("spec.colour=red").trim(), "gadget.parts.example.com/a");
    // The default is visible to selectors.
    assert_eq!(selected("spec.colour=green").trim(), "gadget.parts.example.com/b");
    assert_eq!(selected("spec.colour!=red,metadata.name=a").trim(), "");
    let refused = g.kubectl_fails(&["get", "gadgets", "--field-selector", "spec.other=x"], None);
    assert!(refused.contains("field label not supported: spec.other"), "{refused}");

    let path = "/apis/parts.example.com/v1/namespaces/default/gadgets";
    let deleted = g.kubectl(&["delete", "--raw", &format!("{path}?fieldSelector=spec.colour%3Dred")]);
    assert!(
        deleted.contains("GadgetList") || deleted.contains("Success"),
        "{deleted}"
    );
    assert_eq!(
        g.kubectl(&["get", "gadgets", "-o", "name"]).trim(),
        "gadget.parts.example.com/b"
    );
}

#[test]
fn gadgets_are_scaled() {
    let (_dir, g) = defined();
    let scaled = g.kubectl(&["scale", "--replicas=5", "gadgets/a"]);
    assert!(scaled.contains("gadget.parts.example.com/a scaled"), "{scaled}");
    let read = |path: &str| {
        g.kubectl(&[
            "get",
            "gadget",
            "a",
            "-o",
            &format!("jsonpath={path}"),
            "--show-managed-fields",
        ])
    };
    assert_eq!(
        read("{.spec.deep.size} {.spec.colour} {.metadata.generation}"),
        "5 red 2"
    );
    assert_eq!(
        read("{range .metadata.managedFields[?(@.subresource==\"scale\")]}{.apiVersion} {.fieldsV1}{end}"),
        r#"parts.example.com/v1 {"f:spec":{"f:deep":{"f:size":{}}}}"#
    );
    let scale = g.kubectl(&["get", "gadget", "a", "--subresource=scale"]);
    assert_eq!(words(&scale)[0], ["NAME", "DESIRED", "AVAILABLE", "AGE"], "{scale}");
    assert_eq!(words(&scale)[1][..3], ["a", "5", "1"], "{scale}");
    let object = g.kubectl(&[
        "get",
        "gadget",
        "a",
        "--subresource=scale",
        "-o",
        "jsonpath={.kind} {.status.selector}",
    ]);
    assert_eq!(object, "Scale app=a");
    let size = |n: &str| format!(r#"{{"spec":{{"replicas":{n}}}}}"#);
    let patch = |n: &str| {
        ["patch", "gadget", "a", "--subresource=scale", "--type=merge", "-p"]
            .map(String::from)
            .into_iter()
            .chain([size(n)])
            .collect::<Vec<_>>()
    };
    let negative = patch("-1");
    let refused = g.kubectl_fails(&negative.iter().map(String::as_str).collect::<Vec<_>>(), None);
    assert!(
        refused.contains(".spec.deep.size: Invalid value: -1: should be a non-negative integer"),
        "{refused}"
    );
    g.kubectl_in(
        &["apply", "--server-side", "-f", "-"],
        Some(&gadget("bare", "{colour: blue}")),
    );
    let path = "/apis/parts.example.com/v1/namespaces/default/gadgets/bare/scale";
    let refused = g.kubectl_fails(&["get", "--raw", path], None);
    assert!(
        refused.contains(r#"the spec replicas field ".spec.deep.size" does not exist"#),
        "{refused}"
    );
}

#[test]
fn a_patch_cannot_change_kind_or_version() {
    let (_dir, g) = defined();
    for (kind, patch, why) in [
        (
            "strategic",
            r#"{"spec":{}}"#,
            "is not supported by parts.example.com/v1",
        ),
        (
            "json",
            r#"[{"op":"remove","path":"/kind"}]"#,
            "Object 'Kind' is missing in",
        ),
        (
            "json",
            r#"[{"op":"remove","path":"/apiVersion"}]"#,
            "Object 'apiVersion' is missing in",
        ),
        (
            "merge",
            r#"{"kind":"Other"}"#,
            r#"kind: Invalid value: "Other": must be Gadget"#,
        ),
    ] {
        let kind = format!("--type={kind}");
        let refused = g.kubectl_fails(&["patch", "gadget", "a", &kind, "-p", patch], None);
        assert!(refused.contains(why), "{patch}: {refused}");
    }
}

#[test]
fn openapi_documents_follow_the_definition() {
    let (_dir, g) = defined();
    let explained = g.kubectl(&["explain", "gadgets", "--recursive"]);
    for field in ["colour", "conditions", "deep", "ports", "selector"] {
        assert!(explained.contains(field), "{field} is not in {explained}");
    }
    assert!(
        g.kubectl(&["explain", "gadgets.spec.colour"])
            .contains("What it looks like.")
    );
    let v3 = || g.kubectl(&["get", "--raw", "/openapi/v3"]);
    let url = |index: &str| {
        let at = index
            .find("/openapi/v3/apis/parts.example.com/v1?hash=")
            .expect("the document is listed");
        index[at..].split('"').next().expect("a string ends").to_owned()
    };
    let before = url(&v3());
    let document = g.kubectl(&["get", "--raw", &before]);
    for part in [
        r#""x-kubernetes-selectable-fields":[{"fieldPath":"spec.colour"}]"#,
        r##""#/components/schemas/com.example.parts.v1.Gadget""##,
        "com.example.parts.v1.GadgetList",
        "/apis/parts.example.com/v1/namespaces/{namespace}/gadgets/{name}/scale",
        "listPartsExampleComV1GadgetForAllNamespaces",
        "Kubernetes CRD Swagger",
    ] {
        assert!(document.contains(part), "{part} is not in {document}");
    }
    assert!(!document.contains("/watch/"), "{document}");
    assert!(
        !v3().contains(r#""apis/parts.example.com":"#),
        "groups have no document"
    );
    let v2 = || g.kubectl(&["get", "--raw", "/openapi/v2"]);
    support::wait_for("the kind is in v2", || v2().contains("com.example.parts.v1.Gadget"));

    let changed = DEFINITION.replace("What it looks like.", "How it shines.");
    g.kubectl_in(&["apply", "-f", "-"], Some(&changed));
    support::wait_for("the description changes", || {
        let now = v3();
        url(&now) != before && g.kubectl(&["get", "--raw", &url(&now)]).contains("How it shines.")
    });
    support::wait_for("the description changes in v2", || v2().contains("How it shines."));
    let unknown = gadget("u", "{colur: red}");
    let refused = g.kubectl_fails(&["create", "--validate=strict", "-f", "-"], Some(&unknown));
    assert!(refused.contains("unknown field \"spec.colur\""), "{refused}");

    g.kubectl(&["delete", "crd", "gadgets.parts.example.com", "--timeout=30s"]);
    support::wait_for("the documents go", || {
        !v3().contains("parts.example.com") && !v2().contains("parts.example.com")
    });
}
