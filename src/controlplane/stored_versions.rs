//! Upgrades stored objects on read: converts those in another API version to the stored version, and applies
//! defaults that they lack. Upstream's storage codec does the same. Needed for data written by a
//! kube-apiserver or an older release.
//!
//! Start at [`convert_stored`], which is called per object read, or [`update`], which migrates a whole store.

use super::versions::VersionPair;
use crate::api::{by_gvk, decode};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::Value;
use crate::registry::resource::Resource;
use crate::storage::Undecodable;
use crate::storage::backend::ConvertStored;
use std::sync::Arc;

/// The function that turns a stored object into the served one. Returns true if it was in another version.
pub(crate) fn convert_stored(row: &Resource) -> ConvertStored {
    let (gvk, strategy) = (row.gvk(), row.strategy.clone());
    let own = gvk.group_version();
    Arc::new(move |object| {
        let converted = convert(object, &own, &gvk.kind)?;
        // Objects of the current version too: an older release may not have known a default that clients rely
        // on now.
        strategy.default(object);
        Ok(converted)
    })
}

/// Converts the object to this version in place. Returns false if it already is in that version.
///
/// # Errors
/// The object's version or kind is unknown (with upstream's message), or it is of another kind.
pub(crate) fn convert(object: &mut Value, to: &GroupVersion, kind: &str) -> Result<bool, Undecodable> {
    let (version, found) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    let unknown = || Undecodable::UnknownKind {
        version: version.to_owned(),
        kind: found.to_owned(),
    };
    let from = GroupVersion::parse(version).ok_or_else(unknown)?;
    if from == *to && found == kind {
        return Ok(false);
    }
    if let Some(pair) = VersionPair::between(&from, to, found).filter(|_| found == kind) {
        let stored = pair.stored(std::mem::take(object));
        *object = stored;
        return Ok(true);
    }
    // Distinguishes an unknown version from a known one of another kind; the messages differ.
    by_gvk(&from.group, &from.version, found).ok_or_else(unknown)?;
    let Some(def) = by_gvk(&to.group, &to.version, kind).filter(|_| found == kind && from.group == to.group) else {
        return Err(Undecodable::OtherKind {
            version: version.to_owned(),
            found: found.to_owned(),
            to: to.clone(),
            kind: kind.to_owned(),
        });
    };
    // Only v1beta1 is structured differently; v1beta2 has v1's fields.
    if from.group == "resource.k8s.io" && from.version == "v1beta1" {
        match kind {
            "ResourceClaim" => requests(object.at_mut(&["spec"])),
            "ResourceClaimTemplate" => requests(object.at_mut(&["spec", "spec"])),
            "ResourceSlice" => devices(object),
            _ => {}
        }
    }
    // All other versions have the same fields (checked by a test below).
    object.set(&["apiVersion"], to.to_string());
    decode::normalize(def, object)?;
    Ok(true)
}

/// The stored version of kinds with several versions, except those with a conversion [`VersionPair`].
/// Includes kinds that this server does not serve, because a migrated store may hold them.
const STORED_VERSIONS: [(&str, &str, &str); 12] = [
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", "v1"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", "v1"),
    ("certificates.k8s.io", "ClusterTrustBundle", "v1beta1"),
    ("coordination.k8s.io", "LeaseCandidate", "v1beta1"),
    ("networking.k8s.io", "IPAddress", "v1"),
    ("networking.k8s.io", "ServiceCIDR", "v1"),
    ("resource.k8s.io", "DeviceClass", "v1"),
    ("resource.k8s.io", "DeviceTaintRule", "v1beta2"),
    ("resource.k8s.io", "ResourceClaim", "v1"),
    ("resource.k8s.io", "ResourceClaimTemplate", "v1"),
    ("resource.k8s.io", "ResourceSlice", "v1"),
    ("storage.k8s.io", "VolumeAttributesClass", "v1"),
];

/// Converts an object to its kind's stored version, for migrating a whole store. Unknown kinds are left
/// unchanged.
///
/// # Errors
/// As of [`convert`].
pub(crate) fn update(object: &mut Value) -> Result<(), Undecodable> {
    let (version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]).to_owned());
    let Some(from) = GroupVersion::parse(version) else {
        return Ok(());
    };
    let kept = STORED_VERSIONS
        .iter()
        .find(|(group, k, _)| *group == from.group && *k == kind);
    let kept = kept.map(|(group, _, version)| GroupVersion::new(group, version));
    match kept.or_else(|| VersionPair::hub_of(&from, &kind)) {
        Some(to) => convert(object, &to, &kind).map(drop),
        None => Ok(()),
    }
}

