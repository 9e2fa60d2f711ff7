//! Mapping of verified claims to a user, in upstream's order: user name, groups, uid, extra, required claims,
//! conditions on the claims, conditions on the user. The first that fails refuses the token.

use super::configuration::{JwtIssuer, Mapping, Prefixed, Rule};
use super::expressions::{Expression, Failure, Subject, user_value};
use crate::apimachinery::field::quote;
use crate::apimachinery::patch::json_type;
use crate::apimachinery::value::Value;
use crate::authn::x509::CREDENTIAL_ID;
use crate::request::UserInfo;
use std::collections::BTreeMap;
use torana_cel::{Budget, Val};

type Result<T> = std::result::Result<T, Failure>;

fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(Failure::Refused(why.into()))
}

/// Go's error for a value that is not of a type.
fn type_error(v: &Value, go_type: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type {go_type}",
        json_type(v)
    )
}

/// A claim that must be a string.
fn text<'a>(claims: &'a Value, claim: &str, context: &str) -> Result<&'a str> {
    match claims.get(claim) {
        Value::Null => refused(format!("{context}: claim not present")),
        Value::String(text) => Ok(text),
        v => refused(format!("{context}: {}", type_error(v, "string"))),
    }
}

/// The strings of a result. Empty values count as absent.
fn texts(v: &Val<'_>) -> Result<Vec<String>> {
    const WRONG: &str = "expression must return a string or a list of strings";
    let mut texts = Vec::new();
    match v {
        Val::Null => {}
        Val::String(text) => texts.push(text.to_string()),
        Val::List(list) => {
            for item in list.iter() {
                match item {
                    Ok(Val::String(text)) => texts.push(text.to_string()),
                    _ => return refused(WRONG),
                }
            }
        }
        _ => return refused(WRONG),
    }
    // Upstream drops empty strings, so that `has(claims.x) ? claims.x : ""` means no value.
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

/// Builds the user from verified claims.
///
/// # Errors
/// [`Failure::Refused`] with the reason, or [`Failure::Costly`] if the budget is exhausted.
pub(super) fn user(issuer: &JwtIssuer, claims: &Value, budget: Budget) -> Result<UserInfo> {
    let mut mapper = Mapper {
        issuer,
        claims,
        subject: Subject::claims(claims),
        budget,
    };
    let user = UserInfo {
        name: mapper.name()?,
        groups: mapper.groups()?,
        uid: mapper.uid()?,
        extra: mapper.extra()?,
    };
    mapper.required()?;
    let context = "oidc: error evaluating claim validation expression";
    let subject = mapper.subject.clone();
    check(&mut mapper.budget, &issuer.claim_rules, &subject).map_err(|why| why.within(context))?;
    if !issuer.user_rules.is_empty() {
        // The rules see the user as mapped, with prefixes, which is what authorization will see.
        let value = user_value(&user);
        let context = "oidc: error evaluating user info validation rule";
        check(&mut mapper.budget, &issuer.user_rules, &Subject::user(&value)).map_err(|why| why.within(context))?;
    }
    Ok(user)
}

/// Checks conditions. All are evaluated before the first result is looked at, so errors outweigh those that
/// are false.
fn check<'a>(budget: &mut Budget, rules: &'a [Rule], subject: &Subject<'a>) -> Result<()> {
    let values = rules.iter().map(|rule| rule.expression.evaluate(budget, subject));
    for (rule, value) in rules.iter().zip(values.collect::<Result<Vec<_>>>()?) {
        match value {
            Val::Bool(true) => {}
            Val::Bool(false) => {
                let text = rule.expression.text();
                return refused(format!("validation expression '{text}' failed: {}", rule.message));
            }
            _ => return refused("validation expression must return a boolean"),
        }
    }
    Ok(())
}

struct Mapper<'a> {
    issuer: &'a JwtIssuer,
    claims: &'a Value,
    subject: Subject<'a>,
    budget: Budget,
}

