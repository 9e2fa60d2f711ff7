use super::*;

const MB: usize = 1 << 20;

fn queue() -> FairQueue<&'static str> {
    FairQueue::new(64 * MB)
}

#[test]
fn flow_with_less_cpu_time_runs_first() {
    let mut q = queue();
    for _ in 0..3 {
        q.push_new(1, "flood", 0);
    }
    assert_eq!(q.pop(), Some("flood"));
    q.charge(1, 5_000_000);
    q.push_new(2, "other", 0);
    assert_eq!(
        q.pop(),
        Some("other"),
        "a new flow waits for one job, not for the queue"
    );
    q.charge(2, 1_000);
    q.push_new(2, "other again", 0);
    assert_eq!(q.pop(), Some("other again"));
    q.charge(2, 9_000_000);
    q.push_new(2, "other at last", 0);
    assert_eq!(q.pop(), Some("flood"));
    assert_eq!(q.len(), 2);
}

#[test]
fn idling_earns_no_credit() {
    let mut q = queue();
    for _ in 0..4 {
        q.push_new(1, "busy", 0);
    }
    for _ in 0..3 {
        assert_eq!(q.pop(), Some("busy"));
        q.charge(1, 1_000);
    }
    q.push_new(2, "late", 0);
    q.push_new(2, "late", 0);
    assert_eq!(q.pop(), Some("late"));
    q.charge(2, 10_000);
    assert_eq!(q.pop(), Some("busy"), "the idle flow earned no credit");
}

#[test]
fn stream_of_new_flows_does_not_starve_a_waiting_one() {
    let mut q = queue();
    q.push_new(1, "first", 0);
    assert_eq!(q.pop(), Some("first"));
    q.charge(1, 1_000_000);
    q.push_new(1, "second", 0);
    let mut newcomers = 0;
    for flow in 2..1000 {
        q.push_new(flow, "newcomer", 0);
        if q.pop() == Some("second") {
            break;
        }
        q.charge(flow, 100_000);
        newcomers += 1;
    }
    assert!(newcomers <= 20, "{newcomers} ran before it");
}

#[test]
fn system_work_has_priority() {
    let mut q = queue();
    q.push_new(1, "caller", 0);
    q.push_system("system");
    assert_eq!((q.pop(), q.pop(), q.pop()), (Some("system"), Some("caller"), None));
}

#[test]
fn big_jobs_wait_for_memory_while_small_ones_run() {
    let mut q = queue();
    q.push_new(1, "first", 30 * MB);
    q.push_new(2, "second", 30 * MB);
    q.push_new(3, "small", 1000);
    assert_eq!((q.pop(), q.pop(), q.pop()), (Some("first"), Some("small"), None));
    q.push_woken(1, "first goes on");
    assert_eq!(q.pop(), Some("first goes on"), "started jobs run first");
    q.release(1, 30 * MB);
    assert_eq!((q.pop(), q.memory()), (Some("second"), 30 * MB + 1000));
}

#[test]
fn job_larger_than_the_limit_runs_alone() {
    let mut q = queue();
    q.push_new(1, "huge", 500 * MB);
    assert_eq!(q.pop(), Some("huge"));
    q.push_new(2, "big", 2 * MB);
    assert_eq!(q.pop(), None);
    q.release(1, 500 * MB);
    assert_eq!((q.pop(), q.memory()), (Some("big"), 2 * MB));
}

#[test]
fn one_flow_gets_at_most_half_of_the_memory() {
    let mut q = queue();
    for _ in 0..4 {
        q.push_new(1, "one", 15 * MB);
    }
    q.push_new(2, "two", 15 * MB);
    let started: Vec<_> = std::iter::from_fn(|| q.pop()).collect();
    assert_eq!(started, ["one", "one", "two"]);
}

#[test]
fn big_job_is_not_starved() {
    let mut q = queue();
    q.push_new(1, "running", 20 * MB);
    assert_eq!(q.pop(), Some("running"));
    q.push_new(2, "big", 40 * MB);
    let mut passed = 0;
    for flow in 3..1000 {
        q.push_new(flow, "medium", 2 * MB);
        if q.pop().is_none() {
            break;
        }
        q.release(flow, 2 * MB);
        passed += 1;
    }
    assert_eq!(passed, MAX_PASSED_OVER);
    q.release(1, 20 * MB);
    assert_eq!(q.pop(), Some("big"));
}

#[test]
fn idle_flows_are_forgotten() {
    let mut q = queue();
    for flow in 0..1000 {
        q.push_new(flow, "one", 10);
        assert_eq!(q.pop(), Some("one"));
        q.charge(flow, flow * 100);
        q.release(flow, 10);
    }
    assert!(q.flows.len() <= 1, "{} flows", q.flows.len());
    assert_eq!((q.memory(), q.len()), (0, 0));
}
