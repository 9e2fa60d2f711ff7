//! [`WriteQuery`]: CreateOptions, UpdateOptions and PatchOptions, all parsed from the query.

use super::{Query, check, check_dry_run};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::meta::{is_print, validate_field_manager};
use crate::apimachinery::value::{Map, Value};
use http::HeaderMap;
use http::header::USER_AGENT;

/// How unknown and duplicate fields are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They cause `Warning` headers. The default.
    Warn,
    /// They cause a 400.
    Strict,
}

/// Parsed and validated options of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteQuery {
    /// `dryRun=All`
    pub dry_run: bool,
    /// `fieldManager` as given.
    pub field_manager: String,
    /// `fieldValidation`
    pub field_validation: FieldValidation,
    /// `force`, for applies only.
    pub force: Option<bool>,
    /// The values of `dryRun` as given; only `All` passes validation.
    values: Vec<String>,
}

impl WriteQuery {
    /// Parses and validates the query. `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`; `apply`
    /// is true for an apply patch.
    ///
    /// # Errors
    /// 422 for invalid values.
    pub(crate) fn parse(query: &Query, kind: &str, apply: bool) -> Result<Self> {
        let field_manager = query.text("fieldManager").to_owned();
        // Options of creates and updates have no `force`; it is ignored there.
        let force = query.flag("force").filter(|_| kind == "PatchOptions");
        let mut errors = ErrorList::new();
        let manager_path = FieldPath::new("fieldManager");
        // Upstream's `ValidatePatchOptions`: without a manager, the applied fields would have no owner.
        if apply && field_manager.is_empty() {
            errors.push(FieldError::required(&manager_path, "is required for apply patch"));
        }
        if !apply && force.is_some() {
            errors.push(FieldError::forbidden(
                &FieldPath::new("force"),
                "may not be specified for non-apply patch",
            ));
        }
        validate_field_manager(&field_manager, &manager_path, &mut errors);
        let values = query.all("dryRun");
        check_dry_run(&values, &mut errors);
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported(
                    &FieldPath::new("fieldValidation"),
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        // With an error, the values parsed above are not used.
        check(kind, &errors)?;
        Ok(Self {
            // Validation has left no value but `All`.
            dry_run: !values.is_empty(),
            field_manager,
            field_validation,
            force,
            values,
        })
    }

    /// The options object passed to admission.
    pub(crate) fn to_value(&self, kind: &str, given_validation: &str) -> Value {
        let mut m = Map::new();
        m.insert("kind", kind);
        m.insert("apiVersion", "meta.k8s.io/v1");
        if !self.values.is_empty() {
            let values: Vec<Value> = self.values.iter().map(|v| Value::from(v.as_str())).collect();
            m.insert("dryRun", values);
        }
        if !self.field_manager.is_empty() {
            m.insert("fieldManager", self.field_manager.as_str());
        }
        if !given_validation.is_empty() {
            m.insert("fieldValidation", given_validation);
        }
        Value::Object(m)
    }

    /// The field manager: `fieldManager`, or else the first part of the User-Agent.
    pub(crate) fn manager(&self, headers: &HeaderMap) -> String {
        if !self.field_manager.is_empty() {
            return self.field_manager.clone();
        }
        let agent = headers.get(USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes()));
        manager_of_agent(agent.as_deref().unwrap_or(""))
    }

    /// Handles strict decoding errors according to `fieldValidation`. `wrap` turns the combined message into a
    /// Status.
    ///
    /// # Errors
    /// The Status returned by `wrap`, for Strict.
    pub(crate) fn handle_strict_errors(
        &self,
        findings: Vec<String>,
        warnings: &crate::request::Warnings,
        wrap: impl FnOnce(String) -> Status,
    ) -> Result<()> {
        match self.field_validation {
            _ if findings.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                findings.into_iter().for_each(|f| warnings.add(f));
                Ok(())
            }
            FieldValidation::Strict => Err(wrap(format!("strict decoding error: {}", findings.join(", ")))),
        }
    }
}

fn manager_of_agent(agent: &str) -> String {
    /// The maximum length of a field manager, in bytes.
    const MAX: usize = 128;
    let prefix = agent.split('/').next().unwrap_or("");
    let mut name = String::new();
    // Upstream drops what is not printable (`prefixFromUserAgent` in `endpoints/handlers/create.go`).
    for c in prefix.chars().filter(|c| is_print(*c)) {
        if name.len() + c.len_utf8() > MAX {
            break;
        }
        name.push(c);
    }
    if name.is_empty() {
        return "unknown".to_owned();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_match_upstream() {
        let e = |q: &str, kind: &str, apply| WriteQuery::parse(&Query::parse(q), kind, apply).unwrap_err().message;
        assert_eq!(
            e("dryRun=x", "CreateOptions", false),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\""
        );
        assert_eq!(
            e("", "PatchOptions", true),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
        assert_eq!(
            e("force=false", "PatchOptions", false),
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
        );
    }

    #[test]
    fn manager_defaults_to_the_user_agent_prefix() {
        assert_eq!(manager_of_agent("my tool/2.3 (x)"), "my tool");
        assert_eq!(manager_of_agent(""), "unknown");
        assert_eq!(
            manager_of_agent("a\u{200b}b\u{a0}\u{2028}\u{7f}e\u{301} \"/1"),
            "abe\u{301} \""
        );
        assert_eq!(manager_of_agent(&"ü".repeat(100)).len(), 128);
    }
}
