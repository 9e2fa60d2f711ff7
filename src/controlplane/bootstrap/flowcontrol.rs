//! Creates and maintains the default FlowSchemas and PriorityLevelConfigurations (upstream's
//! `pkg/registry/flowcontrol/rest` and `pkg/registry/flowcontrol/ensurer`). Start at [`ensure`]; the objects
//! are in `table.rs`.
//!
//! ```text
//! live object            mandatory                 suggested
//! missing                create                    create
//! annotation true        restore the spec          restore the spec
//! annotation false       restore the spec          leave
//! annotation absent      restore the spec          restore at generation 1, else leave; record the choice
//! not in the table, annotation true                delete: a default of another version
//! ```
//! "annotation" is `apf.kubernetes.io/autoupdate-spec`. The administrator owns `spec.exempt` of the exempt
//! level.

pub(in crate::controlplane) mod table;

use super::super::ControlPlane;
use super::{change, create_if_missing, find, for_each_concurrently};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::json;
use crate::registry::store::Store;
use crate::registry::strategy::Context;
use crate::registry::write::DeleteOptions;
use crate::tasks::TaskGroup;
use std::sync::Arc;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

struct DefaultObject {
    object: Value,
    mandatory: bool,
}

/// Creates, restores and removes default objects by the table above. Idempotent, hence cancel safe.
///
/// # Errors
/// The first failure. Other objects of the same kind are still processed.
pub(crate) async fn ensure(plane: &ControlPlane) -> Result<()> {
    // Together, to share commits. Levels are queued first: a flow schema without its level is not effective.
    let (levels, schemas) = tokio::join!(
        biased;
        ensure_all(plane.store(GROUP, "prioritylevelconfigurations"), levels()),
        ensure_all(plane.store(GROUP, "flowschemas"), schemas()),
    );
    levels.and(schemas)
}

/// The default FlowSchemas and PriorityLevelConfigurations.
pub fn all() -> [Vec<Value>; 2] {
    [schemas(), levels()].map(|all| all.into_iter().map(|d| d.object).collect())
}

/// The mandatory ones among them, which apply even while they are missing.
pub fn mandatory() -> [Vec<Value>; 2] {
    [schemas(), levels()].map(|all| {
        let mandatory = all.into_iter().filter(|d| d.mandatory);
        mandatory.map(|d| d.object).collect()
    })
}

/// Runs [`ensure`] every minute. The task belongs to `group` and ends with it.
pub(crate) fn spawn_reconciler(group: &TaskGroup, plane: Arc<ControlPlane>) {
    let stop = group.stop_signal().clone();
    group.spawn("flow control defaults", async move {
        loop {
            tokio::select! {
                biased;
                // Shutdown wins. The wait comes first, because a post-start hook has made the first pass.
                () = stop.wait() => return,
                () = tokio::time::sleep(super::INTERVAL) => {
                    super::report("keeping the flow control defaults", ensure(&plane).await);
                }
            }
        }
    });
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut v = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "metadata": {"name": name, "annotations": {}},
    });
    v.set(&["metadata", "annotations", AUTOUPDATE], "true");
    v.set(&["spec"], spec);
    v
}

fn levels() -> Vec<DefaultObject> {
    let level = |(name, mandatory, limit): &table::Level| DefaultObject {
        object: object("PriorityLevelConfiguration", name, table::level_spec(*limit)),
        mandatory: *mandatory,
    };
    table::LEVELS.iter().map(level).collect()
}

fn schemas() -> Vec<DefaultObject> {
    let schema = |s: &table::Schema| DefaultObject {
        object: object("FlowSchema", s.name, s.spec()),
        mandatory: s.mandatory,
    };
    table::SCHEMAS.iter().map(schema).collect()
}

