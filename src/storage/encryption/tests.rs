//! Through files, as an operator would.

use super::*;
use crate::apimachinery::codec::protobuf::{Payload, Reader, put_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// With these providers for secrets.
    fn write(&self, providers: &str) {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
             providers:\n{providers}"
        );
        std::fs::write(self.path(), text).expect("written");
    }

    fn load(&self, providers: &str) -> Result<Encryption, String> {
        self.write(providers);
        Encryption::load(&self.path())
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
fn every_provider_reads_what_it_has_written_and_nothing_shows() {
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
        assert_eq!(
            t.seal(KEY, Bytes::from("a")).map(|s| s.len()),
            t.seal(KEY, Bytes::from("b")).map(|s| s.len())
        );
        assert!(t.open(KEY, Bytes::from(format!("k8s:enc:{kind}:v1:other:x"))).is_err());
        assert!(
            t.open(KEY, Bytes::from(format!("k8s:enc:{kind}:v1:one:short")))
                .is_err()
        );
    }
}

#[test]
fn what_gcm_has_written_reads_only_under_its_own_key() {
    let e = File::new().load(&keys("aesgcm", &[("one", 1)])).expect("it loads");
    let t = e.transform("", "secrets");
    let stored = t.seal(KEY, Bytes::from("object")).expect("sealed");
    assert!(t.open("/registry/secrets/ns/other", stored.clone()).is_err());
    let mut broken = stored.to_vec();
    *broken.last_mut().expect("a byte") ^= 1;
    assert!(t.open(KEY, broken.into()).is_err());
}

#[test]
fn a_rotated_key_still_reads_and_is_stale() {
    let file = File::new();
    let e = file.load(&keys("aescbc", &[("old", 1)])).expect("it loads");
    let t = e.transform("", "secrets");
    let stored = t.seal(KEY, Bytes::from("object")).expect("sealed");
    assert_eq!(e.reload(), Ok(false), "the file is the same");

    file.write(&keys("aescbc", &[("new", 2), ("old", 1)]));
    assert_eq!(e.reload(), Ok(true));
    assert_eq!(opened(&*t, &stored), (Bytes::from("object"), true));
    let anew = t.seal(KEY, Bytes::from("object")).expect("sealed");
    assert!(anew.starts_with(b"k8s:enc:aescbc:v1:new:"));
    assert!(!opened(&*t, &anew).1);

    file.write(&(keys("secretbox", &[("box", 3)]) + &keys("aescbc", &[("new", 2)]) + "  - identity: {}\n"));
    assert_eq!(e.reload(), Ok(true));
    assert!(opened(&*t, &anew).1, "another provider writes");
    assert!(opened(&*t, &Bytes::from("{}")).1, "it is stored in clear");
    let gone = t.open(KEY, stored).expect_err("its key is gone");
    assert_eq!(gone, "no matching key was found for the provided AES transformer");

    file.write("  - nonsense: {}\n");
    assert!(e.reload().is_err());
    assert!(opened(&*t, &anew).1, "the encryption stays as it was");
}

#[test]
fn the_identity_provider_refuses_encrypted_values_and_may_come_first() {
    let e = File::new()
        .load(&("  - identity: {}\n".to_owned() + &keys("aesgcm", &[("one", 1)])))
        .expect("it loads");
    let t = e.transform("", "secrets");
    assert_eq!(t.seal(KEY, Bytes::from("{}")), Ok(Bytes::from("{}")));
    assert!(!opened(&*t, &Bytes::from("{}")).1);
    let unnamed = e
        .transform("", "configmaps")
        .open(KEY, Bytes::from("k8s:enc:aesgcm:v1:one:x"));
    assert_eq!(
        unnamed,
        Err("identity transformer tried to read encrypted data".to_owned())
    );
}

#[test]
fn faults_of_the_file_are_told_with_their_line() {
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
            .ends_with("is empty")
    );
}

#[test]
fn resources_are_found_by_name_by_group_and_by_everything() {
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
        assert!(found.contains(why), "{found}");
    }
}

/// A plugin: "encrypts" by turning bytes around, under a key id that can be changed.
struct FakePlugin {
    dir: tempfile::TempDir,
    key: Arc<AtomicUsize>,
    decrypted: Arc<AtomicUsize>,
}

