//! [`shorten_time_slice`]: a short time slice for reactor threads, which then preempt those of the compute pool.

/// Gives the calling thread a time slice of 100 µs instead of the kernel's default of about 3 ms. Its priority and its share
/// of the CPU stay the same, and threads that it starts have the default again. A thread with a real-time policy is left
/// alone.
///
/// For threads that poll connections: since Linux 6.12 a thread that wakes up preempts one with a longer slice at once.
/// Otherwise the running thread finishes its slice, even one of lower priority, and a small request waits that long for a
/// thread of the compute pool. Older kernels and other systems have no such slices.
///
/// # Errors
/// The kernel, or a filter of system calls, refuses. The thread works as before.
pub fn shorten_time_slice() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    linux::set_slice(100_000)?;
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::mem::size_of;

    /// The kernel's `struct sched_attr`, without the members of later versions.
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    /// The calling thread.
    const SELF: libc::pid_t = 0;

    /// Sets the slice of the calling thread in nanoseconds; Linux takes 0.1 to 100 ms.
    pub(super) fn set_slice(nanoseconds: u64) -> io::Result<()> {
        let mut attributes = read()?;
        // Deadline and real-time policies use the same field for something else.
        if attributes.sched_policy != libc::SCHED_OTHER as u32 {
            return Ok(());
        }
        attributes.size = SIZE;
        attributes.sched_runtime = nanoseconds;
        // Reset on fork: threads that this one starts, such as those of the compute pool, keep the default.
        attributes.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
        write(&attributes)
    }

    #[allow(unsafe_code, reason = "no crate has a safe binding for it")]
    pub(super) fn read() -> io::Result<libc::sched_attr> {
        // SAFETY: the struct consists of integers, for which zero is a value.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes at most `SIZE` bytes to the pointer, which is valid for as many.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, SELF, &raw mut attributes, SIZE, 0) };
        match result {
            0 => Ok(attributes),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[allow(unsafe_code, reason = "no crate has a safe binding for it")]
    fn write(attributes: &libc::sched_attr) -> io::Result<()> {
        // SAFETY: the kernel reads as many bytes as the struct says, which is its size.
        match unsafe { libc::syscall(libc::SYS_sched_setattr, SELF, &raw const *attributes, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The niceness, and the slice in ns; no slice before Linux 6.12.
    fn niceness_and_slice() -> (i32, Option<u64>) {
        let attributes = linux::read().expect("the kernel has sched_getattr");
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
        let mut numbers = release.split(['.', '-']).map(|n| n.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let has_slices = (next(), next()) >= (6, 12);
        (attributes.sched_nice, has_slices.then_some(attributes.sched_runtime))
    }

    #[test]
    fn only_the_slice_of_the_calling_thread_changes() {
        let of_thread = std::thread::spawn(|| {
            rustix::process::setpriority_process(None, 3).unwrap();
            let (_, default) = niceness_and_slice();
            shorten_time_slice().unwrap();
            assert_eq!(niceness_and_slice(), (3, default.map(|_| 100_000)));
            let of_child = std::thread::spawn(niceness_and_slice).join().unwrap();
            assert_eq!(of_child, (3, default));
            assert_ne!(default, Some(100_000));
        });
        of_thread.join().unwrap();
    }
}
