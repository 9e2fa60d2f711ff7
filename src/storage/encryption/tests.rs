//! Tests through configuration files, as an operator uses them.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::PathBuf;
use std::time::Duration;

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

#[path = "../../../tests/support/kms.rs"]
mod kms_server;

/// A fake plugin and a configuration file that refers to it.
struct WithPlugin {
    plugin: kms_server::Plugin,
    file: File,
}

impl WithPlugin {
    fn start() -> Self {
        let file = File::new();
        let plugin = kms_server::Plugin::start(&file.0.path().join("kms"));
        Self { plugin, file }
    }

    /// Loads with short intervals for status checks. The seed outlives the test, however slow the checks are.
    fn load(&self, metrics: &Arc<EncryptionMetrics>) -> Encryption {
        self.load_with_seed_for(Duration::from_secs(3600), metrics)
    }

    fn load_with_seed_for(&self, seed_lifetime: Duration, metrics: &Arc<EncryptionMetrics>) -> Encryption {
        self.file.write(&self.plugin.provider("fake"));
        let intervals = kms_plugin::Intervals {
            healthy: Duration::from_millis(20),
            failing: Duration::from_millis(20),
            seed_lifetime,
        };
        Encryption::load_at(&self.file.path(), metrics.clone(), intervals).expect("it loads")
    }
}

/// Polls until the plugin's thread has caused the expected change.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

fn sealed(t: &dyn Transform) -> Bytes {
    t.seal(KEY, Bytes::from("object")).expect("sealed")
}

#[test]
fn kms_seed_is_encrypted_once_and_foreign_seeds_decrypted_once() {
    let with = WithPlugin::start();
    let metrics = EncryptionMetrics::unregistered();
    let e = with.load(&metrics);
    assert_eq!(e.health(), Ok(()));
    let t = e.transform("", "secrets");
    let object = Bytes::from("object");
    let stored = [sealed(&*t), sealed(&*t)];
    assert_ne!(stored[0], stored[1]);
    assert!(stored[0].starts_with(b"k8s:enc:kms:v2:fake:"));
    assert_eq!(opened(&*t, &stored[0]), (object.clone(), false));
    assert!(t.open("/registry/secrets/ns/other", stored[0].clone()).is_err());
    assert_eq!(with.plugin.calls("Decrypt"), 0, "the own seed needs no decryption");

    with.plugin.behave(|b| b.key_id = "key-2".to_owned());
    let restarted = with.load(&metrics);
    let t = restarted.transform("", "secrets");
    for stored in &stored {
        assert_eq!(
            opened(&*t, stored),
            (object.clone(), true),
            "its key is not current any more"
        );
    }
    assert_eq!(with.plugin.calls("Decrypt"), 1);
    assert!(restarted.has_plugins());
}

#[test]
fn new_key_id_rotates_the_seed_and_makes_values_stale() {
    let with = WithPlugin::start();
    let e = with.load(&EncryptionMetrics::unregistered());
    let t = e.transform("", "secrets");
    let old = sealed(&*t);
    with.plugin.behave(|b| b.key_id = "key-2".to_owned());
    until("the old value is stale", || opened(&*t, &old).1.then_some(()));
    let new = sealed(&*t);
    assert!(!opened(&*t, &new).1);
    assert_eq!(with.plugin.calls("Encrypt"), 2);
    assert_eq!(
        with.plugin.calls("Decrypt"),
        0,
        "both seeds were generated by this process"
    );
}

#[test]
fn plugin_outage_allows_reads_and_blocks_writes_after_expiry() {
    let mut with = WithPlugin::start();
    let e = with.load_with_seed_for(Duration::from_millis(300), &EncryptionMetrics::unregistered());
    let t = e.transform("", "secrets");
    // The seed expires for a moment whenever the thread that renews it is slow.
    let stored = until("a value is sealed", || t.seal(KEY, Bytes::from("object")).ok());
    with.plugin.stop_listening();
    // The first error may be that of the connection that broke.
    until("health reports that nothing listens", || {
        let why = e.health().err()?.to_string();
        why.contains("code = Unavailable desc = connection error: dial unix")
            .then_some(())
    });
    let why = until("writing ends", || t.seal(KEY, Bytes::from("object")).err());
    assert!(
        why.to_string()
            .starts_with("encryptedDEKSource with keyID hash \"sha256:"),
        "{why}"
    );
    assert_eq!(opened(&*t, &stored).0, Bytes::from("object"), "reads never expire");
    with.plugin.listen_again();
    until("it heals", || e.health().ok());
    until("writing goes on", || t.seal(KEY, Bytes::from("object")).ok());
}

