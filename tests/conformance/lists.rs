//! Lists: scope, order, revisions, pages.

use crate::support::*;
use std::sync::Arc;
use torana::testing::storage::{
    ContinueToken, Error, ListOptions, MinRevision, Predicate, Revision, Storage, VersionMatch,
};

async fn filled(b: &Backend) -> Arc<dyn Storage> {
    let s = b.resource("configmaps");
    for key in ["b/2", "a/1", "ab/1", "a/3", "a/2"] {
        create(&s, key, &key[key.len() - 1..]).await;
    }
    s
}

pub(crate) async fn a_list_is_in_key_order_and_in_its_prefix(b: Backend) {
    let s = filled(&b).await;
    let all = s.list(everything()).await.unwrap();
    assert_eq!(keys(&all.entries), ["a/1", "a/2", "a/3", "ab/1", "b/2"]);
    let one = ListOptions {
        prefix: "a/".into(),
        ..everything()
    };
    assert_eq!(keys(&s.list(one).await.unwrap().entries), ["a/1", "a/2", "a/3"]);
    let none = ListOptions {
        prefix: "a/1/".into(),
        ..everything()
    };
    assert!(s.list(none).await.unwrap().entries.is_empty());
    let some = ListOptions {
        predicate: labelled("2"),
        ..everything()
    };
    assert_eq!(keys(&s.list(some).await.unwrap().entries), ["a/2", "b/2"]);
}

pub(crate) async fn a_list_of_one_key_returns_no_other(b: Backend) {
    let s = filled(&b).await;
    create(&s, "a/11", "1").await;
    let one = |key: &str| ListOptions {
        prefix: key.into(),
        single: true,
        ..everything()
    };
    assert_eq!(keys(&s.list(one("a/1")).await.unwrap().entries), ["a/1"]);
    let missing = s.list(one("a/")).await.unwrap();
    assert_eq!((missing.entries.len(), missing.revision), (0, Revision(7)));
    let unmatched = ListOptions {
        predicate: labelled("9"),
        ..one("a/1")
    };
    assert!(s.list(unmatched).await.unwrap().entries.is_empty());
}

pub(crate) async fn an_exact_list_shows_the_past(b: Backend) {
    let s = b.resource("configmaps");
    let mut states = vec![(1, String::new())];
    let mut live = std::collections::BTreeMap::new();
    for i in 0..700u64 {
        let key = format!("ns/{}", i * 7 % 50);
        let entry = match live.remove(&key) {
            None => Some(create(&s, &key, &i.to_string()).await),
            Some(old) if i % 3 == 0 => {
                let old: Arc<torana::testing::storage::Entry> = old;
                s.delete(&key, old.revision).await.unwrap();
                None
            }
            Some(old) => Some(update(&s, &old, &i.to_string()).await),
        };
        live.extend(entry.map(|e| (key, e)));
        let text: Vec<_> = live.values().map(|e| format!("{}@{}", e.key, e.revision.0)).collect();
        states.push((s.revision().0, text.join(" ")));
        // Writes to another resource consume revisions, so that this resource's revisions have gaps.
        if i % 100 == 0 {
            create(&b.resource("secrets"), &format!("ns/{i}"), "x").await;
        }
    }
    for (revision, state) in states.iter().step_by(13) {
        let version = VersionMatch::Exact(Revision(*revision));
        let list = s
            .list(ListOptions {
                version,
                ..everything()
            })
            .await
            .unwrap();
        let text: Vec<_> = list
            .entries
            .iter()
            .map(|e| format!("{}@{}", e.key, e.revision.0))
            .collect();
        assert_eq!((list.revision.0, text.join(" ")), (*revision, state.clone()));
    }
    let version = VersionMatch::Exact(Revision(9999));
    let future = s
        .list(ListOptions {
            version,
            ..everything()
        })
        .await;
    assert!(matches!(future, Err(Error::TooNew { .. })));
}

pub(crate) async fn pages_show_one_state(b: Backend) {
    let s = filled(&b).await;
    let page = |token| ListOptions {
        limit: 2,
        token,
        ..everything()
    };
    let one = s.list(page(None)).await.unwrap();
    assert_eq!((keys(&one.entries), one.remaining), (vec!["a/1", "a/2"], Some(3)));
    assert_eq!(
        one.next,
        Some(ContinueToken {
            revision: Some(Revision(6)),
            start: "a/2\0".into()
        })
    );
    // Later pages must not show these changes.
    create(&s, "a/25", "x").await;
    s.delete("ab/1", Revision(4)).await.unwrap();
    let two = s.list(page(one.next)).await.unwrap();
    assert_eq!(
        (keys(&two.entries), two.remaining, two.revision),
        (vec!["a/3", "ab/1"], Some(1), Revision(6))
    );
    let three = s.list(page(two.next)).await.unwrap();
    assert_eq!(
        (keys(&three.entries), three.remaining, three.next),
        (vec!["b/2"], None, None)
    );
    let whole = s
        .list(ListOptions {
            limit: 5,
            ..everything()
        })
        .await
        .unwrap();
    assert_eq!((whole.entries.len(), whole.next), (5, None));
}

pub(crate) async fn a_page_filled_by_a_selector_has_no_remaining_count(b: Backend) {
    let s = filled(&b).await;
    let page = |token| ListOptions {
        limit: 2,
        token,
        predicate: labelled("1"),
        ..everything()
    };
    let one = s.list(page(None)).await.unwrap();
    assert_eq!((keys(&one.entries), one.remaining), (vec!["a/1", "ab/1"], None));
    let two = s.list(page(one.next)).await.unwrap();
    assert_eq!(
        (two.entries.len(), two.next),
        (0, None),
        "there was one more object, but none that matches"
    );
}

pub(crate) async fn a_token_without_revision_continues_at_the_latest_state(b: Backend) {
    let s = filled(&b).await;
    create(&s, "a/25", "x").await;
    let token = Some(ContinueToken {
        revision: None,
        start: "a/2\0".into(),
    });
    let list = s
        .list(ListOptions {
            limit: 1,
            token,
            ..everything()
        })
        .await
        .unwrap();
    assert_eq!((keys(&list.entries), list.revision), (vec!["a/25"], Revision(7)));
    assert_eq!(list.next.unwrap().revision, Some(Revision(7)));
}

pub(crate) async fn a_list_at_any_revision_ignores_the_limit(b: Backend) {
    let s = filled(&b).await;
    let version = VersionMatch::NotOlderThan(MinRevision::Any);
    let list = s
        .list(ListOptions {
            limit: 1,
            version,
            ..everything()
        })
        .await
        .unwrap();
    assert_eq!((list.entries.len(), list.next, list.remaining), (5, None, None));
}

pub(crate) async fn a_list_carries_the_stores_revision(b: Backend) {
    let s = filled(&b).await;
    create(&b.resource("secrets"), "a/1", "x").await;
    let list = s
        .list(ListOptions {
            predicate: Predicate(None),
            ..everything()
        })
        .await
        .unwrap();
    assert_eq!(list.revision, Revision(7));
    let version = VersionMatch::NotOlderThan(MinRevision::AtLeast(Revision(7)));
    assert_eq!(
        s.list(ListOptions {
            version,
            ..everything()
        })
        .await
        .unwrap()
        .revision,
        Revision(7)
    );
}
