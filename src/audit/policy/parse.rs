//! Strict parser of policy files into [`Policy`]. Errors carry the line number.

use super::{GroupResources, Policy, Rule, Stage, Stages, Verdict};
use crate::apimachinery::codec::{InFile, yaml};
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use crate::request::AuditLevel;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// An invalid or unreadable policy file.
pub(crate) type PolicyError = InFile<InvalidPolicy>;

/// An error in a policy.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPolicy {
    /// The file cannot be read, for example because it does not exist.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// The file is larger than the limit; its size in bytes.
    #[error("the file has {0} bytes, but a policy may have at most {MAX_BYTES}")]
    TooLarge(u64),
    /// The file is not valid YAML.
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    /// A field occurs twice. The message is that of the strict decoder.
    #[error("{0}")]
    Duplicate(String),
    /// A field is unknown or has an invalid value.
    #[error("line {line}: {path}{}{what}", if .path.is_empty() { "" } else { ": " })]
    Field {
        /// The line of the field, or of the nearest field around it that is in the file.
        line: usize,
        /// The path of the field; empty for the whole document.
        path: String,
        /// The error, without line and path.
        what: String,
    },
}

/// Maximum file size in bytes. Policies are written by hand, so a larger file is a misconfigured path.
const MAX_BYTES: u64 = 4 << 20;

pub(super) fn file(path: &Path) -> Result<Policy, PolicyError> {
    let read = || {
        // Asked before reading: the path may name something that does not fit into memory.
        let size = std::fs::metadata(path)?.len();
        if size > MAX_BYTES {
            return Err(InvalidPolicy::TooLarge(size));
        }
        text(&std::fs::read(path)?)
    };
    read().map_err(InFile::at(path))
}

pub(super) fn text(text: &[u8]) -> Result<Policy, InvalidPolicy> {
    let (file, twice) = yaml::decode_with_duplicates(text)?;
    if let Some(first) = twice.first() {
        return Err(InvalidPolicy::Duplicate(first.clone()));
    }
    let reader = Reader {
        places: yaml::places(text),
    };
    reader.policy(&file)
}

struct Reader {
    places: BTreeMap<String, usize>,
}

type Read<T> = Result<T, InvalidPolicy>;

const POLICY: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "omitStages",
    "omitManagedFields",
    "rules",
];
const RULE: &[&str] = &[
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
];
const RESOURCES: &[&str] = &["group", "resources", "resourceNames"];

impl Reader {
    /// An error at a field path, with the line of that path or of its nearest ancestor that is in the file.
    fn at<T>(&self, path: &str, what: impl fmt::Display) -> Read<T> {
        let mut at = path;
        let line = loop {
            if let Some(line) = self.places.get(at) {
                break *line;
            }
            match at.rfind(['.', '[']) {
                Some(cut) => at = &at[..cut],
                // A required field that is missing has no line, nor has the document around it.
                None => break 1,
            }
        };
        Err(InvalidPolicy::Field {
            line,
            path: path.to_owned(),
            what: what.to_string(),
        })
    }

    fn strict(&self, path: &str, v: &Value, known: &[&str]) -> Read<()> {
        // Unknown fields are errors: an empty list matches everything, so a misspelled field would silently widen its
        // rule.
        let Some(members) = v.as_object() else {
            return self.at(path, "expected a mapping");
        };
        match members.keys().find(|k| !known.contains(k)) {
            Some(odd) => self.at(&below(path, odd), "unknown field"),
            None => Ok(()),
        }
    }

