//! Deletion of namespaces (`pkg/controller/namespace/deletion`): deletes what a terminating namespace
//! contains, reports progress in its conditions, and removes the finalizer `kubernetes` from its spec when
//! nothing is left.
//!
//! ```text
//! pods are left                  wait: nothing else is deleted before them
//! something is left              wait: finalizers or graceful deletion hold it
//! discovery or a request failed  report in the conditions; retry with backoff
//! nothing is left                finalize; the server removes the namespace
//! ```

mod conditions;
mod content;

use super::discovery::discover;
use super::loopback::{Failure, Loopback, Path, found};
use super::term::Term;
use crate::apimachinery::field::{MAX_TEXT, cut};
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::tasks::{Backoff, WorkQueue};
use content::Progress;
use std::fmt;
use std::time::Duration;

const QUEUE: &str = "namespace";
// Upstream's default of `--concurrent-namespace-syncs`.
const WORKERS: usize = 10;
/// The finalizer in `spec.finalizers` that this loop removes.
const FINALIZER: &str = "kubernetes";
/// Time for other gateways to see that a namespace terminates, and to refuse creates in it
/// (`namespaceDeletionGracePeriod` of `namespace_controller.go`).
const SEEN_BY_OTHERS: Duration = Duration::from_secs(5);
/// Delays before content that is held by finalizers is looked at again. The maximum is upstream's estimate.
const RECHECK: Backoff = Backoff::doubling(Duration::from_millis(20), Duration::from_secs(60));

/// Why a namespace is not gone yet.
#[derive(Debug)]
enum Pending {
    /// Content is left that needs about this long.
    Content(Duration),
    Failed(Vec<Failure>),
}

impl From<Failure> for Pending {
    fn from(failure: Failure) -> Self {
        Self::Failed(vec![failure])
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(time) => write!(f, "some content remains, estimated {} seconds", time.as_secs()),
            Self::Failed(all) => {
                let texts: Vec<&str> = all.iter().map(|e| e.message.as_str()).collect();
                f.write_str(&cut(texts.join(", "), MAX_TEXT))
            }
        }
    }
}

pub(crate) fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let added = queue.clone();
    let delay = match term.shared_store {
        true => SEEN_BY_OTHERS,
        false => Duration::ZERO,
    };
    term.namespaces().subscribe(move |change| {
        if let Some(namespace) = change.new.filter(|n| n.deleting) {
            added.add_after(namespace.name.clone(), delay);
        }
    });
    let api = term.client("namespace-controller");
    let items = queue.clone();
    term.process(QUEUE, &queue, WORKERS, move |name: Str| {
        let (api, items) = (api.clone(), items.clone());
        async move {
            match delete(&api, &name).await {
                Ok(()) => Ok(()),
                Err(pending) => retry(&items, name, pending),
            }
        }
    });
}

/// Schedules the next attempt. Content that only needs time is looked at again soon, then less often.
fn retry(queue: &WorkQueue<Str>, name: Str, pending: Pending) -> Result<(), Pending> {
    match pending {
        Pending::Content(estimate) => {
            // Upstream waits half of the estimate plus a second; here that is only the upper bound.
            let longest = estimate / 2 + Duration::from_secs(1);
            queue.add_failed(name, |failures| RECHECK.delay(failures).min(longest));
            Ok(())
        }
        failed => Err(failed),
    }
}

async fn delete(api: &Loopback, name: &str) -> Result<(), Pending> {
    let path = Path::core("", "namespaces").name(name);
    let Some(mut namespace) = found(api.get(path).await)? else {
        return Ok(());
    };
    // With empty finalizers the server has only to remove it; the queue may lag behind.
    if !namespace.is_being_deleted() || namespace.at(&["spec", "finalizers"]).items().is_empty() {
        return Ok(());
    }
    // Written only if it differs: each write wakes this loop again.
    let before = namespace.get("status").clone();
    namespace.set(&["status", "phase"], "Terminating");
    let progress = clear(api, &namespace).await;
    conditions::report(&mut namespace, &progress, &time::now());
    if *namespace.get("status") != before {
        match found(api.replaced(path.subresource("status"), namespace).await)? {
            Some(written) => namespace = written,
            None => return Ok(()),
        }
    }
    match progress {
        // Failures first: after one, `estimate` may be zero although content is left.
        Progress { failures, .. } if !failures.is_empty() => Err(Pending::Failed(failures)),
        Progress { estimate, .. } if !estimate.is_zero() => Err(Pending::Content(estimate)),
        _ => finalize(api, path, namespace).await.map_err(Pending::from),
    }
}

/// Deletes the content. The result describes the remaining objects.
async fn clear(api: &Loopback, namespace: &Value) -> Progress {
    let mut progress = Progress::default();
    let served = match discover(api).await {
        Ok(served) => served,
        Err(e) => {
            progress.discovery = Some((1, e.message.clone()));
            progress.failures.push(e);
            return progress;
        }
    };
    if let Some(text) = served.failure() {
        // Kept as a failure, so the namespace stays: objects of the missing groups may exist. The others are
        // deleted nevertheless.
        progress.failures.push(Failure::unreadable(&text));
        progress.discovery = Some((served.stale.len(), text));
    }
    let deletable = served.resources.iter().filter(|r| r.namespaced && r.has("delete"));
    let (pods, others): (Vec<_>, Vec<_>) = deletable.partition(|r| r.group.is_empty() && r.resource == "pods");
    // Pods first, as upstream: they may need Secrets, volumes and accounts of the namespace to shut down.
    content::delete_all(api, namespace, &pods, &mut progress).await;
    if progress.remaining.is_empty() {
        content::delete_all(api, namespace, &others, &mut progress).await;
    } else {
        // As upstream, whose conditions do not count the pods that everything else waits for.
        // `estimate` stays, so the namespace is looked at again.
        progress.remaining.clear();
        progress.finalizers.clear();
    }
    progress
}

/// Removes the finalizer. The server then removes the namespace, unless it has other finalizers.
async fn finalize(api: &Loopback, path: Path<'_>, mut namespace: Value) -> Result<(), Failure> {
    let uid = namespace.uid().to_owned();
    loop {
        let finalizers = namespace.at(&["spec", "finalizers"]).items();
        let left: Vec<Value> = finalizers
            .iter()
            .filter(|f| f.as_str() != Some(FINALIZER))
            .cloned()
            .collect();
        if left.len() == finalizers.len() {
            return Ok(());
        }
        namespace.set(&["spec", "finalizers"], left);
        match found(api.replace(path.subresource("finalize"), namespace).await) {
            Err(e) if e.code == 409 => match found(api.get(path).await)? {
                // Recomputed from the live object, so that concurrent changes of other finalizers are kept.
                Some(live) if live.uid() == uid => namespace = live,
                _ => return Ok(()),
            },
            other => return other.map(drop),
        }
    }
}
