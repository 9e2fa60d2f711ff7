//! Strategies of the resource.k8s.io kinds: ResourceClaims, their templates, DeviceClasses and ResourceSlices
//! (upstream's `pkg/registry/resource/*/strategy.go`). Permission checks are in [`access`].

mod access;

use super::common::{bump_generation, first_generation, keep_all_but_status, reset_meta};
use super::declarative::{BASE, DeclarativeStrategy};
use crate::apimachinery::field::{ErrorList, FieldPath};
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::meta::{MetaRules, validate_object_meta};
use crate::apimachinery::validation::name_is_dns_subdomain;
use crate::apimachinery::value::Value;
use crate::authz::Authorizer;
use crate::controlplane::defaults::devices as defaults;
use crate::controlplane::fields::elements_mut;
use crate::controlplane::validation::devices as check;
use crate::registry::StoreLookup;
use crate::registry::strategy::{Context, NameRule, Outcome, Rules, SideEffects, Strategy};
use async_trait::async_trait;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// The API group of dynamic resource allocation.
pub(crate) const GROUP: &str = "resource.k8s.io";

pub(crate) const DEVICE_CLASS: DeclarativeStrategy = DeclarativeStrategy {
    validate: |v| check::class(v, None),
    validate_update: Some(|new, old| check::class(new, Some(old))),
    rules: Rules::named(NameRule::Declared),
    generation: &["spec"],
    ..BASE
};

/// ResourceSlices. As upstream, a change of a field that is dropped counts for the generation.
pub(crate) const RESOURCE_SLICE: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::slice,
    prepare_create: |v| {
        first_generation(v);
        drop_disabled(v, None);
    },
    prepare_update: |new, old| {
        bump_generation(new, old, &["spec"]);
        drop_disabled(new, Some(old));
    },
    validate: |v| check::slice(&without_disabled(v, None)),
    validate_update: Some(|new, old| check::slice_update(&without_disabled(new, Some(old)), old)),
    warn: |new, _| check::slice_warnings(new),
    ..BASE
};

const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// True if an attribute is a list, even an empty one.
fn is_list(attribute: &Value) -> bool {
    LISTS.iter().any(|k| !attribute.get(k).is_null())
}

/// True if `test` holds for an attribute of a device of the slice.
fn any_attribute(slice: &Value, test: fn(&Value) -> bool) -> bool {
    let devices = slice.at(&["spec", "devices"]).items().iter();
    devices
        .filter_map(|d| d.get("attributes").as_object())
        .any(|m| m.iter().any(|(_, a)| test(a)))
}

/// The slice as it is stored: validation gets the empty lists of the body back, also those that were dropped because
/// their gate is off.
fn without_disabled<'v>(v: &'v Value, old: Option<&Value>) -> Cow<'v, Value> {
    if !any_attribute(v, is_list) {
        return Cow::Borrowed(v);
    }
    let mut stored = v.clone();
    drop_disabled(&mut stored, old);
    Cow::Owned(stored)
}

/// Drops the fields of the disabled feature gates `DRAListTypeAttributes` (list-valued attributes) and
/// `DRANodeAllocatableResources` (resource mappings), unless the stored slice already uses them.
fn drop_disabled(v: &mut Value, old: Option<&Value>) {
    // Judged for the slice as a whole: one device that uses a field keeps it for all, as upstream's `…InUse`
    // functions.
    let devices = old.map_or(&[][..], |o| o.at(&["spec", "devices"]).items());
    let had_mappings = devices
        .iter()
        .any(|d| !d.get("nodeAllocatableResourceMappings").is_empty_value());
    // Stored objects have no empty lists; validation may have added those of the body.
    let is_full = |a: &Value| LISTS.iter().any(|k| !a.get(k).is_empty_value());
    let had_lists = old.is_some_and(|old| any_attribute(old, is_full));
    for device in elements_mut(v, &["spec", "devices"]) {
        if !had_mappings {
            device.unset(&["nodeAllocatableResourceMappings"]);
        }
        if had_lists {
            continue;
        }
        let names: Vec<String> = device
            .get("attributes")
            .as_object()
            .into_iter()
            .flat_map(|m| m.iter())
            .filter(|(_, a)| is_list(a))
            .map(|(k, _)| k.to_owned())
            .collect();
        for name in names {
            for key in LISTS {
                device.unset(&["attributes", &name, key]);
            }
        }
    }
}

pub(crate) struct ResourceClaimTemplate {
    /// For namespaces, whose labels permit requests for admin access.
    pub stores: StoreLookup,
}

