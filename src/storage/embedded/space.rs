//! How much room a store may take: what its objects need, packed, twice, and a little that does not grow.

/// Bytes of a page of the file.
pub(super) const PAGE: u64 = 4096;
/// What history and slack may take however few the objects are.
pub(super) const ALLOWANCE: u64 = 16 << 20;
/// Writes of history that are kept whatever room they take.
pub(super) const MIN_HISTORY: u64 = 1000;

/// What a row of the log and that of its object take in well-filled pages.
pub(super) fn packed(key: usize, value: usize) -> u64 {
    // Row headers, revision numbers, checksum, and the key once more in `live`.
    let cell = (2 * key + value + 40) as u64;
    match PAGE / cell {
        // A part of it on pages of its own.
        0 => cell.div_ceil(PAGE) * PAGE,
        in_a_page => PAGE / in_a_page,
    }
}

/// True where the pages in use are too many for objects that need `packed` bytes: history has to go.
pub(super) fn is_crowded(used: u64, packed: u64) -> bool {
    used > packed + packed * 3 / 4 + ALLOWANCE / 2
}

/// True where the whole file is too large: free pages have to go.
pub(super) fn is_bloated(file: u64, packed: u64) -> bool {
    file > 2 * packed + ALLOWANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_takes_its_share_of_a_page() {
        assert_eq!(packed(20, 300), PAGE / 10);
        assert_eq!(packed(30, 2100), PAGE);
        assert_eq!(packed(30, 9000), 3 * PAGE);
    }
}
