//! Tokens of identity providers (OpenID Connect): `--oidc-*` and the `jwt` part of an `AuthenticationConfiguration`.
//! Follows upstream's `plugin/pkg/authenticator/token/oidc`, claim expressions (CEL) excepted.
//!
//! Each provider is discovered in the background; until it is, its tokens are refused, not unknown.

mod authenticator;
mod claims;
pub mod configuration;
mod provider;

pub use authenticator::{JwtAuthenticators, Set, discover};
pub use configuration::{AnonymousConfig, Configuration, JwtIssuer, Prefixed};
pub use provider::Provider;

#[cfg(test)]
mod tests;
