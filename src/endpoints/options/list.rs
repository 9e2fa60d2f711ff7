//! [`ListQuery`]: ListOptions, the query parameters of list, watch and deletecollection.

use super::{Query, check};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::selector::fields::Term;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::path_segment_name;
use crate::apimachinery::{FieldSelector, LabelSelector};
use crate::registry::Resource;
use crate::registry::selectable_fields::ExtractFields;
use crate::storage::{Entry, MinRevision, Predicate, Revision, Select, VersionMatch};
use std::sync::Arc;

/// Kinds that have field selectors but do not support `metadata.namespace`.
const WITHOUT_NAMESPACE: [&str; 6] = [
    "Node",
    "Namespace",
    "CertificateSigningRequest",
    "ClusterTrustBundle",
    "PodCertificateRequest",
    "ResourceSlice",
];

/// Parsed and validated ListOptions.
#[derive(Clone, Debug)]
pub(crate) struct ListQuery {
    pub labels: LabelSelector,
    /// The field selector, restricted to fields the kind supports.
    pub fields: FieldSelector,
    /// `limit`; 0 for none.
    pub limit: usize,
    /// `continue`, still encoded.
    pub token: String,
    /// `resourceVersion` as given.
    pub version: String,
    /// `resourceVersionMatch=Exact`
    pub exact: bool,
    /// `resourceVersionMatch=NotOlderThan`
    pub not_older: bool,
    /// `timeoutSeconds`
    pub timeout_seconds: Option<u64>,
    /// `allowWatchBookmarks`
    pub bookmarks: bool,
    /// `sendInitialEvents`, given or implied.
    pub initial_events: Option<bool>,
}

/// The selectors of a request as a predicate on entries.
struct Selectors {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Extracts the fields that are not stored with the entry.
    extract: Option<(ExtractFields, Mask)>,
}

impl Select for Selectors {
    fn matches(&self, e: &Entry) -> bool {
        if !self.labels.matches(&|k| e.label(k)) {
            return false;
        }
        let Some((extract, reads)) = &self.extract else {
            return self.fields.matches(&|k| e.field(k));
        };
        let own = extract(&e.decode_parts(reads));
        let own = |k: &str| own.iter().find(|(name, _)| name == k).map(|(_, v)| v.as_str());
        self.fields.matches(&|k| e.field(k).or_else(|| own(k)))
    }

    fn requires(&self, field: &str) -> Option<&str> {
        self.fields.requires_exact(field)
    }

    fn reads_fields(&self) -> bool {
        let mut terms = self.fields.terms().iter();
        terms.any(|t| !matches!(t.field.as_str(), "metadata.name" | "metadata.namespace"))
    }
}

impl ListQuery {
    /// Parses and validates the query; `watch` selects the rules for watches.
    ///
    /// # Errors
    /// 400 for malformed values; 422 for invalid combinations.
    pub(crate) fn parse(query: &Query, resource: &Resource, watch: bool) -> Result<Self> {
        let labels = LabelSelector::parse(query.text("labelSelector")).map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(Status::bad_request)?;
        let timeout = query.int("timeoutSeconds")?;
        let limit = query.int("limit")?.unwrap_or(0);
        let version = query.text("resourceVersion").to_owned();
        let token = query.text("continue").to_owned();
        let mut matching = query.text("resourceVersionMatch").to_owned();
        let mut initial_events = query.flag("sendInitialEvents");
        let unset = matching.is_empty() && initial_events.is_none();
        // Without a version, a watch implies the initial events (upstream: `SetListOptionsDefaults`).
        if watch && unset && (version.is_empty() || version == "0") {
            initial_events = Some(true);
            "NotOlderThan".clone_into(&mut matching);
        }
        let mut errors = ErrorList::new();
        if watch {
            check_watch(&matching, initial_events, &token, &mut errors);
        } else {
            check_list(&matching, initial_events, &token, &version, &mut errors);
        }
        check("ListOptions", &errors)?;
        Ok(Self {
            labels,
            fields: supported(fields, resource)?,
            limit: usize::try_from(limit).unwrap_or(0),
            token,
            version,
            exact: matching == "Exact",
            not_older: matching == "NotOlderThan",
            timeout_seconds: timeout.and_then(|t| u64::try_from(t).ok()).filter(|t| *t > 0),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            initial_events,
        })
    }

    /// The selectors as a predicate on entries of `resource`, for which the query was parsed.
    pub(crate) fn predicate(&self, resource: &Resource) -> Predicate {
        if self.labels.is_everything() && self.fields.is_everything() {
            return Predicate::default();
        }
        let (labels, fields) = (self.labels.clone(), self.fields.clone());
        let of_object = |t: &Term| !matches!(t.field.as_str(), "metadata.name" | "metadata.namespace");
        let own = resource
            .selectable
            .as_ref()
            .filter(|_| fields.terms().iter().any(of_object));
        let extract = own.and_then(|s| Some((s.extract.clone(), s.reads.clone()?)));
        Predicate(Some(Arc::new(Selectors {
            labels,
            fields,
            extract,
        })))
    }

