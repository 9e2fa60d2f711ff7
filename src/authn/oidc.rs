//! OpenID Connect tokens: `--oidc-*` and the `jwt` section of an `AuthenticationConfiguration`. Follows upstream's
//! `plugin/pkg/authenticator/token/oidc`.
//!
//! Each provider is discovered in the background. Until discovery succeeds, its tokens are rejected with an error
//! rather than treated as unrecognised.

mod authenticator;
mod claims;
pub(crate) mod configuration;
mod expressions;
mod provider;

pub(crate) use authenticator::{JwtAuthenticators, discover};
pub use configuration::Configuration;
pub(crate) use configuration::{JwtIssuer, Mapping, Prefixed};

use crate::apimachinery::value::Value;
use crate::request::UserInfo;

/// The user that verified claims of a provider map to, as far as a reactor thread evaluates it (fuzz).
///
/// # Errors
/// Why the token is refused; empty if another thread would have to find out.
pub fn user_of_claims(issuer: &JwtIssuer, claims: &Value) -> Result<UserInfo, String> {
    use expressions::Failure;
    use torana_cel::Budget;
    claims::user(issuer, claims, Budget::quick()).map_err(|failure| match failure {
        Failure::Refused(why) => why,
        Failure::Costly => String::new(),
    })
}

#[cfg(test)]
mod tests;
