//! Client CAs are rotated while clients send requests: a client with a valid certificate is never refused,
//! and the CA data published to backends is updated in time.

use crate::support::{Gateway, wait_for};
use crate::wire::{Ca, Caller, Identity};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// The ConfigMap from which backends learn the client CAs.
const PUBLISHED: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

fn write(path: &Path, cas: &[&Ca]) {
    let text: String = cas.iter().map(|ca| ca.pem.as_str()).collect();
    // Replaced atomically, as a mounted Secret is.
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).expect("it can be written");
    std::fs::rename(&fresh, path).expect("it can be moved");
}

/// The responses that one client received, in order.
struct Seen {
    codes: Vec<u16>,
    /// Whether the client keeps one connection instead of opening one per request.
    kept: bool,
}

/// Clients that send requests continuously until stopped.
struct Crowd {
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Seen>>,
}

impl Crowd {
    fn start(g: &Gateway, ca: &Ca, name: &str) -> Self {
        let mut crowd = Self {
            stop: Arc::default(),
            accepted: Arc::default(),
            refused: Arc::default(),
            threads: Vec::new(),
        };
        for n in 0..4 {
            let identity = ca.client(&format!("{name}-{n}"), &["rotating"]);
            crowd.join(g, &identity, &format!("{name}-{n}"), n % 2 == 0);
        }
        crowd
    }

    fn join(&mut self, g: &Gateway, identity: &Identity, name: &str, kept: bool) {
        let mut caller = Caller::of(g, Some(identity));
        let (stop, accepted, refused) = (self.stop.clone(), self.accepted.clone(), self.refused.clone());
        let name = name.to_owned();
        self.threads.push(std::thread::spawn(move || {
            let mut codes = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if !kept {
                    caller.close();
                }
                codes.push(match caller.whoami(&[]) {
                    Ok(who) => {
                        assert_eq!((who.name, who.groups[0].as_str()), (name.clone(), "rotating"));
                        accepted.fetch_add(1, Ordering::Relaxed);
                        201
                    }
                    Err(answer) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        answer.code
                    }
                });
            }
            Seen { codes, kept }
        }));
    }

    /// Waits until each client has received a few more responses.
    fn until_more(&self, what: &str, counter: &AtomicUsize) {
        let from = counter.load(Ordering::Relaxed);
        let enough = from + 25 * self.threads.len();
        wait_for(what, || counter.load(Ordering::Relaxed) >= enough);
    }

    fn end(self) -> Vec<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        threads
            .map(|t| t.join().expect("no question stays unanswered"))
            .collect()
    }
}

#[test]
fn client_cas_rotate_under_load_without_refusing_valid_clients() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (old, new) = (Ca::new("clients, old"), Ca::new("clients, new"));
    // The administrator's CA stays in the bundle throughout.
    drop(Gateway::start(dir.path()));
    let own = Ca::of(&dir.path().join("data/pki"), "client-ca");
    let bundle = dir.path().join("clients.crt");
    write(&bundle, &[&own, &old]);
    let g = Gateway::start_with(dir.path(), &[&format!("--client-ca-file={}", bundle.display())]);

    let before = Crowd::start(&g, &old, "old");
    let after = Crowd::start(&g, &new, "new");
    before.until_more("old certificates count", &before.accepted);
    after.until_more("new ones do not yet", &after.refused);
    assert_eq!(after.accepted.load(Ordering::Relaxed), 0);

    write(&bundle, &[&own, &old, &new]);
    after.until_more("new certificates count", &after.accepted);
    before.until_more("old ones still do", &before.accepted);
    assert_eq!(before.refused.load(Ordering::Relaxed), 0);
    for (whose, ca) in [("new", &new), ("old", &old)] {
        // Any line of the PEM text identifies the CA in the published bundle, which has the same line breaks.
        let line = ca.pem.lines().nth(3).expect("a certificate has many lines");
        wait_for(&format!("backends are told of the {whose} CA"), || {
            g.curl(&[PUBLISHED]).is_ok_and(|map| map.contains(line))
        });
    }

    write(&bundle, &[&own, &new]);
    before.until_more("old certificates count no longer", &before.refused);
    after.until_more("new ones do", &after.accepted);

    for (crowd, first, then) in [(before, 201, 401), (after, 401, 201)] {
        for seen in crowd.end() {
            let change = seen.codes.iter().position(|c| *c != first).expect("there was a change");
            let (earlier, later) = seen.codes.split_at(change);
            assert!(!earlier.is_empty(), "it received responses before the change");
            // The responses change exactly once, also on connections opened before the rotation.
            assert!(
                later.iter().all(|c| *c == then),
                "kept: {}: {:?}",
                seen.kept,
                later.iter().position(|c| *c != then)
            );
        }
    }
    let admin = g
        .curl(&["/api/v1/namespaces"])
        .expect("the administrator never noticed");
    assert!(admin.contains("kube-system"));
}
