use super::*;
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
fn a_refused_pod_is_not_warned_about_too() {
    let pod = json!({"spec": {"hostPID": true}});
    let verdict = judge(&policy("baseline", "restricted"), &Vec::new(), Pod::of(&pod), true);
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
fn a_template_is_only_warned_about() {
    let pod = json!({"spec": {"hostPID": true}});
    let verdict = judge(&policy("restricted", "baseline"), &Vec::new(), Pod::of(&pod), false);
    assert_eq!(verdict.refusal, None);
    assert_eq!(
        verdict.warning.as_deref(),
        Some("would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)")
    );
}

#[test]
fn only_updates_that_change_what_runs_are_judged() {
    let old = with_image("a");
    assert!(!is_significant(&with_image("a"), &old));
    assert!(is_significant(&with_image("b"), &old));
    let mut new = with_image("a");
    new.set(&["metadata", "labels", "x"], "y");
    assert!(!is_significant(&new, &old));
    new.set(&["spec", "ephemeralContainers"], json!([{"name": "e", "image": "i"}]));
    assert!(is_significant(&new, &old));
    assert!(!is_significant(&new, &new.clone()));
    assert!(!is_significant(&old, &new));
}

#[test]
fn policies_of_exempt_namespaces_are_said_to_be_in_vain() {
    let labels = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "privileged"}}});
    let label = |key: &str| labels.label(key);
    let (policy, _) = Policy::of(&label, Policy::PRIVILEGED);
    let said = policy.in_vain(&label, &Policy::PRIVILEGED);
    assert_eq!(said.as_deref(), Some("enforce=baseline:latest"));
}
