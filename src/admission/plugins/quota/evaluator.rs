//! [`Evaluator`]: which quota resources apply to an object, and how much of each it uses (upstream's
//! `pkg/quota/v1/evaluator/core` and the generic `objectCountEvaluator`).

use super::super::resources::quantity;
use super::amounts::Amounts;
use super::pods;
use super::scopes::{Selector, is_terminating};
use crate::admission::{Attributes, Operation};
use crate::apimachinery::gvk::{GroupResource, GroupVersionResource};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::value::Value;

/// How the objects of a resource are counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Evaluator<'a> {
    Pods,
    Services,
    Claims,
    ResourceClaims,
    /// By number only.
    Objects(&'a GroupResource),
}

const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const ATTRIBUTES_CLASS: &str = ".volumeattributesclass.storage.k8s.io/";
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// Maximum number of devices allocated to one request, hence the worst case for `allocationMode: All`.
const MAX_DEVICES: i64 = 32;

const ONE: Quantity = Quantity::from_i64(1);

/// The legacy quota name for the number of these objects.
fn alias(resource: &GroupResource) -> Option<&'static str> {
    match (&*resource.group, &*resource.resource) {
        ("", "configmaps") => Some("configmaps"),
        ("", "secrets") => Some("secrets"),
        ("", "replicationcontrollers") => Some("replicationcontrollers"),
        ("", "resourcequotas") => Some("resourcequotas"),
        _ => None,
    }
}

impl<'a> Evaluator<'a> {
    /// The evaluator of a resource.
    pub(super) fn of(resource: &'a GroupResource) -> Self {
        match (&*resource.group, &*resource.resource) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            ("resource.k8s.io", "resourceclaims") => Self::ResourceClaims,
            _ => Self::Objects(resource),
        }
    }

    /// True if an update can change an object's usage.
    pub(super) fn follows_updates(resource: &GroupVersionResource) -> bool {
        let resource = GroupResource::new(&resource.group, &resource.resource);
        Evaluator::of(&resource).reads_content()
    }

    /// True if usage depends on more than the number of objects.
    pub(super) fn reads_content(self) -> bool {
        !matches!(self, Self::Objects(_))
    }

    /// True if this write can change the usage.
    pub(super) fn handles(self, attributes: &Attributes, object: &Value) -> bool {
        let update = attributes.operation == Operation::Update;
        match self {
            Self::Pods if update && attributes.subresource.is_empty() => {
                let old = attributes.old_object.as_deref();
                // Nothing else that an update may change affects the usage; resizes have their own subresource.
                old.is_some_and(|old| is_terminating(old) != is_terminating(object))
            }
            Self::Pods if attributes.subresource == "resize" => update,
            Self::Objects(_) => !update,
            _ => true,
        }
    }

    /// True if the quota resource `name` applies to these objects.
    pub(super) fn counts(self, name: &str) -> bool {
        let of_claims = |name: &str| matches!(name, "persistentvolumeclaims" | "requests.storage");
        match self {
            Self::Pods => pods::counts(name),
            Self::Services => matches!(
                name,
                "count/services" | "services" | "services.nodeports" | "services.loadbalancers"
            ),
            Self::Claims => {
                name == "count/persistentvolumeclaims"
                    || of_claims(name)
                    || [STORAGE_CLASS, ATTRIBUTES_CLASS].iter().any(|middle| {
                        // From the right: names of classes may contain dots.
                        let rest = name.rsplit_once(middle);
                        rest.is_some_and(|(_, resource)| of_claims(resource))
                    })
            }
            Self::ResourceClaims => name == "count/resourceclaims.resource.k8s.io" || name.ends_with(DEVICES),
            Self::Objects(resource) => {
                let counted = name
                    .strip_prefix("count/")
                    .and_then(|n| n.strip_prefix(&*resource.resource));
                let same = |rest: &str| match &*resource.group {
                    "" => rest.is_empty(),
                    group => rest.strip_prefix('.') == Some(group),
                };
                counted.is_some_and(same) || alias(resource) == Some(name)
            }
        }
    }

    /// True if the object is in the scope. Only pods and claims have scopes.
    pub(super) fn matches_scope(self, selector: &Selector, object: &Value) -> bool {
        match self {
            Self::Pods => selector.matches_pod(object),
            Self::Claims => selector.matches_claim(object),
            _ => false,
        }
    }

    /// The error if the object lacks values that a quota on these resources requires.
    pub(super) fn missing<'n>(self, required: impl Iterator<Item = &'n str>, object: &Value) -> Option<String> {
        match self {
            Self::Pods => pods::missing(required, object),
            _ => None,
        }
    }

    /// The usage of an object.
    pub(super) fn usage(self, object: &Value) -> Amounts {
        match self {
            Self::Pods => pods::usage(object),
            Self::Services => of_service(object),
            Self::Claims => of_claim(object),
            Self::ResourceClaims => of_resource_claim(object),
            Self::Objects(resource) => {
                let mut amounts = Amounts::from([(format!("count/{resource}"), ONE)]);
                amounts.extend(alias(resource).map(|name| (name.to_owned(), ONE)));
                amounts
            }
        }
    }
}

