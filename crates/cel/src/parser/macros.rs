//! Macros: calls that the parser replaces by other expressions, mostly loops.

use super::{Parsed, Parser};
use crate::ast::{Call, Element, Entry, Expr, ExprKind, Fold, Literal, Select, op};
use std::sync::Arc;

/// The accumulator of every loop. Not an identifier that source text can contain.
pub(crate) const RESULT: &str = "@result";
/// The target of `optMap` and `optFlatMap`. cel-go has it twice in their expansion, and so counts it twice.
pub(crate) const TARGET: &str = "@target";

/// The expansion of a call that is a macro; any other call is handed back.
pub(crate) fn expand(p: &mut Parser<'_>, at: u32, mut call: Call) -> Result<Parsed<Expr>, Call> {
    let count = call.args.len();
    let Some(target) = call.target.take() else {
        return match (&*call.function, count) {
            ("has", 1) => Ok(has(at, call.args.remove(0))),
            _ => Err(call),
        };
    };
    let one_variable = match (&*call.function, count) {
        ("all" | "exists" | "exists_one" | "filter", 2) | ("map", 2 | 3) => true,
        ("all" | "exists" | "exists_one" | "existsOne", 3) | ("transformList" | "transformMap", 3 | 4) => false,
        ("transformMapEntry", 3 | 4) => false,
        ("optMap" | "optFlatMap", 2) => return Ok(optional(p, at, target, call)),
        ("bind", 3) if p.binds && matches!(&target.kind, ExprKind::Ident(name) if &**name == "cel") => {
            return Ok(named(p, at, call));
        }
        ("sortBy", 2) => return Ok(sort_by(p, at, target, call)),
        _ => {
            // Handed back whole: the caller makes an ordinary call of it.
            call.target = Some(target);
            return Err(call);
        }
    };
    Ok(fold(p, at, target, call, one_variable))
}

fn has(at: u32, arg: Expr) -> Parsed<Expr> {
    match arg.kind {
        ExprKind::Select(select) if !select.test => {
            let select = Select { test: true, ..*select };
            Ok(Expr {
                kind: ExprKind::Select(Box::new(select)),
                at,
                ..arg
            })
        }
        _ => Err((arg.at, "invalid argument to has() macro".to_owned())),
    }
}

fn variable(arg: &Expr) -> Parsed<Arc<str>> {
    match &arg.kind {
        ExprKind::Ident(name) => Ok(name.clone()),
        _ => Err((arg.at, "argument must be a simple name".to_owned())),
    }
}

fn fold(p: &mut Parser<'_>, at: u32, range: Expr, call: Call, one_variable: bool) -> Parsed<Expr> {
    let mut args = call.args.into_iter();
    let mut next = || args.next().expect("the count of arguments was checked");
    let var = variable(&next())?;
    let var2 = if one_variable {
        None
    } else {
        let place = next();
        let second = variable(&place)?;
        if second == var {
            return Err((place.at, format!("duplicate variable name: {var}")));
        }
        Some(second)
    };
    // A condition comes first, and the value behind it.
    let (first, second) = (next(), args.next());
    let (init, condition, step, result) = match &*call.function {
        "all" => {
            // Each use of the accumulator is a node of its own, since ids are unique.
            let accumulator = p.ident(at, RESULT);
            let condition = p.call(at, op::NOT_STRICTLY_FALSE, vec![accumulator]);
            let accumulator = p.ident(at, RESULT);
            let step = p.call(at, op::AND, vec![accumulator, first]);
            (p.literal(at, Literal::Bool(true)), condition, step, p.ident(at, RESULT))
        }
        "exists" => {
            let accumulator = p.ident(at, RESULT);
            let not = p.call(at, op::NOT, vec![accumulator]);
            let condition = p.call(at, op::NOT_STRICTLY_FALSE, vec![not]);
            let accumulator = p.ident(at, RESULT);
            let step = p.call(at, op::OR, vec![accumulator, first]);
            (
                p.literal(at, Literal::Bool(false)),
                condition,
                step,
                p.ident(at, RESULT),
            )
        }
        "exists_one" | "existsOne" => {
            let (accumulator, one) = (p.ident(at, RESULT), p.literal(at, Literal::Int(1)));
            let more = p.call(at, op::ADD, vec![accumulator, one]);
            let step = keep_unless(p, at, first, more);
            let (accumulator, one) = (p.ident(at, RESULT), p.literal(at, Literal::Int(1)));
            let result = p.call(at, op::EQUALS, vec![accumulator, one]);
            (
                p.literal(at, Literal::Int(0)),
                p.literal(at, Literal::Bool(true)),
                step,
                result,
            )
        }
        "filter" => {
            let element = p.ident(at, &var);
            let step = append(p, at, element);
            list_of(p, at, Some(first), step)
        }
        "map" | "transformList" => {
            let (condition, element) = match second {
                Some(element) => (Some(first), element),
                None => (None, first),
            };
            let step = append(p, at, element);
            list_of(p, at, condition, step)
        }
        function => {
            let (condition, value) = match second {
                Some(value) => (Some(first), value),
                None => (None, first),
            };
            let accumulator = p.ident(at, RESULT);
            let args = if function == "transformMap" {
                vec![accumulator, p.ident(at, &var), value]
            } else {
                vec![accumulator, value]
            };
            let step = p.call(at, "cel.@mapInsert", args);
            let step = match condition {
                Some(condition) => keep_unless(p, at, condition, step),
                None => step,
            };
            let init = p.node(at, ExprKind::Map(Vec::<Entry>::new()));
            (init, p.literal(at, Literal::Bool(true)), step, p.ident(at, RESULT))
        }
    };
    let fold = Fold {
        range,
        var,
        var2,
        accumulator: RESULT.into(),
        init,
        condition,
        step,
        result,
    };
    Ok(p.node(at, ExprKind::Fold(Box::new(fold))))
}

