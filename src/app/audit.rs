//! Builds the audit policy and backends from the options. Entry point: [`build`]. What is recorded when is
//! left to `crate::audit`; shutting the backends down to the gateway.

use super::Error;
use crate::audit::backend::log::Log;
use crate::audit::backend::webhook::Webhook;
use crate::audit::{Audit, Backend, Policy};
use crate::cli::CompletedOptions;
use crate::client::ClientConfig;
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use crate::telemetry::audit::AuditMetrics;
use std::sync::Arc;

/// The configured auditing; `None` if no policy or no backend is configured.
///
/// # Errors
/// A policy, log file or kubeconfig that cannot be used.
pub(crate) fn build(options: &CompletedOptions, telemetry: &Telemetry) -> Result<Option<Arc<Audit>>, Error> {
    // Also without auditing, so that dashboards find the families.
    let metrics = AuditMetrics::new(telemetry.registry());
    let options = &options.audit;
    let Some(policy) = &options.policy else {
        return Ok(None);
    };
    let policy = Policy::read(policy).map_err(Error::flag("audit-policy-file"))?;
    // A group of its own: it must outlive the gateway's tasks, whose last requests are audited.
    let tasks = TaskGroup::new("audit");
    let mut backends = Vec::new();
    if let Some(log) = &options.log {
        let sink = Log::open(&log.target, log.format, metrics.clone()).map_err(Error::flag("audit-log-path"))?;
        let (sink, mode) = (Arc::new(sink), log.mode.clone());
        backends.push(Backend::start(sink, mode, log.truncation, metrics.clone(), &tasks));
    }
    if let Some(webhook) = &options.webhook {
        const FLAG: &str = "audit-webhook-config-file";
        let config = ClientConfig::from_kubeconfig(&webhook.config_file).map_err(Error::flag(FLAG))?;
        let counts = telemetry.client_requests.clone();
        let sink =
            Webhook::try_new(&config, webhook.initial_backoff, metrics.clone(), counts).map_err(Error::flag(FLAG))?;
        let (sink, mode) = (Arc::new(sink), webhook.mode.clone());
        backends.push(Backend::start(sink, mode, webhook.truncation, metrics.clone(), &tasks));
    }
    // Events would be built for nobody.
    if backends.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Audit::new(policy, backends, metrics, tasks))))
}
