//! Tests through configuration files, as an operator uses them.

mod plugins;

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::PathBuf;

const KEY: &str = "/registry/secrets/ns/n";

fn secret(n: usize, byte: u8) -> String {
    STANDARD.encode(vec![byte; n])
}

struct File(tempfile::TempDir);

impl File {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("encryption.yaml")
    }

    /// Writes a configuration with these providers for secrets.
    fn write(&self, providers: &str) {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
             providers:\n{providers}"
        );
        std::fs::write(self.path(), text).expect("written");
    }

    fn load(&self, providers: &str) -> Result<Encryption, String> {
        self.write(providers);
        Encryption::load(&self.path()).map_err(|e| e.to_string())
    }
}

fn keys(kind: &str, keys: &[(&str, u8)]) -> String {
    let mut out = format!("  - {kind}:\n      keys:\n");
    for (name, byte) in keys {
        out += &format!("      - name: {name}\n        secret: {}\n", secret(32, *byte));
    }
    out
}

fn opened(t: &dyn Transform, stored: &Bytes) -> (Bytes, bool) {
    let opened = t.open(KEY, stored.clone()).expect("it opens");
    (opened.bytes, opened.stale)
}

#[test]
fn providers_round_trip_without_plaintext() {
    for kind in ["aescbc", "aesgcm", "secretbox"] {
        let e = File::new().load(&keys(kind, &[("one", 1)])).expect("it loads");
        let t = e.transform("", "secrets");
        for length in [0, 1, 15, 16, 17, 5000] {
            let object = Bytes::from(vec![b'x'; length]);
            let stored = t.seal(KEY, object.clone()).expect("it is sealed");
            let prefix = format!("k8s:enc:{kind}:v1:one:");
            assert!(stored.starts_with(prefix.as_bytes()));
            assert!(length < 16 || !stored.windows(16).any(|w| w == [b'x'; 16]));
            assert_eq!(opened(&*t, &stored), (object, false));
        }
        let length = |object| t.seal(KEY, Bytes::from(object)).expect("sealed").len();
        assert_eq!(length("a"), length("b"));
        assert!(t.open(KEY, Bytes::from(format!("k8s:enc:{kind}:v1:other:x"))).is_err());
        assert!(
            t.open(KEY, Bytes::from(format!("k8s:enc:{kind}:v1:one:short")))
                .is_err()
        );
    }
}

#[test]
fn aesgcm_values_are_bound_to_their_storage_key() {
    let e = File::new().load(&keys("aesgcm", &[("one", 1)])).expect("it loads");
    let t = e.transform("", "secrets");
    let stored = t.seal(KEY, Bytes::from("object")).expect("sealed");
    assert!(t.open("/registry/secrets/ns/other", stored.clone()).is_err());
    let mut broken = stored.to_vec();
    *broken.last_mut().expect("a byte") ^= 1;
    assert!(t.open(KEY, broken.into()).is_err());
}

#[test]
fn rotated_key_still_decrypts_and_is_stale() {
    let file = File::new();
    let e = file.load(&keys("aescbc", &[("old", 1)])).expect("it loads");
    let t = e.transform("", "secrets");
    let stored = t.seal(KEY, Bytes::from("object")).expect("sealed");
    assert!(!e.reload().expect("it is readable"), "the file is unchanged");

    file.write(&keys("aescbc", &[("new", 2), ("old", 1)]));
    assert!(e.reload().expect("it is well"));
    assert_eq!(opened(&*t, &stored), (Bytes::from("object"), true));
    let anew = t.seal(KEY, Bytes::from("object")).expect("sealed");
    assert!(anew.starts_with(b"k8s:enc:aescbc:v1:new:"));
    assert!(!opened(&*t, &anew).1);

    file.write(&(keys("secretbox", &[("box", 3)]) + &keys("aescbc", &[("new", 2)]) + "  - identity: {}\n"));
    assert!(e.reload().expect("it is well"));
    assert!(opened(&*t, &anew).1, "another provider writes");
    assert!(opened(&*t, &Bytes::from("{}")).1, "stored as plaintext");
    let gone = t.open(KEY, stored).expect_err("its key is gone");
    assert_eq!(
        gone.to_string(),
        "no matching key was found for the provided AES transformer"
    );

    file.write("  - nonsense: {}\n");
    assert!(e.reload().is_err());
    assert!(opened(&*t, &anew).1, "the old configuration stays in use");
}

