//! Certificate signing requests, distinguished names and certificates of version 1, parsed as strict DER.
//!
//! Start at [`CertificateRequest`], [`Name`] and [`VersionOne`]; [`Draft`] is the certificate that answers a
//! request, and [`intermediates_to_try`] bounds the search for a path in a chain. Checking a subject only helps if
//! the check and the consumer (the signer, or the server that is shown the certificate) parse the same value.
//! Parsers disagree on unknown string types (which some skip), trailing data, non-minimal lengths and repeated
//! attributes. Therefore every length must be minimal, every structure must be consumed to its last byte, and a
//! name with a value that cannot be decoded is rejected as a whole.

mod certificate;
mod der;
mod intermediates;
mod name;
pub(crate) mod pem;
mod request;
#[cfg(test)]
pub(crate) mod testing;
mod version_one;

pub(crate) use certificate::Draft;
pub(crate) use intermediates::intermediates_to_try;
pub use name::Name;
pub(crate) use request::AlternativeName;
pub use request::CertificateRequest;
pub(crate) use version_one::VersionOne;

/// Why the input was rejected; the text is returned to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}
