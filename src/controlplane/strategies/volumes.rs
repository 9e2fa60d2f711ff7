//! Strategies of volumes, claims, limit ranges, quotas and the kinds of storage.k8s.io, as
//! [`DeclarativeStrategy`] constants.

use super::common::reset_meta;
use super::declarative::{BASE, DeclarativeStrategy, WITH_SPEC_AND_STATUS};
use crate::apimachinery::object::{ObjectView, restore};
use crate::apimachinery::value::Value;
use crate::apimachinery::{names, time};
use crate::controlplane::defaults::storage as defaults;
use crate::controlplane::fields::same;
use crate::controlplane::validation::{claims, quota, storage, volumes as check};
use crate::json;
use crate::registry::strategy::Rules;

fn pending() -> Value {
    json!({"phase": "Pending"})
}

pub(crate) const PERSISTENT_VOLUME: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::persistent_volume,
    prepare_create: |v| v.set(&["status", "lastPhaseTransitionTime"], time::now()),
    prepare_status_update: |new, old| {
        // Stamped when the phase changes, unless the client sets a new time; otherwise an omitted time is
        // kept.
        let path = &["status", "lastPhaseTransitionTime"];
        let moved = new.str_at(&["status", "phase"]) != old.str_at(&["status", "phase"]);
        let given = new.at(path);
        if moved && (given.is_null() || same(given, old.at(path))) {
            new.set(path, time::now());
        } else if !moved && given.is_null() {
            restore(new, old, path);
        }
    },
    validate: check::persistent_volume,
    validate_update: Some(check::persistent_volume_update),
    warn: |new, _| check::persistent_volume_warnings(new),
    // Upstream keeps no generation for this kind.
    generation: &[],
    status: Some(pending),
    ..WITH_SPEC_AND_STATUS
};

pub(crate) const PERSISTENT_VOLUME_CLAIM: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::claim,
    prepare_create: |v| data_sources(v, None),
    prepare_update: |new, old| data_sources(new, Some(old)),
    validate: claims::claim,
    validate_update: Some(|new, old| {
        // A claim of before v1.22 has only one of the two fields; that an update adds the other is no change.
        let mut old = old.clone();
        normalize_data_sources(&mut old);
        claims::claim_update(new, &old)
    }),
    validate_status: claims::claim_status,
    warn: |new, _| claims::claim_warnings(new),
    // Upstream keeps no generation for this kind either.
    generation: &[],
    status: Some(pending),
    rules: Rules {
        // Upstream stores every new claim without the phase, which reads default.
        completed_by_reads: Some(|_| true),
        ..Rules::DEFAULT
    },
    ..WITH_SPEC_AND_STATUS
};

/// Drops references to other namespaces (their feature gate is off) and sources of unsupported kinds, unless the
/// stored claim has any. Then [`normalize_data_sources`].
fn data_sources(v: &mut Value, old: Option<&Value>) {
    let (source, reference) = (&["spec", "dataSource"], &["spec", "dataSourceRef"]);
    let had = |path: &[&str]| old.is_some_and(|o| !o.at(path).is_null());
    if !v.str_at(&["spec", "dataSourceRef", "namespace"]).is_empty() && !had(reference) {
        v.unset(reference);
    }
    // Historically, sources of other kinds were silently dropped (upstream's
    // `EnforceDataSourceBackwardsCompatibility`).
    let known = match v.str_at(&["spec", "dataSource", "apiGroup"]) {
        "" => v.str_at(&["spec", "dataSource", "kind"]) == "PersistentVolumeClaim",
        "snapshot.storage.k8s.io" => v.str_at(&["spec", "dataSource", "kind"]) == "VolumeSnapshot",
        _ => false,
    };
    if v.at(reference).is_null() && !known && !had(source) && !had(reference) {
        v.unset(source);
    }
    normalize_data_sources(v);
}

/// Mirrors `dataSource` and `dataSourceRef` into each other (upstream's `NormalizeDataSources` in
/// `pkg/api/persistentvolumeclaim/util.go`).
fn normalize_data_sources(v: &mut Value) {
    let (source, reference) = (&["spec", "dataSource"], &["spec", "dataSourceRef"]);
    match (v.at(source).clone(), v.at(reference).clone()) {
        (Value::Null, r) if !r.is_null() && r.str_at(&["namespace"]).is_empty() => v.set(source, r),
        (s, Value::Null) if !s.is_null() => v.set(reference, s),
        _ => {}
    }
}

pub(crate) const LIMIT_RANGE: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::limit_range,
    prepare_create: |v| {
        // As upstream's `limitRange` strategy, for clients that send neither name nor generateName.
        if v.name().is_empty() {
            v.set_meta("name", names::uid());
        }
    },
    validate: quota::limit_range,
    ..BASE
};

pub(crate) const RESOURCE_QUOTA: DeclarativeStrategy = DeclarativeStrategy {
    validate: quota::resource_quota,
    validate_update: Some(quota::resource_quota_update),
    validate_status: quota::resource_quota_status,
    warn: |new, old| match old {
        None => quota::resource_quota_warnings(new),
        Some(_) => Vec::new(),
    },
    generation: &[],
    ..WITH_SPEC_AND_STATUS
};

pub(crate) const STORAGE_CLASS: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::storage_class,
    validate: storage::storage_class,
    validate_update: Some(storage::storage_class_update),
    warn: |new, _| storage::storage_class_warnings(new),
    ..BASE
};

pub(crate) const VOLUME_ATTRIBUTES_CLASS: DeclarativeStrategy = DeclarativeStrategy {
    validate: storage::attributes_class,
    validate_update: Some(storage::attributes_class_update),
    ..BASE
};

