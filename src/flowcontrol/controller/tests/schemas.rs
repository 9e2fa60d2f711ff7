//! Changes of schemas.

use super::*;

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
