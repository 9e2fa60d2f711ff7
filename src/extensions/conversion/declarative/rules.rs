//! Reads the rules of an annotation into [`Pair`]s. Entry point: [`pairs`]. Whether they fit the schemas is left to
//! `proof`.

use super::pair::{Move, Only, Pair, Renames, Side};
use super::path::{self, InvalidPath, Items, Keys};
use crate::apimachinery::value::Value;

/// An error in a rule. Messages follow the path of the invalid member, such as `[0].rules[1].move`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The error of a member, with the path to it.
    #[error("{at}{source}")]
    At { at: String, source: Box<Self> },
    #[error("must be a list of {{from, to, rules}}")]
    NotList,
    #[error(" must be an object")]
    NotObject,
    #[error(" has the unknown field {0:?}")]
    UnknownField(String),
    #[error(".{0} is required")]
    Required(&'static str),
    #[error(" must be one of move, only, constant")]
    NotOneKind,
    #[error(".{member}: {source}")]
    Path { member: &'static str, source: InvalidPath },
    #[error(".values must map strings to strings")]
    Values,
    #[error(": both paths must have the same [*]")]
    DifferentItems,
    #[error(": below [*] only a field of the item itself can be renamed")]
    BelowItem,
    #[error(".path must not have [*]: items have no identity to keep a value for")]
    FieldOfItems,
    #[error(".version must be one of the pair")]
    Version,
}

impl Error {
    /// For `map_err`: the error of a member.
    fn at(at: String) -> impl FnOnce(Self) -> Self {
        move |source| Self::At {
            at,
            source: Box::new(source),
        }
    }
}

/// The pairs of a document.
///
/// # Errors
/// The first error, and where.
pub(super) fn pairs(document: &Value) -> Result<Vec<Pair>, Error> {
    let Value::Array(entries) = document else {
        return Err(Error::NotList);
    };
    let pairs = entries.iter().enumerate();
    pairs
        .map(|(i, entry)| pair(entry).map_err(Error::at(format!("[{i}]"))))
        .collect()
}

fn pair(entry: &Value) -> Result<Pair, Error> {
    check_fields(entry, &["from", "to", "rules"])?;
    let side = |key: &'static str| match entry.str_at(&[key]) {
        "" => Err(Error::Required(key)),
        version => Ok(Side::new(version)),
    };
    let mut pair = Pair::new(side("from")?, side("to")?);
    for (i, one) in entry.get("rules").items().iter().enumerate() {
        rule(&mut pair, one).map_err(Error::at(format!(".rules[{i}]")))?;
    }
    Ok(pair)
}

fn rule(pair: &mut Pair, rule: &Value) -> Result<(), Error> {
    check_fields(rule, &["move", "only", "constant"])?;
    let kinds = rule.as_object().into_iter().flat_map(|m| m.iter());
    // A rule is an object with exactly one member, its kind.
    let [(kind, body)] = kinds.collect::<Vec<_>>()[..] else {
        return Err(Error::NotOneKind);
    };
    let done = match kind {
        "move" => moved(pair, body),
        // `check_fields` has left only `constant`.
        "only" => only(pair, body, "default", false),
        _ => only(pair, body, "value", true),
    };
    done.map_err(Error::at(format!(".{kind}")))
}

fn moved(pair: &mut Pair, body: &Value) -> Result<(), Error> {
    check_fields(body, &["from", "to", "values"])?;
    let (from_items, from) = parsed(body, "from")?;
    let (to_items, to) = parsed(body, "to")?;
    let values = body.get("values").as_object().into_iter().flat_map(|m| m.iter());
    let values = values.map(|(a, b)| match b.as_str() {
        Some(b) => Ok((a.into(), b.into())),
        None => Err(Error::Values),
    });
    let one = Move::new([from, to], values.collect::<Result<_, _>>()?);
    // A field may not move between items, or into and out of them: which item would it belong to?
    if from_items != to_items {
        return Err(Error::DifferentItems);
    }
    if from_items.0.is_empty() {
        pair.moves.push(one);
        return Ok(());
    }
    // Deeper moves could remove or create objects within items, whose absence nothing would record.
    if one.paths.iter().any(|p| p.0.len() > 1) {
        return Err(Error::BelowItem);
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

fn only(pair: &mut Pair, body: &Value, value: &'static str, constant: bool) -> Result<(), Error> {
    check_fields(body, &["version", "path", value])?;
    let version = body.str_at(&["version"]);
    let (items, path) = parsed(body, "path")?;
    if !items.0.is_empty() {
        return Err(Error::FieldOfItems);
    }
    let default = body.as_object().and_then(|m| m.get(value)).cloned();
    if constant && default.is_none() {
        return Err(Error::Required(value));
    }
    let side = pair.sides.iter_mut().find(|s| s.version == version);
    let side = side.ok_or(Error::Version)?;
    side.only.push(Only {
        path,
        default,
        constant,
    });
    Ok(())
}

fn parsed(body: &Value, member: &'static str) -> Result<(Items, Keys), Error> {
    path::parse(body.str_at(&[member])).map_err(|source| Error::Path { member, source })
}

fn check_fields(object: &Value, keys: &[&str]) -> Result<(), Error> {
    let Some(map) = object.as_object() else {
        return Err(Error::NotObject);
    };
    match map.keys().find(|key| !keys.contains(key)) {
        Some(key) => Err(Error::UnknownField(key.to_owned())),
        None => Ok(()),
    }
}
