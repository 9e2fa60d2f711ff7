//! Checks of `'…'.format([…])` where both are literals: the clauses, the number of values, and their types
//! (cel-go's `stringFormatValidator`).

use crate::ast::{Call, Element, Expr, ExprKind, Literal};
use crate::library::printf::{ClauseError, Template};
use crate::types::Type;

/// The error of a `format` call at `at`, with its place.
pub(super) fn error(at: u32, call: &Call, types: &[Type]) -> Option<(u32, String)> {
    let (Some(target), [args]) = (&call.target, &call.args[..]) else {
        return None;
    };
    let (ExprKind::Literal(Literal::String(template)), ExprKind::List(values)) = (&target.kind, &args.kind) else {
        return None;
    };
    match used(at, template, values, types) {
        Err(error) => Some(error),
        Ok(used) if values.len() > used => Some((
            at,
            format!(
                "too many arguments supplied to string.format (expected {used}, got {})",
                values.len()
            ),
        )),
        Ok(_) => None,
    }
}

/// The number of values that the template uses.
fn used(at: u32, template: &str, values: &[Element], types: &[Type]) -> Result<usize, (u32, String)> {
    let mut template = Template(template);
    let mut next = 0;
    // The pieces between clauses are skipped.
    while template.next(|_| ()) {
        let Some(value) = values.get(next) else {
            // A template that is cut off is reported first, unlike in an evaluation.
            let why = match template.0 {
                "" => ClauseError::Cut.to_string(),
                _ => format!("index {next} out of range"),
            };
            return Err((at, why));
        };
        next += 1;
        let clause = template.clause().map_err(|why| (at, why.to_string()))?;
        if let Some((bad, only)) = refused(clause.verb, &value.value, types) {
            let given = types[bad.id].runtime_name();
            return Err((bad.at, format!("error during formatting: {only}, was given {given}")));
        }
    }
    Ok(next)
}

/// The first expression whose type the clause does not accept, and the description of the accepted types.
fn refused<'e>(verb: char, value: &'e Expr, types: &[Type]) -> Option<(&'e Expr, &'static str)> {
    use Type::{Bool, Bytes, Double, Int, String, Uint};
    let ty = &types[value.id];
    let (takes, only) = match verb {
        's' => {
            let bad = not_printable(value, types)?;
            return Some((
                bad,
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
            ));
        }
        'd' => (matches!(ty, Int | Uint), "decimal clause can only be used on integers"),
        // Strings may be NaN or an infinity.
        'f' => (
            matches!(ty, Double | String),
            "fixed-point clause can only be used on doubles",
        ),
        'e' => (
            matches!(ty, Double | String),
            "scientific clause can only be used on doubles",
        ),
        'b' => (
            matches!(ty, Int | Uint | Bool),
            "only integers and bools can be formatted as binary",
        ),
        'o' => (matches!(ty, Int | Uint), "octal clause can only be used on integers"),
        _ => (
            matches!(ty, Int | Uint | String | Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
    };
    // Types known only at run time pass, and fail in the evaluation if they are wrong.
    (!takes && !is_unknown(ty)).then_some((value, only))
}

/// The first expression, outermost first, that `%s` does not take.
fn not_printable<'e>(value: &'e Expr, types: &[Type]) -> Option<&'e Expr> {
    let ty = &types[value.id];
    let printable = matches!(
        ty,
        Type::List(_)
            | Type::Map(_)
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::Bool
            | Type::String
            | Type::Timestamp
            | Type::Bytes
            | Type::Duration
            | Type::Type(_)
            | Type::Null
    );
    if !printable && !is_unknown(ty) {
        return Some(value);
    }
    match &value.kind {
        ExprKind::List(elements) => elements.iter().find_map(|el| not_printable(&el.value, types)),
        ExprKind::Map(entries) => entries
            .iter()
            .find_map(|en| not_printable(&en.key, types).or_else(|| not_printable(&en.value, types))),
        _ => None,
    }
}

fn is_unknown(ty: &Type) -> bool {
    matches!(ty, Type::Dyn | Type::Error)
}
