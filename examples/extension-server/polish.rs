//! The subresource `gadgets/polish`: GET returns how often a gadget was polished, POST polishes it.

use async_trait::async_trait;
use std::sync::Arc;
use torana::apimachinery::status::Result;
use torana::apimachinery::{FieldError, FieldPath, ObjectView, Status, Value};
use torana::json;
use torana::sdk::{Context, CreateSubresource, GetSubresource, Store, Subresource};

/// The subresource of the gadgets in this store.
pub(crate) fn subresource(gadgets: Arc<Store>) -> Subresource {
    let polishing = Arc::new(Polishing(gadgets));
    Subresource::new("polish", "Polish")
        .get(polishing.clone())
        .create(polishing)
}

/// Works on the store of gadgets.
struct Polishing(Arc<Store>);

fn polish(gadget: &Value) -> Value {
    let times = gadget.at(&["status", "polished"]).as_i64().unwrap_or(0);
    json!({
        "apiVersion": "gadgets.example.com/v1",
        "kind": "Polish",
        "metadata": {"name": (gadget.name()), "namespace": (gadget.namespace())},
        "spec": {"times": times},
    })
}

#[async_trait]
impl GetSubresource for Polishing {
    async fn get(&self, cx: &Context, name: &str) -> Result<Value> {
        Ok(polish(&self.0.get_value(&cx.namespace, name).await?))
    }
}

#[async_trait]
impl CreateSubresource for Polishing {
    async fn create(&self, cx: &Context, name: &str, object: Value) -> Result<Value> {
        let asked = object.at(&["spec", "times"]);
        let times = if asked.is_null() {
            Some(1)
        } else {
            asked.as_i64().filter(|n| *n > 0)
        };
        let Some(times) = times else {
            let at = FieldPath::new("spec").child("times");
            let e = FieldError::invalid(&at, asked.clone(), "must be a positive integer");
            return Err(Status::invalid("gadgets.example.com", "Polish", name, &[e]));
        };
        let polished = |gadget: &Value| {
            let mut gadget = gadget.clone();
            let so_far = gadget.at(&["status", "polished"]).as_i64().unwrap_or(0);
            gadget.set(&["status", "polished"], so_far.saturating_add(times));
            Ok(gadget)
        };
        Ok(polish(&self.0.update_with(cx, name, "status", polished).await?))
    }
}
