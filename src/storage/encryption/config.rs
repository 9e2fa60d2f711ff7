//! Parses the configuration file: `apiserver.config.k8s.io/v1`, kind EncryptionConfiguration. Parsing is
//! strict; every error names the line. Entry point: [`load`].

use super::aes::{Cbc, Gcm};
use super::kms::Kms;
use super::kms_plugin::{Intervals, Plugin};
use super::secretbox::Secretbox;
use super::{Chain, Complaint, ConfigError, Keys, Loaded, Provider, TransformError};
use crate::apimachinery::codec::yaml;
use crate::apimachinery::time::parse_duration;
use crate::apimachinery::value::Value;
use crate::telemetry::encryption::EncryptionMetrics;
use aws_lc_rs::digest::{SHA256, digest as sha};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const KINDS: [&str; 5] = ["aescbc", "aesgcm", "identity", "kms", "secretbox"];
/// Resources that are stored but have no API.
const INTERNAL: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// A rule: resource patterns and their providers. A pattern is a group and a resource; either may be `*`.
pub(super) struct Rule {
    pub resources: Vec<(String, String)>,
    pub providers: Chain,
}

/// No encryption: the stored value is the object.
struct Identity;

impl Provider for Identity {
    fn prefix(&self) -> &str {
        ""
    }

    // Reads never get here: `open` in the parent module handles the empty prefix.
    fn open(&self, _key: &str, value: &[u8]) -> Result<(Bytes, bool), TransformError> {
        Ok((Bytes::copy_from_slice(value), false))
    }

