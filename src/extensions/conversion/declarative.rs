//! Declarative conversion, our own: rules in the annotation [`ANNOTATION`] of a definition replace most
//! conversion webhooks. `docs/conversion.md` describes them.
//!
//! ```text
//! written:  annotation ─ rules (parse) ─ proof (schemas fit, nothing is lost) ─► accepted, or refused
//! used:     object ─ pair (one step per pair of versions on the route) ─► object of the other version
//! ```
//!
//! Fields that a version cannot represent are kept in an annotation of the object, so that every round trip
//! returns the original object.

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
use std::fmt::Display;
use std::sync::Arc;

/// The annotation of a definition that holds its rules, in YAML or JSON.
pub(crate) const ANNOTATION: &str = "torana.dev/conversion";
/// Longest annotation in bytes and maximum number of rules, so that the proof takes milliseconds.
const MAX_BYTES: usize = 64 << 10;
const MAX_RULES: usize = 256;

/// Converts by the rules of a definition's annotation.
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

/// Why the rules of a definition cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The annotation is too long.
    #[error("must have at most {MAX_BYTES} bytes")]
    TooLong,
    /// The annotation is not valid YAML.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    /// A rule is malformed.
    #[error(transparent)]
    Rule(#[from] rules::Error),
    /// There are too many rules.
    #[error("must have at most {MAX_RULES} rules")]
    TooMany,
    /// A pair names a version that the definition does not have.
    #[error("there is no version {0}")]
    NoVersion(String),
    /// Two pairs connect the same versions, or one connects a version with itself.
    #[error("there must be one pair for {0} and {1}")]
    RepeatedPair(String, String),
    /// A version cannot be converted to another one.
    #[error("no rules lead from {0} to {1}")]
    NoRoute(String, String),
}

/// The text of a definition's rules; `None` if it has none.
pub(in crate::extensions) fn annotation(definition: &Value) -> Option<&str> {
    definition.at(&["metadata", "annotations"]).get(ANNOTATION).as_str()
}

/// Validates the annotation of a definition, if it has one: the rules, and that every version can be
/// converted to every other and back without loss.
pub(crate) fn validate(definition: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    // Definitions without rules are nearly all; they cost one lookup.
    let Some(text) = annotation(definition) else {
        return errors;
    };
    let at = FieldPath::new("metadata").child("annotations").key(ANNOTATION);
    // The value is left out of the errors: it would repeat up to 64 KiB of rules in each.
    let mut refuse = |why: &dyn Display| errors.push(FieldError::invalid(&at, Value::Null, why.to_string()));
    if definition.str_at(&["spec", "conversion", "strategy"]) == "Webhook" {
        refuse(&"must not be set when spec.conversion.strategy is Webhook");
        return errors;
    }
    let pairs = match parse(text) {
        Ok(pairs) => pairs,
        Err(e) => {
            refuse(&e);
            return errors;
        }
    };
    for pair in &pairs {
        match schemas(definition, pair) {
            Ok([from, to]) => proof::losses(pair, from, to).iter().for_each(|reason| refuse(reason)),
            Err(e) => refuse(&e),
        }
    }
    let versions = definition.at(&["spec", "versions"]).items();
    let names: Vec<&str> = versions.iter().map(|v| v.str_at(&["name"])).collect();
    // Every pair of versions needs a route, since clients may read any version of an object stored in any other.
    if let Err(e) = routes(&pairs.into_iter().map(Arc::new).collect::<Vec<_>>(), &names) {
        refuse(&e);
    }
    errors
}

/// The schemas of a pair's versions.
fn schemas<'d>(definition: &'d Value, pair: &Pair) -> Result<[&'d Value; 2], Error> {
    let versions = definition.at(&["spec", "versions"]).items();
    let schema = |version: &str| {
        let of = versions.iter().find(|v| v.str_at(&["name"]) == version);
        of.map(|v| v.at(&["schema", "openAPIV3Schema"]))
            .ok_or_else(|| Error::NoVersion(version.to_owned()))
    };
    Ok([schema(&pair.sides[0].version)?, schema(&pair.sides[1].version)?])
}

