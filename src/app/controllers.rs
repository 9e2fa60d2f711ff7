//! Starts the control loops that `--controllers` selects. Entry point: [`start`]. The loops are in
//! `crate::controllers`; here they get an identity for leader election, their CAs and a handler to send
//! requests to.

use super::Error;
use crate::authn::service_account::Issuer;
use crate::cli::CompletedOptions;
use crate::controllers::{Config, Controllers, SigningConfig};
use crate::pki::certs::DynamicCa;
use crate::registry::StoreLookup;
use crate::request::Handler;
use crate::server::Lifecycle;
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use std::sync::Arc;

/// The parts of the gateway that the loops use.
pub(super) struct Parts<'a> {
    pub lookup: &'a StoreLookup,
    pub handler: &'a Arc<dyn Handler>,
    pub lifecycle: &'a Lifecycle,
    pub tasks: &'a TaskGroup,
    pub serving_ca: Option<Arc<DynamicCa>>,
    pub issuer: Issuer,
}

/// Starts the loops in `tasks`. They wait until the gateway is ready, because discovery is not complete
/// before.
///
/// # Errors
/// `--root-ca-file` cannot be read.
pub(super) fn start(options: &CompletedOptions, gateway: Parts<'_>, telemetry: &Telemetry) -> Result<(), Error> {
    let Parts {
        lookup,
        handler,
        lifecycle,
        tasks,
        ..
    } = gateway;
    let selection = options.controllers.selection.clone();
    if selection.is_empty() {
        return Ok(());
    }
    let shared_store = options.storage.etcd.is_some();
    let controllers = Controllers::new(Config {
        selection,
        lookup: lookup.clone(),
        handler: handler.clone(),
        // Only one process at a time can have an embedded store open.
        identity: match shared_store {
            true => format!("{}_{}", options.host_name, random_suffix()?),
            false => options.host_name.clone(),
        },
        shared_store,
        root_ca: root_ca(options, gateway.serving_ca)?,
        issuer: gateway.issuer,
        unused_tokens: options.controllers.unused_tokens,
        signing: Arc::new(signing(options)),
        telemetry: telemetry.clone(),
    });
    let (ready, stop) = (lifecycle.has_been_ready.clone(), lifecycle.shutdown_initiated.clone());
    tasks.spawn("control loops", async move {
        // Biased towards stopping: a gateway that is never ready never starts them.
        tokio::select! {
            biased;
            () = stop.wait() => return,
            () = ready.wait() => {}
        }
        controllers.run(stop).await;
    });
    Ok(())
}

/// Distinguishes gateways on one machine.
fn random_suffix() -> Result<String, Error> {
    let mut bytes = [0u8; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::other("no random numbers are available"))?;
    Ok(crate::apimachinery::codec::hex(&bytes))
}

/// `--root-ca-file`, or the generated CA and those that other gateways share if the serving certificate is
/// generated.
fn root_ca(options: &CompletedOptions, serving_ca: Option<Arc<DynamicCa>>) -> Result<Option<Arc<DynamicCa>>, Error> {
    match &options.controllers.root_ca_file {
        Some(path) => {
            let read = DynamicCa::from_file(path).map_err(Error::flag("root-ca-file"))?;
            Ok(Some(read))
        }
        None => Ok(serving_ca),
    }
}

/// `--cluster-signing-cert-file`, or the generated CAs where they are in use.
fn signing(options: &CompletedOptions) -> SigningConfig {
    let (given, dir) = (&options.controllers.signing_ca, options.pki_options().dir);
    let generated = |name: &str| (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    // A generated CA that no verifier trusts would sign certificates that nobody accepts.
    let own_clients = options.authentication.client_ca.is_none();
    let own_serving = options.serving.pair.is_none();
    SigningConfig {
        clients: given.clone().or_else(|| own_clients.then(|| generated("client-ca"))),
        kubelets: given.clone().or_else(|| own_serving.then(|| generated("ca"))),
        longest: options.controllers.signing_duration,
    }
}