pub(crate) struct ResourceClaim {
    /// For namespaces, whose labels permit requests for admin access.
    pub stores: StoreLookup,
    /// Authorizes binding claims and reporting device status.
    pub authorizer: Arc<dyn Authorizer>,
}

/// Returns 422 with `found` followed by the errors of the object's validation, if `found` is not empty.
fn refuse(
    kind: &str,
    cx: &Context,
    v: &Value,
    mut found: ErrorList,
    validate: impl FnOnce(&Value) -> ErrorList,
) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    // Upstream makes these checks part of validation, so that one 422 lists both.
    match cx.empties.restored(v) {
        Some(whole) => found.extend(validate(&whole)),
        None => found.extend(validate(v)),
    }
    Err(Status::invalid(GROUP, kind, v.name(), &found))
}

/// The errors of a new object's metadata, then those of `validate`.
fn all_errors(v: &Value, validate: fn(&Value) -> ErrorList) -> ErrorList {
    let rules = MetaRules {
        namespaced: true,
        name: name_is_dns_subdomain,
        strict_finalizers: true,
    };
    let mut out = validate_object_meta(v.get("metadata"), rules, &FieldPath::new("metadata"));
    out.extend(validate(v));
    out
}

impl Strategy for ResourceClaimTemplate {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.at_mut(&["spec", "spec"]) {
            defaults::claim_spec(spec);
        }
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        check::template(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        check::template_update(new, old)
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        Some(self)
    }
}

#[async_trait]
impl SideEffects for ResourceClaimTemplate {
    async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()> {
        if old.is_some() {
            // Templates are immutable, so an update cannot request admin access anew.
            return Ok(());
        }
        // Here and not in validation, which cannot await a read of the namespace.
        let requests = new.at(&["spec", "spec", "devices", "requests"]);
        let found = access::admin_in_requests(&self.stores, new.namespace(), requests).await;
        refuse("ResourceClaimTemplate", cx, new, found, |v| {
            all_errors(v, check::template)
        })
    }

    async fn end(&self, _cx: &Context, _object: &Value, _outcome: Outcome<'_>) {}
}

impl Strategy for ResourceClaim {
    fn default(&self, object: &mut Value) {
        defaults::claim(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        object.set(&["status"], Value::object());
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        check::claim(object)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        restore(new, old, &["status"]);
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        check::claim_update(new, old)
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        reset_meta(new, old);
        drop_deallocated(new, old);
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> ErrorList {
        check::claim_status(new, old)
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "metadata"],
            _ => &["status"],
        }
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        Some(self)
    }
}

#[async_trait]
impl SideEffects for ResourceClaim {
    async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()> {
        let Some(old) = old else {
            let requests = new.at(&["spec", "devices", "requests"]);
            let found = access::admin_in_requests(&self.stores, new.namespace(), requests).await;
            return refuse("ResourceClaim", cx, new, found, |v| all_errors(v, check::claim));
        };
        // Applies to status updates in effect: the main resource cannot change the fields checked here.
        let mut found = access::admin_in_results(&self.stores, new, old).await;
        found.extend(access::binding(&*self.authorizer, cx, new, old).await);
        found.extend(access::devices(&*self.authorizer, cx, new, old).await);
        refuse("ResourceClaim", cx, new, found, |v| check::claim_status(v, old))
    }

    async fn end(&self, _cx: &Context, _object: &Value, _outcome: Outcome<'_>) {}
}

/// Removes the device status entries of devices that are no longer allocated to the claim.
fn drop_deallocated(new: &mut Value, old: &Value) {
    let id = |v: &Value| ["driver", "pool", "device", "shareID"].map(|k| v.str_at(&[k]).to_owned());
    let allocated = |v: &Value| -> HashSet<[String; 4]> {
        let results = v.at(&["status", "allocation", "devices", "results"]);
        results.items().iter().map(id).collect()
    };
    let now = allocated(new);
    // Sets, because clients choose the length of both lists.
    let gone: HashSet<[String; 4]> = allocated(old).into_iter().filter(|d| !now.contains(d)).collect();
    let devices = new.at(&["status", "devices"]);
    if gone.is_empty() || devices.is_null() {
        return;
    }
    let kept: Vec<Value> = devices
        .items()
        .iter()
        .filter(|d| !gone.contains(&id(d)))
        .cloned()
        .collect();
    if kept.is_empty() {
        new.unset(&["status", "devices"]);
    } else {
        new.set(&["status", "devices"], kept);
    }
}

#[cfg(test)]
mod tests;
