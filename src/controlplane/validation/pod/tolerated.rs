//! [`Tolerated`]: rules that a stored pod spec breaks already (`PodValidationOptions` in upstream's `pkg/api/pod`).
//! `stored` finds them.

/// Rules that do not apply to an update, since the stored spec breaks them. They are younger than their fields: objects
/// that an older server accepted must still lose their finalizers, and change in their other fields. The default is for
/// new objects.
#[derive(Clone, Copy, Default)]
pub(in crate::controlplane::validation) struct Tolerated {
    /// Amounts of huge pages that are no multiples of the page size.
    pub(super) partial_pages: bool,
    /// Selectors of pod affinities with invalid values.
    pub(super) affinity_values: bool,
    /// Invalid values in the required node affinity.
    pub(super) node_values: bool,
    /// Invalid selectors of topology spread constraints.
    pub(super) spread_selectors: bool,
    /// Sysctls of a namespace that the pod shares with the host.
    pub(super) host_sysctls: bool,
    /// Block devices with `hostUsers: false`.
    pub(super) mapped_devices: bool,
    /// Init containers that restart on a resize, other than sidecars.
    pub(super) init_restarts: bool,
}