    /// The key prefix that can match, and whether it is a complete key.
    pub(crate) fn prefix(&self, resource: &Resource, namespace: &str) -> (String, bool) {
        let name = self.fields.requires_exact("metadata.name");
        // A complete key needs both name and namespace.
        let usable = !resource.namespaced || !namespace.is_empty();
        match name.filter(|n| usable && !n.is_empty() && path_segment_name(n).is_empty()) {
            Some(name) => (resource.key(namespace, name), true),
            None if resource.namespaced && !namespace.is_empty() => (format!("{namespace}/"), false),
            None => (String::new(), false),
        }
    }

    /// The revision a list reads.
    ///
    /// # Errors
    /// 400 if `resourceVersion` is not a number.
    pub(crate) fn version_match(&self) -> Result<VersionMatch> {
        let min =
            min_revision(&self.version).map_err(|e| Status::bad_request(format!("invalid resource version: {e}")))?;
        Ok(match min {
            // For compatibility, a version with a limit but without resourceVersionMatch means exactly that
            // version.
            MinRevision::AtLeast(r) if self.exact || (self.limit > 0 && !self.not_older) => VersionMatch::Exact(r),
            min => VersionMatch::NotOlderThan(min),
        })
    }
}

/// A `resourceVersion` that is no number. `Display` is the text of upstream's field error.
#[derive(Debug, thiserror::Error)]
#[error("resourceVersion: Invalid value: {}: {source}", quote(.version))]
pub(crate) struct InvalidResourceVersion {
    version: String,
    source: Status,
}

/// As upstream answers when the storage finds the version, and not the validation of the options.
impl From<InvalidResourceVersion> for Status {
    fn from(e: InvalidResourceVersion) -> Self {
        Self::raw_error(e.to_string())
    }
}

/// The minimum revision a read with this `resourceVersion` requires.
///
/// # Errors
/// [`InvalidResourceVersion`].
pub(crate) fn min_revision(version: &str) -> std::result::Result<MinRevision, InvalidResourceVersion> {
    match version {
        "" => Ok(MinRevision::Latest),
        v => match crate::registry::parse_version(v) {
            Ok(0) => Ok(MinRevision::Any),
            Ok(n) => Ok(MinRevision::AtLeast(Revision(n))),
            Err(source) => Err(InvalidResourceVersion {
                version: v.to_owned(),
                source,
            }),
        },
    }
}

fn check_list(matching: &str, initial: Option<bool>, token: &str, version: &str, errors: &mut ErrorList) {
    let path = FieldPath::new("resourceVersionMatch");
    if !matching.is_empty() {
        if version.is_empty() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !token.is_empty() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !["Exact", "NotOlderThan"].contains(&matching) {
            errors.push(FieldError::not_supported(
                &path,
                matching,
                &["Exact", "NotOlderThan", ""],
            ));
        }
        if matching == "Exact" && version == "0" {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if initial.is_some() {
        errors.push(FieldError::forbidden(
            &FieldPath::new("sendInitialEvents"),
            "sendInitialEvents is forbidden for list",
        ));
    }
}

fn check_watch(matching: &str, initial: Option<bool>, token: &str, errors: &mut ErrorList) {
    let path = FieldPath::new("resourceVersionMatch");
    if initial.is_some() && matching != "NotOlderThan" {
        errors.push(FieldError::forbidden(
            &path,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if !matching.is_empty() {
        if initial.is_none() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported(&path, matching, &["NotOlderThan"]));
        }
        if !token.is_empty() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
}

/// Resolves the selector's aliases and rejects fields the kind does not support.
fn supported(selector: FieldSelector, resource: &Resource) -> Result<FieldSelector> {
    let own = resource.selectable.as_ref().map(|s| s.names.clone());
    let custom = resource.selectable.as_ref().is_some_and(|s| s.reads.is_some());
    let knows = |field: &str| match field {
        "metadata.name" => true,
        "metadata.namespace" if custom => resource.namespaced,
        "metadata.namespace" => !(own.is_some() && WITHOUT_NAMESPACE.contains(&resource.kind.as_str())),
        _ => own.iter().any(|names| names.iter().any(|n| n == field)),
    };
    selector.try_map(|term| {
        let field = match term.field.as_str() {
            // An alias for old clients.
            "spec.host" if resource.kind == "Pod" => "spec.nodeName",
            f => f,
        };
        if knows(field) {
            return Ok(Term {
                field: field.into(),
                ..term.clone()
            });
        }
        // The wording depends on the conversion function that upstream registers for the kind.
        Err(Status::bad_request(match (own.is_some(), resource.kind.as_str()) {
            (false, _) => format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                quote(field)
            ),
            (true, "Job") => format!("field label {} not supported for Job", quote(field)),
            (true, "ResourceSlice") => {
                format!(
                    "field label not supported for {}, Kind=ResourceSlice: {field}",
                    resource.gvk().api_version()
                )
            }
            (true, _) => format!("field label not supported: {field}"),
        }))
    })
}
