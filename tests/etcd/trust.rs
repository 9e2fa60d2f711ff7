//! Gateways with generated keys on one etcd accept what the others signed.

use crate::etcd_process::{Etcd, is_there};
use crate::support::{Gateway, wait_for};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn start(dir: &Path, etcd: &Etcd, more: &[&str]) -> Gateway {
    let servers = format!("--etcd-servers={}", etcd.servers().join(","));
    let flags: Vec<&str> = [servers.as_str()].iter().chain(more).copied().collect();
    Gateway::start_with(dir, &flags)
}

/// A token of the ServiceAccount `caller`, signed by this gateway.
fn token(by: &Gateway) -> String {
    by.kubectl(&["create", "token", "caller"]).trim().to_owned()
}

/// The status of a request with this token.
fn status(at: &Gateway, token: &str) -> String {
    let out = Command::new("curl")
        .args([
            "-sS",
            "--max-time",
            "30",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--cacert",
        ])
        .arg(at.dir.join("data/pki/ca.crt"))
        .args(["-H", &format!("Authorization: Bearer {token}")])
        .arg(format!("{}/api/v1/namespaces/default/configmaps", at.url()))
        .output()
        .expect("curl is installed (make tools)");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Whether the administrator of one gateway, with its kubeconfig, reaches another one.
fn administers(of: &Gateway, at: &Gateway) -> bool {
    of.kubectl_try(&["--server", &at.url(), "auth", "can-i", "delete", "nodes"])
}

fn key_ids(at: &Gateway) -> BTreeSet<String> {
    let text = at.curl(&["/openid/v1/jwks"]).expect("it is served");
    let set: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let keys = set["keys"].as_array().expect("it has keys").clone();
    keys.iter().map(|k| k["kid"].to_string()).collect()
}

#[test]
fn credentials_of_one_gateway_are_accepted_by_all() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let a = start(dirs[0].path(), &etcd, &[]);
    a.kubectl(&["create", "serviceaccount", "caller"]);
    a.kubectl(&["create", "role", "reader", "--verb=list", "--resource=configmaps"]);
    a.kubectl(&[
        "create",
        "rolebinding",
        "caller",
        "--role=reader",
        "--serviceaccount=default:caller",
    ]);
    let example = a.with_example();

    let b = start(dirs[1].path(), &etcd, &[]);
    let (of_a, of_b) = (token(&a), token(&b));
    for at in [&a, &b] {
        // Not polled: a gateway publishes its keys before it signs anything.
        wait_for("the roles are seen", || status(at, &of_a) != "403");
        assert_eq!(status(at, &of_a), "200");
        wait_for("the keys of a gateway that starts are seen", || {
            status(at, &of_b) == "200"
        });
    }
    assert_eq!(key_ids(&a).len(), 2);
    assert_eq!(key_ids(&a), key_ids(&b));
    wait_for("its certificates and kubeconfig", || {
        administers(&a, &b) && administers(&b, &a)
    });

    // The backend trusts the front proxies of the published ConfigMap, so the caller is recognised behind
    // either gateway.
    let groups = a.kubectl(&[
        "get",
        "apiservices",
        "-o",
        "jsonpath={.items[?(@.spec.service)].metadata.name}",
    ]);
    let (version, group) = groups.split_once('.').expect("the example is registered");
    let path = format!("/apis/{group}/{version}");
    let objects = |at: &Gateway| {
        let text = at.curl(&[&path])?;
        let list: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let resource = list["resources"][0]["name"]
            .as_str()
            .expect("it has resources")
            .to_owned();
        at.curl(&[&format!("{path}/namespaces/default/{resource}")])
    };
    wait_for("the backend answers through both", || {
        objects(&a).is_ok() && objects(&b).is_ok()
    });
    example.signal("TERM");

    // A gateway that was stopped, and one in a new data directory.
    drop(b);
    let c = start(dirs[2].path(), &etcd, &[]);
    assert_eq!(status(&c, &of_a), "200");
    assert_eq!(status(&c, &of_b), "200", "its record outlives it");
    let of_c = token(&c);
    wait_for("the keys of the new one", || status(&a, &of_c) == "200");
    wait_for("its certificates and kubeconfig", || {
        administers(&a, &c) && administers(&c, &a)
    });
    assert_eq!(key_ids(&a).len(), 3);

    // The trust in stopped gateways ends when an operator deletes the records; running ones publish theirs
    // again.
    etcd.ctl(&["del", "--prefix", "/registry/torana/trust/"]);
    wait_for("the gateway that is gone is not trusted", || status(&a, &of_b) == "401");
    wait_for("those that run are", || {
        status(&a, &of_c) == "200" && status(&c, &of_a) == "200"
    });
    // The tokens may have been accepted from the cache.
    wait_for("their keys are published again", || key_ids(&a).len() == 2);
}

#[test]
fn trust_that_is_not_shared_is_announced_at_start() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let a = start(dirs[0].path(), &etcd, &[]);
    let b = start(dirs[1].path(), &etcd, &["--share-trust=false"]);
    let log = b.process.log();
    for named in ["service account tokens", "client certificates", "--share-trust is off"] {
        assert!(log.contains(named), "{named}: {log}");
    }
    assert!(!a.process.log().contains("--share-trust"), "{}", a.process.log());
    a.kubectl(&["create", "serviceaccount", "caller"]);
    let (of_a, of_b) = (token(&a), token(&b));
    assert_eq!(status(&a, &of_b), "401");
    assert_eq!(status(&b, &of_a), "401");
    assert!(!administers(&b, &a));
}
