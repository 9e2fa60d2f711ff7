//! Wraps a plugin to measure its duration in `apiserver_admission_controller_admission_duration_seconds`.

use super::{Admission, Attributes};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::telemetry::Telemetry;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Instant;

/// The phases that a plugin implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// Mutation only.
    Mutating,
    /// Validation only.
    Validating,
    /// Both phases.
    Both,
}

/// A named plugin with metrics. Phases that it does not implement are neither called nor measured.
pub struct Timed {
    name: &'static str,
    phases: Phases,
    plugin: Arc<dyn Admission>,
    telemetry: Telemetry,
}

impl Timed {
    /// Wraps `plugin`; `name` is upstream's plugin name.
    pub fn new(name: &'static str, phases: Phases, plugin: impl Admission, telemetry: &Telemetry) -> Self {
        Self {
            name,
            phases,
            plugin: Arc::new(plugin),
            telemetry: telemetry.clone(),
        }
    }

    fn observe(&self, phase: &str, attributes: &Attributes, since: Instant, outcome: &Result<()>) {
        let rejected = if outcome.is_err() { "true" } else { "false" };
        self.telemetry
            .admission_controller
            .with_label_values(&[self.name, attributes.operation.as_str(), rejected, phase])
            .observe(since.elapsed().as_secs_f64());
    }
}

#[async_trait]
impl Admission for Timed {
    fn handles(&self, attributes: &Attributes) -> bool {
        self.plugin.handles(attributes)
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        if self.phases == Phases::Validating {
            return Ok(());
        }
        let since = Instant::now();
        let outcome = self.plugin.mutate(attributes, object).await;
        self.observe("admit", attributes, since, &outcome);
        outcome
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        if self.phases == Phases::Mutating {
            return Ok(());
        }
        let since = Instant::now();
        let outcome = self.plugin.validate(attributes, object).await;
        self.observe("validate", attributes, since, &outcome);
        outcome
    }
}
