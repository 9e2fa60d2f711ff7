//! DeleteOptions, parsed from the body, or from the query if there is no body.

use super::super::body::read_type_meta;
use super::{Query, check, check_dry_run};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::{Map, Value};
use crate::registry::DeleteOptions;
use std::sync::Arc;

/// Parsed and validated delete options.
#[derive(Clone, Debug)]
pub(crate) struct DeleteQuery {
    /// The options for the registry.
    pub options: DeleteOptions,
    /// `dryRun=All`
    pub dry_run: bool,
}

impl DeleteQuery {
    /// Parses a decoded body.
    ///
    /// # Errors
    /// 400 for another kind or wrong types; 422 for invalid values.
    pub(crate) fn from_body(body: &Value) -> Result<Self> {
        let mut version = None;
        if !body.is_null() {
            (_, version) = read_type_meta(body).map_err(|why| Status::bad_request(why.to_string()))?;
        }
        let kind = body.str_at(&["kind"]);
        // Upstream decodes the body in the scheme of `DeleteOptions`, which contains no other kind.
        if !kind.is_empty() && kind != "DeleteOptions" {
            return Err(Status::bad_request(format!(
                "no kind {} is registered for version {} in scheme \
                 \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
                quote(kind),
                quote(&version.map_or_else(|| "meta.k8s.io/v1".to_owned(), |v| v.to_string())),
            )));
        }
        let bad = |v: &Value, field: &str, ty: &str| {
            let found = match v {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
                _ => "number",
            };
            Status::bad_request(format!(
                "json: cannot unmarshal {found} into Go struct field DeleteOptions.{field} of type {ty}"
            ))
        };
        let text = |path: &[&str], ty: &str| match body.at(path) {
            Value::Null => Ok(None),
            Value::String(s) => Ok(Some(s.to_string())),
            other => Err(bad(other, &path.join("."), ty)),
        };
        let grace = match body.get("gracePeriodSeconds") {
            Value::Null => None,
            Value::Int(i) => Some(*i),
            other => return Err(bad(other, "gracePeriodSeconds", "int64")),
        };
        let flag = |field: &str| match body.get(field) {
            Value::Null => Ok(None),
            Value::Bool(b) => Ok(Some(*b)),
            other => Err(bad(other, field, "bool")),
        };
        let orphan = flag("orphanDependents")?;
        // Only its type is checked; the option has no effect here.
        flag("ignoreStoreReadErrorWithClusterBreakingPotential")?;
        let dry_run: Vec<String> = match body.get("dryRun") {
            Value::Null => Vec::new(),
            Value::Array(a) => {
                let text = |v: &Value| match v {
                    // Go's decoder leaves the string empty, which validation refuses.
                    Value::Null => Ok(String::new()),
                    Value::String(s) => Ok(s.to_string()),
                    other => Err(bad(other, "dryRun", "string")),
                };
                a.iter().map(text).collect::<Result<_>>()?
            }
            other => return Err(bad(other, "dryRun", "[]string")),
        };
        // Checked here, because `text` would find no members in these values and take them for unset.
        if let wrong @ (Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Array(_)) =
            body.get("preconditions")
        {
            return Err(bad(wrong, "preconditions", "v1.Preconditions"));
        }
        Self::checked(
            DeleteOptions {
                grace_period_seconds: grace,
                uid: text(&["preconditions", "uid"], "types.UID")?,
                resource_version: text(&["preconditions", "resourceVersion"], "string")?,
                propagation: text(&["propagationPolicy"], "v1.DeletionPropagation")?,
                orphan_dependents: orphan,
                // Set by `checked`, from the validated options.
                raw: Arc::new(Value::Null),
            },
            &dry_run,
        )
    }

    /// Parses the query of a request without a body.
    ///
    /// # Errors
    /// 400 for malformed numbers; 422 for invalid values.
    pub(crate) fn from_query(query: &Query) -> Result<Self> {
        // Empty preconditions count as unset.
        let param = |name: &str| query.get(name).filter(|v| !v.is_empty()).map(str::to_owned);
        let options = DeleteOptions {
            grace_period_seconds: query.int("gracePeriodSeconds")?,
            uid: param("uid"),
            resource_version: param("resourceVersion"),
            propagation: query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.flag("orphanDependents"),
            ..DeleteOptions::default()
        };
        Self::checked(options, &query.all("dryRun"))
    }

