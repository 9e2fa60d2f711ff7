//! Keeps an APIService for each built-in group version, as `kube-aggregator/pkg/controllers/autoregister` and
//! `kubernetes/pkg/controlplane/apiserver/aggregator.go` do it.
//!
//! What is done by name, from what is wanted (`onstart` or nothing) and what is there:
//!
//! |                                   | nothing wanted | wanted        |
//! |-----------------------------------|----------------|---------------|
//! | absent                            | A: nothing     | B: create once |
//! | without our label                 | C: untouched   | C: untouched  |
//! | ours, but younger than us         | D: untouched   | D: untouched  |
//! | ours, from before                 | E: delete once | F: update once |
//!
//! "Once" is once per process: a built-in APIService that was edited or deleted by hand stays so until the next start.

mod priorities;
#[cfg(test)]
mod tests;

pub use priorities::{groups, priorities};

use super::apiservice::{AUTOMANAGED, ApiService};
use super::writer::ApiServiceWriter;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::status::Status;
use crate::apimachinery::value::{Map, Str, Value};
use crate::client::Informer;
use crate::endpoints::discovery::aggregated::Priorities;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(200);

/// The controller.
pub struct AutoRegister {
    informer: Informer<ApiService>,
    writer: Arc<dyn ApiServiceWriter>,
    wanted: BTreeMap<Str, Value>,
    /// Names not yet seen available once.
    missing: Arc<Mutex<BTreeSet<Str>>>,
}

/// What to do about one name: the cells of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    Create,
    Update,
    Delete,
}

fn decide(current: Option<&ApiService>, wanted: bool, from_before: bool) -> Action {
    match (current, wanted) {
        (None, false) => Action::Nothing,                                               // A
        (None, true) => Action::Create,                                                 // B
        (Some(c), _) if c.automanaged.as_deref() != Some("onstart") => Action::Nothing, // C
        (Some(_), _) if !from_before => Action::Nothing,                                // D
        (Some(_), false) => Action::Delete,                                             // E
        (Some(_), true) => Action::Update,                                              // F
    }
}

impl AutoRegister {
    /// For the listed paths of the servers behind us, those of groups that are not built in (`own`) too. `informer` does
    /// not run yet.
    pub fn new(
        informer: Informer<ApiService>,
        writer: Arc<dyn ApiServiceWriter>,
        paths: &[String],
        own: &[(GroupVersion, Priorities)],
    ) -> Arc<Self> {
        let wanted: BTreeMap<Str, Value> = paths.iter().filter_map(|p| desired(p, own)).collect();
        let missing = Arc::new(Mutex::new(wanted.keys().cloned().collect::<BTreeSet<_>>()));
        let seen = missing.clone();
        informer.subscribe(move |change| {
            if change.new.is_some_and(|s| s.is_available()) {
                seen.lock()
                    .expect("no code panics while holding this lock")
                    .remove(change.key);
            }
        });
        Arc::new(Self {
            informer,
            writer,
            wanted,
            missing,
        })
    }

    /// The check `autoregister-completion`: fails until each built-in APIService was available once.
    ///
    /// # Errors
    /// The missing names.
    pub fn completion(&self) -> Result<(), String> {
        let missing = self.missing.lock().expect("no code panics while holding this lock");
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = missing.iter().map(Str::as_str).collect();
        Err(format!("missing APIService: [{}]", names.join(" ")))
    }

    /// Does once, for each name, what the table says; what fails is tried again. To be called when the informer has
    /// synced.
    ///
    /// # Cancel safety
    /// When dropped, what was written stays.
    pub async fn run(&self) {
        let start = self.informer.snapshot();
        let mut names: BTreeSet<Str> = self.wanted.keys().cloned().collect();
        let ours = start.values().filter(|s| s.automanaged.as_deref() == Some("onstart"));
        names.extend(ours.map(|s| s.name.clone()));
        while !names.is_empty() {
            let mut failed = BTreeSet::new();
            for name in &names {
                let from_before = start.get(name.as_str()).is_some();
                if let Err(e) = self.sync(name, from_before).await {
                    tracing::warn!(%name, "cannot register a built-in API: {}", e.message);
                    failed.insert(name.clone());
                }
            }
            names = failed;
            if !names.is_empty() {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn sync(&self, name: &Str, from_before: bool) -> Result<(), Status> {
        let current = self.informer.get(name);
        let wanted = self.wanted.get(name);
        let done = match (
            decide(current.as_deref(), wanted.is_some(), from_before),
            wanted,
            &current,
        ) {
            (Action::Create, Some(object), _) => self.writer.create(object.clone()).await,
            (Action::Update, Some(object), _) => self.writer.set_spec(name, object.get("spec")).await,
            (Action::Delete, _, Some(c)) => self.writer.delete(name, &c.uid).await,
            _ => Ok(()),
        };
        match done {
            // Somebody else was at it: their state stands.
            Err(e) if matches!(e.reason, "AlreadyExists" | "NotFound" | "Conflict") => Ok(()),
            other => other,
        }
    }
}

/// The APIService of a listed path: `/api/v1`, or `/apis/<g>/<v>` with a place in the priority table or in `own`.
fn desired(path: &str, own: &[(GroupVersion, Priorities)]) -> Option<(Str, Value)> {
    let (group, version) = match path {
        "/api/v1" => ("", "v1"),
        _ => {
            let (group, version) = path.strip_prefix("/apis/")?.split_once('/')?;
            (!version.is_empty() && !version.contains('/')).then_some((group, version))?
        }
    };
    let ours = own.iter().find(|(gv, _)| gv.group == group && gv.version == version);
    let (group_priority, version_priority) = match ours {
        Some((_, p)) => (p.group, p.version),
        None => priorities(group, version)?,
    };
    let name = format!("{version}.{group}");
    let mut labels = Map::new();
    labels.insert(AUTOMANAGED, "onstart");
    let mut metadata = Map::new();
    metadata.insert("name", name.as_str());
    metadata.insert("labels", labels);
    let mut spec = Map::new();
    if !group.is_empty() {
        spec.insert("group", group);
    }
    spec.insert("version", version);
    spec.insert("groupPriorityMinimum", group_priority);
    spec.insert("versionPriority", version_priority);
    let mut object = Map::new();
    object.insert("apiVersion", "apiregistration.k8s.io/v1");
    object.insert("kind", "APIService");
    object.insert("metadata", metadata);
    object.insert("spec", spec);
    Some((name.into(), Value::Object(object)))
}
