//! Evaluates the rules of an object, in upstream's order: a value before its parts, map entries in the order
//! of their keys. Nulls have no rules. The cost of rules is limited per expression and per object.

use super::correlation::{Correlation, Pair};
use super::programs::{Compiled, OLD_SELF, Programs, SELF};
use super::{Rule, Ruleset};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, MAX_TEXT, cut, quote};
use crate::apimachinery::value::Value;
use crate::interrupt::checkpoint;
use crate::schema::path::{At, Step};
use crate::schema::ratchet::OldItems;
use crate::schema::{Additional, ListKind, Node};
use std::ops::ControlFlow;
use std::sync::Arc;
use torana_cel::{Activation, Fail, Out, PatternBudget, Program, Val};

/// The maximum cost of one evaluation of an expression: about 0.1 s of upstream's time.
const PER_CALL: u64 = 1_000_000;
/// The maximum cost of all rules of an object.
const PER_OBJECT: u64 = 10_000_000;
/// The maximum bytes of a computed message.
const MAX_MESSAGE: usize = 5 * 1024;
/// Unlike errors, of which a response has at most 100, warnings have no limit of their own.
const MAX_WARNINGS: usize = 100;

/// The result of an object's rules.
#[derive(Default)]
pub(in crate::schema) struct Verdict {
    /// Failures that reject the write.
    pub(in crate::schema) errors: ErrorList,
    /// Failures of values that the update did not change, as warnings.
    pub(in crate::schema) warnings: Vec<String>,
}

/// Evaluates the rules at and below `node`, whose programs are [prepared](super::programs::prepare), for the
/// value at `base`. With `ratchet`, failures of unchanged values are warnings, unless the rule reads the old
/// value.
pub(in crate::schema) fn run(
    node: &Node,
    v: &Value,
    old: Option<&Value>,
    base: &FieldPath,
    ratchet: bool,
    budget: &mut Budget,
) -> Verdict {
    let mut evaluation = Evaluation {
        base,
        budget,
        verdict: Verdict::default(),
    };
    let pair = Pair { node, new: v, old };
    let correlation = Correlation {
        // Without an old value there is nothing to correlate, and every failure is an error.
        this: ratchet.then_some(pair).filter(|p| p.old.is_some()),
        nearest: None,
    };
    // A break means that the budget is exhausted, which has been reported.
    let _ = evaluation.visit(node, v, old, &At::ROOT, correlation);
    evaluation.verdict
}

/// The remaining budget of evaluations for one object, or for all defaults of a schema.
pub(in crate::schema) struct Budget {
    cost: u64,
    patterns: PatternBudget,
}

impl Budget {
    pub(in crate::schema) fn new() -> Self {
        Self {
            cost: PER_OBJECT,
            patterns: PatternBudget::full(),
        }
    }
}

struct Evaluation<'e> {
    base: &'e FieldPath,
    budget: &'e mut Budget,
    verdict: Verdict,
}

/// The variables of a rule.
struct Scope<'a> {
    this: Out<'a>,
    old: Option<Out<'a>>,
}

impl<'a> Activation<'a> for Scope<'a> {
    fn variable(&self, name: &str) -> Option<Out<'a>> {
        match name {
            SELF => Some(self.this.clone()),
            OLD_SELF => self.old.clone(),
            _ => None,
        }
    }
}

