//! Backends that publish too much, and APIServices that resolve to this gateway.

use super::*;

fn external(host: &str) -> Value {
    json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": host}})
}

#[tokio::test]
async fn an_apiservice_that_resolves_to_this_gateway_is_refused() {
    let w = world().await;
    let why = format!("this gateway itself, at {OWN}: requests would loop");
    for url in [format!("https://{OWN}"), format!("https://other.invalid,https://{OWN}")] {
        w.api_services
            .set("v1.g", &object("", &[(URLS, &url), (NAME, "api.example.com")]));
        let names = format!("False/OwnAddress/metadata.annotations[{URLS}] names {why}");
        w.until_condition("v1.g", &names).await;
        w.api_services.remove("v1.g");
    }
    w.services.set("ns/ext", &external("127.0.0.1"));
    w.api_services.set("v1.g", &apiservice("g", "", OWN.port()));
    let leads = format!("False/OwnAddress/service/ext in \"ns\" leads to {why}");
    w.until_condition("v1.g", &leads).await;
    assert_eq!(w.get(THINGS).await, (503, "service unavailable\n".into()));
    // The kernel connects an unspecified address to this machine.
    w.services.set("ns/ext", &external("0.0.0.0"));
    w.until_condition("v1.g", &leads.replace(&OWN.to_string(), "0.0.0.0:6443"))
        .await;
}

/// A backend with this discovery document.
async fn publishing(pki: &Pki, document: String) -> Backend {
    let document = bytes::Bytes::from(document);
    Backend::http(pki, 100, move |r: http::Request<Incoming>| {
        let document = document.clone();
        async move {
            if r.uri().path() != "/apis" {
                return response(200, "{}");
            }
            let mut a = response(200, document);
            let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            a.headers_mut().insert("content-type", kind.parse().unwrap());
            a
        }
    })
    .await
}

fn discovery(resources: &str, unknown: &str) -> String {
    format!(
        r#"{{"items":[{{"metadata":{{"name":"g"}},"versions":[{{"version":"v1","resources":[{resources}],"x":[{unknown}]}}]}}]}}"#
    )
}

async fn with(document: String) -> (World, Backend) {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let backend = publishing(&pki, document).await;
    let w = world().await;
    w.services.set("ns/ext", &external("127.0.0.1"));
    w.api_services
        .set("v1.g", &apiservice("g", &pki.ca_pem, backend.port()));
    (w, backend)
}

#[tokio::test]
async fn unknown_members_of_a_discovery_document_are_not_listed() {
    let unknown = vec!["{\"a\":1}"; 200_000].join(",");
    let (w, _backend) = with(discovery(
        r#"{"resource":"things","scope":"Namespaced","junk":[1]}"#,
        &unknown,
    ))
    .await;
    let current = || async {
        let group = w.aggregated("g").await;
        let version = group.get("versions").items().first()?.clone();
        (version.str_at(&["freshness"]) == "Current").then_some(version)
    };
    let version = w.until("freshness", current).await;
    assert_eq!(
        version,
        json!({"version": "v1", "freshness": "Current", "resources": [{"resource": "things", "scope": "Namespaced",
            "responseKind": {"group": "", "version": "", "kind": ""}}]})
    );
}

#[tokio::test]
async fn oversized_discovery_is_refused_and_shown_in_the_status() {
    let many = vec!["{}"; 4_001].join(",");
    for (document, why) in [
        (discovery(&many, ""), "g/v1 has 4001 resources, at most 4000 are taken"),
        (
            discovery("", &format!("\"{}\"", "x".repeat(4 << 20))),
            "the document is larger than 4194304 bytes",
        ),
    ] {
        let (w, _backend) = with(document).await;
        let reported = || async { w.get("/debug/aggregator").await.1.contains(why).then_some(()) };
        w.until(why, reported).await;
        let group = w.aggregated("g").await;
        let version = &group.get("versions").items()[0];
        assert_eq!(version.str_at(&["freshness"]), "Stale");
        assert!(version.get("resources").is_null());
    }
}
