//! Reads rules.

use super::pair::{Move, Only, Pair, Renames, Side};
use super::path::{self, Items, Keys};
use crate::apimachinery::value::Value;

/// The pairs of a document.
///
/// # Errors
/// The first thing that is wrong, and where.
pub(super) fn pairs(document: &Value) -> Result<Vec<Pair>, String> {
    let Value::Array(entries) = document else {
        return Err("must be a list of {from, to, rules}".to_owned());
    };
    let pairs = entries.iter().enumerate();
    pairs
        .map(|(i, entry)| pair(entry).map_err(|why| format!("[{i}]{why}")))
        .collect()
}

fn pair(entry: &Value) -> Result<Pair, String> {
    known(entry, &["from", "to", "rules"])?;
    let side = |key: &str| match entry.str_at(&[key]) {
        "" => Err(format!(".{key} is required")),
        version => Ok(Side::new(version)),
    };
    let mut pair = Pair::new(side("from")?, side("to")?);
    for (i, one) in entry.get("rules").items().iter().enumerate() {
        rule(&mut pair, one).map_err(|why| format!(".rules[{i}]{why}"))?;
    }
    Ok(pair)
}

fn rule(pair: &mut Pair, rule: &Value) -> Result<(), String> {
    known(rule, &["move", "only", "constant"])?;
    let kinds = rule.as_object().into_iter().flat_map(|m| m.iter());
    let [(kind, body)] = kinds.collect::<Vec<_>>()[..] else {
        return Err(" must be one of move, only, constant".to_owned());
    };
    let done = match kind {
        "move" => moved(pair, body),
        "only" => only(pair, body, "default", false),
        _ => only(pair, body, "value", true),
    };
    done.map_err(|why| format!(".{kind}{why}"))
}

fn moved(pair: &mut Pair, body: &Value) -> Result<(), String> {
    known(body, &["from", "to", "values"])?;
    let (from_items, from) = parsed(body, "from")?;
    let (to_items, to) = parsed(body, "to")?;
    let values = body.get("values").as_object().into_iter().flat_map(|m| m.iter());
    let values = values.map(|(a, b)| match b.as_str() {
        Some(b) => Ok((a.into(), b.into())),
        None => Err(".values must map strings to strings".to_owned()),
    });
    let one = Move {
        paths: [from, to],
        values: values.collect::<Result<_, _>>()?,
    };
    if from_items != to_items {
        return Err(": both paths must have the same [*]".to_owned());
    }
    if from_items.0.is_empty() {
        pair.moves.push(one);
        return Ok(());
    }
    if one.paths.iter().any(|p| p.0.len() > 1) {
        return Err(": below [*] only a field of the item itself can be renamed".to_owned());
    }
    match pair.items.iter_mut().find(|r| r.items == from_items) {
        Some(renames) => renames.moves.push(one),
        None => pair.items.push(Renames {
            items: from_items,
            moves: vec![one],
        }),
    }
    Ok(())
}

fn only(pair: &mut Pair, body: &Value, value: &str, constant: bool) -> Result<(), String> {
    known(body, &["version", "path", value])?;
    let version = body.str_at(&["version"]);
    let (items, path) = parsed(body, "path")?;
    if !items.0.is_empty() {
        return Err(".path must not have [*]: items have no identity to keep a value for".to_owned());
    }
    let default = body.as_object().and_then(|m| m.get(value)).cloned();
    if constant && default.is_none() {
        return Err(".value is required".to_owned());
    }
    let side = pair.sides.iter_mut().find(|s| s.version == version);
    let side = side.ok_or(".version must be one of the pair")?;
    side.only.push(Only {
        path,
        default,
        constant,
    });
    Ok(())
}

fn parsed(body: &Value, key: &str) -> Result<(Items, Keys), String> {
    path::parse(body.str_at(&[key])).map_err(|why| format!(".{key}: {why}"))
}

fn known(object: &Value, keys: &[&str]) -> Result<(), String> {
    let Some(map) = object.as_object() else {
        return Err(" must be an object".to_owned());
    };
    match map.keys().find(|key| !keys.contains(key)) {
        Some(key) => Err(format!(" has the unknown field {key:?}")),
        None => Ok(()),
    }
}
