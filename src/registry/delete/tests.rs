use super::*;

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
