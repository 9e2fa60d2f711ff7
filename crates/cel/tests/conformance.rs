//! Cases from the conformance suite of the language (github:google/cel-spec, `tests/simple`): the results of
//! expressions without variables and protobuf messages. Each line of `conformance.tsv` has a name, an
//! expression, and its result.

use torana_cel::{Environment, Key, Val, Variable};

/// Cases that differ: a name and the reason in each line.
const DIFFERENT: &str = include_str!("conformance-different.tsv");

fn key(key: &Key<'_>) -> String {
    match key {
        Key::Bool(b) => b.to_string(),
        Key::Int(n) => n.to_string(),
        Key::Uint(n) => format!("{n}u"),
        Key::String(s) => text(s),
    }
}

/// A JSON string as Python writes it without escaping beyond ASCII.
fn text(s: &str) -> String {
    let mut out = String::from('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn double(f: f64) -> String {
    if f.is_nan() {
        return "double(NaN)".to_owned();
    }
    if f.is_infinite() {
        return format!("double({}Inf)", if f > 0.0 { '+' } else { '-' });
    }
    format!("double({f:?})")
}

fn shown(v: &Val<'_>) -> String {
    match v {
        Val::Null => "null".to_owned(),
        Val::Bool(b) => b.to_string(),
        Val::Int(n) => n.to_string(),
        Val::Uint(n) => format!("{n}u"),
        Val::Double(f) => double(*f),
        Val::String(s) => text(s),
        Val::Bytes(b) => format!("b[{}]", b.iter().map(|b| format!("{b:02x}")).collect::<String>()),
        Val::Type(name) => format!("type({name})"),
        Val::Duration(d) => format!("duration({d})"),
        Val::Timestamp(t) => format!("timestamp({},{})", t.seconds(), t.nanos()),
        Val::List(list) => {
            let items: Vec<String> = list.iter().map(|v| shown(&v.expect("a value"))).collect();
            format!("[{}]", items.join(", "))
        }
        Val::Map(torana_cel::Dict::Shared(map)) => {
            let mut pairs: Vec<String> = map.iter().map(|(k, v)| format!("{}: {}", key(k), shown(v))).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn evaluate(source: &str) -> String {
    let program = match Environment::default().compile(source) {
        Ok(program) => program,
        Err(issues) if issues.is_of_constants() => return "error".to_owned(),
        Err(issues) => return format!("refused: {issues}"),
    };
    let outcome = program.evaluate(&[] as &[Variable<'_>; 0], 10_000_000);
    outcome.value.map_or_else(|_| "error".to_owned(), |v| shown(&v))
}

/// Doubles are written in more than one way.
fn same(found: &str, wanted: &str) -> bool {
    let number = |s: &str| s.strip_prefix("double(")?.strip_suffix(')')?.parse::<f64>().ok();
    found == wanted || matches!((number(found), number(wanted)), (Some(a), Some(b)) if a == b)
}

#[test]
fn expressions_evaluate_as_the_suite_expects() {
    let different: Vec<&str> = DIFFERENT.lines().filter_map(|l| l.split('\t').next()).collect();
    let mut wrong = Vec::new();
    for line in include_str!("conformance.tsv").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (name, wanted) = (fields[0], fields[fields.len() - 1]);
        let source = fields[1..fields.len() - 1].join("\t");
        let listed = different.contains(&name);
        let found = evaluate(&source);
        // Errors at run time are errors at compile time where constants or literals are validated.
        let same = same(&found, wanted) || (wanted == "error" && found.contains("invalid"));
        if same == listed {
            wrong.push(format!("{name}\n  {source}\n  wanted {wanted}\n  found  {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
