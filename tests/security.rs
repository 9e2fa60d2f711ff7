//! Who is asking, and may they: proofs over whole gateways, with identity providers, certificate authorities and a second
//! gateway made for the test.

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
