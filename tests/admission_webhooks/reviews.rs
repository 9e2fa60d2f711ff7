//! The content of reviews for each kind of write.

use crate::world::{CONFIGMAPS, ConfigurationKind, World, configmap, with};
use torana::apimachinery::value::Value;
use torana::json;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

impl World {
    /// Creates a pod and a deployment, and then a webhook that sees all that is done to them and to
    /// configmaps.
    async fn observed(&self, pod: &str, version: &str) {
        let containers = json!([{"name": "main", "image": "registry.invalid/main:1"}]);
        let pod = json!({"metadata": {"name": pod}, "spec": {"containers": (containers.clone())}});
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}});
        let deployment = json!({"metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template}});
        for (path, object) in [(PODS, pod), (DEPLOYMENTS, deployment)] {
            let made = self.create(path, &object).await;
            assert_eq!(made.code, 201, "{made:?}");
        }
        let rules = json!([
            {"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["deployments/scale"]},
            {"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps", "pods/*"]}]);
        let hook = with(self.hook("sees.example.com", "allow"), "rules", rules);
        let hook = with(hook, "admissionReviewVersions", Value::from(vec![Value::from(version)]));
        self.configure(ConfigurationKind::Validating, "sees", vec![hook]).await;
    }
}

/// A summary of a review: operation, resource, kind, name, and which objects it contains.
fn summary(review: &Value) -> String {
    let request = review.get("request");
    let resource = request.str_at(&["resource", "resource"]);
    let resource = match request.str_at(&["subResource"]) {
        "" => resource.to_owned(),
        sub => format!("{resource}/{sub}"),
    };
    let shown = |key: &str| match request.get(key) {
        Value::Null => "-",
        object => object.str_at(&["kind"]),
    };
    format!(
        "{} {resource} {} {:?} {}>{} {}{}",
        request.str_at(&["operation"]),
        request.str_at(&["kind", "kind"]),
        request.str_at(&["name"]),
        shown("oldObject"),
        shown("object"),
        shown("options"),
        if request.get("dryRun") == &Value::from(true) {
            " dry"
        } else {
            ""
        },
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_describe_the_operation_and_its_object() {
    let w = World::start_with(|_| vec!["--disable-admission-plugins=ServiceAccount".to_owned()]).await;
    for version in ["v1", "v1beta1"] {
        // The one that was evicted stays for its grace period.
        let pod = format!("p-{version}");
        w.observed(&pod, version).await;
        let before = w.server.seen().len();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": (pod.as_str())}});
        let binding = json!({"metadata": {"name": (pod.as_str())}, "target": {"kind": "Node", "name": "n"}});
        let replicas = json!({"spec": {"replicas": 2}});
        let dry = format!("{CONFIGMAPS}?dryRun=All");
        for (method, path, body, code) in [
            ("POST", CONFIGMAPS, configmap("a"), 201),
            ("POST", &*dry, configmap("b"), 201),
            ("PATCH", &*format!("{CONFIGMAPS}/a"), json!({"data": {"k": "w"}}), 200),
            ("DELETE", &*format!("{CONFIGMAPS}/a"), Value::Null, 200),
            ("POST", CONFIGMAPS, configmap("c"), 201),
            (
                "DELETE",
                &*format!("{CONFIGMAPS}?fieldSelector=metadata.name=c"),
                Value::Null,
                200,
            ),
            ("PATCH", &*format!("{DEPLOYMENTS}/d/scale"), replicas, 200),
            // There is no kubelet to connect to.
            (
                "POST",
                &*format!("{PODS}/{pod}/exec?command=ls&stdout=true"),
                Value::Null,
                400,
            ),
            ("POST", &*format!("{PODS}/{pod}/binding"), binding, 201),
            ("POST", &*format!("{PODS}/{pod}/eviction"), eviction, 201),
        ] {
            let answer = w.send(method, path, &body).await;
            assert_eq!(answer.code, code, "{method} {path}: {answer:?}");
        }
        let seen = w.server.seen().split_off(before);
        let summaries = seen.iter().map(|s| summary(&s.review).replace(&pod, "p"));
        let summaries: Vec<String> = summaries.collect();
        assert_eq!(
            summaries,
            [
                "CREATE configmaps ConfigMap \"a\" ->ConfigMap CreateOptions",
                "CREATE configmaps ConfigMap \"b\" ->ConfigMap CreateOptions dry",
                "UPDATE configmaps ConfigMap \"a\" ConfigMap>ConfigMap UpdateOptions",
                "DELETE configmaps ConfigMap \"a\" ConfigMap>- DeleteOptions",
                "CREATE configmaps ConfigMap \"c\" ->ConfigMap CreateOptions",
                // Upstream names no object of a collection.
                "DELETE configmaps ConfigMap \"\" ConfigMap>- DeleteOptions",
                "UPDATE deployments/scale Scale \"d\" Scale>Scale UpdateOptions",
                "CONNECT pods/exec PodExecOptions \"p\" ->PodExecOptions -",
                "CREATE pods/binding Binding \"p\" ->Binding CreateOptions",
                // The deletion that follows is not reviewed, as upstream.
                "CREATE pods/eviction Eviction \"p\" ->Eviction CreateOptions",
            ],
            "{version}"
        );
        for review in seen.iter().map(|s| &s.review) {
            let request = review.get("request");
            assert_eq!(review.str_at(&["apiVersion"]), format!("admission.k8s.io/{version}"));
            assert_eq!(request.str_at(&["userInfo", "username"]), "admin");
            assert_eq!(request.str_at(&["namespace"]), "default");
            assert!(!request.str_at(&["uid"]).is_empty());
            for key in ["kind", "resource"] {
                let original = request.get(&format!("request{}{}", key[..1].to_uppercase(), &key[1..]));
                assert_eq!(request.get(key), original, "{review:?}");
            }
        }
        w.remove(ConfigurationKind::Validating, "sees").await;
        let gone = w.send("DELETE", &format!("{DEPLOYMENTS}/d"), &Value::Null).await;
        assert_eq!(gone.code, 200, "{gone:?}");
    }
    assert!(w.gateway.shut_down().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_breaks_down_the_latency_of_a_slow_write() {
    let w = World::start_with(|dir| {
        let policy = dir.join("policy.yaml");
        let rules =
            "rules:\n- level: Metadata\n  verbs: [create]\n  resources:\n  - {group: '', resources: [configmaps]}\n";
        std::fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")).unwrap();
        let log = dir.join("audit.log");
        vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
            "--audit-log-mode=blocking".to_owned(),
        ]
    })
    .await;
    let hangs = with(w.hook("hangs.example.com", "hang"), "failurePolicy", "Ignore");
    w.configure(ConfigurationKind::Validating, "hangs", vec![hangs]).await;
    let patches = w.hook("patches.example.com", "append/x");
    w.configure(ConfigurationKind::Mutating, "patches", vec![patches]).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let made = w.send_accepting(table, "POST", CONFIGMAPS, &configmap("slow")).await;
    assert_eq!(made.code, 201, "{made:?}");
    let log = std::fs::read_to_string(w.dir.path().join("audit.log")).unwrap();
    let last = log.lines().rfind(|line| line.contains("\"ResponseComplete\"")).unwrap();
    let event = torana::apimachinery::codec::json::decode(last.as_bytes()).unwrap();
    let annotations = event.get("annotations").as_object().unwrap().iter();
    let latencies = annotations.filter_map(|(key, _)| key.strip_prefix("apiserver.latency.k8s.io/"));
    let mut latencies: Vec<&str> = latencies.collect();
    latencies.sort_unstable();
    assert_eq!(
        latencies,
        [
            "authentication",
            "authorization",
            "etcd",
            "mutating-webhook",
            "total",
            "transform-response-object",
            "validating-webhook"
        ]
    );
    assert!(w.gateway.shut_down().await);
}
