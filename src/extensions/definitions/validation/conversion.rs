//! `spec.conversion`. Paths are those of upstream's internal form, without `webhook`.

use super::ratchet::Options;
use super::supported;
use super::webhook::{REVIEW_VERSIONS, ca_bundle};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::dns1035_label;
use crate::apimachinery::value::Value;
use crate::client::webhook;
use std::collections::HashSet;

pub(super) fn conversion(out: &mut ErrorList, conversion: &Value, options: &Options, at: &FieldPath) {
    if conversion.is_null() {
        return;
    }
    supported(out, conversion, "strategy", at, &["None", "Webhook"]);
    let webhook = conversion.get("webhook");
    let (client, versions) = (webhook.get("clientConfig"), webhook.get("conversionReviewVersions"));
    let (client_at, versions_at) = (at.child("webhookClientConfig"), at.child("conversionReviewVersions"));
    // The fields below only make sense for a webhook.
    if conversion.str_at(&["strategy"]) != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if !client.is_null() {
            out.push(FieldError::forbidden(&client_at, why));
        }
        if !versions.items().is_empty() {
            out.push(FieldError::forbidden(&versions_at, why));
        }
        return;
    }
    if client.is_null() {
        out.push(FieldError::required(
            &client_at,
            "required when strategy is set to Webhook",
        ));
    } else {
        webhook::validate(out, client, &client_at);
        // Only for established definitions: others are not called yet, and upstream lets them be repaired in steps.
        if !options.invalid_ca_bundle
            && let Err(why) = ca_bundle(client)
        {
            let at = client_at.child("caBundle");
            out.push(FieldError::invalid(
                &at,
                client.get("caBundle").clone(),
                why.to_string(),
            ));
        }
    }
    review_versions(out, versions, options, &versions_at);
}

fn review_versions(out: &mut ErrorList, versions: &Value, options: &Options, at: &FieldPath) {
    if versions.items().is_empty() {
        return out.push(FieldError::required(at, ""));
    }
    let (mut seen, mut known) = (HashSet::new(), false);
    for (i, version) in versions.items().iter().enumerate() {
        let version = version.as_str().unwrap_or("");
        let at = at.index(i);
        if !seen.insert(version) {
            // A repeated version gets this error only.
            out.push(FieldError::invalid(&at, version, "duplicate version"));
            continue;
        }
        for why in dns1035_label(version) {
            out.push(FieldError::invalid(&at, version, why));
        }
        known |= REVIEW_VERSIONS.contains(&version);
    }
    // An update may keep a list without known versions if the stored one had none.
    if options.recognized_review_version && !known {
        let why = "must include at least one of v1, v1beta1";
        out.push(FieldError::invalid(at, versions.clone(), why));
    }
}
