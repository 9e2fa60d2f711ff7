//! Bounds on the size of the file: twice what the objects need when packed, plus a constant allowance. Pure
//! arithmetic; the committer compacts and shrinks the file by it.

/// Page size of the file, in bytes.
pub(super) const PAGE: u64 = 4096;
/// Space that history and slack may use regardless of the number of objects.
pub(super) const ALLOWANCE: u64 = 16 << 20;
/// Number of writes of history that are kept regardless of their size.
pub(super) const MIN_HISTORY: u64 = 1000;

/// Estimated bytes that an object's rows in `log` and `live` take in well-filled pages.
pub(super) fn packed(key: usize, value: usize) -> u64 {
    // Row headers, revisions, checksum, and the key a second time in `live`.
    let cell = (2 * key + value + 40) as u64;
    match PAGE / cell {
        // Larger than a page: stored on overflow pages of its own.
        0 => cell.div_ceil(PAGE) * PAGE,
        in_a_page => PAGE / in_a_page,
    }
}

/// True if the pages in use exceed what objects of `packed` bytes justify, so that history must be compacted.
pub(super) fn exceeds_history_budget(used: u64, packed: u64) -> bool {
    // Below the file's bound (twice the objects), so that compaction starts before the file has to shrink.
    used > packed + packed * 3 / 4 + ALLOWANCE / 2
}

/// True if the file exceeds its bound, so that free pages must be returned to the file system.
pub(super) fn exceeds_file_budget(file: u64, packed: u64) -> bool {
    file > 2 * packed + ALLOWANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_size_is_a_share_of_a_page() {
        assert_eq!(packed(20, 300), PAGE / 10);
        assert_eq!(packed(30, 2100), PAGE);
        assert_eq!(packed(30, 9000), 3 * PAGE);
    }
}
