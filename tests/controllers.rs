//! The control loops as an unmodified kubectl sees them.

#[path = "controllers/aggregated.rs"]
mod aggregated;
#[path = "support/etcd.rs"]
mod etcd_process;
#[path = "controllers/gateways.rs"]
mod gateways;
#[path = "controllers/identities.rs"]
mod identities;
#[path = "controllers/interrupted.rs"]
mod interrupted;
#[path = "controllers/owners.rs"]
mod owners;
#[path = "controllers/policies.rs"]
mod policies;
#[path = "controllers/ranges.rs"]
mod ranges;
#[path = "controllers/real_manager.rs"]
mod real_manager;
mod support;
#[path = "controllers/tokens.rs"]
mod tokens;
#[path = "controllers/undeletable.rs"]
mod undeletable;
#[path = "controllers/volumes.rs"]
mod volumes;

use support::{Gateway, wait_for};

const CONTENT: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: full}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: full}
---
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: full}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: full}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c, image: i}]}
"#;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

const WIDGET: &str = "apiVersion: shop.example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: full, finalizers: [example.com/hold]}\n";

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: full}\nspec: {containers: [{name: c, image: i}]}\n";

fn gateway() -> (tempfile::TempDir, Gateway) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start_with(dir.path(), &["--controllers=*"]);
    (dir, g)
}

fn exists(g: &Gateway, args: &[&str]) -> bool {
    let args = [&["get", "--ignore-not-found", "-o", "name"], args].concat();
    !g.kubectl(&args).trim().is_empty()
}

#[test]
fn a_namespace_is_deleted_with_all_that_it_contains() {
    let (_dir, g) = gateway();
    g.kubectl_in(&["apply", "-f", "-"], Some(DEFINITION));
    g.until_established("widgets.shop.example.com");
    g.kubectl_in(&["apply", "-f", "-"], Some(CONTENT));
    wait_for("the default ServiceAccount", || {
        exists(&g, &["sa", "default", "-n", "full"])
    });
    g.kubectl_in(&["create", "-f", "-"], Some(POD));
    g.kubectl_in(&["create", "-f", "-"], Some(WIDGET));

    g.kubectl(&["delete", "namespace", "full", "--wait=false"]);
    let remaining = "jsonpath={.status.conditions[?(@.type=='NamespaceFinalizersRemaining')].message}";
    wait_for("the finalizer is reported", || {
        let message = g.kubectl(&["get", "namespace", "full", "-o", remaining]);
        message == "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    });
    assert!(!exists(&g, &["deployments,configmaps,secrets,pods", "-n", "full"]));

    let merge = r#"{"metadata":{"finalizers":null}}"#;
    g.kubectl(&["patch", "widget/w", "-n", "full", "--type=merge", "-p", merge]);
    g.kubectl(&["wait", "--for=delete", "namespace/full", "--timeout=30s"]);
}

#[test]
fn default_account_and_ca_of_a_namespace_are_created_and_restored() {
    let (dir, g) = gateway();
    g.kubectl(&["create", "namespace", "new"]);
    let objects: [&[&str]; 2] = [
        &["serviceaccount", "default", "-n", "new"],
        &["configmap", "kube-root-ca.crt", "-n", "new"],
    ];
    for object in objects {
        wait_for("it is created", || exists(&g, object));
        g.kubectl(&[&["delete"], object].concat());
        wait_for("it is created again", || exists(&g, object));
    }
    let ca = "jsonpath={.data.ca\\.crt}";
    let published = g.kubectl(&["get", "configmap", "kube-root-ca.crt", "-n", "new", "-o", ca]);
    let files = walk(dir.path());
    let own = files
        .iter()
        .find(|f| f.ends_with("pki/ca.crt"))
        .expect("the generated CA");
    assert_eq!(published, std::fs::read_to_string(own).expect("it is text"));
    assert!(!g.kubectl(&["create", "token", "default", "-n", "new"]).is_empty());
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let paths = entries.map(|e| e.expect("an entry").path());
    paths
        .flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] })
        .collect()
}

#[test]
fn a_namespace_admin_has_the_permissions_of_the_aggregated_role() {
    let (_dir, g) = gateway();
    g.kubectl(&["create", "namespace", "team"]);
    g.kubectl(&[
        "create",
        "rolebinding",
        "r",
        "-n",
        "team",
        "--clusterrole=admin",
        "--user=jane",
    ]);
    // `can-i` without rules exits with 1, so the list of rules is read.
    let may = |verb: &str, what: &str| {
        let rules = g.kubectl(&["auth", "can-i", "--list", "-n", "team", "--as=jane"]);
        let line = rules.lines().find(|l| l.split_whitespace().next() == Some(what));
        line.is_some_and(|l| l.contains(verb))
    };
    wait_for("the role has its rules", || may("create", "deployments.apps"));
    assert!(!may("create", "widgets.shop.example.com"));
    g.kubectl(&[
        "create",
        "clusterrole",
        "widgets",
        "--verb=create",
        "--resource=configmaps/widgets",
    ]);
    g.kubectl(&[
        "label",
        "clusterrole",
        "widgets",
        "rbac.authorization.k8s.io/aggregate-to-admin=true",
    ]);
    wait_for("an added role is aggregated", || may("create", "configmaps/widgets"));
}

