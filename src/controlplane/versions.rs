//! Conversion of built-in kinds that are served in two versions: HorizontalPodAutoscalers and events.
//!
//! Start at [`VersionPair`]. One version, the hub, is stored, defaulted and validated; objects of the other,
//! the spoke, are converted when read and written. Field ownership across versions converts whole objects
//! ([`BuiltinVersions`]) rather than field paths.

pub(super) mod autoscaling;
mod events;

use crate::api::apply_schema::ApplyType;
use crate::api::{TypeDef, by_gvk, decode};
use crate::apimachinery::apply::{AtVersion, Versions};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::registry::converting::{Pair, RenameField};

/// A kind with two versions, and the conversions between them.
pub(crate) struct VersionPair {
    /// Group and version that are stored.
    pub hub: (&'static str, &'static str),
    /// Group and version that are served in addition.
    pub spoke: (&'static str, &'static str),
    /// The kind, which has the same name in both versions.
    pub kind: &'static str,
    to_hub: fn(&mut Value),
    to_spoke: fn(&mut Value),
    /// Applies the hub's defaults.
    apply_defaults: fn(&mut Value),
    /// Annotations of the spoke that represent fields of the hub.
    annotations: &'static [&'static str],
    /// Maps a selectable field of the hub to its name in the spoke; `None` if the spoke does not support it.
    pub field: RenameField,
}

/// HorizontalPodAutoscalers: stored as autoscaling/v2, also served as v1.
pub(crate) static AUTOSCALERS: VersionPair = VersionPair {
    hub: ("autoscaling", "v2"),
    spoke: ("autoscaling", "v1"),
    kind: "HorizontalPodAutoscaler",
    to_hub: autoscaling::to_v2,
    to_spoke: autoscaling::to_v1,
    apply_defaults: super::defaults::autoscaling::v2,
    annotations: &autoscaling::ANNOTATIONS,
    field: |name| Some(name),
};

/// Events: stored as core/v1, also served as events.k8s.io/v1.
pub(crate) static EVENTS: VersionPair = VersionPair {
    hub: ("", "v1"),
    spoke: ("events.k8s.io", "v1"),
    kind: "Event",
    to_hub: events::to_core,
    to_spoke: events::to_new,
    // core/v1 has no defaults for Events.
    apply_defaults: |_| (),
    annotations: &[],
    field: events::field,
};

const ALL: [&VersionPair; 2] = [&AUTOSCALERS, &EVENTS];

fn api_version((group, version): (&str, &str)) -> String {
    GroupVersion::new(group, version).to_string()
}

impl VersionPair {
    /// The pair that a built-in type belongs to, as hub or spoke.
    fn of(def: &TypeDef) -> Option<&'static Self> {
        let is = |p: &Self, at| def.gvks.iter().any(|(g, v, k)| (*g, *v) == at && *k == p.kind);
        ALL.into_iter().find(|p| is(p, p.hub) || is(p, p.spoke))
    }

    /// The pair of this kind with `from` as spoke and `to` as hub.
    pub(crate) fn between(from: &GroupVersion, to: &GroupVersion, kind: &str) -> Option<&'static Self> {
        let is = |gv: &GroupVersion, at: (&str, &str)| gv.group == at.0 && gv.version == at.1;
        let mut all = ALL.into_iter();
        all.find(|p| is(from, p.spoke) && is(to, p.hub) && p.kind == kind)
    }

    /// The stored version of a kind; `None` if it does not have two versions.
    pub(crate) fn hub_of(gv: &GroupVersion, kind: &str) -> Option<GroupVersion> {
        let is = |at: (&str, &str)| gv.group == at.0 && gv.version == at.1;
        let pair = ALL.into_iter().find(|p| (is(p.spoke) || is(p.hub)) && p.kind == kind)?;
        Some(GroupVersion::new(pair.hub.0, pair.hub.1))
    }

    /// Converts an object of the spoke to the hub and applies defaults.
    pub(crate) fn stored(&self, served: Value) -> Value {
        let mut stored = self.convert(served, self.hub, self.to_hub);
        (self.apply_defaults)(&mut stored);
        stored
    }

    fn convert(&self, mut object: Value, to: (&str, &str), change: fn(&mut Value)) -> Value {
        change(&mut object);
        let map = object.make_object();
        map.insert("apiVersion", api_version(to));
        map.insert("kind", self.kind);
        // Metadata is version-independent and must stay as it is (an empty `managedFields`, for example), so
        // it is excluded from normalization.
        let metadata = map.remove("metadata");
        if let Some(def) = by_gvk(to.0, to.1, self.kind) {
            // Cannot fail, since conversions yield well-typed members; it adds members the version always
            // encodes.
            let _ = decode::normalize(def, &mut object);
        }
        if let Some(metadata) = metadata {
            object.set(&["metadata"], metadata);
        }
        object
    }
}

