//! The memory use of the watch cache, measured by a counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use torana::apimachinery::value::{Str, Value};
use torana::json;
use torana::testing::storage::Bounds;
use torana::testing::storage::{Budget, Draft, Entry, Revision};
use torana::testing::storage::{Cacher, CacherConfig, Initial, Progress, Snapshot};

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

/// An allocator that counts the bytes allocated and not yet freed, per thread.
struct Counting;

fn count(bytes: isize) {
    // Thread-local storage is gone while a thread exits, so its last calls are not counted.
    let _ = BYTES.try_with(|n| n.set(n.get() + bytes));
}

#[allow(unsafe_code, reason = "a global allocator cannot be implemented without it")]
// SAFETY: forwards each call unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A typical running pod, with managed fields of a controller and a kubelet.
fn pod(i: usize) -> Value {
    let name = format!("web-7c9d8f6b5-{i:05}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "production", "generateName": "web-7c9d8f6b5-",
            "uid": "5f0f2c0e-0000-4000-8000-000000000000", "creationTimestamp": "2026-11-20T10:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "7c9d8f6b5"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7c9d8f6b5",
                "uid": "5f0f2c0e-1111-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2026-11-20T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}},
        "f:ownerReferences": {".": {}, "k:{\"uid\":\"5f0f2c0e-1111-4000-8000-000000000000\"}": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
        "f:ports": {".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
        "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}}}},
        "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}}}}]},
        "spec": {"nodeName": format!("node-{:04}", i % 1000), "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "serviceAccountName": "default", "serviceAccount": "default", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "enableServiceLinks": true, "priority": 0,
            "containers": [{"name": "web", "image": "registry.example.com/shop/web:1.2.3", "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "kube-api-access-x", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}]},
        "status": {"phase": "Running", "hostIP": "10.0.0.1", "podIP": format!("10.1.{}.{}", i / 250 % 250, i % 250),
            "qosClass": "Burstable", "startTime": "2026-11-20T10:00:01Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T10:00:05Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-20T10:00:01Z"}]},
    })
}

/// The bytes stored, and the bytes that the cache takes for them.
fn measure(pods: usize) -> (usize, usize) {
    let before = BYTES.get();
    let mut stored = 0;
    let entries: Vec<Arc<Entry>> = (0..pods)
        .map(|i| {
            let pod = pod(i);
            let field = |path: &[&str]| Str::from(pod.str_at(path));
            let fields = vec![
                ("spec.nodeName".into(), field(&["spec", "nodeName"])),
                ("spec.restartPolicy".into(), field(&["spec", "restartPolicy"])),
                ("spec.schedulerName".into(), field(&["spec", "schedulerName"])),
                ("spec.serviceAccountName".into(), field(&["spec", "serviceAccountName"])),
                ("spec.hostNetwork".into(), "false".into()),
                ("status.phase".into(), field(&["status", "phase"])),
                ("status.podIP".into(), field(&["status", "podIP"])),
                ("status.nominatedNodeName".into(), "".into()),
            ];
            let key = format!("production/{}", pod.str_at(&["metadata", "name"]));
            let draft = Draft::new(&pod, fields);
            stored += "/registry/pods/".len() + key.len() + draft.json.len();
            Arc::new(draft.into_entry(&key, Revision(i as u64 + 2)))
        })
        .collect();
    let revision = Revision(pods as u64 + 1);
    let initial = Initial {
        state: Snapshot::new(entries, revision),
        base: revision,
        events: Vec::new(),
    };
    let progress = Arc::new(Progress::new(revision, Duration::ZERO));
    let cacher = Cacher::new(
        progress,
        initial,
        CacherConfig::new(Bounds::default(), Budget::unlimited()),
    );
    let taken = (BYTES.get() - before).cast_unsigned();
    let said = cacher.stats().objects_bytes as usize;
    assert!(
        taken.abs_diff(said) < taken / 12,
        "{taken} bytes are allocated, {said} are reported"
    );
    (stored, taken)
}

#[test]
fn the_cache_takes_at_most_30_percent_more_than_the_stored_bytes() {
    let (stored, taken) = measure(4000);
    println!("{} bytes a pod stored, {} in the cache", stored / 4000, taken / 4000);
    assert!(taken * 10 <= stored * 13, "{taken} bytes for {stored}");
}

#[test]
#[ignore = "prints figures"]
fn memory_of_a_hundred_thousand_pods() {
    let (stored, taken) = measure(100_000);
    println!(
        "{stored} bytes stored, {taken} in the cache: {:.2}",
        taken as f64 / stored as f64
    );
    assert!(taken * 10 <= stored * 13);
}