impl FakePlugin {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (key, decrypted) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("kms")).expect("a socket");
        listener.set_nonblocking(true).expect("it can be");
        let (k, d) = (key.clone(), decrypted.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).expect("a listener");
                while let Ok((stream, _)) = listener.accept().await {
                    let (k, d) = (k.clone(), d.clone());
                    tokio::spawn(async move {
                        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                        while let Some(Ok((request, mut respond))) = connection.accept().await {
                            let (k, d) = (k.clone(), d.clone());
                            tokio::spawn(async move {
                                let (head, mut body) = request.into_parts();
                                let mut data = Vec::new();
                                while let Some(Ok(chunk)) = body.data().await {
                                    data.extend_from_slice(&chunk);
                                }
                                let message = answer(head.uri.path(), &data[5..], &k, &d);
                                let mut frame = vec![0];
                                frame.extend((message.len() as u32).to_be_bytes());
                                frame.extend(message);
                                let head = http::Response::builder().header("content-type", "application/grpc");
                                let head = head.body(()).expect("a head");
                                let mut send = respond.send_response(head, false).expect("sent");
                                send.send_data(frame.into(), false).expect("sent");
                                let mut end = http::HeaderMap::new();
                                end.insert("grpc-status", http::HeaderValue::from_static("0"));
                                send.send_trailers(end).expect("sent");
                            });
                        }
                    });
                }
            });
        });
        Self { dir, key, decrypted }
    }

    fn provider(&self) -> String {
        let socket = self.dir.path().join("kms");
        format!(
            "  - kms: {{apiVersion: v2, name: fake, endpoint: 'unix://{}'}}\n",
            socket.display()
        )
    }
}

fn answer(path: &str, message: &[u8], key: &AtomicUsize, decrypted: &AtomicUsize) -> Vec<u8> {
    let id = format!("key-{}", key.load(Ordering::SeqCst));
    let mut first = Vec::new();
    let mut fields = Reader::new(message);
    while let Ok(Some((number, payload))) = fields.next() {
        if let (1, Payload::Bytes(b)) = (number, payload) {
            first = b.to_vec();
        }
    }
    first.reverse();
    let mut out = Vec::new();
    match path {
        "/v2.KeyManagementService/Status" => {
            put_bytes(&mut out, 1, b"v2");
            put_bytes(&mut out, 2, b"ok");
            put_bytes(&mut out, 3, id.as_bytes());
        }
        "/v2.KeyManagementService/Encrypt" => {
            put_bytes(&mut out, 1, &first);
            put_bytes(&mut out, 2, id.as_bytes());
            kms::put_annotations(&mut out, 3, &[("a.example.com".to_owned(), b"x".to_vec())].into());
        }
        _ => {
            decrypted.fetch_add(1, Ordering::SeqCst);
            put_bytes(&mut out, 1, &first);
        }
    }
    out
}

#[test]
fn a_kms_plugin_encrypts_one_seed_and_is_asked_once_for_that_of_another_process() {
    let plugin = FakePlugin::start();
    let (file, other) = (File::new(), File::new());
    let e = file.load(&plugin.provider()).expect("it loads");
    assert_eq!(e.health(), Ok(()));
    let t = e.transform("", "secrets");
    let object = Bytes::from("object");
    let stored = [t.seal(KEY, object.clone()), t.seal(KEY, object.clone())].map(|s| s.expect("sealed"));
    assert_ne!(stored[0], stored[1]);
    assert!(stored[0].starts_with(b"k8s:enc:kms:v2:fake:"));
    assert_eq!(opened(&*t, &stored[0]), (object.clone(), false));
    assert!(t.open("/registry/secrets/ns/other", stored[0].clone()).is_err());
    assert_eq!(plugin.decrypted.load(Ordering::SeqCst), 0, "one's own seed is known");

    plugin.key.store(2, Ordering::SeqCst);
    let restarted = other.load(&plugin.provider()).expect("it loads");
    let t = restarted.transform("", "secrets");
    for stored in &stored {
        assert_eq!(
            opened(&*t, stored),
            (object.clone(), true),
            "its key is not current any more"
        );
    }
    assert_eq!(plugin.decrypted.load(Ordering::SeqCst), 1);
    assert!(restarted.has_plugins());
}

#[test]
fn a_plugin_that_does_not_answer_is_unhealthy_and_nothing_is_written_in_clear() {
    let e = File::new()
        .load("  - kms: {apiVersion: v2, name: none, endpoint: 'unix:///nowhere/kms', timeout: 100ms}\n")
        .expect("it is no error yet");
    let why = e.health().expect_err("unhealthy");
    assert!(
        why.starts_with("kmsv2 Provider none is not healthy, error: failed to perform status"),
        "{why}"
    );
    assert!(e.transform("", "secrets").seal(KEY, Bytes::from("object")).is_err());
}
