//! Warnings about existing pods that would no longer be admitted when a namespace's enforce level is raised. Start
//! at [`warnings`]. The update of the namespace waits for them, so time and number are bounded.

use super::checks::{reasons, violations};
use super::config::PodSecurityConfig;
use super::pod::Pod;
use super::policy::LevelVersion;
use crate::apimachinery::field::quote;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::storage::Entry;
use crate::tasks::compute;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of pods to check.
const MAX: usize = 3000;
/// Maximum time to spend on the check.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// Stored bytes after which other tasks get their turn. Decoding as many takes about 100 µs.
const YIELD_EVERY: usize = 16 << 10;
/// A pod counts for at least this many bytes: the checks of a small one take about as long.
const SMALLEST_POD: usize = 512;

/// The warning if the pods cannot be listed.
pub(super) const UNKNOWN: &str = "failed to list pods while checking new PodSecurity enforce level";

/// Pods that fail the same checks.
struct ViolationGroup {
    /// Name of the first of them in alphabetical order.
    name: String,
    others: usize,
}

/// When a check ends before the last pod.
#[derive(Clone, Copy)]
struct Limits {
    until: Instant,
    most: usize,
}

impl Limits {
    /// Those of a check that starts now.
    fn new() -> Self {
        Self {
            until: Instant::now() + TIME_LIMIT,
            most: MAX,
        }
    }
}

/// The state of a check over many pods.
struct ExistingPodsCheck {
    enforce: LevelVersion,
    limits: Limits,
    /// Failing pods by reasons.
    found: BTreeMap<String, ViolationGroup>,
    checked: usize,
    /// Bytes that were decoded since other tasks got their turn.
    since_yield: usize,
}

impl ExistingPodsCheck {
    fn is_over(&self) -> bool {
        // At least one pod is checked, however slow that is.
        self.checked >= self.limits.most || (self.checked > 0 && Instant::now() >= self.limits.until)
    }

    /// Decodes a pod, after the tasks that wait got their turn if there were many bytes before it.
    async fn decode(&mut self, entry: &Entry) -> Value {
        let bytes = entry.json.len().max(SMALLEST_POD);
        if self.since_yield > 0 && self.since_yield + bytes > YIELD_EVERY {
            self.since_yield = 0;
            tokio::task::yield_now().await;
        }
        self.since_yield += bytes;
        entry.decode()
    }

