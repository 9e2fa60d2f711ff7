//! Values in etcd written by others: in other versions and encodings, without defaults, or not objects at
//! all.

use crate::etcd_process::{Etcd, is_there};
use crate::support::{Gateway, wait_for};
use torana::api::protobuf;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;

fn gateway(etcd: &Etcd, dir: &std::path::Path) -> Gateway {
    Gateway::start_with(dir, &[&format!("--etcd-servers={}", etcd.servers().join(","))])
}

fn read(g: &Gateway, path: &str) -> Value {
    let text = g.curl(&[path]).unwrap_or_else(|e| panic!("{path}: {e}"));
    json::decode(text.as_bytes()).unwrap()
}

fn raw(etcd: &Etcd, key: &str) -> Vec<u8> {
    etcd.ctl_bytes(&["get", key, "--print-value-only"])
}

/// Encodes an object in protobuf, as kube-apiserver stores it.
fn wire(object: &Value) -> Vec<u8> {
    protobuf::encode(object).expect("a built-in kind")
}

fn address() -> Value {
    json!({"apiVersion": "networking.k8s.io/v1beta1", "kind": "IPAddress",
        "metadata": {"name": "10.9.9.9", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "a"}}})
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "uid": "u-2", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

fn is_defaulted(d: &Value) {
    assert_eq!(d.at(&["spec", "replicas"]).as_i64(), Some(1), "{d:?}");
    assert_eq!(d.str_at(&["spec", "strategy", "type"]), "RollingUpdate");
    assert_eq!(d.at(&["spec", "revisionHistoryLimit"]).as_i64(), Some(10));
    let pod = d.at(&["spec", "template", "spec"]);
    assert_eq!(
        (pod.str_at(&["restartPolicy"]), pod.str_at(&["dnsPolicy"])),
        ("Always", "ClusterFirst")
    );
    assert_eq!(
        pod.at(&["containers"]).items()[0].str_at(&["terminationMessagePath"]),
        "/dev/termination-log"
    );
}

#[test]
fn foreign_values_are_served_converted_and_defaulted() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    // Some values exist before the gateway starts; others are added while it watches.
    etcd.put_bytes("/registry/ipaddresses/10.9.9.9", &wire(&address()));
    etcd.put_bytes("/registry/deployments/default/early", &wire(&deployment("early")));
    let dir = tempfile::tempdir().unwrap();
    let g = gateway(&etcd, dir.path());
    etcd.put_bytes("/registry/deployments/default/late", &json::to_vec(&deployment("late")));
    let scaler = br#"{"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "namespace": "default", "uid": "u-3"},
        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}"#;
    etcd.put_bytes("/registry/horizontalpodautoscalers/default/h", scaler);
    let claim = br#"{"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim",
        "metadata": {"name": "r", "namespace": "default", "uid": "u-4"},
        "spec": {"devices": {"requests": [{"name": "one", "deviceClassName": "gpu"}]}}}"#;
    etcd.put_bytes("/registry/resourceclaims/default/r", claim);
    let yaml = b"apiVersion: v1\nkind: Service\nmetadata: {name: yam, namespace: default, uid: u-5}\nspec: {ports: [{port: 80}]}\n";
    etcd.put_bytes("/registry/services/specs/default/yam", yaml);

    let found = read(&g, "/apis/networking.k8s.io/v1/ipaddresses/10.9.9.9");
    assert_eq!(found.str_at(&["apiVersion"]), "networking.k8s.io/v1");
    assert_eq!(found.str_at(&["spec", "parentRef", "name"]), "a");
    for name in ["early", "late"] {
        let path = format!("/apis/apps/v1/namespaces/default/deployments/{name}");
        is_defaulted(&read(&g, &path));
        let shown = g.kubectl(&["get", "deployment", name, "-o", "jsonpath={.spec.replicas}"]);
        assert_eq!(shown, "1");
    }
    let all = read(&g, "/apis/apps/v1/deployments");
    assert_eq!(all.at(&["items"]).items().len(), 2);
    all.at(&["items"]).items().iter().for_each(is_defaulted);
    // The cache is filled by the watch, and a read at any revision shows its content.
    let any = "/apis/apps/v1/namespaces/default/deployments?resourceVersion=0";
    wait_for("the cache has both", || read(&g, any).at(&["items"]).items().len() == 2);
    read(&g, any).at(&["items"]).items().iter().for_each(is_defaulted);

    let h = read(&g, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/h");
    let metric = &h.at(&["spec", "metrics"]).items()[0];
    let target = metric.at(&["resource", "target", "averageUtilization"]);
    assert_eq!(target.as_i64(), Some(50), "{h:?}");
    assert_eq!(h.at(&["spec", "minReplicas"]).as_i64(), Some(1));
    let h = read(&g, "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h");
    assert_eq!(h.at(&["spec", "targetCPUUtilizationPercentage"]).as_i64(), Some(50));
    let r = read(&g, "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/r");
    let request = &r.at(&["spec", "devices", "requests"]).items()[0];
    assert_eq!(request.str_at(&["exactly", "deviceClassName"]), "gpu");
    assert_eq!(
        request.str_at(&["exactly", "allocationMode"]),
        "ExactCount",
        "with its default"
    );
    let y = read(&g, "/api/v1/namespaces/default/services/yam");
    assert_eq!(y.str_at(&["spec", "sessionAffinity"]), "None");
    assert_eq!(y.at(&["spec", "ports"]).items()[0].str_at(&["protocol"]), "TCP");

    // An update that changes nothing rewrites the stored value in the current form, once.
    let key = "/registry/deployments/default/late";
    assert!(raw(&etcd, key).starts_with(b"{"));
    let path = "/apis/apps/v1/namespaces/default/deployments/late";
    let replace = |object: &Value| {
        let body = String::from_utf8(json::to_vec(object)).unwrap();
        let put = g.curl(&["-X", "PUT", "-H", "Content-Type: application/json", "-d", &body, path]);
        json::decode(put.unwrap().as_bytes()).unwrap()
    };
    let version = |v: &Value| v.str_at(&["metadata", "resourceVersion"]).to_owned();
    let before = read(&g, path);
    let once = replace(&before);
    assert_ne!(version(&before), version(&once));
    assert!(raw(&etcd, key).starts_with(b"k8s\0"));
    assert_eq!(version(&replace(&once)), version(&once));
}

