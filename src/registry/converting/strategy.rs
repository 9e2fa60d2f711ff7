//! The strategy of a served version that is stored as another: its own defaults, everything else from the
//! hub's strategy.

use super::Pair;
use crate::apimachinery::field::ErrorList;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::registry::strategy::{Change, Context, DeleteStrategy, Outcome, RestStrategy, Rules, SideEffects};
use async_trait::async_trait;
use std::sync::Arc;

/// Runs the hub's strategy on objects of the served version: converts them, calls the hub, and converts back.
pub(crate) struct ThroughHub {
    hub: Arc<dyn RestStrategy>,
    conversion: Arc<dyn Pair>,
    default: fn(&mut Value),
}

impl ThroughHub {
    /// `default` sets the served version's own defaults.
    pub(crate) fn new(hub: Arc<dyn RestStrategy>, conversion: Arc<dyn Pair>, default: fn(&mut Value)) -> Self {
        Self {
            hub,
            conversion,
            default,
        }
    }

    fn hub(&self, served: &Value) -> Value {
        self.conversion.store(served.clone())
    }

    /// Calls `then` with the change of the hub version that `change` amounts to.
    fn changed<T>(&self, change: Change<'_>, then: impl FnOnce(Change<'_>) -> T) -> T {
        match change {
            Change::Create => then(Change::Create),
            Change::Update { old, subresource } => {
                let old = &self.hub(old);
                then(Change::Update { old, subresource })
            }
        }
    }

    /// Calls `change` on the object converted to the hub version, and converts the result back.
    fn through<T>(&self, served: &mut Value, change: impl FnOnce(&mut Value) -> T) -> T {
        // Taken and put back: two conversions, no clone.
        let mut stored = self.conversion.store(std::mem::take(served));
        let done = change(&mut stored);
        *served = self.conversion.serve(stored);
        done
    }
}

impl RestStrategy for ThroughHub {
    fn rules(&self) -> Rules {
        Rules {
            wire_annotations: self.conversion.wire_annotations(),
            // Everything else belongs to the kind, not to one of its versions.
            ..self.hub.rules()
        }
    }

    /// Round-trips the object through the hub, so that fields the hub cannot represent are dropped as they
    /// would be on storage.
    fn default(&self, object: &mut Value) {
        // The served version's own defaults first; converting makes the hub's absent fields visible.
        (self.default)(object);
        self.through(object, |_| ());
    }

    fn prepare(&self, object: &mut Value, change: Change<'_>) {
        self.changed(change, |change| {
            self.through(object, |hub| self.hub.prepare(hub, change));
        });
    }

    fn validate(&self, object: &Value, change: Change<'_>) -> ErrorList {
        self.changed(change, |change| self.hub.validate(&self.hub(object), change))
    }

    fn warnings(&self, object: &Value, change: Change<'_>) -> Vec<String> {
        self.changed(change, |change| self.hub.warnings(&self.hub(object), change))
    }

    /// Only sound because both versions have these fields under the same paths.
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        self.hub.reset_fields(subresource)
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        // This type wraps the hub's hooks; without any there is nothing to wrap.
        self.hub.effects().map(|_| self as _)
    }

    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        self.hub.deletion().map(|_| self as _)
    }
}

#[async_trait]
impl SideEffects for ThroughHub {
    async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()> {
        let Some(effects) = self.hub.effects() else {
            return Ok(());
        };
        let (mut stored, old) = (self.hub(new), old.map(|o| self.hub(o)));
        effects.begin(cx, &mut stored, old.as_ref()).await?;
        // The hub's side effects may have set fields.
        *new = self.conversion.serve(stored);
        Ok(())
    }

    async fn end(&self, cx: &Context, object: &Value, outcome: Outcome<'_>) {
        let Some(effects) = self.hub.effects() else { return };
        let object = self.hub(object);
        match outcome {
            Outcome::Created | Outcome::Deleted => effects.end(cx, &object, outcome).await,
            Outcome::Updated { old } => {
                let old = &self.hub(old);
                effects.end(cx, &object, Outcome::Updated { old }).await;
            }
            Outcome::Abandoned { old } => {
                let old = old.map(|o| self.hub(o));
                let outcome = Outcome::Abandoned { old: old.as_ref() };
                effects.end(cx, &object, outcome).await;
            }
        }
    }
}

