//! When the certificates end that the flags and the generated PKI name. That they can be read and match their
//! keys was checked when the options were completed.

use super::Finding;
use crate::cli::CompletedOptions;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::error::X509Error;
use x509_parser::parse_x509_certificate;

const DAY: i64 = 24 * 3600;
/// Days before expiry from which a certificate is reported.
const SOON: i64 = 30;

/// The certificate files that the server would read, with their flags.
fn files(options: &CompletedOptions) -> Vec<(&'static str, PathBuf)> {
    let served = options.serving_dir().map(|dir| dir.join("apiserver.crt"));
    let served = served.filter(|file| file.exists());
    let mut files: Vec<(&'static str, Option<&Path>)> = vec![
        (
            "tls-cert-file",
            options.serving.pair.as_ref().map(|(cert, _)| cert.as_path()),
        ),
        ("cert-dir", served.as_deref()),
        ("client-ca-file", options.authentication.client_ca.as_deref()),
        (
            "requestheader-client-ca-file",
            options.authentication.request_header.client_ca.as_deref(),
        ),
        (
            "proxy-client-cert-file",
            options.aggregator.proxy_client.as_ref().map(|(cert, _)| cert.as_path()),
        ),
        (
            "kubelet-certificate-authority",
            options.kubelet.certificate_authority.as_deref(),
        ),
        (
            "kubelet-client-certificate",
            options.kubelet.client.as_ref().map(|(cert, _)| cert.as_path()),
        ),
    ];
    files.extend(
        options
            .serving
            .sni
            .iter()
            .map(|sni| ("tls-sni-cert-key", Some(sni.cert.as_path()))),
    );
    if let Some(etcd) = &options.storage.etcd {
        files.push(("etcd-cafile", etcd.ca.as_deref()));
        files.push(("etcd-certfile", etcd.identity.as_ref().map(|(cert, _)| cert.as_path())));
    }
    let named = files
        .into_iter()
        .filter_map(|(flag, file)| Some((flag, file?.to_owned())));
    // Those of leaves are renewed at every start.
    let generated = ["ca.crt", "client-ca.crt", "front-proxy-ca.crt"];
    let generated = generated.map(|name| options.storage.data_dir.join("pki").join(name));
    let generated = generated.into_iter().filter(|file| file.exists());
    named.chain(generated.map(|file| ("data-dir", file))).collect()
}

pub(super) fn examine(options: &CompletedOptions, findings: &mut Vec<Finding>) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    for (flag, file) in files(options) {
        findings.push(match validity(&file) {
            Ok((from, until)) => check_validity(flag, &file, (from, until), now),
            Err(why) => Finding::error(
                "certificates",
                format!("--{flag}: {}: {why}", file.display()),
                "replace it by a PEM file of certificates",
            ),
        });
    }
}

/// Why a file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Pem(#[from] pem::Error),
    #[error(transparent)]
    Certificate(#[from] x509_parser::nom::Err<X509Error>),
    #[error("it has no certificate")]
    Empty,
}

/// When the certificates of a file are valid together, in seconds since 1970.
fn validity(file: &Path) -> Result<(i64, i64), Unusable> {
    let text = std::fs::read(file)?;
    let mut span: Option<(i64, i64)> = None;
    for der in CertificateDer::pem_slice_iter(&text) {
        let der = der?;
        let (_, certificate) = parse_x509_certificate(&der)?;
        let (from, until) = (
            certificate.validity().not_before.timestamp(),
            certificate.validity().not_after.timestamp(),
        );
        let (latest, earliest) = span.unwrap_or((from, until));
        // The intersection: a chain or bundle is only as good as its shortest-lived member.
        span = Some((latest.max(from), earliest.min(until)));
    }
    span.ok_or(Unusable::Empty)
}

fn check_validity(flag: &str, file: &Path, (from, until): (i64, i64), now: i64) -> Finding {
    let check = "certificates";
    let about = format!("--{flag}: {}", file.display());
    let renew = "issue a new one and replace the file; it is read again without a restart";
    let renew = if flag == "data-dir" {
        "stop the server, remove the file and its key, start it, and issue new credentials (docs/operations.md)"
    } else {
        renew
    };
    // Rounds down, so that a certificate that expired an hour ago has -1 days left, not 0.
    let days = (until - now).div_euclid(DAY);
    if from > now {
        let mend = "set the clock, or wait";
        return Finding::error(
            check,
            format!("{about} is not valid before {} hours from now", (from - now) / 3600),
            mend,
        );
    }
    match days {
        d if d < 0 => Finding::error(check, format!("{about} expired {} days ago", -d), renew),
        d if d < SOON => Finding::warning(check, format!("{about} expires in {d} days"), renew),
        d => Finding::ok(check, format!("{about} is valid for {d} days")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn severity_depends_on_the_days_left() {
        let at = |now| check_validity("client-ca-file", Path::new("ca.crt"), (1_000, 1_000 + 60 * DAY), now);
        assert_eq!(at(2_000).severity, Severity::Ok);
        assert_eq!(at(1_000 + 31 * DAY).severity, Severity::Warning);
        let expired = at(1_000 + 61 * DAY);
        assert_eq!(
            (expired.severity, expired.what.contains("1 days ago")),
            (Severity::Error, true)
        );
        assert_eq!(at(0).severity, Severity::Error);
    }

    #[test]
    fn generated_authorities_are_examined() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["ca.crt", "client-ca.crt", "front-proxy-ca.crt"];
        std::fs::create_dir(dir.path().join("pki")).unwrap();
        for name in names {
            std::fs::write(dir.path().join("pki").join(name), "").unwrap();
        }
        let data_dir = format!("--data-dir={}", dir.path().display());
        let args = ["torana", "serve", data_dir.as_str()].map(std::ffi::OsString::from);
        let Ok(crate::cli::Command::Serve(options)) = crate::cli::parse(args) else {
            panic!("these are flags of serve")
        };
        let files = files(&options.complete().unwrap());
        for name in names {
            assert!(files.iter().any(|(_, file)| file.ends_with(name)), "{name}: {files:?}");
        }
    }

    #[test]
    fn a_bundle_ends_with_its_first_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let make = |until| {
            let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = until;
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
        };
        let file = dir.path().join("bundle.crt");
        let text = make(rcgen::date_time_ymd(2040, 1, 1)) + &make(rcgen::date_time_ymd(2030, 1, 1));
        std::fs::write(&file, text).unwrap();
        assert_eq!(validity(&file).unwrap().1, 1_893_456_000);
        std::fs::write(&file, "nothing").unwrap();
        assert!(validity(&file).is_err());
    }
}
