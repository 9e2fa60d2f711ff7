//! Requests of the loops are authorized, audited and counted like those of upstream's loops.

use super::exists;
use super::support::{Gateway, wait_for};

#[test]
fn the_loops_are_audited_and_counted_as_those_of_upstream() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n  verbs: [create, deletecollection]\n";
    std::fs::write(&policy, rules).expect("the policy is written");
    let flags = [
        "--controllers=*".to_owned(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let g = Gateway::start_with(dir.path(), &flags.each_ref().map(String::as_str));
    g.kubectl(&["create", "namespace", "seen"]);
    wait_for("the account is made", || exists(&g, &["sa", "default", "-n", "seen"]));
    g.kubectl(&["delete", "namespace", "seen", "--timeout=60s"]);

    let users = [
        ("create", "serviceaccounts", "service-account-controller"),
        ("create", "configmaps", "root-ca-cert-publisher"),
        ("deletecollection", "configmaps", "namespace-controller"),
    ];
    for (verb, resource, account) in users {
        let user = format!("\"username\":\"system:serviceaccount:kube-system:{account}\"");
        let of = format!("\"resource\":\"{resource}\",\"namespace\":\"seen\"");
        let verb = format!("\"verb\":\"{verb}\"");
        wait_for(account, || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            text.lines()
                .any(|l| [&user, &of, &verb].iter().all(|part| l.contains(part.as_str())))
        });
    }

    let metrics = g.kubectl(&["get", "--raw", "/metrics"]);
    let queues = [
        "namespace",
        "serviceaccount",
        "root_ca_cert_publisher",
        "ClusterRoleAggregator",
        "resourcequota_primary",
        "endpoint",
        "endpoint_slice",
    ];
    for queue in queues {
        for family in ["workqueue_adds_total", "workqueue_depth", "workqueue_retries_total"] {
            let series = format!("{family}{{name=\"{queue}\"}}");
            assert!(metrics.contains(&series), "{series}");
        }
    }
}
