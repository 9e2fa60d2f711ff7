//! Arbitrary texts and expressions: nothing panics, and evaluation stays within its estimate.

use super::*;
use crate::ast::{Expr, Kind, op};
use proptest::prelude::*;

/// Source text made of the language's own pieces, which parses more often than arbitrary text.
fn source() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "self",
        ".name",
        ".tags",
        "any",
        ".a",
        "[0]",
        "(",
        ")",
        "+",
        "-",
        "==",
        "<",
        "&&",
        "||",
        "?",
        ":",
        "1",
        "2.5",
        "'s'",
        "!",
        ".all(x, ",
        ".map(x, ",
        "x",
        "[",
        "]",
        ",",
        "{",
        "}",
        "in",
        ".size()",
        "has(",
        "dyn(",
        "optional.of(",
        ".orValue(",
        "null",
        "true",
        "string(",
        ".sum()",
        "b'x'",
        "1u",
        "%",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|p| p.join(" "))
}

/// Whether the expression selects from a value of unknown type, or from an optional value or null (which may
/// stand for one). Evaluation charges for that step; cel-go's estimate, which we reproduce, does not.
fn selects_of_unknown_values(source: &str, env: &Environment) -> bool {
    fn any(e: &Expr, checked: &checker::Checked) -> bool {
        let operand = match &e.kind {
            Kind::Select(select) => Some(&select.operand),
            Kind::Call(call) => call
                .args
                .first()
                .filter(|_| matches!(&*call.function, op::INDEX | op::OPT_INDEX | op::OPT_SELECT)),
            _ => None,
        };
        let known = |of: &Expr| matches!(checked.types[of.id], Type::List(_) | Type::Map(_) | Type::Object(_));
        let mut found = operand.is_some_and(|of| !known(of));
        e.children(&mut |child| found = found || any(child, checked));
        found
    }
    let tree = parser::parse(source, false).expect("it compiles");
    let checked = checker::check(source, &tree.root, tree.ids, env).expect("it compiles");
    any(&tree.root, &checked)
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = env().compile(&text);
    }

    #[test]
    fn evaluation_never_panics_or_exceeds_its_estimate(text in source(), limit in 0u64..100) {
        let env = env();
        if let Ok(program) = env.compile(&text) {
            let (tree, any) = (object(), json!({"a": [1]}));
            let value = |name, tree| Variable { name, value: Val::of(tree, env.variable(name).expect("declared")).expect("of the type") };
            let variables = [value("self", &tree), value("any", &any)];
            let whole = program.evaluate(&variables, u64::MAX);
            if !selects_of_unknown_values(&text, &env) {
                prop_assert!(whole.cost <= program.estimated_cost(), "{} > {}", whole.cost, program.estimated_cost());
            }
            let limited = program.evaluate(&variables, limit);
            prop_assert_eq!(matches!(limited.value, Err(Fail::Cost)), whole.cost > limit);
        }
    }
}
