//! Warnings about existing pods when a namespace's enforce level is raised: which of them would no longer be
//! admitted.

use super::checks::{reasons, violations};
use super::config::PodSecurityConfig;
use super::pod::Pod;
use super::policy::LevelVersion;
use crate::apimachinery::field::quote;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::storage::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of pods to check.
const MAX: usize = 3000;
/// Maximum time to spend on the check.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// Number of pods after which the task yields.
const YIELD_EVERY: usize = 64;

/// The warning if the pods cannot be listed.
pub(super) const UNKNOWN: &str = "failed to list pods while checking new PodSecurity enforce level";

/// Pods that fail the same checks.
struct ViolationGroup {
    /// Name of the first of them in alphabetical order.
    name: String,
    others: usize,
}

/// The state of a check over many pods.
struct ExistingPodsCheck<'a> {
    enforce: LevelVersion,
    config: &'a PodSecurityConfig,
    until: Instant,
    most: usize,
    /// Failing pods by reasons.
    found: BTreeMap<String, ViolationGroup>,
    checked: usize,
}

impl ExistingPodsCheck<'_> {
    fn is_over(&self) -> bool {
        // At least one pod is checked, however slow that is.
        self.checked >= self.most || (self.checked > 0 && Instant::now() >= self.until)
    }

    fn check(&mut self, pod: &Value) {
        self.checked += 1;
        let violations = violations(self.enforce, Pod::of(pod));
        if violations.is_empty() {
            return;
        }
        match self.found.get_mut(&reasons(&violations)) {
            None => {
                let name = pod.name().to_owned();
                self.found
                    .insert(reasons(&violations), ViolationGroup { name, others: 0 });
            }
            Some(alike) => {
                alike.others += 1;
                if pod.name() < alike.name.as_str() {
                    pod.name().clone_into(&mut alike.name);
                }
            }
        }
    }

    fn warnings(self, namespace: &str, total: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.checked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {} of {total} existing pods",
                self.checked
            ));
        }
        if !self.found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {} violate the new PodSecurity enforce level {}",
                quote(namespace),
                quote(&self.enforce.to_string())
            ));
        }
        let lines = self.found.into_iter().map(|(reasons, alike)| match alike.others {
            0 => format!("{}: {reasons}", alike.name),
            1 => format!("{} (and 1 other pod): {reasons}", alike.name),
            n => format!("{} (and {n} other pods): {reasons}", alike.name),
        });
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        warnings.append(&mut lines);
        warnings
    }
}

/// The uid of the controller that owns the pod.
fn controller(pod: &Value) -> Option<&str> {
    let owners = pod.at(&["metadata", "ownerReferences"]).items().iter();
    let mut controllers = owners.filter(|o| o.get("controller").as_bool() == Some(true));
    controllers.next().map(|o| o.str_at(&["uid"]))
}

/// The warnings for these pods. Pods of one controller are alike, so one pod of each is checked before the
/// second of any. Checks at most [`MAX`] pods, for about [`TIME_LIMIT`].
pub(super) async fn warnings(
    namespace: &str,
    enforce: LevelVersion,
    config: &PodSecurityConfig,
    pods: &[Arc<Entry>],
) -> Vec<String> {
    survey(namespace, enforce, config, pods, MAX).await
}

async fn survey(
    namespace: &str,
    enforce: LevelVersion,
    config: &PodSecurityConfig,
    pods: &[Arc<Entry>],
    most: usize,
) -> Vec<String> {
    let mut survey = ExistingPodsCheck {
        enforce,
        config,
        until: Instant::now() + TIME_LIMIT,
        most,
        found: BTreeMap::new(),
        checked: 0,
    };
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut later: Vec<&Arc<Entry>> = Vec::new();
    let mut exempt = 0;
    for (i, entry) in pods.iter().enumerate() {
        if i % YIELD_EVERY == YIELD_EVERY - 1 {
            tokio::task::yield_now().await;
        }
        if survey.is_over() {
            break;
        }
        let pod = entry.decode();
        if survey.config.exempts_runtime_class(pod.get("spec")) {
            exempt += 1;
            continue;
        }
        match controller(&pod) {
            Some(uid) if seen.contains(uid) => later.push(entry),
            of => {
                seen.extend(of.map(str::to_owned));
                survey.check(&pod);
            }
        }
    }
    for (i, entry) in later.into_iter().enumerate() {
        if i % YIELD_EVERY == YIELD_EVERY - 1 {
            tokio::task::yield_now().await;
        }
        if survey.is_over() {
            break;
        }
        survey.check(&entry.decode());
    }
    survey.warnings(namespace, pods.len() - exempt)
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Level, Version};
    use super::*;
    use crate::json;
    use crate::storage::{Draft, Revision};

    fn entry(pod: &Value) -> Arc<Entry> {
        let key = format!("n/{}", pod.name());
        Arc::new(Draft::new(pod, Vec::new()).into_entry(&key, Revision(1)))
    }

    fn pod(name: &str, owner: &str, spec: Value) -> Arc<Entry> {
        entry(
            &json!({"metadata": {"name": name, "ownerReferences": [{"uid": owner, "controller": true}]}, "spec": spec}),
        )
    }

    fn warnings(pods: &[Arc<Entry>], most: usize) -> Vec<String> {
        let enforce = LevelVersion {
            level: Level::Baseline,
            version: Version::Latest,
        };
        let config = PodSecurityConfig {
            runtime_classes: vec!["kata".into()],
            ..PodSecurityConfig::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(survey("n", enforce, &config, pods, most))
    }

    #[test]
    fn pods_with_the_same_violations_share_a_line() {
        let pods = [
            pod("c", "1", json!({"hostNetwork": true})),
            pod("b", "1", json!({"hostNetwork": true})),
            pod("a", "1", json!({"hostNetwork": true})),
            pod(
                "e",
                "2",
                json!({"hostPID": true, "volumes": [{"name": "v", "hostPath": {}}]}),
            ),
            pod("f", "3", json!({"hostIPC": true, "runtimeClassName": "kata"})),
            pod("g", "4", json!({})),
        ];
        let lines = [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 2 other pods): host namespaces",
            "e: host namespaces, hostPath volumes",
        ];
        assert_eq!(warnings(&pods, 9), lines);
        assert_eq!(warnings(&pods[4..], 9), [""; 0]);
    }

    #[test]
    fn one_pod_per_controller_is_checked_first_and_the_limit_reported() {
        let pods = [
            pod("a", "1", json!({})),
            pod("b", "1", json!({})),
            pod("c", "2", json!({"hostIPC": true})),
        ];
        let lines = warnings(&pods, 2);
        assert_eq!(
            lines[0],
            "new PodSecurity enforce level only checked against the first 2 of 3 existing pods"
        );
        assert_eq!(lines[2], "c: host namespaces");
    }
}