#[test]
fn a_controller_manager_takes_the_lease_over_until_it_expires() {
    let (_dir, g) = gateway();
    g.kubectl(&["create", "namespace", "before"]);
    wait_for("the loops run", || exists(&g, &["sa", "default", "-n", "before"]));
    let lease = [
        "-n",
        "kube-system",
        "lease/kube-controller-manager",
        "--type=merge",
        "-p",
    ];
    // The patch of client-go's election to a lease without a holder. The lease outlives the test: how long kubectl
    // takes does not decide what is seen below.
    let acquired = r#"{"spec":{"holderIdentity":"manager","leaseDurationSeconds":3600}}"#;
    g.kubectl(&[&["patch"], &lease[..], &[acquired]].concat());
    wait_for("the loops stop", || g.process.log().contains("the control loops stop"));
    g.kubectl(&["create", "namespace", "during"]);
    assert!(!exists(&g, &["sa", "default", "-n", "during"]));
    // The manager does not renew its lease.
    let short = r#"{"spec":{"leaseDurationSeconds":1}}"#;
    g.kubectl(&[&["patch"], &lease[..], &[short]].concat());
    wait_for("the loops run again", || exists(&g, &["sa", "default", "-n", "during"]));
}

/// Creates a ConfigMap, and dependents of it as the Deployment controller would: a chain of two that blocks
/// its deletion.
fn family(g: &Gateway, owner: &str) {
    let create = |name: &str, owner: Option<&str>| {
        let references = owner.map_or(String::new(), |owner| {
            let uid = g.kubectl(&["get", "configmap", owner, "-o", "jsonpath={.metadata.uid}"]);
            format!(
                "ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: {owner}, uid: {uid}, blockOwnerDeletion: true}}]"
            )
        });
        let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  {references}\n");
        g.kubectl_in(&["create", "-f", "-"], Some(&map));
    };
    create(owner, None);
    create(&format!("{owner}-child"), Some(owner));
    create(&format!("{owner}-grandchild"), Some(&format!("{owner}-child")));
}

#[test]
fn dependents_are_deleted_with_their_owner_or_orphaned() {
    let (_dir, g) = gateway();
    let is_there = |name: &str| exists(&g, &["configmap", name]);
    for policy in ["background", "foreground", "orphan"] {
        family(&g, policy);
        let cascade = format!("--cascade={policy}");
        g.kubectl(&["delete", "configmap", policy, &cascade, "--timeout=30s"]);
        assert!(!is_there(policy));
        let (child, grandchild) = (format!("{policy}-child"), format!("{policy}-grandchild"));
        match policy {
            "foreground" => assert!(!is_there(&child) && !is_there(&grandchild), "they go first"),
            "background" => wait_for("the dependents are deleted", || {
                !is_there(&child) && !is_there(&grandchild)
            }),
            _ => {
                let owners = "jsonpath={.metadata.ownerReferences}";
                let left = g.kubectl(&["get", "configmap", &child, "-o", owners]);
                assert_eq!(
                    left, "",
                    "the owner waits until its dependents have lost their reference"
                );
                assert!(is_there(&grandchild));
            }
        }
    }
}

#[test]
fn an_object_whose_owner_never_existed_here_is_deleted() {
    let (_dir, g) = gateway();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: lost\n  ownerReferences: [{apiVersion: v1, kind: Secret, name: s, uid: nobody}]\n";
    g.kubectl_in(&["create", "-f", "-"], Some(map));
    wait_for("it is deleted", || !exists(&g, &["configmap", "lost"]));
    // An owner of an unknown kind may be served later.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kept\n  ownerReferences: [{apiVersion: x.io/v1, kind: X, name: s, uid: nobody}]\n";
    g.kubectl_in(&["create", "-f", "-"], Some(map));
    g.kubectl_in(
        &["create", "-f", "-"],
        Some(
            &map.replace("kept", "lost")
                .replace("x.io/v1", "v1")
                .replace("kind: X", "kind: Pod"),
        ),
    );
    wait_for("a later one is deleted", || !exists(&g, &["configmap", "lost"]));
    assert!(exists(&g, &["configmap", "kept"]));
}

