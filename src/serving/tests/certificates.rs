//! Choice and reload of the server certificate; acceptance of client certificates.

use super::support::{self, Fixture, Pair, answer_with};
use super::*;
use crate::pki::certs::{DynamicCa, DynamicKeyPair, Reload};

/// A server that answers whether the client has shown a certificate.
fn serve(fixture: &Fixture) -> support::Running {
    fixture.serve(
        Limits::default(),
        answer_with(|req| {
            let shown = RequestContext::of(&req).certificates.is_some();
            Response::new(Body::full(shown.to_string()))
        }),
    )
}

#[tokio::test]
async fn client_certificates_of_version_1_pass_the_handshake() {
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    let fixture = Fixture::new();
    let server = serve(&fixture);
    let issued = crate::x509::testing::version_one("ann", "490101000000Z");
    let key = rustls::pki_types::PrivateKeyDer::try_from(issued.key).unwrap();
    let key = support::provider().key_provider.load_private_key(key).unwrap();
    let certified = Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![issued.certificate], key)));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut config = fixture.client_config_over(&[version]);
        config.client_auth_cert_resolver = certified.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tls = fixture
            .connect_with(&server, "localhost", Arc::new(config))
            .await
            .unwrap();
        assert_eq!(support::get(tls, "/").await.1, "true", "{version:?}");
    }
}

#[tokio::test]
async fn an_untrusted_client_certificate_does_not_fail_the_handshake() {
    let fixture = Fixture::new();
    let server = serve(&fixture);
    let stranger = Pair::self_signed("stranger");
    let tls = fixture
        .connect(&server, "localhost", &["h2"], Some(&stranger))
        .await
        .unwrap();
    assert_eq!(support::get(tls, "/").await.1, "true");
}

#[tokio::test]
async fn a_resumed_session_still_carries_the_client_certificate() {
    let fixture = Fixture::new();
    let server = serve(&fixture);
    let config = Arc::new(fixture.client_config(&["http/1.1"], Some(&fixture.client)));
    let mut resumed = Vec::new();
    for _ in 0..2 {
        let tls = fixture
            .connect_with(&server, "localhost", Arc::clone(&config))
            .await
            .unwrap();
        let (kind, body) = support::get_kind(tls, "/").await;
        assert_eq!(body, "true");
        resumed.push(kind == Some(rustls::HandshakeKind::Resumed));
    }
    assert_eq!(resumed, [false, true]);
}

#[tokio::test]
async fn sni_prefers_exact_over_wildcard_over_default() {
    let fixture = Fixture::new();
    let sni = [
        ("a.example", vec![]),
        ("wild", vec!["*.example"]),
        ("b.example", vec!["b.example", "127.0.0.1"]),
    ]
    .map(|(subject, names)| SniKeyPair {
        names: names.into_iter().map(str::to_owned).collect(),
        pair: Pair::self_signed(subject).dynamic(),
    })
    .to_vec();
    let server = fixture.serve_sni(sni);
    for (name, expect) in [
        ("a.example", "a.example"),
        ("A.Example", "a.example"),
        ("b.example", "b.example"),
        ("c.example", "wild"),
        ("d.c.example", "localhost"),
        ("localhost", "localhost"),
        ("127.0.0.1", "b.example"),
    ] {
        let tls = fixture.connect(&server, name, &["h2"], None).await.unwrap();
        assert_eq!(support::server_subject(&tls), expect, "{name}");
    }
}

#[tokio::test]
async fn new_connections_see_a_reloaded_certificate() {
    let fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    let put = |pair: &Pair, k: &Pair| {
        std::fs::write(&cert, &pair.cert_pem).unwrap();
        std::fs::write(&key, &k.key_pem).unwrap();
    };
    let (old, new) = (Pair::self_signed("old"), Pair::self_signed("new"));
    put(&old, &old);
    let source = DynamicKeyPair::from_files(&cert, &key, support::provider()).unwrap();
    let mut changes = source.subscribe();
    let server = fixture.serve_pair(Arc::clone(&source));
    let shown = async || {
        let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
        support::server_subject(&tls)
    };
    assert_eq!(shown().await, "old");
    assert!(!source.check_now());

    put(&new, &old);
    assert!(!source.check_now(), "a key of another certificate is rejected");
    server.tls.rebuild();
    assert_eq!(shown().await, "old");

    put(&new, &new);
    assert!(source.check_now());
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    server.tls.rebuild();
    assert_eq!(shown().await, "new");

    std::fs::write(&cert, "nonsense").unwrap();
    assert!(!source.check_now());
    assert_eq!(source.current().names, ["new"]);
}

#[tokio::test]
async fn tls_configuration_follows_its_sources() {
    let fixture = Fixture::new();
    let source = Pair::self_signed("old").dynamic();
    let server = fixture.serve_pair(Arc::clone(&source));
    let follower = tokio::spawn(Arc::clone(&server.tls).follow());
    source.replace(Pair::self_signed("new").data());
    loop {
        let tls = fixture.connect(&server, "localhost", &["h2"], None).await.unwrap();
        if support::server_subject(&tls) == "new" {
            break;
        }
        tokio::task::yield_now().await;
    }
    follower.abort();
}

#[test]
fn an_invalid_ca_bundle_does_not_replace_a_valid_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.crt");
    let (a, b) = (Pair::self_signed("a"), Pair::self_signed("b"));
    std::fs::write(&path, &a.cert_pem).unwrap();
    let ca = DynamicCa::from_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    assert!(!ca.check_now());
    assert_eq!(ca.current().roots.len(), 1);
    std::fs::write(&path, format!("{}{}", a.cert_pem, b.cert_pem)).unwrap();
    assert!(ca.check_now());
    assert_eq!(ca.current().subjects.len(), 2);
    std::fs::write(&path, "").unwrap();
    let error = DynamicCa::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("ca.crt") && error.contains("no certificate"), "{error}");
}

#[test]
fn unknown_cipher_suites_are_named_in_the_error() {
    let build = |suites: &[&str]| {
        let options = TlsOptions {
            cipher_suites: suites.iter().map(|s| (*s).to_owned()).collect(),
            ..TlsOptions::default()
        };
        TlsConfig::try_new(
            Pair::self_signed("x").dynamic(),
            vec![],
            vec![],
            options,
            support::provider(),
        )
        .map(drop)
    };
    build(&[
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    ])
    .unwrap();
    let error = build(&["TLS_RSA_WITH_AES_128_CBC_SHA"]).unwrap_err().to_string();
    assert!(
        error.contains("TLS_RSA_WITH_AES_128_CBC_SHA") && error.contains("--tls-cipher-suites"),
        "{error}"
    );
}
