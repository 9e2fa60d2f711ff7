//! Which rules an update enforces: none that the stored definition violates already, so that it can still be changed.

use super::conversion::{REVIEW_VERSIONS, ca_bundle};
use super::selectable;
use crate::apimachinery::value::Value;
use crate::extensions::definitions::internal::Internal;
use crate::extensions::definitions::is_condition_true;
use crate::extensions::schema::definition::{self, Ratcheted};

#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    /// The rules of schemas.
    pub(super) schema: definition::Options,
    /// Every version needs a schema.
    pub(super) schema_required: bool,
    /// The conversion must know a version of ConversionReview that exists.
    pub(super) recognized_review_version: bool,
    /// A CA bundle that cannot be used is accepted.
    pub(super) invalid_ca_bundle: bool,
    /// The new and the stored definition.
    update: Option<(&'a Value, &'a Value)>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            schema: definition::Options::default(),
            schema_required: true,
            recognized_review_version: true,
            // A new definition is not established, and nothing calls its webhook.
            invalid_ca_bundle: true,
            update: None,
        }
    }
}

impl<'a> Options<'a> {
    pub(super) fn of(new: &'a Value, old: &'a Value) -> Self {
        let before = Internal::of(old);
        let all = |f: &dyn Fn(&Value) -> bool| before.schemas().all(f);
        let keeps = |rule| all(&|s: &Value| !definition::violates(s, rule));
        let webhook = old.at(&["spec", "conversion", "webhook"]);
        let reviews = webhook.get("conversionReviewVersions").items();
        let known = |v: &Value| v.as_str().is_some_and(|v| REVIEW_VERSIONS.contains(&v));
        let has_schema = before.shared.open_api_schema().is_some();
        Self {
            schema: definition::Options {
                structural: all(&definition::is_structural),
                valid_types: keeps(Ratcheted::ValidTypes),
                pruned_defaults: all(&|s: &Value| !definition::has_unpruned_defaults(s)),
                atomic_sets: keeps(Ratcheted::AtomicSets),
                map_keys: keeps(Ratcheted::MapKeys),
                rule_costs: true,
            },
            schema_required: has_schema || before.versions.iter().all(|v| v.own.open_api_schema().is_some()),
            recognized_review_version: reviews.is_empty() || reviews.iter().any(known),
            invalid_ca_bundle: !is_condition_true(old, "Established")
                || ca_bundle(webhook.get("clientConfig")).is_err(),
            update: Some((new, old)),
        }
    }

    /// The options for the schema of a version: one that did not change may have rules that cost more than the limit.
    /// `""` stands for the schema that all versions share.
    pub(super) fn of_schema(&self, version: &str) -> Self {
        let mut options = *self;
        let versions = |definition: &'a Value| definition.at(&["spec", "versions"]).items();
        options.schema.rule_costs = self.update.is_none_or(|(new, old)| {
            let name = |v: &'a Value| v.str_at(&["name"]);
            let kept = |v: &'a Value| {
                let before = versions(old).iter().find(|o| name(o) == name(v));
                before.is_some_and(|before| before.get("schema") == v.get("schema"))
            };
            let mut concerned = versions(new)
                .iter()
                .filter(|v| version.is_empty() || name(v) == version);
            !concerned.all(kept)
        });
        options
    }

    /// True if a version may have more selectable fields than the limit, because it had the same before. `""` stands for
    /// what all versions share.
    pub(super) fn too_many_selectable(&self, version: &str) -> bool {
        let Some((new, old)) = self.update else { return false };
        let fields = |definition: &'a Value| {
            let internal = Internal::of(definition);
            if version.is_empty() {
                return Some(internal.shared.selectable);
            }
            let found = internal.versions.iter().find(|v| v.sent.str_at(&["name"]) == version);
            found.map(|v| v.own.selectable)
        };
        let (new, old) = (fields(new), fields(old));
        old.is_some_and(|old| selectable::count(old) > selectable::MAX) && new == old
    }
}
