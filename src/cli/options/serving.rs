//! The flags of the serving port: address, certificates, TLS and connection limits. Certificates are checked
//! by `complete` and watched by `app::port`.

use super::{UsageError, Values, count, pair};
use crate::serving::{TlsOptions, TlsVersion};
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub(crate) struct ServingOptions {
    /// `--bind-address`.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 picks a free one.
    pub port: u16,
    /// `--permit-port-sharing`.
    pub share_port: bool,
    /// `--advertise-address`.
    pub advertise_address: Option<IpAddr>,
    /// `--external-hostname`.
    pub external_hostname: Option<String>,
    /// `--tls-cert-file`, `--tls-private-key-file`.
    pub pair: Option<(PathBuf, PathBuf)>,
    /// `--cert-dir`, if given: where the serving certificate is, unless `pair` names another.
    pub cert_dir: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub sni: Vec<SniFiles>,
    /// TLS versions, ALPN, cipher suites.
    pub tls: TlsOptions,
    /// `--http2-max-streams-per-connection`; 0 for the default.
    pub max_streams: u32,
    /// `--max-connections`; 0 for three quarters of the open-file limit.
    pub max_connections: usize,
    /// `--max-connections-per-address`; 0 for a quarter.
    pub max_per_address: usize,
    /// `--reserved-connections`; 0 for a quarter.
    pub reserved_connections: usize,
}

/// One value of `--tls-sni-cert-key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SniFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Names to present it for; if empty, those in the certificate.
    pub names: Vec<String>,
}

pub(super) fn address(values: &Values, name: &str) -> Result<Option<IpAddr>, UsageError> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|_| UsageError::invalid(name, text, "expected an IP address"))
    };
    values.some_text(name).map(parse).transpose()
}

impl ServingOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let port = values.int("secure-port")?;
        let port = u16::try_from(port)
            .map_err(|_| UsageError::invalid("secure-port", &port.to_string(), "expected a port from 0 to 65535"))?;
        Ok(Self {
            // The listener accepts IPv6 on it as well.
            bind_address: address(values, "bind-address")?.unwrap_or(IpAddr::from([0, 0, 0, 0])),
            port,
            share_port: values.bool("permit-port-sharing")?,
            advertise_address: address(values, "advertise-address")?,
            external_hostname: values.some_text("external-hostname").map(str::to_owned),
            pair: pair(values, "tls-cert-file", "tls-private-key-file")?,
            cert_dir: super::file(values, "cert-dir"),
            sni: values
                .list("tls-sni-cert-key")
                .iter()
                .map(|text| sni(text))
                .collect::<Result<_, _>>()?,
            tls: TlsOptions {
                min_version: min_version(values.text("tls-min-version"))?,
                http2: !values.bool("disable-http2-serving")?,
                cipher_suites: values.list("tls-cipher-suites"),
            },
            max_streams: count(values, "http2-max-streams-per-connection")?,
            max_connections: count(values, "max-connections")?,
            max_per_address: count(values, "max-connections-per-address")?,
            reserved_connections: count(values, "reserved-connections")?,
        })
    }
}

fn min_version(text: &str) -> Result<TlsVersion, UsageError> {
    match text {
        "" | "VersionTLS12" => Ok(TlsVersion::Tls12),
        "VersionTLS13" => Ok(TlsVersion::Tls13),
        // Valid values of kube-apiserver, so the message explains instead of calling them unknown.
        "VersionTLS10" | "VersionTLS11" => Err(UsageError::invalid(
            "tls-min-version",
            text,
            "TLS versions before 1.2 are insecure and not supported; use VersionTLS12 or VersionTLS13",
        )),
        _ => Err(UsageError::invalid(
            "tls-min-version",
            text,
            "expected VersionTLS12 or VersionTLS13",
        )),
    }
}

/// Parses `cert,key` or `cert,key:name,name`.
fn sni(text: &str) -> Result<SniFiles, UsageError> {
    // At the first colon, as upstream: paths with a colon cannot be given.
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let fail = || {
        UsageError::invalid(
            "tls-sni-cert-key",
            text,
            "expected cert-file,key-file or cert-file,key-file:name,name",
        )
    };
    let (cert, key) = files.split_once(',').ok_or_else(fail)?;
    if cert.is_empty() || key.is_empty() || key.contains(',') {
        return Err(fail());
    }
    Ok(SniFiles {
        cert: cert.into(),
        key: key.into(),
        names: names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect(),
    })
}