impl<'a> Mapper<'a> {
    fn evaluate(&mut self, expression: &'a Expression) -> Result<Val<'a>> {
        expression.evaluate(&mut self.budget, &self.subject)
    }

    /// The result of an expression that must be a string.
    fn string(&mut self, expression: &'a Expression, role: &str) -> Result<String> {
        let value = self.evaluate(expression).and_then(|v| match v {
            Val::String(text) => Ok(text.to_string()),
            _ => refused(format!("{role} claim expression must return a string")),
        });
        value.map_err(|why| why.within(&format!("oidc: error evaluating {role} claim expression")))
    }

    fn name(&mut self) -> Result<String> {
        let Prefixed { claim, prefix } = match &self.issuer.username {
            Mapping::Expression(expression) => {
                let name = self.string(expression, "username")?;
                return match name.as_str() {
                    "" => refused("oidc: empty username via CEL expression is not allowed"),
                    _ => Ok(name),
                };
            }
            Mapping::Claim(claim) => claim,
        };
        let name = text(
            self.claims,
            claim,
            &format!("oidc: parse username claims {}", quote(claim)),
        )?;
        if claim == "email" {
            // Absent counts as verified, as upstream: many providers omit the claim. Only an explicit `false`
            // refuses.
            match self.claims.get("email_verified") {
                Value::Null | Value::Bool(true) => {}
                Value::Bool(false) => return refused("oidc: email not verified"),
                v => {
                    let why = type_error(v, "bool");
                    return refused(format!("oidc: parse 'email_verified' claim: {why}"));
                }
            }
        }
        if name.is_empty() {
            return refused("oidc: the username claim is empty");
        }
        Ok(format!("{prefix}{name}"))
    }

    fn groups(&mut self) -> Result<Vec<String>> {
        let Prefixed { claim, prefix } = match &self.issuer.groups {
            None => return Ok(Vec::new()),
            Some(Mapping::Expression(expression)) => {
                let context = "oidc: error evaluating group claim expression";
                let groups = self.evaluate(expression).and_then(|v| texts(&v));
                return groups.map_err(|why| why.within(context));
            }
            Some(Mapping::Claim(claim)) => claim,
        };
        let wrong = |v| {
            let why = type_error(v, "string");
            refused(format!("oidc: parse groups claim {}: {why}", quote(claim)))
        };
        let names: Vec<&str> = match self.claims.get(claim) {
            Value::Null => Vec::new(),
            Value::String(one) => vec![one],
            // All or nothing: dropping single elements could drop the group that a deny rule is about.
            v @ Value::Array(list) => match list.iter().map(Value::as_str).collect() {
                Some(names) => names,
                None => return wrong(v),
            },
            v => return wrong(v),
        };
        Ok(names.into_iter().map(|n| format!("{prefix}{n}")).collect())
    }

    fn uid(&mut self) -> Result<String> {
        match &self.issuer.uid {
            None => Ok(String::new()),
            Some(Mapping::Expression(expression)) => self.string(expression, "uid"),
            Some(Mapping::Claim(Prefixed { claim, .. })) => {
                text(self.claims, claim, &format!("oidc: parse uid claim {}", quote(claim))).map(str::to_owned)
            }
        }
    }

    fn extra(&mut self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut extra = BTreeMap::new();
        match self.claims.get("jti").as_str() {
            None | Some("") => {}
            Some(id) => {
                // Before the mapped keys; those cannot replace it, because kubernetes.io keys are reserved.
                extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
            }
        }
        // All are evaluated before the first result is looked at. Errors of the evaluation have no context,
        // in upstream neither.
        let values = self.issuer.extra.iter().map(|(key, expression)| {
            let value = expression.evaluate(&mut self.budget, &self.subject)?;
            Ok((key, expression, value))
        });
        for (key, expression, value) in values.collect::<Result<Vec<_>>>()? {
            let context = "oidc: error evaluating extra claim expression";
            let texts = texts(&value).map_err(|why| why.within(expression.text()).within(context))?;
            if !texts.is_empty() {
                extra.insert(key.clone(), texts);
            }
        }
        Ok(extra)
    }

    fn required(&self) -> Result<()> {
        for (claim, want) in &self.issuer.required {
            let got = match self.claims.get(claim) {
                Value::Null => return refused(format!("oidc: required claim {claim} not present in ID token")),
                Value::String(got) => got,
                v => return refused(format!("oidc: parse claim {claim}: {}", type_error(v, "string"))),
            };
            if got != want {
                return refused(format!(
                    "oidc: required claim {claim} value does not match. Got = {got}, want = {want}"
                ));
            }
        }
        Ok(())
    }
}
