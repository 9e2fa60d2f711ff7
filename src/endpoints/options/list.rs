//! [`ListQuery`]: ListOptions, the query parameters of list, watch and deletecollection.

use super::{Query, check};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::selector::fields::Term;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::path_segment_name;
use crate::apimachinery::value::Str;
use crate::apimachinery::{FieldSelector, LabelSelector};
use crate::registry::Resource;
use crate::registry::selectable_fields::{ExtractFields, UnstoredFields};
use crate::storage::extracted_fields::{Fields, shortened};
use crate::storage::{Entry, MinRevision, Predicate, Revision, Select, VersionMatch};
use std::hash::{Hash as _, Hasher};
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
    pub labels: Arc<LabelSelector>,
    /// The field selector, restricted to fields the kind supports.
    pub fields: Arc<FieldSelector>,
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
    labels: Arc<LabelSelector>,
    fields: Arc<FieldSelector>,
    /// Extracts the fields that are not stored with the entry, if the selector needs one.
    extract: Option<(ExtractFields, UnstoredFields)>,
}

impl Selectors {
    /// The fields that are not stored with the entry, extracted at the first use by any selector and then kept with it.
    fn extracted(&self, e: &Entry) -> Option<Fields> {
        let (extract, of) = self.extract.as_ref()?;
        let read = || extract(&e.decode_parts(&of.reads));
        Some(e.extracted.get_or_extract(of.extractor, read))
    }
}

fn find<'a>(fields: &'a [(Str, Str)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
}

impl Select for Selectors {
    fn matches(&self, e: &Entry) -> bool {
        // Labels first: they are stored with the entry, while fields may have to be extracted.
        if !self.labels.matches(&|k| e.label(k)) {
            return false;
        }
        match self.extracted(e) {
            Some(own) => self.fields.matches(&|k| e.field(k).or_else(|| find(&own, k))),
            None => self.fields.matches(&|k| e.field(k)),
        }
    }

    fn matches_with(&self, e: &Entry, fields: &[(Str, Str)]) -> bool {
        let field = |k: &str| match k {
            "metadata.name" | "metadata.namespace" => e.field(k),
            _ => find(fields, k),
        };
        self.labels.matches(&|k| e.label(k)) && self.fields.matches(&field)
    }

    fn requires(&self, field: &str) -> Option<&str> {
        self.fields.requires_exact(field)
    }

    fn reads_fields(&self) -> bool {
        self.fields.terms().iter().any(is_of_object)
    }

    fn terms(&self) -> usize {
        terms(&self.labels, &self.fields)
    }

    fn extracts(&self, e: &Entry) -> bool {
        let of = self.extract.as_ref();
        of.is_some_and(|(_, of)| !e.extracted.has(of.extractor))
    }

    fn prepare(&self, e: &Entry) {
        self.extracted(e);
    }

    fn identify(&self, mut hasher: &mut dyn Hasher) -> bool {
        // Definitions extract different values under the same name.
        let extractor = self.extract.as_ref().map(|(_, of)| of.extractor);
        (&self.labels, &self.fields, extractor).hash(&mut hasher);
        true
    }
}

/// Number of comparisons that the selectors make per object.
fn terms(labels: &LabelSelector, fields: &FieldSelector) -> usize {
    labels.requirements().len() + fields.terms().len()
}

/// True if the term reads the object rather than its key.
fn is_of_object(term: &Term) -> bool {
    !matches!(term.field.as_str(), "metadata.name" | "metadata.namespace")
}

impl ListQuery {
    /// Parses and validates the query; `watch` selects the rules for watches.
    ///
    /// # Errors
    /// 400 for malformed values; 422 for invalid combinations.
    pub(crate) fn parse(query: &Query, resource: &Resource, watch: bool) -> Result<Self> {
        // The integers first: upstream reads the selectors as texts, and parses them when it has read all parameters.
        let timeout = query.int("timeoutSeconds")?;
        let limit = query.int("limit")?.unwrap_or(0);
        let labels = LabelSelector::parse(query.text("labelSelector")).map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(Status::bad_request)?;
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
            labels: Arc::new(labels),
            fields: Arc::new(supported(fields, resource)?),
            // Upstream takes a negative limit for none.
            limit: usize::try_from(limit).unwrap_or(0),
            token,
            version,
            exact: matching == "Exact",
            not_older: matching == "NotOlderThan",
            // Zero and negative values count as unset, as upstream.
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
        let own = resource.selectable.as_ref();
        // Extraction decodes the object, so it is set up only for selectors that need it.
        let own = own.filter(|_| self.fields.terms().iter().any(is_of_object));
        Predicate(Some(Arc::new(Selectors {
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            extract: own.and_then(|s| Some((s.extract.clone(), s.unstored.clone()?))),
        })))
    }

    /// Number of comparisons that the selectors make per object.
    pub(crate) fn terms(&self) -> usize {
        terms(&self.labels, &self.fields)
    }

    /// The key prefix that can match, and whether it is a complete key.
    pub(crate) fn prefix(&self, resource: &Resource, namespace: &str) -> (String, bool) {
        // A list of one object by name is served as a lookup instead of a scan.
        let name = self.fields.requires_exact("metadata.name");
        // A complete key needs both name and namespace.
        let usable = !resource.namespaced || !namespace.is_empty();
        match name.filter(|n| usable && !n.is_empty() && path_segment_name(n).is_empty()) {
            Some(name) => (resource.key(namespace, name), true),
            // With the slash, or the namespace `a` would include `ab`.
            None if resource.namespaced && !namespace.is_empty() => (format!("{namespace}/"), false),
            None => (String::new(), false),
        }
    }