async fn ensure_all(store: &Store, defaults: Vec<DefaultObject>) -> Result<()> {
    // From a list taken before anything is created, so that what this pass makes is never in it.
    let mut obsolete = Vec::new();
    for entry in store.list_entries("").await? {
        let live = entry.decode();
        let known = defaults.iter().any(|d| d.object.name() == live.name());
        // Without the annotation, the object may be an administrator's.
        if !known && autoupdate(&live) == Some(true) {
            obsolete.push(live);
        }
    }
    for_each_concurrently(defaults, |d| ensure_one(store, d)).await?;
    for_each_concurrently(obsolete, async |live| {
        // The UID precondition spares an object that was recreated since the list.
        let options = DeleteOptions {
            uid: Some(live.uid().to_owned()),
            ..DeleteOptions::default()
        };
        store
            .delete(&Context::system(""), live.name(), &options)
            .await
            .map(drop)
    })
    .await
}

/// The autoupdate annotation as Go's `strconv.ParseBool` reads it; `None` if absent or invalid.
fn autoupdate(live: &Value) -> Option<bool> {
    match live.annotation(AUTOUPDATE)? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

async fn ensure_one(store: &Store, wanted: DefaultObject) -> Result<()> {
    let Some(live) = find(store, "", wanted.object.name()).await? else {
        return create_if_missing(store, wanted.object, MANAGER).await;
    };
    // Compared first: the pass runs every minute, and normally has nothing to write.
    if reconciled(&live, &wanted) == live {
        return Ok(());
    }
    change(store, &live, MANAGER, |v| *v = reconciled(v, &wanted)).await
}

/// The live object with the annotation and spec it should have.
fn reconciled(live: &Value, wanted: &DefaultObject) -> Value {
    // Generation 1: nobody has edited the spec since it was created.
    let first = live.at(&["metadata", "generation"]).as_i64() == Some(1);
    let restore = wanted.mandatory || autoupdate(live).unwrap_or(first);
    let mut v = live.clone();
    if autoupdate(live) != Some(restore) {
        v.set(
            &["metadata", "annotations", AUTOUPDATE],
            if restore { "true" } else { "false" },
        );
    }
    if restore {
        let mut spec = wanted.object.get("spec").clone();
        // The only part of a mandatory spec that an administrator may set.
        let own = live.at(&["spec", "exempt"]);
        if !own.is_null() && !spec.get("exempt").is_null() {
            spec.set(&["exempt"], own.clone());
        }
        v.set(&["spec"], spec);
    }
    v
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::tests::running;

    #[tokio::test]
    async fn defaults_are_created_once_and_restored() {
        let r = running();
        ensure(&r.plane).await.unwrap();
        let before = r.engine.revision();
        ensure(&r.plane).await.unwrap();
        assert_eq!(r.engine.revision(), before, "a second run writes nothing");

        let levels = r.plane.store(GROUP, "prioritylevelconfigurations");
        let set = async |name: &str, path: &'static [&'static str], value: Value| {
            let live = levels.get_value("", name).await.unwrap();
            change(levels, &live, "me", |v| v.set(path, value.clone()))
                .await
                .unwrap();
        };
        const SHARES: &[&str] = &["spec", "limited", "nominalConcurrencyShares"];
        set("system", SHARES, 7i64.into()).await;
        set("node-high", &["metadata", "annotations", AUTOUPDATE], "false".into()).await;
        set("node-high", SHARES, 7i64.into()).await;
        set("exempt", &["spec", "exempt", "nominalConcurrencyShares"], 7i64.into()).await;
        let mut old = levels.get_value("", "system").await.unwrap();
        old.set(&["metadata"], json!({"name": "older"}));
        old.set(&["metadata", "annotations", AUTOUPDATE], "true");
        create_if_missing(levels, old, MANAGER).await.unwrap();

        ensure(&r.plane).await.unwrap();
        let shares = async |name: &str, at: &str| {
            let live = levels.get_value("", name).await.unwrap();
            live.at(&["spec", at, "nominalConcurrencyShares"]).as_i64()
        };
        assert_eq!(shares("system", "limited").await, Some(30));
        assert_eq!(shares("node-high", "limited").await, Some(7));
        assert_eq!(shares("exempt", "exempt").await, Some(7));
        assert!(find(levels, "", "older").await.unwrap().is_none());
    }
}
