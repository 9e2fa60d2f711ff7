//! Bytes of large objects, each in memory pages of its own.
//!
//! A CustomResourceDefinition is written three times within milliseconds: created, names accepted,
//! established. From the allocator, the three encodings would lie side by side, and when the watch history
//! drops the first two, their neighbour keeps the allocator's page resident: a definition would cost three
//! times its size. Pages of its own go back to the system when the last reference is dropped, and waste less
//! than the allocator's size classes.

use bytes::Bytes;
use memmap2::MmapMut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size in bytes from which an encoding has pages of its own: the last page, half full on average, is then a
/// sixteenth of it at most.
const LARGE: usize = 32 << 10;

/// Mappings at most. The kernel allows a process 65,530 (`vm.max_map_count`), which threads and the allocator
/// need as well.
const MAX_MAPPINGS: usize = 16_384;

/// Mappings of this process, which is what the kernel's limit counts.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// A mapping, counted while it lives.
struct Pages {
    memory: MmapMut,
    live: &'static AtomicUsize,
}

/// Joins `parts`.
pub(super) fn join(parts: &[&[u8]]) -> Bytes {
    in_pages(parts, &LIVE).unwrap_or_else(|| parts.concat().into())
}

/// Joins `parts` in pages of their own, if they are large and there may be another mapping.
fn in_pages(parts: &[&[u8]], live: &'static AtomicUsize) -> Option<Bytes> {
    let length = parts.iter().map(|p| p.len()).sum();
    if length < LARGE {
        return None;
    }
    let more = |n: usize| (n < MAX_MAPPINGS).then_some(n + 1);
    // Relaxed: only the number counts; nothing is published through it.
    live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
    // Address space or the kernel's limit is used up; the allocator may still have room.
    let Ok(memory) = MmapMut::map_anon(length) else {
        live.fetch_sub(1, Ordering::Relaxed);
        return None;
    };
    let mut pages = Pages { memory, live };
    let mut rest = &mut pages.memory[..];
    for part in parts {
        let (to, after) = rest.split_at_mut(part.len());
        to.copy_from_slice(part);
        rest = after;
    }
    // The owner is dropped with the last clone or slice.
    Some(Bytes::from_owner(pages))
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_encodings_have_pages_of_their_own_until_there_are_too_many() {
        static OWN: AtomicUsize = AtomicUsize::new(0);
        let half = vec![b'a'; LARGE / 2];
        let parts: [&[u8]; 3] = [&half, b"", &half];
        assert!(in_pages(&parts[..2], &OWN).is_none());
        let joined = in_pages(&parts, &OWN).expect("it is large");
        assert_eq!((joined.len(), OWN.load(Ordering::Relaxed)), (LARGE, 1));
        assert_eq!(joined, parts.concat());
        let part = joined.slice(1..2);
        drop(joined);
        assert_eq!(OWN.load(Ordering::Relaxed), 1, "a slice keeps the pages");
        drop(part);
        assert_eq!(OWN.load(Ordering::Relaxed), 0);
        OWN.store(MAX_MAPPINGS, Ordering::Relaxed);
        assert!(in_pages(&parts, &OWN).is_none());
        assert_eq!(OWN.load(Ordering::Relaxed), MAX_MAPPINGS);
    }

    #[test]
    fn joined_parts_of_any_size_are_equal() {
        for length in [0, 1, LARGE - 2, LARGE - 1, LARGE, 3 * LARGE + 1] {
            let long = vec![b'x'; length];
            assert_eq!(join(&[b"<", &long, b">"]), [b"<", &long[..], b">"].concat());
        }
    }
}
