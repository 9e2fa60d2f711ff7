use super::*;
use std::os::unix::fs::PermissionsExt;

fn options(dir: &Path) -> PkiOptions {
    PkiOptions {
        dir: dir.join("pki"),
        serving_dir: None,
        names: vec!["Gateway".into()],
        addresses: vec![IpAddr::from([10, 0, 0, 1])],
        rsa_signing_key: false,
        now: SystemTime::now(),
    }
}

fn snapshot(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn ensure_generates_everything_once() {
    let tmp = tempfile::tempdir().unwrap();
    let options = options(tmp.path());
    assert_eq!(ensure(&options).unwrap().written.len(), 7);
    let first = snapshot(&options.dir);
    let names: Vec<&str> = first.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(
        names,
        [
            "admin.crt",
            "admin.key",
            "apiserver.crt",
            "apiserver.key",
            "ca.crt",
            "ca.key",
            "client-ca.crt",
            "client-ca.key",
            "front-proxy-ca.crt",
            "front-proxy-ca.key",
            "front-proxy-client.crt",
            "front-proxy-client.key",
            "sa.key",
            "sa.pub"
        ]
    );
    assert!(ensure(&options).unwrap().written.is_empty());
    assert_eq!(snapshot(&options.dir), first);
}

#[test]
fn keys_are_readable_by_their_owner_only() {
    let tmp = tempfile::tempdir().unwrap();
    let options = options(tmp.path());
    ensure(&options).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&options.dir), 0o700);
    for (name, _) in snapshot(&options.dir) {
        let wanted = if name.ends_with(".key") { 0o600 } else { 0o644 };
        assert_eq!(
            mode(&options.dir.join(&name)) & wanted,
            mode(&options.dir.join(&name)),
            "{name}"
        );
        if name.ends_with(".key") {
            assert_eq!(mode(&options.dir.join(&name)), 0o600, "{name}");
        }
    }
}

#[test]
fn no_certificate_is_written_if_its_key_cannot_be() {
    let tmp = tempfile::tempdir().unwrap();
    let mut staged = files::Staged::default();
    staged.add(&tmp.path().join("a.crt"), "a".to_owned(), files::PUBLIC);
    staged.add(&tmp.path().join("a.key"), "a".to_owned(), files::SECRET);
    // No file can replace a directory.
    std::fs::create_dir(tmp.path().join("a.key")).unwrap();
    let error = staged.commit().unwrap_err().to_string();
    assert!(error.contains("a.key: cannot be written"), "{error}");
    let left: Vec<_> = std::fs::read_dir(tmp.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["a.key"], "nothing else is left");
}

#[test]
fn a_new_name_or_upcoming_expiry_reissues_only_the_leaf() {
    let tmp = tempfile::tempdir().unwrap();
    let mut options = options(tmp.path());
    ensure(&options).unwrap();
    options.names.push("renamed.example".into());
    assert_eq!(ensure(&options).unwrap().written, ["apiserver"]);
    assert!(ensure(&options).unwrap().written.is_empty());
    options.now += LEAF_LIFE - RENEW_BEFORE / 2;
    assert_eq!(
        ensure(&options).unwrap().written,
        ["apiserver", "admin", "front-proxy-client"]
    );
}

#[test]
fn a_leaf_of_another_ca_is_reissued() {
    let tmp = tempfile::tempdir().unwrap();
    let options = options(tmp.path());
    ensure(&options).unwrap();
    for file in ["client-ca.crt", "client-ca.key"] {
        std::fs::remove_file(options.dir.join(file)).unwrap();
    }
    assert_eq!(ensure(&options).unwrap().written, ["client-ca", "admin"]);
}

#[test]
fn a_ca_without_its_key_suffices_until_a_leaf_must_be_reissued() {
    let tmp = tempfile::tempdir().unwrap();
    let mut options = options(tmp.path());
    ensure(&options).unwrap();
    std::fs::remove_file(options.dir.join("ca.key")).unwrap();
    assert!(ensure(&options).unwrap().written.is_empty());
    options.names.push("renamed".into());
    let error = ensure(&options).unwrap_err().to_string();
    assert!(
        error.contains("apiserver.crt") && error.contains("ca.key") && error.contains("renamed"),
        "{error}"
    );
}

#[test]
fn a_mismatched_ca_key_is_reported_by_file() {
    let tmp = tempfile::tempdir().unwrap();
    let options = options(tmp.path());
    ensure(&options).unwrap();
    std::fs::copy(options.dir.join("client-ca.key"), options.dir.join("ca.key")).unwrap();
    let error = ensure(&options).unwrap_err().to_string();
    assert!(error.contains("ca.key") && error.contains("does not belong"), "{error}");
}