/// CSIDrivers. As upstream, an update of the spec increments the generation, but a create does not set it.
pub(crate) const CSI_DRIVER: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::csi_driver,
    prepare_create: |v| drop_scheduling(v, None),
    prepare_update: |new, old| {
        drop_scheduling(new, Some(old));
        super::common::bump_generation(new, old, &["spec"]);
    },
    validate: storage::csi_driver,
    validate_update: Some(storage::csi_driver_update),
    warn: storage::csi_driver_warnings,
    ..BASE
};

/// Drops the field of the disabled feature gate `VolumeLimitScaling`, unless the stored driver has it.
fn drop_scheduling(v: &mut Value, old: Option<&Value>) {
    let field = &["spec", "preventPodSchedulingIfMissing"];
    if old.is_none_or(|o| o.at(field).is_null()) {
        v.unset(field);
    }
}

pub(crate) const CSI_NODE: DeclarativeStrategy = DeclarativeStrategy {
    validate: storage::csi_node,
    validate_update: Some(storage::csi_node_update),
    ..BASE
};

pub(crate) const CSI_STORAGE_CAPACITY: DeclarativeStrategy = DeclarativeStrategy {
    validate: storage::csi_storage_capacity,
    validate_update: Some(storage::csi_storage_capacity_update),
    warn: |new, _| storage::csi_storage_capacity_warnings(new),
    ..BASE
};

pub(crate) const VOLUME_ATTACHMENT: DeclarativeStrategy = DeclarativeStrategy {
    default: defaults::volume_attachment,
    validate: storage::volume_attachment,
    validate_update: Some(storage::volume_attachment_update),
    validate_status: storage::volume_attachment_update,
    generation: &[],
    status: Some(|| json!({"attached": false})),
    prepare_status_update: reset_meta,
    status_reset_fields: &["spec", "metadata"],
    ..WITH_SPEC_AND_STATUS
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::strategy::Strategy;

    #[test]
    fn inline_volumes_of_attachments_get_the_defaults_of_their_source() {
        let mut v = json!({"spec": {"source": {"inlineVolumeSpec": {"rbd": {"pool": "p"}}}}});
        Strategy::default(&VOLUME_ATTACHMENT, &mut v);
        let rbd = json!({"pool": "p", "user": "admin", "keyring": "/etc/ceph/keyring"});
        assert_eq!(v, json!({"spec": {"source": {"inlineVolumeSpec": {"rbd": (rbd)}}}}));
        let mut named = json!({"spec": {"source": {"persistentVolumeName": "a"}}});
        let sent = named.clone();
        Strategy::default(&VOLUME_ATTACHMENT, &mut named);
        assert_eq!(named, sent);
    }

    #[test]
    fn the_status_of_an_attachment_or_a_service_cidr_marks_nothing_for_deletion() {
        for strategy in [VOLUME_ATTACHMENT, super::super::network::SERVICE_CIDR] {
            let old = json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {}});
            let mut new = json!({"metadata": {"name": "a", "labels": {"x": "2"}, "deletionTimestamp": "2030-01-01T00:00:00Z"},
                "spec": {}, "status": {"attached": true}});
            Strategy::prepare_status_update(&strategy, &mut new, &old);
            let metadata = json!({"name": "a", "labels": {"x": "1"}});
            assert_eq!(new.get("metadata"), &metadata);
        }
    }

    #[test]
    fn unnamed_limit_ranges_get_a_generated_name() {
        let named = |mut v: Value| {
            Strategy::prepare_create(&LIMIT_RANGE, &mut v);
            v.name().to_owned()
        };
        assert_eq!(named(json!({"metadata": {"name": "a"}})), "a");
        assert_eq!(named(json!({"metadata": {}})).len(), 36);
    }

    #[test]
    fn fields_of_a_disabled_gate_are_dropped_from_csi_drivers() {
        let bare = json!({"metadata": {"name": "d.io"}, "spec": {"attachRequired": true}});
        let mut sent = bare.clone();
        sent.set(&["spec", "preventPodSchedulingIfMissing"], false);
        let mut v = sent.clone();
        Strategy::prepare_create(&CSI_DRIVER, &mut v);
        assert_eq!(v, bare);
        // Nor is it a change that the generation counts.
        let mut v = sent.clone();
        Strategy::prepare_update(&CSI_DRIVER, &mut v, &bare);
        assert_eq!(v, bare);
        let mut v = sent.clone();
        Strategy::prepare_update(&CSI_DRIVER, &mut v, &sent);
        assert_eq!(v, sent);
    }

    #[test]
    fn data_source_and_reference_mirror_each_other() {
        let mut v = json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "o"}}});
        data_sources(&mut v, None);
        assert_eq!(v.at(&["spec", "dataSourceRef"]), v.at(&["spec", "dataSource"]));
        let mut v = json!({"spec": {"dataSource": {"apiGroup": "x", "kind": "Y", "name": "o"}}});
        let sent = v.clone();
        data_sources(&mut v, None);
        assert_eq!(v, json!({"spec": {}}));
        // An update that adds it to a claim without a source is no different.
        let (stored, mut v) = (v, sent.clone());
        data_sources(&mut v, Some(&stored));
        assert_eq!(v, stored);
        // One that keeps the only field of an old claim fills in the other.
        let mut v = sent.clone();
        Strategy::prepare_update(&PERSISTENT_VOLUME_CLAIM, &mut v, &sent);
        assert_eq!(v.at(&["spec", "dataSourceRef"]), sent.at(&["spec", "dataSource"]));
        let refused = Strategy::validate_update(&PERSISTENT_VOLUME_CLAIM, &v, &sent);
        assert!(
            !refused.iter().any(|e| e.to_string().contains("immutable")),
            "{refused:?}"
        );
    }
}
