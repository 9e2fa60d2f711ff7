//! [`DocumentKind`]: which documents the gateway keeps of each backend.

/// The documents of a backend that are fetched, bounded and kept each on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// The aggregated discovery entry of the version.
    Discovery,
    /// The paths of the backend's `/openapi/v2` that belong to the version.
    OpenApiV2,
    /// The index at `/openapi/v3`.
    OpenApiV3,
    /// The document of the version, to which the index points.
    OpenApiV3Last,
}

impl DocumentKind {
    /// Length of an array with an element for each kind.
    pub const KINDS: usize = Self::OpenApiV3Last as usize + 1;

    /// The end of the name of its file in the disk cache.
    pub(in crate::aggregator) const fn suffix(self) -> &'static str {
        match self {
            Self::Discovery => "discovery.json",
            Self::OpenApiV2 => "openapi-v2.json",
            Self::OpenApiV3 => "openapi-v3.json",
            Self::OpenApiV3Last => "openapi-v3-last.json",
        }
    }
}
