//! Revoked permissions end at once for requests that begin after the acknowledgement.

use crate::revocation_rounds::{ALL, Administrator, background_noise, prepare, revocation_round};
use crate::support::Gateway;
use std::sync::atomic::{AtomicBool, Ordering};

const ROUNDS: usize = 24;

/// Stops the background threads when dropped, even after a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn no_request_that_begins_after_a_revocation_is_allowed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start_with(dir.path(), &["--enable-bootstrap-token-auth"]);
    let mut admin = Administrator::of(&g);
    prepare(&mut admin);
    let end = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| background_noise(&mut Administrator::of(&g), &end, "other"));
        let _end = End(&end);
        for n in 0..ROUNDS {
            let how = ALL[n % ALL.len()];
            let late = revocation_round(&mut admin, &g, how, &format!("n{n}"));
            assert_eq!(
                late, None,
                "{how:?}: a request was allowed so long after the acknowledgement"
            );
        }
    });
}
