//! The cost of processing one object in a write, without sockets or a store: decode, default, validate,
//! encode; patch; apply; a table. Run with `cargo bench --bench objects`; part of `make bench`. Times are the
//! minimum over many batches, because noise only adds.

use http_body::Body as _;
use std::hint::black_box;
use std::time::{Duration, Instant};
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;
use torana::testing::objects::{Listed, Objects, entry};
use torana::testing::storage::embedded::{Engine, Options};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A pod as created by a Deployment: two containers, probes, volumes, environment variables.
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-5d9c7b8f6d-x2x4q","namespace":"shop",
"labels":{"app":"web","pod-template-hash":"5d9c7b8f6d","tier":"front"},"annotations":{"prometheus.io/scrape":"true"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d9c7b8f6d","uid":"0c4f8c4e-31d9-4c21-8a56-3e1e9f2a9b11","controller":true,"blockOwnerDeletion":true}]},
"spec":{"serviceAccountName":"web","nodeSelector":{"kubernetes.io/os":"linux"},"tolerations":[{"key":"dedicated","operator":"Equal","value":"web","effect":"NoSchedule"}],
"initContainers":[{"name":"migrate","image":"registry.example/web:1.2.3","args":["migrate","--wait"],"volumeMounts":[{"name":"config","mountPath":"/etc/web"}]}],
"containers":[{"name":"web","image":"registry.example/web:1.2.3","command":["/web"],"ports":[{"name":"http","containerPort":8080},{"name":"metrics","containerPort":9090}],
"env":[{"name":"LEVEL","value":"info"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"name":"db","key":"password"}}}],
"resources":{"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"cpu":"1","memory":"512Mi"}},
"livenessProbe":{"httpGet":{"path":"/live","port":"http"}},"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":5},
"securityContext":{"runAsNonRoot":true,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}},
"volumeMounts":[{"name":"config","mountPath":"/etc/web","readOnly":true},{"name":"scratch","mountPath":"/tmp"}]},
{"name":"proxy","image":"registry.example/proxy:9","ports":[{"containerPort":15001}],"resources":{"requests":{"cpu":"50m","memory":"64Mi"}}}],
"volumes":[{"name":"config","configMap":{"name":"web"}},{"name":"scratch","emptyDir":{}}]}}"#;

const STRATEGIC: &str = r#"{"metadata":{"annotations":{"note":"x"}},"spec":{"containers":[{"name":"web","image":"registry.example/web:1.2.4"}],
"tolerations":[{"key":"dedicated","operator":"Equal","value":"web","effect":"NoSchedule"},{"key":"spot","operator":"Exists"}]}}"#;

fn applied(manager: usize) -> Value {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web-5d9c7b8f6d-x2x4q","namespace":"shop","labels":{{"owner-{manager}":"yes"}}}},
"spec":{{"containers":[{{"name":"side-{manager}","image":"registry.example/side:{manager}","env":[{{"name":"N","value":"{manager}"}}]}}]}}}}"#
    );
    json::decode(text.as_bytes()).expect("JSON")
}

/// The minimum time of one call.
fn measure(name: &str, goal: Duration, mut work: impl FnMut()) {
    // Slow work runs in batches of one, because a long batch would be interrupted by the scheduler.
    let since = Instant::now();
    work();
    let batch = if since.elapsed() < Duration::from_millis(1) {
        20
    } else {
        1
    };
    let mut best = Duration::MAX;
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        let since = Instant::now();
        for _ in 0..batch {
            work();
        }
        best = best.min(since.elapsed() / batch);
    }
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    println!("{name:48} {:10.1} µs   goal {:8.1} µs", us(best), us(goal));
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(dir.path(), Options::default()).expect("a store");
    let pods = Objects::of(&engine, "", "pods");
    let micros = Duration::from_micros;

    let made = || {
        let mut pod = json::decode(POD.as_bytes()).expect("JSON");
        pods.prepare(&mut pod).expect("a pod");
        pod
    };
    let errors = pods.validate(&made());
    assert!(errors.is_empty(), "{errors:?}");
    measure("pod: decode, default, validate, encode", micros(40), || {
        let pod = made();
        black_box(pods.validate(&pod));
        black_box(json::to_vec(&pod));
    });

    let pod = made();
    let patch = json::decode(STRATEGIC.as_bytes()).expect("JSON");
    measure("pod: strategic merge patch", micros(30), || {
        black_box(pods.strategic_merge(&pod, &patch).expect("applies"));
    });

    let mut owned = pod.clone();
    pods.manage(&mut owned, "maker");
    for (i, manager) in ["one", "two", "three"].into_iter().enumerate() {
        owned = pods.apply(&owned, applied(i), manager).expect("no conflict");
    }
    let mut again = applied(2);
    again.set(&["metadata", "labels", "owner-2"], "changed");
    measure("pod: server-side apply, three appliers", micros(150), || {
        black_box(pods.apply(&owned, again.clone(), "three").expect("no conflict"));
    });

    let entry = entry(&owned, "shop/web-5d9c7b8f6d-x2x4q");
    println!("a pod with managed fields has {} bytes", entry.json().len());
    let answer = |listed| {
        let response = pods.list(&entry, 500, listed);
        let mut body = response.expect("an answer").into_body();
        let mut waiting = std::task::Context::from_waker(std::task::Waker::noop());
        while let std::task::Poll::Ready(Some(frame)) = std::pin::Pin::new(&mut body).poll_frame(&mut waiting) {
            black_box(frame.expect("bytes"));
        }
    };
    measure("table of 500 pods", micros(3000), || answer(Listed::Table));
    measure("metadata of 500 pods", micros(3000), || answer(Listed::Metadata));
    engine.shutdown();
}
