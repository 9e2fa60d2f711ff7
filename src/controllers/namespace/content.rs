//! Deletes everything in a namespace, resource by resource, and counts the remaining objects.

use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::controllers::discovery::ServedResource;
use crate::controllers::loopback::{Failure, JSON, Loopback, Path};
use crate::json;
use ::time::OffsetDateTime;
use futures_util::StreamExt as _;
use std::collections::BTreeMap;
use std::time::Duration;

/// Resources that are deleted at the same time.
const CONCURRENT: usize = 16;
/// Objects per page of a list of their metadata.
const PAGE: usize = 500;
/// The same of whole objects: so many of the largest ones fit into a response.
const WHOLE_PAGE: usize = 16;
/// Time that upstream expects finalizers to take.
const FINALIZER_ESTIMATE: Duration = Duration::from_secs(15);
/// Finalizers that the conditions list. Clients choose their names: the objects of a namespace may have millions.
pub(super) const LISTED: usize = 100;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The result of one pass.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Number of group versions that could not be discovered, and why.
    pub discovery: Option<(usize, String)>,
    /// Why resources could not be deleted.
    pub content: Vec<String>,
    /// Objects left, by `<resource>.<group>`.
    pub remaining: BTreeMap<String, usize>,
    /// Objects left, by finalizer: of the first [`LISTED`], and one more if there are more.
    pub finalizers: BTreeMap<String, usize>,
    /// Estimated time until the remaining objects are gone; zero if nothing is left.
    pub estimate: Duration,
    /// Failed calls. While there are any, the namespace keeps its finalizer: objects may have been missed.
    pub failures: Vec<Failure>,
}

/// The remaining objects of one resource.
#[derive(Default)]
struct Remaining {
    count: usize,
    finalizers: BTreeMap<String, usize>,
    /// The longest grace period of the Pods that still run, in seconds.
    grace: i64,
    estimate: Duration,
}

impl Remaining {
    fn add(&mut self, object: &Value) {
        self.count += 1;
        for finalizer in object.finalizers() {
            count(&mut self.finalizers, finalizer, 1);
        }
        if !matches!(object.str_at(&["status", "phase"]), "Succeeded" | "Failed") {
            let seconds = object.at(&["spec", "terminationGracePeriodSeconds"]).as_i64();
            // Terminated pods need no time to shut down.
            self.grace = self.grace.max(seconds.unwrap_or(0));
        }
    }
}

/// Adds `n` to the count of a finalizer, if it is among the first in the order of names. One that is omitted stays
/// omitted, so the counts of the others are complete, and the same in each pass.
fn count(all: &mut BTreeMap<String, usize>, finalizer: &str, n: usize) {
    if let Some(counted) = all.get_mut(finalizer) {
        *counted += n;
        return;
    }
    if all.len() > LISTED {
        if all.last_key_value().is_some_and(|(last, _)| **last < *finalizer) {
            return;
        }
        all.pop_last();
    }
    all.insert(finalizer.to_owned(), n);
}

/// Deletes all objects of these resources.
pub(crate) async fn delete_all(
    api: &Loopback,
    namespace: &Value,
    resources: &[&ServedResource],
    progress: &mut Progress,
) {
    let pending = resources
        .iter()
        .map(|resource| async move { (*resource, delete(api, namespace, resource).await) });
    // Boxed: the requests of all resources in one future would be large.
    let mut done = futures_util::stream::iter(pending).buffer_unordered(CONCURRENT).boxed();
    while let Some((resource, result)) = done.next().await {
        match result {
            Err(e) => {
                progress.content.push(e.message.clone());
                progress.failures.push(e);
            }
            Ok(left) if left.count == 0 => {}
            Ok(left) => {
                progress.estimate = progress.estimate.max(left.estimate);
                progress.remaining.insert(resource.qualified(), left.count);
                for (finalizer, n) in left.finalizers {
                    count(&mut progress.finalizers, &finalizer, n);
                }
            }
        }
    }
    // The requests end in any order; a stable message avoids needless status updates.
    progress.content.sort();
}

