//! Tests of kinds served in two versions, through their stores.

use super::*;
use crate::apimachinery::apply::{ApplyRequest, FieldSet, Writer};
use crate::apimachinery::gvk::GroupVersion;
use crate::registry::converting::Pair;
use crate::storage::{WatchItem, WatchOptions};

fn served(r: &Running, gv: (&str, &str), plural: &str) -> Arc<crate::registry::Store> {
    let gv = GroupVersion::new(gv.0, gv.1);
    let group = r.plane.groups.iter().find(|g| g.gv == gv).unwrap();
    let of = group.resources.iter().find(|(row, _)| row.gvr.resource == plural);
    of.unwrap().1.clone()
}

const V1: (&str, &str) = ("autoscaling", "v1");
const V2: (&str, &str) = ("autoscaling", "v2");
const AUTOSCALERS: &str = "horizontalpodautoscalers";

fn autoscaler() -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
}

#[tokio::test]
async fn autoscalers_are_read_written_and_watched_in_both_versions() {
    let r = running();
    let cx = Context::system("default");
    let (v1, v2) = (served(&r, V1, AUTOSCALERS), served(&r, V2, AUTOSCALERS));
    let made = v1.create_value(&cx, autoscaler()).await.unwrap();
    assert_eq!(made.at(&["spec", "targetCPUUtilizationPercentage"]), &80i64.into());
    let hub = v2.get_value("default", "h").await.unwrap();
    assert_eq!(
        (hub.api_version(), hub.resource_version()),
        ("autoscaling/v2", made.resource_version())
    );
    assert_eq!(hub.at(&["spec", "metrics"]).items().len(), 1);

    let mut watch = v1
        .watch(WatchOptions {
            prefix: "default/".to_owned(),
            single: false,
            predicate: Default::default(),
            since: Some(v1.storage().revision()),
            initial: None,
            bookmarks: false,
            until: None,
        })
        .await
        .unwrap();
    let behavior = |live: &Value| {
        let mut new = live.clone();
        new.set(&["spec", "behavior"], json!({"scaleUp": {"selectPolicy": "Min"}}));
        Ok(new)
    };
    v2.update_with(&cx, "h", "", behavior).await.unwrap();
    let Some(WatchItem::Change(kind, event)) = watch.next().await else {
        panic!("the write is an event of the other version too");
    };
    let seen = event.object(kind).decode();
    assert_eq!(seen.api_version(), "autoscaling/v1");
    let behavior = seen.annotation("autoscaling.alpha.kubernetes.io/behavior").unwrap();
    assert!(behavior.contains("\"SelectPolicy\":\"Min\""), "{behavior}");

    // A write through v1 preserves fields that v1 lacks.
    let more = |live: &Value| {
        let mut new = live.clone();
        new.set(&["spec", "maxReplicas"], 5i64);
        Ok(new)
    };
    v1.update_with(&cx, "h", "", more).await.unwrap();
    let hub = v2.get_value("default", "h").await.unwrap();
    assert_eq!(hub.at(&["spec", "maxReplicas"]), &5i64.into());
    assert_eq!(hub.str_at(&["spec", "behavior", "scaleUp", "selectPolicy"]), "Min");
    assert!(hub.at(&["metadata", "annotations"]).is_null());
    v1.delete_by_name(&cx, "h").await.unwrap();
    assert_eq!(v2.get_value("default", "h").await.unwrap_err().code, 404);
}

#[tokio::test]
async fn validation_errors_of_v1_have_v2_paths() {
    let r = running();
    let cx = Context::system("default");
    let mut odd = autoscaler();
    odd.set(&["spec", "targetCPUUtilizationPercentage"], 0i64);
    let e = served(&r, V1, AUTOSCALERS).create_value(&cx, odd).await.unwrap_err();
    assert_eq!(
        e.message,
        "HorizontalPodAutoscaler.autoscaling \"h\" is invalid: \
         spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"
    );
}

#[tokio::test]
async fn events_v1_are_core_events_with_stricter_validation() {
    let r = running();
    let cx = Context::system("default");
    let (core, new) = (
        served(&r, ("", "v1"), "events"),
        served(&r, ("events.k8s.io", "v1"), "events"),
    );
    let event =
        json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default", "name": "p"}, "message": "m"});
    core.create_value(&cx, event).await.unwrap();
    let seen = new.get_value("default", "e").await.unwrap();
    assert_eq!(
        (seen.str_at(&["note"]), seen.str_at(&["regarding", "name"])),
        ("m", "p")
    );
    let bare = json!({"metadata": {"name": "f"}, "regarding": {"namespace": "default"}, "type": "Normal"});
    let e = new.create_value(&cx, bare).await.unwrap_err();
    assert_eq!(e.message, "Event \"f\" is invalid: eventTime: Required value");
    let listed = new.list_entries("default").await.unwrap();
    assert_eq!(listed[0].field("regarding.name"), Some("p"));
    assert_eq!(listed[0].field("source"), None);
}