/// Reads the pairs of an annotation.
fn parse(text: &str) -> Result<Vec<Pair>, Error> {
    if text.len() > MAX_BYTES {
        return Err(Error::TooLong);
    }
    let tree = yaml::decode(text.as_bytes())?;
    let pairs = rules::pairs(&tree)?;
    if pairs.iter().map(Pair::len).sum::<usize>() > MAX_RULES {
        return Err(Error::TooMany);
    }
    Ok(pairs)
}

/// The shortest route between any two versions.
fn routes(pairs: &[Arc<Pair>], versions: &[&str]) -> Result<HashMap<(String, String), Vec<Step>>, Error> {
    let mut neighbours: HashMap<&str, Vec<(&str, Step)>> = HashMap::new();
    let mut seen = HashSet::new();
    for pair in pairs {
        let [from, to] = [&*pair.sides[0].version, &*pair.sides[1].version];
        // Ordered by name, so that a pair and its reverse count as the same.
        if from == to || !seen.insert((from.min(to), from.max(to))) {
            return Err(Error::RepeatedPair(from.to_owned(), to.to_owned()));
        }
        // Every rule can be undone, so each pair is an edge in both directions.
        for (a, b, forward) in [(from, to, true), (to, from, false)] {
            let pair = pair.clone();
            neighbours.entry(a).or_default().push((b, Step { pair, forward }));
        }
    }
    let mut routes = HashMap::new();
    for start in versions {
        let mut found: HashMap<&str, Vec<Step>> = HashMap::from([(*start, Vec::new())]);
        // Breadth first, so the first route found is the shortest: fewer steps keep fewer annotations.
        let mut queue = VecDeque::from([*start]);
        // At most one visit per version: versions are few, and routes are computed once per change of the definition.
        while let Some(here) = queue.pop_front() {
            for (next, step) in neighbours.get(here).into_iter().flatten() {
                if !found.contains_key(next) {
                    let mut route = found[here].clone();
                    route.push(step.clone());
                    found.insert(*next, route);
                    queue.push_back(*next);
                }
            }
        }
        for end in versions.iter().filter(|end| *end != start) {
            let route = found.remove(end);
            let route = route.ok_or_else(|| Error::NoRoute((*start).to_owned(), (*end).to_owned()))?;
            routes.insert(((*start).to_owned(), (*end).to_owned()), route);
        }
    }
    Ok(routes)
}

impl Declarative {
    /// The conversion of a definition with this annotation.
    ///
    /// # Errors
    /// [`Error`], for an annotation that was stored without validation.
    pub(crate) fn new(definition: &Value, text: &str) -> Result<Self, Error> {
        let mut pairs = parse(text)?;
        // Completed here and not in `parse`: validation has to report missing versions itself.
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
        // An object of another group was stored under a definition that has since been replaced.
        let steps = self.routes.get(&route).filter(|_| from.group == self.group);
        let Some(steps) = steps else {
            return Err(NotConverted(
                Error::NoRoute(from.to_string(), to.to_string()).to_string(),
            ));
        };
        for step in steps {
            step.pair.convert(&mut object, step.forward);
        }
        // Last, so that a failed step cannot leave a half-converted object with the new version.
        object.set(&["apiVersion"], to.to_string());
        Ok(object)
    }
}

impl Conversion for Declarative {
    fn convert(&self, objects: Vec<Value>, to: &KindVersion) -> Converting {
        let to = GroupVersion::parse(&to.api_version).unwrap_or_default();
        // Any failure fails the whole list, as upstream does: a client must not see a list with gaps.
        Converting::Done(objects.into_iter().map(|o| self.one(o, &to)).collect())
    }
}
