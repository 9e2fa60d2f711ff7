//! Authentication and authorization of whole gateways, with identity providers, certificate authorities and a
//! second gateway created by the tests.

mod support;

#[path = "security/behind.rs"]
mod behind;
#[path = "security/extension.rs"]
mod extension;
#[path = "security/metrics.rs"]
mod metrics;
#[path = "security/provider.rs"]
mod provider;
#[path = "security/revocation.rs"]
mod revocation;
#[path = "support/revocation.rs"]
mod revocation_rounds;
#[path = "security/rights.rs"]
mod rights;
#[path = "security/rotation.rs"]
mod rotation;
#[path = "security/tokens.rs"]
mod tokens;
#[path = "security/wire.rs"]
mod wire;
