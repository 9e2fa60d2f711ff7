//! Kinds that are served in more than one version: which, and how objects become those of the other version.
//!
//! One version is the hub: it is stored, prepared and judged. Whatever names fields (managed fields of several
//! versions, applies through one version over entries of the other) converts whole objects and compares those.

mod autoscaling;
mod events;

use crate::api::apply_schema::ApplyType;
use crate::api::{TypeDef, by_gvk, decode};
use crate::apimachinery::apply::{AtVersion, Versions};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::registry::converting::Conversion;

/// Two versions of one kind.
pub struct Pair {
    /// Group and version that is stored.
    pub hub: (&'static str, &'static str),
    /// Group and version that is served beside it.
    pub spoke: (&'static str, &'static str),
    /// The kind in both.
    pub kind: &'static str,
    to_hub: fn(&mut Value),
    to_spoke: fn(&mut Value),
    /// Defaults of the hub.
    complete: fn(&mut Value),
    /// Annotations of the spoke that are fields of the hub.
    annotations: &'static [&'static str],
    /// The spoke's name of a selectable field of the hub.
    field: fn(&str) -> Option<&str>,
}

/// autoscaling/v1 over v2.
pub static AUTOSCALERS: Pair = Pair {
    hub: ("autoscaling", "v2"),
    spoke: ("autoscaling", "v1"),
    kind: "HorizontalPodAutoscaler",
    to_hub: autoscaling::to_v2,
    to_spoke: autoscaling::to_v1,
    complete: super::defaults::autoscaling::v2,
    annotations: &autoscaling::ANNOTATIONS,
    field: |name| Some(name),
};

/// events.k8s.io/v1 over core/v1.
pub static EVENTS: Pair = Pair {
    hub: ("", "v1"),
    spoke: ("events.k8s.io", "v1"),
    kind: "Event",
    to_hub: events::to_core,
    to_spoke: events::to_new,
    complete: |_| (),
    annotations: &[],
    field: events::field,
};

const ALL: [&Pair; 2] = [&AUTOSCALERS, &EVENTS];

fn api_version((group, version): (&str, &str)) -> String {
    GroupVersion::new(group, version).to_string()
}

impl Pair {
    /// The pair a built-in type belongs to.
    fn of(def: &TypeDef) -> Option<&'static Self> {
        let is = |p: &Self, at| def.gvks.iter().any(|(g, v, k)| (*g, *v) == at && *k == p.kind);
        ALL.into_iter().find(|p| is(p, p.hub) || is(p, p.spoke))
    }

    /// The pair whose other version objects of `from` are, where `to` is the stored one.
    pub fn between(from: &GroupVersion, to: &GroupVersion, kind: &str) -> Option<&'static Self> {
        let is = |gv: &GroupVersion, at: (&str, &str)| gv.group == at.0 && gv.version == at.1;
        let mut all = ALL.into_iter();
        all.find(|p| is(from, p.spoke) && is(to, p.hub) && p.kind == kind)
    }

    /// The version that is stored of a kind of two.
    pub fn hub_of(gv: &GroupVersion, kind: &str) -> Option<GroupVersion> {
        let is = |at: (&str, &str)| gv.group == at.0 && gv.version == at.1;
        let pair = ALL.into_iter().find(|p| (is(p.spoke) || is(p.hub)) && p.kind == kind)?;
        Some(GroupVersion::new(pair.hub.0, pair.hub.1))
    }

    /// The stored object of one in the other version, defaults included.
    pub fn stored(&self, served: Value) -> Value {
        let mut stored = self.convert(served, self.hub, self.to_hub);
        (self.complete)(&mut stored);
        stored
    }

    fn convert(&self, mut object: Value, to: (&str, &str), change: fn(&mut Value)) -> Value {
        change(&mut object);
        let map = object.make_object();
        map.insert("apiVersion", api_version(to));
        map.insert("kind", self.kind);
        // Metadata is the same in all versions; what stands in it (an empty managedFields, say) is not to be touched.
        let metadata = map.remove("metadata");
        if let Some(def) = by_gvk(to.0, to.1, self.kind) {
            // Conversions give well-typed members; this adds what the version always writes.
            let _ = decode::normalize(def, &mut object);
        }
        if let Some(metadata) = metadata {
            object.set(&["metadata"], metadata);
        }
        object
    }
}

impl Conversion for &'static Pair {
    fn serve(&self, stored: Value) -> Value {
        self.convert(stored, self.spoke, self.to_spoke)
    }

    fn store(&self, served: Value) -> Value {
        self.convert(served, self.hub, self.to_hub)
    }

    fn complete(&self, stored: &mut Value) {
        (self.complete)(stored);
    }

    fn wire_annotations(&self) -> &'static [&'static str] {
        self.annotations
    }

    fn served_field<'a>(&self, stored: &'a str) -> Option<&'a str> {
        (self.field)(stored)
    }
}

/// The versions a built-in kind is known in.
#[derive(Clone, Copy)]
pub struct Known(pub &'static TypeDef);

const HUB: usize = 0;
const SPOKE: usize = 1;

impl Known {
    fn own(&self) -> (&'static str, &'static str) {
        self.0.gvks.first().map_or(("", ""), |(g, v, _)| (*g, *v))
    }
}

impl Versions<ApplyType> for Known {
    fn at(&self, object: &Value, wanted: &str) -> AtVersion<ApplyType> {
        let Some(shape) = self.shape(wanted) else {
            return AtVersion::Unknown;
        };
        let Some(pair) = Pair::of(self.0) else {
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
        let Some(pair) = Pair::of(self.0) else {
            let own = self.own();
            return (wanted == api_version(own) || older(own.0, wanted)).then_some(HUB);
        };
        let (hub, spoke) = (api_version(pair.hub), api_version(pair.spoke));
        if wanted == hub || (wanted != spoke && older(pair.hub.0, wanted)) {
            Some(HUB)
        } else {
            (wanted == spoke || older(pair.spoke.0, wanted)).then_some(SPOKE)
        }
    }
}

/// Versions before the served one that upstream still has types for: `apps/v1beta1`. Their fields are the same.
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
    fn every_pair_names_types_there_are() {
        for p in ALL {
            for (g, v) in [p.hub, p.spoke] {
                let def = by_gvk(g, v, p.kind).unwrap();
                assert!(std::ptr::eq(Pair::of(def).unwrap(), p));
            }
        }
    }

    #[test]
    fn a_version_nobody_knows_is_unknown() {
        let def = by_gvk("", "v1", "ConfigMap").unwrap();
        let v = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        assert!(matches!(Known(def).at(&v, "v9"), AtVersion::Unknown));
        assert!(matches!(Known(def).at(&v, "v1"), AtVersion::Same));
        let def = by_gvk("apps", "v1", "Deployment").unwrap();
        let v = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        assert!(matches!(Known(def).at(&v, "apps/v1beta2"), AtVersion::Same));
        assert!(matches!(Known(def).at(&v, "batch/v1"), AtVersion::Unknown));
    }
}
