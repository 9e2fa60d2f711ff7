//! Certificates from Secrets and ConfigMaps, end to end.

use super::*;
use base64::Engine as _;

const NO_ROOTS: &str =
    "False/ReferenceNotFound/configmap \"n/roots\" is not present, or holds nothing usable under the key \"ca.crt\"";
const NO_PAIR: &str =
    "False/ReferenceNotFound/secret \"n/client\" is not present, or holds nothing usable under the key \"tls.crt\"";

fn config_map(ca: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": "roots"}, "data": {"ca.crt": ca}})
}

fn tls_secret([_, certificate, key]: &[String; 3]) -> Value {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    json!({"metadata": {"namespace": "n", "name": "client"}, "type": "kubernetes.io/tls",
           "data": {"tls.crt": (encoded(certificate)), "tls.key": (encoded(key))}})
}

#[tokio::test]
async fn referenced_roots_are_followed_and_absent_ones_reported() {
    let (pki, other) = (Pki::new(&["ext.ns.svc"], &[b"h2"]), Pki::new(&["ext.ns.svc"], &[b"h2"]));
    let (backend, _) = named(&pki, "a").await;
    let w = world().await;
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    let port = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let mut o = apiservice("g", "", port);
    o.set(
        &["metadata", "annotations", "torana.dev/backend-ca-from"],
        "configmap/n/roots",
    );
    w.api_services.set("v1.g", &o);
    w.until_condition("v1.g", NO_ROOTS).await;
    assert_eq!(w.get(THINGS).await, (503, "service unavailable\n".into()));
    // Unusable content must read like an absent object, whose existence the author of the APIService may not
    // know.
    for of_no_use in [
        json!({"metadata": {}, "data": {"ca.pem": "x"}}),
        config_map(" \n"),
        config_map("junk"),
    ] {
        w.config_maps.set("n/roots", &of_no_use);
        w.until_condition("v1.g", NO_ROOTS).await;
    }
    w.config_maps.set("n/roots", &config_map(&pki.ca_pem));
    passed(&w).await;

    let before = backend.connections.load(Ordering::Relaxed);
    w.config_maps.set("n/roots", &config_map(&other.ca_pem));
    let refused = || async {
        let now = w.condition("v1.g");
        (now.starts_with("False/FailedDiscoveryCheck/") && now.contains("signed by unknown authority")).then_some(())
    };
    w.until("the old roots are forgotten", refused).await;
    assert_eq!(
        backend.connections.load(Ordering::Relaxed),
        before,
        "nothing was sent on an unverified connection"
    );
    w.config_maps
        .set("n/roots", &config_map(&format!("{}{}", other.ca_pem, pki.ca_pem)));
    passed(&w).await;
    w.config_maps.remove("n/roots");
    w.until_condition("v1.g", NO_ROOTS).await;
}

#[tokio::test]
async fn a_referenced_client_certificate_is_presented_and_rotates() {
    let (one, two) = (client_pair(), client_pair());
    let pki = Pki::asking(&["api.example.com"], &[b"h2"], &format!("{}{}", one[0], two[0]));
    let backend = raw_backend(&pki, |stream| async move {
        // Respond with the certificate that the client presented.
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].as_ref().to_vec();
        let text = base64::engine::general_purpose::STANDARD.encode(shown);
        serve_http2(stream, text).await;
    })
    .await;
    let w = world().await;
    let url = format!("https://{}", backend.authority);
    let from = ("torana.dev/backend-client-certificate-from", "secret/n/client");
    w.api_services.set(
        "v1.g",
        &object(&pki.ca_pem, &[(URLS, &url), (NAME, "api.example.com"), from]),
    );
    w.until_condition("v1.g", NO_PAIR).await;
    let mut opaque = tls_secret(&one);
    opaque.set(&["type"], "Opaque");
    let mixed = [one[0].clone(), one[1].clone(), two[2].clone()];
    let one_line = [one[0].clone(), one[1].clone(), one[2].replace('\n', "")];
    // Everybody who can read APIServices sees this, so it must not disclose that the Secret exists.
    for of_no_use in [opaque, tls_secret(&mixed), tls_secret(&one_line)] {
        w.secrets.set("n/client", &of_no_use);
        w.until_condition("v1.g", NO_PAIR).await;
    }
    for pair in [&one, &two, &one] {
        w.secrets.set("n/client", &tls_secret(pair));
        let body: String = pair[1].lines().filter(|l| !l.starts_with("---")).collect();
        let shown = || async { (w.get(THINGS).await == (200, body.clone())).then_some(()) };
        w.until("the certificate is shown", shown).await;
        for _ in 0..5 {
            assert_eq!(w.get(THINGS).await.1, body, "no request uses the old certificate");
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_if_annotations_are_invalid() {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let (backend, _) = named(&pki, "a").await;
    let w = world().await;
    let port = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    // Validation would reject this, but another server on the same store may write it.
    let mut o = apiservice("g", &pki.ca_pem, port);
    o.set(
        &["metadata", "annotations", "torana.dev/backend-ca-from"],
        "configmap/roots",
    );
    w.api_services.set("v1.g", &o);
    let reported = || async {
        w.condition("v1.g")
            .starts_with("False/InvalidAnnotations/metadata.annotations[torana.dev/backend-ca-from]: Invalid value")
            .then_some(())
    };
    w.until("the condition", reported).await;
    assert_eq!(backend.connections.load(Ordering::Relaxed), 0);
}
