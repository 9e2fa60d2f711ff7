//! OpenID Connect tokens: `--oidc-*` and the `jwt` section of an `AuthenticationConfiguration`. Follows
//! upstream's `plugin/pkg/authenticator/token/oidc`.
//!
//! Each provider is discovered in the background. Until discovery succeeds, its tokens are rejected with an
//! error rather than treated as unrecognised.

mod authenticator;
mod claims;
pub(crate) mod configuration;
mod expressions;
mod provider;

pub(crate) use authenticator::{IssuerError, JwtAuthenticators, discover};
pub use configuration::Configuration;
pub(crate) use configuration::{JwtIssuer, Mapping, Prefixed};

use crate::apimachinery::value::Value;
use crate::request::UserInfo;

/// The user that verified claims of a provider map to, as far as a reactor thread evaluates it (fuzz).
///
/// `None` if the token is refused, or if its expressions exceed the budget of an I/O thread.
pub fn user_of_claims(issuer: &JwtIssuer, claims: &Value) -> Option<UserInfo> {
    claims::user(issuer, claims, torana_cel::Budget::quick()).ok()
}

#[cfg(test)]
mod tests;
