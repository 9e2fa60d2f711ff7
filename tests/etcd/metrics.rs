//! Storage metrics under upstream's names.

use crate::etcd_process::{Etcd, is_there};
use crate::support::{Gateway, wait_for};

#[test]
fn etcd_requests_are_counted_by_operation_and_resource() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().unwrap();
    let servers = format!("--etcd-servers={}", etcd.servers().join(","));
    let overrides = format!("--etcd-servers-overrides=/events#{}", etcd.servers()[0]);
    let g = Gateway::start_with(
        dir.path(),
        &[&servers, &overrides, "--etcd-count-metric-poll-period=10ms"],
    );
    g.kubectl(&["create", "configmap", "a", "--from-literal=a=b"]);
    g.kubectl(&["annotate", "configmap", "a", "x=y"]);
    g.kubectl(&["delete", "configmap", "a"]);
    g.kubectl(&["create", "configmap", "b"]);
    let event =
        r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}"#;
    g.kubectl_in(&["create", "-f", "-"], Some(event));
    let read = || g.curl(&["/metrics"]).unwrap();
    let of = |operation: &str| format!(r#"{{group="",operation="{operation}",resource="configmaps"}}"#);
    for operation in ["get", "list", "create", "update", "delete"] {
        let (total, took) = (of(operation), of(operation).replace('}', ""));
        wait_for("it is counted", || {
            read().contains(&format!("etcd_requests_total{total}"))
        });
        assert!(read().contains(&format!("etcd_request_duration_seconds_count{took}")));
    }
    let of = r#"{group="",resource="configmaps"}"#;
    for family in [
        "apiserver_storage_events_received_total",
        "apiserver_resource_size_estimate_bytes",
    ] {
        wait_for(family, || read().contains(&format!("{family}{of}")));
    }
    for status in ["success", "failure", "error"] {
        let checks = format!(
            r#"apiserver_storage_consistency_checks_total{{group="",resource="configmaps",status="{status}"}}"#
        );
        wait_for(&checks, || read().contains(&checks));
    }
    let maps = r#"apiserver_resource_objects{group="",resource="configmaps"}"#;
    let count = |text: &str| {
        let line = text.lines().find(|l| l.starts_with(maps));
        line.and_then(|l| l.rsplit(' ').next()?.parse::<i64>().ok())
    };
    wait_for("the objects are counted", || count(&read()).is_some_and(|n| n >= 1));
    for place in ["etcd-0", "etcd-1"] {
        let size = format!(r#"apiserver_storage_size_bytes{{storage_cluster_id="{place}"}}"#);
        wait_for(&size, || read().contains(&size));
    }
    assert!(
        !read().contains("apiserver_storage_transformation"),
        "nothing is encrypted"
    );
    for check in ["etcd-override-0", "etcd"] {
        g.curl(&[&format!("/healthz/{check}")]).unwrap();
    }
    for check in ["etcd-override-readiness-0", "etcd-readiness"] {
        g.curl(&[&format!("/readyz/{check}")]).unwrap();
    }
}

#[test]
fn disabled_measurements_are_not_made() {
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().unwrap();
    let servers = format!("--etcd-servers={}", etcd.servers().join(","));
    let flags = [
        &*servers,
        "--etcd-count-metric-poll-period=0",
        "--etcd-db-metric-poll-interval=0",
    ];
    let g = Gateway::start_with(dir.path(), &flags);
    let text = g.curl(&["/metrics"]).unwrap();
    for family in [
        "apiserver_storage_objects{",
        "apiserver_resource_objects{",
        "apiserver_storage_size_bytes{",
    ] {
        assert!(!text.contains(family), "{family}");
    }
}

#[test]
fn the_embedded_store_uses_the_same_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let g = Gateway::start(dir.path());
    g.kubectl(&["create", "configmap", "a"]);
    let text = g.curl(&["/metrics"]).unwrap();
    for part in [
        r#"etcd_requests_total{group="",operation="create",resource="configmaps"}"#,
        r#"apiserver_resource_objects{group="",resource="namespaces"} 4"#,
        r#"apiserver_storage_objects{resource="namespaces"} 4"#,
        r#"apiserver_resource_size_estimate_bytes{group="",resource="namespaces"}"#,
        r#"apiserver_storage_size_bytes{storage_cluster_id="embedded"}"#,
    ] {
        assert!(text.contains(part), "{part}");
    }
}