    /// The revision a list reads, from `resourceVersion`, `resourceVersionMatch` and `limit`.
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

/// A `resourceVersion` that is not a number. `Display` is upstream's field error.
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

// Upstream's `ValidateListOptions` (`apimachinery/pkg/apis/meta/internalversion/validation`). The response lists
// all errors, so their order matters, too.
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
    let custom = resource.selectable.as_ref().is_some_and(|s| s.unstored.is_some());
    let knows = |field: &str| match field {
        "metadata.name" => true,
        // As upstream's converter for definitions: cluster-scoped kinds have no such label.
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
            // Extracted fields are stored shortened, so the value they are compared with must be, too.
            let value = match custom && !field.starts_with("metadata.") {
                true => Str::new(shortened(&term.value)),
                false => term.value.clone(),
            };
            return Ok(Term {
                field: field.into(),
                value,
                equal: term.equal,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::codec::json::projection::Mask;
    use crate::apimachinery::value::Value;
    use crate::endpoints::tests::support::row;
    use crate::json;
    use crate::registry::selectable_fields::SelectableFields;
    use crate::registry::strategy::Plain;
    use crate::storage::Draft;
    use std::collections::BTreeSet;
    use std::hash::DefaultHasher;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A resource whose field `spec.color` is not stored with its entries.
    fn colored(extract: ExtractFields) -> Resource {
        let mut resource = row("customs", "ConfigMap", "custom", true, Arc::new(Plain));
        resource.selectable = Some(SelectableFields {
            names: Arc::new(["spec.color".into()]),
            extract,
            unstored: Some(UnstoredFields::new(Mask::of(&["spec.color"]))),
        });
        resource
    }

    #[test]
    fn the_first_invalid_option_in_upstreams_order_is_reported() {
        let resource = row("configmaps", "ConfigMap", "configmap", true, Arc::new(Plain));
        let refused = |query: &str| ListQuery::parse(&Query::parse(query), &resource, false).expect_err("refused");
        let integer = |text: &str| format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
        for (query, message) in [
            (
                "labelSelector=(&fieldSelector=x&limit=1.5&timeoutSeconds=x",
                integer("x"),
            ),
            ("labelSelector=(&limit=1.5", integer("1.5")),
            ("fieldSelector=x&timeoutSeconds", integer("")),
        ] {
            assert_eq!(refused(query).message, message, "{query}");
        }
    }

    #[test]
    fn fields_that_are_not_stored_are_extracted_once_for_all_selectors() {
        let extracted = Arc::new(AtomicUsize::new(0));
        let counted = extracted.clone();
        let extract = move |v: &Value| {
            counted.fetch_add(1, Ordering::Relaxed);
            vec![("spec.color".into(), v.str_at(&["spec", "color"]).into())]
        };
        let resource = colored(Arc::new(extract));
        for color in ["red".to_owned(), "r".repeat(1000)] {
            let object = json!({"metadata": {"name": "a"}, "spec": {"color": (color.as_str())}});
            let entry = Draft::new(&object, vec![]).into_entry("ns/a", Revision(1));
            for i in 0..20 {
                for (value, selected) in [(color.clone(), true), (format!("{color}{i}"), false)] {
                    let query = Query::parse(&format!("fieldSelector=spec.color%3D{value}"));
                    let query = ListQuery::parse(&query, &resource, true).expect("a supported field");
                    assert_eq!(query.predicate(&resource).matches(&entry), selected);
                }
            }
        }
        assert_eq!(extracted.load(Ordering::Relaxed), 2, "once for each entry");
    }

    #[test]
    fn selectors_have_the_same_identity_exactly_if_they_are_equal() {
        let [one, other] = [(); 2].map(|()| colored(Arc::new(|_: &Value| Vec::new())));
        let identity = |resource: &Resource, query: &str| {
            let query = ListQuery::parse(&Query::parse(query), resource, true).expect("valid selectors");
            let selectors = query.predicate(resource).0.expect("not everything");
            let mut hasher = DefaultHasher::new();
            assert!(selectors.identify(&mut hasher));
            hasher.finish()
        };
        let different = [
            "labelSelector=a%3Dx",
            "labelSelector=a%3Dy",
            "labelSelector=a!%3Dx",
            "labelSelector=b,a%20in%20(x,y)",
            "fieldSelector=metadata.name%3Da",
            "fieldSelector=metadata.name%3Da&labelSelector=a%3Dx",
            "fieldSelector=spec.color%3Dred",
        ];
        let identities: BTreeSet<u64> = different.iter().map(|query| identity(&one, query)).collect();
        assert_eq!(identities.len(), different.len());
        let reordered = "labelSelector=a%20in%20(y,x),b";
        assert_eq!(identity(&one, different[3]), identity(&one, reordered));
        // Only values that are extracted depend on the definition.
        let alike = different.map(|query| identity(&one, query) == identity(&other, query));
        assert_eq!(alike, [true, true, true, true, true, true, false]);
    }
}