#[test]
fn quota_usage_decreases_when_objects_are_deleted() {
    let (_dir, g) = gateway();
    g.kubectl(&["create", "namespace", "q"]);
    let create = |name: &str| ["create", "configmap", name, "-n", "q"].map(str::to_owned);
    let used = || {
        g.kubectl(&[
            "get",
            "quota",
            "limits",
            "-n",
            "q",
            "-o",
            "jsonpath={.status.used.count/configmaps}",
        ])
    };
    wait_for("the CA is published", || {
        exists(&g, &["configmap", "kube-root-ca.crt", "-n", "q"])
    });
    g.kubectl(&["create", "quota", "limits", "-n", "q", "--hard=count/configmaps=2"]);
    wait_for("the quota is counted", || used() == "1");
    let run = |args: [String; 5]| g.kubectl(&args.each_ref().map(String::as_str));
    run(create("a"));
    let refused = g.kubectl_fails(&create("b").each_ref().map(String::as_str), None);
    assert!(refused.contains("exceeded quota: limits"), "{refused}");
    g.kubectl(&["delete", "configmap", "a", "-n", "q"]);
    wait_for("the usage is given back", || used() == "1");
    run(create("b"));
}

#[test]
fn an_unused_claim_is_deleted() {
    let (_dir, g) = gateway();
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n";
    g.kubectl_in(&["create", "-f", "-"], Some(claim));
    g.kubectl(&["delete", "pvc", "c", "--timeout=30s"]);
    assert!(!exists(&g, &["pvc", "c"]));
}

/// Creates a Node, a Service with a named port, and a Pod of it that runs.
const WORKLOAD: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: z}}
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {team: a}}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: web}}
spec:
  nodeName: node-1
  containers: [{name: c, image: i, ports: [{name: http, containerPort: 8080}]}]
"#;

fn pod_status(g: &Gateway, ready: &str) {
    let status = format!(
        r#"{{"status":{{"phase":"Running","podIP":"10.1.0.1","podIPs":[{{"ip":"10.1.0.1"}}],"conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#
    );
    g.kubectl(&[
        "patch",
        "pod",
        "p",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ]);
}

#[test]
fn a_service_has_the_endpoints_of_its_pods() {
    let (_dir, g) = gateway();
    wait_for("the default ServiceAccount", || exists(&g, &["sa", "default"]));
    g.kubectl_in(&["create", "-f", "-"], Some(WORKLOAD));
    let of = "kubernetes.io/service-name=web";
    let slice = |path: &str| {
        let path = format!("jsonpath={{.items[*]{path}}}");
        g.kubectl(&["get", "endpointslices", "-l", of, "-o", &path])
    };
    let endpoints = |path: &str| {
        let path = format!("jsonpath={{.subsets[*]{path}}}");
        g.kubectl(&["get", "endpoints", "web", "--ignore-not-found", "-o", &path])
    };
    wait_for("an empty slice", || slice(".addressType") == "IPv4");
    pod_status(&g, "False");
    wait_for("an endpoint that is not ready", || {
        slice(".endpoints[*].conditions.ready") == "false" && endpoints(".notReadyAddresses[*].ip") == "10.1.0.1"
    });
    pod_status(&g, "True");
    wait_for("it is ready", || {
        slice(".endpoints[*].conditions.ready") == "true" && endpoints(".addresses[*].ip") == "10.1.0.1"
    });
    assert_eq!(slice(".ports[*].port"), "8080");
    assert_eq!(slice(".endpoints[*].zone"), "z");
    assert_eq!(slice(".metadata.labels.team"), "a");
    assert_eq!(slice(".metadata.ownerReferences[*].kind"), "Service");
    assert!(slice(".metadata.name").starts_with("web-"));

    g.kubectl(&["label", "service", "web", "team=b", "--overwrite"]);
    wait_for("the label is copied", || slice(".metadata.labels.team") == "b");

    g.kubectl(&["delete", "service", "web"]);
    wait_for("all are gone", || {
        slice(".metadata.name").is_empty() && !exists(&g, &["endpoints", "web"])
    });
}

