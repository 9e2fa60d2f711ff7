//! The two system priority classes, created once at start if missing (upstream's
//! `pkg/registry/scheduling/rest/storage_scheduling.go`). They are not restored afterwards.

use super::super::ControlPlane;
use super::{MANAGER, create_if_missing, find, for_each_concurrently};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::Result;
use crate::controlplane::strategies::scheduling::{GROUP, SYSTEM_CLASSES};
use crate::json;

/// Creates the missing classes.
///
/// # Errors
/// The first failure.
pub(crate) async fn ensure(plane: &ControlPlane) -> Result<()> {
    let store = plane.store(GROUP, "priorityclasses");
    let classes = SYSTEM_CLASSES.iter().map(|class| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": (class.name)}, "value": (class.value), "description": (class.description),
            "preemptionPolicy": "PreemptLowerPriority",
        })
    });
    for_each_concurrently(classes.collect(), |class| async move {
        match find(store, "", class.name()).await? {
            Some(_) => Ok(()),
            None => create_if_missing(store, class, MANAGER).await,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::tests::running;

    #[tokio::test]
    async fn system_classes_are_created_once() {
        let r = running();
        ensure(&r.plane).await.unwrap();
        let before = r.engine.revision();
        ensure(&r.plane).await.unwrap();
        assert_eq!(r.engine.revision(), before);
        let store = r.plane.store(GROUP, "priorityclasses");
        let v = store.get_value("", "system-node-critical").await.unwrap();
        assert_eq!(v.get("value").as_i64(), Some(2_000_001_000));
    }
}