/// `condition ? step : @result`
fn keep_unless(p: &mut Parser<'_>, at: u32, condition: Expr, step: Expr) -> Expr {
    let accumulator = p.ident(at, RESULT);
    p.call(at, op::CONDITIONAL, vec![condition, step, accumulator])
}

/// `@result + [element]`
fn append(p: &mut Parser<'_>, at: u32, element: Expr) -> Expr {
    let element = Element {
        value: element,
        optional: false,
    };
    let accumulator = p.ident(at, RESULT);
    let list = p.node(at, ExprKind::List(vec![element]));
    p.call(at, op::ADD, vec![accumulator, list])
}

fn list_of(p: &mut Parser<'_>, at: u32, condition: Option<Expr>, step: Expr) -> (Expr, Expr, Expr, Expr) {
    let step = match condition {
        Some(condition) => keep_unless(p, at, condition, step),
        None => step,
    };
    let init = p.node(at, ExprKind::List(Vec::new()));
    (init, p.literal(at, Literal::Bool(true)), step, p.ident(at, RESULT))
}

/// Binds a variable: a loop over an empty list whose result reads the accumulator.
fn bind(p: &mut Parser<'_>, at: u32, name: Arc<str>, value: Expr, result: Expr) -> Expr {
    let fold = Fold {
        range: p.node(at, ExprKind::List(Vec::new())),
        // Not a name that source text can contain, so nothing can read it.
        var: "#unused".into(),
        var2: None,
        accumulator: name.clone(),
        init: value,
        condition: p.literal(at, Literal::Bool(false)),
        step: p.ident(at, &name),
        result,
    };
    p.node(at, ExprKind::Fold(Box::new(fold)))
}

/// True for the form into which macros bind a value to a name: a loop over nothing.
pub(crate) fn is_bind(fold: &Fold) -> bool {
    let nothing = |e: &Expr| matches!(&e.kind, ExprKind::List(elements) if elements.is_empty());
    let never = |e: &Expr| matches!(&e.kind, ExprKind::Literal(Literal::Bool(false)));
    // The accumulator's name tells it from the loops of other macros.
    nothing(&fold.range) && never(&fold.condition) && &*fold.accumulator != RESULT
}

fn method(p: &mut Parser<'_>, at: u32, target: Expr, function: &str, args: Vec<Expr>) -> Expr {
    let call = Call {
        target: Some(target),
        function: function.into(),
        args,
    };
    p.node(at, ExprKind::Call(Box::new(call)))
}

/// `cel.bind(name, value, expression)`
fn named(p: &mut Parser<'_>, at: u32, call: Call) -> Parsed<Expr> {
    let [name, value, result] = <[Expr; 3]>::try_from(call.args).expect("the count of arguments was checked");
    match name.kind {
        ExprKind::Ident(name) => Ok(bind(p, at, name, value, result)),
        _ => Err((
            name.at,
            "cel.bind() variable names must be simple identifiers".to_owned(),
        )),
    }
}

/// `target.hasValue() ? optional.of(<with the value bound>) : optional.none()`
fn optional(p: &mut Parser<'_>, at: u32, target: Expr, call: Call) -> Parsed<Expr> {
    let flat = &*call.function == "optFlatMap";
    let [name, body] = <[Expr; 2]>::try_from(call.args).expect("the count of arguments was checked");
    let name = match &name.kind {
        ExprKind::Ident(name) => name.clone(),
        _ => {
            return Err((
                name.at,
                format!("{}() variable name must be a simple identifier", call.function),
            ));
        }
    };
    let bound = p.ident(at, TARGET);
    let value = method(p, at, bound, "value", Vec::new());
    let body = bind(p, at, name, value, body);
    let yes = if flat {
        // `optMap` wraps its result, `optFlatMap` expects an optional.
        body
    } else {
        p.call(at, "optional.of", vec![body])
    };
    let no = p.call(at, "optional.none", Vec::new());
    let bound = p.ident(at, TARGET);
    let present = method(p, at, bound, "hasValue", Vec::new());
    let choice = p.call(at, op::CONDITIONAL, vec![present, yes, no]);
    Ok(bind(p, at, TARGET.into(), target, choice))
}

/// `target.@sortByAssociatedKeys(target.map(name, key))`
fn sort_by(p: &mut Parser<'_>, at: u32, target: Expr, call: Call) -> Parsed<Expr> {
    const TARGET: &str = "@list";
    let [name, key] = <[Expr; 2]>::try_from(call.args).expect("the count of arguments was checked");
    let map = Call {
        target: None,
        function: "map".into(),
        args: vec![name, key],
    };
    let range = p.ident(at, TARGET);
    let keys = fold(p, at, range, map, true)?;
    let list = p.ident(at, TARGET);
    let sorted = method(p, at, list, "@sortByAssociatedKeys", vec![keys]);
    Ok(bind(p, at, TARGET.into(), target, sorted))
}