#[test]
fn identity_refuses_encrypted_values_and_may_come_first() {
    let e = File::new()
        .load(&("  - identity: {}\n".to_owned() + &keys("aesgcm", &[("one", 1)])))
        .expect("it loads");
    let t = e.transform("", "secrets");
    assert_eq!(t.seal(KEY, Bytes::from("{}")).expect("sealed"), Bytes::from("{}"));
    assert!(!opened(&*t, &Bytes::from("{}")).1);
    let unnamed = e
        .transform("", "configmaps")
        .open(KEY, Bytes::from("k8s:enc:aesgcm:v1:one:x"));
    assert!(matches!(unnamed, Err(TransformError::Encrypted)));
}

#[test]
fn configuration_errors_name_the_line() {
    let file = File::new();
    for (providers, why) in [
        (
            "  - aescbc:\n      keyz: []\n",
            "line 7: unknown field \"resources[0].providers[0].aescbc.keyz\"",
        ),
        (
            "  - aescbc:\n      keys:\n      - name: a\n        secret: AAAA\n",
            "line 9: resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the \
             expected length, got 3, expected one of [16 24 32]",
        ),
        (
            "  - aesgcm:\n      keys:\n      - name: a\n        secret: '*'\n",
            "line 9: resources[0].providers[0].aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 \
             encoded",
        ),
        (
            "  - identity: {}\n    kms: {}\n",
            "line 6: resources[0].providers[0]: Invalid value: more than one provider specified in a single element, \
             should split into different list elements",
        ),
        (
            "  - kms: {name: a, endpoint: 'unix:///x'}\n",
            "line 6: KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set \
             --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.",
        ),
        (
            "  - kms: {apiVersion: v2, name: a, endpoint: 'http://x'}\n",
            "line 6: resources[0].providers[0].kms.endpoint: Invalid value: unsupported scheme \"http\" for KMS provider, \
             only unix is supported",
        ),
    ] {
        let found = file.load(providers).err().expect("refused");
        assert!(found.ends_with(why), "{found}\nwanted: {why}");
        assert!(found.contains("encryption.yaml"));
    }
    std::fs::write(file.path(), " \n").expect("written");
    assert!(
        Encryption::load(&file.path())
            .err()
            .expect("refused")
            .to_string()
            .ends_with("is empty")
    );
}

#[test]
fn resources_match_by_name_then_group_then_wildcard() {
    let file = File::new();
    let load = |rules: &[&str]| {
        let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n".to_owned();
        for (i, rule) in rules.iter().enumerate() {
            let secret = secret(32, i as u8);
            text += &format!(
                "- resources: [{rule}]\n  providers: [{{aesgcm: {{keys: [{{name: k{i}, secret: {secret}}}]}}}}]\n"
            );
        }
        std::fs::write(file.path(), text).expect("written");
        Encryption::load(&file.path())
    };
    let e = load(&["secrets, 'widgets.example.com'", "'*.apps'", "'*.'", "'*.*'"]).expect("it loads");
    for (group, resource, key) in [
        ("", "secrets", "k0"),
        ("example.com", "widgets", "k0"),
        ("apps", "deployments", "k1"),
        ("", "configmaps", "k2"),
        ("example.com", "others", "k3"),
    ] {
        let stored = e
            .transform(group, resource)
            .seal(KEY, Bytes::from("x"))
            .expect("sealed");
        assert!(
            stored.starts_with(format!("k8s:enc:aesgcm:v1:{key}:").as_bytes()),
            "{group}/{resource}"
        );
    }
    for (rules, why) in [
        (
            vec!["'*.*'", "secrets"],
            "resource \"secrets\" is masked by earlier rule \"*.*\"",
        ),
        (vec!["Secrets"], "capital letters"),
        (vec!["'*'"], "*.* to encrypt all resources"),
        (vec!["'secrets.*'"], "across groups is not supported"),
        (vec!["secrets, '*.'"], "overlaps"),
        (vec!["serviceipallocations"], "do not have REST API/s"),
    ] {
        let found = load(&rules).err().expect("refused");
        assert!(found.to_string().contains(why), "{found}");
    }
}
