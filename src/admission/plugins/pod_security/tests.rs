use super::policy::Version;
use super::*;
use crate::admission::testing;
use crate::json;

fn with_image(image: &str) -> Value {
    json!({"metadata": {}, "spec": {"containers": [{"name": "a", "image": image}]}})
}

fn policy(level: &str, warn: &str) -> Policy {
    let of = |level| LevelVersion {
        level: Level::parse(level).unwrap(),
        version: Version::Latest,
    };
    Policy {
        enforce: of(level),
        audit: of("baseline"),
        warn: of(warn),
    }
}

#[test]
fn a_rejected_pod_causes_no_warning() {
    let pod = json!({"spec": {"hostPID": true}});
    let verdict = evaluate_pod(
        &policy("baseline", "restricted"),
        &ErrorList::new(),
        Pod::of(&pod),
        true,
    );
    let text = "violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    assert_eq!(
        verdict.refusal.as_deref(),
        Some(&*text.replace("violate ", "violates "))
    );
    assert_eq!(verdict.warning, None);
    let annotations = [
        ("enforce-policy", "baseline:latest".into()),
        ("audit-violations", format!("would {text}")),
    ];
    assert_eq!(verdict.annotations, annotations);
}

#[test]
fn a_template_causes_only_a_warning() {
    let pod = json!({"spec": {"hostPID": true}});
    let verdict = evaluate_pod(
        &policy("restricted", "baseline"),
        &ErrorList::new(),
        Pod::of(&pod),
        false,
    );
    assert_eq!(verdict.refusal, None);
    assert_eq!(
        verdict.warning.as_deref(),
        Some("would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)")
    );
}

#[test]
fn only_significant_updates_are_evaluated() {
    let old = with_image("a");
    assert!(!is_significant(&with_image("a"), &old));
    assert!(is_significant(&with_image("b"), &old));
    let mut new = with_image("a");
    new.set(&["metadata", "labels", "x"], "y");
    assert!(!is_significant(&new, &old));
    new.set(&["spec", "ephemeralContainers"], json!([{"name": "e", "image": "i"}]));
    assert!(is_significant(&new, &old));
    assert!(!is_significant(&new, &new.clone()));
    // Ephemeral containers cannot be removed, so the update would be refused elsewhere.
    assert!(!is_significant(&old, &new));
}

#[test]
fn ineffective_labels_of_exempt_namespaces_are_listed() {
    let labels = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "privileged"}}});
    let label = |key: &str| labels.label(key);
    let (policy, _) = Policy::of(&label, Policy::PRIVILEGED);
    let ineffective = policy.ineffective_labels(&label, &Policy::PRIVILEGED);
    assert_eq!(ineffective.as_deref(), Some("enforce=baseline:latest"));
}

/// A cluster with these pods in a namespace `ns` with these labels.
fn cluster(labels: Value, pods: Vec<Value>) -> ObjectLookup {
    let namespace = json!({"metadata": {"name": "ns", "labels": (labels)}});
    testing::cluster(&[("", "namespaces", vec![namespace]), ("", "pods", pods)])
}

async fn ask(plugin: &PodSecurity, request: &Attributes, object: &Value) -> (Option<String>, Vec<String>) {
    let refusal = testing::ask(plugin, request, object).await.err();
    (refusal, request.warnings.take())
}

#[tokio::test]
async fn pods_are_rejected_and_templates_only_cause_warnings() {
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let plugin = PodSecurity::new(cluster(labels, Vec::new()), PodSecurityConfig::default());
    let pod = testing::pod(json!({"hostPID": true, "containers": []}));
    let create = testing::request(Operation::Create, "", "pods", "p");
    let text = "violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    let refused = Some(format!("pods \"p\" is forbidden: {text}"));
    assert_eq!(ask(&plugin, &create, &pod).await, (refused, Vec::new()));

    let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": (pod.clone())}});
    let create = testing::request(Operation::Create, "apps", "deployments", "d");
    let warned = vec![format!("would {}", text.replace("violates", "violate"))];
    assert_eq!(ask(&plugin, &create, &deployment).await, (None, warned));

    for ignored in ["pods/status", "pods/binding", "pods/exec"] {
        assert!(!plugin.handles(&testing::request(Operation::Create, "", ignored, "p")));
    }
    let update = testing::update("", "pods", pod.clone());
    assert_eq!(ask(&plugin, &update, &pod).await, (None, Vec::new()));
}

#[tokio::test]
async fn users_namespaces_and_runtime_classes_can_be_exempt() {
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let create = testing::request(Operation::Create, "", "pods", "p");
    let pod = testing::pod(json!({"hostPID": true, "runtimeClassName": "kata"}));
    for exempt in [
        json!({"usernames": ["admin"]}),
        json!({"namespaces": ["ns"]}),
        json!({"runtimeClasses": ["kata"]}),
    ] {
        let config = PodSecurityConfig::parse(&json!({"exemptions": (exempt)})).unwrap();
        let plugin = PodSecurity::new(cluster(labels.clone(), Vec::new()), config);
        assert_eq!(ask(&plugin, &create, &pod).await, (None, Vec::new()));
    }
}

#[tokio::test]
async fn label_changes_are_validated_and_checked_against_existing_pods() {
    let bad = testing::pod(json!({"hostPID": true}));
    let plugin = PodSecurity::new(cluster(json!({}), vec![bad]), PodSecurityConfig::default());
    let namespace = |level: &str| {
        let mut labels = json!({});
        labels.set(&["pod-security.kubernetes.io/enforce"], level);
        json!({"metadata": {"name": "ns", "labels": (labels)}})
    };
    let request = testing::update("", "namespaces", namespace("privileged"));
    let (refusal, _) = ask(&plugin, &request, &namespace("nope")).await;
    assert_eq!(
        refusal.as_deref(),
        Some(
            "Namespace \"ns\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"nope\": \
             must be one of privileged, baseline, restricted"
        )
    );
    let (refusal, warnings) = ask(&plugin, &request, &namespace("baseline")).await;
    assert_eq!(refusal, None);
    assert_eq!(
        warnings,
        [
            "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "p: host namespaces"
        ]
    );
    // Errors that existed before are tolerated.
    let request = testing::update("", "namespaces", namespace("nope"));
    assert_eq!(ask(&plugin, &request, &namespace("nope")).await, (None, Vec::new()));
    let create = testing::request(Operation::Create, "", "namespaces", "ns");
    assert!(ask(&plugin, &create, &namespace("nope")).await.0.is_some());
}
