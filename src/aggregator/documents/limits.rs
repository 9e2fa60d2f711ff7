//! The limits on a document of a backend.

/// Deepest nesting allowed in the parts that are kept. Schemas of custom resources nest a few dozen levels.
pub(crate) const MAX_LEVELS: usize = 200;
/// Groups per document.
pub(crate) const MAX_GROUPS: usize = 1_000;
/// Versions per group.
pub(crate) const MAX_VERSIONS: usize = 64;
/// Resources per version. A plain APIResourceList counts subresources, too.
pub(crate) const MAX_RESOURCES: usize = 4_000;
/// Subresources per resource.
pub(crate) const MAX_SUBRESOURCES: usize = 64;
/// Verbs, short names, categories or accepted types per resource or subresource.
pub(crate) const MAX_WORDS: usize = 64;
/// Bytes of a name: the longest that Kubernetes allows.
pub(crate) const MAX_NAME_LENGTH: usize = 253;
