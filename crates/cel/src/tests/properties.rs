//! Arbitrary texts and expressions: nothing panics, and evaluation stays within its estimate.

use super::*;
use crate::ast::{Expr, ExprKind, op};
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

/// Whether the expression has a part that costs more than cel-go's estimate, which we reproduce, says: a selection
/// from a value of unknown type, from an optional value or null (which may stand for one) or from a computed value, and
/// an object as a whole, whose size is 0 in estimates.
fn is_underestimated(source: &str, env: &Environment) -> bool {
    fn any(e: &Expr, checked: &checker::Checked) -> bool {
        const INDEXES: [&str; 3] = [op::INDEX, op::OPT_INDEX, op::OPT_SELECT];
        let operand = match &e.kind {
            ExprKind::Select(select) => Some(&select.operand),
            ExprKind::Call(call) => call.args.first().filter(|_| INDEXES.contains(&&*call.function)),
            _ => None,
        };
        let known = |of: &Expr| matches!(checked.types[of.id], Type::List(_) | Type::Map(_) | Type::Object(_));
        let computed = |of: &Expr| match &of.kind {
            ExprKind::Ident(_) | ExprKind::Select(_) => false,
            ExprKind::Call(call) => !INDEXES.contains(&&*call.function) && &*call.function != op::CONDITIONAL,
            _ => true,
        };
        let mut found = operand.is_some_and(|of| !known(of) || computed(of));
        e.children(&mut |child| {
            let selected = operand.is_some_and(|of| std::ptr::eq(of, child));
            let whole = !selected && matches!(checked.types[child.id], Type::Object(_));
            found = found || whole || any(child, checked);
        });
        found
    }
    let tree = parser::parse(source, false).expect("it compiles");
    let checked = checker::check(source, &tree.root, tree.ids, env).expect("it compiles");
    any(&tree.root, &checked)
}

#[test]
fn estimates_below_the_cost_match_those_of_cel_go() {
    let (env, tree, any) = (env(), object(), json!({"a": [1]}));
    let value = |name, tree| Variable {
        name,
        value: Val::of(tree, env.variable(name).expect("declared")).expect("of the type"),
    };
    for (source, estimate, cost) in [
        ("any.a", 1, 2),
        ("self == self", 2, 3),
        ("any == self", 2, 3),
        ("[self][0]", 12, 13),
        ("[any][0]", 12, 13),
        ("self.name == 's'", 3, 3),
        ("self.tags[0]", 3, 3),
    ] {
        let program = env.compile(source).expect(source);
        let found = program.evaluate(&[value("self", &tree), value("any", &any)], u64::MAX);
        assert_eq!((program.estimated_cost(), found.cost), (estimate, cost), "{source}");
        assert_eq!(is_underestimated(source, &env), estimate < cost, "{source}");
    }
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
            if !is_underestimated(&text, &env) {
                prop_assert!(whole.cost <= program.estimated_cost(), "{} > {}", whole.cost, program.estimated_cost());
            }
            let limited = program.evaluate(&variables, limit);
            prop_assert_eq!(matches!(limited.value, Err(Fail::Cost)), whole.cost > limit);
        }
    }
}
