//! The constants of a kind: [`Rules`] from its strategy, [`MetaChecks`] from its row.

use crate::apimachinery::value::Value;

/// The part of a kind's strategy that is data.
///
/// ```
/// use torana::sdk::Strategy;
/// use torana::sdk::strategy::{GarbageCollection, NameRule, Rules};
///
/// /// Deleting a batch leaves the objects that it has created.
/// struct BatchStrategy;
///
/// impl Strategy for BatchStrategy {
///     fn rules(&self) -> Rules {
///         Rules { garbage_collection: GarbageCollection::Orphan, ..Rules::DEFAULT }
///     }
/// }
///
/// assert_eq!(BatchStrategy.rules().names, NameRule::Subdomain);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The check of object names.
    pub names: NameRule,
    /// Additional errors of the name, for kinds whose names depend on the content (APIServices, definitions of custom
    /// resources).
    pub names_by_content: Option<fn(object: &Value, name: &str) -> Vec<String>>,
    /// Propagation policy of deletes that specify none.
    pub garbage_collection: GarbageCollection,
    /// A warning for deletes that specify no propagation policy (Jobs, which orphan their pods).
    pub missing_propagation_warning: Option<&'static str>,
    /// A warning added to every request for the kind, for all verbs and outcomes.
    pub deprecation: Option<&'static str>,
    /// Annotations that represent fields of upstream's internal type; metadata-only responses omit them.
    pub wire_annotations: &'static [&'static str],
    /// Whether upstream stores this new object without a default that every read adds. Its first update then
    /// stores the default, even if it changes nothing else.
    pub completed_by_reads: Option<fn(&Value) -> bool>,
    /// Where the default labels of a new object without any come from. To upstream both are one map, so that what the
    /// preparation adds there, the object has too (Jobs).
    pub labels_from: Option<&'static [&'static str]>,
    /// Top-level members in which an update changes the generation also by an empty list or map that the stored object
    /// cannot have (NetworkPolicies, webhook configurations).
    pub generation_counts_empties: &'static [&'static str],
    /// Fields whose default an empty list or map of the body prevents until the stored object, which lacks it, is read:
    /// dotted paths. The default has no owner then (the allocatable resources of a Node).
    pub defaults_prevented_by_empties: &'static [&'static str],
    /// True if an apply to the status of an object that does not exist creates it (ValidatingAdmissionPolicies).
    pub created_by_status: bool,
    /// The time to live of stored objects in seconds (events).
    pub ttl_seconds: Option<u64>,
    /// True if validating an object may take long, however small it is: its schema has CEL rules or is complex,
    /// or it consists of expressions or schemas to compile. Such writes run on the compute pool.
    pub costly_validation: bool,
    /// True if updates are not validated at all, not even their metadata (the binding of a pod, which upstream writes
    /// to the storage directly).
    pub unvalidated_updates: bool,
}

impl Rules {
    /// The rules of most kinds.
    pub const DEFAULT: Self = Self {
        names: NameRule::Subdomain,
        names_by_content: None,
        garbage_collection: GarbageCollection::Background,
        missing_propagation_warning: None,
        deprecation: None,
        wire_annotations: &[],
        completed_by_reads: None,
        labels_from: None,
        generation_counts_empties: &[],
        defaults_prevented_by_empties: &[],
        created_by_status: false,
        ttl_seconds: None,
        costly_validation: false,
        unvalidated_updates: false,
    };

    /// [`DEFAULT`](Self::DEFAULT) with another check of names.
    pub const fn named(names: NameRule) -> Self {
        Self { names, ..Self::DEFAULT }
    }
}