impl Evaluation<'_> {
    fn visit<'a>(
        &mut self,
        node: &'a Node,
        v: &'a Value,
        old: Option<&'a Value>,
        at: &At<'_>,
        correlation: Correlation<'a>,
    ) -> ControlFlow<()> {
        checkpoint();
        if !node.has_rules || v.is_null() {
            return ControlFlow::Continue(());
        }
        // A null was no value before either, so there is nothing to compare with.
        let old = old.filter(|o| !o.is_null());
        if let Some(rules) = &node.rules {
            self.rules(node, rules, v, old, at, correlation)?;
        }
        match v {
            Value::Object(m) => {
                let old = old.and_then(Value::as_object);
                for (key, child) in m.iter() {
                    let old = old.and_then(|o| o.get(key));
                    // Declared properties take precedence over `additionalProperties`.
                    let (of, at) = match (node.property(key), &node.additional) {
                        (Some(property), _) => (property, at.name(key)),
                        (None, Additional::Schema(of)) => (&**of, at.then(Step::Key(key))),
                        _ => continue,
                    };
                    // Old and new objects were converted to the same type, so a change of it cannot be seen.
                    let is_type = correlation.nearest.is_none() && matches!(key, "apiVersion" | "kind");
                    let below = match is_type {
                        true => Correlation::NONE,
                        false => correlation.part(of, child, old),
                    };
                    self.visit(of, child, old, &at, below)?;
                }
            }
            Value::Array(items) => {
                let Some(of) = node.items.as_deref() else {
                    return ControlFlow::Continue(());
                };
                // Only items of lists of type map correspond to old ones, by their keys.
                let before = match (&node.list, old) {
                    (ListKind::Map(keys), Some(old)) => OldItems::new(keys, old.items()),
                    _ => OldItems::default(),
                };
                for (i, item) in items.iter().enumerate() {
                    let old = before.find(item);
                    self.visit(of, item, old, &at.index(i), correlation.part(of, item, old))?;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn rules<'a>(
        &mut self,
        node: &'a Node,
        rules: &'a Ruleset,
        v: &'a Value,
        old: Option<&'a Value>,
        at: &At<'_>,
        correlation: Correlation<'a>,
    ) -> ControlFlow<()> {
        // `prepare` has compiled all programs of the schema before any evaluation.
        let programs = rules.programs.get().expect("the programs of the schema are prepared");
        let Some(programs) = programs else {
            // A definition that was stored before its rules were checked.
            let foreign = || node.checks.as_deref().and_then(|c| c.foreign_type.as_deref());
            let shown = node.ty.map_or_else(|| foreign().unwrap_or(""), |ty| ty.name());
            let why = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            let error = FieldError::invalid(&at.below(self.base), shown, why);
            self.verdict.errors.push(error);
            return ControlFlow::Continue(());
        };
        let site = Site {
            node,
            v,
            path: at,
            correlation,
        };
        if self.budget.cost == 0 {
            return self.stop(&site, OUT_OF_BUDGET);
        }
        // Computed once per value: conversions of large values are shared by all its rules.
        let (plain, optional) = scopes(programs, v, old);
        for (rule, compiled) in rules.list.iter().zip(&programs.list) {
            checkpoint();
            let is_optional = rule.optional_old_self == Some(true);
            // A transition rule has nothing to compare with on create.
            if compiled.reads_old && old.is_none() && !is_optional {
                continue;
            }
            let scope = if is_optional { &optional } else { &plain };
            self.rule(&site, rule, compiled, scope, &plain)?;
        }
        ControlFlow::Continue(())
    }

    fn rule<'a>(
        &mut self,
        site: &Site<'_, 'a>,
        rule: &Rule,
        compiled: &'a Compiled,
        scope: &Scope<'a>,
        plain: &Scope<'a>,
    ) -> ControlFlow<()> {
        let program = match &compiled.rule {
            Ok(program) => program,
            Err(e) => {
                self.fail(site, format!("rule compile error: {e}"));
                return ControlFlow::Continue(());
            }
        };
        let Some(value) = self.spend(program, scope) else {
            return self.stop(site, OUT_OF_BUDGET);
        };
        let name = rule.name();
        match value {
            Ok(Val::Bool(true)) => return ControlFlow::Continue(()),
            Ok(_) => {}
            Err(e @ Fail::Cost) => {
                let why = format!(
                    "'{e}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                );
                return self.stop(site, &why);
            }
            Err(e) => {
                let text = e.to_string();
                // Only values of a dynamic type (int-or-string) cause this error, which has no position.
                self.fail(
                    site,
                    if text.starts_with("no such overload") {
                        format!(
                            "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                        )
                    } else {
                        // cel-go's own messages have a position and are passed on as they are.
                        format!("{text} evaluating rule: {name}")
                    },
                );
                return ControlFlow::Continue(());
            }
        }
        let path = site.path.below(self.base);
        let path = rule.field.as_deref().map_or(path.clone(), |field| path.child(field));
        let detail = match &compiled.message {
            // As upstream, with the plain old value even where the message was compiled for an optional one.
            Some(Ok(program)) => match self.message(program, plain, rule) {
                Ok(message) => message,
                Err(why) => {
                    let shown = site.node.ty.map_or("", |ty| ty.name());
                    // Reported like the failure it explains, so ratcheting applies to it, too.
                    self.report(site, compiled, FieldError::invalid(&path, shown, why.to_string()));
                    // Ends the validation: upstream treats a message that costs too much like an exhausted budget.
                    return ControlFlow::Break(());
                }
            },
            _ => None,
        };
        // Falls back to the static message, then to the rule itself.
        let detail = detail.unwrap_or_else(|| match rule.message.as_str() {
            "" => format!("failed rule: {name}"),
            _ => name.to_owned(),
        });
        self.report(site, compiled, failure(&path, site.v, detail, rule.reason.as_deref()));
        ControlFlow::Continue(())
    }

    /// Evaluates a program. `None` if it costs more than is left.
    fn spend<'a>(&mut self, program: &'a Program, scope: &Scope<'a>) -> Option<Out<'a>> {
        let outcome = program.evaluate_within(scope, PER_CALL, &self.budget.patterns);
        let left = self.budget.cost.checked_sub(outcome.cost);
        // An exhausted budget stays exhausted, so that later evaluations do not start.
        self.budget.cost = left.unwrap_or(0);
        left.map(|_| outcome.value)
    }

    /// The computed message; `None` if it is empty, too long or not a single line.
    fn message<'a>(
        &mut self,
        program: &'a Program,
        scope: &Scope<'a>,
        rule: &Rule,
    ) -> Result<Option<String>, TooCostly> {
        let Some(value) = self.spend(program, scope) else {
            return Err(TooCostly::Budget);
        };
        match value {
            Err(Fail::Cost) => Err(TooCostly::Call(rule.message_expression.to_string())),
            Err(Fail::Error(_)) => Ok(None),
            Ok(value) => {
                // Only single lines of limited length are used, as upstream decides.
                let text = value.as_str().unwrap_or("").trim();
                let fits = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
                Ok(fits.then(|| text.to_owned()))
            }
        }
    }

    /// Reports why a rule could not be evaluated. Upstream shows the type in place of the value.
    fn fail(&mut self, site: &Site<'_, '_>, why: String) {
        let path = site.path.below(self.base);
        let shown = site.node.ty.map_or("", |ty| ty.name());
        self.verdict.errors.push(FieldError::invalid(&path, shown, why));
    }

    fn stop(&mut self, site: &Site<'_, '_>, why: &str) -> ControlFlow<()> {
        self.fail(site, why.to_owned());
        ControlFlow::Break(())
    }

    fn report(&mut self, site: &Site<'_, '_>, compiled: &Compiled, error: FieldError) {
        // A transition rule judges the change itself, so an unchanged value does not turn its failure into a warning.
        if compiled.reads_old || !site.correlation.is_unchanged() {
            self.verdict.errors.push(error);
        } else if self.verdict.warnings.len() < MAX_WARNINGS {
            self.verdict.warnings.push(cut(error.to_string(), MAX_TEXT));
        }
    }
}

/// The expression of a message costs too much, which ends the validation. Messages as upstream words them.
#[derive(Debug, thiserror::Error)]
enum TooCostly {
    /// More than is left for all rules.
    #[error("messageExpression evaluation failed due to {RUNNING_OUT}")]
    Budget,
    /// More than one expression may cost.
    #[error("no further validation rules will be run due to call cost exceeds limit for messageExpression: {}", quote(.0))]
    Call(String),
}

const RUNNING_OUT: &str = "running out of cost budget, no further validation rules will be run";
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A value that has rules.
struct Site<'p, 'a> {
    node: &'a Node,
    v: &'a Value,
    path: &'p At<'p>,
    correlation: Correlation<'a>,
}

/// The variables of rules, and of those whose old value is optional.
fn scopes<'a>(programs: &'a Programs, v: &'a Value, old: Option<&'a Value>) -> (Scope<'a>, Scope<'a>) {
    let this = Val::of(v, &programs.schema);
    // Converted only if some rule reads it.
    let old = old.filter(|_| programs.reads_old);
    let old = old.map(|old| Val::of(old, &programs.schema));
    let optional = match &old {
        None => Ok(Val::Optional(None)),
        // An error of the conversion stays an error inside of the optional.
        Some(old) => old.clone().map(|old| Val::Optional(Some(Arc::new(old)))),
    };
    let optional = Scope {
        this: this.clone(),
        old: programs.reads_old.then_some(optional),
    };
    (Scope { this, old }, optional)
}

fn failure(path: &FieldPath, v: &Value, detail: String, reason: Option<&str>) -> FieldError {
    // The error omits the value of a list or object.
    let whole = matches!(v, Value::Array(_) | Value::Object(_));
    let shown = || if whole { Value::Null } else { v.clone() };
    let mut error = match reason {
        Some("FieldValueForbidden") => return FieldError::forbidden(path, detail),
        Some("FieldValueRequired") => return FieldError::required(path, detail),
        Some("FieldValueDuplicate") => FieldError::duplicate(path, shown()),
        _ => FieldError::invalid(path, shown(), detail),
    };
    if whole {
        // Upstream prints only the type of containers; here the value is left out.
        error.bad_value = None;
    }
    error
}
