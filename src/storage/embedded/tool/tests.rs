use super::*;
use crate::storage::embedded::{Engine, Options, ResourceConfig};
use crate::storage::{Draft, Precondition};

fn quiet() -> impl FnMut(u64, u64) {
    |_, _| {}
}

async fn filled(dir: &Path, n: usize) -> std::sync::Arc<Engine> {
    let engine = Engine::open(dir, Options::default()).expect("opened");
    let s = engine.resource(ResourceConfig {
        prefix: "/registry/configmaps/".into(),
        fields: None,
        compressed: false,
    });
    for i in 0..n {
        let draft = Draft::new(&crate::json!({"metadata": {"name": i}}), vec![]);
        let made = s
            .put(&format!("ns/{i}"), Precondition::Absent, draft.clone(), None)
            .await;
        let made = made.expect("made");
        s.put(&made.key, Precondition::Unchanged(made.revision), draft, None)
            .await
            .expect("written again");
    }
    engine
}

#[tokio::test]
async fn store_in_use_can_be_checked_and_backed_up_then_restored() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, copy) = (dir.path().join("a"), dir.path().join("copy"));
    let engine = filled(&store, 20).await;
    let found = check(&store, &mut quiet()).expect("it is intact");
    assert_eq!((found.revision, found.objects), (41, 20));
    assert_eq!(found.resources.get("configmaps").map(|r| r.0), Some(20));
    backup(&store, &copy, &mut quiet()).expect("backed up");
    assert!(backup(&store, &copy, &mut quiet()).is_err(), "no file is overwritten");
    assert!(matches!(
        restore(&copy, &store, 0, &mut quiet()),
        Err(OpenError::Locked { .. })
    ));
    engine.shutdown();
    drop(engine);
    let set_aside = restore(&copy, &store, 1000, &mut quiet()).expect("restored");
    assert!(set_aside.is_some_and(|p| p.exists()));
    let found = check(&store, &mut quiet()).expect("it is intact");
    assert_eq!(
        (found.revision, found.compacted, found.objects, found.writes),
        (1041, 1041, 20, 20)
    );
    drop(Engine::open(&store, Options::default()).expect("it opens"));
}

#[tokio::test]
async fn compaction_keeps_objects_and_fill_keeps_revisions() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, other) = (dir.path().join("a"), dir.path().join("b"));
    drop(filled(&store, 20).await);
    let found = compact(&store, &mut quiet()).expect("compacted");
    assert_eq!((found.compacted, found.objects, found.writes), (41, 20, 20));
    let (revision, all) = objects(&store).expect("read");
    fill(&other, revision, &all, &mut quiet()).expect("filled");
    assert!(fill(&other, revision, &all, &mut quiet()).is_err(), "only once");
    assert_eq!(objects(&other).expect("read"), (revision, all));
    assert_eq!(check(&other, &mut quiet()).expect("intact").revision, 41);
}

#[tokio::test]
async fn an_interrupted_restore_is_refused_until_it_is_repeated() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, copy) = (dir.path().join("a"), dir.path().join("copy"));
    drop(filled(&store, 20).await);
    backup(&store, &copy, &mut quiet()).expect("backed up");
    restore(&copy, &store, 1000, &mut quiet()).expect("restored");
    let all = || {
        let files = std::fs::read_dir(&store).expect("readable");
        let names = files.map(|f| f.expect("readable").file_name().into_string().expect("a name"));
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let complete = all();
    // As a crash leaves it after the old store was moved away: with the new one complete, under its other name.
    std::fs::rename(store.join("store.db"), store.join(RESTORED)).expect("renamed");
    let refused = Engine::open(&store, Options::default()).map(drop);
    assert!(matches!(&refused, Err(OpenError::HalfRestored { .. })), "{refused:?}");
    assert!(matches!(stats(&store), Err(OpenError::HalfRestored { .. })));
    // A failed attempt changes nothing.
    assert!(restore(&dir.path().join("nothing"), &store, 1000, &mut quiet()).is_err());
    assert!(matches!(stats(&store), Err(OpenError::HalfRestored { .. })));
    assert_eq!(restore(&copy, &store, 1000, &mut quiet()).expect("restored"), None);
    assert_eq!(all(), complete);
    let found = check(&store, &mut quiet()).expect("it is intact");
    assert_eq!((found.revision, found.objects), (1041, 20));
}
