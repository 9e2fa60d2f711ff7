//! Wraps a plugin, or the chain of all ([`TimedSteps`]), to measure durations:
//! `apiserver_admission_controller_admission_duration_seconds` and
//! `apiserver_admission_step_admission_duration_seconds[_summary]`.

use super::{Admission, Attributes, Chain};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::telemetry::Telemetry;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Instant;

/// The phases that a plugin implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phases {
    /// Mutation only.
    Mutating,
    /// Validation only.
    Validating,
    /// Both phases.
    Both,
}

/// A named plugin with metrics. Phases that it does not implement are neither called nor measured.
pub(crate) struct Timed {
    name: &'static str,
    phases: Phases,
    plugin: Arc<dyn Admission>,
    telemetry: Telemetry,
}

/// The chain of all plugins with metrics of its two phases.
pub(crate) struct TimedSteps {
    chain: Chain,
    telemetry: Telemetry,
}

impl TimedSteps {
    pub(crate) fn new(chain: Chain, telemetry: &Telemetry) -> Self {
        Self {
            chain,
            telemetry: telemetry.clone(),
        }
    }

    fn observe(&self, phase: &str, attributes: &Attributes, since: Instant, outcome: &Result<()>) {
        let operation = attributes.operation.as_str();
        self.telemetry
            .admission_step
            .observe(operation, outcome.is_err(), phase, since.elapsed());
    }
}

impl Timed {
    /// Wraps `plugin`; `name` is upstream's plugin name.
    pub(crate) fn new(name: &'static str, phases: Phases, plugin: impl Admission, telemetry: &Telemetry) -> Self {
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
        // Upstream also observes only plugins whose `Handles` returns true.
        self.plugin.handles(attributes)
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        // Upstream's plugins implement one interface or both, and only implemented phases have a series.
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

#[async_trait]
impl Admission for TimedSteps {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        let since = Instant::now();
        let outcome = self.chain.mutate(attributes, object).await;
        self.observe("admit", attributes, since, &outcome);
        outcome
    }

    async fn validate(&self, attributes: &Attributes, object: &Value) -> Result<()> {
        let since = Instant::now();
        let outcome = self.chain.validate(attributes, object).await;
        self.observe("validate", attributes, since, &outcome);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Operation;
    use crate::admission::plugins::AlwaysDeny;
    use crate::admission::testing::request;
    use crate::telemetry::Telemetry;

    #[tokio::test]
    async fn the_steps_of_a_write_are_measured_with_their_outcome() {
        let telemetry = Telemetry::new();
        let denies = Timed::new("AlwaysDeny", Phases::Mutating, AlwaysDeny, &telemetry);
        let steps = TimedSteps::new(Chain::new(vec![Arc::new(denies)]), &telemetry);
        let write = request(Operation::Create, "", "pods", "p");
        assert!(steps.mutate(&write, &mut Value::Null).await.is_err());
        assert!(steps.validate(&write, &Value::Null).await.is_ok());
        let text = String::from_utf8(telemetry.text()).unwrap();
        for (rejected, phase) in [("true", "admit"), ("false", "validate")] {
            let labels = format!("operation=\"CREATE\",rejected=\"{rejected}\",type=\"{phase}\"");
            for kind in ["", "_summary"] {
                let line = format!("apiserver_admission_step_admission_duration_seconds{kind}_count{{{labels}}} 1\n");
                assert!(text.contains(&line), "{line}: {text}");
            }
        }
    }
}
