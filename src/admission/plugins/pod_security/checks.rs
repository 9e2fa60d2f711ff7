//! The checks of the baseline and restricted levels, by policy version. Entry point: [`violations`].
//!
//! The table is ordered by upstream's check ids, which determines the order of reasons in messages.

mod baseline;
mod restricted;

use super::pod::Pod;
use super::policy::{Level, LevelVersion};

/// A failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The forbidden reason, such as `hostPort`.
    pub reason: &'static str,
    /// Which containers or fields are at fault.
    pub detail: String,
}

impl Violation {
    fn new(reason: &'static str, detail: String) -> Option<Self> {
        Some(Self { reason, detail })
    }
}

type Run = fn(Pod<'_>) -> Option<Violation>;

/// A check, with the function that implements it from each minor version on.
struct Check {
    level: Level,
    versions: &'static [(u32, Run)],
    /// At the restricted level, a stricter check replaces this one from this minor version on.
    replaced_from: u32,
}

const NEVER: u32 = u32::MAX;

const fn baseline(versions: &'static [(u32, Run)], replaced_from: u32) -> Check {
    Check {
        level: Level::Baseline,
        versions,
        replaced_from,
    }
}

const fn restricted(versions: &'static [(u32, Run)]) -> Check {
    Check {
        level: Level::Restricted,
        versions,
        replaced_from: NEVER,
    }
}

/// No check changes after v1.35, so later versions and `latest` are equivalent to it.
const CHECKS: &[Check] = &[
    baseline(&[(0, baseline::app_armor)], NEVER),
    // The restricted check of capabilities includes this one.
    baseline(&[(0, baseline::capabilities)], 22),
    baseline(&[(0, baseline::host_namespaces)], NEVER),
    // The restricted check of volume types includes this one.
    baseline(&[(0, baseline::host_path_volumes)], 0),
    baseline(&[(0, baseline::host_ports)], NEVER),
    baseline(&[(34, baseline::probe_and_lifecycle_hosts)], NEVER),
    baseline(&[(0, baseline::privileged)], NEVER),
    baseline(
        &[(0, baseline::proc_mount), (35, baseline::proc_mount_of_host_users)],
        35,
    ),
    baseline(&[(0, baseline::selinux_1_0), (31, baseline::selinux_1_31)], NEVER),
    baseline(
        &[(0, baseline::seccomp_annotations), (19, baseline::seccomp_profiles)],
        19,
    ),
    baseline(
        &[
            (0, baseline::sysctls_1_0),
            (27, baseline::sysctls_1_27),
            (29, baseline::sysctls_1_29),
            (32, baseline::sysctls_1_32),
        ],
        NEVER,
    ),
    baseline(&[(0, baseline::windows_host_process)], NEVER),
    restricted(&[
        (8, restricted::privilege_escalation),
        (25, restricted::privilege_escalation_but_windows),
    ]),
    restricted(&[
        (22, restricted::capabilities),
        (25, restricted::capabilities_but_windows),
    ]),
    restricted(&[(35, baseline::proc_mount)]),
    restricted(&[(0, restricted::volumes)]),
    restricted(&[
        (0, restricted::run_as_non_root),
        (35, restricted::run_as_non_root_of_host_users),
    ]),
    restricted(&[
        (23, restricted::run_as_user),
        (35, restricted::run_as_user_of_host_users),
    ]),
    restricted(&[(19, restricted::seccomp), (25, restricted::seccomp_but_windows)]),
];

/// The checks that the pod fails at this level and version.
pub(crate) fn violations(policy: LevelVersion, pod: Pod<'_>) -> Vec<Violation> {
    if policy.level == Level::Privileged {
        return Vec::new();
    }
    let minor = policy.version.minor();
    let strict = policy.level == Level::Restricted;
    // Levels are ordered by strictness, so `restricted` includes the baseline checks.
    let applies = |c: &&Check| c.level <= policy.level && !(strict && minor >= c.replaced_from);
    // Newest first; none if the check did not exist in that version.
    let run = |c: &Check| c.versions.iter().rev().find(|(from, _)| *from <= minor);
    let runs = CHECKS.iter().filter(applies).filter_map(run);
    runs.filter_map(|(_, run)| run(pod)).collect()
}

/// Formats as `reason (detail), reason (detail)`.
pub(crate) fn details(violations: &[Violation]) -> String {
    let each = violations.iter().map(|v| match v.detail.is_empty() {
        true => v.reason.to_owned(),
        false => format!("{} ({})", v.reason, v.detail),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Formats as `reason, reason`.
pub(crate) fn reasons(violations: &[Violation]) -> String {
    let each: Vec<&str> = violations.iter().map(|v| v.reason).collect();
    each.join(", ")
}

#[cfg(test)]
mod tests;