/// The check of object names. The messages are upstream's.
///
/// ```
/// use torana::sdk::Strategy;
/// use torana::sdk::strategy::{NameRule, Rules};
///
/// /// The name of a tenant is a part of host names, so it must not contain a dot.
/// struct TenantStrategy;
///
/// impl Strategy for TenantStrategy {
///     fn rules(&self) -> Rules {
///         Rules::named(NameRule::Label)
///     }
/// }
///
/// assert_eq!(TenantStrategy.rules().names, NameRule::Label);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain: most kinds.
    Subdomain,
    /// DNS-1123 label: namespaces.
    Label,
    /// DNS-1035 label: services.
    Label1035,
    /// Any valid path segment: RBAC, CRD-like names, APIServices.
    PathSegment,
    /// No rule of its own (CertificateSigningRequests): the registry requires a path segment once all else is valid.
    Any,
    /// An IP address in its canonical form: IPAddresses. A `generateName` is the name itself.
    CanonicalIp,
    /// DNS-1123 subdomain with declarative validation (ReplicationControllers, DeviceClasses), which ignores
    /// `generateName`.
    Declared,
}

/// The metadata validation that a kind performs in addition to the registry's generic one. The checks
/// overlap, and like upstream, the duplicate causes are not removed from the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetaChecks {
    /// A create validates the metadata with the kind's other fields, and not only, as for every kind, once those are
    /// valid.
    pub on_create: bool,
    /// Requires finalizers to be well-known or domain-qualified.
    pub strict_finalizers: bool,
    /// How many times an update validates the metadata as that of a new object.
    pub as_new: usize,
    /// An update validates the metadata against the stored one.
    pub against_old: bool,
    /// An update of status or another part also validates the metadata against the stored one.
    pub in_subresources: bool,
    /// The kind's validation of a status or an approval includes that of the metadata, in an order of its own.
    pub status_includes_metadata: bool,
    /// An update of the status validates the metadata as that of a new object, too (VolumeAttachments).
    pub status_as_new: bool,
    /// The order of the errors of both.
    pub order: UpdateOrder,
}

/// Which validation of an update comes first: as a new object, or against the stored one. Each starts with the
/// metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateOrder {
    /// As a new object, then against the stored one.
    New,
    /// Against the stored object, then as a new one.
    Old,
    /// The metadata against the stored one, then everything as a new object, then the rest against the stored one.
    OldMetadata,
    /// The metadata as that of a new object and against the stored one, then the rest.
    Metadata,
}

impl MetaChecks {
    /// Most kinds: an update is validated both as a new object and against the stored one.
    pub(crate) const BOTH: Self = Self {
        on_create: true,
        strict_finalizers: true,
        as_new: 1,
        against_old: true,
        in_subresources: true,
        status_includes_metadata: false,
        status_as_new: false,
        order: UpdateOrder::New,
    };
    /// As [`BOTH`](Self::BOTH), in another order.
    pub(crate) const fn both_in(order: UpdateOrder) -> Self {
        Self { order, ..Self::BOTH }
    }
    /// Kinds whose updates are validated only against the stored object.
    pub(crate) const AGAINST_OLD: Self = Self {
        as_new: 0,
        ..Self::BOTH
    };
    /// Kinds whose updates are validated only as new objects.
    pub(crate) const AS_NEW: Self = Self {
        against_old: false,
        in_subresources: false,
        ..Self::BOTH
    };
    /// Kinds without metadata validation of their own.
    pub(crate) const NONE: Self = Self {
        on_create: false,
        as_new: 0,
        against_old: false,
        in_subresources: false,
        status_includes_metadata: false,
        status_as_new: false,
        strict_finalizers: false,
        order: UpdateOrder::New,
    };

    /// A copy that accepts finalizers of any form.
    pub(crate) const fn any_finalizers(self) -> Self {
        Self {
            strict_finalizers: false,
            ..self
        }
    }
}

/// The treatment of dependents if a delete specifies no propagation policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollection {
    /// They are deleted in the background.
    Background,
    /// They stay: the finalizer `orphan` is set (Job, ReplicationController).
    Orphan,
    /// The kind ignores propagation policies (events).
    Unsupported,
}
