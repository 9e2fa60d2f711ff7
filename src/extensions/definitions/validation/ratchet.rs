//! Which rules an update enforces: none that the stored definition violates already, so that it can still be
//! changed.

use super::selectable;
use super::webhook::{REVIEW_VERSIONS, ca_bundle};
use crate::apimachinery::interrupt::checkpoint;
use crate::apimachinery::value::Value;
use crate::extensions::definitions::internal::Internal;
use crate::extensions::definitions::is_condition_true;
use crate::schema::definition::{self, Ratcheted};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

#[derive(Clone)]
pub(super) struct Options<'a> {
    /// The rules of schemas.
    pub(super) schema: definition::Options,
    /// Every version needs a schema.
    pub(super) schema_required: bool,
    /// The webhook must accept a version of ConversionReview that exists.
    pub(super) recognized_review_version: bool,
    /// A CA bundle that cannot be used is accepted.
    pub(super) invalid_ca_bundle: bool,
    /// The fields that an update leaves unchanged; `None` for a new definition.
    kept: Option<Rc<Unchanged<'a>>>,
}

/// Which fields an update leaves unchanged in which versions. Computed once: a definition may have as many
/// versions as fit into a request.
struct Unchanged<'a> {
    /// Whether the schemas of all versions with this name are as before.
    schemas: HashMap<&'a str, bool>,
    all_schemas: bool,
    /// The versions that keep more selectable fields than the limit.
    selectable: HashSet<&'a str>,
    /// Whether the fields that all versions share are such.
    shared_selectable: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            schema: definition::Options::default(),
            schema_required: true,
            recognized_review_version: true,
            // A new definition is not established, and nothing calls its webhook.
            invalid_ca_bundle: true,
            kept: None,
        }
    }
}

impl<'a> Options<'a> {
    pub(super) fn of(new: &'a Value, old: &'a Value) -> Self {
        let before = Internal::of(old);
        // A rule is enforced if every stored schema obeys it.
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
                // Costs are handled per version, in `of_schema`.
                rule_costs: true,
            },
            // Upstream requires schemas unless the stored definition lacks one.
            schema_required: has_schema || before.versions.iter().all(|v| v.own.open_api_schema().is_some()),
            recognized_review_version: reviews.is_empty() || reviews.iter().any(known),
            invalid_ca_bundle: !is_condition_true(old, "Established")
                || ca_bundle(webhook.get("clientConfig")).is_err(),
            // Shared by the options of all versions, which are cloned for each.
            kept: Some(Rc::new(Unchanged::of(new, old))),
        }
    }

    /// The options for the schema of a version: one that did not change may have rules that cost more than
    /// the limit. `""` stands for the schema that all versions share.
    pub(super) fn of_schema(&self, version: &str) -> Self {
        // Cheap: the expensive part is behind an `Rc`.
        let mut options = self.clone();
        options.schema.rule_costs = !self.kept.as_ref().is_some_and(|kept| match version {
            "" => kept.all_schemas,
            name => kept.schemas.get(name) == Some(&true),
        });
        options
    }

    /// True if a version may have more selectable fields than the limit, because it had the same before. `""`
    /// stands for what all versions share.
    pub(super) fn too_many_selectable(&self, version: &str) -> bool {
        self.kept.as_ref().is_some_and(|kept| match version {
            "" => kept.shared_selectable,
            name => kept.selectable.contains(name),
        })
    }
}

impl<'a> Unchanged<'a> {
    fn of(new: &'a Value, old: &'a Value) -> Self {
        let versions = |definition: &'a Value| definition.at(&["spec", "versions"]).items();
        let name = |v: &'a Value| v.str_at(&["name"]);
        // If several versions have the same name, the first one is used.
        // `collect` keeps the last of equal keys, so the order is reversed.
        let before: HashMap<&str, &Value> = versions(old).iter().rev().map(|v| (name(v), v)).collect();
        let (mut schemas, mut all_schemas) = (HashMap::new(), true);
        for version in versions(new) {
            checkpoint();
            let kept = before
                .get(name(version))
                .is_some_and(|before| before.get("schema") == version.get("schema"));
            // All versions of one name must be unchanged, since the name does not tell which one is meant.
            *schemas.entry(name(version)).or_insert(true) &= kept;
            all_schemas &= kept;
        }
        let (new, old) = (Internal::of(new), Internal::of(old));
        let many = |fields: &Value| selectable::count(fields) > selectable::MAX;
        let by_name = |internal: &Internal<'a>| -> HashMap<&'a str, &'a Value> {
            let versions = internal.versions.iter().rev();
            versions.map(|v| (v.sent.str_at(&["name"]), v.own.selectable)).collect()
        };
        let (after, before) = (by_name(&new), by_name(&old));
        let kept = after
            .into_iter()
            // Only versions that exceeded the limit before may exceed it now, with the same fields.
            .filter(|(name, fields)| before.get(name).is_some_and(|before| many(before) && before == fields));
        Self {
            schemas,
            all_schemas,
            selectable: kept.map(|(name, _)| name).collect(),
            shared_selectable: many(old.shared.selectable) && new.shared.selectable == old.shared.selectable,
        }
    }
}