/// Quota runs before node ports are allocated, so the ports that will be allocated are counted.
fn of_service(service: &Value) -> Amounts {
    let spec = service.get("spec");
    let ports = spec.get("ports").items();
    let number = |n: usize| Quantity::from_i64(i64::try_from(n).unwrap_or(i64::MAX));
    let (balancers, node_ports) = match spec.str_at(&["type"]) {
        "NodePort" => (0, ports.len()),
        // Only ports that the client asked for by number are allocated then.
        "LoadBalancer" if spec.get("allocateLoadBalancerNodePorts").as_bool() == Some(false) => {
            let set = |port: &&Value| port.get("nodePort").as_i64().unwrap_or(0) != 0;
            (1, ports.iter().filter(set).count())
        }
        "LoadBalancer" => (1, ports.len()),
        _ => (0, 0),
    };
    [
        ("count/services", ONE),
        ("services", ONE),
        ("services.loadbalancers", number(balancers)),
        ("services.nodeports", number(node_ports)),
    ]
    .map(|(name, quantity)| (name.to_owned(), quantity))
    .into()
}

fn of_claim(claim: &Value) -> Amounts {
    let class = claim.annotation("volume.beta.kubernetes.io/storage-class");
    let class = class.unwrap_or_else(|| claim.str_at(&["spec", "storageClassName"]));
    let attributes = claim.str_at(&["spec", "volumeAttributesClassName"]);
    let asked = quantity(claim.at(&["spec", "resources", "requests", "storage"]));
    let given = quantity(claim.at(&["status", "allocatedResources", "storage"]));
    // Storage is charged in whole bytes.
    let whole = |q: Quantity| {
        if q.is_integer() {
            q
        } else {
            Quantity::from_i64(q.value())
        }
    };
    // The allocation may exceed the request after a failed expansion.
    let storage = asked.map(|asked| whole(given.filter(|given| *given > asked).unwrap_or(asked)));
    let mut amounts = Amounts::from([("count/persistentvolumeclaims".to_owned(), ONE)]);
    let names = [("", ""), (class, STORAGE_CLASS), (attributes, ATTRIBUTES_CLASS)];
    for (class, middle) in names
        .into_iter()
        .filter(|(c, middle)| !c.is_empty() || middle.is_empty())
    {
        amounts.insert(format!("{class}{middle}persistentvolumeclaims"), ONE);
        amounts.extend(storage.map(|q| (format!("{class}{middle}requests.storage"), q)));
    }
    amounts
}

