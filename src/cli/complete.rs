//! Options to [`CompletedOptions`]: validates the files and the combinations of flags, and fills in defaults.
//! Entry point: [`Options::complete`]. Nothing is opened for good: the modules that use a file read it again.

use super::options::{
    AdmissionOptions, AggregatorOptions, AuditOptions, AuthenticationOptions, AuthorizationOptions, ControllerOptions,
    FeatureGates, GenericOptions, KubeletOptions, LoggingOptions, NetworkOptions, Options, RuntimeConfig,
    ServingOptions, StorageOptions,
};
use super::value::{UsageError, Values};
use crate::audit::Policy;
use crate::authn::jwt::{PublicKey, Signer};
use crate::authn::oidc::Configuration;
use crate::authz::config::Mode;
use crate::client::ClientConfig;
use crate::pki::PkiOptions;
use crate::pki::certs::{CaPool, KeyPairData};
use crate::serving::Limits;
use crate::tasks::compute::Config;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Validated options. The files they name were readable and valid; their users read them again.
#[derive(Clone, Debug)]
pub struct CompletedOptions {
    /// The address to listen on.
    pub(crate) bind: SocketAddr,
    /// The address under which others reach this server.
    pub(crate) advertise_address: IpAddr,
    /// The host name of this machine.
    pub(crate) host_name: String,
    /// Limits of the serving port.
    pub(crate) limits: Limits,
    /// Serving: certificates and TLS.
    pub(crate) serving: ServingOptions,
    pub(crate) authentication: AuthenticationOptions,
    pub(crate) authorization: AuthorizationOptions,
    pub(crate) audit: AuditOptions,
    pub(crate) admission: AdmissionOptions,
    pub(crate) features: FeatureGates,
    /// `--runtime-config`.
    pub(crate) runtime: RuntimeConfig,
    /// Request limits and shutdown times.
    pub(crate) generic: GenericOptions,
    /// The aggregator and its backends.
    pub(crate) aggregator: AggregatorOptions,
    pub(crate) compute: Config,
    pub(crate) controllers: ControllerOptions,
    pub(crate) storage: StorageOptions,
    /// Service addresses and node ports.
    pub(crate) network: NetworkOptions,
    pub(crate) kubelet: KubeletOptions,
    pub(crate) logging: LoggingOptions,
    /// The flags as they were given.
    pub(crate) values: Values,
    /// Warnings to log at start-up.
    pub(crate) warnings: Vec<String>,
}

impl CompletedOptions {
    /// The log filter that the flags select, in the syntax of `tracing_subscriber::EnvFilter`.
    pub fn log_filter(&self) -> String {
        self.logging.filter()
    }

    /// Warnings about the options, to be logged at start-up.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A function that the threads of the compute pool and of the embedded store call once they are idle,
    /// such as one that returns free memory to the system.
    pub fn on_idle(&mut self, call: fn()) {
        self.compute.on_idle = Some(call);
    }

    /// The directory of the serving certificate, if it is that of `--cert-dir`.
    pub(crate) fn serving_dir(&self) -> Option<&Path> {
        self.serving.cert_dir.as_deref().filter(|_| self.serving.pair.is_none())
    }

    /// Parameters of the generated certificates as of now.
    pub(crate) fn pki_options(&self) -> PkiOptions {
        let mut names = vec![self.host_name.clone()];
        // The name in generated URLs, under which clients connect.
        names.extend(self.serving.external_hostname.clone());
        // A DNS name in a certificate must not be an address; addresses have a list of their own.
        names.retain(|name| !name.is_empty() && name.parse::<IpAddr>().is_err());
        let mut addresses = vec![self.advertise_address];
        // Clients cannot connect to the wildcard address.
        if !self.bind.ip().is_unspecified() {
            addresses.push(self.bind.ip());
        }
        // Pods connect through the `kubernetes` Service, which has the first address of a range.
        addresses.extend(
            self.network
                .service_cidrs
                .iter()
                .map(|cidr| cidr.first_service_address()),
        );
        PkiOptions {
            dir: self.storage.data_dir.join("pki"),
            serving_dir: self.serving_dir().map(Path::to_owned),
            names,
            addresses,
            rsa_signing_key: self.authentication.service_account.generated_key_is_rsa,
            now: SystemTime::now(),
        }
    }

