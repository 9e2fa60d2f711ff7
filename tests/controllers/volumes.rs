//! Protection of volumes in use, and Jobs that have finished.

use super::support::wait_for;
use super::{exists, gateway};

const CLAIM: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

const USERS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  nodeName: node-1
  containers: [{name: c, image: i}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /disk}}
"#;

#[test]
fn volumes_in_use_are_not_deleted() {
    let (_dir, g) = gateway();
    wait_for("the default account", || exists(&g, &["sa", "default"]));
    g.kubectl_in(&["create", "-f", "-"], Some(CLAIM));
    g.kubectl_in(&["create", "-f", "-"], Some(USERS));
    let phase = |phase: &str| {
        let status = format!(r#"{{"status":{{"phase":"{phase}"}}}}"#);
        let patch = [
            "patch",
            "pv",
            "disk",
            "--subresource=status",
            "--type=merge",
            "-p",
            &status,
        ];
        g.kubectl(&patch);
    };
    phase("Bound");
    g.kubectl(&["delete", "pvc/data", "pv/disk", "--wait=false"]);
    // The loop decides in order: once another claim is gone, it has looked at this one.
    g.kubectl_in(
        &["create", "-f", "-"],
        Some(&CLAIM.replace("name: data", "name: other")),
    );
    g.kubectl(&["delete", "pvc/other", "--timeout=60s"]);
    assert!(exists(&g, &["pvc", "data"]), "a Pod uses it");
    assert!(exists(&g, &["pv", "disk"]), "it is bound");
    g.kubectl(&["delete", "pod", "p", "--force", "--grace-period=0"]);
    g.kubectl(&["wait", "--for=delete", "pvc/data", "--timeout=60s"]);
    phase("Released");
    g.kubectl(&["wait", "--for=delete", "pv/disk", "--timeout=60s"]);
}

const JOB: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  ttlSecondsAfterFinished: 0
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
"#;

#[test]
fn a_finished_job_is_deleted_after_its_ttl() {
    let (_dir, g) = gateway();
    g.kubectl_in(&["create", "-f", "-"], Some(JOB));
    g.kubectl_in(&["create", "-f", "-"], Some(&JOB.replace("name: j}", "name: runs}")));
    let failed = r#"{"status": {"startTime": "2020-01-01T00:00:00Z", "conditions": [
        {"type": "FailureTarget", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        {"type": "Failed", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}}"#;
    g.kubectl(&[
        "patch",
        "job",
        "j",
        "--subresource=status",
        "--type=merge",
        "-p",
        failed,
    ]);
    g.kubectl(&["wait", "--for=delete", "job/j", "--timeout=60s"]);
    assert!(exists(&g, &["job", "runs"]));
}
