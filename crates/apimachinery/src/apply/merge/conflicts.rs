//! The fields that an apply would take from other managers, and the 409 that names them. Entry point:
//! [`refuse_conflicts`]. Which fields a write changes is found by `changes`; with `force`, conflicts are not looked for.

use super::client_side_applied;
use crate::apply::ApplySchema;
use crate::apply::changes::Changes;
use crate::apply::fieldset::FieldSet;
use crate::apply::managed::{ManagedEntry, Operation};
use crate::field::{MAX_ERRORS, MAX_TEXT, cut};
use crate::status::{Cause, Status};
use crate::value::Value;

/// Returns a 409 if the write would take fields from other managers that it may not take.
pub(super) fn refuse_conflicts<S: ApplySchema>(
    entries: &[ManagedEntry],
    changes: &Changes<'_, S>,
    manager: &str,
    (live, schema): (&Value, S),
) -> Result<(), Status> {
    // Per entry: the fields it owns that this write takes over.
    // `changes.of(e)` resolves in the version of the entry: paths of one version mean nothing in another.
    let lost = |e: &ManagedEntry| e.fields.intersection(&changes.of(e).acquired);
    let lost: Vec<FieldSet> = entries.iter().map(lost).collect();
    let Err(status) = conflicts(entries, &lost) else {
        return Ok(());
    };
    // kubectl may take over fields that its own client-side apply set and that are unchanged since.
    let allowed = if manager == "kubectl" {
        client_side_applied(live, schema)
    } else {
        FieldSet::new()
    };
    if allowed.is_empty() {
        return Err(status);
    }
    let rest: Vec<FieldSet> = lost.iter().map(|f| f.difference(&allowed)).collect();
    conflicts(entries, &rest)
}

/// Returns a 409 if any entry would lose a field to this write.
fn conflicts(entries: &[ManagedEntry], taken: &[FieldSet]) -> Result<(), Status> {
    let mut found: Vec<LostFields<'_>> = Vec::new();
    for (entry, taken) in entries.iter().zip(taken) {
        let leaves = taken.leaves();
        let total = leaves.members();
        if total > 0 {
            found.push(LostFields { entry, leaves, total });
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    // Sorted like the stored list, so the message does not depend on the order in which entries were decoded.
    found.sort_by_key(|l| {
        let e = l.entry;
        (&e.manager, e.operation, &e.api_version, &e.subresource)
    });
    let total: usize = found.iter().map(|l| l.total).sum();
    let mut causes: Vec<Cause> = Vec::new();
    let mut groups: Vec<String> = Vec::new();
    // Clients choose both the number and the length of conflicting paths, and a response must not be a multiple of
    // what they stored.
    let mut room = MAX_TEXT;
    for lost in &found {
        let manager = lost.manager();
        let before = causes.len();
        lost.leaves.visit_while(&mut |path| {
            // The first conflict is always reported.
            let fits = causes.is_empty() || causes.len() < MAX_ERRORS && path.len() + manager.len() <= room;
            if fits {
                room = room.saturating_sub(path.len() + manager.len());
                causes.push(Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {manager}"),
                    field: path.to_owned(),
                });
            }
            fits
        });
        let paths: Vec<&str> = causes[before..].iter().map(|c| c.field.as_str()).collect();
        if !paths.is_empty() {
            groups.push(format!("conflicts with {manager}:\n- {}", paths.join("\n- ")));
        }
    }
    let message = match causes.as_slice() {
        [one] if total == 1 => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        shown => {
            let more = match total - shown.len() {
                0 => String::new(),
                n => format!("\nand {n} more"),
            };
            format!("Apply failed with {total} conflicts: {}{more}", groups.join("\n"))
        }
    };
    let mut s = Status::new(409, "Conflict", message);
    s.details_mut().causes = causes;
    Err(s)
}

/// The fields an entry would lose.
struct LostFields<'e> {
    entry: &'e ManagedEntry,
    leaves: FieldSet,
    total: usize,
}

impl LostFields<'_> {
    /// The manager as shown in conflict messages.
    fn manager(&self) -> String {
        let e = self.entry;
        let mut shown = format!("{:?}", e.manager.as_str());
        if !e.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {:?}", e.subresource.as_str()));
        }
        if e.operation == Operation::Update {
            shown.push_str(&format!(" using {}", e.api_version));
        }
        // Repeated in every cause, and every part comes from a client.
        cut(shown, 1024)
    }
}