    /// `<data-dir>/admin.kubeconfig`.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.storage.data_dir.join("admin.kubeconfig")
    }

    /// The URL under which a client on this machine reaches the server that listens on `port`.
    pub(crate) fn local_url(&self, port: u16) -> String {
        let ip = match self.bind.ip() {
            // Always accepted: the wildcard listens on IPv4, too, and the certificate has the loopback
            // address.
            ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip => ip,
        };
        format!("https://{}", SocketAddr::new(ip, port))
    }
}

fn usage_error(flag: &str, error: impl Display) -> UsageError {
    UsageError::new(format!("--{flag}: {error}"))
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, UsageError> {
    std::fs::read(path).map_err(|e| usage_error(flag, format!("cannot read {}: {e}", path.display())))
}

fn check_pair(flag: &str, key_flag: &str, cert: &Path, key: &Path) -> Result<(), UsageError> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let (cert_pem, key_pem) = (read(flag, cert)?, read(key_flag, key)?);
    match KeyPairData::from_pem(cert_pem, key_pem, &provider) {
        Ok(_) => Ok(()),
        Err(error) => Err(usage_error(
            flag,
            format!("{} with {}: {error}", cert.display(), key.display()),
        )),
    }
}

fn check_ca(flag: &str, path: Option<&PathBuf>) -> Result<Option<CaPool>, UsageError> {
    let Some(path) = path else { return Ok(None) };
    let pool =
        CaPool::from_pem(read(flag, path)?).map_err(|e| usage_error(flag, format!("{}: {e}", path.display())))?;
    Ok(Some(pool))
}

const AUTHENTICATION_CONFIG: &str = "authentication-config";

/// Reads an `--authentication-config` file.
///
/// # Errors
/// A one-line message with the flag, the file and the reason.
pub(crate) fn read_authentication_config(
    path: &Path,
    service_accounts: &[String],
) -> Result<Configuration, UsageError> {
    let text = read(AUTHENTICATION_CONFIG, path)?;
    parse_authentication_config(path, text, service_accounts)
}

/// Parses the content of an `--authentication-config` file.
///
/// # Errors
/// As those of [`read_authentication_config`].
pub(crate) fn parse_authentication_config(
    path: &Path,
    text: Vec<u8>,
    service_accounts: &[String],
) -> Result<Configuration, UsageError> {
    let error = |e: &dyn Display| usage_error(AUTHENTICATION_CONFIG, format!("{}: {e}", path.display()));
    let text = String::from_utf8(text).map_err(|e| error(&e))?;
    Configuration::parse(&text, service_accounts).map_err(|e| error(&e))
}

/// The address of the interface of the default route. Connecting a UDP socket sends nothing.
fn default_interface_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // TEST-NET-1 (RFC 5737) is never a real host, so it is always routed by the default route.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

