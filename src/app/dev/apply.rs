//! Applies the manifests of a directory, at the start and when they change: server-side, definitions first.
//! Failed ones are retried for a while, because manifests depend on each other and on the control loops.

use super::manifests::{Fingerprint, fingerprint, objects};
use super::say;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::Value;
use crate::controllers::discovery::{ServedResource, discover};
use crate::controllers::loopback::{APPLY, Failure, Loopback, Path, found};
use crate::tasks::Signal;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// Interval at which the files are checked for changes.
const CHECK: Duration = Duration::from_millis(300);
/// Time for which failed objects are tried again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for the server to become ready. One that never does may still take the manifests.
const START: Duration = Duration::from_secs(60);
/// Delay between two attempts.
const RETRY: Duration = Duration::from_millis(50);

pub(super) struct Applier {
    dir: PathBuf,
    api: Loopback,
    /// Fires when the server is ready.
    ready: Signal,
    /// The objects applied last, by group, kind, namespace and name.
    applied: HashMap<[String; 4], Value>,
}

/// Why an object was not applied.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Api(#[from] Failure),
    #[error("no matches for kind {0:?} in version {1:?}")]
    UnknownKind(String, String),
}

/// The result of applying an object.
enum Outcome {
    Created,
    Configured,
    Unchanged,
}

impl Applier {
    pub(crate) fn new(dir: PathBuf, api: Loopback, ready: Signal) -> Self {
        Self {
            dir,
            api,
            ready,
            applied: HashMap::new(),
        }
    }

    /// Never returns.
    ///
    /// # Cancel safety
    /// Cancel safe: a write in progress completes.
    pub(crate) async fn run(mut self) {
        // Nothing establishes definitions before, nor makes the accounts of pods, and `PATIENCE` would pass in vain.
        let _ = tokio::time::timeout(START, self.ready.wait()).await;
        let mut last: Option<Fingerprint> = None;
        loop {
            let dir = self.dir.clone();
            let now = tokio::task::spawn_blocking(move || fingerprint(&dir)).await;
            // A read that failed is repeated at the next check.
            if let Ok(now) = now
                && last.as_ref() != Some(&now)
            {
                self.apply_all(&now).await;
                last = Some(now);
            }
            tokio::time::sleep(CHECK).await;
        }
    }

    async fn apply_all(&mut self, files: &Fingerprint) {
        let paths: Vec<PathBuf> = files.iter().map(|(path, ..)| path.clone()).collect();
        let read = move || paths.iter().map(|path| objects(path)).collect::<Vec<_>>();
        let Ok(files) = tokio::task::spawn_blocking(read).await else {
            return;
        };
        let mut pending = Vec::new();
        for file in files {
            match file {
                Ok(objects) => pending.extend(objects),
                Err(error) => say(&format!("error: {error}\n")),
            }
        }
        // Only what changed: applying everything again would undo edits made with kubectl meanwhile.
        pending.retain(|object| self.applied.get(&identity(object)) != Some(object));
        // Stable: within a rank, the order of the files stays.
        pending.sort_by_key(rank);
        let until = Instant::now() + PATIENCE;
        loop {
            let mut failed = Vec::new();
            for object in pending {
                match self.apply(&object).await {
                    Ok(outcome) => self.note(object, &outcome),
                    Err(refusal) => failed.push((object, refusal)),
                }
            }
            if failed.is_empty() {
                return;
            }
            // A malformed object stays malformed.
            let hopeless = |r: &Refusal| matches!(r, Refusal::Api(e) if matches!(e.code, 400 | 409 | 422));
            if Instant::now() >= until || failed.iter().all(|(_, refusal)| hopeless(refusal)) {
                for (object, refusal) in &failed {
                    say(&format!("error: {}: {refusal}\n", describe(object)));
                }
                return;
            }
            pending = failed.into_iter().map(|(object, _)| object).collect();
            tokio::time::sleep(RETRY).await;
        }
    }

    fn note(&mut self, object: Value, outcome: &Outcome) {
        let what = match outcome {
            Outcome::Created => "created",
            Outcome::Configured => "configured",
            Outcome::Unchanged => "unchanged",
        };
        say(&format!("{} {what}\n", describe(&object)));
        // Only after success, so that a failed object is applied again when any file changes.
        self.applied.insert(identity(&object), object);
    }

    async fn apply(&self, object: &Value) -> Result<Outcome, Refusal> {
        let gvk = object.gvk();
        // Discovered anew for each object: the one before may have been a definition.
        let served = discover(&self.api).await?;
        let is_kind = |r: &&ServedResource| r.group == gvk.group.as_str() && r.kind == gvk.kind.as_str();
        let Some(resource) = served.resources.iter().find(is_kind) else {
            return Err(Refusal::UnknownKind(
                object.kind().to_owned(),
                object.api_version().to_owned(),
            ));
        };
        let namespace = match (resource.namespaced, object.namespace()) {
            (false, _) => "",
            // As kubectl, where neither the manifest nor the context names one.
            (true, "") => "default",
            (true, namespace) => namespace,
        };
        let path = Path::of(&gvk.group, &gvk.version, namespace, &resource.resource).name(object.name());
        // Read first, to tell created from configured in the output.
        let before = found(self.api.get(path).await)?;
        // Forced: the files are the truth of a session, so they take fields over from other managers.
        let apply = format!("{path}?fieldManager=torana-dev&force=true");
        let after = self.api.patched(apply, APPLY, object).await?;
        Ok(match before {
            None => Outcome::Created,
            Some(before) if before.resource_version() == after.resource_version() => Outcome::Unchanged,
            Some(_) => Outcome::Configured,
        })
    }
}

/// Definitions come before the objects that they define, and namespaces before what is in them.
fn rank(object: &Value) -> u8 {
    match object.kind() {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        _ => 2,
    }
}

fn identity(object: &Value) -> [String; 4] {
    let group = object.gvk().group.to_string();
    [
        group,
        object.kind().to_owned(),
        object.namespace().to_owned(),
        object.name().to_owned(),
    ]
}

fn describe(object: &Value) -> String {
    let kind = object.kind().to_lowercase();
    match object.namespace() {
        "" => format!("{kind}/{}", object.name()),
        namespace => format!("{kind}/{} in {namespace}", object.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Body, Handler, Request, Response};
    use std::sync::Arc;
    use tokio::sync::mpsc;

    /// Reports the paths of all requests.
    struct Recorder(mpsc::UnboundedSender<String>);

    #[async_trait::async_trait]
    impl Handler for Recorder {
        async fn handle(&self, request: Request) -> Response {
            // The test ends at the first request.
            let _ = self.0.send(request.uri().path().to_owned());
            Response::new(Body::full("{}"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_applied_before_the_server_is_ready() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        std::fs::write(dir.path().join("a.yaml"), manifest).unwrap();
        let (paths, mut seen) = mpsc::unbounded_channel();
        let handler: Arc<dyn Handler> = Arc::new(Recorder(paths));
        let ready = Signal::new("ready");
        let mut applying =
            Box::pin(Applier::new(dir.path().to_owned(), Loopback::administrator(&handler), ready.clone()).run());
        let before = tokio::time::timeout(START / 2, &mut applying).await;
        assert!(before.is_err() && seen.try_recv().is_err(), "it waits");
        ready.fire();
        tokio::select! {
            () = applying => panic!("it follows the directory until the end"),
            path = seen.recv() => assert!(path.is_some()),
        }
    }
}