    fn seal(&self, _key: &str, object: &[u8]) -> Result<Vec<u8>, TransformError> {
        Ok(object.to_vec())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Returns the digest of the file.
pub(super) fn digest(path: &Path) -> Result<Vec<u8>, ConfigError> {
    Ok(sha(&SHA256, &read(path)?).as_ref().to_vec())
}

/// Parses the file and starts its plugins.
pub(super) fn load(path: &Path, metrics: &Arc<EncryptionMetrics>, intervals: Intervals) -> Result<Loaded, ConfigError> {
    let bytes = read(path)?;
    if bytes.trim_ascii().is_empty() {
        return Err(ConfigError::Empty(path.to_owned()));
    }
    let complain = |source| ConfigError::Decode {
        path: path.to_owned(),
        source,
    };
    // Duplicate keys are refused, as by upstream's strict decoding: of two `secret` fields the wrong one
    // could win.
    let (tree, twice) =
        yaml::decode_with_duplicates(&bytes).map_err(|e| complain(Complaint::Somewhere(e.to_string())))?;
    if let Some(twice) = twice.into_iter().next() {
        return Err(complain(Complaint::Somewhere(twice)));
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut reader = Reader {
        lines: text.lines().collect(),
        met: HashMap::new(),
        plugins: HashMap::new(),
        metrics,
        intervals,
    };
    let rules = reader.file(&tree).map_err(complain)?;
    Ok(Loaded {
        rules,
        plugins: reader.plugins.into_values().collect(),
        digest: sha(&SHA256, &bytes).as_ref().to_vec(),
    })
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    /// Number of times each key has been seen. The parse tree keeps the file's order in lists, so the n-th
    /// occurrence in the tree is the n-th in the text, which gives the line for error messages.
    met: HashMap<String, usize>,
    plugins: HashMap<String, Arc<Plugin>>,
    metrics: &'a Arc<EncryptionMetrics>,
    intervals: Intervals,
}

impl Reader<'_> {
    /// Counts an occurrence of a key and returns its line number, 0 if unknown.
    fn meet(&mut self, key: &str) -> usize {
        let nth = self.met.entry(key.to_owned()).or_default();
        *nth += 1;
        let nth = *nth;
        let is_it = |line: &str| {
            // Both block style and flow style; a heuristic is enough, since a wrong line misleads but never
            // changes the result.
            let line = line.trim_start_matches([' ', '-', '{', '\t']);
            let line = line.strip_prefix('"').unwrap_or(line);
            line.strip_prefix(key).is_some_and(|rest| rest.starts_with([':', '"']))
        };
        let at = self.lines.iter().enumerate().filter(|(_, l)| is_it(l)).nth(nth - 1);
        at.map_or(0, |(i, _)| i + 1)
    }

    /// Returns the line of a list item that is a plain string.
    fn line_of(&self, item: &str) -> usize {
        let at = self.lines.iter().position(|l| {
            let l = l.trim().trim_start_matches("- ").trim_matches(['\'', '"']);
            l == item
        });
        at.map_or(0, |i| i + 1)
    }

    fn check_fields(&mut self, v: &Value, path: &str, names: &[&str]) -> Result<(), Complaint> {
        let members = v.as_object().into_iter().flat_map(|m| m.iter());
        for (name, _) in members {
            if !names.contains(&name) {
                let at = self.line_of_key(name);
                let dot = if path.is_empty() { "" } else { "." };
                return Err(complaint(at, &format!("unknown field \"{path}{dot}{name}\"")));
            }
        }
        Ok(())
    }

    fn line_of_key(&self, key: &str) -> usize {
        // A fresh count finds the first occurrence without disturbing that of `meet`.
        let mut fresh = Reader {
            lines: self.lines.clone(),
            met: HashMap::new(),
            plugins: HashMap::new(),
            metrics: self.metrics,
            intervals: self.intervals,
        };
        fresh.meet(key)
    }

    fn file(&mut self, tree: &Value) -> Result<Vec<Rule>, Complaint> {
        self.check_fields(tree, "", &["apiVersion", "kind", "resources"])?;
        let (version, kind) = (tree.str_at(&["apiVersion"]), tree.str_at(&["kind"]));
        if version != "apiserver.config.k8s.io/v1" || kind != "EncryptionConfiguration" {
            let why = format!("no kind \"{kind}\" is registered for version \"{version}\"");
            return Err(complaint(self.line_of_key("kind"), &why));
        }
        let items = tree.get("resources").items();
        if items.is_empty() {
            return Err(complaint(
                0,
                "resources: Required value: at least one resources is required",
            ));
        }
        let mut rules: Vec<Rule> = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let rule = self.rule(item, &format!("resources[{i}]"), &rules)?;
            rules.push(rule);
        }
        Ok(rules)
    }

    fn rule(&mut self, v: &Value, path: &str, before: &[Rule]) -> Result<Rule, Complaint> {
        self.check_fields(v, path, &["resources", "providers"])?;
        let mut resources: Vec<(String, String)> = Vec::new();
        let names = v.get("resources").items();
        if names.is_empty() {
            let why = format!("{path}.resources: Required value: at least one resource must be provided");
            return Err(complaint(self.line_of_key("resources"), &why));
        }
        for (i, name) in names.iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            let place = format!("{path}.resources[{i}]");
            let pattern = pattern(name).and_then(|p| fits(name, &p, &resources, before).map(|()| p));
            let pattern = pattern.map_err(|why| {
                complaint(
                    self.line_of(name),
                    &format!("{place}: Invalid value: \"{name}\": {why}"),
                )
            })?;
            resources.push(pattern);
        }
        let mut providers: Chain = Vec::new();
        let list = v.get("providers").items();
        if list.is_empty() {
            let why = format!("{path}.providers: Required value: at least one provider must be provided");
            return Err(complaint(self.line_of_key("providers"), &why));
        }
        for (i, item) in list.iter().enumerate() {
            providers.push(self.provider(item, &format!("{path}.providers[{i}]"))?);
        }
        Ok(Rule { resources, providers })
    }