#[test]
fn a_hanging_plugin_delays_each_reader_by_one_timeout() {
    let with = File::new();
    let socket = with.0.path().join("kms");
    // Connections are established by the system, and nobody reads from them.
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let timeout = Duration::from_millis(500);
    let metrics = EncryptionMetrics::unregistered();
    let socket = socket.to_str().expect("a path");
    let plugin = kms_plugin::Plugin::start("fake", socket, timeout, metrics, kms_plugin::Intervals::default());
    let plugin = plugin.expect("it starts");
    let since = Instant::now();
    let source = kms_plugin::Source::default();
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| assert!(plugin.decrypt(&source).is_err()));
        }
    });
    // One after the other, they would take 32 s.
    assert!(since.elapsed() < 16 * timeout, "{:?}", since.elapsed());
}

#[test]
fn invalid_plugin_status_reports_upstream_errors() {
    let telemetry = crate::telemetry::Telemetry::new();
    let with = WithPlugin::start();
    let e = with.load(&EncryptionMetrics::register(&telemetry));
    type Change = fn(&mut kms_server::Behaviour);
    let odd: [(Change, &str); 6] = [
        (
            |b| b.healthz = "bad day".to_owned(),
            "got unexpected healthz status: bad day",
        ),
        (|b| b.version = "v3".to_owned(), "expected KMSv2 API version v2, got v3"),
        (
            |b| b.version = "v2beta1".to_owned(),
            "KMSv2 API version should not change after the initial status response version v2, got v2beta1",
        ),
        (
            |b| b.key_id = String::new(),
            "got invalid KMSv2 KeyID hash \"\": keyID is empty",
        ),
        (
            |b| b.failing = Some(14),
            "failed to perform status section of the healthz check for KMS Provider fake, error: rpc error: code = \
             Unavailable desc = told to fail",
        ),
        (
            |b| b.failing = Some(7),
            "failed to perform status section of the healthz check for KMS Provider fake, error: rpc error: code = \
             PermissionDenied desc = told to fail",
        ),
    ];
    for (change, words) in odd {
        let mut before = None;
        with.plugin.behave(|b| {
            before = Some(b.clone());
            change(b);
        });
        let expected = format!("kmsv2 Provider fake is not healthy, error: {words}");
        until(&expected, || {
            e.health().is_err_and(|e| e.to_string() == expected).then_some(())
        });
        with.plugin.behave(|b| *b = before.take().expect("it was kept"));
        until("it heals", || e.health().ok());
    }
    let text = String::from_utf8(telemetry.text()).expect("text");
    for part in [
        "apiserver_envelope_encryption_invalid_key_id_from_status_total{error=\"empty\",provider_name=\"fake\"}",
        "kms_operations_latency_seconds_count{grpc_status_code=\"PermissionDenied\",method_name=\"/v2.KeyManagementService/Status\",provider_name=\"fake\"}",
        "apiserver_storage_data_key_generation_duration_seconds_count 1",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn reload_requires_healthy_plugins() {
    let telemetry = crate::telemetry::Telemetry::new();
    let with = WithPlugin::start();
    let e = with.load(&EncryptionMetrics::register(&telemetry));
    let t = e.transform("", "secrets");
    let stored = sealed(&*t);
    let other = kms_server::Plugin::start(&with.file.0.path().join("other"));
    other.behave(|b| b.healthz = "no".to_owned());
    with.file
        .write(&(other.provider("other") + &with.plugin.provider("fake")));
    let why = e.reload().expect_err("it is not well").to_string();
    assert!(why.contains("kmsv2 Provider other is not healthy"), "{why}");
    assert!(
        sealed(&*t).starts_with(b"k8s:enc:kms:v2:fake:"),
        "the old configuration stays in use"
    );
    other.behave(|b| b.healthz = "ok".to_owned());
    assert!(e.reload().expect("it is well"));
    assert_eq!(opened(&*t, &stored), (Bytes::from("object"), true));
    assert!(sealed(&*t).starts_with(b"k8s:enc:kms:v2:other:"));
    let text = String::from_utf8(telemetry.text()).expect("text");
    for part in [
        "automatic_reloads_total{apiserver_id_hash=\"sha256:",
        "status=\"failure\"} 1",
        "status=\"success\"} 1",
        "apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"OK\",transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:kms:v2:fake:\"} 1",
        "transformation_type=\"to_storage\",transformer_prefix=\"k8s:enc:kms:v2:other:\"} 1",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(
        text.matches("last_config_info{").count(),
        1,
        "only for the configuration in use"
    );
}

#[test]
fn unreachable_plugin_is_unhealthy_and_never_writes_plaintext() {
    let e = File::new()
        .load("  - kms: {apiVersion: v2, name: none, endpoint: 'unix:///nowhere/kms', timeout: 100ms}\n")
        .expect("not an error at load time");
    let why = e.health().expect_err("unhealthy").to_string();
    assert!(
        why.starts_with("kmsv2 Provider none is not healthy, error: failed to perform status"),
        "{why}"
    );
    assert!(e.transform("", "secrets").seal(KEY, Bytes::from("object")).is_err());
}