    fn check(&mut self, pod: &Value) {
        self.checked += 1;
        let violations = violations(self.enforce, Pod::of(pod));
        if violations.is_empty() {
            return;
        }
        // By reasons only: details name containers, so pods would rarely share a line.
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
        // By pod name, as upstream; the map is ordered by reasons.
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
/// second of any. Checks at most [`MAX`] pods, for about [`TIME_LIMIT`], on the compute pool.
pub(super) async fn warnings(
    namespace: &str,
    enforce: LevelVersion,
    config: &PodSecurityConfig,
    pods: Vec<Arc<Entry>>,
) -> Vec<String> {
    // One pod is decoded at a time.
    let largest = pods.iter().map(|entry| entry.json.len()).max().unwrap_or(0);
    let (namespace, config) = (namespace.to_owned(), config.clone());
    // The time starts with the work, not while it waits for a thread of the pool.
    let work = async move { survey(&namespace, enforce, &config, &pods, Limits::new()).await };
    // On the pool, because thousands of pods take up to a second.
    let done = compute::offload(largest * compute::MEMORY_PER_STORED_BYTE, work).await;
    done.unwrap_or_else(|_| vec![UNKNOWN.to_owned()])
}

async fn survey(
    namespace: &str,
    enforce: LevelVersion,
    config: &PodSecurityConfig,
    pods: &[Arc<Entry>],
    limits: Limits,
) -> Vec<String> {
    let mut survey = ExistingPodsCheck {
        enforce,
        limits,
        found: BTreeMap::new(),
        checked: 0,
        since_yield: 0,
    };
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut later: Vec<&Arc<Entry>> = Vec::new();
    let mut exempt = 0;
    for entry in pods {
        if survey.is_over() {
            break;
        }
        let pod = survey.decode(entry).await;
        if config.exempts_runtime_class(pod.get("spec")) {
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
    for entry in later {
        if survey.is_over() {
            break;
        }
        let pod = survey.decode(entry).await;
        survey.check(&pod);
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

    /// So many pods, and more time than any test takes.
    fn at_most(most: usize) -> Limits {
        let until = Instant::now() + Duration::from_hours(1);
        Limits { until, most }
    }

    fn warnings(pods: &[Arc<Entry>], limits: Limits) -> Vec<String> {
        let enforce = LevelVersion {
            level: Level::Baseline,
            version: Version::Latest,
        };
        let config = PodSecurityConfig {
            runtime_classes: vec!["kata".into()],
            ..PodSecurityConfig::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(survey("n", enforce, &config, pods, limits))
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
        assert_eq!(warnings(&pods, at_most(9)), lines);
        assert_eq!(warnings(&pods[4..], at_most(9)), [""; 0]);
    }

    #[test]
    fn one_pod_per_controller_is_checked_first_and_the_limit_reported() {
        let pods = [
            pod("a", "1", json!({})),
            pod("b", "1", json!({})),
            pod("c", "2", json!({"hostIPC": true})),
        ];
        let lines = warnings(&pods, at_most(2));
        assert_eq!(
            lines[0],
            "new PodSecurity enforce level only checked against the first 2 of 3 existing pods"
        );
        assert_eq!(lines[2], "c: host namespaces");
    }

    #[test]
    fn one_pod_is_checked_when_the_time_is_over() {
        let over = Limits {
            until: Instant::now(),
            most: 9,
        };
        let pods = ["a", "b"].map(|name| pod(name, name, json!({"hostIPC": true})));
        let lines = warnings(&pods, over);
        let only = "new PodSecurity enforce level only checked against the first 1 of 2 existing pods";
        assert_eq!((lines[0].as_str(), lines[2].as_str()), (only, "a: host namespaces"));
    }

    /// The number of polls that a survey of these pods takes.
    fn polls(pods: &[Arc<Entry>]) -> usize {
        let enforce = LevelVersion {
            level: Level::Baseline,
            version: Version::Latest,
        };
        let config = PodSecurityConfig::default();
        let mut survey = std::pin::pin!(survey("n", enforce, &config, pods, at_most(MAX)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut polls = 1;
        while survey.as_mut().poll(&mut context).is_pending() {
            polls += 1;
        }
        polls
    }

    #[test]
    fn each_poll_decodes_few_bytes_or_one_pod() {
        let large = json!({"text": (" ".repeat(YIELD_EVERY))});
        let pods = |spec: &Value, count: usize| -> Vec<Arc<Entry>> {
            (0..count)
                .map(|n| pod(&n.to_string(), &n.to_string(), spec.clone()))
                .collect()
        };
        assert_eq!(polls(&pods(&large, 20)), 20);
        assert_eq!(polls(&pods(&json!({}), 20)), 1);
        assert_eq!(polls(&pods(&json!({}), 320)), 10);
    }

    #[tokio::test]
    async fn pods_are_checked_on_the_pool() {
        use crate::tasks::compute::{ComputePool, Config};
        let metrics = crate::telemetry::Telemetry::new().compute.clone();
        let config = Config {
            jobs: 0,
            ..Config::default()
        };
        let pool = ComputePool::start(config, metrics).unwrap();
        let enforce = LevelVersion {
            level: Level::Baseline,
            version: Version::Latest,
        };
        let security = PodSecurityConfig::default();
        let work = super::warnings("n", enforce, &security, vec![pod("a", "1", json!({}))]);
        // A pool without room rejects the work, which proves that the pool is used.
        assert_eq!(pool.within(pool.flow("caller"), work).await, [UNKNOWN]);
    }
}
