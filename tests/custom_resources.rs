//! Custom resources as an unmodified kubectl uses them.

mod support;

use support::Gateway;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
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
            description: What is wanted.
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How large it is.}
              colour: {type: string, default: green}
          status:
            type: object
            properties: {phase: {type: string}}
"#;

const WIDGET: &str = "apiVersion: shop.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";

fn defined() -> (tempfile::TempDir, Gateway) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let created = g.kubectl_in(&["apply", "-f", "-"], Some(DEFINITION));
    assert!(created.contains("widgets.shop.example.com created"), "{created}");
    g.until_established("widgets.shop.example.com");
    (dir, g)
}

#[test]
fn a_definition_is_served_as_soon_as_it_is_established() {
    let (_dir, g) = defined();
    let created = g.kubectl_in(&["apply", "-f", "-"], Some(WIDGET));
    assert!(created.contains("widget.shop.example.com/w created"), "{created}");
    let unchanged = g.kubectl_in(&["apply", "-f", "-"], Some(WIDGET));
    assert!(unchanged.contains("unchanged"), "{unchanged}");
    let shown = g.kubectl(&["get", "wd"]);
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(words[..3], ["NAME", "AGE", "w"], "{shown}");
    assert!(
        g.kubectl(&["get", "all"]).contains("widget.shop.example.com/w"),
        "the category is known"
    );
    let read = |path: &str| g.kubectl(&["get", "widget", "w", "-o", &format!("jsonpath={path}")]);
    assert_eq!(read("{.spec.size} {.spec.colour} {.metadata.generation}"), "3 green 1");

    g.kubectl(&["patch", "widget", "w", "--type=merge", "-p", r#"{"spec":{"size":4}}"#]);
    g.kubectl(&[
        "patch",
        "widget",
        "w",
        "--type=json",
        "-p",
        r#"[{"op":"replace","path":"/spec/colour","value":"red"}]"#,
    ]);
    let ready = r#"{"status":{"phase":"Ready"},"spec":{"size":9}}"#;
    g.kubectl(&[
        "patch",
        "widget",
        "w",
        "--subresource=status",
        "--type=merge",
        "-p",
        ready,
    ]);
    assert_eq!(
        read("{.spec.size} {.spec.colour} {.status.phase} {.metadata.generation}"),
        "4 red Ready 3"
    );
    let refused = g.kubectl_fails(
        &["patch", "widget", "w", "--type=merge", "-p", r#"{"spec":{"size":0}}"#],
        None,
    );
    assert!(refused.contains("should be greater than or equal to 1"), "{refused}");
    let applied = WIDGET.replace("size: 3", "size: 5");
    let forced = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    assert!(g.kubectl_in(&forced, Some(&applied)).contains("serverside-applied"));
    assert_eq!(read("{.spec.size}"), "5");

    let explained = g.kubectl(&["explain", "widget.spec"]);
    assert!(explained.contains("How large it is."), "{explained}");
    assert!(g.kubectl(&["delete", "widget", "w"]).contains("deleted"));
    assert!(g.kubectl_fails(&["get", "widget", "w"], None).contains("(NotFound)"));
}

#[test]
fn discovery_follows_the_definition() {
    let (_dir, g) = defined();
    let listed = || g.kubectl(&["api-resources", "--api-group=shop.example.com", "--no-headers"]);
    support::wait_for("the resource is discovered", || listed().contains("widgets"));
    assert_eq!(
        listed().split_whitespace().collect::<Vec<_>>(),
        ["widgets", "wd", "shop.example.com/v1", "true", "Widget"]
    );
    g.kubectl(&[
        "wait",
        "--for=condition=Available",
        "--timeout=30s",
        "apiservice/v1.shop.example.com",
    ]);
}

#[test]
fn deleting_a_definition_deletes_its_objects() {
    let (_dir, g) = defined();
    g.kubectl_in(&["apply", "-f", "-"], Some(WIDGET));
    // kubectl waits until the definition is gone.
    g.kubectl(&["delete", "crd", "widgets.shop.example.com", "--timeout=30s"]);
    let refused = g.kubectl_fails(&["get", "--raw", "/apis/shop.example.com/v1/widgets"], None);
    assert!(
        refused.contains("the server could not find the requested resource"),
        "{refused}"
    );
    g.kubectl_in(&["apply", "-f", "-"], Some(DEFINITION));
    g.until_established("widgets.shop.example.com");
    let left = g.kubectl(&["get", "--raw", "/apis/shop.example.com/v1/widgets"]);
    assert!(left.contains("\"items\":[]"), "{left}");
}

#[test]
fn objects_with_finalizers_hold_the_definition() {
    let (_dir, g) = defined();
    let held = WIDGET.replace("{name: w}", "{name: w, finalizers: [example.com/hold]}");
    g.kubectl_in(&["apply", "-f", "-"], Some(&held));
    g.kubectl(&["delete", "crd", "widgets.shop.example.com", "--wait=false"]);
    let condition = "jsonpath={.status.conditions[?(@.type==\"Terminating\")].reason}";
    support::wait_for("the definition is terminating", || {
        g.kubectl(&["get", "crd", "widgets.shop.example.com", "-o", condition]) == "InstanceDeletionInProgress"
    });
    let refused = g.kubectl_fails(&["create", "-f", "-"], Some(&WIDGET.replace("{name: w}", "{name: x}")));
    let why = "create not allowed while custom resource definition is terminating";
    assert!(refused.contains(why), "{refused}");
    let release = r#"{"metadata":{"finalizers":null}}"#;
    g.kubectl(&["patch", "widget", "w", "--type=merge", "-p", release]);
    g.kubectl(&["wait", "--for=delete", "crd/widgets.shop.example.com", "--timeout=30s"]);
}

#[test]
fn unknown_fields_are_reported_after_duplicates_and_by_path() {
    let (_dir, g) = defined();
    let body = r#"{"top":1,"spec":{"zz":1,"size":3,"size":4,"aa":1},"metadata":{"name":"w","bogus":1},
        "apiVersion":"shop.example.com/v1","kind":"Widget"}"#;
    let path = "/apis/shop.example.com/v1/namespaces/default/widgets?fieldValidation=Strict";
    let refused = g.kubectl_fails(&["create", "--raw", path, "-f", "-"], Some(body));
    let fields = ["metadata.bogus", "spec.aa", "spec.zz", "top"].map(|f| format!("unknown field {f:?}"));
    let expected = format!("duplicate field \"spec.size\", {}", fields.join(", "));
    assert!(refused.contains(&expected), "{refused}");
}

#[test]
fn a_changed_schema_takes_effect_at_once() {
    let (_dir, g) = defined();
    g.kubectl_in(&["apply", "-f", "-"], Some(WIDGET));
    let changed = DEFINITION.replace(
        "default: green}",
        "default: green}\n              weight: {type: integer, default: 7}",
    );
    g.kubectl_in(&["apply", "-f", "-"], Some(&changed));
    // Defaults are also set when objects are read.
    let read = g.kubectl(&[
        "get",
        "widget",
        "w",
        "-o",
        "jsonpath={.spec.weight} {.metadata.generation}",
    ]);
    assert_eq!(read, "7 1");
}

/// The commands that `make run` suggests.
#[test]
fn the_example_is_served_in_both_versions() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let file = |name: &str| format!("{}/examples/custom-resource/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    g.kubectl(&["apply", "-f", &file("definition")]);
    g.until_established("websites.example.com");
    g.kubectl(&["apply", "-f", &file("website")]);
    let shown = g.kubectl(&["get", "web"]);
    let rows: Vec<Vec<&str>> = shown.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "HOSTNAME", "REPLICAS", "AGE"], "{shown}");
    assert_eq!(rows[1][..3], ["shop", "shop.example.com", "2"], "{shown}");
    g.kubectl(&["scale", "--replicas=3", "website/shop"]);
    let older = ["get", "websites.v1beta1.example.com", "shop", "-o"];
    let read = |path: &str| g.kubectl(&[&older[..], &[path]].concat());
    assert_eq!(read("jsonpath={.spec.host} {.spec.replicas}"), "shop.example.com 3");
    let bare = r#"{"spec":{"tls":{"secretName":null}}}"#;
    let refused = g.kubectl_fails(&["patch", "website", "shop", "--type=merge", "-p", bare], None);
    assert!(refused.contains("a site with TLS names the secret"), "{refused}");
}

