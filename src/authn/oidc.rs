//! OpenID Connect tokens: `--oidc-*` and the `jwt` section of an `AuthenticationConfiguration`. Follows upstream's
//! `plugin/pkg/authenticator/token/oidc`, without CEL expressions on claims.
//!
//! Each provider is discovered in the background. Until discovery succeeds, its tokens are rejected with an error
//! rather than treated as unrecognised.

mod authenticator;
mod claims;
pub mod configuration;
mod provider;

pub use authenticator::{JwtAuthenticatorSet, JwtAuthenticators, discover};
pub use configuration::{AnonymousConfig, Configuration, JwtIssuer, Prefixed};
pub use provider::Provider;

#[cfg(test)]
mod tests;
