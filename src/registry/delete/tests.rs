use super::*;
use crate::admission::AdmitAll;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::reviews::NoStorage;
use crate::registry::strategy::{DeleteStrategy, Strategy};

fn finalizers(default: GarbageCollection, had: &[&str], options: DeleteOptions) -> Option<Vec<Value>> {
    let had: Vec<Value> = had.iter().map(|f| Value::from(*f)).collect();
    let mut object = Value::object();
    object.set_meta("finalizers", had);
    collector_finalizers(default, &object, &options)
}

fn policy(p: &str) -> DeleteOptions {
    DeleteOptions {
        propagation: Some(p.to_owned()),
        ..DeleteOptions::default()
    }
}

#[test]
fn propagation_policy_replaces_the_other_policys_finalizer() {
    use GarbageCollection::{Background, Orphan, Unsupported};
    let none = DeleteOptions::default;
    assert_eq!(finalizers(Background, &["a/b"], none()), None);
    assert_eq!(finalizers(Orphan, &[], none()), Some(vec!["orphan".into()]));
    assert_eq!(finalizers(Orphan, &[], policy("Background")), None);
    assert_eq!(
        finalizers(Background, &["orphan", "a/b"], policy("Foreground")),
        Some(vec!["a/b".into(), "foregroundDeletion".into()])
    );
    assert_eq!(finalizers(Background, &["foregroundDeletion"], none()), None);
    assert_eq!(finalizers(Unsupported, &[], policy("Orphan")), None);
}

/// A kind with graceful deletion, as pods.
struct Graceful;

impl Strategy for Graceful {
    fn deletion(&self) -> Option<&dyn DeleteStrategy> {
        Some(self)
    }
}

impl DeleteStrategy for Graceful {
    fn check(&self, _object: &Value) -> Result<()> {
        Ok(())
    }

    fn holds(&self, _object: &Value) -> bool {
        false
    }

    fn grace(&self, _object: &Value, requested: Option<i64>) -> Option<i64> {
        Some(requested.unwrap_or(30))
    }

    fn mark(&self, _object: &mut Value, _old: &Value) {}
}

#[test]
fn an_object_whose_grace_period_is_over_is_removed_by_any_later_delete() {
    let (group, version) = ("", "v1");
    let row = GroupVersionBuilder { group, version }.kind("pods", "Pod").namespaced();
    let row = Arc::new(row.strategy(Graceful).build());
    let store = Store::new(row, Arc::new(NoStorage), Arc::new(AdmitAll));
    let planned = |grace: Option<i64>, asked: Option<i64>| {
        let mut old = Value::object();
        old.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        if let Some(grace) = grace {
            old.set_meta("deletionGracePeriodSeconds", grace);
        }
        let options = DeleteOptions {
            grace_period_seconds: asked,
            ..DeleteOptions::default()
        };
        plan(&store, &old, &options)
    };
    for over in [None, Some(0)] {
        for asked in [None, Some(0), Some(30)] {
            assert_eq!(planned(over, asked), Plan::Go, "{over:?} {asked:?}");
        }
    }
    assert_eq!(planned(Some(30), None), Plan::Pending);
    assert_eq!(planned(Some(30), Some(30)), Plan::Pending);
    assert!(matches!(planned(Some(30), Some(0)), Plan::MarkThenGo(_)));
}

#[test]
fn grace_periods_wrap_around_like_gos() {
    assert_eq!(grace_duration(30), ::time::Duration::seconds(30));
    assert_eq!(grace_duration(i64::MAX), ::time::Duration::seconds(-1));
    let now = ::time::OffsetDateTime::now_utc();
    let mut pod = Value::object();
    pod.set_meta("deletionTimestamp", time::format(now + grace_duration(i64::MAX)));
    shorten(&mut pod, i64::MAX, i64::MAX - 1);
    // The end is in the past, which leaves the shortest graceful period.
    assert_eq!(pod.at(&["metadata", "deletionGracePeriodSeconds"]).as_i64(), Some(1));
}

#[test]
fn a_shortened_grace_period_ends_now_at_the_earliest() {
    let shortened = |asked: i64| {
        let mut pod = crate::json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:30Z"}});
        shorten(&mut pod, 30, asked);
        pod
    };
    let before = time::now();
    for asked in [0, 1, 20] {
        let pod = shortened(asked);
        let end = pod.meta("deletionTimestamp");
        assert!(
            (before.as_str()..=time::now().as_str()).contains(&end),
            "{asked}: {end}"
        );
        assert_eq!(
            pod.at(&["metadata", "deletionGracePeriodSeconds"]).as_i64(),
            Some(asked.min(1))
        );
    }
}
