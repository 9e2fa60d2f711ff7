//! [`SharedWebhooks`]: webhooks by configuration, so that those with the same `clientConfig` share
//! connections and limits.

use super::{Limits, UnusableConfig, Webhook, WebhookConfig, Webhooks};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::sync::Mutex;

/// Webhooks in use, by their `clientConfig`. A webhook ends with its last user.
pub(crate) struct SharedWebhooks {
    webhooks: Webhooks,
    limits: Limits,
    known: Mutex<HashMap<WebhookConfig, Weak<Webhook>>>,
}

impl SharedWebhooks {
    /// No webhooks yet; each will have these limits.
    pub(crate) fn new(webhooks: Webhooks, limits: Limits) -> Self {
        Self {
            webhooks,
            limits,
            known: Mutex::default(),
        }
    }

    /// The webhook with this configuration. It connects when it is first called.
    ///
    /// # Errors
    /// If the CA bundle cannot be used.
    pub(crate) fn get(&self, config: &WebhookConfig) -> Result<Arc<Webhook>, UnusableConfig> {
        // Held while connecting, so that concurrent users of a new configuration get the same webhook.
        let mut known = self.known.lock();
        if let Some(webhook) = known.get(config).and_then(Weak::upgrade) {
            return Ok(webhook);
        }
        let webhook = Arc::new(self.webhooks.connect(config, self.limits)?);
        // Only when one is added: the map can only then grow.
        known.retain(|_, webhook| webhook.strong_count() > 0);
        known.insert(config.clone(), Arc::downgrade(&webhook));
        Ok(webhook)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::webhooks;
    use super::*;
    use crate::json;

    #[test]
    fn webhooks_with_the_same_configuration_are_shared() {
        let limits = Limits { calls: 1, waiting: 1 };
        let shared = SharedWebhooks::new(webhooks(Ok(Vec::new())), limits);
        let config = |url: &str| WebhookConfig::parse(&json!({"url": url})).unwrap();
        let first = shared.get(&config("https://x.io/a")).unwrap();
        assert!(Arc::ptr_eq(&first, &shared.get(&config("https://x.io/a")).unwrap()));
        drop(first);
        let _other = shared.get(&config("https://x.io/b")).unwrap();
        assert_eq!(shared.known.lock().len(), 1, "unused ones are forgotten");
    }
}
