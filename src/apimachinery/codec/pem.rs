//! What is wrong with PEM, in words that hold none of it: a key without line breaks is one long line, and messages about
//! keys go into conditions and logs.

use rustls::pki_types::pem::Error;

/// What is wrong. The library's own text quotes the line that it stumbles over, and with it what a private key consists of.
pub fn flaw(error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => "the PEM block has no end: it is cut off, or has lost its line breaks",
        Error::IllegalSectionStart { .. } => "the line that begins the PEM block is malformed",
        Error::Base64Decode(_) => "what the PEM block holds is no base64",
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
    fn what_is_wrong_with_a_key_is_told_without_any_of_it() {
        for (pem, told) in [
            ("-----BEGIN PRIVATE KEY-----\nTUlJ\n", "has no end"),
            (
                "-----BEGIN PRIVATE KEY-----TUlJ-----END PRIVATE KEY-----",
                "line breaks",
            ),
            ("-----BEGIN PRIVATE KEY TUlJ\n", "malformed"),
            (
                "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
                "no base64",
            ),
            ("TUlJ", "no such PEM block"),
        ] {
            let error = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap_err();
            assert!(flaw(&error).contains(told), "{pem}: {}", flaw(&error));
        }
    }
}
