//! Eviction, without sockets.

use super::*;

struct Port {
    slots: Arc<Slots>,
    open: Vec<(Slot, Arc<Activity>)>,
}

impl Port {
    fn new(limits: &Limits) -> Self {
        Self {
            slots: Slots::new(limits),
            open: Vec::new(),
        }
    }

    /// Connects from the n-th address of 10.0.0.0/16 and returns the connection's index in `open`.
    fn connect(&mut self, address: u16) -> usize {
        let [a, b] = address.to_be_bytes();
        self.enter([10, 0, a, b].into(), false)
    }

    fn enter(&mut self, remote: IpAddr, is_local: bool) -> usize {
        let activity = Activity::new();
        let slot = self
            .slots
            .enter(remote, is_local, &activity)
            .expect("a connection can be evicted");
        self.open.push((slot, activity));
        self.open.len() - 1
    }

    fn authenticated(&mut self, address: u16, user: &str) -> usize {
        let at = self.connect(address);
        self.open[at].0.handshake_done();
        self.open[at].0.observer().authenticated(user);
        at
    }

    fn is_evicted(&self, at: usize) -> bool {
        self.slots.lock().evicted.contains(&self.open[at].0.id)
    }

    fn len(&self) -> usize {
        self.slots.lock().entries.len()
    }
}

fn limits(connections: usize) -> Limits {
    Limits {
        max_connections: connections,
        max_per_address: Some(connections),
        ..Limits::default()
    }
}

#[test]
fn unauthenticated_connections_never_take_reserved_slots() {
    let mut port = Port::new(&limits(64));
    let admin = port.authenticated(1, "admin");
    let local = port.enter([127, 0, 0, 1].into(), true);
    for n in 0..1000 {
        let at = port.connect(2 + n % 100);
        port.open[at].0.handshake_done();
        assert!(port.len() <= 64);
    }
    assert!(!port.is_evicted(admin) && !port.is_evicted(local));
    // 64 minus a quarter for authenticated callers and a sixteenth for loopback.
    assert_eq!(
        port.slots.lock().pools[Class::Unauthenticated as usize].len(),
        64 - 16 - 4
    );
    for n in 0..16 {
        port.authenticated(200, &format!("user-{n}"));
    }
    assert!(port.len() <= 64 && !port.is_evicted(admin));
}

#[test]
fn a_new_connection_survives_a_flood_from_another_address() {
    let mut port = Port::new(&limits(64));
    for _ in 0..1000 {
        port.connect(1);
    }
    let newcomer = port.connect(2);
    for _ in 0..1000 {
        port.connect(1);
    }
    assert!(!port.is_evicted(newcomer));
    port.open[newcomer].0.handshake_done();
    for _ in 0..1000 {
        let at = port.connect(1);
        port.open[at].0.handshake_done();
    }
    assert!(!port.is_evicted(newcomer));
}

#[test]
fn a_user_with_all_slots_loses_them_to_others() {
    let mut port = Port::new(&limits(64));
    let others: Vec<usize> = (0..8).map(|n| port.authenticated(n, &format!("user-{n}"))).collect();
    for _ in 0..1000 {
        port.authenticated(100, "greedy");
    }
    let late = port.authenticated(101, "late");
    for _ in 0..1000 {
        port.authenticated(100, "greedy");
    }
    assert!(others.iter().chain([&late]).all(|at| !port.is_evicted(*at)));
    assert_eq!(port.len(), 64);
}

#[test]
fn per_address_limit_does_not_apply_to_loopback() {
    let mut port = Port::new(&Limits {
        max_connections: 64,
        max_per_address: Some(5),
        ..Limits::default()
    });
    let first = port.connect(1);
    let other = port.connect(2);
    for _ in 0..5 {
        port.connect(1);
    }
    assert!(port.is_evicted(first) && !port.is_evicted(other));
    assert_eq!(port.len(), 6);
    for _ in 0..20 {
        port.enter([127, 0, 0, 1].into(), true);
    }
    assert_eq!(port.len(), 26);
}

#[test]
fn a_slot_is_released_once() {
    let mut port = Port::new(&limits(4));
    for _ in 0..10 {
        port.connect(1);
    }
    assert!(*port.slots.leaving.borrow() > 0);
    port.open.clear();
    assert_eq!((port.len(), *port.slots.leaving.borrow()), (0, 0));
    assert!(port.slots.lock().evicted.is_empty());
}
