//! Objects that their schemas do not allow, as stored ones may be whose schemas became stricter.

use super::*;

#[test]
fn an_error_of_a_comparison_counts_as_a_difference() {
    let env = env();
    let tree = json!({"tags": ["a", null]});
    let evaluate = |source: &str| {
        let program = env.compile(source).unwrap();
        let value = Val::of(&tree, env.variable("self").unwrap()).unwrap();
        let outcome = program.evaluate(&[Variable { name: "self", value }], 1_000_000);
        match outcome.value {
            Ok(Val::Bool(b)) => Some(b),
            _ => None,
        }
    };
    assert_eq!(evaluate("self.tags == self.tags"), None, "null is no string");
    assert_eq!(evaluate("self.tags != self.tags"), Some(true));
    assert_eq!(
        evaluate("self.tags[0] != self.tags[1]"),
        None,
        "an operand has no value"
    );
}
