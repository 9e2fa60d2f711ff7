//! Maintains the condition `Dangling` of each FlowSchema, which shows whether its priority level exists
//! (upstream's `k8s.io/apiserver/pkg/util/flowcontrol/apf_controller.go`).

use crate::apimachinery::Value;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::client::Informer;
use crate::flowcontrol::IndexedSchema;
use crate::json;
use crate::registry::store::Store;
use crate::tasks::off_thread;
use futures_util::{StreamExt as _, stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
// Also limits how often a store that refuses writes is tried.
const RETRY: Duration = Duration::from_secs(1);
const MAX_CONCURRENT_WRITES: usize = 16;

/// The controller of the conditions.
pub(crate) struct Dangling {
    pub(super) store: Arc<Store>,
    pub(super) schemas: Informer<IndexedSchema>,
    pub(super) levels: Informer<Value>,
    /// Notified when a schema or a level has changed.
    pub(super) changed: Arc<Notify>,
}

impl Dangling {
    /// Reconciles the conditions until dropped.
    ///
    /// # Cancel safety
    /// Cancel safe: a write has either happened or not.
    pub(crate) async fn run(self) {
        // Until both informers have synced, existing levels would look missing.
        self.levels.synced().wait().await;
        self.schemas.synced().wait().await;
        loop {
            if let Err(e) = self.pass().await {
                tracing::debug!(error = %e, "writing conditions of flow schemas failed");
                tokio::time::sleep(RETRY).await;
                // Without waiting for a change: the failed write is still due.
                continue;
            }
            // A change during the pass has left a permit, so it is not missed.
            self.changed.notified().await;
        }
    }

    async fn pass(&self) -> Result<()> {
        let (schemas, levels) = (self.schemas.clone(), self.levels.clone());
        // There may be tens of thousands, and each change looks at all of them. `None`: the process is ending.
        let pending = off_thread(0, move || pending(&schemas, &levels)).await;
        let writes: Vec<_> = pending
            .into_iter()
            .flatten()
            .map(|(name, condition)| async move { self.write(&name, condition).await })
            .collect();
        // Together, so that on a first start they share commits of the store.
        stream::iter(writes)
            .buffer_unordered(MAX_CONCURRENT_WRITES)
            .fold(Ok(()), async |all: Result<()>, each| all.and(each))
            .await
    }

    async fn write(&self, name: &str, condition: Value) -> Result<()> {
        match self.store.apply_condition(MANAGER, name, condition).await {
            // A schema that was deleted meanwhile needs no condition.
            Err(e) if e.code != 404 => Err(e),
            _ => Ok(()),
        }
    }
}

/// The schemas whose condition is due, by name. Copied, because a snapshot that is held during the writes is freed after
/// them, on a reactor, with the replaced rules.
fn pending(schemas: &Informer<IndexedSchema>, levels: &Informer<Value>) -> Vec<(String, Value)> {
    let (schemas, levels) = (schemas.snapshot(), levels.snapshot());
    let pending = |object: &Value| {
        let level = object.str_at(&["spec", "priorityLevelConfiguration", "name"]);
        let condition = pending_condition(object, level, levels.contains_key(level))?;
        Some((object.name().to_owned(), condition))
    };
    schemas.values().filter_map(|schema| pending(&schema.object)).collect()
}

/// The condition to write, or `None` if it is up to date. Its transition time is left out if the status
/// changes.
fn pending_condition(schema: &Value, level: &str, exists: bool) -> Option<Value> {
    let (status, reason, end) = if exists {
        ("False", "Found", "and it exists")
    } else {
        ("True", "NotFound", "but there is no such object")
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}");
    let conditions = schema.at(&["status", "conditions"]).items();
    let live = conditions.iter().find(|c| c.str_at(&["type"]) == "Dangling");
    let same = |key: &str, text: &str| live.is_some_and(|c| c.str_at(&[key]) == text);
    if same("status", status) && same("reason", reason) && same("message", &message) {
        return None;
    }
    let mut condition = json!({"type": "Dangling", "status": status, "reason": reason, "message": message});
    if same("status", status)
        && let Some(live) = live
    {
        condition.set(&["lastTransitionTime"], live.get("lastTransitionTime").clone());
    }
    Some(condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_written_when_it_differs() {
        let mut schema = json!({"status": {}});
        let mut found = pending_condition(&schema, "x", true).unwrap();
        assert_eq!(
            found.str_at(&["message"]),
            "This FlowSchema references the PriorityLevelConfiguration object named \"x\" and it exists"
        );
        found.set(&["lastTransitionTime"], "then");
        schema.set(&["status", "conditions"], vec![found]);
        assert_eq!(pending_condition(&schema, "x", true), None);
        let missing = pending_condition(&schema, "x", false).unwrap();
        assert_eq!(
            (missing.str_at(&["status"]), missing.str_at(&["reason"])),
            ("True", "NotFound")
        );
        assert!(missing.get("lastTransitionTime").is_null());
        let renamed = pending_condition(&schema, "y", true).unwrap();
        assert_eq!(
            renamed.str_at(&["lastTransitionTime"]),
            "then",
            "the status has not changed"
        );
    }
}
