//! The webhooks of a stored configuration, parsed and compiled once per change.

use crate::admission::expressions::Conditions;
use crate::admission::matching::Criteria;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Str, Value};
use crate::client::webhook::ReviewVersion;
use crate::client::webhook::{UnusableConfig, WebhookConfig};
use crate::storage::Entry;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's default, for objects that were stored before it was applied on writes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A MutatingWebhookConfiguration or ValidatingWebhookConfiguration.
pub(crate) struct Configuration {
    pub hooks: Vec<Arc<Hook>>,
}

/// The effect of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailurePolicy {
    /// The request fails.
    Fail,
    /// The request continues.
    Ignore,
}

/// One webhook.
pub(super) struct Hook {
    /// The name of the configuration.
    pub configuration: Str,
    pub name: Str,
    /// Identifies the webhook between the rounds of a request.
    pub id: String,
    pub criteria: Criteria,
    pub conditions: Arc<Conditions>,
    pub failure_policy: FailurePolicy,
    /// The parsed `clientConfig`, or why it cannot be used.
    pub client: Result<WebhookConfig, UnusableConfig>,
    pub timeout: Duration,
    /// The version of the reviews; `None` if the webhook accepts no version that we support.
    pub review_version: Option<ReviewVersion>,
    /// True if the webhook may be called in dry runs.
    pub dry_runs: bool,
    /// True if the webhook is to be called again when later plugins change the object.
    pub reinvoke: bool,
}

impl Configuration {
    /// Reads a stored object.
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        Self::parse(&entry.decode())
    }

    pub(crate) fn parse(object: &Value) -> Self {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let hooks = object.get("webhooks").items().iter().map(|webhook| {
            // Names may repeat within a configuration, so the id counts them.
            let nth = seen.entry(webhook.str_at(&["name"])).or_default();
            *nth += 1;
            Arc::new(Hook::parse(object.name(), webhook, *nth - 1))
        });
        Self { hooks: hooks.collect() }
    }
}

impl Hook {
    fn parse(configuration: &str, v: &Value, nth: usize) -> Self {
        let name = v.str_at(&["name"]);
        let seconds = v.get("timeoutSeconds").as_i64().and_then(|s| u64::try_from(s).ok());
        let versions = v.get("admissionReviewVersions").items();
        Self {
            configuration: configuration.into(),
            name: name.into(),
            id: format!("{configuration}/{name}/{nth}"),
            criteria: Criteria::of_webhook(v),
            conditions: Arc::new(Conditions::parse(v.get("matchConditions"), false)),
            failure_policy: match v.str_at(&["failurePolicy"]) {
                // Unknown values fail closed.
                "Ignore" => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            client: WebhookConfig::parse(v.get("clientConfig")),
            timeout: seconds.map_or(TIMEOUT, Duration::from_secs),
            review_version: ReviewVersion::choose(versions.iter().filter_map(Value::as_str)),
            // `Unknown` and `Some` are from v1beta1 and still stored.
            dry_runs: matches!(v.str_at(&["sideEffects"]), "None" | "NoneOnDryRun"),
            reinvoke: v.str_at(&["reinvocationPolicy"]) == "IfNeeded",
        }
    }
}
