//! Child processes and their resource usage.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server under measurement; killed (by pid) when dropped.
pub struct Server {
    child: Child,
    needs: Option<Box<Server>>,
}

impl Server {
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, String> {
        let log = std::fs::File::create(log).map_err(|e| e.to_string())?;
        let err = log.try_clone().map_err(|e| e.to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(err))
            .spawn()
            .map_err(|e| format!("{:?}: {e}", command.get_program()))?;
        Ok(Self { child, needs: None })
    }

    /// Adds a process that this one depends on: it is included in the measurement, and stopped afterwards.
    pub fn with(mut self, other: Server) -> Self {
        self.needs = Some(Box::new(other));
        self
    }

    /// The process, its worker children (nginx), and the processes it depends on.
    fn pids(&self) -> Vec<u32> {
        let me = self.child.id();
        let mut all = self.needs.as_ref().map_or_else(Vec::new, |s| s.pids());
        all.push(me);
        if let Ok(text) = std::fs::read_to_string(format!("/proc/{me}/task/{me}/children")) {
            all.extend(text.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        }
        all
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let _ = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
    }

    /// User + system time so far.
    pub fn cpu(&self) -> Duration {
        let ticks: u64 = self
            .pids()
            .iter()
            .filter_map(|p| std::fs::read_to_string(format!("/proc/{p}/stat")).ok())
            .filter_map(|stat| {
                let fields: Vec<u64> = stat
                    .rsplit_once(')')?
                    .1
                    .split_whitespace()
                    .map(|f| f.parse().unwrap_or(0))
                    .collect();
                Some(fields.get(11)? + fields.get(12)?)
            })
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// Resident memory, in MB.
    pub fn rss_mb(&self) -> f64 {
        self.status_mb("VmRSS:")
    }

    /// Resident memory without the pages of files, of which the kernel maps as many as are cached, in MB.
    pub fn private_mb(&self) -> f64 {
        self.status_mb("RssAnon:")
    }

    /// Peak resident memory, in MB.
    pub fn peak_mb(&self) -> f64 {
        self.status_mb("VmHWM:")
    }

    fn status_mb(&self, field: &str) -> f64 {
        let kb: f64 = self
            .pids()
            .iter()
            .filter_map(|p| std::fs::read_to_string(format!("/proc/{p}/status")).ok())
            .filter_map(|s| {
                s.lines().find_map(|l| {
                    l.strip_prefix(field)?
                        .trim()
                        .trim_end_matches(" kB")
                        .parse::<f64>()
                        .ok()
                })
            })
            .sum();
        kb / 1024.0
    }

    /// Asks the process to end and waits; kills it after ten seconds.
    pub fn stop(mut self) {
        self.terminate();
    }

    fn terminate(&mut self) {
        let _ = Command::new("kill")
            .arg("-TERM")
            .arg(self.child.id().to_string())
            .status();
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
        }
    }
}

/// A currently unused port.
pub fn free_port() -> Result<u16, String> {
    let l = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    l.local_addr().map(|a| a.port()).map_err(|e| e.to_string())
}
