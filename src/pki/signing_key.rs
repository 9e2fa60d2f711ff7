//! The key that signs service account tokens. [`ensure`] generates it.

use super::PkiError;
use super::files::{self, PUBLIC, SECRET};
use super::issue::{GeneratedFiles, generation, key};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use std::path::Path;

/// Generates `sa.key` (ECDSA P-256 or RSA 2048) and `sa.pub` if missing. An existing `sa.pub` is never
/// rewritten: it may also hold former keys, which still verify old tokens.
pub(super) fn ensure(dir: &Path, rsa: bool, made: &mut GeneratedFiles) -> Result<(), PkiError> {
    let (path, public_path) = (dir.join("sa.key"), dir.join("sa.pub"));
    let key_pair = match files::read_secret(&path)? {
        Some(pem) => key(&path, &pem)?,
        None => {
            // A new pair would silently invalidate every token; a lost key is more likely a mistake, such as
            // a volume that is not mounted.
            if files::read(&public_path)?.is_some() {
                let remedy = "put the private key back, or remove sa.pub to have a new pair made (every service account token becomes invalid)";
                return Err(PkiError::new(&path, format!("is missing beside sa.pub; {remedy}")));
            }
            let algorithm = if rsa { &PKCS_RSA_SHA256 } else { &PKCS_ECDSA_P256_SHA256 };
            let new = KeyPair::generate_for(algorithm).map_err(generation(&path))?;
            made.files.add(&path, new.serialize_pem(), SECRET);
            made.names.push("sa");
            new
        }
    };
    // Also for a key that an operator put there without its public half.
    if files::read(&public_path)?.is_none() {
        made.files.add(&public_path, key_pair.public_key_pem(), PUBLIC);
    }
    Ok(())
}
