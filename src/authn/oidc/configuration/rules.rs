//! Rules and mappings of a provider: `claimValidationRules`, `claimMappings` and `userValidationRules`.
//! Expressions are compiled here; a compile error is an error of its field. Evaluation is left to `claims`.

use super::{Error, Mapping, Prefixed, Reader, Rule};
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::validation::domain_prefixed_path;
use crate::apimachinery::value::Value;
use crate::authn::oidc::expressions::{CompileError, Expression, Returns};

const BOTH: &str = "claim and expression can't both be set";
const NEITHER: &str = "claim or expression is required";
const WITH_EXPRESSION: &str = "may not be specified when expression is set";
const UNVERIFIED: &str = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression \
                          or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";

/// `claimValidationRules`
#[derive(Default)]
pub(super) struct ClaimRules {
    pub required: Vec<(String, String)>,
    pub rules: Vec<Rule>,
}

/// `claimMappings`
pub(super) struct Mappings {
    pub username: Mapping,
    pub groups: Option<Mapping>,
    pub uid: Option<Mapping>,
    pub extra: Vec<(String, Expression)>,
}

fn verifies_email(expression: &Expression) -> bool {
    expression.selects_claim("email_verified")
}

impl Reader<'_> {
    /// Adds the error, if it is one.
    fn compiled(&mut self, result: Result<Expression, CompileError>, text: &str, at: &FieldPath) -> Option<Expression> {
        result
            .map_err(|e| self.errors.push(FieldError::invalid(at, text, e.to_string())))
            .ok()
    }

    pub(super) fn claim_rules(&mut self, v: &Value, at: &FieldPath) -> Result<ClaimRules, Error> {
        let list = self.list(v, "claimValidationRules", at.as_str())?;
        let at = at.child("claimValidationRules");
        let mut read = ClaimRules::default();
        let mut seen: Vec<&str> = Vec::new();
        for (i, v) in list.iter().enumerate() {
            let at = at.index(i);
            let path = at.as_str();
            self.check_fields(v, path, &["claim", "requiredValue", "expression", "message"])?;
            let claim = self.text(v, "claim", path)?;
            let value = self.text(v, "requiredValue", path)?;
            let message = self.text(v, "message", path)?;
            // Only for its type: the text is borrowed from the document below, to outlive the loop in `seen`.
            self.text(v, "expression", path)?;
            let text = v.str_at(&["expression"]);
            match (claim.is_empty(), text.is_empty()) {
                (false, false) => self.errors.push(FieldError::invalid(&at, claim, BOTH)),
                (true, true) => self.errors.push(FieldError::required(&at, NEITHER)),
                (false, true) => {
                    if !message.is_empty() {
                        let why = "may not be specified when claim is set";
                        self.errors
                            .push(FieldError::invalid(&at.child("message"), message, why));
                    }
                    // Still pushed below: a duplicate is an error, so the list is never used.
                    if read.required.iter().any(|(other, _)| *other == claim) {
                        self.errors
                            .push(FieldError::duplicate(&at.child("claim"), claim.as_str()));
                    }
                    read.required.push((claim, value));
                }
                (true, false) => {
                    if !value.is_empty() {
                        let at = at.child("requiredValue");
                        self.errors.push(FieldError::invalid(&at, value, WITH_EXPRESSION));
                    }
                    let at = at.child("expression");
                    if seen.contains(&text) {
                        self.errors.push(FieldError::duplicate(&at, text));
                        continue;
                    }
                    seen.push(text);
                    let expression = self.compiled(Expression::claims(text, Returns::Bool), text, &at);
                    let rule = expression.map(|expression| Rule { expression, message });
                    read.rules.extend(rule);
                }
            }
        }
        Ok(read)
    }

    pub(super) fn user_rules(&mut self, v: &Value, at: &FieldPath) -> Result<Vec<Rule>, Error> {
        let list = self.list(v, "userValidationRules", at.as_str())?;
        let at = at.child("userValidationRules");
        let (mut rules, mut seen) = (Vec::new(), Vec::new());
        for (i, v) in list.iter().enumerate() {
            let at = at.index(i);
            self.check_fields(v, at.as_str(), &["expression", "message"])?;
            // Only for its type, as in `claim_rules`.
            self.text(v, "expression", at.as_str())?;
            let text = v.str_at(&["expression"]);
            let message = self.text(v, "message", at.as_str())?;
            let at = at.child("expression");
            if text.is_empty() {
                self.errors.push(FieldError::required(&at, ""));
            } else if seen.contains(&text) {
                self.errors.push(FieldError::duplicate(&at, text));
            } else {
                seen.push(text);
                let expression = self.compiled(Expression::user(text), text, &at);
                rules.extend(expression.map(|expression| Rule { expression, message }));
            }
        }
        Ok(rules)
    }

    /// `rules` are the claim validation rules, one of which may verify the email address.
    pub(super) fn mappings(&mut self, v: &Value, at: &FieldPath, rules: &[Rule]) -> Result<Mappings, Error> {
        self.check_fields(v, at.as_str(), &["username", "groups", "uid", "extra"])?;
        let username = self.prefixed(v.get("username"), &at.child("username"), true)?;
        let groups = self.prefixed(v.get("groups"), &at.child("groups"), false)?;
        let uid = self.uid(v.get("uid"), &at.child("uid"))?;
        let extra = self.extra(v, at)?;
        // For a plain claim, the authenticator checks email_verified itself; an expression has to do it, and
        // upstream insists that one somewhere does.
        if let Some(Mapping::Expression(name)) = &username
            && name.selects_claim("email")
            && !verifies_email(name)
            && !rules.iter().any(|rule| verifies_email(&rule.expression))
            && !extra.iter().any(|(_, expression)| verifies_email(expression))
        {
            let at = at.child("username").child("expression");
            self.errors.push(FieldError::invalid(&at, name.text(), UNVERIFIED));
        }
        Ok(Mappings {
            // Without a mapping, the configuration is rejected, so this value is never used.
            username: username.unwrap_or_else(|| Mapping::Claim(Prefixed::default())),
            groups,
            uid,
            extra,
        })
    }

    /// `None` if it is absent or wrong.
    fn prefixed(&mut self, v: &Value, at: &FieldPath, required: bool) -> Result<Option<Mapping>, Error> {
        let path = at.as_str();
        self.check_fields(v, path, &["claim", "prefix", "expression"])?;
        let claim = self.text(v, "claim", path)?;
        let prefix = self.text(v, "prefix", path)?;
        let has_prefix = !v.get("prefix").is_null();
        let text = self.text(v, "expression", path)?;
        Ok(match (claim.is_empty(), text.is_empty()) {
            (false, false) => {
                self.errors.push(FieldError::invalid(at, "", BOTH));
                None
            }
            (true, true) => {
                if required {
                    self.errors.push(FieldError::required(at, NEITHER));
                }
                None
            }
            (true, false) => {
                if has_prefix {
                    let at = at.child("prefix");
                    self.errors.push(FieldError::invalid(&at, prefix, WITH_EXPRESSION));
                }
                let compiled = Expression::claims(&text, Returns::Anything);
                let compiled = self.compiled(compiled, &text, &at.child("expression"));
                // If the prefix is invalid, upstream does not check which claim the expression selects.
                compiled.filter(|_| !has_prefix).map(Mapping::Expression)
            }
            (false, true) => {
                if !has_prefix {
                    let why =
                        "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                    self.errors.push(FieldError::required(&at.child("prefix"), why));
                }
                Some(Mapping::Claim(Prefixed { claim, prefix }))
            }
        })
    }

    fn uid(&mut self, v: &Value, at: &FieldPath) -> Result<Option<Mapping>, Error> {
        self.check_fields(v, at.as_str(), &["claim", "expression"])?;
        let claim = self.text(v, "claim", at.as_str())?;
        let text = self.text(v, "expression", at.as_str())?;
        Ok(match (claim.is_empty(), text.is_empty()) {
            (false, false) => {
                self.errors.push(FieldError::invalid(at, "", BOTH));
                None
            }
            (true, true) => None,
            (true, false) => {
                let compiled = Expression::claims(&text, Returns::Anything);
                let compiled = self.compiled(compiled, &text, &at.child("expression"));
                compiled.map(Mapping::Expression)
            }
            (false, true) => Some(Mapping::Claim(Prefixed {
                claim,
                prefix: String::new(),
            })),
        })
    }

    fn extra(&mut self, v: &Value, at: &FieldPath) -> Result<Vec<(String, Expression)>, Error> {
        let list = self.list(v, "extra", at.as_str())?;
        let at = at.child("extra");
        let (mut extra, mut seen) = (Vec::new(), Vec::new());
        for (i, v) in list.iter().enumerate() {
            let at = at.index(i);
            self.check_fields(v, at.as_str(), &["key", "valueExpression"])?;
            let key = self.text(v, "key", at.as_str())?;
            let text = self.text(v, "valueExpression", at.as_str())?;
            let (at_key, at) = (at.child("key"), at.child("valueExpression"));
            self.extra_key(&key, &at_key);
            if seen.contains(&key) {
                self.errors.push(FieldError::duplicate(&at_key, key));
                continue;
            }
            seen.push(key.clone());
            if text.is_empty() {
                self.errors.push(FieldError::required(&at, ""));
                continue;
            }
            let expression = self.compiled(Expression::claims(&text, Returns::Anything), &text, &at);
            extra.extend(expression.map(|expression| (key, expression)));
        }
        Ok(extra)
    }

    fn extra_key(&mut self, key: &str, at: &FieldPath) {
        domain_prefixed_path(key, at, &mut self.errors);
        if key != key.to_lowercase() {
            self.errors.push(FieldError::invalid(at, key, "must be lowercase"));
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        // Whole labels: `mykubernetes.io` is not reserved.
        let below = |parent: &str| {
            let rest = domain.strip_suffix(parent);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if below("kubernetes.io") || below("k8s.io") {
            let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            self.errors.push(FieldError::invalid(at, key, why));
        }
    }
}
