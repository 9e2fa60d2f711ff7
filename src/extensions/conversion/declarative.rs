//! Declarative conversion, our own: rules in the annotation [`ANNOTATION`] of a definition replace most conversion
//! webhooks. `docs/conversion.md` describes them.
//!
//! ```text
//! written:  annotation ─ rules (parse) ─ proof (the schemas fit, nothing is lost) ─► accepted, or refused with reasons
//! used:     object ─ pair (one step per pair of versions on the way) ─► object of the other version
//! ```
//!
//! What a version cannot represent travels in an annotation of the object, so that every round trip returns the object
//! it began with.

mod pair;
mod path;
mod proof;
mod rules;
#[cfg(test)]
mod tests;

use crate::apimachinery::codec::yaml;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::registry::converting::{Conversion, Converting, KindVersion, NotConverted};
use pair::Pair;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The annotation of a definition that holds its rules, in YAML or JSON.
pub(crate) const ANNOTATION: &str = "torana.dev/conversion";
/// Longest annotation in bytes, and most rules, so that proving it takes milliseconds.
const MAX_BYTES: usize = 64 << 10;
const MAX_RULES: usize = 256;

/// Converts by rules.
pub(super) struct Declarative {
    group: String,
    /// The steps from one version to another.
    routes: HashMap<(String, String), Vec<Step>>,
}

/// A pair of versions, in one of its directions.
#[derive(Clone)]
struct Step {
    pair: Arc<Pair>,
    forward: bool,
}

/// The rules of a definition; `None` if it has none.
pub(in crate::extensions) fn annotation(definition: &Value) -> Option<&str> {
    definition.at(&["metadata", "annotations"]).get(ANNOTATION).as_str()
}

/// Validates the annotation of a definition, if it has one: the rules, and that every version can be converted to every
/// other and back without loss.
pub(crate) fn validate(definition: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(text) = annotation(definition) else {
        return errors;
    };
    let at = FieldPath::new("metadata").child("annotations").key(ANNOTATION);
    let mut refuse = |why: String| errors.push(FieldError::invalid(&at, Value::Null, why));
    if definition.str_at(&["spec", "conversion", "strategy"]) == "Webhook" {
        refuse("must not be set when spec.conversion.strategy is Webhook".to_owned());
        return errors;
    }
    let pairs = match parse(text) {
        Ok(pairs) => pairs,
        Err(why) => {
            refuse(why);
            return errors;
        }
    };
    for pair in &pairs {
        match schemas(definition, pair) {
            Ok([from, to]) => proof::of(pair, from, to).into_iter().for_each(&mut refuse),
            Err(why) => refuse(why),
        }
    }
    let versions = definition.at(&["spec", "versions"]).items();
    let names: Vec<&str> = versions.iter().map(|v| v.str_at(&["name"])).collect();
    if let Err(why) = routes(&pairs.into_iter().map(Arc::new).collect::<Vec<_>>(), &names) {
        refuse(why);
    }
    errors
}

/// The schemas of a pair's versions.
fn schemas<'d>(definition: &'d Value, pair: &Pair) -> Result<[&'d Value; 2], String> {
    let versions = definition.at(&["spec", "versions"]).items();
    let schema = |version: &str| {
        let of = versions.iter().find(|v| v.str_at(&["name"]) == version);
        of.map(|v| v.at(&["schema", "openAPIV3Schema"]))
            .ok_or_else(|| format!("there is no version {version}"))
    };
    Ok([schema(&pair.sides[0].version)?, schema(&pair.sides[1].version)?])
}

/// Reads the pairs of an annotation.
fn parse(text: &str) -> Result<Vec<Pair>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("must have at most {MAX_BYTES} bytes"));
    }
    let tree = yaml::decode(text.as_bytes())?;
    let pairs = rules::pairs(&tree)?;
    if pairs.iter().map(Pair::len).sum::<usize>() > MAX_RULES {
        return Err(format!("must have at most {MAX_RULES} rules"));
    }
    Ok(pairs)
}

/// The shortest way between any two versions.
fn routes(pairs: &[Arc<Pair>], versions: &[&str]) -> Result<HashMap<(String, String), Vec<Step>>, String> {
    let mut neighbours: HashMap<&str, Vec<(&str, Step)>> = HashMap::new();
    let mut seen = HashSet::new();
    for pair in pairs {
        let [from, to] = [&*pair.sides[0].version, &*pair.sides[1].version];
        if from == to || !seen.insert((from.min(to), from.max(to))) {
            return Err(format!("there must be one pair for {from} and {to}"));
        }
        for (a, b, forward) in [(from, to, true), (to, from, false)] {
            let pair = pair.clone();
            neighbours.entry(a).or_default().push((b, Step { pair, forward }));
        }
    }
    let mut routes = HashMap::new();
    for start in versions {
        let mut found: HashMap<&str, Vec<Step>> = HashMap::from([(*start, Vec::new())]);
        let mut queue = VecDeque::from([*start]);
        while let Some(here) = queue.pop_front() {
            for (next, step) in neighbours.get(here).into_iter().flatten() {
                if !found.contains_key(next) {
                    let mut way = found[here].clone();
                    way.push(step.clone());
                    found.insert(*next, way);
                    queue.push_back(*next);
                }
            }
        }
        for end in versions.iter().filter(|end| *end != start) {
            let way = found.remove(end);
            let way = way.ok_or_else(|| format!("no rules lead from {start} to {end}"))?;
            routes.insert(((*start).to_owned(), (*end).to_owned()), way);
        }
    }
    Ok(routes)
}

impl Declarative {
    /// The conversion of a definition with this annotation.
    ///
    /// # Errors
    /// What is wrong with an annotation that was stored without validation.
    pub(crate) fn new(definition: &Value, text: &str) -> Result<Self, String> {
        let mut pairs = parse(text)?;
        for pair in &mut pairs {
            let schemas = schemas(definition, pair)?;
            pair.complete(schemas);
        }
        let pairs: Vec<_> = pairs.into_iter().map(Arc::new).collect();
        let versions = definition.at(&["spec", "versions"]).items().iter();
        let versions: Vec<&str> = versions.map(|v| v.str_at(&["name"])).collect();
        Ok(Self {
            group: definition.str_at(&["spec", "group"]).to_owned(),
            routes: routes(&pairs, &versions)?,
        })
    }

    fn one(&self, mut object: Value, to: &GroupVersion) -> Result<Value, NotConverted> {
        let from = GroupVersion::parse(object.api_version()).unwrap_or_default();
        let route = (from.version.to_string(), to.version.to_string());
        let steps = self.routes.get(&route).filter(|_| from.group == self.group);
        let Some(steps) = steps else {
            return Err(NotConverted(format!("no rules lead from {from} to {to}")));
        };
        for step in steps {
            step.pair.convert(&mut object, step.forward);
        }
        object.set(&["apiVersion"], to.to_string());
        Ok(object)
    }
}

impl Conversion for Declarative {
    fn convert(&self, objects: Vec<Value>, to: &KindVersion) -> Converting {
        let to = GroupVersion::parse(&to.api_version).unwrap_or_default();
        Converting::Done(objects.into_iter().map(|o| self.one(o, &to)).collect())
    }
}