/// Devices by class. If a request has alternatives, the largest count of each class is charged.
fn of_resource_claim(claim: &Value) -> Amounts {
    fn devices(request: &Value) -> (String, Quantity) {
        let count = match request.str_at(&["allocationMode"]) {
            "All" => MAX_DEVICES,
            "" | "ExactCount" => request.get("count").as_i64().unwrap_or(1),
            _ => 0,
        };
        let class = request.str_at(&["deviceClassName"]);
        (format!("{class}{DEVICES}"), Quantity::from_i64(count))
    }
    let mut amounts = Amounts::from([("count/resourceclaims.resource.k8s.io".to_owned(), ONE)]);
    for request in claim.at(&["spec", "devices", "requests"]).items() {
        let alternatives = request.get("firstAvailable").items();
        let mut most = Amounts::new();
        match (alternatives, request.get("exactly")) {
            ([], Value::Null) => most.extend([devices(request)]),
            ([], exactly) => most.extend([devices(exactly)]),
            (alternatives, _) => {
                for (name, count) in alternatives.iter().map(devices) {
                    let greatest = most.get(&name).map_or(count, |q| (*q).max(count));
                    most.insert(name, greatest);
                }
            }
        }
        for (name, count) in most {
            let sum = amounts.get(&name).map_or(count, |q| q.plus(count));
            amounts.insert(name, sum);
        }
    }
    amounts
}

#[cfg(test)]
mod tests {
    use super::super::amounts::format_amounts;
    use super::*;
    use crate::json;

    #[test]
    fn services_are_charged_for_future_node_ports() {
        let service = |spec: Value| format_amounts(&of_service(&json!({"spec": (spec)})));
        let ports = json!([{"port": 80}, {"port": 81, "nodePort": 30000}]);
        let common = "count/services=1,services=1,services.loadbalancers";
        for (spec, want) in [
            (
                json!({"type": "ClusterIP", "ports": (ports.clone())}),
                "0,services.nodeports=0",
            ),
            (
                json!({"type": "NodePort", "ports": (ports.clone())}),
                "0,services.nodeports=2",
            ),
            (
                json!({"type": "LoadBalancer", "ports": (ports.clone())}),
                "1,services.nodeports=2",
            ),
            (
                json!({"type": "LoadBalancer", "ports": (ports), "allocateLoadBalancerNodePorts": false}),
                "1,services.nodeports=1",
            ),
        ] {
            assert_eq!(service(spec), format!("{common}={want}"));
        }
    }

    #[test]
    fn claims_are_also_charged_by_class() {
        let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"allocatedResources": {"storage": "2Gi"}}});
        let amounts = of_claim(&claim);
        assert_eq!(
            format_amounts(&amounts),
            "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             gold.storageclass.storage.k8s.io/requests.storage=2Gi,persistentvolumeclaims=1,requests.storage=2Gi"
        );
        assert!(amounts.keys().all(|name| Evaluator::Claims.counts(name)));
        assert!(!Evaluator::Claims.counts("gold.storageclass.storage.k8s.io/cpu"));
        let odd = json!({"spec": {"resources": {"requests": {"storage": "1500m"}}}});
        assert!(format_amounts(&of_claim(&odd)).ends_with("requests.storage=2"));
    }

    #[test]
    fn device_requests_are_charged_for_the_worst_case() {
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
            {"name": "b", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
            {"name": "c", "firstAvailable": [{"deviceClassName": "gpu", "count": 1}, {"deviceClassName": "gpu", "count": 4}]}]}}});
        assert_eq!(
            format_amounts(&of_resource_claim(&claim)),
            "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=6,\
             nic.deviceclass.resource.k8s.io/devices=32"
        );
    }

    #[test]
    fn other_objects_are_counted_by_number() {
        let deployments = GroupResource::new("apps", "deployments");
        let secrets = GroupResource::new("", "secrets");
        assert_eq!(
            format_amounts(&Evaluator::of(&deployments).usage(&Value::Null)),
            "count/deployments.apps=1"
        );
        assert_eq!(
            format_amounts(&Evaluator::of(&secrets).usage(&Value::Null)),
            "count/secrets=1,secrets=1"
        );
        for (name, of_deployments, of_secrets) in [
            ("count/deployments.apps", true, false),
            ("count/deployments", false, false),
            ("count/secrets", false, true),
            ("secrets", false, true),
            ("count/secrets.apps", false, false),
        ] {
            assert_eq!(Evaluator::of(&deployments).counts(name), of_deployments, "{name}");
            assert_eq!(Evaluator::of(&secrets).counts(name), of_secrets, "{name}");
        }
    }
}
