//! Checks of a conversion webhook that validation and ratcheting share.

use crate::apimachinery::value::Value;
use crate::proxy::ca_bundle::{UnusableBundle, check_bundle};
use base64::Engine as _;

/// The versions of ConversionReview that exist.
pub(super) const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Checks the CA bundle of a client configuration; an absent one is fine.
pub(super) fn ca_bundle(client: &Value) -> Result<(), UnusableBundle> {
    let text = client.str_at(&["caBundle"]);
    if text.is_empty() {
        return Ok(());
    }
    // Decoding the object has checked that it is base64.
    let pem = base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap_or_default();
    check_bundle(&pem)
}