/// A definition with two versions that have the same schema, of this many bytes.
fn large_definition(plural: &str, schema: usize) -> String {
    let member = |i: usize| {
        format!(
            r#""p{i:05}":{{"type":"string","description":"{}"}}"#,
            "what it is for ".repeat(12)
        )
    };
    let members: Vec<String> = (0..schema / member(0).len()).map(member).collect();
    let version = |name: &str, storage: bool| {
        format!(
            r#"{{"name":"{name}","served":true,"storage":{storage},"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{}}}}}}}}}}}}}"#,
            members.join(",")
        )
    };
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"{plural}.example.com"}},"spec":{{"group":"example.com","scope":"Cluster","names":{{"plural":"{plural}","kind":"{plural}"}},"versions":[{},{}]}}}}"#,
        version("v1", false),
        version("v2", true)
    )
}

/// It is one object: its versions share the limit of etcd's requests, also where they are alike.
#[test]
fn large_definitions_are_stored_up_to_the_limit_of_objects() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let create = |path: &str, text: &str| {
        let file = dir.path().join("body.json");
        std::fs::write(&file, text).expect("it can be written");
        let data = format!("@{}", file.display());
        let json = "Content-Type: application/json";
        // Curl can lose an answer that comes before it has sent its body: over HTTP/2, and if it does not wait for
        // `100 Continue`, by default for a second.
        let once = ["--http1.1", "--expect100-timeout", "100", "--max-time", "120"];
        g.curl(&[&once[..], &["-X", "POST", "-H", json, "--data-binary", &*data, path]].concat())
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(definitions, &large_definition("fits", 720_000)).expect("it is created");
    g.until_established("fits.example.com");
    let object =
        r#"{"apiVersion":"example.com/v1","kind":"fits","metadata":{"name":"o"},"spec":{"p00000":"x","unknown":"x"}}"#;
    create("/apis/example.com/v1/fits", object).expect("it is created");
    let read = g.curl(&["/apis/example.com/v2/fits/o"]).expect("it is there");
    assert!(read.contains(r#""p00000": "x""#) && !read.contains("unknown"), "{read}");

    for (schema, refusal) in [
        (900_000, "etcdserver: request is too large"),
        (1_600_000, "Request entity too large: limit is 3145728"),
    ] {
        let refused = create(definitions, &large_definition("larges", schema)).expect_err("it is too large");
        assert!(refused.contains(refusal), "{refused}");
    }
}