async fn delete(api: &Loopback, namespace: &Value, resource: &ServedResource) -> Result<Remaining, Failure> {
    let path = Path::of(&resource.group, &resource.version, namespace.name(), &resource.resource);
    // Background: dependents are in the same namespace and deleted by the same pass.
    let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let whole = match resource.has("deletecollection") {
        true => api.delete(path, &options).await,
        false => Err(Failure::unsupported()),
    };
    match whole {
        Ok(()) => {}
        // Servers without the verb: one by one.
        // 404 for a resource that discovery still lists, 405 for a server without `deletecollection`.
        Err(e) if matches!(e.code, 404 | 405) => {
            let add = |mut names: Vec<Str>, object: &Value| {
                names.push(object.name().into());
                names
            };
            for name in fold(api, path, false, add).await? {
                match api.delete(path.name(&name), &options).await {
                    Err(e) if e.code != 404 => return Err(e),
                    _ => {}
                }
            }
        }
        Err(e) => return Err(e),
    }
    if !resource.has("list") {
        // Without a list there is no way to tell; upstream assumes that nothing is left.
        return Ok(Remaining::default());
    }
    let is_pods = resource.group.is_empty() && resource.resource == "pods";
    let add = |mut left: Remaining, object: &Value| {
        left.add(object);
        left
    };
    let mut left = fold(api, path, is_pods, add).await?;
    if is_pods {
        left.estimate = grace(left.grace, namespace);
    }
    if !left.finalizers.is_empty() {
        left.estimate = left.estimate.max(FINALIZER_ESTIMATE);
    }
    // Nothing holds these objects, so they should be gone: an error, not a reason to wait.
    if left.count > 0 && left.estimate.is_zero() {
        return Err(Failure::unreadable(format!(
            "unexpected items still remain in namespace: {} for gvr: {}",
            namespace.name(),
            go_gvr(resource),
        )));
    }
    Ok(left)
}

/// As Go prints a GroupVersionResource with `%v`.
fn go_gvr(resource: &ServedResource) -> String {
    format!(
        "{}/{}, Resource={}",
        resource.group, resource.version, resource.resource
    )
}

/// The longest grace period of Pods that still run, until it has passed since the namespace was deleted.
fn grace(seconds: i64, namespace: &Value) -> Duration {
    let since = time::parse(namespace.meta("deletionTimestamp")).ok();
    let passed = since.map(|since| OffsetDateTime::now_utc() - since);
    let longest = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    match passed.and_then(|p| Duration::try_from(p).ok()) {
        // Pods that are still there are stuck, which `delete` reports as an error.
        Some(passed) if passed > longest => Duration::ZERO,
        _ => longest,
    }
}

/// Folds all objects of a collection page by page, off the reactor: a page may have megabytes. Only the
/// objects' metadata is read, unless they are wanted `whole`.
async fn fold<T: Default + Send + 'static>(
    api: &Loopback,
    path: Path<'_>,
    whole: bool,
    add: impl Fn(T, &Value) -> T + Copy + Send + 'static,
) -> Result<T, Failure> {
    let (accept, limit) = if whole { (JSON, WHOLE_PAGE) } else { (METADATA, PAGE) };
    let (mut folded, mut next) = (T::default(), String::new());
    loop {
        let mut query = format!("{path}?limit={limit}");
        if !next.is_empty() {
            query.push_str("&continue=");
            crate::request::percent::encode_query(next.as_bytes(), &mut query);
        }
        let page = move |page: Value| {
            let folded = page.get("items").items().iter().fold(folded, add);
            (folded, page.str_at(&["metadata", "continue"]).to_owned())
        };
        (folded, next) = match api.extract(query, accept, page).await {
            // A resource whose definition has just gone has no objects.
            Err(e) if e.code == 404 => return Ok(T::default()),
            other => other?,
        };
        if next.is_empty() {
            return Ok(folded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_grace_period_counts_until_it_has_passed() {
        let pod = |seconds: i64, phase: &str| json!({"spec": {"terminationGracePeriodSeconds": seconds}, "status": {"phase": phase}});
        let pods = [pod(30, "Running"), pod(60, "Succeeded"), pod(10, "Pending")];
        let deleted = |at: String| json!({"metadata": {"deletionTimestamp": at}});
        let mut left = Remaining::default();
        pods.iter().for_each(|pod| left.add(pod));
        assert_eq!((left.count, left.grace), (3, 30));
        assert_eq!(grace(30, &deleted(time::now())), Duration::from_secs(30));
        let long_ago = time::format(OffsetDateTime::now_utc() - Duration::from_secs(40));
        assert_eq!(grace(30, &deleted(long_ago)), Duration::ZERO);
    }

    #[test]
    fn the_number_of_counted_finalizers_is_bounded() {
        let names: Vec<String> = (0..1000).map(|n| format!("a/{n:04}")).collect();
        for all in [names.clone(), names.iter().rev().cloned().collect()] {
            let finalizers: Vec<Value> = all.iter().map(|name| name.as_str().into()).collect();
            let mut object = Value::object();
            object.set_meta("finalizers", finalizers);
            let mut left = Remaining::default();
            left.add(&object);
            left.add(&object);
            assert!(left.finalizers.keys().eq(&names[..=LISTED]));
            assert!(left.finalizers.values().all(|n| *n == 2));
        }
    }
}
