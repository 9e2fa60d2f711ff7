//! Encryption by a KMS plugin: its health, key rotation, and a configuration that is reloaded.

use crate::etcd_process::{Etcd, is_there};
use crate::kms_server::Plugin;
use crate::support::{Gateway, wait_for};
use std::path::Path;

fn configure(file: &Path, providers: &str) {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
         providers:\n{providers}"
    );
    std::fs::write(file, text).unwrap();
}

#[test]
fn plugin_health_is_reported_and_data_survives_key_rotation() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::start(&dir.path().join("kms"));
    plugin.behave(|b| b.healthz = "not today".to_owned());
    let file = dir.path().join("encryption.yaml");
    configure(&file, &(plugin.provider("vault") + "  - identity: {}\n"));
    let servers = format!("--etcd-servers={}", etcd.servers().join(","));
    let encryption = format!("--encryption-provider-config={}", file.display());
    let start = || Gateway::start_with(dir.path(), &[&servers, &encryption]);
    // The gateway becomes ready once the plugin is healthy, and not before.
    let g = std::thread::scope(|s| {
        let starting = s.spawn(start);
        wait_for("the plugin is asked", || plugin.calls("Status") >= 2);
        assert!(!starting.is_finished(), "readiness waits for the plugin");
        plugin.behave(|b| b.healthz = "ok".to_owned());
        starting.join().unwrap()
    });
    g.curl(&["/healthz/kms-providers"]).unwrap();
    g.curl(&["/readyz/kms-providers"]).unwrap();
    assert!(g.curl(&["/livez/kms-providers"]).is_err(), "a restart would not help");
    g.kubectl(&["create", "secret", "generic", "s", "--from-literal=a=hidden"]);
    let stored = || etcd.ctl_bytes(&["get", "/registry/secrets/default/s", "--print-value-only"]);
    let sealed = stored();
    assert!(sealed.starts_with(b"k8s:enc:kms:v2:vault:") && !sealed.windows(6).any(|w| w == b"hidden"));

    // The key is rotated while the gateway is down. The new process decrypts with the old key and encrypts
    // with the new one.
    drop(g);
    plugin.behave(|b| b.key_id = "key-2".to_owned());
    let g = start();
    assert_eq!(
        g.kubectl(&["get", "secret", "s", "-o", "jsonpath={.data.a}"]),
        "aGlkZGVu"
    );
    assert!(plugin.calls("Decrypt") >= 1);
    let same = g.kubectl(&["get", "secret", "s", "-o", "json"]);
    g.kubectl_in(&["replace", "-f", "-"], Some(&same));
    let anew = stored();
    assert!(anew.starts_with(b"k8s:enc:kms:v2:vault:") && anew.windows(5).any(|w| w == b"key-2"));
    let metrics = g.curl(&["/metrics"]).unwrap();
    for part in [
        r#"apiserver_envelope_encryption_key_id_hash_total{key_id_hash="sha256:"#,
        r#"apiserver_storage_transformation_operations_total{resource="secrets",status="OK",transformation_type="from_storage",transformer_prefix="k8s:enc:kms:v2:vault:"}"#,
        "apiserver_storage_envelope_transformation_cache_misses_total 1",
        "apiserver_encryption_config_controller_last_config_info{",
    ] {
        assert!(metrics.contains(part), "{part}");
    }
}
