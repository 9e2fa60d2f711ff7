//! Writes of APIService objects: the interface that the controllers need, implemented by the store.

use super::apiservice::Condition;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::time;
use crate::apimachinery::value::{Map, Value};
use crate::registry::Context;
use crate::registry::store::Store;
use crate::registry::write::{DeleteOptions, WriteOptions};
use async_trait::async_trait;
use std::sync::Arc;

/// Writes APIServices with the server's own rights.
#[async_trait]
pub(crate) trait ApiServiceWriter: Send + Sync + 'static {
    /// Sets the Available condition through the status subresource. Returns whether the APIService was available until
    /// then.
    ///
    /// # Errors
    /// The store's Status.
    async fn set_condition(&self, name: &str, condition: &Condition) -> Result<bool>;

    /// Creates an object.
    ///
    /// # Errors
    /// The store's Status; AlreadyExists if the object exists.
    async fn create(&self, object: Value) -> Result<()>;

    /// Replaces the spec only.
    ///
    /// # Errors
    /// The store's Status.
    async fn set_spec(&self, name: &str, spec: &Value) -> Result<()>;

    /// Deletes the object if it has this UID.
    ///
    /// # Errors
    /// The store's Status.
    async fn delete(&self, name: &str, uid: &str) -> Result<()>;
}

/// Field manager of the server's own writes.
const MANAGER: &str = "kube-apiserver";

fn options(subresource: &str) -> WriteOptions {
    WriteOptions {
        manager: Some(MANAGER.into()),
        subresource: subresource.into(),
        ..WriteOptions::default()
    }
}

#[async_trait]
impl ApiServiceWriter for Arc<Store> {
    async fn set_condition(&self, name: &str, condition: &Condition) -> Result<bool> {
        let gr = self.resource().group_resource();
        let mut was_available = false;
        // Called again with the new object after a conflict, so it must depend only on `live`.
        let mut transform = |live: Option<&Value>| {
            let live = live.ok_or_else(|| Status::not_found(&gr, name))?;
            was_available = is_available(live);
            Ok(with_condition(live, condition, &time::now()))
        };
        self.update(&Context::system(""), name, &mut transform, false, &options("status"))
            .await?;
        Ok(was_available)
    }

    async fn create(&self, mut object: Value) -> Result<()> {
        // The store expects objects as decoding leaves those of clients.
        self.resource().schema.normalize(&mut object)?;
        Store::create(self, &Context::system(""), object, &options("")).await?;
        Ok(())
    }

    async fn set_spec(&self, name: &str, spec: &Value) -> Result<()> {
        let gr = self.resource().group_resource();
        let mut transform = |live: Option<&Value>| {
            let mut object = live.ok_or_else(|| Status::not_found(&gr, name))?.clone();
            // Nothing else: labels and annotations may be an administrator's.
            object.set(&["spec"], spec.clone());
            Ok(object)
        };
        self.update(&Context::system(""), name, &mut transform, false, &options(""))
            .await?;
        Ok(())
    }

    async fn delete(&self, name: &str, uid: &str) -> Result<()> {
        let delete = DeleteOptions {
            // Another object may have taken the name meanwhile.
            uid: Some(uid.into()),
            ..DeleteOptions::default()
        };
        Store::delete(self, &Context::system(""), name, &delete).await?;
        Ok(())
    }
}

/// Whether the stored condition says so.
pub(super) fn is_available(live: &Value) -> bool {
    let conditions = live.at(&["status", "conditions"]).items();
    let condition = conditions.iter().find(|c| c.str_at(&["type"]) == "Available");
    condition.is_some_and(|c| c.str_at(&["status"]) == "True")
}

/// Sets the Available condition. The transition time changes only if the status does.
pub(super) fn with_condition(live: &Value, condition: &Condition, now: &str) -> Value {
    let mut object = live.clone();
    let mut conditions: Vec<Value> = live.at(&["status", "conditions"]).items().to_vec();
    let mut c = Map::new();
    c.insert("type", "Available");
    c.insert("status", condition.status.as_str());
    c.insert("reason", condition.reason.as_str());
    c.insert("message", condition.message.as_str());
    c.insert("lastTransitionTime", now);
    match conditions.iter_mut().find(|c| c.str_at(&["type"]) == "Available") {
        Some(old) => {
            if old.str_at(&["status"]) == condition.status {
                c.insert("lastTransitionTime", old.get("lastTransitionTime").clone());
            }
            *old = Value::Object(c);
        }
        None => conditions.push(Value::Object(c)),
    }
    object.set(&["status", "conditions"], conditions);
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let live = json!({"metadata": {}, "status": {"conditions": [
            {"type": "Other", "status": "True"},
            {"type": "Available", "status": "True", "reason": "Passed", "lastTransitionTime": "t0"}]}});
        let local = with_condition(&live, &Condition::local(), "t1");
        assert!(is_available(&live) && !is_available(&json!({"status": {}})));
        let c = local.at(&["status", "conditions"]).items().to_vec();
        assert_eq!((c.len(), c[0].str_at(&["type"])), (2, "Other"));
        assert_eq!(
            (c[1].str_at(&["reason"]), c[1].str_at(&["lastTransitionTime"])),
            ("Local", "t0")
        );
        let down = with_condition(&live, &Condition::new("False", "ServiceNotFound", "m"), "t1");
        assert!(!is_available(&down));
        assert_eq!(
            down.at(&["status", "conditions"]).items()[1].str_at(&["lastTransitionTime"]),
            "t1"
        );
    }
}
