//! Changes of schemas.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn a_change_of_one_schema_keeps_the_indexes_of_the_others() {
    let controller = imagined(10);
    let index = |name, precedence| Arc::new(IndexedSchema::of(schema(name, precedence, "catch-all", "busy")));
    let unchanged = index("a", 100);
    controller.digest_indexed(vec![unchanged.clone(), index("b", 200)], []);
    let before = controller.schemas.load_full();
    controller.digest_indexed(vec![unchanged, index("b", 300)], []);
    let after = controller.schemas.load_full();
    let kept = before
        .iter()
        .zip(&*after)
        .map(|(old, new)| (&*new.name, Arc::ptr_eq(&old.rules, &new.rules)));
    assert_eq!(
        kept.collect::<Vec<_>>(),
        [("exempt", true), ("a", true), ("b", false), ("catch-all", true)]
    );
}

#[test]
fn a_schema_keeps_its_account_while_others_come_and_go() {
    let controller = imagined(10);
    let schemas: Vec<Value> = (0..50)
        .map(|n| schema(&format!("s{n}"), n, "catch-all", "busy"))
        .collect();
    let accounts = || -> BTreeMap<Arc<str>, u32> {
        let all = controller.schemas.load_full();
        let of_level = all.iter().filter(|s| &*s.name != "exempt");
        of_level.map(|s| (s.name.clone(), s.account)).collect()
    };
    controller.digest(&schemas, []);
    let first = accounts();
    let numbers: BTreeSet<u32> = first.values().copied().collect();
    assert_eq!(numbers.into_iter().collect::<Vec<_>>(), (0..51).collect::<Vec<_>>());
    controller.digest(&schemas[20..], []);
    assert!(
        accounts()
            .iter()
            .all(|(name, account)| first.get(name) == Some(account))
    );
    controller.digest(&schemas, []);
    assert_eq!(accounts(), first, "deleted ones that come back have theirs");
}