impl Pair for &'static VersionPair {
    fn hub(&self) -> String {
        api_version(self.hub)
    }

    fn spoke(&self) -> String {
        api_version(self.spoke)
    }

    fn serve(&self, stored: Value) -> Value {
        self.convert(stored, self.spoke, self.to_spoke)
    }

    fn store(&self, served: Value) -> Value {
        self.convert(served, self.hub, self.to_hub)
    }

    fn complete(&self, stored: &mut Value) {
        (self.apply_defaults)(stored);
    }

    fn wire_annotations(&self) -> &'static [&'static str] {
        self.annotations
    }

    fn field_names(&self) -> RenameField {
        self.field
    }
}

/// Versions of a built-in kind, for server-side apply and managed fields.
#[derive(Clone, Copy)]
pub(crate) struct BuiltinVersions(pub &'static TypeDef);

// Indexes into `[pair.hub, pair.spoke]`, which double as the shapes of `Versions`.
const HUB: usize = 0;
const SPOKE: usize = 1;

impl BuiltinVersions {
    fn own(&self) -> (&'static str, &'static str) {
        self.0.gvks.first().map_or(("", ""), |(g, v, _)| (*g, *v))
    }
}

impl Versions<ApplyType> for BuiltinVersions {
    fn at(&self, object: &Value, wanted: &str) -> AtVersion<ApplyType> {
        let Some(shape) = self.shape(wanted) else {
            return AtVersion::Unknown;
        };
        let Some(pair) = VersionPair::of(self.0) else {
            return AtVersion::Same;
        };
        let target = [pair.hub, pair.spoke][shape];
        let at = match object.api_version() {
            "" => api_version(self.own()),
            v => v.to_owned(),
        };
        let object = object.clone();
        let converted = match shape {
            _ if at == api_version(target) => object,
            HUB => pair.store(object),
            _ => pair.serve(object),
        };
        by_gvk(target.0, target.1, pair.kind).map_or(AtVersion::Unknown, |def| {
            AtVersion::Converted(converted, ApplyType::Root(def))
        })
    }

    fn shape(&self, wanted: &str) -> Option<usize> {
        let Some(pair) = VersionPair::of(self.0) else {
            let own = self.own();
            return (wanted == api_version(own) || older(own.0, wanted)).then_some(HUB);
        };
        let (hub, spoke) = (api_version(pair.hub), api_version(pair.spoke));
        // Upstream converts within one group only, and drops the owners of a version it cannot convert to.
        // Events are in two groups.
        let own = self.own();
        if pair.hub.0 != pair.spoke.0 && wanted != api_version(own) && !older(own.0, wanted) {
            return None;
        }
        if wanted == hub || (wanted != spoke && older(pair.hub.0, wanted)) {
            Some(HUB)
        } else {
            (wanted == spoke || older(pair.spoke.0, wanted)).then_some(SPOKE)
        }
    }
}

/// True for older versions of a group, such as `apps/v1beta1`, that managed fields may still refer to.
/// Upstream still has their types; their fields are treated as the same.
fn older(group: &str, wanted: &str) -> bool {
    wanted.split_once('/').is_some_and(|(g, v)| {
        g == group && !g.is_empty() && v.starts_with('v') && (v.contains("alpha") || v.contains("beta"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn pairs_refer_to_existing_types() {
        for p in ALL {
            for (g, v) in [p.hub, p.spoke] {
                let def = by_gvk(g, v, p.kind).unwrap();
                assert!(std::ptr::eq(VersionPair::of(def).unwrap(), p));
            }
        }
    }

    #[test]
    fn owners_in_the_other_group_of_an_event_are_unknown() {
        for (own, other) in [(EVENTS.hub, EVENTS.spoke), (EVENTS.spoke, EVENTS.hub)] {
            let versions = BuiltinVersions(by_gvk(own.0, own.1, "Event").unwrap());
            let v = json!({"apiVersion": (api_version(own)), "kind": "Event"});
            assert!(matches!(versions.at(&v, &api_version(other)), AtVersion::Unknown));
            assert!(matches!(versions.at(&v, &api_version(own)), AtVersion::Converted(..)));
        }
    }

    #[test]
    fn unknown_version_is_not_converted() {
        let def = by_gvk("", "v1", "ConfigMap").unwrap();
        let v = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        assert!(matches!(BuiltinVersions(def).at(&v, "v9"), AtVersion::Unknown));
        assert!(matches!(BuiltinVersions(def).at(&v, "v1"), AtVersion::Same));
        let def = by_gvk("apps", "v1", "Deployment").unwrap();
        let v = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        assert!(matches!(BuiltinVersions(def).at(&v, "apps/v1beta2"), AtVersion::Same));
        assert!(matches!(BuiltinVersions(def).at(&v, "batch/v1"), AtVersion::Unknown));
    }
}
