//! Why, in words for people: which rule of which role through which binding allowed something, or what came closest.

use super::Behind;
use super::Rbac;
use super::index::{Applies, Index};
use super::objects::PolicyRule;
use super::postings::Steps;
use crate::apimachinery::value::Value;
use crate::authz::Attributes;
use crate::json;

/// Near misses named at most.
const NEAR: usize = 3;

/// Why somebody may, or may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// What allows it.
    pub allowed: Option<Near>,
    /// Where nothing does: the rules that fail least, best first.
    pub closest: Vec<Near>,
    /// Bindings that name the caller.
    pub bindings: usize,
    /// Bindings that name the caller, of roles that are not there.
    pub dangling: Vec<String>,
}

/// A rule, how the caller came to it, and what it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// `ClusterRoleBinding "b" of ClusterRole "r" to Group "g"`.
    pub through: String,
    /// Which rule of the role, from 0.
    pub number: usize,
    /// The rule.
    pub rule: PolicyRule,
    /// What it does not name: `verb`, `apiGroup`, `resource`, `name`, `path`. Empty where it allows.
    pub lacks: Vec<&'static str>,
}

fn lacks(rule: &PolicyRule, asked: &Attributes<'_>) -> Vec<&'static str> {
    let checks: &[(&'static str, bool)] = if asked.is_resource {
        &[
            ("resource", rule.has_resource(asked.resource, asked.subresource)),
            ("apiGroup", rule.has_group(asked.api_group)),
            ("verb", rule.has_verb(asked.verb)),
            ("name", rule.has_name(asked.name)),
        ]
    } else {
        &[("path", rule.has_url(asked.path)), ("verb", rule.has_verb(asked.verb))]
    };
    checks.iter().filter(|(_, ok)| !ok).map(|(what, _)| *what).collect()
}

/// Smaller is closer. A rule about other things is far off, whatever its verbs.
fn distance(lacks: &[&str]) -> usize {
    lacks
        .iter()
        .map(|what| match *what {
            "resource" | "path" => 10,
            "apiGroup" => 3,
            _ => 1,
        })
        .sum()
}

fn near(a: &Applies, number: usize, rule: &PolicyRule, lacks: Vec<&'static str>) -> Near {
    Near {
        through: a.binding.describe(a.subject),
        number,
        rule: rule.clone(),
        lacks,
    }
}

impl Explanation {
    /// Looks through every binding that names the caller: for questions people ask, not for decisions.
    pub fn of(index: &Index, asked: &Attributes<'_>) -> Self {
        let applying = index.applying(asked.user, asked.namespace);
        let mut out = Self {
            bindings: applying.len(),
            // Without a bound on steps it is always answered.
            dangling: index.dangling(asked, &mut Steps::unbounded()).unwrap_or_default(),
            ..Self::default()
        };
        let mut closest: Vec<(usize, Near)> = Vec::new();
        for a in &applying {
            let rules = a.role.iter().flat_map(|role| role.rules.iter().enumerate());
            for (number, rule) in rules {
                let lacks = lacks(rule, asked);
                if lacks.is_empty() {
                    out.allowed = Some(near(a, number, rule, lacks));
                    return out;
                }
                let distance = distance(&lacks);
                // Among equals, the order in which bindings are asked.
                let place = closest.partition_point(|(d, _)| *d <= distance);
                if distance < 10 && place < NEAR {
                    closest.insert(place, (distance, near(a, number, rule, lacks)));
                    closest.truncate(NEAR);
                }
            }
        }
        out.closest = closest.into_iter().map(|(_, near)| near).collect();
        out
    }

    /// As JSON, for our annotation.
    pub fn to_value(&self) -> Value {
        let one = |n: &Near| {
            let mut v = json!({"through": (n.through.as_str()), "number": (n.number as i64)});
            v.set(&["rule"], n.rule.to_value());
            if !n.lacks.is_empty() {
                let lacks: Vec<Value> = n.lacks.iter().map(|s| Value::from(*s)).collect();
                v.set(&["lacks"], lacks);
            }
            v
        };
        let mut v = json!({"bindings": (self.bindings as i64)});
        if let Some(allowed) = &self.allowed {
            v.set(&["allowed"], one(allowed));
        }
        if !self.closest.is_empty() {
            v.set(&["closest"], self.closest.iter().map(one).collect::<Vec<_>>());
        }
        if !self.dangling.is_empty() {
            let texts: Vec<Value> = self.dangling.iter().map(|s| Value::from(s.as_str())).collect();
            v.set(&["dangling"], texts);
        }
        v
    }
}

impl Rbac {
    /// Why somebody may, or may not.
    ///
    /// # Errors
    /// [`Behind`].
    pub async fn explain(&self, asked: &Attributes<'_>) -> Result<Explanation, Behind> {
        Ok(Explanation::of(&*self.fresh().await?, asked))
    }
}