    fn list<'a>(&self, path: &str, v: &'a Value) -> Read<&'a [Value]> {
        match v {
            Value::Null => Ok(&[]),
            Value::Array(items) => Ok(items),
            _ => self.at(path, "expected a list"),
        }
    }

    fn texts(&self, path: &str, v: &Value) -> Read<Vec<String>> {
        let items = self.list(path, v)?.iter().enumerate();
        let text = |(i, item): (usize, &Value)| match item.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => self.at(&format!("{path}[{i}]"), "expected text"),
        };
        items.map(text).collect()
    }

    fn flag(&self, path: &str, v: &Value) -> Read<Option<bool>> {
        match v {
            Value::Null => Ok(None),
            Value::Bool(b) => Ok(Some(*b)),
            _ => self.at(path, "expected true or false"),
        }
    }

    fn stages(&self, path: &str, v: &Value) -> Read<Stages> {
        let mut out = Stages::default();
        for (i, name) in self.texts(path, v)?.iter().enumerate() {
            match Stage::ALL.into_iter().find(|s| s.name() == name) {
                Some(stage) => out = out.with(stage),
                None => {
                    let all = Stage::ALL.map(|s| format!("{:?}", s.name())).join(", ");
                    let what = format!("Unsupported value: {name:?}: supported values: {all}");
                    return self.at(&format!("{path}[{i}]"), what);
                }
            }
        }
        Ok(out)
    }

    fn policy(&self, file: &Value) -> Read<Policy> {
        self.strict("", file, POLICY)?;
        let declared = (file.str_at(&["apiVersion"]), file.str_at(&["kind"]));
        if declared != ("audit.k8s.io/v1", "Policy") {
            // Reported at the field that differs, for its line.
            let path = if declared.0 == "audit.k8s.io/v1" {
                "kind"
            } else {
                "apiVersion"
            };
            let what = format!(
                "expected kind Policy of audit.k8s.io/v1, found {:?} of {:?}",
                declared.1, declared.0
            );
            return self.at(path, what);
        }
        if !matches!(file.get("metadata"), Value::Null | Value::Object(_)) {
            return self.at("metadata", "expected a mapping");
        }
        // The policy-wide defaults are merged into every rule here, so that matching a request needs no second
        // lookup.
        let all = Verdict {
            level: AuditLevel::None,
            omit_stages: self.stages("omitStages", file.get("omitStages"))?,
            omit_managed_fields: self.flag("omitManagedFields", file.get("omitManagedFields"))? == Some(true),
        };
        let rules = self.list("rules", file.get("rules"))?;
        // Upstream's check (`LoadPolicyFromBytes`): an empty policy would silently record nothing.
        if rules.is_empty() {
            return self.at("rules", "loaded illegal policy with 0 rules");
        }
        let rules = rules.iter().enumerate();
        let rules = rules.map(|(i, rule)| self.rule(&format!("rules[{i}]"), rule, all));
        Ok(Policy {
            rules: rules.collect::<Read<_>>()?,
        })
    }

    fn rule(&self, path: &str, v: &Value, all: Verdict) -> Read<Rule> {
        self.strict(path, v, RULE)?;
        let texts = |key: &str| self.texts(&below(path, key), v.get(key));
        let level_at = below(path, "level");
        let given = v.get("level");
        let level = match given.as_str() {
            None if !given.is_null() => return self.at(&level_at, "expected text"),
            None | Some("") => return self.at(&level_at, "Required value"),
            Some(name) => match AuditLevel::ALL.into_iter().find(|l| l.name() == name) {
                Some(level) => level,
                None => {
                    let all = AuditLevel::ALL.map(|l| format!("{:?}", l.name())).join(", ");
                    return self.at(
                        &level_at,
                        format!("Unsupported value: {name:?}: supported values: {all}"),
                    );
                }
            },
        };
        // United with the policy-wide stages: a rule cannot bring back a stage that the policy omits.
        let own = self.stages(&below(path, "omitStages"), v.get("omitStages"))?;
        let managed = self.flag(&below(path, "omitManagedFields"), v.get("omitManagedFields"))?;
        let resources_at = below(path, "resources");
        let resources = self.list(&resources_at, v.get("resources"))?.iter().enumerate();
        let resources = resources.map(|(i, r)| self.resources(&format!("{resources_at}[{i}]"), r));
        let rule = Rule {
            verdict: Verdict {
                level,
                omit_stages: all.omit_stages.and(own),
                omit_managed_fields: managed.unwrap_or(all.omit_managed_fields),
            },
            users: texts("users")?,
            user_groups: texts("userGroups")?,
            verbs: texts("verbs")?,
            resources: resources.collect::<Read<_>>()?,
            namespaces: texts("namespaces")?,
            non_resource_urls: texts("nonResourceURLs")?,
        };
        self.urls(&below(path, "nonResourceURLs"), &rule)?;
        Ok(rule)
    }

    fn urls(&self, path: &str, rule: &Rule) -> Read<()> {
        if rule.non_resource_urls.is_empty() {
            return Ok(());
        }
        if !rule.resources.is_empty() || !rule.namespaces.is_empty() {
            return self.at(
                path,
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        for (i, url) in rule.non_resource_urls.iter().enumerate() {
            let path = format!("{path}[{i}]");
            if url == "*" {
                continue;
            }
            if !url.starts_with('/') {
                return self.at(&path, "non-resource URL rules must begin with a '/' character");
            }
            // The last character may have several bytes.
            let last = url.char_indices().next_back().map_or(0, |(at, _)| at);
            if url[..last].contains('*') {
                return self.at(
                    &path,
                    "non-resource URL wildcards '*' must be the final character of the rule",
                );
            }
        }
        Ok(())
    }

    fn resources(&self, path: &str, v: &Value) -> Read<GroupResources> {
        self.strict(path, v, RESOURCES)?;
        let group = match v.get("group") {
            Value::Null => String::new(),
            other => match other.as_str() {
                Some(text) => text.to_owned(),
                None => return self.at(&below(path, "group"), "expected text"),
            },
        };
        // The empty string is the core group.
        if !group.is_empty()
            && group != "*"
            && let Some(why) = dns1123_subdomain(&group).first()
        {
            return self.at(&below(path, "group"), format!("Invalid value: {group:?}: {why}"));
        }
        let out = GroupResources {
            group,
            resources: self.texts(&below(path, "resources"), v.get("resources"))?,
            resource_names: self.texts(&below(path, "resourceNames"), v.get("resourceNames"))?,
        };
        // Names alone would match objects of every resource in the group.
        if out.resources.is_empty() && !out.resource_names.is_empty() {
            let at = below(path, "resourceNames");
            return self.at(&at, "using resourceNames requires at least one resource");
        }
        Ok(out)
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