#[test]
fn endpoints_that_users_write_are_mirrored() {
    let (_dir, g) = gateway();
    let objects = r#"
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: outside}
subsets: [{addresses: [{ip: 192.0.2.1}, {ip: 192.0.2.2}], ports: [{port: 8080}]}]
"#;
    g.kubectl_in(&["create", "-f", "-"], Some(objects));
    let slice = |path: &str| {
        let path = format!("jsonpath={{.items[*]{path}}}");
        let of = "endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io";
        g.kubectl(&["get", "endpointslices", "-l", of, "-o", &path])
    };
    wait_for("they are mirrored", || {
        slice(".endpoints[*].addresses[*]") == "192.0.2.1 192.0.2.2"
    });
    assert_eq!(slice(".metadata.ownerReferences[*].kind"), "Endpoints");
    let fewer = r#"{"subsets":[{"addresses":[{"ip":"192.0.2.2"}],"ports":[{"port":8080}]}]}"#;
    g.kubectl(&["patch", "endpoints", "outside", "--type=merge", "-p", fewer]);
    wait_for("a change is mirrored", || {
        slice(".endpoints[*].addresses[*]") == "192.0.2.2"
    });
    g.kubectl(&[
        "label",
        "endpoints",
        "outside",
        "endpointslice.kubernetes.io/skip-mirror=true",
    ]);
    wait_for("they are no longer mirrored", || slice(".metadata.name").is_empty());
}

/// A request for a client certificate, made by openssl, and its key.
fn certificate_request(dir: &std::path::Path, subject: &str) -> String {
    let (key, request) = (dir.join("client.key"), dir.join("client.csr"));
    let mut command = std::process::Command::new("openssl");
    command.args([
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    command
        .args(["-subj", subject, "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&request);
    let made = command.output().expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    use base64::Engine as _;
    let text = std::fs::read(request).expect("openssl wrote it");
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn request_manifest(name: &str, signer: &str, request: &str, usages: &str) -> String {
    format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\nspec:\n  signerName: kubernetes.io/{signer}\n  request: {request}\n  expirationSeconds: 3600\n  usages: [{usages}]\n"
    )
}

#[test]
fn an_approved_request_becomes_a_certificate() {
    let (dir, g) = gateway();
    let request = certificate_request(dir.path(), "/CN=jane/O=team");
    let manifest = request_manifest(
        "jane",
        "kube-apiserver-client",
        &request,
        "client auth, digital signature",
    );
    g.kubectl_in(&["create", "-f", "-"], Some(&manifest));
    let status = |name: &str, path: &str| {
        let path = format!("jsonpath={{.status{path}}}");
        g.kubectl(&["get", "csr", name, "-o", &path])
    };
    assert_eq!(status("jane", ".certificate"), "", "nobody approved it");
    g.kubectl(&["certificate", "approve", "jane"]);
    wait_for("it is signed", || !status("jane", ".certificate").is_empty());
    use base64::Engine as _;
    let pem = base64::engine::general_purpose::STANDARD.decode(status("jane", ".certificate"));
    let certificate = dir.path().join("client.crt");
    std::fs::write(&certificate, pem.expect("it is base64")).expect("a file");
    let (certificate, key) = (certificate.display().to_string(), dir.path().join("client.key"));
    let key = key.display().to_string();
    g.kubectl(&[
        "config",
        "set-credentials",
        "jane",
        "--client-certificate",
        &certificate,
        "--client-key",
        &key,
    ]);
    let who = g.kubectl(&[
        "--user=jane",
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ]);
    assert_eq!(who, "jane");

    // A request that the signer rejects is marked as failed.
    let manifest = request_manifest("bad", "kube-apiserver-client", &request, "server auth");
    g.kubectl_in(&["create", "-f", "-"], Some(&manifest));
    g.kubectl(&["certificate", "approve", "bad"]);
    let failed = ".conditions[?(@.type=='Failed')].message";
    wait_for("it is refused", || {
        status("bad", failed) == "invalid usage for client certificate: server auth"
    });
}

#[test]
fn a_node_client_request_is_approved_if_authorized() {
    let (dir, g) = gateway();
    let request = certificate_request(dir.path(), "/O=system:nodes/CN=system:node:node-1");
    let manifest = request_manifest(
        "node",
        "kube-apiserver-client-kubelet",
        &request,
        "client auth, digital signature",
    );
    let role = [
        "--clusterrole=system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "--user=boot",
    ];
    let create = [
        "create",
        "clusterrole",
        "ask",
        "--verb=create",
        "--resource=certificatesigningrequests.certificates.k8s.io",
    ];
    g.kubectl(&create);
    g.kubectl(&[
        "create",
        "clusterrolebinding",
        "ask",
        "--clusterrole=ask",
        "--user=boot",
    ]);
    g.kubectl_in(&["create", "--as=boot", "-f", "-"], Some(&manifest));
    let reason = || g.kubectl(&["get", "csr", "node", "-o", "jsonpath={.status.conditions[*].message}"]);
    assert_eq!(reason(), "", "it may not");
    g.kubectl(&[&["create", "clusterrolebinding", "nodes"], &role[..]].concat());
    wait_for("it is approved", || {
        reason() == "Auto approving kubelet client certificate after SubjectAccessReview."
    });
    wait_for("it is signed", || {
        !g.kubectl(&["get", "csr", "node", "-o", "jsonpath={.status.certificate}"])
            .is_empty()
    });
}
