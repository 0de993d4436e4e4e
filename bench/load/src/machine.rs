//! CPU time and memory of processes and threads, as Linux' /proc tells (proc_pid_stat(5), proc_pid_schedstat(5)).

use std::fs;
use std::time::Duration;

/// Ticks of /proc's CPU times a second: a constant of Linux' interface to programs.
const TICKS_PER_S: u64 = 100;

/// User and system time of all threads of a process; `None` if there is no such process.
pub fn process_cpu(pid: u32) -> Option<Duration> {
    cpu_of_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// User and system time of the threads of this process.
pub fn own_cpu() -> Option<Duration> {
    process_cpu(std::process::id())
}

/// Time on a CPU of the calling thread.
pub fn thread_cpu() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Resident memory of a process in KiB.
pub fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 (utime, stime); the name in parentheses before them may hold anything.
fn cpu_of_stat(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = fields.next()?.ok()? + fields.next()?.ok()?;
    Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_user_and_system_time_whatever_the_process_is_called() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 3 4 20 0 5 0 100 1 2 3";
        assert_eq!(cpu_of_stat(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu_of_stat("7 (a"), None);
        assert_eq!(cpu_of_stat("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_all_of_them() {
        assert!(own_cpu().is_some() && thread_cpu().is_some());
        assert!(resident_kib(std::process::id()).is_some_and(|kib| kib > 0));
        assert_eq!(process_cpu(u32::MAX), None);
    }
}
