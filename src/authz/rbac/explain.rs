//! Explanations of RBAC decisions for humans: the rule, role and binding that allowed a request, or the
//! nearest misses. Entry point: [`Rbac::explain`].

use super::Behind;
use super::Rbac;
use super::index::{ApplicableBinding, Index};
use super::postings::StepBudget;
use super::rule::PolicyRule;
use crate::apimachinery::value::Value;
use crate::authz::Attributes;
use crate::json;

/// Maximum number of near misses to report.
const NEAR: usize = 3;

/// Why a request is allowed or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// The rule that allows it.
    pub allowed: Option<RuleMatch>,
    /// If none does: the nearest misses, best first.
    pub closest: Vec<RuleMatch>,
    /// Number of bindings that apply to the caller.
    pub bindings: usize,
    /// Bindings that apply to the caller but refer to missing roles.
    pub dangling: Vec<String>,
}

/// A rule, how it applies to the caller, and the permissions that it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleMatch {
    /// The binding, such as `ClusterRoleBinding "b" of ClusterRole "r" to Group "g"`.
    pub binding: String,
    /// Index of the rule in its role.
    pub number: usize,
    pub rule: PolicyRule,
    /// The attributes that do not match: `verb`, `apiGroup`, `resource`, `name`, `path`. Empty if the rule
    /// allows the request.
    pub lacks: Vec<&'static str>,
}

fn lacks(rule: &PolicyRule, attributes: &Attributes<'_>) -> Vec<&'static str> {
    let checks: &[(&'static str, bool)] = if attributes.is_resource {
        &[
            (
                "resource",
                rule.has_resource(attributes.resource, attributes.subresource),
            ),
            ("apiGroup", rule.has_group(attributes.api_group)),
            ("verb", rule.has_verb(attributes.verb)),
            ("name", rule.has_name(attributes.name)),
        ]
    } else {
        &[
            ("path", rule.has_url(attributes.path)),
            ("verb", rule.has_verb(attributes.verb)),
        ]
    };
    checks.iter().filter(|(_, ok)| !ok).map(|(what, _)| *what).collect()
}

/// Ranks a miss; smaller is nearer. A rule for another resource is far off, whatever else matches.
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

fn near(a: &ApplicableBinding, number: usize, rule: &PolicyRule, lacks: Vec<&'static str>) -> RuleMatch {
    RuleMatch {
        binding: a.binding.describe(a.subject),
        number,
        rule: rule.clone(),
        lacks,
    }
}

impl Explanation {
    /// Examines every binding that applies to the caller. For interactive use; decisions use [`Index::find`].
    pub(crate) fn of(index: &Index, attributes: &Attributes<'_>) -> Self {
        let applying = index.applying(attributes.user, attributes.namespace);
        let mut out = Self {
            bindings: applying.len(),
            // Cannot fail without a step budget.
            dangling: index
                .dangling(attributes, &mut StepBudget::unbounded())
                .unwrap_or_default(),
            ..Self::default()
        };
        let mut closest: Vec<(usize, RuleMatch)> = Vec::new();
        for a in &applying {
            let rules = a.role.iter().flat_map(|role| role.rules.iter().enumerate());
            for (number, rule) in rules {
                // Unlike a decision, this visits every rule, because near misses are in no index.
                let lacks = lacks(rule, attributes);
                if lacks.is_empty() {
                    out.allowed = Some(near(a, number, rule, lacks));
                    return out;
                }
                let distance = distance(&lacks);
                // Ties keep the order of evaluation.
                let place = closest.partition_point(|(d, _)| *d <= distance);
                // From 10 on, the rule is about another resource or path and would not explain anything.
                if distance < 10 && place < NEAR {
                    closest.insert(place, (distance, near(a, number, rule, lacks)));
                    closest.truncate(NEAR);
                }
            }
        }
        out.closest = closest.into_iter().map(|(_, near)| near).collect();
        out
    }

    /// As JSON, for the annotation on access reviews.
    pub(crate) fn to_value(&self) -> Value {
        let one = |n: &RuleMatch| {
            let mut v = json!({"through": (n.binding.as_str()), "number": (n.number as i64)});
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
    /// Explains why a request is allowed or not.
    ///
    /// # Errors
    /// [`Behind`] if the index does not catch up in time.
    pub(crate) async fn explain(&self, attributes: &Attributes<'_>) -> Result<Explanation, Behind> {
        Ok(Explanation::of(&*self.fresh(attributes.namespace).await?, attributes))
    }
}
