//! An unmodified kubectl with one object of every kind in discovery: create, get, describe, client-side apply
//! (twice), server-side apply, patch, edit, scale, roll back and delete.

mod support;

use std::collections::BTreeSet;
use support::Gateway;

const MANIFEST: &str = include_str!("testdata/every-kind.yaml");

/// For these resources a second client-side apply sends a patch on kube-apiserver too, because of a default
/// within an atomic list, an empty list that is not stored, `stringData`, or a field whose patch strategy is
/// `replace`.
const ALWAYS_PATCHED: [&str; 10] = [
    "endpoints/",
    "endpointslice.discovery.k8s.io/",
    "mutatingadmissionpolicy.admissionregistration.k8s.io/",
    "mutatingwebhookconfiguration.admissionregistration.k8s.io/",
    "poddisruptionbudget.policy/",
    "resourceclaim.resource.k8s.io/",
    "resourceclaimtemplate.resource.k8s.io/",
    "secret/",
    "validatingadmissionpolicy.admissionregistration.k8s.io/",
    "validatingwebhookconfiguration.admissionregistration.k8s.io/",
];

/// kubectl 1.32 describes these with beta versions that v1.36 does not serve.
const DESCRIBED_BY_OLD_VERSIONS: [&str; 3] = [
    "ipaddresses.networking.k8s.io",
    "servicecidrs.networking.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

fn manifest() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["every".to_owned()]).expect("a name");
    let request = parameters.serialize_request(&key).expect("a request");
    let pem = request.pem().expect("PEM");
    use base64::Engine;
    let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
    MANIFEST.replace("request: CSR", &format!("request: {encoded}"))
}

/// Asserts that every line of `text` except warnings contains `done`.
fn all(text: &str, done: &str) {
    assert!(text.lines().count() > 40, "{text}");
    let odd: Vec<&str> = text.lines().filter(|l| !l.ends_with(done)).collect();
    assert!(odd.is_empty(), "not {done}: {odd:#?}");
}

/// An object of the kind that the manifest defines.
const CUSTOM_RESOURCE: &str =
    "apiVersion: example.com/v1\nkind: Every\nmetadata: {name: every, namespace: every, labels: {touched: here}}\n";

#[test]
fn every_kind_works_with_every_command() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let file = dir.path().join("every.yaml");
    std::fs::write(&file, manifest()).expect("the manifest is written");
    let file = file.to_str().expect("a path of text");

    all(&g.kubectl(&["apply", "-f", file]), "created");
    let again = g.kubectl(&["apply", "-f", file]);
    let patched: Vec<&str> = again
        .lines()
        .filter(|l| !l.ends_with("unchanged") && !ALWAYS_PATCHED.iter().any(|p| l.starts_with(p)))
        .collect();
    assert!(patched.is_empty(), "{patched:#?}");

    // kubectl can apply a custom resource only once its definition is served.
    g.until_established("everies.example.com");
    g.kubectl_in(&["create", "-f", "-"], Some(CUSTOM_RESOURCE));

    let kinds = g.kubectl(&["api-resources", "--verbs=create,delete", "-o", "name"]);
    let listed: BTreeSet<&str> = kinds.lines().collect();
    let mut objects = Vec::new();
    for resource in &listed {
        let names = g.kubectl(&["get", resource, "-n", "every", "-o", "name"]);
        let ours =
            |n: &&str| ["every", "everies", "192.0.2.7"].iter().any(|o| n.contains(o)) || *n == "serviceaccount/pods";
        let Some(name) = names.lines().find(ours) else {
            panic!("tests/testdata/every-kind.yaml has no {resource}: {names}");
        };
        objects.push(name.to_owned());
        if !DESCRIBED_BY_OLD_VERSIONS.contains(resource) {
            g.kubectl(&["describe", resource, "-n", "every"]);
        }
    }
    assert!(listed.len() >= 56, "{listed:?}");
    assert!(g.kubectl(&["get", "-f", file]).contains("deployment.apps/every"));
    assert!(g.kubectl(&["get", "-f", file, "-o", "yaml"]).contains("kind: CSINode"));

    all(
        &g.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", file]),
        "serverside-applied",
    );
    let patch = r#"{"metadata":{"labels":{"touched":"patched"}}}"#;
    all(
        &g.kubectl(&["patch", "-f", file, "--type=merge", "-p", patch]),
        "patched",
    );
    // An event is listed by two groups; each edit needs a distinct text, because an edit without a change is
    // not reported.
    for (i, object) in objects.iter().enumerate() {
        let script = format!("sed -i s/touched:.*/touched:\\ edited-{i}/");
        let editor = ("KUBE_EDITOR", script.as_str());
        let edited = g.kubectl_with(&[editor], &["edit", "-n", "every", object]);
        assert!(edited.contains("edited"), "{object}: {edited}");
    }
}

#[test]
fn workloads_are_scaled_and_have_a_history() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    g.kubectl_in(&["apply", "-f", "-"], Some(&manifest()));
    for kind in ["deployment", "replicaset", "replicationcontroller", "statefulset"] {
        let object = format!("{kind}/every");
        assert!(
            g.kubectl(&["scale", "-n", "every", &object, "--replicas=3"])
                .contains("scaled")
        );
        let replicas = g.kubectl(&["get", "-n", "every", &object, "-o", "jsonpath={.spec.replicas}"]);
        assert_eq!(replicas, "3", "{kind}");
    }
    let owner = g.kubectl(&[
        "get",
        "-n",
        "every",
        "statefulset/every",
        "-o",
        "jsonpath={.metadata.uid}",
    ]);
    let revision = format!(
        "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata:\n  name: every-1\n  namespace: every\n  labels: {{a: sts}}\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: StatefulSet, name: every, uid: {owner}, controller: true}}]\n\
         revision: 1\ndata: {{spec: {{template: {{$patch: replace, metadata: {{labels: {{a: sts}}}}, \
         spec: {{containers: [{{name: main, image: example/old}}]}}}}}}}}\n"
    );
    g.kubectl_in(&["apply", "-f", "-"], Some(&revision));
    let history = g.kubectl(&["rollout", "history", "-n", "every", "statefulset/every"]);
    assert!(
        history.contains("REVISION") && history.lines().any(|l| l.starts_with('1')),
        "{history}"
    );
    let back = g.kubectl(&["rollout", "undo", "-n", "every", "statefulset/every", "--to-revision=1"]);
    assert!(back.contains("rolled back"), "{back}");
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(
        g.kubectl(&["get", "-n", "every", "statefulset/every", "-o", image]),
        "example/old"
    );
    // The namespace comes first in the manifest and must go last here: with the control loops on (see
    // `TORANA_TEST_CONTROLLERS`) its deletion deletes everything in it.
    let (namespace, contents) = MANIFEST.split_once("---\n").expect("several documents");
    let deleted = g.kubectl_in(
        &["delete", "--wait=false", "--ignore-not-found", "-f", "-"],
        Some(contents),
    );
    assert!(
        deleted.lines().filter(|l| l.ends_with("deleted")).count() > 50,
        "{deleted}"
    );
    let deleted = g.kubectl_in(&["delete", "--wait=false", "-f", "-"], Some(namespace));
    assert_eq!(deleted.trim(), "namespace \"every\" deleted");
}