#[test]
fn ownership_is_tracked_in_the_version_of_the_writer() {
    let plane = running_rows();
    let schema = |gv: (&str, &str)| {
        let gv = GroupVersion::new(gv.0, gv.1);
        let group = plane.groups.iter().find(|g| g.gv == gv).unwrap();
        group.resources[0].0.schema.clone()
    };
    let reset = FieldSet::new();
    let by = |manager, api_version, force| ApplyRequest {
        writer: Writer {
            manager,
            subresource: "",
            now: "2024-01-02T03:04:05Z",
            api_version,
        },
        force,
        reset: &reset,
    };
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let config = |version: &str, most: i64| {
        let mut v = json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}});
        v.set(&["apiVersion"], version);
        v.set(&["spec", "maxReplicas"], most);
        v.set(&["spec", "scaleTargetRef"], target.clone());
        v
    };
    let first = schema(V2).apply(None, config("autoscaling/v2", 3), &by("one", "autoscaling/v2", false));
    let pair = &super::super::versions::AUTOSCALERS;
    let live = pair.serve(first.unwrap());
    let apply = |manager, most, force| {
        let by = by(manager, "autoscaling/v1", force);
        schema(V1).apply(Some(&live), config("autoscaling/v1", most), &by)
    };
    let both = apply("two", 3, false).unwrap();
    let entries = both.at(&["metadata", "managedFields"]).items().to_vec();
    let of = |version: &str| entries.iter().find(|e| e.str_at(&["apiVersion"]) == version).unwrap();
    let (older, newer) = (of("autoscaling/v1"), of("autoscaling/v2"));
    // scaleTargetRef is atomic in v1 and granular in v2.
    assert_eq!(older.at(&["fieldsV1", "f:spec", "f:scaleTargetRef"]), &json!({}));
    assert!(
        !newer
            .at(&["fieldsV1", "f:spec", "f:scaleTargetRef", "f:kind"])
            .is_null()
    );
    let e = apply("two", 4, false).unwrap_err();
    assert_eq!(
        e.message,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.maxReplicas"
    );
    let taken = apply("two", 4, true).unwrap();
    let managers = taken.at(&["metadata", "managedFields"]).items();
    let one = managers.iter().find(|e| e.str_at(&["manager"]) == "one").unwrap();
    assert!(one.at(&["fieldsV1", "f:spec", "f:maxReplicas"]).is_null());
}

#[test]
fn annotations_that_carry_fields_are_absent_from_partial_metadata() {
    let plane = running_rows();
    let of = |gv: (&str, &str), plural: &str, key: &str| {
        let gv = GroupVersion::new(gv.0, gv.1);
        let group = plane.groups.iter().find(|g| g.gv == gv).unwrap();
        let (row, _) = group.resources.iter().find(|(r, _)| r.gvr.resource == plural).unwrap();
        let mut v = json!({"metadata": {}});
        v.set(&["metadata", "annotations", key], "1");
        crate::endpoints::respond::partial::of(row, &v, "v1")
            .at(&["metadata"])
            .clone()
    };
    let generation = "deprecated.daemonset.template.generation";
    assert_eq!(of(("apps", "v1"), "daemonsets", generation), json!({}));
    assert_eq!(
        of(("apps", "v1"), "deployments", "deprecated.deployment.rollback.to"),
        json!({})
    );
    assert_eq!(
        of(V1, AUTOSCALERS, "autoscaling.alpha.kubernetes.io/behavior"),
        json!({})
    );
    assert!(
        !of(("apps", "v1"), "replicasets", generation)
            .get("annotations")
            .is_null()
    );
}

#[tokio::test]
async fn preconditions_of_events_name_the_stored_group() {
    let r = running();
    let cx = Context::system("default");
    let events = served(&r, ("events.k8s.io", "v1"), "events");
    let event = json!({"metadata": {"name": "e"}, "regarding": {"namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal"});
    events.create_value(&cx, event).await.unwrap();
    let wrong = DeleteOptions {
        uid: Some("other".into()),
        ..DeleteOptions::default()
    };
    let e = events.delete(&cx, "e", &wrong).await.unwrap_err();
    assert!(
        e.message.starts_with("Operation cannot be fulfilled on Event \"e\": "),
        "{}",
        e.message
    );
    assert_eq!(e.details.unwrap().group, "");
}