impl DeleteStrategy for ThroughHub {
    fn check(&self, object: &Value) -> Result<()> {
        self.hub.deletion().map_or(Ok(()), |d| d.check(&self.hub(object)))
    }

    fn holds(&self, object: &Value) -> bool {
        self.hub.deletion().is_some_and(|d| d.holds(&self.hub(object)))
    }

    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        self.hub.deletion()?.grace(&self.hub(object), requested)
    }

    fn mark(&self, object: &mut Value, old: &Value) {
        if let Some(deletion) = self.hub.deletion() {
            let old = self.hub(old);
            self.through(object, |hub| deletion.mark(hub, &old));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::object::ObjectView;
    use crate::registry::Strategy;

    /// Serves `v1` of what is stored as `v2`.
    struct Versions;

    impl Pair for Versions {
        fn hub(&self) -> String {
            "v2".to_owned()
        }
        fn spoke(&self) -> String {
            "v1".to_owned()
        }
        fn serve(&self, mut stored: Value) -> Value {
            stored.set(&["apiVersion"], "v1");
            stored
        }
        fn store(&self, mut served: Value) -> Value {
            served.set(&["apiVersion"], "v2");
            served
        }
    }

    /// Notes in the object which of its methods ran, and in which version.
    struct Hub;

    fn note(object: &mut Value, method: &str) {
        let version = object.api_version().to_owned();
        object.set(&["ran", method], version);
    }

    impl Strategy for Hub {
        fn prepare_subresource_update(&self, subresource: &str, new: &mut Value, old: &Value) {
            assert_eq!(old.api_version(), "v2");
            note(new, subresource);
        }
        fn effects(&self) -> Option<&dyn SideEffects> {
            Some(self)
        }
        fn deletion(&self) -> Option<&dyn DeleteStrategy> {
            Some(self)
        }
    }

    #[async_trait]
    impl SideEffects for Hub {
        async fn begin(&self, _cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()> {
            assert!(old.is_none_or(|o| o.api_version() == "v2"));
            note(new, "begin");
            Ok(())
        }
        async fn end(&self, _cx: &Context, object: &Value, outcome: Outcome<'_>) {
            assert_eq!(object.api_version(), "v2");
            let (Outcome::Updated { old } | Outcome::Abandoned { old: Some(old) }) = outcome else {
                return;
            };
            assert_eq!(old.api_version(), "v2");
        }
    }

    impl DeleteStrategy for Hub {
        fn check(&self, object: &Value) -> Result<()> {
            assert_eq!(object.api_version(), "v2");
            Ok(())
        }
        fn holds(&self, object: &Value) -> bool {
            object.api_version() == "v2"
        }
        fn grace(&self, object: &Value, _requested: Option<i64>) -> Option<i64> {
            (object.api_version() == "v2").then_some(1)
        }
        fn mark(&self, object: &mut Value, _old: &Value) {
            note(object, "mark");
        }
    }

    #[tokio::test]
    async fn hub_strategy_sees_only_hub_objects() {
        let served = ThroughHub::new(Arc::new(Hub), Arc::new(Versions), |_| ());
        let old = crate::json!({"apiVersion": "v1"});
        let mut new = old.clone();
        let subresource = "resize";
        served.prepare(&mut new, Change::Update { old: &old, subresource });
        let (cx, effects) = (Context::system(""), served.effects().unwrap());
        effects.begin(&cx, &mut new, Some(&old)).await.unwrap();
        for outcome in [
            Outcome::Created,
            Outcome::Updated { old: &old },
            Outcome::Abandoned { old: Some(&old) },
            Outcome::Deleted,
        ] {
            effects.end(&cx, &new, outcome).await;
        }
        let deletion = served.deletion().unwrap();
        deletion.check(&new).unwrap();
        assert!(deletion.holds(&new));
        assert_eq!(deletion.grace(&new, None), Some(1));
        let old = new.clone();
        deletion.mark(&mut new, &old);
        assert_eq!(
            new,
            crate::json!({"apiVersion": "v1", "ran": {"resize": "v2", "begin": "v2", "mark": "v2"}})
        );
    }
}