    fn provider(&mut self, v: &Value, path: &str) -> Result<Arc<dyn Provider>, Complaint> {
        self.check_fields(v, path, &KINDS)?;
        let given: Vec<&str> = KINDS.into_iter().filter(|k| !v.get(k).is_null()).collect();
        let kind = match given.as_slice() {
            [one] => *one,
            [] => {
                let why =
                    "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
                return Err(complaint(
                    self.line_of_key("providers"),
                    &format!("{path}: Required value: {why}"),
                ));
            }
            [first, ..] => {
                let why =
                    "more than one provider specified in a single element, should split into different list elements";
                let at = self.line_of_key(first);
                return Err(complaint(at, &format!("{path}: Invalid value: {why}")));
            }
        };
        let at = self.meet(kind);
        let (path, v) = (format!("{path}.{kind}"), v.get(kind));
        Ok(match kind {
            "identity" => {
                self.check_fields(v, &path, &[])?;
                Arc::new(Identity)
            }
            "kms" => Arc::new(Kms::new(self.kms(v, &path, at)?)),
            "secretbox" => {
                let keys = self.keys(v, &path, at, &[32])?;
                // The length was checked, so no key is filtered out.
                let keys = keys.into_iter().filter_map(|(n, k)| Some((n, k.try_into().ok()?)));
                Arc::new(Secretbox(Keys(keys.collect())))
            }
            "aescbc" => Arc::new(Cbc(Keys(self.keys(v, &path, at, &[16, 24, 32])?))),
            _ => Arc::new(Gcm(Keys(self.keys(v, &path, at, &[16, 24, 32])?))),
        })
    }

    fn keys(
        &mut self,
        v: &Value,
        path: &str,
        at: usize,
        lengths: &[usize],
    ) -> Result<Vec<(String, Vec<u8>)>, Complaint> {
        self.check_fields(v, path, &["keys"])?;
        let mut out: Vec<(String, Vec<u8>)> = Vec::new();
        for (i, item) in v.get("keys").items().iter().enumerate() {
            let path = format!("{path}.keys[{i}]");
            self.check_fields(item, &path, &["name", "secret"])?;
            let (name, secret) = (item.str_at(&["name"]), item.str_at(&["secret"]));
            // Counted even if the key turns out to be invalid; otherwise later lines would be off by one.
            let line = if name.is_empty() { at } else { self.meet("name") };
            if name.is_empty() {
                return Err(complaint(
                    line,
                    &format!("{path}.name: Required value: name is a mandatory field for a key"),
                ));
            }
            if name.contains(':') {
                return Err(complaint(
                    line,
                    &format!("{path}.name: Invalid value: \"{name}\": must not contain ':'"),
                ));
            }
            if secret.is_empty() {
                let why = "secret is a mandatory field for a key";
                return Err(complaint(line, &format!("{path}.secret: Required value: {why}")));
            }
            let line = self.meet("secret");
            // Never print the secret.
            let invalid = |why: String| complaint(line, &format!("{path}.secret: Invalid value: \"REDACTED\": {why}"));
            let key = STANDARD.decode(secret);
            let key = key.map_err(|_| invalid("secrets must be base64 encoded".to_owned()))?;
            if !lengths.contains(&key.len()) {
                let expected = lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
                return Err(invalid(format!(
                    "secret is not of the expected length, got {}, expected one of [{expected}]",
                    key.len()
                )));
            }
            out.push((name.to_owned(), key));
        }
        if out.is_empty() {
            return Err(complaint(
                at,
                &format!("{path}.keys: Required value: keys is a mandatory field"),
            ));
        }
        Ok(out)
    }

    fn kms(&mut self, v: &Value, path: &str, at: usize) -> Result<Arc<Plugin>, Complaint> {
        self.check_fields(v, path, &["apiVersion", "name", "endpoint", "timeout", "cachesize"])?;
        let refuse = |field: &str, why: &str| Err(complaint(at, &format!("{path}.{field}: Invalid value: {why}")));
        match v.str_at(&["apiVersion"]) {
            "v2" => {}
            // v1 is upstream's default, behind a feature gate that is off.
            "" | "v1" => {
                return Err(complaint(
                    at,
                    "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set \
                     --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.",
                ));
            }
            _ => {
                let why = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
                return refuse("apiVersion", why);
            }
        }
        if !v.get("cachesize").is_null() {
            return refuse("cachesize", "cachesize is not supported in v2");
        }
        let name = v.str_at(&["name"]);
        if name.is_empty() {
            return Err(complaint(
                at,
                &format!("{path}.name: Required value: name is a mandatory field for a KMS provider"),
            ));
        }
        if name.contains(':') {
            return refuse(
                "name",
                &format!("invalid KMS provider name {name}, must not contain ':'"),
            );
        }
        // Plugins are identified by name in stored values.
        if self.plugins.contains_key(name) {
            return refuse(
                "name",
                &format!("duplicate KMS provider name {name}, names must be unique"),
            );
        }
        let endpoint = v.str_at(&["endpoint"]);
        let (scheme, socket) = endpoint.split_once("://").unwrap_or(("", endpoint));
        if endpoint.is_empty() {
            return Err(complaint(
                at,
                &format!("{path}.endpoint: Required value: endpoint is a mandatory field for a KMS provider"),
            ));
        }
        if scheme != "unix" {
            let why = format!("unsupported scheme \"{scheme}\" for KMS provider, only unix is supported");
            return refuse("endpoint", &why);
        }
        let timeout = match v.get("timeout") {
            // Upstream's default.
            Value::Null => Duration::from_secs(3),
            given => match given.as_str().and_then(|text| parse_duration(text).ok()) {
                Some(timeout) if !timeout.is_zero() => timeout,
                _ => return refuse("timeout", "timeout should be a positive value"),
            },
        };
        // Last: starting it spawns a thread, which an invalid field would leave behind.
        let plugin = Plugin::start(name, socket, timeout, self.metrics.clone(), self.intervals)?;
        self.plugins.insert(name.to_owned(), plugin.clone());
        Ok(plugin)
    }
}