    fn checked(mut options: DeleteOptions, dry_run: &[String]) -> Result<Self> {
        let mut errors = ErrorList::new();
        let path = FieldPath::new("propagationPolicy");
        let policy = options.propagation.as_deref();
        // Reported for `propagationPolicy`, as by upstream's `ValidateDeleteOptions`.
        if let (Some(p), Some(_)) = (policy, options.orphan_dependents) {
            errors.push(FieldError::invalid(
                &path,
                p,
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if let Some(p) = policy.filter(|p| !["Foreground", "Background", "Orphan"].contains(p)) {
            errors.push(FieldError::not_supported(
                &path,
                p,
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
        check_dry_run(dry_run, &mut errors);
        check("DeleteOptions", &errors)?;
        options.raw = Arc::new(raw(&options, dry_run));
        Ok(Self {
            options,
            // Validation has left no value but `All`.
            dry_run: !dry_run.is_empty(),
        })
    }
}

/// The options object passed to admission.
fn raw(o: &DeleteOptions, dry_run: &[String]) -> Value {
    let mut m = Map::new();
    m.insert("kind", "DeleteOptions");
    m.insert("apiVersion", "meta.k8s.io/v1");
    if let Some(s) = o.grace_period_seconds {
        m.insert("gracePeriodSeconds", s);
    }
    if let Some(b) = o.orphan_dependents {
        m.insert("orphanDependents", b);
    }
    if let Some(p) = &o.propagation {
        m.insert("propagationPolicy", p.as_str());
    }
    if !dry_run.is_empty() {
        let values: Vec<Value> = dry_run.iter().map(|v| Value::from(v.as_str())).collect();
        m.insert("dryRun", values);
    }
    let mut out = Value::Object(m);
    if let Some(uid) = &o.uid {
        out.set(&["preconditions", "uid"], uid.as_str());
    }
    if let Some(rv) = &o.resource_version {
        out.set(&["preconditions", "resourceVersion"], rv.as_str());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_policy_error_lists_nil() {
        let e = DeleteQuery::from_query(&Query::parse("propagationPolicy=x")).unwrap_err();
        assert!(
            e.message
                .ends_with("supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"")
        );
        let e = DeleteQuery::from_body(&crate::json!({"propagationPolicy": "Orphan", "orphanDependents": true}));
        assert!(e.unwrap_err().message.contains("cannot be both set"));
    }

    #[test]
    fn preconditions_parse_from_the_query() {
        let q = DeleteQuery::from_query(&Query::parse("uid=u&resourceVersion=5")).unwrap();
        assert_eq!(q.options.uid.as_deref(), Some("u"));
        assert_eq!(q.options.resource_version.as_deref(), Some("5"));
        let none = DeleteQuery::from_query(&Query::parse("uid=&resourceVersion=")).unwrap();
        assert_eq!((none.options.uid, none.options.resource_version), (None, None));
    }

    #[test]
    fn options_of_the_wrong_type_are_rejected() {
        let code = |body: Value| DeleteQuery::from_body(&body).map_err(|e| e.code).err();
        for body in [
            crate::json!([]),
            crate::json!(1),
            crate::json!("x"),
            crate::json!({"orphanDependents": "x"}),
            crate::json!({"dryRun": ["All", 1]}),
            crate::json!({"preconditions": []}),
            crate::json!({"preconditions": "x"}),
            crate::json!({"ignoreStoreReadErrorWithClusterBreakingPotential": "x"}),
        ] {
            assert_eq!(code(body.clone()), Some(400), "{body:?}");
        }
        assert_eq!(code(crate::json!({"dryRun": [null]})), Some(422));
        assert_eq!(code(Value::Null), None);
    }

    #[test]
    fn malformed_delete_options_get_the_decoders_message() {
        let refused = |body: Value| DeleteQuery::from_body(&body).unwrap_err().message;
        assert!(refused(crate::json!([])).contains("cannot unmarshal array into Go value of type struct {"));
        assert!(refused(crate::json!({"kind": 5})).ends_with("number into Go struct field .kind of type string"));
        assert_eq!(
            refused(crate::json!({"apiVersion": "x/y/z"})),
            "unexpected GroupVersion string: x/y/z"
        );
        let foreign = refused(crate::json!({"apiVersion": "/1", "kind": "X"}));
        assert!(
            foreign.starts_with("no kind \"X\" is registered for version \"1\""),
            "{foreign}"
        );
    }
}
