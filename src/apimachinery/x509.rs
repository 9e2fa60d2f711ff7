//! Certificate signing requests and the names in certificates, read so strictly that no other reader finds something else
//! in them.
//!
//! A check of a subject is worth what the check and the signer, or the server that is shown the certificate, agree on.
//! Readers differ in string types they do not know (and then skip), in data after the end, in lengths with leading zeros,
//! in the second of two values. So everything here is DER to the letter: each length in its shortest form, each structure
//! used up to its last byte, each value of a name decoded or the whole refused.

mod der;
mod name;
mod request;
#[cfg(test)]
pub(crate) mod testing;

pub use name::Name;
pub use request::CertificateRequest;

/// Why something is refused; the text is for whoever sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}
