//! Limits, clock, random numbers and the port of this machine. Entry points: [`examine`], and [`port`], which
//! needs to know whether a gateway is running.

use super::Finding;
use crate::cli::CompletedOptions;
use rustix::process::{Resource, getrlimit};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Below this, a few hundred connections are refused.
const FEW_FILES: u64 = 4_096;
/// Below this, `--max-connections` is lower than what a cluster of a thousand nodes needs.
const MANY_FILES: u64 = 65_536;
/// Bits of entropy below which a kernel before 5.18 blocks readers at boot.
const ENTROPY: u64 = 128;
/// When this program was written: a clock before it is wrong.
const NOT_BEFORE: Duration = Duration::from_secs(1_767_225_600);
/// Files that time daemons create once they have set the clock.
const SYNCHRONIZED: [&str; 4] = [
    "/run/systemd/timesync/synchronized",
    "/run/chrony/chronyd.pid",
    "/run/chrony",
    "/run/ntpd.pid",
];

pub(super) fn examine(findings: &mut Vec<Finding>) {
    // The hard limit: the server raises the soft one to it.
    findings.push(open_files(getrlimit(Resource::Nofile).maximum));
    let has_daemon = SYNCHRONIZED.iter().any(|path| Path::new(path).exists());
    findings.push(clock(SystemTime::now(), has_daemon));
    let available = std::fs::read_to_string("/proc/sys/kernel/random/entropy_avail");
    findings.push(entropy(available.ok().and_then(|text| text.trim().parse().ok())));
}

fn open_files(limit: Option<u64>) -> Finding {
    let check = "open files";
    let mend = "raise the hard limit: LimitNOFILE=1048576 in a unit, `ulimit -Hn` in a shell";
    match limit {
        None => Finding::ok(check, "no limit"),
        Some(n) if n < FEW_FILES => Finding::error(check, format!("at most {n}; each connection takes one"), mend),
        Some(n) if n < MANY_FILES => {
            Finding::warning(check, format!("at most {n}; --max-connections follows it"), mend)
        }
        Some(n) => Finding::ok(check, format!("at most {n}")),
    }
}

fn clock(now: SystemTime, has_daemon: bool) -> Finding {
    let check = "clock";
    // Boards without a battery start in 1970 or at the build date of their firmware.
    if now.duration_since(UNIX_EPOCH).unwrap_or_default() < NOT_BEFORE {
        let mend = "set the clock: certificates and tokens are not valid yet";
        return Finding::error(check, "the time is before 2026", mend);
    }
    if has_daemon {
        return Finding::ok(check, "a daemon keeps it synchronized");
    }
    Finding::warning(
        check,
        "no time daemon was found on this machine",
        "run chrony or systemd-timesyncd, unless the host of this container or machine keeps its clock",
    )
}

fn entropy(available: Option<u64>) -> Finding {
    let check = "entropy";
    match available {
        Some(bits) if bits < ENTROPY => Finding::warning(
            check,
            format!("{bits} bits; keys and the first handshake may wait"),
            "add a source: virtio-rng in a virtual machine, or rng-tools",
        ),
        Some(bits) => Finding::ok(check, format!("{bits} bits")),
        None => Finding::ok(check, "not reported by this kernel"),
    }
}

/// Whether the port is free, or taken by the gateway that answers with this data directory's certificates.
pub(super) fn port(options: &CompletedOptions, running: bool) -> Finding {
    let check = "port";
    let address = options.bind;
    if running {
        return Finding::ok(check, "a gateway with this data directory is serving");
    }
    // Bound and closed again at once: the only reliable answer.
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok(check, format!("{address} is free")),
        Err(e) => {
            let mend = match e.kind() {
                ErrorKind::AddrInUse => {
                    "stop the process that listens there (`ss -ltnp`), or choose another --secure-port"
                }
                ErrorKind::AddrNotAvailable => "choose a --bind-address of this machine",
                ErrorKind::PermissionDenied => "choose a port from 1024, or grant CAP_NET_BIND_SERVICE",
                _ => "choose another --bind-address or --secure-port",
            };
            Finding::error(check, format!("cannot listen on {address}: {e}"), mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn findings_change_at_the_limits() {
        let severity = |n| open_files(n).severity;
        assert_eq!(severity(None), Severity::Ok);
        assert_eq!(severity(Some(1_024)), Severity::Error);
        assert_eq!(severity(Some(FEW_FILES)), Severity::Warning);
        assert_eq!(severity(Some(MANY_FILES)), Severity::Ok);
        assert_eq!(entropy(Some(5)).severity, Severity::Warning);
        assert_eq!(entropy(Some(256)).severity, Severity::Ok);
        assert_eq!(entropy(None).severity, Severity::Ok);
    }

    #[test]
    fn a_clock_before_this_program_is_an_error() {
        assert_eq!(clock(UNIX_EPOCH, true).severity, Severity::Error);
        assert_eq!(clock(SystemTime::now(), false).severity, Severity::Warning);
        assert_eq!(clock(SystemTime::now(), true).severity, Severity::Ok);
    }
}