fn host_name() -> String {
    // `/proc` first: it has the name in force, the file that of the next boot.
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.map(|n| n.trim().to_ascii_lowercase())
        .ok()
        // It ends up in the certificate and in the identity Lease, so anything that is not a host name is
        // dropped.
        .filter(|n| n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.'))
        .unwrap_or_default()
}

impl Options {
    /// Validates the options, including the files they name, and fills in defaults.
    ///
    /// ```no_run
    /// use torana::gateway::{CompletedOptions, Options, UsageError};
    ///
    /// fn checked(options: Options) -> Result<CompletedOptions, UsageError> {
    ///     let completed = options.complete()?;
    ///     for warning in completed.warnings() {
    ///         tracing::warn!("{warning}");
    ///     }
    ///     Ok(completed)
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// A one-line message with the flag, the file and the remedy.
    pub fn complete(self) -> Result<CompletedOptions, UsageError> {
        // `completed` consumes the options, and its errors need the places of the values.
        let values = self.values.clone();
        self.completed().map_err(|error| values.locate(error))
    }

    fn completed(mut self) -> Result<CompletedOptions, UsageError> {
        self.check_certificates()?;
        let replaces_generated_ca = self.check_client_cas()?;
        self.check_authentication()?;
        // Before anything that asks which modes are on: with a configuration file, they are not in the flags.
        self.read_authorizers()?;
        if self.authorization.has(Mode::Node) {
            self.warnings.extend(self.admission.restrict_nodes().map(str::to_owned));
        }
        self.check_audit()?;
        self.restrict_anonymous();
        if replaces_generated_ca {
            self.warnings.push(
                "admin.kubeconfig holds a certificate of the generated CA, which --client-ca-file replaces: it will \
                 not be accepted"
                    .to_owned(),
            );
        }
        Ok(CompletedOptions {
            bind: SocketAddr::new(self.serving.bind_address, self.serving.port),
            advertise_address: self.advertise_address()?,
            host_name: host_name(),
            limits: self.serving.limits(),
            serving: self.serving,
            authentication: self.authentication,
            authorization: self.authorization,
            audit: self.audit,
            admission: self.admission,
            features: self.features,
            runtime: self.runtime,
            generic: self.generic,
            aggregator: self.aggregator,
            compute: self.compute,
            controllers: self.controllers,
            storage: self.storage,
            network: self.network,
            kubelet: self.kubelet,
            logging: self.logging,
            values: self.values,
            warnings: self.warnings,
        })
    }

    /// The key pairs that this server presents, and the CA of kubelets.
    fn check_certificates(&self) -> Result<(), UsageError> {
        let serving = &self.serving;
        if let Some((cert, key)) = &serving.pair {
            check_pair("tls-cert-file", "tls-private-key-file", cert, key)?;
        }
        if let (None, Some(dir)) = (&serving.pair, &serving.cert_dir) {
            // Upstream's file names, so that a directory of kube-apiserver can be taken over.
            let (cert, key) = (dir.join("apiserver.crt"), dir.join("apiserver.key"));
            match (cert.exists(), key.exists()) {
                // Both are generated at the start.
                (false, false) => {}
                (true, true) => check_pair("cert-dir", "cert-dir", &cert, &key)?,
                _ => {
                    let why = "has only one of apiserver.crt and apiserver.key; put the other there, or remove both to have \
                               them generated";
                    return Err(usage_error("cert-dir", format!("{} {why}", dir.display())));
                }
            }
        }
        for sni in &serving.sni {
            check_pair("tls-sni-cert-key", "tls-sni-cert-key", &sni.cert, &sni.key)?;
        }
        if let Some((cert, key)) = &self.aggregator.proxy_client {
            check_pair("proxy-client-cert-file", "proxy-client-key-file", cert, key)?;
        }
        if let Some((cert, key)) = &self.kubelet.client {
            check_pair("kubelet-client-certificate", "kubelet-client-key", cert, key)?;
        }
        check_ca(
            "kubelet-certificate-authority",
            self.kubelet.certificate_authority.as_ref(),
        )?;
        Ok(())
    }

    /// The CAs of client certificates and of front proxies, which must differ where any name may be a proxy's. Returns
    /// whether the flags name a CA of client certificates.
    fn check_client_cas(&self) -> Result<bool, UsageError> {
        let (client_ca, proxies) = (&self.authentication.client_ca, &self.authentication.request_header);
        let client_ca = check_ca("client-ca-file", client_ca.as_ref())?;
        let proxy_ca = check_ca("requestheader-client-ca-file", proxies.client_ca.as_ref())?;
        if let (Some(clients), Some(of_proxies)) = (&client_ca, &proxy_ca)
            && proxies.allowed_names.is_empty()
            && clients.certificates.iter().any(|c| of_proxies.certificates.contains(c))
        {
            return Err(UsageError::new(
                "--requestheader-client-ca-file and --client-ca-file hold the same certificate, and \
                 --requestheader-allowed-names is empty: any client could impersonate any user; use a separate CA \
                 for front proxies, or list their names",
            ));
        }
        Ok(client_ca.is_some())
    }

    /// Tokens: static ones, service accounts', OIDC, the configuration file and the webhook.
    fn check_authentication(&self) -> Result<(), UsageError> {
        let authentication = &self.authentication;
        if let Some(path) = &authentication.token_file {
            // Only whether it can be read: the authenticator reports lines that are wrong.
            read("token-auth-file", path)?;
        }
        for path in &authentication.service_account.key_files {
            let flag = "service-account-key-file";
            PublicKey::from_pem(&read(flag, path)?)
                .map_err(|e| usage_error(flag, format!("{}: {e}", path.display())))?;
        }
        if let Some(path) = &authentication.service_account.signing_key {
            let flag = "service-account-signing-key-file";
            Signer::from_pem(&read(flag, path)?).map_err(|e| usage_error(flag, format!("{}: {e}", path.display())))?;
        }
        if let Some(oidc) = &authentication.oidc {
            // Else the provider could issue tokens that pass for service accounts.
            if authentication.service_account.issuers.contains(&oidc.issuer.url) {
                return Err(usage_error(
                    "oidc-issuer-url",
                    "URL must not be one of the service account issuers",
                ));
            }
            check_ca("oidc-ca-file", oidc.ca_file.as_ref())?;
        }
        if let Some(path) = &authentication.config_file {
            let config = read_authentication_config(path, &authentication.service_account.issuers)?;
            // Only if it was given: the default of the flag must not conflict.
            if config.anonymous.is_some() && self.values.is_given("anonymous-auth") {
                return Err(UsageError::new(
                    "--anonymous-auth flag cannot be set when anonymous field is configured in authentication \
                     configuration file",
                ));
            }
        }
        if let Some(webhook) = &authentication.webhook {
            ClientConfig::from_kubeconfig(&webhook.config_file)
                .map_err(|e| usage_error("authentication-token-webhook-config-file", e))?;
        }
        Ok(())
    }

    /// Takes the authorizers from `--authorization-config`, if it is given.
    fn read_authorizers(&mut self) -> Result<(), UsageError> {
        const FLAG: &str = "authorization-config";
        if let Some(path) = &self.authorization.config {
            let authorizers = crate::authz::config::parse(&read(FLAG, path)?);
            self.authorization.authorizers =
                authorizers.map_err(|e| usage_error(FLAG, format!("{}: {e}", path.display())))?;
        }
        Ok(())
    }

    fn check_audit(&self) -> Result<(), UsageError> {
        if let Some(path) = &self.audit.policy {
            Policy::read(path).map_err(|e| usage_error("audit-policy-file", e))?;
        }
        if let Some(webhook) = &self.audit.webhook {
            ClientConfig::from_kubeconfig(&webhook.config_file)
                .map_err(|e| usage_error("audit-webhook-config-file", e))?;
        }
        Ok(())
    }

    /// Turns anonymous authentication off where every request is allowed.
    fn restrict_anonymous(&mut self) {
        if !self.authorization.allows_all() || !self.authentication.anonymous {
            return;
        }
        // As upstream (`pkg/kubeapiserver/options`): the combination opens the cluster to anybody who reaches
        // the port.
        self.authentication.anonymous = false;
        if self.values.is_given("anonymous-auth") {
            let warning = "--anonymous-auth has no effect: with AlwaysAllow anyone could do anything";
            self.warnings.push(warning.to_owned());
        }
    }

    fn advertise_address(&self) -> Result<IpAddr, UsageError> {
        let bind = self.serving.bind_address;
        let address = match self.serving.advertise_address {
            Some(address) => address,
            // As upstream: a loopback address would be useless to others.
            None if !bind.is_unspecified() && !bind.is_loopback() => bind,
            // Without a default route, only this machine can reach the server.
            None => default_interface_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        };
        if address.is_unspecified() {
            return Err(UsageError::new(format!(
                "--advertise-address={address}: clients cannot connect to that address; give a real one"
            )));
        }
        Ok(address)
    }
}

impl ServingOptions {
    /// The limits of the port: 0 of a flag stands for the default.
    fn limits(&self) -> Limits {
        let given = |n: usize| (n > 0).then_some(n);
        let default = Limits::default();
        Limits {
            streams: if self.max_streams > 0 {
                self.max_streams
            } else {
                default.streams
            },
            max_connections: given(self.max_connections).unwrap_or(default.max_connections),
            max_per_address: given(self.max_per_address),
            reserved_connections: given(self.reserved_connections),
            ..default
        }
    }
}
