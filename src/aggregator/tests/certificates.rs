//! Certificates by reference.

use super::*;
use base64::Engine as _;

fn config_map(ca: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": "roots"}, "data": {"ca.crt": ca}})
}

fn tls_secret([_, certificate, key]: &[String; 3]) -> Value {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    json!({"metadata": {"namespace": "n", "name": "client"}, "type": "kubernetes.io/tls",
           "data": {"tls.crt": (encoded(certificate)), "tls.key": (encoded(key))}})
}

#[tokio::test]
async fn roots_by_reference_are_followed_and_their_absence_is_told() {
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
    w.until_condition("v1.g", "False/ReferenceNotFound/configmap \"n/roots\" is not present")
        .await;
    assert_eq!(w.get(THINGS).await, (503, "service unavailable\n".into()));
    w.config_maps
        .set("n/roots", &json!({"metadata": {}, "data": {"ca.pem": "x"}}));
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/configmap \"n/roots\" cannot be used: it has no key \"ca.crt\"",
    )
    .await;
    w.config_maps.set("n/roots", &config_map(" \n"));
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/configmap \"n/roots\" cannot be used: its key \"ca.crt\" is empty",
    )
    .await;
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
        "nothing was sent on a connection that is not verified"
    );
    w.config_maps
        .set("n/roots", &config_map(&format!("{}{}", other.ca_pem, pki.ca_pem)));
    passed(&w).await;
    w.config_maps.remove("n/roots");
    w.until_condition("v1.g", "False/ReferenceNotFound/configmap \"n/roots\" is not present")
        .await;
}

#[tokio::test]
async fn a_client_certificate_by_reference_is_shown_and_rotates() {
    let (one, two) = (client_pair(), client_pair());
    let pki = Pki::asking(&["api.example.com"], &[b"h2"], &format!("{}{}", one[0], two[0]));
    let backend = raw_backend(&pki, |stream| async move {
        // The certificate's own bytes, as what it answers.
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
    w.until_condition("v1.g", "False/ReferenceNotFound/secret \"n/client\" is not present")
        .await;
    let mut opaque = tls_secret(&one);
    opaque.set(&["type"], "Opaque");
    w.secrets.set("n/client", &opaque);
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/secret \"n/client\" cannot be used: it is of the type \"Opaque\", not \"kubernetes.io/tls\"",
    )
    .await;
    let mixed = [one[0].clone(), one[1].clone(), two[2].clone()];
    w.secrets.set("n/client", &tls_secret(&mixed));
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/secret \"n/client\" cannot be used: the private key does not belong to the certificate",
    )
    .await;
    // Everybody who reads APIServices reads this: nothing of the key is in it.
    let one_line = [one[0].clone(), one[1].clone(), one[2].replace('\n', "")];
    w.secrets.set("n/client", &tls_secret(&one_line));
    w.until_condition(
        "v1.g",
        "False/ReferenceInvalid/secret \"n/client\" cannot be used: no usable private key (PKCS#8, PKCS#1 or SEC1 PEM): \
         the PEM block has no end: it is cut off, or has lost its line breaks",
    )
    .await;
    for pair in [&one, &two, &one] {
        w.secrets.set("n/client", &tls_secret(pair));
        let body: String = pair[1].lines().filter(|l| !l.starts_with("---")).collect();
        let shown = || async { (w.get(THINGS).await == (200, body.clone())).then_some(()) };
        w.until("the certificate is shown", shown).await;
        for _ in 0..5 {
            assert_eq!(w.get(THINGS).await.1, body, "no request goes by the old certificate");
        }
    }
}

#[tokio::test]
async fn annotations_that_cannot_be_read_send_nothing_anywhere() {
    let pki = Pki::new(&["ext.ns.svc"], &[b"h2"]);
    let (backend, _) = named(&pki, "a").await;
    let w = world().await;
    let port = backend.authority.rsplit(':').next().unwrap().parse().unwrap();
    let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    w.services.set("ns/ext", &service);
    // As another server on the same store may have written it.
    let mut o = apiservice("g", &pki.ca_pem, port);
    o.set(
        &["metadata", "annotations", "torana.dev/backend-ca-from"],
        "configmap/roots",
    );
    w.api_services.set("v1.g", &o);
    let told = || async {
        w.condition("v1.g")
            .starts_with("False/InvalidAnnotations/metadata.annotations[torana.dev/backend-ca-from]: Invalid value")
            .then_some(())
    };
    w.until("the condition", told).await;
    assert_eq!(backend.connections.load(Ordering::Relaxed), 0);
}