#[test]
fn an_invalid_value_fails_only_its_resource_until_removed() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().unwrap();
    let g = gateway(&etcd, dir.path());
    g.kubectl(&["create", "configmap", "good", "--from-literal=a=b"]);
    let key = "/registry/configmaps/default/bad";
    etcd.put_bytes(key, b"k8s\0 this is no object");
    let maps = "/api/v1/namespaces/default/configmaps";
    let named = format!("unable to decode key \\\"{key}\\\"");
    // As upstream: a page is read from etcd and fails with the reason; the cache is unavailable until the
    // value can be read.
    wait_for("a page of the list fails", || {
        let response = g.curl(&[&format!("{maps}?limit=500")]);
        response.is_err_and(|error| error.contains(r#""code": 500"#) && error.contains(&named))
    });
    wait_for("a list without a limit fails", || {
        let response = g.curl(&[&format!("{maps}?resourceVersion=0")]);
        response.is_err_and(|error| {
            error.contains(r#""code": 429"#)
                && error.contains("storage is (re)initializing: ")
                && error.contains(&named)
        })
    });
    let error = g.curl(&[&format!("{maps}/bad")]).unwrap_err();
    assert!(error.contains(r#""code": 500"#) && error.contains(&named), "{error}");
    let error = g.kubectl_fails(&["delete", "configmap", "bad"], None);
    assert!(
        error.contains("unable to decode"),
        "as upstream, it cannot be deleted either: {error}"
    );
    g.curl(&[&format!("{maps}/good")]).expect("others are read from etcd");
    g.curl(&["/api/v1/namespaces/default/secrets"])
        .expect("other resources are served");
    let metrics = g.curl(&["/metrics"]).unwrap();
    assert!(metrics.contains(r#"apiserver_storage_decode_errors_total{group="",resource="configmaps"}"#));
    assert!(metrics.contains(r#"apiserver_resource_objects{group="",resource="configmaps"}"#));

    etcd.ctl(&["del", key]);
    wait_for("it heals", || g.curl(&[&format!("{maps}?resourceVersion=0")]).is_ok());
    // A value with an unknown version is treated like one that is not an object.
    etcd.put_bytes(
        key,
        br#"{"apiVersion": "v9", "kind": "ConfigMap", "metadata": {"name": "bad"}}"#,
    );
    wait_for("a page of the list fails", || {
        let response = g.curl(&[&format!("{maps}?limit=500")]);
        response.is_err_and(|error| error.contains(r#"no kind \"ConfigMap\" is registered for version \"v9\""#))
    });
}