#[test]
fn the_kubeconfig_is_self_contained() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("admin.kubeconfig");
    let kubeconfig = Kubeconfig {
        server: "https://127.0.0.1:6443",
        certificate_authority: b"ca",
        user: "kubernetes-admin",
        credentials: Credentials::Certificate {
            certificate: b"crt",
            key: b"key",
        },
    };
    write_kubeconfig(&path, &kubeconfig).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for line in [
        "    server: https://127.0.0.1:6443\n",
        "    certificate-authority-data: Y2E=\n",
        "    client-certificate-data: Y3J0\n",
        "    client-key-data: a2V5\n",
        "\ncurrent-context: kubernetes-admin@torana\n",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
}

#[test]
fn users_of_a_kubeconfig_may_have_any_name() {
    for user in ["true", "null", "yes", "1", "system:jane", "a: b #c", "", "two\nlines"] {
        let text = Kubeconfig {
            server: "https://127.0.0.1:6443",
            certificate_authority: b"ca",
            user,
            credentials: Credentials::Token(user),
        }
        .to_yaml();
        let document = crate::apimachinery::codec::yaml::decode(text.as_bytes()).unwrap();
        let entry = &document.get("users").items()[0];
        assert_eq!(entry.get("name").as_str(), Some(user), "{text}");
        assert_eq!(entry.at(&["user", "token"]).as_str(), Some(user), "{text}");
        let context = document.get("contexts").items()[0].at(&["context", "user"]).as_str();
        assert_eq!(context, Some(user), "{text}");
    }
}

#[test]
fn client_certificates_are_issued_for_the_requested_lifetime() {
    let tmp = tempfile::tempdir().unwrap();
    let options = options(tmp.path());
    ensure(&options).unwrap();
    let life = Duration::from_secs(3600);
    let (cert, key) = issue_client(&options.dir, "system:jane", Some("dev"), life, options.now).unwrap();
    assert!(key.contains("PRIVATE KEY"));
    let (_, pem) = x509_parser::pem::parse_x509_pem(cert.as_bytes()).unwrap();
    let cert = pem.parse_x509().unwrap();
    assert_eq!(cert.subject().to_string(), "CN=system:jane, O=dev");
    let ends = cert.validity().not_after.timestamp();
    let now = options.now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(u64::try_from(ends).unwrap(), now + 3600);
    let nowhere = tmp.path().join("nowhere");
    let error = issue_client(&nowhere, "x", None, life, options.now)
        .unwrap_err()
        .to_string();
    assert!(error.contains("client-ca.crt: is missing"), "{error}");
    let token = Kubeconfig {
        server: "https://x",
        certificate_authority: b"",
        user: "system:jane",
        credentials: Credentials::Token("a.b-c"),
    };
    assert!(
        token
            .to_yaml()
            .contains("- name: system:jane\n  user:\n    token: a.b-c\n")
    );
}

#[test]
fn serving_dir_pairs_are_generated_renewed_or_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let mut ours = options(tmp.path());
    ours.serving_dir = Some(tmp.path().join("certs"));
    let pki = ensure(&ours).unwrap();
    assert!(pki.serving_is_ours && pki.written.contains(&"apiserver"));
    let (cert, key) = pki.apiserver();
    assert_eq!(cert, tmp.path().join("certs/apiserver.crt"));
    assert!(!ours.dir.join("apiserver.crt").exists());
    let made = std::fs::read_to_string(&cert).unwrap();
    let ca = std::fs::read_to_string(pki.ca()).unwrap();
    assert_eq!(made.matches("BEGIN CERTIFICATE").count(), 2, "{made}");
    assert_eq!(
        certificates(&made).last(),
        certificates(&ca).last(),
        "the file ends with the CA"
    );

    // Its own certificate is renewed in place once it expires.
    let mut later = ours.clone();
    later.now += LEAF_LIFE;
    assert!(ensure(&later).unwrap().written.contains(&"apiserver"));
    assert_ne!(std::fs::read_to_string(&cert).unwrap(), made);

    // Somebody else's is neither renewed nor replaced.
    let foreign = tempfile::tempdir().unwrap();
    let theirs = ensure(&options(foreign.path())).unwrap().apiserver();
    std::fs::copy(&theirs.0, &cert).unwrap();
    std::fs::copy(&theirs.1, &key).unwrap();
    let kept = std::fs::read(&cert).unwrap();
    let pki = ensure(&later).unwrap();
    assert!(!pki.serving_is_ours && pki.written.is_empty(), "{:?}", pki.written);
    assert_eq!(std::fs::read(&cert).unwrap(), kept);
}

/// The certificates of a PEM text.
fn certificates(text: &str) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::pem_slice_iter(text.as_bytes())
        .map(Result::unwrap)
        .collect()
}
