//! OpenID Connect tokens: `--oidc-*` and the `jwt` section of an `AuthenticationConfiguration`. Follows upstream's
//! `plugin/pkg/authenticator/token/oidc`, without CEL expressions on claims.
//!
//! Each provider is discovered in the background. Until discovery succeeds, its tokens are rejected with an error
//! rather than treated as unrecognised.

mod authenticator;
mod claims;
pub(crate) mod configuration;
mod provider;

pub(crate) use authenticator::{JwtAuthenticators, discover};
pub use configuration::Configuration;
pub(crate) use configuration::{JwtIssuer, Prefixed};

#[cfg(test)]
mod tests;
