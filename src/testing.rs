//! Internals that this repository's own integration tests, benchmarks and fuzz bodies use, under the names of
//! their modules. They are separate programs and see public items only: the storage suite runs one set of
//! tests over both backends, benchmarks have an allocator of their own, and libFuzzer links the bodies.
//!
//! Not part of the public API: anything here changes without notice. Code that only a test uses belongs in its
//! module's unit tests instead.

/// Review of webhook responses (fuzz).
pub mod admission {
    pub use crate::admission::webhook::review::answer;
    pub use crate::client::webhook::ReviewVersion;
}

/// Documents of backends (fuzz).
pub mod aggregator {
    pub use crate::aggregator::discovery::{from_resource_list, versions};
    pub use crate::aggregator::documents::{Documents, PublishedKind};
    pub use crate::aggregator::openapi::{filter, merge, v3_of};

    /// Limits of documents.
    pub mod bounds {
        pub use crate::aggregator::documents::bounds::{groups, version};
    }
}

/// The audit policy file (fuzz).
pub mod audit {
    pub use crate::audit::Policy;
}

/// Credentials and configuration of authentication (fuzz, the `access` benchmark, an issuer of tokens for
/// tests).
pub mod authn {
    pub use crate::authn::cache::TokenCache;
    pub use crate::authn::jwt::{PublicKey, Signer, Token, seconds, unverified_claims};
    pub use crate::authn::oidc::{Configuration, user_of_claims};
    pub use crate::authn::request_header::{stated, unescape_key};
    pub use crate::authn::x509::{common_name, user_of};
    pub use crate::authn::{RequestHeaderNames, X509};
}

/// Configuration of authorization, policies, roles and impersonation (fuzz).
pub mod authz {
    pub use crate::authz::abac::Abac;
    pub use crate::authz::config::parse;
    pub use crate::authz::impersonation::{is_impersonation_header, requested_identity};
    pub use crate::authz::rbac::PolicyRule;
}

/// Responses of conversion webhooks (fuzz).
pub mod conversion {
    pub use crate::client::webhook::ReviewVersion;
    pub use crate::extensions::conversion::review::{accept, converted_objects};
}

/// Negotiation of media types (fuzz).
pub mod endpoints {
    pub use crate::request::accept::clauses;
}

/// Priority and fairness, and what it is configured with (the `fairness` benchmark).
pub mod flowcontrol {
    pub use crate::controlplane::bootstrap::flowcontrol::{all, mandatory};
    pub use crate::flowcontrol::work_estimate::{ObjectCounts, StoredObjects};
    pub use crate::flowcontrol::{FlowController, Mandatory, MaxInFlight, RequestClass};
    pub use crate::telemetry::Telemetry;
}

/// Built-in resources, from decoding to a response (the `objects` benchmark).
pub mod objects;

/// CA bundles (fuzz, the `access` benchmark).
pub mod pki {
    pub use crate::pki::certs::CaPool;
    pub use crate::request::{ClientCaSource, TrustAnchors};
}

/// A write and the policies that apply to it (the `expressions` benchmark).
pub mod policies;

/// Authorization by roles (the `access` benchmark).
pub mod roles;

/// The proxy's parsers of untrusted documents and frames (fuzz).
pub mod proxy {
    pub use crate::proxy::html::Page;
    pub use crate::proxy::links::Links;
    pub use crate::proxy::url::{canonical_path_and_query, cleaned_path};

    /// Frames of kubelets.
    pub mod spdy {
        pub use crate::proxy::spdy::{Decoder, Frame, Malformed, PIECE};
    }

    /// The annotations of an APIService.
    pub mod target {
        pub use crate::proxy::target::{read, warnings};
    }
}

/// Requests without a socket (fuzz, the `fairness` benchmark, the complexity fuzzer).
pub mod request {
    pub use crate::request::{Body, RemoteAddr, Request, RequestContext, RequestInfo, UserInfo};
}

/// Schemas of custom resources (fuzz, the `expressions` benchmark).
pub mod schema {
    pub use crate::schema::StructuralSchema;
}

/// Both storage backends and the watch cache (the storage suite `tests/conformance`; fuzz).
pub mod storage {
    pub use crate::storage::backend::{ResourceHooks, Unavailable};
    pub use crate::storage::cacher::history::Bounds;
    pub use crate::storage::cacher::{Cacher, CacherConfig, Initial, Progress, Snapshot};
    pub use crate::storage::continue_token::{decode, encode};
    pub use crate::storage::encryption::Encryption;
    pub use crate::storage::{
        Backend, Budget, ContinueToken, Draft, Entry, Error, EventType, ListOptions, MinRevision, Precondition,
        Predicate, ResourceConfig, Revision, Storage, Undecodable, VersionMatch, Watch, WatchItem, WatchOptions,
    };

    /// The embedded engine.
    pub mod embedded {
        pub use crate::storage::embedded::{Engine, OpenError, Options};
    }

    /// The etcd client.
    pub mod etcd {
        pub use crate::storage::etcd::{Access, Cluster, ConnectError, Options};
    }
}

/// The target that spans are filtered by.
pub mod telemetry {
    pub use crate::telemetry::spans::TARGET;
}

/// Certificate signing requests and distinguished names (fuzz).
pub mod x509 {
    pub use crate::x509::{CertificateRequest, Name};
}
