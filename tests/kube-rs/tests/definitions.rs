//! Definitions of the Gateway API and of cert-manager, from the crates that publish them, as kubectl uses
//! them.
//!
//! Both crates derive the definitions from Rust types with an older kube than the other tests use.

#[path = "support/mod.rs"]
mod support;

use gateway_api as gateway;
use k8s_crds_cert_manager as cert_manager;
use kube_of_crates::CustomResourceExt;
use serde_json::{Value, json};
use support::{Server, wait_for};

fn definitions() -> Vec<Value> {
    let all = [
        gateway::gatewayclasses::GatewayClass::crd(),
        gateway::gateways::Gateway::crd(),
        gateway::httproutes::HttpRoute::crd(),
        gateway::grpcroutes::GrpcRoute::crd(),
        gateway::tlsroutes::TlsRoute::crd(),
        gateway::listenersets::ListenerSet::crd(),
        gateway::referencegrants::ReferenceGrant::crd(),
        gateway::backendtlspolicies::BackendTlsPolicy::crd(),
        cert_manager::Certificate::crd(),
        cert_manager::CertificateRequest::crd(),
        cert_manager::Issuer::crd(),
        cert_manager::ClusterIssuer::crd(),
        cert_manager::acme::orders::Order::crd(),
        cert_manager::acme::challenges::Challenge::crd(),
    ];
    let published = |definition| {
        let mut definition = serde_json::to_value(definition).expect("JSON");
        definition["metadata"]["annotations"] =
            json!({"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/3328"});
        for version in definition["spec"]["versions"].as_array_mut().expect("a list") {
            complete(&mut version["schema"]["openAPIV3Schema"]);
        }
        definition
    };
    all.into_iter().map(published).collect()
}

/// Declares what the derive leaves open: a member of any type.
fn complete(schema: &mut Value) {
    let Some(of) = schema.as_object_mut() else { return };
    if !of.contains_key("type") && !of.contains_key("x-kubernetes-int-or-string") {
        of.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }
    if let Some(properties) = of.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(complete);
    }
    for word in ["items", "additionalProperties"] {
        of.get_mut(word).into_iter().for_each(complete);
    }
}

/// As YAML documents, each of which may be JSON.
fn documents(objects: &[Value]) -> String {
    objects.iter().map(|o| format!("---\n{o}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_other_projects_are_installed_and_used() {
    let server = Server::start().await;
    let mut all = definitions();
    // As the Gateway API publishes it: an older version with the same schema.
    let routes = all.iter_mut().find(|d| d["spec"]["names"]["kind"] == "HTTPRoute");
    let versions = &mut routes.expect("it is one of them")["spec"]["versions"];
    let mut older = versions[0].clone();
    (older["name"], older["storage"]) = ("v1beta1".into(), false.into());
    versions.as_array_mut().expect("a list").push(older);

    server.kubectl(&["apply", "--server-side", "-f", "-"], &documents(&all));
    for definition in &all {
        let name = definition["metadata"]["name"].as_str().expect("a name");
        let crd = format!("crd/{name}");
        let established = ["wait", "--for=condition=Established", "--timeout=30s", &crd];
        // Repeated: `kubectl wait` fails on a definition that has no conditions yet.
        wait_for("the definition is established", || async {
            server.kubectl_try(&established)
        })
        .await;
        let explain = ["explain", name, "--recursive"];
        // Discovery and OpenAPI follow the condition, as upstream's do.
        wait_for("the definition is explained", || async { server.kubectl_try(&explain) }).await;
        let fields = server.kubectl(&explain, "");
        assert!(
            fields.lines().filter(|l| l.contains('\t')).count() > 10,
            "{name}: {fields}"
        );
    }

    let route = |version: &str, host: &str, port: i32| {
        json!({"apiVersion": format!("gateway.networking.k8s.io/{version}"), "kind": "HTTPRoute", "metadata": {"name": "shop"},
            "spec": {"hostnames": [host], "parentRefs": [{"name": "edge"}],
                "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "shop", "port": port}]}]}})
    };
    let apply = ["apply", "--server-side", "-f", "-"];
    server.kubectl(&apply, &route("v1", "a.example.com", 80).to_string());
    // The other version owns the same fields.
    server.kubectl(&apply, &route("v1beta1", "b.example.com", 81).to_string());
    let hosts = |version: &str| {
        let resource = format!("httproutes.{version}.gateway.networking.k8s.io");
        server.kubectl(
            &[
                "get",
                &resource,
                "shop",
                "-o",
                "jsonpath={.apiVersion} {.spec.hostnames} {.metadata.managedFields[*].manager}",
            ],
            "",
        )
    };
    for version in ["v1", "v1beta1"] {
        assert_eq!(
            hosts(version),
            format!("gateway.networking.k8s.io/{version} [\"b.example.com\"] kubectl")
        );
    }
    let mut wrong = route("v1", "a.example.com", 80);
    wrong["spec"]["rules"][0]["matches"][0]["path"]["type"] = "Fuzzy".into();
    let refused = server.kubectl_fails(&apply, &wrong.to_string());
    assert!(
        refused.contains("spec.rules[0].matches[0].path.type: Unsupported value: \"Fuzzy\": supported values: "),
        "{refused}"
    );

    for (name, issuer) in [("web", "internal"), ("mail", "public")] {
        let certificate = json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": name},
            "spec": {"secretName": name, "dnsNames": ["x.example.com"], "privateKey": {"algorithm": "ECDSA", "size": 256},
                "issuerRef": {"name": issuer, "kind": "ClusterIssuer"}}});
        server.kubectl(&["create", "-f", "-"], &certificate.to_string());
    }
    let selected = [
        "get",
        "certificates",
        "-o",
        "name",
        "--field-selector=spec.issuerRef.name=public",
    ];
    assert_eq!(server.kubectl(&selected, "").trim(), "certificate.cert-manager.io/mail");
    let table = server.kubectl(&["get", "certificates"], "");
    assert_eq!(table.lines().count(), 3, "{table}");
}
