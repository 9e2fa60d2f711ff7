//! Counts paths by their number of slashes, so that a lookup of path prefixes skips lengths that no
//! registered path has.

/// Number of paths per number of slashes.
#[derive(Clone, Debug, Default)]
pub(super) struct Depths(Vec<usize>);

impl Depths {
    pub(super) fn add(&mut self, path: &str) {
        let depth = slashes(path);
        if self.0.len() <= depth {
            self.0.resize(depth + 1, 0);
        }
        self.0[depth] += 1;
    }

    /// Removes a path that was added before.
    pub(super) fn remove(&mut self, path: &str) {
        self.0[slashes(path)] -= 1;
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// True if some path has exactly this many slashes.
    pub(super) fn has(&self, depth: usize) -> bool {
        self.0.get(depth).is_some_and(|paths| *paths > 0)
    }

    /// The largest number of slashes of any path.
    pub(super) fn most(&self) -> usize {
        self.0.len().saturating_sub(1)
    }
}

/// The number of slashes in a path.
pub(super) fn slashes(path: &str) -> usize {
    path.bytes().filter(|b| *b == b'/').count()
}

/// Ordinal (from 1) and position of each of the first `most` slashes of a path, last one first.
pub(super) fn slashes_back(path: &str, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let path = path.as_bytes();
    let is_slash = |(_, b): &(usize, &u8)| **b == b'/';
    let first = path.iter().enumerate().filter(is_slash).take(most);
    // The first pass only finds where to start; paths may have thousands of slashes, which the caller's limit skips.
    let (mut which, end) = first.fold((0, 0), |(n, _), (at, _)| (n + 1, at + 1));
    path[..end]
        .iter()
        .enumerate()
        .rev()
        .filter(is_slash)
        .map(move |(at, _)| {
            which -= 1;
            (which + 1, at)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_iterated_backwards() {
        let all = |path, most| slashes_back(path, most).collect::<Vec<_>>();
        assert_eq!(all("/a//b/", 9), [(4, 5), (3, 3), (2, 2), (1, 0)]);
        assert_eq!(all("/a//b/", 2), [(2, 2), (1, 0)]);
        assert_eq!(all("x/y", 1), [(1, 1)]);
        assert_eq!(all("/a", 0), []);
        assert_eq!(all("", 3), []);
    }

    #[test]
    fn a_depth_is_present_while_a_path_has_it() {
        let mut depths = Depths::default();
        assert!(!depths.has(0) && depths.most() == 0);
        depths.add("/a/b");
        depths.add("/a/");
        depths.add("/");
        assert!(depths.has(2) && depths.has(1) && !depths.has(0) && !depths.has(3));
        depths.remove("/a/b");
        assert!(depths.has(2));
        depths.remove("/a/");
        assert!(!depths.has(2) && depths.most() == 1);
    }
}