fn complaint(line: usize, why: &str) -> Complaint {
    let why = why.to_owned();
    match line {
        0 => Complaint::Somewhere(why),
        line => Complaint::At { line, why },
    }
}

/// Why a name in `resources` is refused. Messages as upstream words them, where it has them.
#[derive(Debug, thiserror::Error)]
enum InvalidPattern {
    #[error("resource name should not be empty")]
    Empty,
    #[error("resource name should not contain capital letters")]
    Capitals,
    #[error("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")]
    Star,
    #[error("encrypting the same resource across groups is not supported")]
    AllGroups,
    /// The objects of the group are stored in another one.
    #[error("resources of group {group} are stored elsewhere: use {instead}")]
    Moved { group: String, instead: &'static str },
    #[error("resources which do not have REST API/s cannot be encrypted")]
    Internal,
    #[error("overlaps with another resource of the same list")]
    Overlaps,
    #[error("resource \"{name}\" is masked by earlier rule \"{rule}\"")]
    Masked { name: String, rule: String },
}

/// Parses `resource.group` into a pattern, and rejects names that cannot be encrypted.
fn pattern(name: &str) -> Result<(String, String), InvalidPattern> {
    if name.is_empty() {
        return Err(InvalidPattern::Empty);
    }
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(InvalidPattern::Capitals);
    }
    if name == "*" {
        return Err(InvalidPattern::Star);
    }
    // At the first dot: `deployments.apps`, `widgets.example.com`.
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    if group == "*" && resource != "*" {
        return Err(InvalidPattern::AllGroups);
    }
    if group == "extensions" || group == "events.k8s.io" {
        let instead = if group == "extensions" {
            "the group it has moved to"
        } else {
            "events"
        };
        return Err(InvalidPattern::Moved {
            group: group.to_owned(),
            instead,
        });
    }
    if INTERNAL.contains(&resource) && group.is_empty() {
        return Err(InvalidPattern::Internal);
    }
    Ok((group.to_owned(), resource.to_owned()))
}

/// Rejects a pattern that overlaps with the same list or is masked by an earlier rule.
fn fits(
    name: &str,
    (group, resource): &(String, String),
    here: &[(String, String)],
    before: &[Rule],
) -> Result<(), InvalidPattern> {
    // `takes`: an earlier pattern covers this one. `replaced`: this one covers an earlier one of the same
    // list.
    let takes = |(g, r): &(String, String)| (g == "*" || g == group) && (r == "*" || r == resource);
    let replaced = |(g, r): &(String, String)| (group == "*" || g == group) && (resource == "*" || r == resource);
    if here.iter().any(|p| takes(p) || replaced(p)) {
        return Err(InvalidPattern::Overlaps);
    }
    let mut earlier = before.iter().flat_map(|rule| &rule.resources);
    match earlier.find(|p| takes(p)) {
        None => Ok(()),
        Some((g, r)) => Err(InvalidPattern::Masked {
            name: name.to_owned(),
            rule: format!("{r}.{g}"),
        }),
    }
}
