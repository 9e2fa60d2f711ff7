//! PEM: [`encode`] writes blocks, and [`error_text`] describes errors of the library that reads them without
//! quoting the input.
//!
//! A key without line breaks is one long line, and messages about keys end up in status conditions and logs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::Error;

/// The label of certificates.
pub(crate) const CERTIFICATE: &str = "CERTIFICATE";

/// A block with this label, in lines of 64 characters.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    // Base64 is ASCII, so chunks of bytes never split a character.
    for line in text.as_bytes().chunks(64) {
        out.extend(line.iter().map(|b| char::from(*b)));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// Describes a PEM error. The library's own message quotes the offending line, which may be the private key
/// itself.
pub(crate) fn error_text(error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => "the PEM block has no end: it is cut off, or has lost its line breaks",
        Error::IllegalSectionStart { .. } => "the line that begins the PEM block is malformed",
        Error::Base64Decode(_) => "the PEM block is not valid base64",
        Error::NoItemsFound => "there is no such PEM block",
        Error::SectionTooLarge => "the PEM block is too large",
        _ => "it cannot be read as PEM",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject as _;

    #[test]
    fn pem_errors_do_not_leak_the_key() {
        for (pem, expected) in [
            ("-----BEGIN PRIVATE KEY-----\nTUlJ\n", "has no end"),
            (
                "-----BEGIN PRIVATE KEY-----TUlJ-----END PRIVATE KEY-----",
                "line breaks",
            ),
            ("-----BEGIN PRIVATE KEY TUlJ\n", "malformed"),
            (
                "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
                "not valid base64",
            ),
            ("TUlJ", "no such PEM block"),
        ] {
            let error = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap_err();
            assert!(error_text(&error).contains(expected), "{pem}: {}", error_text(&error));
        }
    }
}