/// v1beta1 → v1: moves the fields of a single-device request into `exactly`.
fn requests(spec: Option<&mut Value>) {
    const EXACTLY: [&str; 7] = [
        "adminAccess",
        "allocationMode",
        "capacity",
        "count",
        "deviceClassName",
        "selectors",
        "tolerations",
    ];
    let requests = spec.and_then(|s| s.at_mut(&["devices", "requests"]));
    for request in requests.and_then(Value::as_array_mut).into_iter().flatten() {
        let alternatives = !request.get("firstAvailable").items().is_empty();
        let mut exactly = Value::Null;
        for name in EXACTLY {
            if let Some(value) = request.unset(&[name]) {
                exactly.set(&[name], value);
            }
        }
        // A request with `firstAvailable` has no fields of its own; v1 would reject `exactly` beside it.
        if !alternatives {
            request.set(&["exactly"], exactly);
        }
    }
}

/// v1beta1 → v1: moves the members of `basic` up into the device.
fn devices(slice: &mut Value) {
    let devices = slice.at_mut(&["spec", "devices"]).and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten() {
        if let Some(Value::Object(basic)) = device.unset(&["basic"]) {
            for (name, value) in basic.iter() {
                device.set(&[name], value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::registry::resource::Backing;

    fn v1(group: &str, version: &str) -> GroupVersion {
        GroupVersion::new(group, version)
    }

    #[test]
    fn older_versions_are_converted_to_the_stored_one() {
        let mut address = json!({"apiVersion": "networking.k8s.io/v1beta1", "kind": "IPAddress",
            "metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"name": "a", "resource": "services"}}});
        let to = v1("networking.k8s.io", "v1");
        assert_eq!(convert(&mut address, &to, "IPAddress").ok(), Some(true));
        assert_eq!(address.str_at(&["apiVersion"]), "networking.k8s.io/v1");
        assert_eq!(address.str_at(&["spec", "parentRef", "name"]), "a");
        assert_eq!(convert(&mut address, &to, "IPAddress").ok(), Some(false));

        let mut scaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "targetCPUUtilizationPercentage": 50}});
        let to = v1("autoscaling", "v2");
        assert_eq!(convert(&mut scaler, &to, "HorizontalPodAutoscaler").ok(), Some(true));
        let metric = scaler.at(&["spec", "metrics"]).items()[0].clone();
        assert_eq!(metric.str_at(&["resource", "name"]), "cpu");
    }

    #[test]
    fn v1beta1_devices_and_requests_are_restructured() {
        let to = v1("resource.k8s.io", "v1");
        let mut claim = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "metadata": {"name": "a"},
        "spec": {"devices": {"requests": [
            {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
            {"name": "any", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]},
        ]}}});
        assert_eq!(convert(&mut claim, &to, "ResourceClaim").ok(), Some(true));
        let requests = claim.at(&["spec", "devices", "requests"]).items();
        assert_eq!(requests[0].str_at(&["exactly", "deviceClassName"]), "gpu");
        assert!(requests[0].get("count").is_null());
        assert!(requests[1].get("exactly").is_null());
        assert_eq!(requests[1].at(&["firstAvailable"]).items().len(), 1);

        let mut slice = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "a"},
            "spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "g0", "basic": {"attributes": {"model": {"string": "x"}}}}]}});
        assert_eq!(convert(&mut slice, &to, "ResourceSlice").ok(), Some(true));
        let device = &slice.at(&["spec", "devices"]).items()[0];
        assert_eq!(device.str_at(&["attributes", "model", "string"]), "x");
    }

    #[test]
    fn unknown_versions_and_other_kinds_are_rejected() {
        let to = v1("batch", "v1");
        let mut old = json!({"apiVersion": "batch/v2alpha1", "kind": "CronJob", "metadata": {}});
        let unknown = convert(&mut old, &to, "CronJob").expect_err("an unknown version");
        assert_eq!(
            unknown.to_string(),
            "no kind \"CronJob\" is registered for version \"batch/v2alpha1\""
        );
        let mut other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}});
        assert!(convert(&mut other, &to, "CronJob").is_err());
        assert!(convert(&mut json!({"metadata": {}}), &to, "CronJob").is_err());
    }

    /// `convert` renames these versions without a conversion, which is lossless only if no field is missing.
    #[test]
    fn renamed_versions_have_the_same_fields() {
        let same = [
            (
                "admissionregistration.k8s.io",
                "v1beta1",
                "v1",
                "MutatingAdmissionPolicy",
            ),
            (
                "admissionregistration.k8s.io",
                "v1alpha1",
                "v1",
                "MutatingAdmissionPolicy",
            ),
            (
                "admissionregistration.k8s.io",
                "v1beta1",
                "v1",
                "MutatingAdmissionPolicyBinding",
            ),
            (
                "admissionregistration.k8s.io",
                "v1alpha1",
                "v1",
                "MutatingAdmissionPolicyBinding",
            ),
            ("certificates.k8s.io", "v1alpha1", "v1beta1", "ClusterTrustBundle"),
            ("coordination.k8s.io", "v1alpha2", "v1beta1", "LeaseCandidate"),
            ("networking.k8s.io", "v1beta1", "v1", "IPAddress"),
            ("networking.k8s.io", "v1beta1", "v1", "ServiceCIDR"),
            ("resource.k8s.io", "v1alpha3", "v1beta2", "DeviceTaintRule"),
            ("resource.k8s.io", "v1beta1", "v1", "DeviceClass"),
            ("resource.k8s.io", "v1beta2", "v1", "DeviceClass"),
            ("resource.k8s.io", "v1beta2", "v1", "ResourceClaim"),
            ("resource.k8s.io", "v1beta2", "v1", "ResourceClaimTemplate"),
            ("resource.k8s.io", "v1beta2", "v1", "ResourceSlice"),
            ("storage.k8s.io", "v1beta1", "v1", "VolumeAttributesClass"),
        ];
        for (group, old, new, kind) in same {
            let def = |version| by_gvk(group, version, kind).unwrap_or_else(|| panic!("{group} {version} {kind}"));
            let mut lost = Vec::new();
            missing(def(old), def(new), 0, &mut lost);
            assert!(lost.is_empty(), "{kind} {old}: {lost:?}");
        }
    }

    #[tokio::test]
    async fn every_older_version_migrates_to_the_stored_one() {
        let running = crate::controlplane::tests::running();
        let rows = running.plane.groups.iter().flat_map(|g| &g.resources);
        for (row, _) in rows.filter(|(row, _)| matches!(row.backing, Backing::Stored { .. })) {
            let own = row.gvk();
            for version in ["v1", "v2", "v1beta1", "v1beta2", "v1alpha1", "v1alpha2", "v1alpha3"] {
                if version == own.version || by_gvk(&own.group, version, &own.kind).is_none() {
                    continue;
                }
                let mut object = json!({"metadata": {"name": "a"}, "spec": {}});
                object.set(&["apiVersion"], GroupVersion::new(&own.group, version).to_string());
                object.set(&["kind"], own.kind.as_str());
                update(&mut object).unwrap_or_else(|e| panic!("{own:?} {version}: {e}"));
                let kept = own.group_version().to_string();
                assert_eq!(object.str_at(&["apiVersion"]), kept, "{version} of {own:?}");
            }
        }
    }

    fn missing(
        old: &'static crate::api::TypeDef,
        new: &'static crate::api::TypeDef,
        depth: usize,
        out: &mut Vec<String>,
    ) {
        if depth > 8 || std::ptr::eq(old, new) {
            return;
        }
        for field in old.fields {
            match new.field(field.name) {
                None => out.push(format!("{}.{}", old.name, field.name)),
                Some(now) => {
                    if let (Some(a), Some(b)) = (inner(field.ty), inner(now.ty)) {
                        missing(a, b, depth + 1, out);
                    }
                }
            }
        }
    }

    fn inner(ty: crate::api::Ty) -> Option<&'static crate::api::TypeDef> {
        match ty {
            crate::api::Ty::Struct(r) => Some(r.get()),
            crate::api::Ty::List(of) | crate::api::Ty::Map(of) => inner(*of),
            _ => None,
        }
    }
}
